//! The optimistic spin queue on simulated machines: exclusion, order and progress with many threads, and with more threads
//! than CPUs.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::time::Duration;

use nearq_lock::raw::OsqLock;
use nearq_platform::{LockPlatform, ThreadSpec, Threads};
use nearq_sim::{Faults, Sim, Simulation, compute};

use crate::common::{machine, schedule_of};

struct Seen(OsqLock<(), Sim>, UnsafeCell<(u32, u32)>);
// SAFETY: the cell is used under the lock, and simulated threads share one real thread.
unsafe impl Sync for Seen {}

/// Each thread takes the lock that many times, and every third time leaves the queue if its turn does not come soon. Returns how often a
/// thread was inside.
fn hammer(threads: u32, rounds: u32) -> (u32, u32) {
    let seen = Arc::new(Seen(OsqLock::new_in(()), UnsafeCell::new((0, 0))));
    let got: Vec<_> = (0..threads)
        .map(|index| {
            let seen = Arc::clone(&seen);
            let main = move || {
                for round in 0..rounds {
                    let guard = match (index + round) % 6 {
                        0 => seen.0.lock_spinning(100),
                        3 => seen.0.try_lock_for(Duration::from_micros(5)),
                        _ => Some(seen.0.lock()),
                    };
                    let Some(guard) = guard else { continue };
                    // SAFETY: valid for as long as `seen`; under the lock, and no reference outlives the line.
                    unsafe { (*seen.1.get()).0 += 1 };
                    compute(Duration::from_nanos(u64::from(round % 7) * 50));
                    // SAFETY: valid for as long as `seen`; under the lock, and the references are gone before it is given back.
                    let (before, after) = unsafe { &mut *seen.1.get() };
                    *after += 1;
                    assert_eq!(before, after, "two threads held the lock");
                    drop(guard);
                    compute(Duration::from_nanos(u64::from(round % 5) * 100));
                }
            };
            Sim::spawn(ThreadSpec::default(), main).expect("a free slot")
        })
        .collect();
    got.into_iter().for_each(Sim::join);
    // SAFETY: all other threads have ended.
    unsafe { *seen.1.get() }
}

fn check((entered, left): (u32, u32), threads: u32, rounds: u32) {
    assert_eq!(entered, left);
    // Four of the six threads do not give up.
    assert!(entered >= threads * (rounds / 6 * 4), "{entered} of {threads} times {rounds}");
    assert!(entered <= threads * rounds);
}

#[test]
fn many_threads_exclude_each_other_and_all_finish() {
    for (shape, threads, rounds) in
        [("l3:2 core:4", 2, 60), ("l3:2 core:4", 16, 60), ("numa:8 l3:4 core:6 pu:2", 384, 12)]
    {
        let outcome = Simulation::new(machine(shape), 1).run(move || hammer(threads, rounds));
        check(outcome.expect(), threads, rounds);
    }
}

#[test]
fn the_lock_survives_any_schedule_and_long_preemptions() {
    for seed in 0..20 {
        let schedule = schedule_of(seed);
        let mut faults = Faults::ALL;
        faults.spawn_refused_one_in = 0;
        let outcome = Simulation::new(machine("l3:2 core:2"), seed)
            .schedule(schedule)
            .faults(faults)
            .run(|| hammer(12, 18));
        check(outcome.expect(), 12, 18);
    }
}

#[test]
fn one_cpu_is_enough() {
    let outcome = Simulation::new(machine("core:1"), 0).run(|| hammer(4, 30));
    check(outcome.expect(), 4, 30);
}

/// All threads wait while one holds the lock; they are served in the order in which they came.
#[test]
fn first_come_first_served() {
    let outcome = Simulation::new(machine("numa:2 l3:2 core:8"), 3).run(|| {
        let lock = Arc::new(OsqLock::<Vec<u32>, Sim>::new_in(Vec::new()));
        let guard = lock.lock();
        let threads: Vec<_> = (0..30)
            .map(|index| {
                let lock = Arc::clone(&lock);
                let thread = Sim::spawn(ThreadSpec::default(), move || lock.lock().push(index));
                Sim::sleep(Duration::from_millis(1));
                thread.expect("a free slot")
            })
            .collect();
        drop(guard);
        threads.into_iter().for_each(Sim::join);
        lock.lock().clone()
    });
    assert_eq!(outcome.expect(), (0..30).collect::<Vec<_>>());
}
