//! Schedules that search for bugs, and the progress that a run reports.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, LockPlatform, Ordering, Threads};
use nearq_sim::{AtomicU32, AtomicU64, Schedule, Sim, Simulation, compute};

use crate::common::{machine, on, spawn};

const MICROSECOND: Duration = Duration::from_micros(1);

// ---- schedules that search for bugs ------------------------------------------------------------------------------

/// A thread checks that an object exists and uses it; another thread removes the object, much later by the clock. Returns whether the
/// object was gone when it was used: that needs two orderings, the check before the removal, and the removal before the use.
fn check_and_use() -> bool {
    let there = Arc::new(AtomicU32::new(1));
    let lock = Arc::new(Mutex::<u32, Sim>::new_in(0));
    let (shared, their_lock) = (Arc::clone(&there), Arc::clone(&lock));
    let user = spawn(move || {
        for _ in 0..10 {
            *their_lock.lock() += 1;
            if shared.load(Ordering::Acquire) == 1 && shared.load(Ordering::Acquire) == 0 {
                Sim::warn("used after it was gone");
            }
        }
    });
    let remover = spawn(move || {
        for _ in 0..30 {
            compute(10 * MICROSECOND);
            *lock.lock() += 1;
        }
        there.store(0, Ordering::Release);
    });
    Sim::join(user);
    Sim::join(remover);
    true
}

#[test]
fn priorities_find_a_bug_of_depth_two_that_fair_schedules_never_show() {
    let found = |schedule: Schedule, seeds: u64| -> Vec<u64> {
        (0..seeds)
            .filter(|seed| {
                let run = || {
                    Simulation::new(machine("l3:2 core:2"), *seed)
                        .schedule(schedule)
                        .run(check_and_use)
                };
                let outcome = run();
                let bug = !outcome.warnings.is_empty();
                if bug {
                    assert_eq!(
                        run().trace_hash,
                        outcome.trace_hash,
                        "the same seed replays the run"
                    );
                }
                assert!(outcome.expect());
                bug
            })
            .collect()
    };
    assert_eq!(found(Schedule::Fair, 500), [0; 0]);
    let by_priority = found(Schedule::Pct { depth: 2 }, 1_000);
    println!("found by seeds {by_priority:?}");
    assert!(!by_priority.is_empty());
    // One ordering is not enough to find it.
    assert_eq!(found(Schedule::Pct { depth: 1 }, 500), [0; 0]);
}

#[test]
fn random_priorities_starve_no_thread() {
    // On one CPU and on three, with more threads than CPUs that wait for each other by spinning and yielding.
    for description in ["core:1", "l3:3 core:1"] {
        for seed in 0..40 {
            let simulation =
                Simulation::new(machine(description), seed).schedule(Schedule::Pct { depth: 3 });
            let outcome = simulation.run(|| {
                let turn = Arc::new(AtomicU32::new(0));
                let threads: Vec<_> = (0..5)
                    .map(|me| {
                        let turn = Arc::clone(&turn);
                        spawn(move || {
                            for round in 0..4 {
                                let own_turn = round * 5 + me;
                                loop {
                                    let now = turn.load(Ordering::Relaxed);
                                    if now == own_turn {
                                        break;
                                    }
                                    if !Sim::wait_until_changed(&turn, now, 100) {
                                        Sim::yield_now();
                                    }
                                }
                                turn.fetch_add(1, Ordering::Relaxed);
                            }
                        })
                    })
                    .collect();
                threads.into_iter().for_each(Sim::join);
                turn.load(Ordering::Relaxed)
            });
            assert_eq!(outcome.expect(), 20, "{description}, seed {seed}");
        }
    }
}

#[test]
fn a_thread_of_lower_priority_loses_its_cpu_while_it_holds_a_lock() {
    let held = (0..50)
        .map(|seed| {
            let simulation =
                Simulation::new(machine("core:1"), seed).schedule(Schedule::Pct { depth: 3 });
            let outcome = simulation.run(|| {
                let lock = Arc::new(Mutex::<u32, Sim>::new_in(0));
                let found = Arc::new(AtomicU32::new(0));
                let threads: Vec<_> = (0..3)
                    .map(|_| {
                        let (lock, found) = (Arc::clone(&lock), Arc::clone(&found));
                        spawn(move || {
                            for _ in 0..30 {
                                if lock.try_lock().is_none() {
                                    found.fetch_add(1, Ordering::Relaxed);
                                }
                                let mut guard = lock.lock();
                                *guard += 1;
                                let _ = Sim::now();
                                drop(guard);
                                Sim::sleep(MICROSECOND);
                            }
                        })
                    })
                    .collect();
                threads.into_iter().for_each(Sim::join);
                found.load(Ordering::Relaxed)
            });
            u64::from(outcome.expect() > 0)
        })
        .sum::<u64>();
    assert!(held > 10, "in {held} of 50 runs");
}

// ---- progress -------------------------------------------------------------------------------------------------

#[test]
fn reporting_progress_changes_nothing() {
    use std::cell::RefCell;
    use std::rc::Rc;
    let program = || {
        let count = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let count = Arc::clone(&count);
                spawn(move || {
                    for _ in 0..100_000 {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(Sim::join);
    };
    let silent = on("core:4", program);
    let reports = Rc::new(RefCell::new(Vec::new()));
    let recorder = Rc::clone(&reports);
    let watched = Simulation::new(machine("core:4"), 1)
        .jitter(false)
        .progress(move |progressed| recorder.borrow_mut().push(progressed))
        .run(program);
    assert_eq!((silent.trace_hash, silent.end), (watched.trace_hash, watched.end));
    let reports = reports.borrow();
    assert!((4..=16).contains(&reports.len()), "{} times", reports.len());
    assert!(reports.is_sorted_by_key(|progressed| (progressed.accesses, progressed.events)));
    assert!(reports.last().is_some_and(|last| last.accesses <= watched.accesses));
}
