//! The runtime's mutex and parker on simulated machines: exclusion, progress, and the time that they take.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::time::Duration;

use nearq_lock::Mutex;
use nearq_platform::{LockPlatform, Parker, ThreadSpec, Threads};
use nearq_sim::{Costs, Schedule, Sim, Simulation, compute};

use crate::common::machine;

struct Seen(Mutex<(), Sim>, UnsafeCell<(u32, u32)>);
// SAFETY: the cell is used under the mutex, and simulated threads share one real thread.
unsafe impl Sync for Seen {}

fn contend(threads: u32, rounds: u32) -> (u32, u32) {
    let seen = Arc::new(Seen(Mutex::new_in(()), UnsafeCell::new((0, 0))));
    let all: Vec<_> = (0..threads)
        .map(|_| {
            let seen = Arc::clone(&seen);
            let main = move || {
                for round in 0..rounds {
                    let guard = seen.0.lock();
                    // SAFETY: valid for as long as `seen`; under the mutex, and no reference outlives the line.
                    unsafe { (*seen.1.get()).0 += 1 };
                    compute(Duration::from_nanos(u64::from(round % 7) * 300));
                    // SAFETY: valid for as long as `seen`; under the mutex, and the references are gone before it is given back.
                    let (before, after) = unsafe { &mut *seen.1.get() };
                    *after += 1;
                    assert_eq!(before, after, "two threads held the lock");
                    drop(guard);
                    compute(Duration::from_nanos(u64::from(round % 5) * 500));
                }
            };
            Sim::spawn(ThreadSpec::default(), main).expect("a free slot")
        })
        .collect();
    all.into_iter().for_each(Sim::join);
    // SAFETY: all other threads have ended.
    unsafe { *seen.1.get() }
}

#[test]
fn sixteen_threads_on_eight_cpus_exclude_each_other() {
    for seed in 0..20 {
        let schedule = if seed % 2 == 0 { Schedule::Fair } else { Schedule::Random };
        let outcome = Simulation::new(machine("l3:2 core:4"), seed)
            .schedule(schedule)
            .run(|| contend(16, 100));
        assert_eq!(outcome.expect(), (1600, 1600), "seed {seed}");
    }
}

#[test]
fn one_cpu_is_enough() {
    let outcome = Simulation::new(machine("core:1"), 0).run(|| contend(4, 50));
    assert_eq!(outcome.expect(), (200, 200));
}

#[test]
fn the_lock_works_on_many_cpus() {
    let outcome = Simulation::new(machine("numa:8 l3:4 core:6 pu:2"), 0).run(|| contend(384, 10));
    assert_eq!(outcome.expect(), (3840, 3840));
}

#[test]
fn a_panic_releases_the_mutex() {
    let outcome = Simulation::new(machine("core:2"), 0).run(|| {
        let mutex = Arc::new(Mutex::<u32, Sim>::new_in(0));
        let shared = Arc::clone(&mutex);
        let thread = Sim::spawn(ThreadSpec::default(), move || {
            let _guard = shared.lock();
            // Long enough for the other thread to sleep on it.
            compute(Duration::from_millis(1));
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        Sim::sleep(Duration::from_micros(100));
        *mutex.lock() += 1;
        Sim::join(thread.expect("a free slot"));
        *mutex.lock()
    });
    assert_eq!((outcome.panics.len(), outcome.result), (1, Some(1)));
}

#[test]
fn ping_pong_takes_the_sum_of_its_parts() {
    const ROUNDS: u64 = 1000;
    let took = Simulation::new(machine("core:2"), 0).jitter(false).run(|| {
        let parkers = Arc::new([Parker::<Sim>::new(), Parker::<Sim>::new()]);
        let shared = Arc::clone(&parkers);
        let thread = Sim::spawn(ThreadSpec::default(), move || {
            for _ in 0..ROUNDS {
                shared[1].park(None);
                shared[0].unpark();
            }
        });
        let start = Sim::now();
        for _ in 0..ROUNDS {
            parkers[1].unpark();
            parkers[0].park(None);
        }
        let took = Sim::now() - start;
        Sim::join(thread.expect("a free slot"));
        took
    });
    let took = took.expect().as_nanos() as u64 / ROUNDS;
    // Each way: the waker's call and wake-up; the other CPU leaves idle (its last thread is the same: no switch).
    // The few accesses in between cost at most some transfers each.
    let c = Costs::DEFAULT;
    let way = c.system_call + c.wake_up + c.idle_exit;
    let accesses = 12 * (c.same_llc + c.read_modify_write);
    assert!((2 * way..2 * way + accesses).contains(&took), "{took} ns a round, 2 x {way} expected");
}
