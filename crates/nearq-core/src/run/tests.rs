//! The whole runtime under the model checker: a worker's thread, the monitor's, and an issuer; from the first item to
//! the end of the last thread. A wake-up that is lost anywhere shows as a deadlock.

#![cfg(not(miri))]

use std::sync::Arc;

use nearq_model::{Loom, bound};
use nearq_platform::{Atomic, AtomicInt, LockPlatform, Ordering, Threads};
use nearq_topology::{AffinityScope, CpuSet};

use crate::item::tests::{model, model_within, spawn};
use crate::queue::runtime::Runtime;
use crate::task::work::Work;
use crate::user::builder::RuntimeBuilder;
use crate::user::workqueue::Workqueue;

/// A runtime that never spins, and a queue whose pool wants one worker.
fn small(max_active: usize) -> (Runtime<Loom>, Workqueue<Loom>) {
    small_of(Runtime::<Loom>::builder_in(), max_active)
}

/// As [`small`], of a builder.
fn small_of(builder: RuntimeBuilder<Loom>, max_active: usize) -> (Runtime<Loom>, Workqueue<Loom>) {
    let runtime = builder.spin(0).build().expect("the machine is constant");
    let queue = runtime
        .workqueue_builder("modelled")
        .affinity_scope(AffinityScope::System)
        .cpumask(CpuSet::single(0));
    let queue =
        queue.affinity_strict(true).max_active(max_active).build().expect("the call succeeds");
    (runtime, queue)
}

#[test]
fn one_item_then_shutdown() {
    model(bound(1, 2), || {
        let (runtime, queue) = small(1);
        assert_eq!(queue.spawn(|| 5).join().expect("no panic"), 5);
        drop(queue);
        drop(runtime);
    });
}

#[test]
fn one_item_while_its_worker_is_in_a_hook() {
    model_within(0, 1, || {
        let (runtime, queue) = small_of(Runtime::<Loom>::builder_in().on_worker_start(|_| ()), 1);
        assert_eq!(queue.spawn(|| 5).join().expect("no panic"), 5);
        drop(queue);
        drop(runtime);
    });
}

#[test]
fn two_items_one_after_the_other() {
    model(1, || {
        let (runtime, queue) = small(2);
        for number in 0..2 {
            assert_eq!(queue.spawn(move || number).join().expect("no panic"), number);
        }
        drop(queue);
        drop(runtime);
    });
}

/// Two items, of which as many as `max_active` says may be active at once; both run and give their results.
fn two_items(max_active: usize) {
    model_within(0, 1, move || {
        let (runtime, queue) = small(max_active);
        let handles = [0, 1].map(|number| queue.spawn(move || number));
        for (number, handle) in handles.into_iter().enumerate() {
            assert_eq!(handle.join().expect("no panic"), number);
        }
        drop(queue);
        drop(runtime);
    });
}

#[test]
fn two_items_at_once() {
    two_items(2);
}

#[test]
fn one_of_two_items_is_held_back() {
    two_items(1);
}

#[test]
fn two_issuers() {
    model_within(0, 1, || {
        let (runtime, queue) = small(2);
        let queue = Arc::new(queue);
        let other = {
            let queue = Arc::clone(&queue);
            spawn(move || assert_eq!(queue.spawn(|| 1).join().expect("no panic"), 1))
        };
        assert_eq!(queue.spawn(|| 2).join().expect("no panic"), 2);
        Loom::join(other);
        drop(Arc::into_inner(queue).expect("the other issuer has ended"));
        drop(runtime);
    });
}

#[test]
fn an_item_that_queues_another_and_is_dropped_with_its_queue() {
    model(1, || {
        let (runtime, queue) = small(2);
        let queue = Arc::new(queue);
        let queue_weak = Arc::downgrade(&queue);
        let runs = Arc::new(<Loom as LockPlatform>::AtomicU32::new(0));
        let count = Arc::clone(&runs);
        let work = Work::<Loom>::new_in(move |work: &Work<Loom>| {
            if count.fetch_add(1, Ordering::Relaxed) == 0
                && let Some(queue) = queue_weak.upgrade()
            {
                assert!(queue.queue(work));
            }
        });
        assert!(queue.queue(&work));
        drop(work);
        // Waits for what is queued; or the item has the queue and drops it, and then the runtime waits for the worker.
        drop(queue);
        drop(runtime);
        assert!(runs.load(Ordering::Relaxed) >= 1);
    });
}
