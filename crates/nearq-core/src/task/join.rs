//! [`JoinHandle`]: waits for what was spawned, a closure or a future. `task` has the protocol.

use core::future::Future;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll, Waker};
use core::time::Duration;

use nearq_platform::{Atomic, AtomicInt, Instant, Linux, Ordering, Platform, PlatformCell, Wait};

use crate::base::outcome::{JoinError, contain};
use crate::item::{ASLEEP, CHANGING, DONE, Item, POLLED, is_of_this_process};
use crate::limit::node_active::NodeActive;
use crate::pool::context::blocking;
use crate::task::Head;
use crate::task::cancel_on_drop::CancelOnDrop;
use crate::task::waiting::Beside;

/// What a handle does with a task whose type it does not know; one table for each type of closure or future.
pub(crate) struct Kind<T, P: Platform> {
    /// Takes the result. By the only handle, after `DONE`.
    pub(crate) take: unsafe fn(NonNull<Item<P>>) -> Result<T, JoinError>,
    /// Ensures that it goes no further, if that is possible. Called with a handle. True if it is cancelled.
    pub(crate) cancel: unsafe fn(NonNull<Item<P>>) -> bool,
    /// As `cancel`, if it has not begun.
    pub(crate) abandon: unsafe fn(NonNull<Item<P>>) -> bool,
}

/// A spawned closure or future: [`join`](Self::join) blocks until it has ended; in an async task, await the handle itself. If the handle is
/// dropped, what was spawned goes on by itself, unless [`cancel_on_drop`](Self::cancel_on_drop) is called.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::Workqueue;
///
/// let queue = Workqueue::builder("example").build()?;
///
/// // Joined: blocks this thread.
/// assert_eq!(queue.spawn(|| 2 + 3).join()?, 5);
///
/// // Awaited, in a task of any executor.
/// let sum = queue.spawn(|| 2 + 3);
/// let task = async move { sum.await };
/// # assert_eq!(queue.spawn_future(task).join()??, 5);
///
/// // Detached: it runs to its end.
/// drop(queue.spawn(|| println!("in a worker")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Wakers
/// This applies to all futures that functions of this crate return. The waker is called by the thread that ends what is awaited: a worker,
/// the thread that cancels or, for a delayed item, the runtime's timer. As in other runtimes, it should do little, because a waker that
/// takes long delays what that thread does next; on the timer, every other deadline. Its panic goes no further.
///
/// # If threads are refused
/// This too applies to all futures that functions of this crate return. If the system has refused the runtime's threads, some of the polls
/// try to start them, as a thread that waits does. But a program that only awaits on another executor is not polled again by itself. If it
/// must make progress however long threads are refused, it needs a thread of the runtime (a queue with a
/// [rescuer](crate::WorkqueueBuilder::rescuer)), or one thread that waits, for instance in [`join`](Self::join) or
/// [`Workqueue::flush`](crate::Workqueue::flush).
pub struct JoinHandle<T, P: Platform = Linux> {
    item: NonNull<Item<P>>,
    /// A pointer, because with a reference to a static, each user of the type would have to declare that `T` borrows nothing.
    kind: NonNull<Kind<T, P>>,
}

// SAFETY: the handle gives out the result, which is Send; the header is shared by design.
unsafe impl<T: Send, P: Platform> Send for JoinHandle<T, P> {}
// SAFETY: a shared handle says whether the result is available, and cancels, which drops a closure that is Send.
unsafe impl<T: Send, P: Platform> Sync for JoinHandle<T, P> {}

impl<T, P: Platform> Unpin for JoinHandle<T, P> {}

impl<T, P: Platform> JoinHandle<T, P> {
    /// The handle of a task; `kind` is that of its type.
    ///
    /// # Safety
    /// The item is the header of such a task, by the pointer to the whole, and the handle has a reference to it.
    #[inline]
    pub(crate) unsafe fn new(item: NonNull<Item<P>>, kind: &'static Kind<T, P>) -> Self {
        JoinHandle { item, kind: NonNull::from(kind) }
    }

    fn head(&self) -> &Head<P> {
        // SAFETY: the handle keeps the task alive, and a task begins with its head (repr C).
        unsafe { self.item.cast::<Head<P>>().as_ref() }
    }

    fn state(&self) -> &P::AtomicU64 {
        &self.head().item.state
    }

    fn kind(&self) -> &Kind<T, P> {
        // SAFETY: a static, from `new`.
        unsafe { self.kind.as_ref() }
    }

    /// Takes the result, which is available, or never will be in this process.
    fn take(&self) -> Result<T, JoinError> {
        // Acquire: the result.
        if self.state().load(Ordering::Acquire) & DONE == 0 {
            return Err(JoinError::Cancelled);
        }
        // SAFETY: DONE was read with acquire, and this is the only handle.
        unsafe { (self.kind().take)(self.item) }
    }

    /// Returns whether it has ended, so that its result is available without waiting. In the child of a fork, also true for what the parent
    /// runs (see [`join`](Self::join)).
    ///
    /// If the system has refused the runtime's threads, some of the calls try to start them.
    pub fn is_finished(&self) -> bool {
        let ended = self.has_ended();
        if !ended {
            P::retry_now();
        }
        ended
    }

    fn has_ended(&self) -> bool {
        // Acquire: the result.
        let word = self.state().load(Ordering::Acquire);
        word & DONE != 0 || !is_of_this_process::<P>(word)
    }

    /// Whether the process has been forked since it was spawned, and it has no result.
    fn is_unfinished_of_parent(&self) -> bool {
        let word = self.state().load(Ordering::Acquire);
        word & DONE == 0 && !is_of_this_process::<P>(word)
    }

    /// Whether it was spawned before the process was forked.
    pub(crate) fn is_left_behind(&self) -> bool {
        !is_of_this_process::<P>(self.state().load(Ordering::Acquire))
    }

    /// Cancels what was spawned. If this returns true, `join` returns [`Cancelled`](JoinError::Cancelled); if false, it does not.
    ///
    /// * A **closure** that has not started is dropped at once, in the calling thread. It never runs, and stops counting under the queue's
    ///   limit at once. A closure that has started goes on, and this returns false; but from then on [`is_cancelled`](crate::is_cancelled) is
    ///   true in the closure, which may end early.
    /// * A **future** that has not ended is dropped on a worker, never while it is polled: when the current poll returns, or at once if it
    ///   waits for a wake (in the calling thread, if its queue has been dropped). The result of that poll is ignored.
    ///
    /// The drop may panic: the panic goes no further. It may also cancel other closures, which are dropped before that call returns. So a
    /// chain of closures, each of which cancels the next one when it is dropped, needs a stack as deep as the chain is long, as nested
    /// values do.
    ///
    /// ```
    /// # let queue = nearq_core::Workqueue::builder("cancel").build()?;
    /// let never = queue.spawn_future(std::future::pending::<()>());
    /// assert!(never.cancel());
    /// assert!(never.join().unwrap_err().is_cancelled());
    /// # Ok::<(), nearq_core::Error>(())
    /// ```
    pub fn cancel(&self) -> bool {
        // SAFETY: the kind is that of the task's type, and this is a handle.
        unsafe { (self.kind().cancel)(self.item) }
    }

    /// Ties what was spawned to the future that awaits it: the returned future has the same result, and [cancels](Self::cancel) what was
    /// spawned if it is dropped before. The handle itself detaches when it is dropped.
    ///
    /// Use it where a task may be dropped while it awaits: in a time-out, a `select!`, or the handler of a request whose client may leave.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// let queue = nearq::Workqueue::builder("search").build()?;
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// let search = queue.spawn(move || {
    ///     sender.send("begun").unwrap();
    ///     while !nearq::is_cancelled() {
    ///         std::hint::spin_loop();
    ///     }
    ///     sender.send("ended early").unwrap();
    /// });
    /// assert_eq!(receiver.recv()?, "begun");
    /// drop(search.cancel_on_drop());
    /// assert_eq!(receiver.recv()?, "ended early");
    ///
    /// assert_eq!(queue.spawn_future(queue.spawn(|| 42).cancel_on_drop()).join()??, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_on_drop(self) -> CancelOnDrop<T, P> {
        CancelOnDrop::new(self)
    }

    /// Cancels it if it has not begun.
    pub(crate) fn abandon(&self) -> bool {
        // SAFETY: the kind is that of the task's type, and `self` is a handle.
        unsafe { (self.kind().abandon)(self.item) }
    }

    /// The result, if it is available.
    pub(crate) fn try_take(&mut self) -> Option<Result<T, JoinError>> {
        self.has_ended().then(|| self.take())
    }

    /// Blocks until it has ended, and returns its result. What it wrote is visible. In an async task, await the handle instead.
    ///
    /// On a worker, another worker runs in its place meanwhile. But an item that waits still counts under its queue's
    /// [`max_active`](crate::WorkqueueBuilder::max_active): if it waits for another item of the same queue, the limit must admit both.
    /// ([`Workqueue::scope`](crate::Workqueue::scope) has no such condition.)
    ///
    /// # Errors
    /// * [`Panicked`](JoinError::Panicked), [`Cancelled`](JoinError::Cancelled), or [`Refused`](JoinError::Refused): it has no result.
    /// * [`Deadlock`](JoinError::Deadlock): the wait would never end, because the limit of its queue holds it back when the wait begins,
    ///   and all items that count under that limit would wait like that. It goes on by itself.
    /// * In the child of a fork, what was spawned before and had not ended is the parent's; here it is [`Cancelled`](JoinError::Cancelled).
    #[inline]
    pub fn join(self) -> Result<T, JoinError> {
        // Acquire: the result.
        let word = self.state().load(Ordering::Acquire);
        if word & DONE == 0 {
            self.wait_beside_others(word, None)?;
        }
        // SAFETY: DONE was read with acquire, and this is the only handle.
        unsafe { (self.kind().take)(self.item) }
    }

    /// As [`join`](Self::join), but returns the handle if it has not ended after `timeout`. It goes on then, and may be joined later.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use std::time::Duration;
    ///
    /// let queue = nearq::Workqueue::builder("slow").build()?;
    /// let (end, ended) = std::sync::mpsc::channel::<()>();
    /// let task = queue.spawn(move || ended.recv().is_err());
    /// let task = task.join_timeout(Duration::from_millis(10)).unwrap_err();
    /// drop(end);
    /// assert!(task.join()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The handle, if the time is over. What the handle returns in time, an error as well, is in `Ok`: as [`join`](Self::join) returns it.
    pub fn join_timeout(self, timeout: Duration) -> Result<Result<T, JoinError>, Self> {
        // Acquire: the result.
        let word = self.state().load(Ordering::Acquire);
        if word & DONE == 0 {
            match self.wait_beside_others(word, Some(P::now() + timeout)) {
                Ok(true) => {}
                Ok(false) => return Err(self),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(self.take())
    }

    /// Waits as an item does, if the caller is one; false if the deadline has come first. `word` is the state.
    #[cold]
    fn wait_beside_others(&self, word: u64, deadline: Option<Instant>) -> Result<bool, JoinError> {
        if !is_of_this_process::<P>(word) {
            return Err(JoinError::Cancelled);
        }
        let Some(beside) = Beside::begin(&self.head().item) else {
            return Err(JoinError::Deadlock);
        };
        let has_ended = blocking::<P, _>(|| self.wait(deadline));
        drop(beside);
        Ok(has_ended)
    }

    /// The domain in which it is held back, if the caller's own item has a place there.
    pub(crate) fn held_back_beside_caller(&self) -> Option<*const NodeActive<P>> {
        self.head().item.held_back_beside_caller()
    }

    /// Sleeps until it has ended; false if the deadline comes first. `ASLEEP` stays set then: the thread that ends it wakes nobody.
    fn wait(&self, deadline: Option<Instant>) -> bool {
        // Acquire: the result, if it is already available.
        if self.state().fetch_or(ASLEEP, Ordering::AcqRel) & DONE != 0 {
            return true;
        }
        let join = &self.head().item.join;
        // Acquire: pairs with the release in `Head::notify`, which comes after DONE.
        while join.load(Ordering::Acquire) == 0 {
            if P::wait_for_work(join, 0, deadline) == Wait::TimedOut {
                return self.has_ended();
            }
        }
        true
    }

    /// Leaves a waker; true if the result is available instead.
    fn leave_waker(&self, waker: &Waker) -> bool {
        // Foreign code, which may panic: before the place is touched.
        let waker = waker.clone();
        // Acquire: the result, and the waker of an earlier poll.
        if self.state().fetch_or(CHANGING, Ordering::AcqRel) & DONE != 0 {
            return true;
        }
        // SAFETY: in CHANGING the place belongs to the joiner.
        let old = self.head().waker.with_mut(|place| unsafe { (*place).replace(waker) });
        let is_there = self.hand_waker_over();
        contain(|| drop(old));
        is_there
    }

    /// Hands the stored waker to the thread that ends the task; true if the result is available instead.
    fn hand_waker_over(&self) -> bool {
        let mut before = self.state().load(Ordering::Relaxed);
        loop {
            if before & DONE != 0 {
                // Acquire: pairs with the release of DONE.
                return self.has_ended();
            }
            // Release: hands the waker to the thread that ends the task.
            match self.state().compare_exchange_weak(
                before,
                (before & !CHANGING) | POLLED,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return false,
                Err(found) => before = found,
            }
        }
    }
}

impl<T, P: Platform> Future for JoinHandle<T, P> {
    type Output = Result<T, JoinError>;

    /// # Panics
    /// If it is polled after it has returned its result.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.has_ended() || self.leave_waker(context.waker()) {
            Poll::Ready(self.take())
        } else {
            P::retry_now();
            Poll::Pending
        }
    }
}

impl<T, P: Platform> Drop for JoinHandle<T, P> {
    #[inline]
    fn drop(&mut self) {
        if self.head().item.drop_reference() {
            if self.is_unfinished_of_parent() {
                // The content of the stage may be half moved.
                return;
            }
            let free = self.head().item.table().free;
            // SAFETY: neither queued nor running, and this was the last reference.
            unsafe { free(self.item) };
        }
    }
}

impl<T, P: Platform> core::fmt::Debug for JoinHandle<T, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.has_ended()).finish()
    }
}
