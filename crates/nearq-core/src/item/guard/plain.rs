//! Cancelling, queueing again and delaying step by step, without the model checker: for Miri, which detects what is freed too early, twice
//! or never, and accesses that are not allowed.
//!
//! The queue is a real one, on a runtime that starts no threads; the test does what workers and the timer do.

use core::time::Duration;
use std::sync::Arc;

use nearq_platform::{Atomic, Linux, LockPlatform, Ordering};
use nearq_topology::{AffinityScope, Limits, Topology};

use crate::base::ids::QueueKind;
use crate::item::tests::step;
use crate::item::{Item, LOCKED};
use crate::layout::attributes::{Attributes, MachineConfig};
use crate::layout::domain::Bounds;
use crate::pool::worker::Worker;
use crate::queue::Queue;
use crate::queue::runtime::Runtime;
use crate::runtime::config::Beginning;
use crate::task::work::Work;

type Count = Arc<<Linux as LockPlatform>::AtomicU32>;

/// A queue on a machine of two CPUs, each with a pool.
struct Bench {
    queue: Arc<Queue<Linux>>,
    runtime: Runtime<Linux>,
}

impl Bench {
    fn new(max_active: usize) -> Self {
        let topology = Topology::from_synthetic("core:2").expect("well formed");
        let machine_config = MachineConfig {
            limits: Limits::unlimited(topology.possible().clone()),
            topology,
            default_affinity_scope: AffinityScope::Cpu,
            shard_size: 8,
            affinity: true,
            mask: None,
        };
        let beginning =
            Beginning { thread_limit: 4096, inherits_homes: true, ..Beginning::default() };
        let runtime = Runtime::<Linux>::start(machine_config, beginning);
        let inner = runtime.inner();
        inner.services.alarm.stop();
        inner.stopping.store(1, Ordering::SeqCst);
        inner.timer.do_without_thread();
        let bounds = Bounds::new(max_active, None);
        let attributes = Attributes::default();
        let queue = Queue::new(
            &runtime,
            "bench".into(),
            QueueKind::Unbound,
            crate::queue::QueueFlags { freezable: true, ..Default::default() },
            attributes.bounded(bounds),
        );
        inner.add_queue(&queue);
        for pwq in queue.pwqs() {
            // Pushers leave it to other threads to wake a worker.
            assert!(pwq.pool.mark_queued_for_place());
        }
        let pool = Arc::as_ptr(&queue.pwqs().next().expect("two").pool);
        inner.services.workers.add(|index| Worker::new(index, pool)).expect("there is room");
        Bench { queue, runtime }
    }

    fn queue(&self, work: &Work<Linux>, cpu: usize) -> bool {
        self.queue.queue_on(work.item(), |places| places.cpu(cpu)) == Ok(true)
    }

    fn delay(&self, work: &Work<Linux>, delay: Duration) -> bool {
        self.queue.queue_delayed(work.item(), 0, delay)
    }

    /// Takes one node off the pool of a CPU.
    fn step(&self, cpu: usize) -> bool {
        let inner = self.runtime.inner();
        let mut pwqs = self.queue.pwqs();
        let pwq = pwqs.find(|pwq| pwq.pool.key.pod.contains(cpu)).expect("one a CPU");
        step(&pwq.pool, inner.services.workers.get(0))
    }

    fn run_out(&self) {
        while self.step(0) || self.step(1) {}
    }

    /// Checks that nothing is left on the queue and, if all handles are gone, that nothing of any item is left either.
    fn end(self) {
        self.run_out();
        assert!(self.queue.is_empty());
        self.runtime.inner().timer.end_by_hand();
    }
}

/// An item that counts its executions on the heap.
fn counting() -> (Work<Linux>, Count) {
    let runs: Count = Arc::new(Atomic::new(0));
    let own = Arc::clone(&runs);
    let mut count = Box::new(0);
    let work = Work::new(move |_: &Work| {
        *count += 1;
        own.store(*count, Ordering::Relaxed);
    });
    (work, runs)
}

fn runs(count: &Count) -> u32 {
    count.load(Ordering::Relaxed)
}

#[test]
fn cancelled_and_the_node_thrown_away() {
    let bench = Bench::new(8);
    let (work, count) = counting();
    assert!(bench.queue(&work, 0) && work.cancel() && !work.cancel());
    assert!(bench.step(0), "the node");
    assert!(bench.queue(&work, 0) && bench.step(0));
    assert_eq!(runs(&count), 1);
    drop(work);
    bench.end();
    assert_eq!(Arc::strong_count(&count), 1);
}

#[test]
fn the_last_handle_goes_while_only_a_cancelled_node_is_left() {
    let bench = Bench::new(8);
    let (work, count) = counting();
    assert!(bench.queue(&work, 0) && work.cancel());
    drop(work);
    assert_eq!(Arc::strong_count(&count), 1, "the node keeps the memory alone");
    assert!(bench.step(0));
    bench.end();
}

/// Proxies and the timer also keep the memory alive; nothing else does.
#[test]
fn the_last_handle_goes_while_all_kinds_of_nodes_are_left() {
    let bench = Bench::new(8);
    let (work, count) = counting();
    for cpu in [0, 1, 1, 0] {
        assert!(bench.queue(&work, cpu) && work.cancel());
    }
    assert!(bench.delay(&work, Duration::from_secs(4000)) && work.cancel());
    drop(work);
    assert_eq!(Arc::strong_count(&count), 1);
    bench.end();
    // The same, if the timer is the last to keep it alive.
    let bench = Bench::new(8);
    let (work, count) = counting();
    assert!(bench.delay(&work, Duration::from_secs(4000)) && work.cancel());
    drop(work);
    assert_eq!(Arc::strong_count(&count), 1);
    bench.end();
}

/// The execution outlives the last handle, and cancelled nodes outlive the execution.
#[test]
fn the_execution_is_last_while_a_cancelled_node_is_left() {
    let bench = Arc::new(Bench::new(8));
    let (own, count): (_, Count) = (Arc::downgrade(&bench), Arc::new(Atomic::new(0)));
    let counted = Arc::clone(&count);
    let work = Work::new(move |work: &Work| {
        counted.store(1, Ordering::Relaxed);
        let bench = own.upgrade().expect("it calls us");
        assert!(bench.queue(work, 0) && work.cancel());
        assert!(bench.queue(work, 1) && work.cancel());
    });
    assert!(bench.queue(&work, 0));
    drop(work);
    assert!(bench.step(0));
    assert_eq!((runs(&count), Arc::strong_count(&count)), (1, 1));
    Arc::into_inner(bench).expect("nobody else has it").end();
}

#[test]
fn queued_again_and_again_while_the_first_node_is_on_its_list() {
    let bench = Bench::new(8);
    let (work, count) = counting();
    assert!(bench.queue(&work, 0) && work.cancel());
    for _ in 0..3 {
        assert!(bench.queue(&work, 1) && work.cancel());
    }
    assert!(bench.queue(&work, 1) && !bench.queue(&work, 0));
    while bench.step(1) {}
    assert_eq!(runs(&count), 1);
    assert!(bench.queue(&work, 1), "and still a node that stands in");
    drop(work);
    bench.end();
    assert_eq!((runs(&count), Arc::strong_count(&count)), (2, 1));
}

#[test]
fn held_back_cancelled_and_queued_again() {
    let bench = Bench::new(1);
    let (first, _) = counting();
    let (work, count) = counting();
    assert!(bench.queue(&first, 0));
    for _ in 0..3 {
        assert!(bench.queue(&work, 0) && work.cancel());
    }
    assert!(bench.queue(&work, 0));
    drop((work, first));
    bench.run_out();
    assert_eq!(runs(&count), 1);
    bench.end();
    assert_eq!(Arc::strong_count(&count), 1, "what was cancelled goes with the queue at last");
}

/// From inside the function, the item is cancelled and queued elsewhere: by its own node, and by a proxy.
#[test]
fn moved_by_its_own_function() {
    let bench = Arc::new(Bench::new(8));
    let (own, count): (_, Count) = (Arc::downgrade(&bench), Arc::new(Atomic::new(0)));
    let counted = Arc::clone(&count);
    let mut number = 0;
    let work = Work::new(move |work: &Work| {
        number += 1;
        counted.store(number, Ordering::Relaxed);
        if number <= 2 {
            let bench = own.upgrade().expect("it calls us");
            assert!(bench.queue(work, 0) && work.cancel() && bench.queue(work, 1));
        }
    });
    // In the second round, the item's own node is on the first CPU's pool.
    assert!(bench.queue(&work, 1) && bench.step(1) && bench.step(1) && bench.step(1));
    assert_eq!(runs(&count), 3);
    drop(work);
    Arc::into_inner(bench).expect("nobody else has it").end();
    assert_eq!(Arc::strong_count(&count), 1);
}

#[test]
fn delayed_and_cancelled_moved_or_expedited() {
    let bench = Bench::new(8);
    let (work, count) = counting();
    let long = Duration::from_secs(4000);
    assert!(bench.delay(&work, long) && !bench.queue(&work, 0) && work.cancel());
    assert!(bench.delay(&work, long));
    assert!(bench.queue.modify_delayed(work.item(), 0, 2 * long));
    assert!(crate::queue::delay::expedite(work.header()));
    assert!(bench.step(0));
    assert_eq!(runs(&count), 1);
    // With a stale node on the list.
    assert!(bench.queue(&work, 1) && work.cancel() && bench.delay(&work, long));
    assert!(crate::queue::delay::expedite(work.header()) && bench.step(0));
    assert_eq!(runs(&count), 2);
    assert!(bench.delay(&work, long));
    drop(work);
    bench.end();
    assert_eq!(Arc::strong_count(&count), 1, "the timer has let go of it");
}

#[test]
fn disabled_it_refuses_and_gives_everything_back() {
    let bench = Bench::new(8);
    let (work, count) = counting();
    assert!(bench.queue(&work, 0) && work.disable() && !work.disable());
    assert!(!bench.queue(&work, 0) && !bench.delay(&work, Duration::from_secs(1)));
    assert!(!work.enable() && work.enable());
    assert!(bench.queue(&work, 0), "by a node that stands in");
    drop(work);
    bench.end();
    assert_eq!((runs(&count), Arc::strong_count(&count)), (1, 1));
}

/// The lock's holder does what the worker came for, by the item's whole pointer.
#[test]
fn left_to_the_locks_holder() {
    let bench = Bench::new(8);
    let (work, count) = counting();
    assert!(bench.queue(&work, 0));
    let guard = work.header().lock();
    assert!(bench.step(0), "the worker leaves it");
    assert_eq!(runs(&count), 0);
    guard.unlock();
    assert!(bench.step(0));
    assert_eq!(runs(&count), 1);
    drop(work);
    bench.end();
    assert_eq!(Arc::strong_count(&count), 1);
}

/// The last handle of a cancelled item is dropped while a worker has the lock: the value is dropped after the unlock, and may take long and
/// panic.
#[test]
fn the_last_handle_goes_while_a_worker_has_the_lock() {
    struct Bomb(Arc<<Linux as LockPlatform>::AtomicPtr<Item<Linux>>>, Count);
    impl Drop for Bomb {
        fn drop(&mut self) {
            // SAFETY: the item, whose value is being dropped.
            let item = unsafe { &*self.0.load(Ordering::Relaxed) };
            assert_eq!(item.current() & LOCKED, 0, "workers would come again and again");
            self.1.fetch_add(1, Ordering::Relaxed);
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }
    let bench = Bench::new(8);
    let (place, count) = (Arc::new(Atomic::new(core::ptr::null_mut())), Count::new(Atomic::new(0)));
    let bomb = Bomb(Arc::clone(&place), Arc::clone(&count));
    let work = Work::new(move |_: &Work| {
        let _ = &bomb;
    });
    place.store(work.item().as_raw().as_ptr(), Ordering::Relaxed);
    for _ in 0..2 {
        assert!(bench.queue(&work, 0) && work.cancel());
    }
    let item = work.item().as_raw();
    // SAFETY: its cancelled nodes keep it.
    let guard = unsafe { item.as_ref() }.lock();
    drop(work);
    assert_eq!(runs(&count), 0);
    // SAFETY: the caller does what the answer says.
    unsafe { Item::free_if_over(guard.unlock_by_worker(), item) };
    assert_eq!(runs(&count), 1);
    bench.end();
}
