//! Concurrency management on simulated machines: workers that sleep are replaced, workers that only wait for a CPU are not, and per-CPU
//! pools keep one worker that runs. Time is virtual, so the bounds are exact.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "what a test writes down is no part of the simulated machine"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nearq_core::{Runtime, Workqueue};
use nearq_lock::Mutex;
use nearq_platform::{Instant, LockPlatform, ThreadSpec, Threads};
use nearq_sim::{Faults, Sim, Simulation, compute};
use nearq_topology::Topology;

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn runtime() -> Runtime<Sim> {
    Runtime::<Sim>::builder_in().build().expect("the machine is known")
}

/// Runs `program` on a simulated machine, to its end and without a warning.
fn simulate<R: 'static>(text: &str, seed: u64, program: impl FnOnce() -> R + 'static) -> R {
    simulate_counted(text, seed, program).0
}

/// As [`simulate`]; also returns how often atomics were accessed.
fn simulate_counted<R: 'static>(
    text: &str,
    seed: u64,
    program: impl FnOnce() -> R + 'static,
) -> (R, u64) {
    let machine = Topology::from_synthetic(text).expect("well formed");
    let outcome = Simulation::new(machine, seed).run(program);
    assert!(outcome.panics.is_empty() && outcome.warnings.is_empty(), "{}", outcome.report());
    let report = outcome.report();
    (outcome.result.unwrap_or_else(|| panic!("{report}")), outcome.accesses)
}

/// Makes the worker of every CPU sleep in an item, then returns how long each of `count` items takes from its queueing to its start.
fn replaced_after(asleep: usize, count: usize, hint: bool) -> Vec<Duration> {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("asleep").build().unwrap();
    let mut latencies = Vec::new();
    for _ in 0..count {
        let sleepers: Vec<_> = (0..asleep)
            .map(|_| {
                let runtime = runtime.clone();
                queue.spawn(move || {
                    if hint {
                        runtime.block_in_place(|| Sim::sleep(us(200_000)));
                    } else {
                        Sim::sleep(us(200_000));
                    }
                })
            })
            .collect();
        Sim::sleep(us(20_000));
        let queued = Sim::now();
        latencies.push(queue.spawn(move || Sim::now() - queued).join().unwrap());
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
        // Everything is idle.
        Sim::sleep(us(100_000));
    }
    latencies
}

#[test]
fn another_worker_starts_within_milliseconds_when_all_sleep() {
    for (machine, cpus) in [("l3:1 core:2 pu:1", 2), ("pack:2 l3:2 core:4 pu:1", 16)] {
        let (latencies, accesses) =
            simulate_counted(machine, 1, move || replaced_after(cpus, 20, false));
        println!("{machine}: {latencies:?}, {accesses} accesses");
        // A worker that could help checks once, not repeatedly.
        assert!(accesses < 1_000_000, "{accesses} accesses while all sleep");
        // At most one check, and a wake-up.
        assert!(latencies.iter().all(|latency| *latency < us(3_500)), "{latencies:?}");
    }
}

#[test]
fn with_the_hint_another_worker_starts_at_once() {
    let latencies = simulate("l3:1 core:4 pu:1", 1, || replaced_after(4, 10, true));
    assert!(latencies.iter().all(|latency| *latency < us(200)), "{latencies:?}");
}

/// Items that compute, with one that sleeps now and then: returns how long all took, divided by their CPU time on that number of CPUs.
fn mixed(
    runtime: &Runtime<Sim>,
    queue: &Workqueue<Sim>,
    cpus: u32,
    sleep: Duration,
    hint: bool,
) -> f64 {
    const ITEMS: u32 = 20_000;
    const EVERY: u32 = 32;
    let begin = Sim::now();
    let items: Vec<_> = (0..ITEMS)
        .map(|number| {
            let runtime = runtime.clone();
            queue.spawn(move || {
                compute(us(50));
                match (number % EVERY == EVERY - 1, hint) {
                    (true, true) => runtime.block_in_place(|| Sim::sleep(sleep)),
                    (true, false) => Sim::sleep(sleep),
                    (false, _) => {}
                }
            })
        })
        .collect();
    for item in items {
        item.join().unwrap();
    }
    let ideal = us(50) * ITEMS / cpus;
    // The last sleeper sleeps alone, whichever worker runs the rest.
    let took = (Sim::now() - begin).saturating_sub(sleep);
    took.as_secs_f64() / ideal.as_secs_f64()
}

#[test]
fn cpus_stay_busy_although_items_keep_sleeping() {
    for (hint, bound) in [(false, 1.3), (true, 1.2)] {
        let ratio = simulate("l3:1 core:2 pu:1", 1, move || {
            let runtime = runtime();
            let queue = runtime.workqueue_builder("mixed").build().unwrap();
            mixed(&runtime, &queue, 2, us(20_000), hint)
        });
        println!("hint {hint}: {ratio:.2} times the ideal");
        assert!(ratio < bound, "hint {hint}: {ratio:.2} times the ideal");
    }
}

/// The workers that come back stay, so that no CPU waits for the wake-up of the one that takes the place of the next one that blocks.
#[test]
fn the_hint_costs_nothing() {
    let ratio = |hint, seed| {
        simulate("l3:1 core:2 pu:1", seed, move || {
            let runtime = runtime();
            let queue = runtime.workqueue_builder("mixed").build().unwrap();
            mixed(&runtime, &queue, 2, us(5_000), hint)
        })
    };
    let median = |hint| {
        let mut ratios = [1, 2, 3].map(|seed| ratio(hint, seed));
        ratios.sort_by(f64::total_cmp);
        ratios[1]
    };
    let (plain, hinted) = (median(false), median(true));
    println!("{plain:.4} times the ideal, with the hint {hinted:.4}");
    assert!(hinted < plain + 0.005, "{plain:.4} times the ideal, with the hint {hinted:.4}");
}

#[test]
fn no_more_items_run_than_there_are_cpus_after_sleepers_wake() {
    let most = simulate("l3:1 core:2 pu:1", 1, || {
        let runtime = runtime();
        let queue = runtime.workqueue_builder("mixed").build().unwrap();
        mixed(&runtime, &queue, 2, us(20_000), false);
        let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        // Long enough for the surplus workers to leave, with two checks for each.
        let items: Vec<_> = (0..4_000)
            .map(|number| {
                let (now, most) = (Arc::clone(&now), Arc::clone(&most));
                queue.spawn(move || {
                    let running = now.fetch_add(1, Ordering::Relaxed) + 1;
                    if number > 3_000 {
                        most.fetch_max(running, Ordering::Relaxed);
                    }
                    compute(us(100));
                    now.fetch_sub(1, Ordering::Relaxed);
                })
            })
            .collect();
        for item in items {
            item.join().unwrap();
        }
        most.load(Ordering::Relaxed)
    });
    assert!(most <= 3, "{most} at once on 2 CPUs");
}

#[test]
fn workers_that_wait_for_a_cpu_are_not_replaced() {
    let threads = simulate("l3:1 core:2 pu:1", 1, || {
        let runtime = runtime();
        let queue = runtime.workqueue_builder("crowded").build().unwrap();
        // Other threads want the CPUs as well: each worker runs for a tenth of the time.
        let others: Vec<_> = (0..18)
            .map(|_| {
                Sim::spawn(ThreadSpec::default(), || compute(us(400_000)))
                    .expect("a thread can be started")
            })
            .collect();
        let items: Vec<_> = (0..400).map(|_| queue.spawn(|| compute(us(100)))).collect();
        let mut most = 0;
        for item in items {
            item.join().unwrap();
            most = most.max(runtime.thread_count());
        }
        others.into_iter().for_each(Sim::join);
        most
    });
    // The rule that something starts every 10 ms may add a few workers beyond the number of CPUs, but not one at each check.
    assert!(threads <= 6, "{threads} threads");
}

/// What the workers of one CPU did: the most that ran at once, and how long each item waited.
#[derive(Debug, Default)]
struct OnOneCpu {
    now: u32,
    most: u32,
    waits: Vec<Duration>,
}

#[test]
fn a_per_cpu_pool_runs_another_worker_while_its_first_sleeps() {
    let seen = simulate("l3:1 core:4 pu:1", 1, || {
        let runtime = runtime();
        let queue = runtime.workqueue_builder("percpu").per_cpu().build().unwrap();
        let seen = Arc::new(Mutex::<_, Sim>::new_in(OnOneCpu::default()));
        let items: Vec<_> = (0..60)
            .map(|number| {
                let seen = Arc::clone(&seen);
                let queued = Sim::now();
                let item = move || {
                    let mut guard = seen.lock();
                    guard.now += 1;
                    guard.most = guard.most.max(guard.now);
                    guard.waits.push(Sim::now() - queued);
                    drop(guard);
                    compute(us(300));
                    if number < 20 {
                        // The worker does not count while it sleeps.
                        seen.lock().now -= 1;
                        Sim::sleep(us(50_000));
                        seen.lock().now += 1;
                        compute(us(10));
                    }
                    seen.lock().now -= 1;
                };
                let work = Arc::new(Mutex::<_, Sim>::new_in(Some(item)));
                let work = nearq_core::Work::new_in(move |_: &nearq_core::Work<Sim>| {
                    let item = work.lock().take();
                    item.expect("once")();
                });
                queue.queue_on(2, &work).unwrap();
                work
            })
            .collect();
        for item in &items {
            item.flush().unwrap();
        }
        let statistics = queue.statistics();
        let wakeups: u64 = statistics.iter().map(|pwq| pwq.concurrency_wakeups).sum();
        assert!(wakeups >= 5, "{wakeups}");
        core::mem::take(&mut *seen.lock())
    });
    // There are 60 items of 0.3 ms, and each of the 20 sleeping items costs a detection: 2 ms, and the start of another worker.
    let last = *seen.waits.iter().max().unwrap();
    assert!(last < us(80_000), "{last:?}");
    // All 20 wake up one after the other; the workers that are back finish their items.
    assert!(seen.most <= 4, "{seen:?}");
}

#[test]
fn an_item_that_hogs_its_cpu_does_not_delay_other_items() {
    for (limit, bound) in [(10_000, 40_000), (0, u64::MAX)] {
        let (wait, hogs, counted) = simulate("l3:1 core:2 pu:1", 1, move || {
            let runtime =
                Runtime::<Sim>::builder_in().cpu_intensive_after(us(limit)).build().unwrap();
            let queue = runtime.workqueue_builder("percpu").per_cpu().build().unwrap();
            let hog = nearq_core::Work::new_in(|_: &nearq_core::Work<Sim>| compute(us(400_000)));
            queue.queue_on(1, &hog).unwrap();
            Sim::sleep(us(500));
            let queued = Sim::now();
            let started = Arc::new(Mutex::<_, Sim>::new_in(None::<Instant>));
            let short = {
                let started = Arc::clone(&started);
                nearq_core::Work::new_in(move |_: &nearq_core::Work<Sim>| {
                    started.lock().get_or_insert(Sim::now());
                })
            };
            queue.queue_on(1, &short).unwrap();
            short.flush().unwrap();
            hog.flush().unwrap();
            Sim::sleep(us(10_000));
            let counted: u64 = queue.statistics().iter().map(|pwq| pwq.cpu_intensive).sum();
            let wait = started.lock().expect("it ran") - queued;
            (wait, runtime.cpu_hogs(), counted)
        });
        println!("limit {limit}: {wait:?}, {hogs:?}");
        assert!(wait < us(bound.min(1_000_000)), "{wait:?}");
        assert_eq!(hogs.len(), usize::from(limit != 0), "{hogs:?}");
        assert_eq!(counted, u64::from(limit != 0));
        assert!(hogs.iter().all(|hog| hog.function.contains("concurrency") && hog.count == 1));
    }
}

#[test]
fn cpu_intensive_items_never_delay_other_items() {
    let wait = simulate("l3:1 core:2 pu:1", 1, || {
        let runtime = runtime();
        let long = runtime.workqueue_builder("long").per_cpu().cpu_intensive();
        let long = long.max_active(1).build().unwrap();
        let short = runtime.workqueue_builder("short").per_cpu().build().unwrap();
        let running = Arc::new(AtomicU32::new(0));
        let hogs: Vec<_> = (0..2)
            .map(|_| {
                let running = Arc::clone(&running);
                let hog = nearq_core::Work::new_in(move |_: &nearq_core::Work<Sim>| {
                    assert_eq!(running.fetch_add(1, Ordering::Relaxed), 0, "max_active");
                    compute(us(50_000));
                    running.fetch_sub(1, Ordering::Relaxed);
                });
                long.queue_on(1, &hog).unwrap();
                hog
            })
            .collect();
        Sim::sleep(us(500));
        let queued = Sim::now();
        let started = Arc::new(Mutex::<_, Sim>::new_in(None));
        let item = {
            let started = Arc::clone(&started);
            nearq_core::Work::new_in(move |_: &nearq_core::Work<Sim>| {
                started.lock().get_or_insert(Sim::now());
            })
        };
        short.queue_on(1, &item).unwrap();
        item.flush().unwrap();
        for hog in &hogs {
            hog.flush().unwrap();
        }
        let started = started.lock().expect("it ran");
        started - queued
    });
    // The item starts as soon as the system lets the woken worker run beside the other one.
    assert!(wait < us(8_000), "{wait:?}");
}

#[test]
fn blocking_nests_and_is_a_plain_call_outside_a_worker() {
    simulate("l3:1 core:1 pu:1", 1, || {
        let runtime = runtime();
        assert_eq!(runtime.block_in_place(|| runtime.block_in_place(|| 7)), 7);
        let queue = runtime.workqueue_builder("nested").build().unwrap();
        let outer = {
            let runtime = runtime.clone();
            queue.spawn(move || {
                runtime.block_in_place(|| {
                    runtime.block_in_place(|| Sim::sleep(us(1_000)));
                    // This worker is still in the outer section: the other item has the CPU.
                    Sim::sleep(us(50_000));
                });
            })
        };
        Sim::sleep(us(5_000));
        let queued = Sim::now();
        let wait = queue.spawn(move || Sim::now() - queued).join().unwrap();
        assert!(wait < us(200), "{wait:?}");
        outer.join().unwrap();
    });
}

/// How long 31 items of a pool take if they are queued behind an item that takes a second, on CPUs that items of 2 us keep busy all the
/// time.
fn behind_a_long_item(long: impl Fn(&Runtime<Sim>) + Send + 'static) -> Duration {
    simulate("core:2", 1, move || {
        let runtime = runtime();
        let queue = runtime
            .workqueue_builder("load")
            .affinity_scope(nearq_core::AffinityScope::System)
            .build()
            .unwrap();
        let (queue, over) = (Arc::new(queue), Arc::new(AtomicU32::new(0)));
        let load: Vec<_> = (0..200)
            .map(|_| {
                let (weak, over) = (Arc::downgrade(&queue), Arc::clone(&over));
                nearq_core::Work::<Sim>::new_in(move |work: &nearq_core::Work<Sim>| {
                    compute(us(2));
                    if over.load(Ordering::Relaxed) == 0
                        && let Some(queue) = weak.upgrade()
                    {
                        queue.queue(work);
                    }
                })
            })
            .collect();
        for work in &load {
            queue.queue(work);
        }
        Sim::sleep(us(5_000));
        let runtime_clone = runtime.clone();
        let begin = Sim::now();
        drop(queue.spawn(move || long(&runtime_clone)));
        let behind: Vec<_> = (0..31).map(|_| queue.spawn(|| ())).collect();
        while !behind.iter().all(nearq_core::JoinHandle::is_finished) {
            Sim::sleep(us(100));
        }
        let took = Sim::now() - begin;
        over.store(1, Ordering::Relaxed);
        took
    })
}

/// Every worker always has work, so no worker checks the batch of the worker that has the long item.
#[test]
fn items_behind_a_long_item_in_a_batch_do_not_wait_for_it() {
    let asleep = behind_a_long_item(|_| Sim::sleep(us(1_000_000)));
    let delay = behind_a_long_item(|runtime| runtime.block_in_place(|| Sim::sleep(us(1_000_000))));
    let computing = behind_a_long_item(|_| compute(us(1_000_000)));
    assert!(delay < us(5_000), "{delay:?}");
    assert!(asleep < us(50_000) && computing < us(50_000), "{asleep:?}, {computing:?}");
}

/// Makes `count` items wait for each other, in the way of `wait`, on a machine of two CPUs that may hide what threads do. Returns how long
/// it takes until all have met the second time, after everything has been idle for a while with the same number waiting.
fn meet(seed: u64, hidden: bool, count: u32, wait: fn(Duration)) -> [Duration; 2] {
    let machine = Topology::from_synthetic("l3:1 core:2 pu:1").expect("well formed");
    let mut faults = Faults::NONE;
    faults.states_hidden = hidden;
    let program = move || {
        let runtime = runtime();
        let queue = runtime.workqueue_builder("meet").build().unwrap();
        [0, 100_000].map(|pause| {
            let inside = Arc::new(AtomicU32::new(0));
            let begin = Sim::now();
            let meets = || {
                let inside = Arc::clone(&inside);
                queue.spawn(move || {
                    inside.fetch_add(1, Ordering::SeqCst);
                    while inside.load(Ordering::SeqCst) < count {
                        wait(us(1000));
                    }
                })
            };
            let first: Vec<_> = (0..count - 1).map(|_| meets()).collect();
            while pause != 0 && inside.load(Ordering::SeqCst) < count - 1 {
                Sim::sleep(us(1000));
            }
            Sim::sleep(us(pause));
            let last = meets();
            for item in first.into_iter().chain([last]) {
                item.join().unwrap();
            }
            Sim::now() - begin
        })
    };
    let limit = Duration::from_secs(20);
    let outcome = Simulation::new(machine, seed).faults(faults).time_limit(limit).run(program);
    assert_eq!(outcome.warnings.len(), usize::from(hidden), "{:?}", outcome.warnings);
    outcome.expect()
}

#[test]
fn items_that_wait_for_each_other_run_if_thread_states_are_unknown() {
    for seed in 0..10 {
        let took = meet(seed, true, 8, Sim::sleep);
        // Six times a little more than 10 ms, and the pause.
        assert!(took[0] < us(150_000) && took[1] < us(250_000), "seed {seed}: {took:?}");
    }
}

#[test]
fn items_that_spin_until_other_items_start_all_run() {
    for seed in 0..10 {
        // All workers use their CPUs, so each further one takes twice as long as the one before.
        let took = meet(seed, false, 7, compute);
        assert!(took.iter().all(|took| *took < Duration::from_secs(5)), "seed {seed}: {took:?}");
    }
}
