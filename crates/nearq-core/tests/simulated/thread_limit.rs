//! The limit on threads, on simulated machines: workers that sleep do not keep other pools from getting one.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "what a test writes down is no part of the simulated machine"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nearq_core::{
    AffinityScope, Runtime, RuntimeBuilder, Workqueue,
    inspect::{PoolThreads, Stall, WorkerInfo},
};
use nearq_lock::Mutex;
use nearq_model::bound;
use nearq_platform::LockPlatform;
use nearq_sim::{Faults, Schedule, Sim, Simulation};
use nearq_topology::{CpuSet, Topology};

use crate::common::{LONG, ms, simulate};

fn limited(threads: u32) -> RuntimeBuilder<Sim> {
    Runtime::<Sim>::builder_in().thread_limit(threads)
}

fn of_nice(runtime: &Runtime<Sim>, nice: i32) -> Workqueue<Sim> {
    let queue = runtime.workqueue_builder("nice").affinity_scope(AffinityScope::System).nice(nice);
    queue.build().expect("the call succeeds")
}

/// Queues that many items at once, each of which sleeps for 20 ms: afterwards the same number of workers sleep.
fn occupy(queue: &Workqueue<Sim>, count: usize) {
    let items: Vec<_> = (0..count).map(|_| queue.spawn(|| Sim::sleep(ms(20)))).collect();
    for item in items {
        item.join().expect("no panic");
    }
}

/// How long an item of the queue takes from its queueing to its end.
fn one_item(queue: &Workqueue<Sim>) -> Duration {
    let begin = Sim::now();
    queue.spawn(|| ()).join().expect("no panic");
    Sim::now() - begin
}

#[test]
fn sleeping_workers_are_retired_for_another_nice_value() {
    for seed in 0..5 {
        let took = simulate("core:2", seed, || {
            let runtime = limited(2).build().expect("the settings are valid");
            let [first, second] = [0, 5].map(|nice| of_nice(&runtime, nice));
            occupy(&first, 2);
            assert_eq!(runtime.thread_count(), 2);
            let took = (0..20).map(|at| one_item(if at % 2 == 0 { &second } else { &first }));
            let took: Vec<_> = took.collect();
            assert!(runtime.thread_count() <= 2);
            took
        });
        assert!(took.iter().all(|took| *took < ms(1)), "seed {seed}: {took:?}");
    }
}

#[test]
fn sleeping_workers_are_retired_for_another_pod() {
    let took = simulate("core:4", 1, || {
        let runtime = limited(1).build().expect("the settings are valid");
        let queues: Vec<_> = (0..4)
            .map(|cpu| {
                let queue = runtime
                    .workqueue_builder("pod")
                    .affinity_scope(AffinityScope::Cpu)
                    .affinity_strict(true)
                    .helping(false);
                queue.cpumask(CpuSet::single(cpu)).build().expect("the call succeeds")
            })
            .collect();
        (0..40).map(|at| one_item(&queues[at % 4])).collect::<Vec<_>>()
    });
    assert!(took.iter().all(|took| *took < ms(1)), "{took:?}");
}

#[test]
fn the_first_busy_worker_to_go_to_sleep_is_retired() {
    for seed in 0..5 {
        let (all, each) = simulate("core:2", seed, || {
            let runtime = limited(2).build().expect("the settings are valid");
            let queues: Vec<_> = (0..6).map(|nice| of_nice(&runtime, nice)).collect();
            let begin = Sim::now();
            let busy = [40, 60].map(|time| queues[0].spawn(move || Sim::sleep(ms(time))));
            Sim::sleep(ms(5));
            // The pools queue up, each for a worker of its own; the first thread becomes available after 40 ms.
            let rest: Vec<_> =
                queues[1..].iter().map(|queue| queue.spawn(move || Sim::now() - begin)).collect();
            let each: Vec<_> =
                rest.into_iter().map(|item| item.join().expect("no panic")).collect();
            for item in busy {
                item.join().expect("no panic");
            }
            (Sim::now() - begin, each)
        });
        assert!(each.iter().all(|at| (ms(40)..ms(45)).contains(at)), "seed {seed}: {each:?}");
        assert!(all < ms(65), "seed {seed}: {all:?}");
    }
}

#[test]
fn no_more_workers_are_retired_than_needed() {
    let (sleepers, took) = simulate("core:8", 1, || {
        let runtime = limited(8).build().expect("the settings are valid");
        let [first, second] = [0, 5].map(|nice| of_nice(&runtime, nice));
        occupy(&first, 8);
        let begin = Sim::now();
        let items: Vec<_> = (0..100).map(|_| second.spawn(|| ())).collect();
        for item in items {
            item.join().expect("no panic");
        }
        let took = Sim::now() - begin;
        Sim::sleep(ms(50));
        (runtime.pools()[0].sleeping, took)
    });
    // One worker for the items, and one that is asleep.
    assert!(sleepers >= 5, "{sleepers} of 8 are left");
    assert!(took < ms(5), "{took:?}");
}

#[test]
fn another_worker_is_retired_if_a_stop_hook_is_slow() {
    let took = simulate("core:4", 1, || {
        let number = AtomicU32::new(0);
        let runtime = limited(4).on_worker_stop(move |_| {
            if number.fetch_add(1, Ordering::Relaxed) < 2 {
                Sim::sleep(LONG);
            }
        });
        let runtime = runtime.build().expect("the settings are valid");
        let [first, second] = [0, 5].map(|nice| of_nice(&runtime, nice));
        occupy(&first, 4);
        one_item(&second)
    });
    assert!(took < ms(60), "{took:?}");
}

#[test]
fn a_stall_names_the_limit_and_the_threads_of_each_pool() {
    let reports: Vec<Stall> = simulate("core:2", 1, || {
        let reports = Arc::new(Mutex::<_, Sim>::new_in(Vec::new()));
        let reports_clone = Arc::clone(&reports);
        let runtime = limited(3)
            .stall_after(ms(100))
            .on_stall(move |stall| reports_clone.lock().push(stall.clone()))
            .build()
            .expect("the settings are valid");
        let queues = [0, 5, 10].map(|nice| of_nice(&runtime, nice));
        let busy: Vec<_> = [0, 0, 1]
            .map(|at: usize| queues[at].spawn(|| Sim::sleep(ms(250))))
            .into_iter()
            .collect();
        Sim::sleep(ms(20));
        queues[2].spawn(|| ()).join().expect("no panic");
        for item in busy {
            item.join().expect("no panic");
        }
        core::mem::take(&mut *reports.lock())
    });
    assert_eq!(reports.len(), 2, "{reports:?}");
    for stall in &reports {
        let limit = stall.limit.as_ref().expect("it is the runtime's");
        assert_eq!((limit.threads, stall.refused), (3, true));
        let has = |pool: &PoolThreads| (u32::from(pool.pool), pool.threads, pool.idle);
        assert_eq!(limit.pools.iter().map(has).collect::<Vec<_>>(), [(0, 2, 0), (1, 1, 0)]);
        let text = stall.to_string();
        let own_limit = "no thread can be started: the runtime's own limit of 3 threads (thread_limit) is reached: pool 0 has 2, pool 1 has 1";
        assert!(text.contains(own_limit), "{text}");
    }
}

/// Six pools, fewer threads, hooks that take their time, and whatever goes wrong with the machine: everything that is queued runs soon, on
/// no more threads than the limit allows.
fn under_faults(seed: u64) {
    let machine = Topology::from_synthetic("numa:2 core:2").expect("well formed");
    let faults = if seed.is_multiple_of(3) { Faults::NONE } else { Faults::ALL };
    let schedule =
        [Schedule::Fair, Schedule::Random, Schedule::Pct { depth: 3 }][seed as usize % 3];
    let outcome = Simulation::new(machine, seed).faults(faults).schedule(schedule).run(move || {
        let limit = 1 + (seed % 4) as u32;
        let hook = move |_: &WorkerInfo| Sim::sleep(Duration::from_micros(seed % 5 * 40));
        let runtime = limited(limit).on_worker_start(hook).on_worker_stop(hook);
        let runtime = runtime.idle_timeout(ms(3)).build().expect("the settings are valid");
        let queues: Vec<_> = (0..3)
            .flat_map(|nice| [(nice, false), (nice, true)])
            .map(|(nice, strict)| {
                let queue = runtime
                    .workqueue_builder("faults")
                    .affinity_scope(AffinityScope::Numa)
                    .nice(nice);
                queue.affinity_strict(strict).build().expect("the call succeeds")
            })
            .collect();
        let (mut items, mut most) = (Vec::new(), 0);
        let begin = Sim::now();
        for number in 0..400_u64 {
            let choice = number.wrapping_mul(0x9e37_79b9).wrapping_add(seed) >> 3;
            let pause = Duration::from_micros(choice % 7 * 30);
            items.push(queues[choice as usize % queues.len()].spawn(move || Sim::sleep(pause)));
            if choice.is_multiple_of(5) {
                Sim::sleep(Duration::from_micros(choice % 11 * 100));
            }
            most = most.max(runtime.thread_count());
        }
        for item in items {
            item.join().expect("no panic");
        }
        (limit as usize, most, Sim::now() - begin)
    });
    let report = outcome.report();
    let (limit, most, took) = outcome.expect();
    assert!(most <= limit, "{most} threads of {limit}: {report}");
    assert!(took < LONG * 3, "seed {seed}: {took:?}: {report}");
}

#[test]
fn all_items_run_under_faults() {
    for seed in 0..bound(12, 1_000) {
        under_faults(seed);
    }
}
