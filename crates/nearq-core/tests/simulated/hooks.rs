//! Hooks that take long, on simulated machines: a hook holds up only the worker that runs it, and does not cause many threads to be
//! started.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "what a test writes down is no part of the simulated machine"
)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nearq_core::{
    AffinityScope, Runtime, RuntimeBuilder, Workqueue,
    inspect::{Activity, Stall},
};
use nearq_lock::Mutex;
use nearq_platform::LockPlatform;
use nearq_sim::Sim;

use crate::common::{LONG, ms, simulate};

/// A builder whose workers' start hooks are given their number, from 0 on.
fn builder(hook: impl Fn(u32) + Send + Sync + 'static) -> RuntimeBuilder<Sim> {
    let number = AtomicU32::new(0);
    Runtime::<Sim>::builder_in()
        .on_worker_start(move |_| hook(number.fetch_add(1, Ordering::Relaxed)))
}

fn queue(runtime: &Runtime<Sim>) -> Workqueue<Sim> {
    runtime
        .workqueue_builder("hooks")
        .affinity_scope(AffinityScope::System)
        .build()
        .expect("the call succeeds")
}

/// How long an item of the queue takes from its queueing to its end.
fn one_item(queue: &Workqueue<Sim>) -> Duration {
    let begin = Sim::now();
    queue.spawn(|| ()).join().expect("no panic");
    Sim::now() - begin
}

/// How long each of eight items takes. Between two items, a worker that ends enters its stop hook.
fn eight_items(queue: &Workqueue<Sim>) -> Vec<Duration> {
    let each = (0..8).map(|_| {
        let took = one_item(queue);
        Sim::sleep(ms(50));
        took
    });
    each.collect()
}

#[test]
fn a_sleeping_worker_is_woken_while_another_is_in_its_start_hook() {
    for seed in 0..5 {
        let took = simulate("core:2", seed, || {
            let runtime = builder(|number| {
                if number > 0 {
                    Sim::sleep(LONG);
                }
            });
            let runtime = runtime.build().expect("the settings are valid");
            let queue = queue(&runtime);
            eight_items(&queue)
        });
        assert!(took.iter().all(|took| *took < ms(1)), "seed {seed}: {took:?}");
    }
}

#[test]
fn another_worker_is_started_while_the_first_is_in_its_start_hook() {
    for machine in ["core:1", "core:2", "numa:2 core:4"] {
        let (first, second, threads) = simulate(machine, 1, || {
            let runtime = builder(|number| {
                if number == 0 {
                    Sim::sleep(LONG);
                }
            });
            let runtime = runtime.build().expect("the settings are valid");
            let queue = queue(&runtime);
            (one_item(&queue), one_item(&queue), runtime.thread_count())
        });
        // The monitor first checks after half a millisecond, then every three milliseconds.
        assert!(first < ms(5) && second < ms(5), "{machine}: {first:?}, {second:?}");
        assert!(threads <= 4, "{machine}: {threads} threads");
    }
}

#[test]
fn a_start_hook_may_wait_for_an_item_of_its_own_pool() {
    let took = simulate("core:1", 1, || {
        let slot: Arc<OnceLock<Workqueue<Sim>>> = Arc::default();
        let slot_clone = Arc::clone(&slot);
        let runtime = builder(move |number| {
            if number == 0 {
                slot_clone.get().expect("is set").spawn(|| ()).join().expect("no panic");
            }
        });
        let runtime = runtime.build().expect("the settings are valid");
        slot.set(queue(&runtime)).expect("is set once");
        one_item(slot.get().expect("is set"))
    });
    assert!(took < ms(5), "{took:?}");
}

#[test]
fn slow_start_hooks_add_at_most_one_thread_to_the_number_of_cpus() {
    for cpus in [1, 4] {
        let (most, all) = simulate(&format!("core:{cpus}"), 1, move || {
            let runtime = builder(|_| Sim::sleep(LONG)).build().expect("the settings are valid");
            let queue = queue(&runtime);
            let begin = Sim::now();
            let items: Vec<_> = (0..1000).map(|_| queue.spawn(|| ())).collect();
            let mut most = 0;
            while Sim::now() - begin + ms(100) < LONG {
                Sim::sleep(ms(10));
                most = most.max(runtime.thread_count());
            }
            for item in items {
                item.join().expect("no panic");
            }
            (most, Sim::now() - begin)
        });
        assert_eq!(most, cpus + 1);
        assert!(all < LONG + ms(100), "{all:?}");
    }
}

#[test]
fn a_stall_names_start_hooks_that_do_not_return() {
    let reports: Vec<Stall> = simulate("core:2", 1, || {
        let reports = Arc::new(Mutex::<_, Sim>::new_in(Vec::new()));
        let reports_clone = Arc::clone(&reports);
        let runtime = builder(|_| Sim::sleep(LONG))
            .stall_after(ms(200))
            .on_stall(move |stall| reports_clone.lock().push(stall.clone()));
        let runtime = runtime.build().expect("the settings are valid");
        one_item(&queue(&runtime));
        core::mem::take(&mut *reports.lock())
    });
    assert!((8..10).contains(&reports.len()), "{reports:?}");
    for stall in &reports {
        assert_eq!((stall.waiting, stall.idle, stall.busy.len()), (1, 0, 3), "{stall:?}");
        for worker in &stall.busy {
            assert_eq!(
                (worker.function, worker.activity),
                ("the hook on_worker_start", Activity::Sleeps)
            );
            assert!(worker.runs.is_some_and(|runs| runs + ms(50) > stall.lasts), "{stall:?}");
        }
        let text = stall.to_string();
        assert!(text.contains("): the hook on_worker_start for at least"), "{text}");
        assert!(!text.contains("none of its workers"), "{text}");
    }
}

#[test]
fn a_slow_stop_hook_delays_no_items() {
    let took = simulate("core:2", 1, || {
        let runtime = Runtime::<Sim>::builder_in()
            .idle_timeout(ms(20))
            .on_worker_stop(|_| Sim::sleep(LONG))
            .build()
            .expect("the settings are valid");
        let queue = queue(&runtime);
        eight_items(&queue)
    });
    assert!(took.iter().all(|took| *took < ms(1)), "{took:?}");
}
