//! The join word through every interleaving: completion against join, poll and drop; the result comes once, and nothing
//! leaks.

#![allow(clippy::disallowed_types, reason = "a place that is set once; no thread waits for it")]

use core::future::Future as _;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;
use std::task::{Wake, Waker};

use nearq_platform::{Atomic, AtomicInt, Linux, LockPlatform, Ordering, Parker, Platform, Threads};
use nearq_topology::AffinityScope;

use super::new;
use crate::base::ids::QueueKind;
use crate::base::outcome::JoinError;
use crate::base::wait_queue::tests::Count;
use crate::item::Started;
use crate::item::owned::Pending;
use crate::layout::attributes::Attributes;
use crate::layout::domain::Bounds;
use crate::limit::node_active::Entry;
use crate::limit::pool_workqueue::PoolWorkqueue;
use crate::queue::Queue;
use crate::queue::runtime::Runtime;
use crate::task::join::JoinHandle;

/// Executes a task as a worker does, if it has not been cancelled.
pub(crate) fn execute<P: Platform>(item: Pending<P>) {
    let pwq = PoolWorkqueue::of(item.account());
    match item.start() {
        Started::Yes(item) => {
            let table = item.table();
            assert!(item.execute(table).deferred.is_none());
        }
        Started::Free(item) => return item.free(),
        _ => return,
    }
    // SAFETY: null, or the pwq of a `Desk`, which outlives the worker.
    if let Some(pwq) = unsafe { pwq.as_ref() } {
        pwq.count_completed(0);
    }
}

/// Replaces a list, which hands the item over.
pub(crate) struct Sent<P: Platform>(pub(crate) Pending<P>);

/// A task that is queued somewhere, and is not cancelled.
fn queued<P: Platform, T: Send + 'static>(
    closure: impl FnOnce() -> T + Send,
) -> (Sent<P>, JoinHandle<T, P>) {
    let (item, handle) = new::<P, _, T>(closure);
    (Sent(item), handle)
}

/// A queue on which tasks are counted, without workers.
pub(crate) struct Desk<P: Platform> {
    queue: Arc<Queue<P>>,
    _runtime: Runtime<P>,
}

impl<P: Platform> Desk<P> {
    pub(crate) fn new() -> Self {
        let runtime = Runtime::<P>::builder_in().spin(0).build().expect("the machine is known");
        runtime.inner().services.alarm.stop();
        runtime.inner().stopping.store(1, Ordering::SeqCst);
        let attributes =
            Attributes { affinity_scope: Some(AffinityScope::System), ..Attributes::default() };
        let bounds = Bounds::new(8, None);
        let queue = Queue::new(
            &runtime,
            "desk".into(),
            QueueKind::Unbound,
            crate::queue::QueueFlags::default(),
            attributes.bounded(bounds),
        );
        Desk { queue, _runtime: runtime }
    }

    /// A task that is counted on the queue, and whose node the caller has.
    fn queued<T: Send + 'static>(
        &self,
        closure: impl FnOnce() -> T + Send,
    ) -> (Sent<P>, JoinHandle<T, P>) {
        let (item, handle) = new::<P, _, T>(closure);
        (self.count(item), handle)
    }

    /// Counts a new item.
    pub(crate) fn count(&self, item: Pending<P>) -> Sent<P> {
        let pwq = self.queue.pwqs().next().expect("a pod");
        assert!(pwq.credits.take() || pwq.node_active().refill(pwq) == Entry::LetIn);
        item.set_target(pwq.account(), crate::item::Origin::of_cpu(0));
        Sent(item)
    }

    /// Each task has been counted as ended, once.
    pub(crate) fn check(&self) {
        assert!(self.queue.is_empty(), "the counts are even");
    }
}

/// Wakes a thread, and counts.
struct Bell<P: Platform> {
    parker: Parker<P>,
    rung: P::AtomicU32,
}

impl<P: Platform> Bell<P> {
    fn new() -> Arc<Self> {
        Arc::new(Bell { parker: Parker::new(), rung: P::AtomicU32::new(0) })
    }
}

impl<P: Platform> Wake for Bell<P> {
    fn wake(self: Arc<Self>) {
        self.rung.fetch_add(1, Ordering::Relaxed);
        self.parker.unpark();
    }
}

fn poll<T, P: Platform>(
    handle: &mut JoinHandle<T, P>,
    bell: &Arc<Bell<P>>,
) -> Poll<Result<T, JoinError>> {
    let waker = Waker::from(Arc::clone(bell));
    Pin::new(handle).poll(&mut Context::from_waker(&waker))
}

#[test]
fn polled_before_and_after() {
    let (item, mut handle) = queued::<Linux, _>(|| 7);
    let (first, second) = (Bell::new(), Bell::new());
    assert!(poll(&mut handle, &first).is_pending());
    assert!(poll(&mut handle, &first).is_pending());
    assert!(poll(&mut handle, &second).is_pending());
    assert_eq!(Arc::strong_count(&first), 1, "the waker of an earlier poll is dropped");
    assert!(!handle.is_finished());
    execute(item.0);
    assert!(handle.is_finished());
    assert_eq!((first.rung.load(Ordering::Relaxed), second.rung.load(Ordering::Relaxed)), (0, 1));
    assert!(matches!(poll(&mut handle, &second), Poll::Ready(Ok(7))));
    drop(handle);
    assert_eq!(Arc::strong_count(&second), 1);
}

#[test]
fn polled_then_joined_or_dropped() {
    let bell = Bell::new();
    let (item, mut handle) = queued::<Linux, _>(|| "text".to_owned());
    assert!(poll(&mut handle, &bell).is_pending());
    execute(item.0);
    assert_eq!(handle.join().unwrap(), "text");
    let (item, mut handle) = queued::<Linux, _>(|| "text".to_owned());
    assert!(poll(&mut handle, &bell).is_pending());
    drop(handle);
    execute(item.0);
    assert_eq!(Arc::strong_count(&bell), 1, "nothing leaks");
}

#[test]
#[should_panic(expected = "polled after it had given its result")]
fn polled_once_too_often() {
    let bell = Bell::new();
    let (item, mut handle) = queued::<Linux, _>(|| ());
    execute(item.0);
    let _ = poll(&mut handle, &bell);
    let _ = poll(&mut handle, &bell);
}

#[test]
fn a_panic_is_the_result() {
    let (item, handle) = queued::<Linux, ()>(|| std::panic::panic_any("so be it".to_owned()));
    execute(item.0);
    let error = handle.join().unwrap_err();
    assert!(!error.is_cancelled() && error.panic().is_some());
    assert_eq!(error.message(), Some("so be it"));
    assert_eq!(error.to_string(), "the closure panicked: so be it");
    let panic = error.into_panic().unwrap();
    assert_eq!(panic.into_payload().downcast_ref::<String>().unwrap(), "so be it");
    let (item, handle) = queued::<Linux, ()>(|| std::panic::panic_any(5));
    execute(item.0);
    let panic = handle.join().unwrap_err();
    assert_eq!(
        (panic.message(), panic.to_string().as_str()),
        (None, "the closure panicked: (not a text)")
    );
}

#[test]
fn cancelled_before_the_start() {
    let desk = Desk::<Linux>::new();
    let (tail, bell) = (Arc::new(()), Bell::new());
    let captured = Arc::clone(&tail);
    let (item, mut handle) = desk.queued::<()>(move || {
        drop(captured);
        unreachable!("it was cancelled")
    });
    assert!(poll(&mut handle, &bell).is_pending());
    assert!(handle.cancel());
    assert_eq!(Arc::strong_count(&tail), 1, "dropped at once");
    assert_eq!(bell.rung.load(Ordering::Relaxed), 1, "the waiter is notified");
    assert!(handle.is_finished());
    assert!(handle.cancel(), "still so");
    let error = handle.join().unwrap_err();
    assert!(error.is_cancelled() && error.panic().is_none() && error.message().is_none());
    assert_eq!(error.to_string(), "it was cancelled before it had ended");
    assert!(error.into_panic().is_none());
    // The list still has it; the thread that takes it off frees it.
    desk.check();
    execute(item.0);
    // The same with the handle dropped last.
    let (item, handle) = desk.queued(|| ());
    assert!(handle.cancel());
    execute(item.0);
    drop(handle);
    desk.check();
}

#[test]
fn too_late_to_cancel() {
    let (item, handle) = queued::<Linux, _>(|| 3);
    execute(item.0);
    assert!(!handle.cancel());
    assert_eq!(handle.join().unwrap(), 3);
    // From within.
    let slot = Arc::new(std::sync::OnceLock::<JoinHandle<bool, Linux>>::new());
    let slot_clone = Arc::clone(&slot);
    let (item, handle) = queued::<Linux, _>(move || slot_clone.get().unwrap().cancel());
    slot.set(handle).unwrap();
    execute(item.0);
    assert!(!Arc::into_inner(slot).unwrap().into_inner().unwrap().join().unwrap(), "it runs");
}

#[test]
fn a_cancelled_closure_whose_drop_panics() {
    /// Panics when it is dropped, with something that panics when it is dropped.
    struct Bomb(u32);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(Bomb(self.0 - 1));
            }
        }
    }
    let desk = Desk::<Linux>::new();
    let bomb = Bomb(3);
    let (item, handle) = desk.queued(move || drop(bomb));
    assert!(handle.cancel());
    assert!(handle.join().unwrap_err().is_cancelled());
    execute(item.0);
}

#[test]
fn a_result_whose_drop_panics_does_not_end_a_worker() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a result that no thread took");
        }
    }
    let (item, handle) = queued::<Linux, _>(|| Bomb);
    drop(handle);
    execute(item.0);
}

#[test]
fn a_waker_that_panics_when_replaced_affects_no_other_thread() {
    static DROPPED: Count = Count::new(0);
    let (waker, bell) = (crate::base::wait_queue::tests::bomb(&DROPPED), Bell::<Linux>::new());
    let (Sent(item), mut handle) = queued(|| 7);
    assert!(Pin::new(&mut handle).poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(poll(&mut handle, &bell).is_pending());
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
    execute(item);
    assert_eq!(bell.rung.load(Ordering::Relaxed), 1);
    assert!(poll(&mut handle, &bell).is_ready());
}

#[test]
fn a_waker_that_panics_does_not_end_a_worker() {
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            panic!("a foreign waker");
        }
    }
    let (item, mut handle) = queued::<Linux, _>(|| 1);
    let waker = Waker::from(Arc::new(Bomb));
    assert!(Pin::new(&mut handle).poll(&mut Context::from_waker(&waker)).is_pending());
    execute(item.0);
    assert_eq!(handle.join().unwrap(), 1);
}

#[cfg(not(miri))]
mod modelled {
    use super::*;
    use crate::item::tests::{model, model_in_part, spawn};
    use nearq_model::Loom;

    type AtomicU32 = <Loom as LockPlatform>::AtomicU32;

    /// A value that counts its drops.
    struct Counted(Arc<AtomicU32>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Runs a task, whose result counts its drops, in one thread, and `user` in the other.
    fn check(preemptions: usize, user: fn(JoinHandle<Counted, Loom>)) {
        model(preemptions, move || {
            let drops = Arc::new(AtomicU32::new(0));
            let captured = Arc::new(AtomicU32::new(0));
            let result = Counted(Arc::clone(&drops));
            let tail = Counted(Arc::clone(&captured));
            let (item, handle) = queued::<Loom, _>(move || {
                let _tail = tail;
                result
            });
            let worker = spawn(move || {
                let Sent(item) = { item };
                execute(item);
            });
            user(handle);
            Loom::join(worker);
            assert_eq!(drops.load(Ordering::Relaxed), 1, "the result is dropped once");
            assert_eq!(captured.load(Ordering::Relaxed), 1, "the closure is dropped once");
        });
    }

    #[test]
    fn joined() {
        check(3, |handle| drop(handle.join().unwrap()));
    }

    #[test]
    fn dropped() {
        check(3, drop);
    }

    #[test]
    fn finished_and_then_joined() {
        check(3, |handle| {
            if handle.is_finished() {
                drop(handle.join().unwrap());
            }
        });
    }

    #[test]
    fn polled_until_it_is_ready() {
        check(3, |mut handle| {
            let bell = Bell::<Loom>::new();
            while poll(&mut handle, &bell).is_pending() {
                bell.parker.park(None);
            }
        });
    }

    #[test]
    fn polled_with_another_waker_each_time() {
        check(3, |mut handle| {
            let (first, second) = (Bell::<Loom>::new(), Bell::<Loom>::new());
            if poll(&mut handle, &first).is_pending() && poll(&mut handle, &second).is_pending() {
                // The first waker may have been called before it was replaced, but then the second poll would have been ready. So the
                // second waker is called.
                second.parker.park(None);
                assert!(poll(&mut handle, &second).is_ready());
            }
            drop(handle);
        });
    }

    #[test]
    fn polled_and_then_joined() {
        check(3, |mut handle| {
            let bell = Bell::<Loom>::new();
            match poll(&mut handle, &bell) {
                Poll::Ready(result) => drop(result.unwrap()),
                Poll::Pending => drop(handle.join().unwrap()),
            }
        });
    }

    /// Waits for it with a deadline that comes.
    fn in_time(handle: JoinHandle<Counted, Loom>) -> Result<Counted, JoinHandle<Counted, Loom>> {
        Loom::set_deadlines_come(true);
        let result = handle.join_timeout(Duration::from_millis(1));
        Loom::set_deadlines_come(false);
        result.map(Result::unwrap)
    }

    #[test]
    fn joined_in_time_or_later() {
        check(3, |handle| match in_time(handle) {
            Ok(result) => drop(result),
            Err(handle) => drop(handle.join().unwrap()),
        });
    }

    #[test]
    fn joined_in_time_or_dropped() {
        check(3, |handle| drop(in_time(handle)));
    }

    #[test]
    fn joined_in_time_or_polled() {
        check(2, |handle| {
            if let Err(mut handle) = in_time(handle) {
                let bell = Bell::<Loom>::new();
                while poll(&mut handle, &bell).is_pending() {
                    bell.parker.park(None);
                }
            }
        });
    }

    /// Cancels in one thread what is started in another: it runs or it is cancelled, and both threads see the same result.
    fn cancelled(then: fn(JoinHandle<u32, Loom>, bool)) {
        model(2, move || {
            let desk = Desk::<Loom>::new();
            let captured = Arc::new(AtomicU32::new(0));
            let (runs, tail) = (Arc::new(AtomicU32::new(0)), Counted(Arc::clone(&captured)));
            let count = Arc::clone(&runs);
            let (item, handle) = desk.queued(move || {
                let _tail = tail;
                count.fetch_add(1, Ordering::Relaxed) + 7
            });
            let worker = spawn(move || {
                let Sent(item) = { item };
                execute(item);
            });
            let cancelled = handle.cancel();
            then(handle, cancelled);
            Loom::join(worker);
            assert_eq!(runs.load(Ordering::Relaxed), u32::from(!cancelled));
            assert_eq!(captured.load(Ordering::Relaxed), 1, "the closure is dropped once");
            desk.check();
        });
    }

    #[test]
    fn cancelled_and_joined() {
        cancelled(|handle, cancelled| match handle.join() {
            Ok(value) => assert_eq!((value, cancelled), (7, false)),
            Err(error) => assert!(error.is_cancelled() && cancelled),
        });
    }

    #[test]
    fn cancelled_and_dropped() {
        cancelled(|handle, _| drop(handle));
    }

    #[test]
    fn cancelled_by_two_threads_while_it_starts() {
        model_in_part(2_000, 2, || {
            let desk = Desk::<Loom>::new();
            let (item, handle) = desk.queued(|| 7);
            let handle = Arc::new(handle);
            let other = Arc::clone(&handle);
            let worker = spawn(move || {
                let Sent(item) = { item };
                execute(item);
            });
            let answer = Arc::new(AtomicU32::new(0));
            let answer_clone = Arc::clone(&answer);
            let canceller =
                spawn(move || answer_clone.store(u32::from(other.cancel()), Ordering::Relaxed));
            let cancelled = handle.cancel();
            Loom::join(canceller);
            Loom::join(worker);
            let handle = Arc::into_inner(handle).expect("the other one has ended");
            assert_eq!(handle.join().is_err(), cancelled);
            assert_eq!(answer.load(Ordering::Relaxed) == 1, cancelled, "both results agree");
            desk.check();
        });
    }

    #[test]
    fn polled_and_then_cancelled() {
        model(2, || {
            let desk = Desk::<Loom>::new();
            let (item, mut handle) = desk.queued(|| 7);
            let worker = spawn(move || {
                let Sent(item) = { item };
                execute(item);
            });
            let bell = Bell::<Loom>::new();
            if poll(&mut handle, &bell).is_pending() {
                let cancelled = handle.cancel();
                bell.parker.park(None);
                assert_eq!(bell.rung.load(Ordering::Relaxed), 1);
                match poll(&mut handle, &bell) {
                    Poll::Ready(result) => assert_eq!(result.is_err(), cancelled),
                    Poll::Pending => unreachable!("it has rung"),
                }
            }
            drop(handle);
            Loom::join(worker);
            desk.check();
        });
    }

    #[test]
    fn polled_and_then_dropped() {
        check(3, |mut handle| {
            let bell = Bell::<Loom>::new();
            drop(poll(&mut handle, &bell));
            drop(handle);
            assert!(bell.rung.load(Ordering::Relaxed) <= 1);
        });
    }
}
