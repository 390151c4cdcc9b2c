//! [`CancelToken`]: asks any number of tasks to end early.
//!
//! A token has a flag of its own and those of the tokens that it was made from. It is cancelled if any of them is set. A flag is only ever
//! set. The flags are listed flat, so a token that was made from a long chain of others is dropped without recursion.
//!
//! The flag is written and read SeqCst, as the wait queue requires (`base/wait_queue`); it also publishes what the canceller wrote before.
//! In the child of a fork tokens stay as they were: the flags are plain words, and wait queues need no work.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use nearq_platform::{Atomic, Linux, Ordering, Platform};

use crate::base::wait_queue::{Listener, WaitQueue};

struct Flag<P: Platform> {
    set: P::AtomicU32,
    waiters: WaitQueue<P>,
}

impl<P: Platform> Flag<P> {
    fn is_set(&self) -> bool {
        // SeqCst: SEE of the wait queue. Acquire: what the canceller wrote before.
        self.set.load(Ordering::SeqCst) != 0
    }
}

/// A token that tasks ask whether they should end early; the tasks need not belong to one queue. Clones are the same token.
///
/// Cancelling a token does nothing by itself: a closure that holds a clone calls [`is_cancelled`](Self::is_cancelled) now and then, and a
/// future awaits [`cancelled`](Self::cancelled). To ask a single spawned closure, [`JoinHandle::cancel`](crate::JoinHandle::cancel) and
/// [`is_cancelled`](crate::is_cancelled) need no token.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{CancelToken, Workqueue};
///
/// let queue = Workqueue::builder("requests").build()?;
/// let service = CancelToken::new();
/// let request = service.child();
/// let task = queue.spawn({
///     let request = request.clone();
///     move || while !request.is_cancelled() { std::hint::spin_loop() }
/// });
/// service.cancel();
/// assert!(request.is_cancelled());
/// task.join()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// What the canceller wrote before is visible to a task that finds the token cancelled.
pub struct CancelToken<P: Platform = Linux>(Arc<[Arc<Flag<P>>]>);

impl CancelToken {
    /// Makes a token that is not cancelled.
    pub fn new() -> Self {
        Self::new_in()
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform> CancelToken<P> {
    /// As [`new`](CancelToken::new), on the platform given by the type.
    #[doc(hidden)]
    pub fn new_in() -> Self {
        CancelToken(Arc::new([Self::flag()]))
    }

    fn flag() -> Arc<Flag<P>> {
        Arc::new(Flag { set: P::AtomicU32::new(0), waiters: WaitQueue::new() })
    }

    /// Makes a token that is also cancelled if this one is. Cancelling the child leaves this one alone.
    #[must_use = "a child that is dropped has no effect"]
    pub fn child(&self) -> Self {
        CancelToken(core::iter::once(Self::flag()).chain(self.0.iter().cloned()).collect())
    }

    /// Cancels the token and its children, for good. Calling it again changes nothing.
    pub fn cancel(&self) {
        let own = &self.0[0];
        // SeqCst: MAKE of the wait queue. Release: what was written before.
        own.set.store(1, Ordering::SeqCst);
        own.waiters.notify();
    }

    /// Returns whether it, or a token that it is a child of, was cancelled. Costs one load for each of them.
    pub fn is_cancelled(&self) -> bool {
        self.0.iter().any(|flag| flag.is_set())
    }

    /// A future that ends when the token is cancelled; at once if it was. It keeps the token alive, and may be dropped at any time.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// let queue = nearq::Workqueue::builder("service").build()?;
    /// let token = nearq::CancelToken::new();
    /// let goodbye = queue.spawn_future(token.cancelled());
    /// token.cancel();
    /// goodbye.join()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancelled(&self) -> Cancelled<P> {
        Cancelled {
            listeners: self.0.iter().map(|_| Listener::new()).collect(),
            token: self.clone(),
        }
    }
}

impl<P: Platform> Clone for CancelToken<P> {
    fn clone(&self) -> Self {
        CancelToken(Arc::clone(&self.0))
    }
}

impl<P: Platform> fmt::Debug for CancelToken<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken").field("cancelled", &self.is_cancelled()).finish()
    }
}

/// Ends when a token is cancelled; returned by [`CancelToken::cancelled`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Cancelled<P: Platform = Linux> {
    token: CancelToken<P>,
    /// One for each flag.
    listeners: Vec<Listener<P>>,
}

impl<P: Platform> Future for Cancelled<P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Cancelled { token, listeners } = &mut *self;
        for (flag, listener) in token.0.iter().zip(listeners) {
            if listener.poll_until(&flag.waiters, context.waker(), || flag.is_set()) {
                return Poll::Ready(());
            }
        }
        P::retry_now();
        Poll::Pending
    }
}

impl<P: Platform> fmt::Debug for Cancelled<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancelled").field(&self.token).finish()
    }
}
