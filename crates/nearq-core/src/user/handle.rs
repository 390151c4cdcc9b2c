//! [`Handle`]: queues to a workqueue without keeping it open.
//!
//! # A thread that queues by a handle while the queue is dropped
//! The thread enters through the queue's rundown reference (`base/rundown_ref`), as wakes do: either the drop waits for it and then for
//! what it has queued, or it finds the reference closed and is refused. An item of the queue itself needs no such protection: it is
//! counted, so the drop waits for it, and what it queues is counted before it ends.
//!
//! A thread that arms a delayed item is inside the reference as well. The drop closes the reference, then makes the timer give up the
//! queue's items. If the arming thread leaves before that, the drop sees the item (the words of the reference are changed by AcqRel
//! operations); otherwise the thread finds the reference closed after it has left, and makes the timer give up the item.

use core::future::Future;
use core::time::Duration;
use std::sync::Arc;

use nearq_platform::{Linux, Platform};

use crate::base::error::Error;
use crate::item::owned::Pending;
use crate::queue::{Queue, SubmitKind};
use crate::task::join::JoinHandle;
use crate::task::work::Work;
use crate::user::set::JoinSet;
use crate::user::task_builder::{TaskBuilder, TrySpawnError};
use crate::user::view::QueueView;
use crate::user::workqueue::Workqueue;

/// Queues to a workqueue without keeping it open: a weak, cloneable reference that items, services and threads can store.
///
/// The drop of the last [`Workqueue`] drains the queue as usual. What was queued before runs, except items on timers. From then on calls
/// through a handle are refused: [`try_spawn`](Self::try_spawn) and [`try_queue`](Self::try_queue) return [`Error::Ended`], and joining
/// what [`spawn`](Self::spawn) returned gives [`JoinError::Refused`](crate::JoinError::Refused). The queue's own running items may still
/// queue through it, but not with a [delay](Self::queue_delayed).
///
/// Its functions do what the functions of [`Workqueue`] with the same names do; [`upgrade`](Self::upgrade) gives access to the others. Each
/// call through a handle also changes a cache line that all handles of the queue share. So a thread that queues millions of items a second
/// should keep a clone of the `Workqueue` instead.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{Handle, Work, Workqueue};
/// use std::time::Duration;
///
/// /// Queues itself again until the service ends.
/// fn tick(queue: &Handle) -> Work {
///     let queue = queue.clone();
///     Work::new(move |work: &Work| {
///         queue.queue_delayed(work, Duration::from_secs(1));
///     })
/// }
///
/// let queue = Workqueue::builder("service").build()?;
/// let handle = queue.handle();
/// queue.queue(&tick(&handle));
/// drop(queue);
/// assert!(handle.spawn(|| 1).join().is_err());
/// # Ok::<(), nearq::Error>(())
/// ```
pub struct Handle<P: Platform = Linux> {
    view: QueueView<P>,
}

impl Handle {
    /// Returns the queue of the item that the calling thread executes; `None` outside of items. What runs there need not be given a handle
    /// to spawn more.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Handle, JoinHandle, Workqueue};
    ///
    /// /// Halves a number until it is odd, each time in a closure of its own, on the queue that the caller runs on.
    /// fn halve(number: u32) -> JoinHandle<u32> {
    ///     let queue = Handle::try_current().expect("called by an item");
    ///     queue.spawn(move || if number % 2 == 0 { halve(number / 2).join().unwrap() } else { number })
    /// }
    ///
    /// let queue = Workqueue::builder("halves").build()?;
    /// let odd = queue.spawn(|| halve(40).join());
    /// assert_eq!(odd.join()??, 5);
    /// assert!(Handle::try_current().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// In a closure of a [`join`](crate::join) or scope, it is the queue on which that forks, whichever worker runs the closure.
    pub fn try_current() -> Option<Self> {
        Self::try_current_in()
    }
}

impl<P: Platform> Handle<P> {
    /// As [`try_current`](Handle::try_current), on the platform given by the type.
    #[doc(hidden)]
    pub fn try_current_in() -> Option<Self> {
        crate::queue::served().map(|queue| Handle { view: QueueView { queue } })
    }

    pub(crate) fn of(queue: &Arc<Queue<P>>) -> Self {
        Handle { view: QueueView { queue: Arc::clone(queue) } }
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Queue<P>> {
        &self.view.queue
    }

    /// Returns the queue itself; `None` once its last [`Workqueue`] has been dropped. The result keeps the queue open while it lives.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    ///
    /// let queue = Workqueue::builder("own").build()?;
    /// let handle = queue.handle();
    /// assert!(handle.upgrade().is_some());
    /// drop(queue);
    /// assert!(handle.upgrade().is_none());
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn upgrade(&self) -> Option<Workqueue<P>> {
        self.shared().try_add_owner().then(|| Workqueue::of(Arc::clone(self.shared())))
    }

    /// Queues `work` as [`Workqueue::queue`] does. Also returns false if the queue has ended.
    pub fn queue(&self, work: &Work<P>) -> bool {
        self.shared().queued_or_warn(self.try_queue(work))
    }

    /// Queues `work` as [`Workqueue::try_queue`] does.
    ///
    /// # Errors
    /// As [`Workqueue::try_queue`]; or [`Error::Ended`].
    pub fn try_queue(&self, work: &Work<P>) -> Result<bool, Error> {
        let queue = self.shared();
        if crate::queue::serves::<P>(Arc::as_ptr(queue)) {
            return queue.try_queue(work.item());
        }
        self.within(|| queue.try_queue(work.item()))
    }

    /// Queues `work` later, as [`Workqueue::queue_delayed`] does. Also returns false if the queue has ended.
    pub fn queue_delayed(&self, work: &Work<P>, delay: Duration) -> bool {
        self.shared().queued_or_warn(self.try_queue_delayed(work, delay))
    }

    /// Queues `work` later, as [`Workqueue::try_queue_delayed`] does.
    ///
    /// # Errors
    /// As [`Workqueue::try_queue_delayed`]; or [`Error::Ended`], also inside one of the queue's own items, unless the delay is zero.
    pub fn try_queue_delayed(&self, work: &Work<P>, delay: Duration) -> Result<bool, Error> {
        if delay.is_zero() {
            return self.try_queue(work);
        }
        let queue = self.shared();
        self.arm(|| queue.try_queue_delayed(work.item(), P::current_cpu(), delay))
    }

    /// Runs `f`, which puts an item on the timer, unless the queue has ended.
    pub(crate) fn arm(&self, f: impl FnOnce() -> Result<bool, Error>) -> Result<bool, Error> {
        let queue = self.shared();
        let result = self.within(f);
        // The drop may have searched for delayed items before this one was armed.
        if queue.rundown.is_closed() {
            queue.abandon_delays();
        }
        result
    }

    /// Queues a closure as [`Workqueue::spawn`] does.
    pub fn spawn<T: Send + 'static>(
        &self,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T, P> {
        self.task().spawn(closure)
    }

    /// Queues a closure as [`Workqueue::try_spawn`] does.
    ///
    /// # Errors
    /// As [`Workqueue::try_spawn`]; or [`Error::Ended`].
    pub fn try_spawn<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        closure: F,
    ) -> Result<JoinHandle<T, P>, TrySpawnError<F>> {
        self.task().try_spawn(closure)
    }

    /// Queues a future as [`Workqueue::spawn_future`] does.
    pub fn spawn_future<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T, P> {
        self.task().spawn_future(future)
    }

    /// Returns a builder for one closure or future, as [`Workqueue::task`] does.
    pub fn task(&self) -> TaskBuilder<'_, P> {
        TaskBuilder::by_handle(self)
    }

    /// Returns an empty set of closures and futures, as [`Workqueue::join_set`] does.
    pub fn join_set<T: Send + 'static>(&self) -> JoinSet<T, P> {
        JoinSet::new(self.clone())
    }

    /// Runs `f`, which queues, inside the rundown reference, unless the queue has ended.
    fn within<R>(&self, f: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
        let mut result = None;
        self.shared().pass(|| result = Some(f()));
        result.unwrap_or_else(|| Err(self.shared().ended()))
    }

    /// Sends a new task; gives it back with the reason if it is refused.
    pub(crate) fn send(
        &self,
        item: Pending<P>,
        cpu: usize,
        submit: SubmitKind,
    ) -> Result<(), (Pending<P>, Error)> {
        let queue = self.shared();
        let send = |item| queue.send_new(item, cpu, submit);
        if crate::queue::serves::<P>(Arc::as_ptr(queue)) {
            return send(item);
        }
        let mut item = Some(item);
        let mut result = Ok(());
        queue.pass(|| result = item.take().map_or(Ok(()), send));
        match item {
            Some(item) => Err((item, queue.ended())),
            None => result,
        }
    }
}

impl<P: Platform> core::ops::Deref for Handle<P> {
    type Target = QueueView<P>;

    fn deref(&self) -> &QueueView<P> {
        &self.view
    }
}

impl<P: Platform> Clone for Handle<P> {
    fn clone(&self) -> Self {
        Handle { view: self.view.clone() }
    }
}

impl<P: Platform> core::fmt::Debug for Handle<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Handle").field("id", &self.id()).field("name", &self.name()).finish()
    }
}
