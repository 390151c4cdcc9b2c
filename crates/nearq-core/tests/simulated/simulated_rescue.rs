//! Rescuers on simulated machines on which, from some moment on, no thread can be started: what waits still runs, and at the right time.

use std::sync::Arc;
use std::time::Duration;

use nearq_core::{
    AffinityScope, JoinHandle, Runtime, Work, Workqueue, WorkqueueBuilder, inspect::PoolStatistics,
};
use nearq_lock::Mutex;
use nearq_platform::{Instant, LockPlatform, Threads};
use nearq_sim::{Faults, Outcome, Schedule, Sim, Simulation, compute};
use nearq_topology::Topology;

/// When rescuers are called, and the longest delay of the monitor on a machine with nothing else to do.
const FIRST: Duration = Duration::from_millis(10);
const LATE: Duration = Duration::from_millis(3);

fn machine(text: &str) -> Topology {
    Topology::from_synthetic(text).expect("well formed")
}

/// From now on no thread can be started.
fn refuse_threads() {
    let mut faults = Faults::NONE;
    faults.spawn_refused_one_in = 1;
    Sim::start_faults(faults);
}

fn runtime() -> Runtime<Sim> {
    Runtime::<Sim>::builder_in().build().expect("the machine is known")
}

fn build(builder: WorkqueueBuilder<Sim>) -> Workqueue<Sim> {
    builder.rescuer().build().expect("threads can be started still")
}

/// Waits until all have ended, without helping.
fn wait_for<T>(handles: &[JoinHandle<T, Sim>], patience: Duration) -> bool {
    let deadline = Sim::now() + patience;
    while !handles.iter().all(JoinHandle::is_finished) {
        if Sim::now() >= deadline {
            return false;
        }
        Sim::sleep(Duration::from_micros(500));
    }
    true
}

/// Mayday calls, what was rescued, and what has ended.
fn counted(queue: &Workqueue<Sim>) -> (u64, u64, u64) {
    let rows = queue.statistics();
    let sum = |what: fn(&PoolStatistics) -> u64| rows.iter().map(what).sum();
    (sum(|row| row.mayday), sum(|row| row.rescued), sum(|row| row.completed))
}

/// The result, if all threads have ended and there was no warning.
fn check<T>(outcome: Outcome<T>) -> T {
    assert!(outcome.result.is_some() && outcome.panics.is_empty(), "{}", outcome.report());
    assert!(outcome.unfinished.len() <= 1, "threads are left: {}", outcome.report());
    outcome.expect()
}

#[test]
fn all_items_run_although_no_worker_can_be_started() {
    const ITEMS: usize = 50;
    for seed in 0..10 {
        let outcome = Simulation::new(machine("core:4"), seed).run(move || {
            let runtime = runtime();
            let queue = build(runtime.workqueue_builder("rescued"));
            refuse_threads();
            for _ in 0..3 {
                let begin = Sim::now();
                let handles: Vec<_> = (0..ITEMS)
                    .map(|_| {
                        queue.spawn(move || {
                            let started = Sim::now();
                            compute(Duration::from_micros(100));
                            (started - begin, Sim::now() - begin)
                        })
                    })
                    .collect();
                let ended = wait_for(&handles, Duration::from_secs(1));
                assert!(ended, "seed {seed}: not rescued");
                let times: Vec<_> =
                    handles.into_iter().map(|handle| handle.join().expect("no panic")).collect();
                assert!(times[0].0 >= FIRST, "seed {seed}: called after {:?}", times[0].0);
                assert!(times[0].0 < FIRST + LATE, "seed {seed}: called after {:?}", times[0].0);
                for pair in times.windows(2) {
                    assert!(pair[0].1 <= pair[1].0, "in order, one at a time: {pair:?}");
                }
                let last = times[ITEMS - 1].1;
                assert!(
                    last < FIRST + LATE + Duration::from_millis(10),
                    "one call is enough: {last:?}"
                );
                // The next ones meet an idle runtime.
                Sim::sleep(Duration::from_millis(100));
            }
            assert_eq!(counted(&queue), (3, 3 * ITEMS as u64, 3 * ITEMS as u64));
            assert_eq!(runtime.thread_count(), 0);
            // When threads can be started again, everything works as before.
            Sim::stop_faults();
            let begin = Sim::now();
            let late = queue.spawn(move || Sim::now() - begin).join().expect("no panic");
            assert!(late < Duration::from_millis(1), "{late:?}");
            assert_eq!(counted(&queue).1, 3 * ITEMS as u64);
        });
        check(outcome);
    }
}

#[test]
fn a_queue_without_a_rescuer_waits_until_threads_can_be_started() {
    let outcome = Simulation::new(machine("core:4"), 1).run(|| {
        let runtime = runtime();
        let rescued = build(runtime.workqueue_builder("rescued"));
        let other = runtime.workqueue_builder("other").build().expect("the call succeeds");
        refuse_threads();
        // Items of both queues wait on the same pool, alternating.
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        for _ in 0..20 {
            others.push(other.spawn(|| ()));
            ours.push(rescued.spawn(|| ()));
        }
        assert!(wait_for(&ours, Duration::from_millis(50)));
        assert!(others.iter().all(|other| !other.is_finished()), "a rescuer serves one queue");
        Sim::stop_faults();
        assert!(wait_for(&others, Duration::from_millis(50)));
    });
    check(outcome);
}

#[test]
fn items_in_workers_batches_are_rescued() {
    for (seed, &scope) in AffinityScope::ALL.iter().enumerate() {
        let outcome = Simulation::new(machine("l3:2 core:2"), seed as u64).run(move || {
            let runtime = runtime();
            let queue = build(runtime.workqueue_builder("batches").affinity_scope(scope));
            let other = runtime
                .workqueue_builder("other")
                .affinity_scope(scope)
                .build()
                .expect("the call succeeds");
            // Short items, so that workers take many at once.
            let short: Vec<_> = (0..2000).map(|_| other.spawn(|| ())).collect();
            assert!(wait_for(&short, Duration::from_secs(1)));
            refuse_threads();
            let (mut asleep, mut needed) = (Vec::new(), Vec::new());
            for _ in 0..8 {
                asleep.push(other.spawn(|| Sim::sleep(Duration::from_secs(1))));
                needed.extend((0..20).map(|_| queue.spawn(|| ())));
            }
            assert!(wait_for(&needed, Duration::from_millis(100)), "{:?}", runtime.pools());
            assert!(asleep.iter().all(|handle| !handle.is_finished()));
            drop(queue);
        });
        check(outcome);
    }
}

/// All workers of the queue's pods sleep in items of another queue.
fn workers_asleep(scope: AffinityScope, seed: u64) {
    let outcome = Simulation::new(machine("l3:2 core:2"), seed).run(move || {
        let runtime =
            Runtime::<Sim>::builder_in().thread_limit(4).build().expect("the settings are valid");
        let queue = build(runtime.workqueue_builder("needed").affinity_scope(scope));
        let other = runtime
            .workqueue_builder("asleep")
            .affinity_scope(scope)
            .build()
            .expect("the call succeeds");
        let asleep: Vec<_> =
            (0..16).map(|_| other.spawn(|| Sim::sleep(Duration::from_secs(1)))).collect();
        Sim::sleep(Duration::from_millis(200));
        assert_eq!(runtime.thread_count(), 4, "the limit");
        let begin = Sim::now();
        let handles: Vec<_> = (0..100).map(|_| queue.spawn(|| ())).collect();
        assert!(wait_for(&handles, Duration::from_millis(500)), "{scope}: {:?}", runtime.pools());
        let took = Sim::now() - begin;
        assert!(took < Duration::from_millis(30), "{scope}: {took:?}");
        assert!(asleep.iter().all(|handle| !handle.is_finished()));
        assert_eq!(counted(&queue).1, 100);
    });
    check(outcome);
}

#[test]
fn the_rescuer_runs_when_the_runtimes_own_limit_is_reached() {
    for (seed, &scope) in AffinityScope::ALL.iter().enumerate() {
        workers_asleep(scope, seed as u64);
    }
}

#[test]
fn the_rescuer_visits_each_pool_with_its_affinity() {
    for seed in 0..5 {
        let outcome = Simulation::new(machine("l3:2 core:4"), seed).run(move || {
            let runtime = runtime();
            let queue = build(runtime.workqueue_builder("everywhere").per_cpu());
            refuse_threads();
            let seen = Arc::new(Mutex::<_, Sim>::new_in(Vec::new()));
            let works: Vec<_> = (0..8)
                .map(|cpu| {
                    let seen = Arc::clone(&seen);
                    Work::<Sim>::new_in(move |_: &Work<Sim>| {
                        seen.lock().push((cpu, Sim::current_cpu()));
                    })
                })
                .collect();
            for (cpu, work) in works.iter().enumerate() {
                assert!(queue.queue_on(cpu, work).expect("there is such a CPU"));
            }
            Sim::sleep(Duration::from_millis(30));
            let mut seen = core::mem::take(&mut *seen.lock());
            seen.sort_unstable();
            let wanted: Vec<_> = (0..8).map(|cpu| (cpu, cpu)).collect();
            assert_eq!(seen, wanted, "seed {seed}");
            assert_eq!(counted(&queue), (8, 8, 8));
        });
        check(outcome);
    }
}

#[test]
fn a_busy_rescuer_also_serves_other_pools() {
    let outcome = Simulation::new(machine("core:2"), 1).run(|| {
        let runtime = runtime();
        let queue = build(runtime.workqueue_builder("two pools").per_cpu());
        refuse_threads();
        let note = Arc::new(Mutex::<_, Sim>::new_in(Vec::new()));
        let works: Vec<_> = (0..100)
            .map(|number| {
                let note = Arc::clone(&note);
                Work::<Sim>::new_in(move |_: &Work<Sim>| {
                    compute(Duration::from_millis(1));
                    note.lock().push(number);
                })
            })
            .collect();
        for (number, work) in works.iter().enumerate() {
            queue.queue_on(usize::from(number >= 80), work).expect("there is such a CPU");
        }
        Sim::sleep(Duration::from_millis(300));
        let note = core::mem::take(&mut *note.lock());
        assert_eq!(note.len(), 100);
        let first_of_second = note.iter().position(|number| *number >= 80).expect("it ran");
        assert!(first_of_second <= 16, "after {first_of_second} of the other pool");
        for of in [|number: &usize| *number < 80, |number: &usize| *number >= 80] {
            let of: Vec<_> = note.iter().copied().filter(of).collect();
            assert!(of.is_sorted(), "the order in each pool: {of:?}");
        }
    });
    check(outcome);
}

#[test]
fn held_back_and_delayed_items_of_every_queue_kind_are_rescued() {
    type Build = fn(WorkqueueBuilder<Sim>) -> WorkqueueBuilder<Sim>;
    let kinds: [(&str, Build); 5] = [
        ("limit of one", |builder| builder.max_active(1)),
        ("ordered", |builder| builder.ordered()),
        ("per CPU", |builder| builder.per_cpu().max_active(2)),
        ("strict", |builder| builder.affinity_scope(AffinityScope::Cpu).affinity_strict(true)),
        ("freezable", |builder| builder.freezable().max_active(3)),
    ];
    for (seed, (name, kind)) in kinds.into_iter().enumerate() {
        let outcome = Simulation::new(machine("l3:2 core:2"), seed as u64).run(move || {
            let runtime = runtime();
            let queue = build(kind(runtime.workqueue_builder(name)));
            refuse_threads();
            if queue.is_freezable() {
                runtime.freeze().expect("from outside");
            }
            let handles: Vec<_> = (0..60).map(|_| queue.spawn(|| ())).collect();
            if queue.is_freezable() {
                Sim::sleep(Duration::from_millis(50));
                assert!(handles.iter().all(|handle| !handle.is_finished()), "frozen");
                runtime.thaw();
            }
            assert!(wait_for(&handles, Duration::from_secs(1)), "{name}: {:?}", queue.limits());
            queue.flush().expect("from outside");
            let runs = Arc::new(Mutex::<_, Sim>::new_in(Vec::<Instant>::new()));
            let runs_clone = Arc::clone(&runs);
            let work = Work::<Sim>::new_in(move |_: &Work<Sim>| runs_clone.lock().push(Sim::now()));
            let begin = Sim::now();
            assert!(queue.queue_delayed(&work, Duration::from_millis(70)));
            Sim::sleep(Duration::from_millis(100));
            let runs = runs.lock();
            assert_eq!(runs.len(), 1, "{name}: the delayed item");
            assert!(runs[0] - begin >= Duration::from_millis(70) + FIRST);
            // While every thread is refused, the drain ends, and so does the rescuer.
            drop(queue);
        });
        check(outcome);
    }
}

#[test]
fn attributes_change_during_a_rescue() {
    let outcome = Simulation::new(machine("l3:2 core:2"), 3).run(|| {
        let runtime = runtime();
        let queue = build(runtime.workqueue_builder("changing").affinity_scope(AffinityScope::Cpu));
        refuse_threads();
        let mut handles = Vec::new();
        for scope in
            [AffinityScope::Cache, AffinityScope::System, AffinityScope::Numa, AffinityScope::Cpu]
        {
            handles.extend((0..10).map(|_| queue.spawn(|| compute(Duration::from_micros(300)))));
            queue.set_affinity_scope(scope).expect("the call succeeds");
            queue.set_nice(scope as i32).expect("the call succeeds");
            Sim::sleep(Duration::from_millis(9));
        }
        assert!(wait_for(&handles, Duration::from_millis(200)), "{:?}", runtime.pools());
    });
    check(outcome);
}

#[test]
fn a_rescued_item_behaves_like_any_other_item() {
    let outcome = Simulation::new(machine("core:2"), 4).run(|| {
        let runtime = runtime();
        let first = Arc::new(build(runtime.workqueue_builder("first")));
        let second = Arc::new(build(runtime.workqueue_builder("second")));
        refuse_threads();
        // An item may wait for an item of another queue with a rescuer; it may not wait for its own queue; its joiner gets its panic.
        let (first_clone, other) = (Arc::clone(&first), Arc::clone(&second));
        let joined = first.spawn(move || {
            first_clone.flush().expect_err("it would wait for itself");
            other.spawn(|| 5).join().expect("no panic")
        });
        assert_eq!(joined.join().expect("no panic"), 5);
        let panicked = first.spawn(|| panic!("as it should"));
        let panicked: Result<(), _> = panicked.join();
        panicked.expect_err("it panicked");
        // A scope runs the closures that no worker starts.
        let inner = Arc::clone(&first);
        let sum = first.spawn(move || {
            let mut parts = [0; 4];
            inner.scope(|scope| {
                for part in &mut parts {
                    scope.spawn(move || *part = 1);
                }
            });
            parts.iter().sum::<i32>()
        });
        assert_eq!(sum.join().expect("no panic"), 4);
        // An item may queue itself, be cancelled while it does so, and be waited for.
        let queue = Arc::clone(&first);
        let again = Work::<Sim>::new_in(move |work: &Work<Sim>| {
            queue.queue(work);
        });
        assert!(first.queue(&again));
        Sim::sleep(Duration::from_millis(15));
        assert!(again.cancel_sync().expect("from outside"));
        assert!(!again.is_pending() && !again.is_running());
        drop(again);
        // Observers see the description that an item sets, and whose thread runs it.
        let described = first.spawn(|| {
            nearq_core::set_description_in::<Sim>("saved");
            Sim::sleep(Duration::from_millis(5));
        });
        let deadline = Sim::now() + Duration::from_millis(50);
        let seen = loop {
            let workers = runtime.workers();
            if let Some(worker) = workers.into_iter().find(|worker| worker.description == "saved") {
                break Some(worker);
            }
            if Sim::now() > deadline {
                break None;
            }
            Sim::sleep(Duration::from_millis(1));
        };
        let seen = seen.expect("it is at the pool");
        assert!(seen.rescuer && !seen.sleeping && seen.function.is_some(), "{seen:?}");
        described.join().expect("no panic");
        Sim::sleep(Duration::from_millis(5));
        assert!(runtime.workers().is_empty(), "it has come back: {:?}", runtime.workers());
    });
    check(outcome);
}

#[test]
fn a_queue_may_be_dropped_by_its_own_item_in_its_rescuer() {
    for last in [false, true] {
        let outcome = Simulation::new(machine("core:2"), 5).run(move || {
            let runtime = runtime();
            let queue = build(runtime.workqueue_builder("dropped"));
            refuse_threads();
            let slot = Arc::new(Mutex::<_, Sim>::new_in(None));
            let slot_clone = Arc::clone(&slot);
            let handle = queue.spawn(move || {
                let queue = slot_clone.lock().take();
                drop(queue);
            });
            *slot.lock() = Some(queue);
            if last {
                // The queue has the last handle of the runtime.
                drop(runtime);
                handle.join().expect("no panic");
            } else {
                handle.join().expect("no panic");
                drop(runtime);
            }
            Sim::sleep(Duration::from_millis(50));
        });
        check(outcome);
    }
}

#[test]
fn a_queue_is_dropped_or_shut_down_while_its_rescuer_runs() {
    for seed in 0..10 {
        let outcome = Simulation::new(machine("core:2"), seed).run(move || {
            let runtime = runtime();
            let queue = build(runtime.workqueue_builder("ending"));
            refuse_threads();
            for _ in 0..20 {
                drop(queue.spawn(|| Sim::sleep(Duration::from_millis(1))));
            }
            Sim::sleep(Duration::from_millis(5 + seed));
            if seed % 2 == 0 {
                drop(queue);
            } else {
                runtime.shutdown(Duration::from_secs(1)).expect("all items are rescued");
                assert_eq!(counted(&queue).1, 20);
            }
        });
        check(outcome);
    }
}

#[test]
fn all_items_are_rescued_under_random_faults() {
    for seed in 0..40 {
        let schedule = if seed % 2 == 0 { Schedule::Random } else { Schedule::Fair };
        let simulation = Simulation::new(machine("l3:2 core:2"), seed).schedule(schedule);
        let outcome = simulation.run(move || {
            let runtime = runtime();
            let scope = AffinityScope::ALL[seed as usize % AffinityScope::ALL.len()];
            let queues: Vec<_> = (0..3)
                .map(|_| build(runtime.workqueue_builder("disturbed").affinity_scope(scope)))
                .collect();
            for round in 0..3 {
                let mut faults = Faults::ALL;
                faults.spawn_refused_one_in = 1;
                // In half of the runs, some threads have been started.
                if (seed + round) % 2 == 0 {
                    queues[0].spawn(|| ()).join().expect("no panic");
                }
                Sim::start_faults(faults);
                let handles: Vec<_> = (0..60)
                    .map(|number| {
                        queues[number % 3].spawn(move || Sim::sleep(Duration::from_micros(50)))
                    })
                    .collect();
                assert!(wait_for(&handles, Duration::from_secs(2)), "seed {seed}");
                Sim::stop_faults();
            }
        });
        check(outcome);
    }
}

#[test]
fn a_rescuer_that_cannot_be_started_is_an_error() {
    let outcome = Simulation::new(machine("core:2"), 1).run(|| {
        let runtime = runtime();
        refuse_threads();
        let refused = runtime.workqueue_builder("none").rescuer().build().expect_err("no thread");
        Sim::stop_faults();
        let queue = build(runtime.workqueue_builder("some"));
        queue.spawn(|| ()).join().expect("no panic");
        refused.to_string()
    });
    let text = check(outcome);
    assert!(text.starts_with("the workqueue `none` cannot have a rescuer: "), "{text}");
}

/// No thread can be started for the timer, and the runtime ends while another thread tries to start it: a thread that is in the middle of
/// delaying an item has no lock that the end needs.
#[test]
fn a_shutdown_while_the_timer_cannot_be_started() {
    for seed in 0..20 {
        let outcome = Simulation::new(machine("core:4"), seed).run(move || {
            let runtime = runtime();
            let queue = Arc::new(runtime.workqueue_builder("delayed").build().unwrap());
            refuse_threads();
            let work = Work::<Sim>::new_in(|_: &Work<Sim>| {});
            let (queue_clone, delays) = (Arc::clone(&queue), work.clone());
            Sim::stop_faults();
            let spec = nearq_platform::ThreadSpec { name: "delays".into(), ..Default::default() };
            let thread = Sim::spawn(spec, move || {
                refuse_threads();
                queue_clone.queue_delayed(&delays, Duration::from_secs(1));
            })
            .expect("threads can be started");
            // This is in the middle of that thread's tries, which take some 80 ms.
            Sim::sleep(Duration::from_millis(5 + seed));
            runtime.shutdown(Duration::from_secs(1)).unwrap();
            Sim::join(thread);
            assert!(!work.is_pending());
        });
        outcome.expect();
    }
}
