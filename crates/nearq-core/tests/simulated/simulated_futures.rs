//! Futures, sets and cancelling on a simulated machine of 64 CPUs, while threads are preempted for long, refused, and CPUs go
//! offline.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use nearq_core::{AffinityScope, Runtime};
use nearq_lock::Mutex;
use nearq_platform::{LockPlatform, ThreadSpec, Threads};
use nearq_sim::{Faults, Outcome, Schedule, Sim, Simulation, compute};
use nearq_topology::Topology;

fn machine() -> Topology {
    Topology::from_synthetic("pack:2 l3:4 core:8").expect("well formed")
}

/// All threads have ended, and nothing was reported.
fn expect<R>(outcome: Outcome<R>, seed: u64) -> R {
    assert!(outcome.panics.is_empty(), "seed {seed}: {}", outcome.report());
    let report = outcome.report();
    outcome.result.unwrap_or_else(|| panic!("seed {seed}: {report}"))
}

/// A token that a ring of futures passes around.
struct Ring {
    /// The number of the current turn, and the futures that wait for theirs, by number.
    turn: Mutex<(usize, Vec<Option<Waker>>), Sim>,
}

impl Ring {
    /// Waits for the `at`-th turn of all. False if that turn has not come yet.
    fn poll_turn(&self, number: usize, at: usize, waker: &Waker) -> bool {
        let mut turn = self.turn.lock();
        let reached = turn.0 >= at;
        if !reached {
            turn.1[number] = Some(waker.clone());
        }
        reached
    }

    /// Passes the turn to the next future.
    fn pass(&self, number: usize) {
        let waker = {
            let mut turn = self.turn.lock();
            turn.0 += 1;
            let next = (number + 1) % turn.1.len();
            turn.1[next].take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// That many futures pass a token around, each queued from a different CPU; returns the sum of what they have seen.
fn ring(seed: u64, schedule: Schedule, scope: AffinityScope, max_active: usize) -> (usize, u64) {
    const FUTURES: usize = 64;
    const ROUNDS: usize = 4;
    let outcome =
        Simulation::new(machine(), seed).schedule(schedule).faults(Faults::ALL).run(move || {
            let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
            let builder =
                runtime.workqueue_builder("ring").affinity_scope(scope).max_active(max_active);
            let queue = builder.build().expect("the call succeeds");
            let waiting = (0..FUTURES).map(|_| None).collect();
            let ring = Arc::new(Ring { turn: Mutex::new_in((0, waiting)) });
            let mut set = queue.join_set();
            for number in 0..FUTURES {
                let ring = Arc::clone(&ring);
                let (mut round, mut polls) = (0, 0);
                set.spawn_future(poll_fn(move |context| {
                    polls += 1;
                    compute(Duration::from_nanos(300));
                    while ring.poll_turn(number, round * FUTURES + number, context.waker()) {
                        round += 1;
                        ring.pass(number);
                        if round == ROUNDS {
                            return Poll::Ready(polls);
                        }
                    }
                    Poll::Pending
                }));
            }
            // Other threads wake all futures for nothing.
            let noise: Vec<_> = (0..3)
                .map(|_| {
                    let ring = Arc::clone(&ring);
                    let main = move || {
                        for _ in 0..10 {
                            let wakers = ring.turn.lock().1.clone();
                            wakers.iter().flatten().for_each(Waker::wake_by_ref);
                            Sim::sleep(Duration::from_micros(30));
                        }
                    };
                    Sim::spawn(ThreadSpec::default(), main)
                })
                .collect();
            let mut ended = 0;
            let mut polls = 0_u64;
            while let Some(result) = set.blocking_join_next() {
                polls += result.expect("it neither panicked nor was cancelled");
                ended += 1;
            }
            noise.into_iter().flatten().for_each(Sim::join);
            drop(set);
            drop(queue);
            drop(runtime);
            (ended, polls)
        });
    expect(outcome, seed)
}

#[test]
fn futures_that_wake_each_other_across_64_cpus() {
    for seed in 0..nearq_model::bound(6, 12) {
        let schedule = if seed % 2 == 0 { Schedule::Random } else { Schedule::Fair };
        let scope = AffinityScope::ALL[seed as usize % AffinityScope::ALL.len()];
        let max_active = [1, 2, 16, 1024][seed as usize % 4];
        let (ended, polls) = ring(seed, schedule, scope, max_active);
        assert_eq!(ended, 64, "seed {seed}");
        assert!(polls >= 64, "seed {seed}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let [first, second] = [7, 7].map(|seed| ring(seed, Schedule::Random, AffinityScope::Cache, 16));
    assert_eq!(first, second);
}

/// Wakes, cancels and joins from several threads while the queue is dropped. Returns how many futures ended normally, and how many were
/// cancelled.
fn dropped(seed: u64) -> (u32, u32) {
    let outcome = Simulation::new(machine(), seed)
        .schedule(Schedule::Random)
        .faults(Faults::ALL)
        .run(move || {
            let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
            let queue = runtime.workqueue_builder("dropped").max_active(1 + seed as usize % 5);
            let queue =
                queue.affinity_scope(AffinityScope::Cache).build().expect("the call succeeds");
            let wakers = Arc::new(Mutex::<Vec<Waker>, Sim>::new_in(Vec::new()));
            let open = Arc::new(Mutex::<bool, Sim>::new_in(false));
            let handles: Vec<_> = (0..12)
                .map(|_| {
                    let (wakers, open) = (Arc::clone(&wakers), Arc::clone(&open));
                    queue.spawn_future(poll_fn(move |context| {
                        wakers.lock().push(context.waker().clone());
                        compute(Duration::from_micros(1));
                        if *open.lock() { Poll::Ready(()) } else { Poll::Pending }
                    }))
                })
                .collect();
            let closures: Vec<_> = (0..12)
                .map(|number| {
                    let handle = queue.spawn(move || compute(Duration::from_micros(number)));
                    let cancelled = number % 3 == 0 && handle.cancel();
                    (handle, cancelled)
                })
                .collect();
            let waking: Vec<_> = (0..3)
                .map(|number| {
                    let (wakers, open) = (Arc::clone(&wakers), Arc::clone(&open));
                    let main = move || {
                        Sim::sleep(Duration::from_micros(5 * number));
                        *open.lock() = true;
                        // Those that were pushed before it was open are all here, or will check it.
                        for _ in 0..20 {
                            let taken = core::mem::take(&mut *wakers.lock());
                            taken.into_iter().for_each(Waker::wake);
                            Sim::sleep(Duration::from_micros(20));
                        }
                    };
                    Sim::spawn(ThreadSpec::default(), main)
                })
                .collect();
            Sim::sleep(Duration::from_micros(seed % 40));
            drop(queue);
            waking.into_iter().flatten().for_each(Sim::join);
            // If no thread could be started for it.
            *open.lock() = true;
            let taken = core::mem::take(&mut *wakers.lock());
            taken.into_iter().for_each(Waker::wake);
            let (mut well, mut cancelled) = (0, 0);
            for handle in handles {
                match handle.join() {
                    Ok(()) => well += 1,
                    Err(error) if error.is_cancelled() => cancelled += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            for (closure, cancelled) in closures {
                assert_eq!(closure.join().is_err(), cancelled);
            }
            drop(runtime);
            (well, cancelled)
        });
    expect(outcome, seed)
}

#[test]
fn a_queue_is_dropped_while_its_futures_are_woken() {
    let (mut well, mut cancelled) = (0, 0);
    for seed in 0..60 {
        let counts = dropped(seed);
        assert_eq!(counts.0 + counts.1, 12, "seed {seed}");
        well += counts.0;
        cancelled += counts.1;
    }
    println!("{well} ended well, {cancelled} were cancelled");
    assert!(well > 0 && cancelled > 0, "both outcomes occur");
}

#[test]
fn closures_are_cancelled_while_they_start() {
    let (mut ran, mut not) = (0, 0);
    for seed in 0..60 {
        let outcome = Simulation::new(machine(), seed)
            .schedule(Schedule::Random)
            .faults(Faults::ALL)
            .run(move || {
                let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
                let queue =
                    runtime.workqueue_builder("cancelled").max_active(1 + seed as usize % 4);
                let queue = queue.build().expect("the call succeeds");
                let runs = Arc::new(Mutex::<Vec<usize>, Sim>::new_in(Vec::new()));
                let handles: Vec<_> = (0..40)
                    .map(|number| {
                        let runs = Arc::clone(&runs);
                        queue.spawn(move || {
                            compute(Duration::from_micros(1));
                            runs.lock().push(number);
                        })
                    })
                    .collect();
                let mut cancelled = Vec::new();
                for (number, handle) in handles.iter().enumerate() {
                    compute(Duration::from_nanos(700));
                    if handle.cancel() {
                        cancelled.push(number);
                    }
                }
                for (number, handle) in handles.into_iter().enumerate() {
                    assert_eq!(handle.join().is_err(), cancelled.contains(&number));
                }
                drop(queue);
                drop(runtime);
                let mut all: Vec<_> = runs.lock().iter().chain(&cancelled).copied().collect();
                all.sort_unstable();
                assert_eq!(all, (0..40).collect::<Vec<_>>(), "it ran, or it was cancelled");
                cancelled.len()
            });
        let cancelled = expect(outcome, seed);
        ran += 40 - cancelled;
        not += cancelled;
    }
    println!("{ran} ran, {not} were cancelled");
    assert!(ran > 0 && not > 0, "both outcomes occur");
}
