//! Freezing and thawing, on simulated machines.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "what a test writes down is no part of the simulated machine"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nearq_core::{Error, JoinError, JoinHandle, Runtime, Work, Workqueue};
use nearq_platform::{LockPlatform, ThreadSpec, Threads};
use nearq_sim::{Faults, Schedule, Sim, Simulation, compute};
use nearq_topology::Topology;

fn simulation(seed: u64) -> Simulation {
    Simulation::new(Topology::from_synthetic("numa:2 l3:1 core:2").expect("well formed"), seed)
}

fn runtime() -> Runtime<Sim> {
    Runtime::<Sim>::builder_in().build().expect("the machine is known")
}

fn freezable(runtime: &Runtime<Sim>, name: &str) -> Workqueue<Sim> {
    runtime.workqueue_builder(name).freezable().build().expect("the call succeeds")
}

#[test]
fn a_freeze_waits_for_running_items_and_holds_back_queued_items() {
    let outcome = simulation(1).run(|| {
        let runtime = runtime();
        let queues = [
            freezable(&runtime, "unbound"),
            runtime.workqueue_builder("percpu").per_cpu().freezable().build().unwrap(),
            runtime.workqueue_builder("ordered").ordered().freezable().build().unwrap(),
        ];
        let other = runtime.workqueue_builder("other").build().unwrap();
        assert!(queues.iter().all(|queue| queue.is_freezable()) && !other.is_freezable());
        let long =
            queues.each_ref().map(|queue| queue.spawn(|| Sim::sleep(Duration::from_millis(5))));
        Sim::sleep(Duration::from_millis(1));
        let begin = Sim::now();
        runtime.freeze().unwrap();
        assert!(long.iter().all(JoinHandle::is_finished));
        assert!(Sim::now() - begin > Duration::from_millis(3));
        assert!(runtime.is_frozen());
        runtime.freeze().unwrap();
        let late = freezable(&runtime, "late");
        let held: Vec<_> = queues.iter().chain([&late]).map(|queue| queue.spawn(|| {})).collect();
        queues[0].set_max_active(3).unwrap();
        other.spawn(|| {}).join().unwrap();
        Sim::sleep(Duration::from_millis(50));
        assert!(held.iter().all(|handle| !handle.is_finished()));
        for queue in queues.iter().chain([&late]) {
            assert_eq!(queue.inactive(), 1);
            assert!(queue.limits().iter().all(|row| row.limit == 0 && row.active == 0));
        }
        runtime.thaw();
        assert!(!runtime.is_frozen());
        for handle in held {
            handle.join().unwrap();
        }
        runtime.thaw();
        assert!(queues[0].limits().iter().all(|row| row.limit == 3), "min_active is 3 as well");
    });
    outcome.expect();
}

#[test]
fn an_item_of_a_freezable_queue_cannot_freeze_and_others_can() {
    let outcome = simulation(1).run(|| {
        let runtime = runtime();
        let (queue, other) =
            (freezable(&runtime, "own"), runtime.workqueue_builder("other").build().unwrap());
        let runtime_clone = runtime.clone();
        let error = queue.spawn(move || runtime_clone.freeze()).join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Deadlock(_)));
        assert!(error.to_string().contains("freezable"), "{error}");
        assert!(!runtime.is_frozen());
        let runtime_clone = runtime.clone();
        other.spawn(move || runtime_clone.freeze()).join().unwrap().unwrap();
        assert!(runtime.is_frozen());
        let runtime_clone = runtime.clone();
        other.spawn(move || runtime_clone.thaw()).join().unwrap();
        queue.spawn(|| {}).join().unwrap();
    });
    outcome.expect();
}

/// Four threads queue without a pause while other threads freeze and thaw: nothing runs while the runtime is frozen.
fn under_load(seed: u64) {
    let mut faults = Faults::NONE;
    if seed.is_multiple_of(2) {
        faults = Faults::ALL;
        faults.preempted_one_in = 50;
        faults.preemption = Duration::from_millis(1);
    }
    let schedule =
        [Schedule::Fair, Schedule::Random, Schedule::Pct { depth: 3 }][seed as usize % 3];
    let outcome = simulation(seed).faults(faults).schedule(schedule).run(move || {
        let runtime = runtime();
        let max_active = [1, 2, 100, 1024][seed as usize % 4];
        let builder = runtime.workqueue_builder("loaded").freezable().max_active(max_active);
        let queue = Arc::new(builder.build().expect("the call succeeds"));
        let (started, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut issuers = Vec::new();
        while issuers.len() < 4 {
            let (queue, counts) = (Arc::clone(&queue), (Arc::clone(&started), Arc::clone(&ended)));
            let main = move || {
                let work = Work::new_in(|_: &Work<Sim>| {});
                for _ in 0..100 {
                    let (started, ended) = counts.clone();
                    drop(queue.spawn(move || {
                        started.fetch_add(1, Ordering::SeqCst);
                        compute(Duration::from_micros(2));
                        ended.fetch_add(1, Ordering::SeqCst);
                    }));
                    queue.queue(&work);
                }
            };
            issuers.extend(Sim::spawn(ThreadSpec::default(), main));
        }
        for _ in 0..10 {
            Sim::sleep(Duration::from_micros(30));
            runtime.freeze().expect("not from inside");
            let before = started.load(Ordering::SeqCst);
            assert_eq!(before, ended.load(Ordering::SeqCst), "seed {seed}: something runs");
            Sim::sleep(Duration::from_micros(100));
            assert_eq!(before, started.load(Ordering::SeqCst), "seed {seed}: something started");
            runtime.thaw();
        }
        issuers.into_iter().for_each(Sim::join);
        drop(queue);
        assert_eq!(ended.load(Ordering::SeqCst), 400, "seed {seed}");
    });
    assert!(outcome.panics.is_empty(), "seed {seed}: {}", outcome.report());
    outcome.expect();
}

#[test]
fn no_item_starts_while_frozen() {
    (0..48).for_each(under_load);
}

#[test]
fn two_threads_freeze_and_one_thaws() {
    let outcome = simulation(2).run(|| {
        let runtime = runtime();
        let queue = freezable(&runtime, "own");
        let long = queue.spawn(|| Sim::sleep(Duration::from_millis(20)));
        Sim::sleep(Duration::from_millis(1));
        let freezers = [(); 2].map(|()| {
            let runtime = runtime.clone();
            Sim::spawn(ThreadSpec::default(), move || runtime.freeze().unwrap())
                .expect("a thread can be started")
        });
        Sim::sleep(Duration::from_millis(1));
        assert!(runtime.is_frozen());
        let begin = Sim::now();
        runtime.thaw();
        freezers.into_iter().for_each(Sim::join);
        assert!(Sim::now() - begin < Duration::from_millis(5), "they wait no longer");
        assert!(!long.is_finished());
        queue.spawn(|| {}).join().unwrap();
    });
    outcome.expect();
}

/// An item waits for items that are frozen, until another thread thaws. If the limit would hold them back afterwards as well, the item gets
/// an error.
#[test]
fn an_item_may_wait_for_items_that_a_thaw_admits() {
    let waits: [fn(&Workqueue<Sim>) -> bool; 3] = [
        |queue| matches!(queue.spawn(|| {}).join(), Err(JoinError::Deadlock)),
        |queue| {
            let work = Work::new_in(|_: &Work<Sim>| {});
            queue.queue(&work);
            matches!(work.flush(), Err(Error::Deadlock(_)))
        },
        |queue| {
            let mut set = queue.join_set();
            set.spawn(|| {});
            matches!(set.blocking_join_next(), Some(Err(JoinError::Deadlock)))
        },
    ];
    for (wait, limit) in waits.into_iter().flat_map(|wait| [(wait, 1), (wait, 2)]) {
        let outcome = simulation(3).run(move || {
            let runtime = runtime();
            let builder = runtime.workqueue_builder("own").freezable().max_active(3);
            let queue = Arc::new(builder.build().expect("the call succeeds"));
            let (queue_clone, frozen) = (Arc::clone(&queue), runtime.clone());
            let waiter = queue.spawn(move || {
                while !frozen.is_frozen() {
                    Sim::sleep(Duration::from_millis(1));
                }
                // The limit after the thaw counts, even if it changes meanwhile.
                queue_clone.set_max_active(limit).unwrap();
                wait(&queue_clone)
            });
            let freezes = runtime.clone();
            let freezer = Sim::spawn(ThreadSpec::default(), move || freezes.freeze().unwrap());
            Sim::sleep(Duration::from_millis(20));
            let is_refused = waiter.is_finished();
            runtime.thaw();
            Sim::join(freezer.expect("a thread can be started"));
            assert_eq!(
                (is_refused, waiter.join().unwrap()),
                (limit == 1, limit == 1),
                "limit {limit}"
            );
        });
        outcome.expect();
    }
}

/// The thread that thaws is using the queue while the queue's last handle is dropped.
#[test]
fn a_queue_is_dropped_while_other_threads_freeze_and_thaw() {
    for seed in 0..150 {
        let outcome = simulation(seed).schedule(Schedule::Random).run(|| {
            let runtime = runtime();
            let queue = freezable(&runtime, "own");
            drop(queue.spawn(|| {}));
            let other = {
                let runtime = runtime.clone();
                let main = move || {
                    for _ in 0..4 {
                        runtime.freeze().expect("not from inside");
                        runtime.thaw();
                    }
                };
                Sim::spawn(ThreadSpec::default(), main).expect("a thread can be started")
            };
            drop(queue);
            // By then, the memory may belong to something else.
            drop((0..3).map(|_| freezable(&runtime, "next")).collect::<Vec<_>>());
            Sim::join(other);
        });
        assert!(outcome.panics.is_empty(), "seed {seed}: {}", outcome.report());
        outcome.expect();
    }
}

/// An item for an idle CPU that a thaw, or a higher limit, admits does not wait behind items for another CPU: not while a worker is free
/// there (`all` false), and not if all workers had long items at that moment.
#[test]
fn items_admitted_for_an_idle_cpu_do_not_wait_for_another_cpus_backlog() {
    for (by_limit, all) in [(false, false), (false, true), (true, false), (true, true)] {
        let outcome = simulation(1).run(move || {
            let runtime = runtime();
            let make = |name: &str| {
                let queue = runtime
                    .workqueue_builder(name)
                    .affinity_scope(nearq_core::AffinityScope::Cpu)
                    .affinity_strict(true);
                let queue = if name == "held" { queue.freezable() } else { queue };
                queue.build().unwrap()
            };
            let (held, other) = (make("held"), make("other"));
            let cpus = runtime.parallelism();
            // So that each pool has a worker.
            let warm: Vec<_> = (0..cpus).map(|_| Work::<Sim>::new_in(|_: &Work<Sim>| {})).collect();
            for (cpu, work) in warm.iter().enumerate() {
                held.queue_on(cpu, work).unwrap();
            }
            held.flush().unwrap();
            let holder = Work::<Sim>::new_in(|_: &Work<Sim>| Sim::sleep(Duration::from_secs(1)));
            if by_limit {
                held.set_max_active(1).unwrap();
                held.queue_on(0, &holder).unwrap();
            } else {
                runtime.freeze().unwrap();
            }
            let started = Arc::new(AtomicU64::new(0));
            let starts = Arc::clone(&started);
            let work = Work::<Sim>::new_in(move |_: &Work<Sim>| {
                starts.store(Sim::now().as_nanos(), Ordering::SeqCst);
            });
            held.queue_on(1, &work).unwrap();
            let long = |millis: u64| {
                Work::<Sim>::new_in(move |_: &Work<Sim>| compute(Duration::from_millis(millis)))
            };
            let backlog: Vec<_> = (0..40).map(|_| long(200)).collect();
            for work in &backlog {
                other.queue_on(0, work).unwrap();
            }
            let others: Vec<_> = (1..cpus).map(|_| long(3)).collect();
            if all {
                for (index, work) in others.iter().enumerate() {
                    other.queue_on(index + 1, work).unwrap();
                }
            }
            Sim::sleep(Duration::from_millis(1));
            let begin = Sim::now();
            if by_limit {
                held.set_max_active(100).unwrap();
            } else {
                runtime.thaw();
            }
            while started.load(Ordering::SeqCst) == 0 {
                Sim::sleep(Duration::from_micros(100));
            }
            let took = started.load(Ordering::SeqCst) - begin.as_nanos();
            let bound = if all { 30 } else { 1 };
            assert!(took < bound * 1_000_000, "by limit {by_limit}, all {all}: {took} ns");
            held.flush().unwrap();
        });
        outcome.expect();
    }
}
