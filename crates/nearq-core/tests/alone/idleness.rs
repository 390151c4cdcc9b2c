//! An idle runtime makes no wake-ups, loses its threads after a while, and leaves nothing behind.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nearq_core::{AffinityScope, Runtime, Work, Workqueue};

use crate::common::{self, all_asleep, alone, eventually, switches, threads, watch};

fn busy(runtime: &Runtime) -> Vec<Workqueue> {
    let queues: Vec<_> = [AffinityScope::Cpu, AffinityScope::Cache, AffinityScope::System]
        .map(|scope| runtime.workqueue_builder("busy").affinity_scope(scope).build().unwrap())
        .into_iter()
        .collect();
    for queue in &queues {
        queue.scope(|scope| {
            for _ in 0..500 {
                scope.spawn(|| {
                    std::hint::black_box((0..100).sum::<u64>());
                });
            }
        });
    }
    // So that the monitor has had something to check, and its thread exists as well.
    queues[0].scope(|scope| {
        for _ in 0..runtime.parallelism() + 2 {
            scope.spawn(|| std::thread::sleep(Duration::from_millis(20)));
        }
    });
    queues
}

#[test]
fn an_idle_runtime_causes_no_wake_ups() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queues = busy(&runtime);
    assert!(!threads().is_empty());
    let before = all_asleep();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(switches(), before, "context switches of threads of an idle runtime");
    drop(queues);
}

#[test]
fn a_runtime_without_work_has_no_threads() {
    let _alone = alone();
    // A runtime that was dropped by one of its own items ends by itself, even after the test in which that happened.
    eventually("the threads of other tests have ended", || threads().is_empty());
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("unused").build().unwrap();
    assert_eq!((runtime.thread_count(), threads().len()), (0, 0));
    queue.set_affinity_scope(AffinityScope::Cpu).unwrap();
    runtime.set_affinity_enabled(false);
    assert_eq!((runtime.thread_count(), threads().len()), (0, 0));
}

#[test]
fn idle_workers_exit_and_are_replaced_when_needed() {
    let _alone = alone();
    let stopped = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&stopped);
    let hook = move |_: &nearq_core::inspect::WorkerInfo| {
        count.fetch_add(1, Ordering::SeqCst);
    };
    let builder = Runtime::builder().idle_timeout(Duration::from_millis(20)).on_worker_stop(hook);
    let runtime = builder.build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queues = busy(&runtime);
    for round in 0..5 {
        eventually("the workers have ended", || runtime.thread_count() == 0);
        eventually("and their threads end", || {
            threads().into_values().all(|name| name == "nq/monitor")
        });
        assert!(runtime.workers().is_empty(), "{:?}", runtime.workers());
        for queue in &queues {
            assert_eq!(queue.spawn(move || round).join().unwrap(), round, "a new worker starts");
        }
    }
    assert!(stopped.load(Ordering::SeqCst) > 0);
}

/// Items come exactly when workers give up waiting for them.
#[test]
fn items_queued_while_workers_exit_are_run() {
    let _alone = alone();
    let runtime =
        Runtime::builder().idle_timeout(Duration::from_micros(300)).spin(0).build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue =
        runtime.workqueue_builder("edge").affinity_scope(AffinityScope::Cpu).build().unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let runs_clone = Arc::clone(&runs);
    let work = Work::new(move |_: &Work| {
        runs_clone.fetch_add(1, Ordering::SeqCst);
    });
    for round in 1..=1500 {
        assert!(queue.queue(&work));
        common::eventually("it ran", || runs.load(Ordering::SeqCst) == round && !work.is_running());
        std::thread::sleep(Duration::from_micros(u64::from(round % 20) * 20));
    }
    drop(queue);
    eventually("all have ended", || runtime.thread_count() == 0);
    assert!(runtime.workers().is_empty());
}

#[test]
fn the_last_handle_ends_every_thread() {
    let _alone = alone();
    let _watchdog = watch(None);
    for round in 0..50 {
        let runtime = Runtime::builder().build().unwrap();
        let queue = runtime
            .workqueue_builder("short")
            .affinity_scope([AffinityScope::Cpu, AffinityScope::System][round % 2])
            .build()
            .unwrap();
        (0..round).for_each(|_| drop(queue.spawn(|| {})));
        if round % 3 == 0 {
            // So that the monitor's thread exists as well.
            queue.scope(|scope| {
                (0..8).for_each(|_| scope.spawn(|| std::thread::sleep(Duration::from_millis(1))))
            });
        }
        drop(runtime);
        drop(queue);
        // The system forgets a joined thread a moment after the join.
        eventually("no thread is left", || threads().is_empty());
    }
}

#[test]
fn an_item_may_drop_the_last_handle_of_its_runtime() {
    let _alone = alone();
    let _watchdog = watch(None);
    for _ in 0..20 {
        let runtime = Runtime::builder().build().unwrap();
        let queue = runtime.workqueue_builder("last").build().unwrap();
        drop(runtime);
        let slot = Arc::new(Mutex::new(None));
        let slot_clone = Arc::clone(&slot);
        let mut guard = slot.lock().unwrap();
        drop(queue.spawn(move || drop(slot_clone.lock().unwrap().take())));
        *guard = Some(queue);
        drop(guard);
        eventually("every thread has ended", || threads().is_empty());
    }
}

#[test]
fn repeatedly_created_queues_leave_nothing_behind() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    for round in 0..500 {
        let queue = runtime
            .workqueue_builder("passing")
            .affinity_scope(AffinityScope::ALL[round % AffinityScope::ALL.len()])
            .build()
            .unwrap();
        let handle = queue.spawn(|| {});
        if round % 2 == 0 {
            handle.join().unwrap();
        }
    }
    assert!(
        runtime.pools().len() <= 1 + 2 * runtime.topology().possible().len(),
        "{:?}",
        runtime.pools()
    );
    assert!(
        runtime.thread_count() <= 4 * runtime.parallelism().max(2),
        "{}",
        common::state(&runtime)
    );
}
