//! Pools that no queue uses any more: their threads end soon, they are not listed, and they are in use again when a queue comes back to
//! them.

use core::time::Duration;

use nearq_core::{AffinityScope, Runtime, Workqueue};
use nearq_platform::LockPlatform;
use nearq_sim::Sim;

use crate::common::{LONG, simulate};

/// Longer than a worker of such a pool sleeps.
const SOON: Duration = Duration::from_millis(150);

fn runtime() -> Runtime<Sim> {
    Runtime::<Sim>::builder_in().build().expect("the machine is known")
}

fn queue(runtime: &Runtime<Sim>) -> Workqueue<Sim> {
    runtime
        .workqueue_builder("changing")
        .affinity_scope(AffinityScope::Cache)
        .build()
        .expect("the call succeeds")
}

fn slice(number: u64) -> Duration {
    Duration::from_micros(100 + number)
}

#[test]
fn a_changed_queue_keeps_threads_only_for_its_last_attributes() {
    let (most, threads, pools) = simulate("l3:2 core:2", 1, || {
        let runtime = runtime();
        let queue = queue(&runtime);
        let mut most = 0;
        for number in 0..500 {
            queue.set_time_slice(slice(number)).expect("there is such a slice");
            queue.spawn(|| {}).join().expect("no panic");
            // As often as a program might do that searches for the best setting.
            Sim::sleep(Duration::from_millis(10));
            most = most.max(runtime.thread_count());
        }
        Sim::sleep(SOON);
        (most, runtime.thread_count(), runtime.pools().len())
    });
    assert!(most <= 60, "{most} threads at once");
    assert!(threads <= 4 && pools == 2, "{threads} threads, {pools} pools");
}

#[test]
fn threads_exit_with_the_last_queue_that_uses_them() {
    let (both, one, none) = simulate("core:2", 1, || {
        let runtime = runtime();
        let (first, second) = (queue(&runtime), queue(&runtime));
        first.spawn(|| {}).join().expect("no panic");
        drop(first);
        Sim::sleep(SOON);
        let both = runtime.thread_count();
        second.spawn(|| {}).join().expect("no panic");
        drop(second);
        let one = runtime.thread_count();
        Sim::sleep(SOON);
        (both, one, (runtime.thread_count(), runtime.pools().len()))
    });
    assert!(both > 0, "the other queue uses the pool");
    assert!(one > 0, "they wait a little for another queue");
    assert_eq!(none, (0, 0));
}

#[test]
fn a_queue_returning_to_earlier_attributes_is_served_as_before() {
    simulate("l3:2 core:2", 1, || {
        let runtime = runtime();
        let queue = queue(&runtime);
        for number in 0..40 {
            queue.set_time_slice(slice(number % 2)).expect("there is such a slice");
            let sum: u32 = (0..20)
                .map(|one| queue.spawn(move || one))
                .map(|one| one.join().expect("no panic"))
                .sum();
            assert_eq!(sum, 190);
            // Sometimes before its workers have ended, sometimes after.
            Sim::sleep(if number % 3 == 0 { SOON } else { Duration::from_millis(1) });
        }
    });
}

#[test]
fn items_queued_before_a_change_of_attributes_run() {
    simulate("core:1", 1, || {
        let runtime = runtime();
        let queue = queue(&runtime);
        let items: Vec<_> = (0..100)
            .map(|number| {
                queue.set_time_slice(slice(number)).expect("there is such a slice");
                queue.spawn(|| Sim::sleep(Duration::from_millis(5)))
            })
            .collect();
        for item in items {
            item.join().expect("no panic");
        }
    });
}

/// The drop checks that no worker serves the queue by a former attribute.
#[test]
fn dropping_a_changed_queue_takes_no_longer_while_other_workers_are_busy() {
    let time_of_drop = |busy: u32| {
        simulate("core:4", 1, move || {
            let runtime = runtime();
            let (changed, other) = (queue(&runtime), queue(&runtime));
            for number in 0..300 {
                changed.set_time_slice(slice(number)).expect("there is such a slice");
            }
            for _ in 0..busy {
                let runtime = runtime.clone();
                drop(other.spawn(move || runtime.block_in_place(|| Sim::sleep(LONG))));
            }
            Sim::sleep(SOON);
            let begun = Sim::now();
            drop(changed);
            Sim::now() - begun
        })
    };
    let (alone, beside) = (time_of_drop(0), time_of_drop(60));
    assert!(beside < alone * 2, "{alone:?} alone, {beside:?} beside workers that are busy");
}
