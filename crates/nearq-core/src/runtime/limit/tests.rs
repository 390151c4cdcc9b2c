//! The line of pools that want a thread, under the model checker: a whole runtime that may have one worker, or two. A pool that waits for
//! ever shows as a deadlock.

#![cfg(not(miri))]

use nearq_model::Loom;
use nearq_topology::{AffinityScope, CpuSet};

use crate::item::tests::model_in_part;
use crate::queue::runtime::Runtime;
use crate::user::workqueue::Workqueue;

/// A runtime that may have one worker, and has no monitor: a wake-up that is lost stays lost. It has two queues, each of which has a pool
/// of its own.
fn two_pools() -> (Runtime<Loom>, [Workqueue<Loom>; 2]) {
    let runtime = Runtime::<Loom>::builder_in().spin(0).thread_limit(1);
    let runtime = runtime.build().expect("the machine is constant");
    runtime.inner().services.alarm.stop();
    let queues = [0, 5].map(|nice| {
        let queue = runtime
            .workqueue_builder("modelled")
            .affinity_scope(AffinityScope::System)
            .cpumask(CpuSet::single(0));
        queue.affinity_strict(true).nice(nice).build().expect("the call succeeds")
    });
    (runtime, queues)
}

#[test]
fn a_worker_goes_to_sleep_while_another_pool_needs_a_thread() {
    model_in_part(1_200, 2, || {
        let (runtime, [first, second]) = two_pools();
        let one = first.spawn(|| 1);
        // The pool's worker is about to start, at work, about to sleep, or asleep.
        let two = second.spawn(|| 2);
        assert_eq!(two.join().expect("no panic"), 2);
        assert_eq!(one.join().expect("no panic"), 1);
        drop([first, second]);
        drop(runtime);
    });
}

#[test]
fn a_worker_is_retired_while_its_own_pool_gets_work() {
    model_in_part(1_200, 2, || {
        let (runtime, [first, second]) = two_pools();
        assert_eq!(first.spawn(|| 1).join().expect("no panic"), 1);
        let two = second.spawn(|| 2);
        // The pool has a worker that is leaving, or has no worker any more.
        let three = first.spawn(|| 3);
        assert_eq!(two.join().expect("no panic"), 2);
        assert_eq!(three.join().expect("no panic"), 3);
        drop([first, second]);
        drop(runtime);
    });
}
