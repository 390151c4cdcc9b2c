//! A thread with preemption off keeps its CPU, and leaves it as soon as preemption is on again.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::Mutex;
use nearq_platform::{Atomic as _, LockPlatform, Ordering, Placement, Threads};
use nearq_sim::{AtomicU32, Faults, Schedule, Sim, Simulation, compute};

use crate::common::{cpus, go_to, machine, on, spawn_on};

const MILLISECOND: Duration = Duration::from_millis(1);

/// How long after the caller began to compute for 20 ms another thread of its CPU first ran, in milliseconds.
fn another_waits(off: bool) -> u128 {
    on("core:1", move || {
        let first = Arc::new(Mutex::<_, Sim>::new_in(None));
        let there = Arc::clone(&first);
        let other = spawn_on("0", move || *there.lock() = Some(Sim::now()));
        let begin = Sim::now();
        let work = || (0..20).for_each(|_| compute(MILLISECOND));
        if off {
            Sim::without_preemption(work)
        } else {
            work()
        }
        Sim::join(other);
        let first = first.lock().expect("it ran");
        (first - begin).as_millis()
    })
    .expect()
}

#[test]
fn the_end_of_a_slice_waits_until_preemption_is_on() {
    assert!(another_waits(false) < 15, "the slice ends");
    assert!((20..21).contains(&another_waits(true)), "and here it ends late, but at once");
}

#[test]
fn a_woken_thread_waits_until_preemption_is_on() {
    let woken_after = |off: bool| {
        on("core:2", move || {
            let word = Arc::new(AtomicU32::new(0));
            let there = Arc::clone(&word);
            let sleeper = spawn_on("0", move || {
                let _ = Sim::wait(&there, 0, None);
                compute(MILLISECOND);
            });
            go_to(1);
            Sim::sleep(MILLISECOND);
            let there = Arc::clone(&word);
            let busy = spawn_on("0", move || {
                compute(50 * MILLISECOND);
                let work = || (0..20).for_each(|_| compute(MILLISECOND));
                if off { Sim::without_preemption(work) } else { work() }
            });
            Sim::sleep(53 * MILLISECOND);
            let begin = Sim::now();
            there.store(1, Ordering::Release);
            let _ = Sim::wake(&raw const *there, 1);
            Sim::join(sleeper);
            let took = Sim::now() - begin;
            Sim::join(busy);
            took.as_millis()
        })
        .expect()
    };
    let preempts = woken_after(false);
    assert!(preempts < 8, "the sleeper preempts, at the latest when a slice is over: {preempts}");
    assert!((16..22).contains(&woken_after(true)));
}

#[test]
fn another_affinity_takes_effect_when_preemption_is_on() {
    let places = on("core:2", || {
        go_to(0);
        let within = Sim::without_preemption(|| {
            Sim::set_affinity(Sim::current_thread(), &cpus("1")).expect("the CPU exists");
            compute(MILLISECOND);
            Sim::without_preemption(|| compute(MILLISECOND));
            Sim::current_cpu()
        });
        (within, Sim::current_cpu())
    });
    assert_eq!(places.expect(), (0, 1));
}

#[test]
fn a_thread_that_would_sleep_with_preemption_off_panics() {
    let outcome = on("core:2", || {
        Sim::without_preemption(|| Sim::sleep(MILLISECOND));
    });
    let [panicked] = &outcome.panics[..] else { panic!("one thread was wrong: {outcome:?}") };
    assert!(panicked.message.contains("preemption is off"), "{panicked}");
    // It is on again, whatever happened.
    let outcome = on("core:2", || {
        let thread = spawn_on("1", || Sim::without_preemption(|| panic!("for the test")));
        Sim::join(thread);
        Sim::join(spawn_on("1", || Sim::sleep(MILLISECOND)));
        true
    });
    assert_eq!((outcome.panics.len(), outcome.result), (1, Some(true)));
}

/// Threads on fewer CPUs that exclude one another by spinning alone, which only works if the one inside keeps its CPU: a section takes as
/// long as it takes, whatever the schedule and the faults do.
#[test]
fn neither_a_schedule_nor_a_fault_preempts() {
    let mut faults = Faults::NONE;
    (faults.preempted_one_in, faults.preemption) = (20, 5 * MILLISECOND);
    for (seed, schedule) in (0..10).zip([Schedule::Fair, Schedule::Random].into_iter().cycle()) {
        let simulation = Simulation::new(machine("core:2"), seed).schedule(schedule).faults(faults);
        let longest = simulation.jitter(false).run(|| {
            let longest = Arc::new(AtomicU32::new(0));
            let threads: Vec<_> = (0..6)
                .map(|_| {
                    let longest = Arc::clone(&longest);
                    spawn_on("0-1", move || {
                        for _ in 0..30 {
                            let took = Sim::without_preemption(|| {
                                let (begin, cpu) = (Sim::now(), Sim::current_cpu());
                                (0..5).for_each(|_| compute(Duration::from_micros(10)));
                                assert_eq!(Sim::current_cpu(), cpu);
                                Sim::now() - begin
                            });
                            let took = took.as_micros() as u32;
                            if took > longest.load(Ordering::Relaxed) {
                                longest.store(took, Ordering::Relaxed);
                            }
                            compute(Duration::from_micros(50));
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(Sim::join);
            longest.load(Ordering::Relaxed)
        });
        // Under the random schedule, a thread may stand still for 5 us at each step.
        assert!(longest.expect() < 150, "seed {seed}");
    }
}
