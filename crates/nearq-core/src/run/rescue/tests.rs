//! What a rescuer takes from a pool, and in which order; and, under the model checker, that no call is lost if the rescuer goes back to
//! sleep.

use std::sync::Arc;

use nearq_platform::{Atomic, Linux, Ordering, Threads};
use nearq_topology::{AffinityScope, CpuSet};

use crate::item::Item;
use crate::item::list::List;
use crate::item::tests::{blank, pending};
use crate::layout::attributes::{Attributes, PoolKey};
use crate::pool::Pool;
use crate::pool::worker::Worker;
use crate::queue::runtime::Runtime;

/// A pool of a runtime that starts no threads, and this many items.
struct Still {
    pool: Arc<Pool<Linux>>,
    items: Vec<Item<Linux>>,
    runtime: Runtime<Linux>,
}

impl Still {
    fn new(items: usize) -> Self {
        let runtime = Runtime::<Linux>::builder_in().spin(0).build().expect("the machine is known");
        runtime.inner().services.alarm.stop();
        runtime.inner().stopping.store(1, Ordering::SeqCst);
        let pod = CpuSet::single(0);
        let key = PoolKey {
            bound: false,
            priority: crate::layout::priority::Priority::of(&Attributes::default()),
            strict: true,
            helping: false,
            allowed: pod.clone(),
            pod,
        };
        let pool = runtime.inner().pool(&key);
        Still { pool, items: (0..items).map(|_| blank()).collect(), runtime }
    }

    fn push(&self, numbers: core::ops::Range<usize>) {
        numbers.for_each(|number| self.pool.push(pending(&self.items[number])));
    }

    fn number(&self, item: &Item<Linux>) -> usize {
        (core::ptr::from_ref(item).addr() - self.items.as_ptr().addr()) / size_of::<Item<Linux>>()
    }

    /// Takes all whose numbers are wanted, one at a time.
    fn take(&self, wanted: impl Fn(usize) -> bool) -> Vec<usize> {
        let take = || self.pool.take_one(|item| wanted(self.number(item)));
        core::iter::from_fn(take).map(|item| self.number(&item)).collect()
    }

    /// A worker's entry with items in its batch.
    fn worker_with(&self, count: usize) -> &Worker<Linux> {
        let worker = self.pool.entry_for_test();
        assert_eq!(self.pool.take(worker, count), count);
        worker
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads the machine")]
fn items_are_rescued_in_order_and_other_items_keep_theirs() {
    let still = Still::new(10);
    still.push(0..6);
    assert_eq!(
        still.pool.take_one(|item| still.number(item) % 3 == 1).map(|item| still.number(&item)),
        Some(1)
    );
    still.push(6..10);
    assert_eq!(still.take(|number| number % 3 == 1), [4, 7]);
    assert_eq!(still.take(|_| false), [0; 0]);
    assert_eq!(still.pool.listed(), 7);
    assert_eq!(still.take(|_| true), [0, 2, 3, 5, 6, 8, 9]);
    assert!(!still.pool.has_waiting());
}

#[test]
#[cfg_attr(miri, ignore = "reads the machine")]
fn items_in_batches_come_before_items_in_the_pools_list() {
    let still = Still::new(12);
    still.push(0..5);
    let first = still.worker_with(5);
    still.push(5..8);
    let second = still.worker_with(3);
    still.push(8..12);
    let before = still.pool.signature();
    // If the queue has nothing there, nothing is taken, but all items are now where every worker finds them.
    let taken = still.take(|number| number % 2 == 1);
    assert_eq!((first.batch.len(), second.batch.len()), (0, 0));
    assert_ne!(still.pool.signature(), before, "batches have changed, once");
    let after = still.pool.signature();
    // Items of one batch keep their order; which batch comes first is not specified.
    let of = |range: core::ops::Range<usize>| -> Vec<usize> {
        taken.iter().copied().filter(|number| range.contains(number)).collect()
    };
    assert_eq!((of(0..5), of(5..8)), (vec![1, 3], vec![5, 7]));
    assert_eq!(taken[4..], [9, 11]);
    let mut rest = still.take(|_| true);
    assert_eq!(rest[4..], [8, 10]);
    rest.sort_unstable();
    assert_eq!(rest, [0, 2, 4, 6, 8, 10]);
    assert_eq!(still.pool.signature(), after, "items that rescuers take do not count as started");
    drop(still.runtime);
}

#[test]
#[cfg_attr(miri, ignore = "reads the machine")]
fn lists_are_joined_in_order() {
    let items: Vec<Item<Linux>> = (0..5).map(|_| blank()).collect();
    let list = |numbers: core::ops::Range<usize>| {
        let mut list = List::new();
        numbers.for_each(|number| list.push_back(pending(&items[number])));
        list
    };
    let numbers = |list: &mut List<Linux>| -> Vec<usize> {
        core::iter::from_fn(|| list.pop_front())
            .map(|item| {
                (item.into_raw().as_ptr().addr() - items.as_ptr().addr()) / size_of::<Item<Linux>>()
            })
            .collect()
    };
    for (first, second) in [(0..0, 0..0), (0..0, 0..2), (0..2, 2..2), (0..2, 2..5)] {
        let wanted: Vec<_> = first.clone().chain(second.clone()).collect();
        let (mut first, mut second) = (list(first), list(second));
        first.append(&mut second);
        assert!(second.is_empty() && second.pop_front().is_none());
        assert_eq!(first.len(), wanted.len());
        assert_eq!(numbers(&mut first), wanted);
    }
    let mut all = list(0..5);
    all.prefer(|item| core::ptr::eq(item, &raw const items[3]));
    assert_eq!(all.len(), 5);
    assert_eq!(numbers(&mut all), [3, 0, 1, 2, 4]);
}

#[cfg(not(miri))]
mod modelled {
    use nearq_model::Loom;

    use super::super::{Rescuer, live};
    use super::*;
    use crate::item::tests::{model_in_part, spawn};

    use crate::base::ids::QueueKind;
    use crate::layout::domain::Bounds;
    use crate::monitor::rescue::call;
    use crate::queue::{Queue, QueueFlags};
    use crate::run::Ran;
    use crate::user::workqueue::Workqueue;

    /// A runtime that may start no worker and has no other threads, and a queue whose rescuer is a thread of the model.
    struct Stub {
        queue: Workqueue<Loom>,
        inside: Arc<Queue<Loom>>,
        rescuer: Arc<Rescuer<Loom>>,
        thread: <Loom as Threads>::JoinHandle,
        runtime: Runtime<Loom>,
    }

    impl Stub {
        fn new() -> Self {
            let builder = Runtime::<Loom>::builder_in().spin(0).thread_limit(1);
            let runtime = builder.build().expect("the machine is constant");
            let inner = runtime.inner();
            inner.threads.store(1, Ordering::Relaxed);
            inner.services.alarm.stop();
            let attributes =
                Attributes { affinity_scope: Some(AffinityScope::System), ..Attributes::default() };
            let bounds = Bounds::new(4, None);
            let flags = QueueFlags { rescuer: true, ..QueueFlags::default() };
            let inside = Queue::new(
                &runtime,
                "m".into(),
                QueueKind::Unbound,
                flags,
                attributes.bounded(bounds),
            );
            inner.add_queue(&inside);
            let rescuer = Arc::clone(inside.rescuer().expect("it was requested"));
            let pool = Arc::as_ptr(&inside.pwqs().next().expect("one").pool);
            let worker = inner
                .services
                .workers
                .add(|index| Worker::rescuer(index, pool))
                .expect("there is room");
            rescuer.worker.store(core::ptr::from_ref(worker).cast_mut(), Ordering::Release);
            let (rescuer_clone, weak, index) =
                (Arc::clone(&rescuer), Arc::downgrade(&inside), worker.index);
            let handle = runtime.clone();
            let thread = spawn(move || {
                let inner = handle.inner();
                assert_eq!(
                    live(inner, &rescuer_clone, &weak, inner.services.workers.get(index)),
                    Ran::Here
                );
            });
            Stub { queue: Workqueue::of(Arc::clone(&inside)), inside, rescuer, thread, runtime }
        }

        /// What the monitor does when it is due.
        fn call(&self) {
            for pool in self.runtime.inner().pools_in_service() {
                if pool.spawn_failure.lasts() && pool.has_waiting() {
                    call(self.runtime.inner(), &pool);
                }
            }
        }

        fn end(self) {
            self.rescuer.end(false);
            Loom::join(self.thread);
            drop(self.inside);
            drop(self.queue);
            self.runtime.inner().threads.store(0, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_call_while_the_rescuer_starts_or_goes_back_to_sleep() {
        model_in_part(2_000, 2, || {
            let stub = Stub::new();
            for number in 0..2 {
                let handle = stub.queue.spawn(move || number);
                // The rescuer may have taken the item without this call, if it had not left yet.
                stub.call();
                assert_eq!(handle.join().expect("no panic"), number);
            }
            stub.end();
        });
    }

    #[test]
    fn a_call_during_the_end_of_the_rescuer() {
        model_in_part(2_000, 2, || {
            let stub = Stub::new();
            let handle = stub.queue.spawn(|| 5);
            stub.call();
            assert_eq!(handle.join().expect("no panic"), 5);
            // A call without need: it may come when the rescuer is on its way back, or has ended.
            for pool in stub.runtime.inner().pools_in_service() {
                stub.rescuer.call(&pool);
            }
            stub.end();
        });
    }
}
