//! A spawned future through every interleaving: wakes against the poll's end, cancelling against both, and a queue that is closed
//! meanwhile. A list with a rundown reference replaces the queue.

#![allow(clippy::disallowed_types, reason = "a queue that is set once; no thread waits for it")]
#![cfg_attr(miri, allow(dead_code, unused_imports, reason = "the model checker is not for Miri"))]

use core::future::Future;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_model::{Loom, bound};
use nearq_platform::{Atomic, AtomicInt, Linux, Ordering, Platform, Threads};

use super::{Route, owned};
use crate::base::outcome::JoinError;
use crate::base::rundown_ref::RundownRef;
use crate::item::account::Account;
use crate::item::inbox::Inbox;
use crate::item::owned::{ItemRef, Pending, Running};
use crate::item::tests::{model, spawn};
use crate::item::{Epoch, Item, PENDING, REFERENCE, RUNNING, Started};
use crate::task::Alone;
use crate::task::join::JoinHandle;

/// Replaces a queue: a list, and a rundown reference as in `Queue`.
struct StandInQueue<P: Platform> {
    inbox: Inbox<P>,
    rundown: RundownRef<P>,
    /// The number of items that were sent and not executed.
    counted: P::AtomicU32,
}

impl<P: Platform> StandInQueue<P> {
    fn new() -> Arc<Self> {
        Arc::new(StandInQueue {
            inbox: Inbox::new(),
            rundown: RundownRef::new(),
            counted: P::AtomicU32::new(0),
        })
    }

    fn send_now(&self, item: Pending<P>) {
        item.set_target(Self::account(), crate::item::Origin::of_cpu(0));
        self.counted.fetch_add(1, Ordering::Relaxed);
        if let Some(item) = item.publish() {
            self.inbox.push(item);
        }
    }

    /// Ends an execution during which the item was sent here.
    fn push_deferred(&self, item: Running<P>) {
        // Its account is the one that `send_now` wrote; otherwise this would follow it.
        let node = item.finish_deferred(Self::account());
        self.inbox.push(node.expect("it was queued here"));
    }

    /// Not null, and never followed: it says that the item is counted.
    fn account() -> *const Account<P> {
        NonNull::dangling().as_ptr()
    }

    /// Runs what is on the list, as a worker does.
    fn run(&self) {
        let mut items = self.inbox.take_all();
        while let Some(item) = items.pop_front() {
            let Started::Yes(item) = item.start() else { panic!("no thread cancels it") };
            let table = item.table();
            if let Some(item) = item.execute(table).deferred {
                self.push_deferred(item);
            }
            self.counted.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Runs until nothing is left. Called when no other thread exists any more.
    fn run_out(&self) {
        while !self.inbox.is_empty() {
            self.run();
        }
        assert_eq!(self.counted.load(Ordering::Relaxed), 0, "each was executed once");
    }

    fn close(&self) {
        self.rundown.close();
    }
}

struct TestRoute<P: Platform>(Arc<StandInQueue<P>>);

impl<P: Platform> Route<P> for TestRoute<P> {
    type Kept = Arc<StandInQueue<P>>;

    fn send(&self, item: Pending<P>) -> Result<(), (Pending<P>, Self::Kept)> {
        let mut item = Some(item);
        self.0.rundown.pass(|| item.take().into_iter().for_each(|item| self.0.send_now(item)));
        item.map_or(Ok(()), |item| Err((item, Arc::clone(&self.0))))
    }

    fn push(kept: Option<&Self::Kept>, item: Running<P>) {
        kept.expect("the item was sent before").push_deferred(item);
    }
}

/// Spawns a future on `queue`.
fn spawn_on<P: Platform, T: Send + 'static>(
    queue: &Arc<StandInQueue<P>>,
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T, P> {
    let (item, handle) = owned::<P, _, _, _, T>(Alone, TestRoute(Arc::clone(queue)), future);
    queue.send_now(item);
    handle
}

/// A value that counts its drops.
struct Tail<P: Platform>(Arc<P::AtomicU32>);

impl<P: Platform> Drop for Tail<P> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a waiting future shares with the thread that wakes it.
struct Shared<P: Platform> {
    ready: P::AtomicU32,
    polls: P::AtomicU32,
    waker: Mutex<Option<Waker>, P>,
    /// Futures dropped.
    drops: Arc<P::AtomicU32>,
}

impl<P: Platform> Shared<P> {
    fn new() -> Arc<Self> {
        Arc::new(Shared {
            ready: P::AtomicU32::new(0),
            polls: P::AtomicU32::new(0),
            waker: Mutex::new_in(None),
            drops: Arc::new(P::AtomicU32::new(0)),
        })
    }

    fn waker(&self) -> Option<Waker> {
        self.waker.lock().clone()
    }

    /// Makes the future ready, and wakes it if it waits.
    fn fire(&self) {
        self.ready.store(1, Ordering::Release);
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Waits until it is ready. Its own count of polls is plain memory: the model reports two polls at once.
struct Waits<P: Platform> {
    shared: Arc<Shared<P>>,
    polls: u32,
    _tail: Tail<P>,
}

impl<P: Platform> Future for Waits<P> {
    type Output = u32;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u32> {
        self.polls += 1;
        let shared = &self.shared;
        shared.polls.store(self.polls, Ordering::Relaxed);
        *shared.waker.lock() = Some(context.waker().clone());
        // As usual for a waiter, the waker is stored before the check.
        match shared.ready.load(Ordering::Acquire) {
            0 => Poll::Pending,
            _ => Poll::Ready(self.polls),
        }
    }
}

fn waits<P: Platform>(shared: &Arc<Shared<P>>) -> Waits<P> {
    Waits { shared: Arc::clone(shared), polls: 0, _tail: Tail(Arc::clone(&shared.drops)) }
}

fn drops<P: Platform>(shared: &Shared<P>) -> u32 {
    shared.drops.load(Ordering::Relaxed)
}

#[cfg(not(miri))]
mod modelled {
    use super::*;

    /// A waiting future on a queue, a worker that checks the queue twice, and `first` and `second` in threads of their own.
    fn check(
        preemptions: usize,
        first: fn(&StandInQueue<Loom>, &Shared<Loom>),
        second: fn(&StandInQueue<Loom>, &Shared<Loom>, &JoinHandle<u32, Loom>),
        outcome: fn(Result<u32, JoinError>),
    ) {
        model(preemptions, move || {
            let (queue, shared) = (StandInQueue::<Loom>::new(), Shared::<Loom>::new());
            let handle = spawn_on(&queue, waits(&shared));
            let thread = {
                let (queue, shared) = (Arc::clone(&queue), Arc::clone(&shared));
                spawn(move || first(&queue, &shared))
            };
            let worker = {
                let queue = Arc::clone(&queue);
                spawn(move || {
                    queue.run();
                    queue.run();
                })
            };
            second(&queue, &shared, &handle);
            Loom::join(thread);
            Loom::join(worker);
            queue.run_out();
            outcome(handle.join());
            assert_eq!(drops(&shared), 1, "the future is dropped once");
            // The last waker is a reference; nothing leaks, which the model watches.
            drop(shared.waker.lock().take());
        });
    }

    #[test]
    fn woken_while_it_is_polled() {
        check(
            bound(2, 3),
            |_, shared| shared.fire(),
            |_, _, _| {},
            |result| assert!(matches!(result, Ok(1 | 2))),
        );
    }

    #[test]
    fn woken_by_two_threads_at_once() {
        // One thread wakes the future for nothing, the other makes it ready first.
        check(
            bound(1, 2),
            |_, shared| shared.fire(),
            |_, shared, _| {
                if let Some(waker) = shared.waker() {
                    waker.wake_by_ref();
                }
            },
            |result| assert!(matches!(result, Ok(1..=3))),
        );
    }

    #[test]
    fn cancelled_while_it_is_woken() {
        model(2, || {
            let (queue, shared) = (StandInQueue::<Loom>::new(), Shared::<Loom>::new());
            let handle = spawn_on(&queue, waits(&shared));
            let waker = {
                let shared = Arc::clone(&shared);
                spawn(move || shared.fire())
            };
            let worker = {
                let queue = Arc::clone(&queue);
                spawn(move || {
                    queue.run();
                    queue.run();
                })
            };
            let cancelled = handle.cancel();
            Loom::join(waker);
            Loom::join(worker);
            queue.run_out();
            match handle.join() {
                Ok(_) => assert!(!cancelled),
                Err(error) => assert!(cancelled && error.is_cancelled()),
            }
            assert_eq!(drops(&shared), 1, "the future is dropped once");
            drop(shared.waker.lock().take());
        });
    }

    #[test]
    fn woken_while_its_queue_closes() {
        check(
            2,
            |_, shared| shared.fire(),
            |queue, _, _| queue.close(),
            |result| match result {
                Ok(polls) => assert!(polls <= 2),
                Err(error) => assert!(error.is_cancelled()),
            },
        );
    }

    #[test]
    fn woken_from_outside_and_inside_a_closed_queue() {
        model(2, || {
            let (queue, shared) = (StandInQueue::<Loom>::new(), Shared::<Loom>::new());
            let handle = spawn_on(&queue, waits(&shared));
            queue.run();
            let waker = shared.waker().expect("it has been polled");
            queue.close();
            // A wake from outside is refused.
            let outside = {
                let waker = waker.clone();
                spawn(move || waker.wake())
            };
            // A wake as if from an item of the queue is always admitted. SAFETY: the waker is of `spawn_on`, so its data is the item.
            let item =
                unsafe { NonNull::new_unchecked(waker.data().cast_mut().cast::<Item<Loom>>()) };
            // SAFETY: `waker` keeps the item alive.
            if let Some(node) = Item::claim(unsafe { ItemRef::new(item) }, Epoch::now::<Loom>()) {
                queue.send_now(node);
            }
            queue.run();
            Loom::join(outside);
            queue.run_out();
            if !handle.is_finished() {
                // The wake from outside joined the one from within, which stood.
                assert_eq!(shared.polls.load(Ordering::Relaxed), 2);
                waker.wake_by_ref();
            }
            assert!(handle.join().unwrap_err().is_cancelled());
            assert_eq!(drops(&shared), 1, "the future is dropped once");
            // SAFETY: `waker` still keeps the item alive.
            let state = unsafe { item.as_ref() }.state.load(Ordering::Relaxed);
            assert_eq!(state & (PENDING | RUNNING), 0);
            assert_eq!(state / REFERENCE, 2, "our waker, and the one in `shared`");
            drop(shared.waker.lock().take());
        });
    }

    /// A thread that asks whether it must wait for the future holds its lock for a moment.
    #[test]
    fn woken_after_the_queue_was_closed_while_another_thread_holds_the_lock() {
        model(3, || {
            let (queue, shared) = (StandInQueue::<Loom>::new(), Shared::<Loom>::new());
            let handle = spawn_on(&queue, waits(&shared));
            queue.run();
            let waker = shared.waker().expect("it has been polled");
            // SAFETY: the waker is of `spawn_on`, so its data is the item.
            let item =
                unsafe { NonNull::new_unchecked(waker.data().cast_mut().cast::<Item<Loom>>()) };
            queue.close();
            let outside = spawn(move || waker.wake());
            // SAFETY: the handle keeps the item alive.
            unsafe { item.as_ref() }.lock().unlock();
            Loom::join(outside);
            queue.run_out();
            assert!(handle.join().unwrap_err().is_cancelled());
            assert_eq!(drops(&shared), 1, "the future is dropped once");
            drop(shared.waker.lock().take());
        });
    }

    #[test]
    fn the_last_waker_is_dropped_while_it_is_polled() {
        model(3, || {
            let (queue, shared) = (StandInQueue::<Loom>::new(), Shared::<Loom>::new());
            drop(spawn_on(&queue, waits(&shared)));
            let dropper = {
                let shared = Arc::clone(&shared);
                spawn(move || {
                    let waker = shared.waker.lock().take();
                    drop(waker);
                })
            };
            queue.run();
            Loom::join(dropper);
            drop(shared.waker.lock().take());
            queue.run_out();
            assert_eq!(drops(&shared), 1, "it can no longer be woken");
        });
    }
}

// ---- without the model checker, also under Miri -----------------------------------------------------------

#[test]
fn woken_late_and_often() {
    let (queue, shared) = (StandInQueue::<Linux>::new(), Shared::<Linux>::new());
    let handle = spawn_on(&queue, waits(&shared));
    queue.run_out();
    assert_eq!(shared.polls.load(Ordering::Relaxed), 1);
    let waker = shared.waker().expect("it waits");
    for _ in 0..3 {
        waker.wake_by_ref();
    }
    queue.run_out();
    assert_eq!(shared.polls.load(Ordering::Relaxed), 2, "three wakes of what is queued are one");
    assert!(waker.will_wake(&shared.waker().unwrap()));
    shared.fire();
    queue.run_out();
    assert_eq!(handle.join().unwrap(), 3);
    assert_eq!(drops(&shared), 1);
    // Woken after the end, and after the handle was dropped.
    waker.wake_by_ref();
    let waker_clone = waker.clone();
    waker_clone.wake();
    assert!(queue.inbox.is_empty());
    drop(shared.waker.lock().take());
    assert_eq!(Arc::strong_count(&shared), 1);
    drop(waker);
    assert_eq!(Arc::strong_count(&queue), 1, "the task is freed");
}

#[test]
fn a_future_that_wakes_itself_runs_again_after_queued_items() {
    struct Yields(u32);
    impl Future for Yields {
        type Output = u32;
        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u32> {
            self.0 += 1;
            if self.0 == 5 {
                return Poll::Ready(self.0);
            }
            context.waker().wake_by_ref();
            let waker = context.waker().clone();
            waker.wake();
            Poll::Pending
        }
    }
    let queue = StandInQueue::<Linux>::new();
    let handle = spawn_on(&queue, Yields(0));
    queue.run_out();
    assert_eq!(handle.join().unwrap(), 5);
    assert_eq!(Arc::strong_count(&queue), 1);
}

#[test]
fn cancelled_before_between_and_after_polls() {
    let (queue, shared) = (StandInQueue::<Linux>::new(), Shared::<Linux>::new());
    let handle = spawn_on(&queue, waits(&shared));
    assert!(handle.cancel());
    assert_eq!(drops(&shared), 0, "not in this thread");
    queue.run_out();
    assert_eq!((drops(&shared), shared.polls.load(Ordering::Relaxed)), (1, 0));
    assert!(handle.cancel() && handle.is_finished());
    assert!(handle.join().unwrap_err().is_cancelled());
    // It waits for a wake.
    let shared = Shared::<Linux>::new();
    let handle = spawn_on(&queue, waits(&shared));
    queue.run_out();
    assert!(handle.cancel());
    queue.run_out();
    assert_eq!((drops(&shared), shared.polls.load(Ordering::Relaxed)), (1, 1));
    drop(handle);
    shared.fire();
    // It has ended.
    let handle = spawn_on(&queue, async { 5 });
    queue.run_out();
    assert!(!handle.cancel());
    assert_eq!(handle.join().unwrap(), 5);
    assert_eq!(Arc::strong_count(&queue), 1);
}

#[test]
fn a_future_cancelled_by_its_own_poll_discards_its_result() {
    let queue = StandInQueue::<Linux>::new();
    let slot = Arc::new(std::sync::OnceLock::<JoinHandle<u32, Linux>>::new());
    let slot_clone = Arc::clone(&slot);
    let handle = spawn_on(&queue, async move {
        assert!(slot_clone.get().expect("set before it runs").cancel());
        7
    });
    slot.set(handle).unwrap();
    queue.run_out();
    let handle = Arc::into_inner(slot).unwrap().into_inner().unwrap();
    assert!(handle.join().unwrap_err().is_cancelled(), "true means that it is cancelled");
    assert_eq!(Arc::strong_count(&queue), 1);
}

#[test]
fn panics_reach_the_joiner_and_panicking_drops_do_not() {
    struct Bomb(bool);
    impl Future for Bomb {
        type Output = u32;
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u32> {
            assert!(!self.0, "on purpose: a poll");
            Poll::Ready(8)
        }
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("on purpose: a drop");
        }
    }
    let queue = StandInQueue::<Linux>::new();
    let handle = spawn_on(&queue, Bomb(true));
    queue.run_out();
    assert_eq!(handle.join().unwrap_err().message(), Some("on purpose: a poll"));
    let handle = spawn_on(&queue, Bomb(false));
    queue.run_out();
    assert_eq!(handle.join().unwrap(), 8);
    let handle = spawn_on(&queue, Bomb(false));
    handle.cancel();
    queue.run_out();
    assert!(handle.join().unwrap_err().is_cancelled());
    assert_eq!(Arc::strong_count(&queue), 1);
}

#[test]
fn a_wake_after_the_queue_was_closed_ends_the_future_in_the_wakers_thread() {
    let (queue, shared) = (StandInQueue::<Linux>::new(), Shared::<Linux>::new());
    let handle = spawn_on(&queue, waits(&shared));
    queue.run_out();
    queue.close();
    assert!(!handle.is_finished(), "a future that waits is left alone");
    shared.fire();
    assert!(handle.is_finished());
    assert_eq!((drops(&shared), shared.polls.load(Ordering::Relaxed)), (1, 1));
    assert!(handle.join().unwrap_err().is_cancelled());
    // While it is polled: the poll's own waker is used from outside.
    let queue = StandInQueue::<Linux>::new();
    let queue_clone = Arc::clone(&queue);
    let mut polls = 0;
    let future = core::future::poll_fn(move |context| {
        polls += 1;
        assert_eq!(polls, 1, "it is not polled again");
        queue_clone.close();
        context.waker().wake_by_ref();
        context.waker().wake_by_ref();
        Poll::<()>::Pending
    });
    let handle = spawn_on(&queue, future);
    queue.run_out();
    assert!(handle.join().unwrap_err().is_cancelled());
    // By its handle.
    let (queue, shared) = (StandInQueue::<Linux>::new(), Shared::<Linux>::new());
    let handle = spawn_on(&queue, waits(&shared));
    queue.run_out();
    queue.close();
    assert!(handle.cancel() && handle.is_finished());
    assert_eq!(drops(&shared), 1);
}

#[test]
fn a_future_without_wakers_and_handle_is_freed() {
    let (queue, shared) = (StandInQueue::<Linux>::new(), Shared::<Linux>::new());
    drop(spawn_on(&queue, waits(&shared)));
    queue.run_out();
    assert_eq!(drops(&shared), 0, "it can still be woken");
    drop(shared.waker.lock().take());
    assert_eq!(drops(&shared), 1);
    // A result that is never taken.
    let tail = Arc::new(());
    let tail_clone = Arc::clone(&tail);
    drop(spawn_on(&queue, async move { tail_clone }));
    queue.run_out();
    assert_eq!((Arc::strong_count(&tail), Arc::strong_count(&queue)), (1, 1));
}
