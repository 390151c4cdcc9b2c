//! [`Workqueue`]: the queue that users put work on.

use core::future::Future;
use core::mem::ManuallyDrop;
use core::time::Duration;
use std::sync::Arc;

use nearq_platform::{Linux, Platform};

use crate::base::error::Error;
use crate::base::ids::QueueKind;
use crate::item::owned::Pending;
use crate::queue::flush::{DrainedQueue, FlushedQueue};
use crate::queue::{Queue, SubmitKind};
use crate::task;
use crate::task::join::JoinHandle;
use crate::task::work::Work;
use crate::user::handle::Handle;
use crate::user::set::JoinSet;
use crate::user::task_builder::{self, TaskBuilder, TrySpawnError};
use crate::user::view::QueueView;

/// A named domain of attributes and limits on which work is queued. It owns no threads: queues with the same attributes
/// share the workers of the same pods.
///
/// Every attribute can be changed while items are queued and running, and is in effect for the next item: what was queued before runs where
/// it was queued; nothing is lost, nothing runs twice.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{AffinityScope, Workqueue};
///
/// let queue = Workqueue::builder("crypt").affinity_scope(AffinityScope::Cache).build()?;
/// let sum = queue.spawn(|| (1..=10).sum::<u32>());
/// assert_eq!(sum.join().unwrap(), 55);
/// queue.set_affinity_scope(Some(AffinityScope::System))?;
/// # Ok::<(), nearq::Error>(())
/// ```
///
/// # Dropping it
/// The drop waits until everything that was queued has run, however long that takes: it blocks the thread. If one of the queue's own items
/// drops it, the drop does not wait, and the queue is kept until it is empty.
///
/// In an async task, the drop blocks the task's thread. Await [`drained`](Self::drained) first; the drop of an empty queue returns at once.
///
/// ```
/// # use nearq_core as nearq;
/// # let tasks = nearq::Workqueue::builder("tasks").build()?;
/// use nearq::Workqueue;
///
/// let task = async {
///     let queue = Workqueue::builder("of a task").build()?;
///     queue.spawn(|| std::thread::sleep(std::time::Duration::from_millis(20)));
///     queue.drained().await?;
///     drop(queue);
///     Ok::<(), nearq::Error>(())
/// };
/// # tasks.spawn_future(task).join()??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A time-out around `drained` only gives up the wait of `drained`: the drop that follows waits for the same items. To give up for good,
/// put the queue on a runtime of its own, and end that with [`Runtime::shutdown`](crate::Runtime::shutdown). After its time-out no drop
/// waits.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::Runtime;
/// use std::{sync::mpsc, time::Duration};
///
/// let runtime = Runtime::builder().build()?;
/// let queue = runtime.workqueue_builder("stuck").build()?;
/// let (sender, receiver) = mpsc::channel::<()>();
/// queue.spawn(move || receiver.recv());
/// let error = runtime.shutdown(Duration::from_millis(10)).unwrap_err();
/// assert_eq!(error.still_running().map_or(0, |left| left.running.len()), 1);
/// drop(queue);
/// drop(runtime);
/// # drop(sender);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Clones
/// Clones name the same queue, so closures and threads can each have one. The drop of the last one is the drop that is described above;
/// other drops do nothing. A clone that an item of the queue keeps for ever keeps the queue alive.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::Workqueue;
///
/// let queue = Workqueue::builder("shared").build()?;
/// let threads = [1, 2].map(|number| {
///     let queue = queue.clone();
///     std::thread::spawn(move || queue.spawn(move || number).join())
/// });
/// drop(queue);
/// for thread in threads {
///     assert!(thread.join().unwrap().is_ok());
/// }
/// # Ok::<(), nearq::Error>(())
/// ```
///
/// # Reading and changing it
/// The functions of [`QueueView`], to which a `Workqueue` dereferences, read what is set and what has happened, and change attributes.
/// [`handle`](Self::handle) returns a reference that queues and does not keep the queue open.
pub struct Workqueue<P: Platform = Linux> {
    handle: ManuallyDrop<QueueView<P>>,
}

impl<P: Platform> Workqueue<P> {
    /// An owner of a queue, which counts it already: the first one, or a further one.
    pub(crate) fn of(queue: Arc<Queue<P>>) -> Self {
        Workqueue { handle: ManuallyDrop::new(QueueView { queue }) }
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Queue<P>> {
        &self.handle.queue
    }

    /// A reference that queues as this does while the queue is open, and does not keep it open.
    pub fn handle(&self) -> Handle<P> {
        Handle::of(self.shared())
    }

    /// The queue as it can be read and changed. It does not keep the queue open.
    pub fn view(&self) -> QueueView<P> {
        QueueView::clone(self)
    }

    #[inline]
    pub(crate) fn inside(&self) -> &Queue<P> {
        self.shared()
    }

    // ---- queueing ----------------------------------------------------------------------------------------

    /// Queues `work` for the pod of the CPU that the caller runs on. False if it is already pending: then it stays where it is. Takes no
    /// lock and allocates nothing. See [`Work`] for what is visible to the execution.
    ///
    /// Also false if the item is [disabled](Work::disable); if the queue is being [drained](Self::drain) and the caller is not one of its
    /// own items; or if the runtime was [shut down](crate::Runtime::shutdown) and the caller is not one of the runtime's. The latter two
    /// are reported once per queue, and [`try_queue`](Self::try_queue) distinguishes these cases.
    #[inline]
    pub fn queue(&self, work: &Work<P>) -> bool {
        self.inside().queue(work.item())
    }

    /// As [`queue`](Self::queue), with an error if the item is refused: false means that it is already pending.
    ///
    /// # Errors
    /// The item is [disabled](Work::disable), or a [`cancel_sync`](Work::cancel_sync) of it is under way; the queue is being
    /// [drained](Self::drain), and the caller is not one of its own items; or the runtime was [shut down](crate::Runtime::shutdown), and
    /// the caller is not one of the runtime's.
    pub fn try_queue(&self, work: &Work<P>) -> Result<bool, Error> {
        self.inside().try_queue(work.item())
    }

    /// As [`try_queue`](Self::try_queue), for the pod of `cpu`.
    ///
    /// # Errors
    /// The machine has no such CPU; or as [`try_queue`](Self::try_queue).
    pub fn queue_on(&self, cpu: usize, work: &Work<P>) -> Result<bool, Error> {
        self.inside().queue_on(work.item(), |places| places.cpu(cpu))
    }

    /// As [`try_queue`](Self::try_queue), for the pod of a CPU of `node`: the caller's CPU if it is there, otherwise the node's first.
    ///
    /// # Errors
    /// The machine has no such node, or the node has no CPU; or the queue is a per-CPU one, whose items go to CPUs; or as
    /// [`try_queue`](Self::try_queue).
    pub fn queue_on_node(&self, node: usize, work: &Work<P>) -> Result<bool, Error> {
        if self.is_per_cpu() {
            return Err(Error::Unsupported { attribute: "a node", kind: QueueKind::PerCpu });
        }
        self.inside().queue_on(work.item(), |places| places.cpu_of_node(node, P::current_cpu()))
    }

    /// Queues `work` when `delay` has passed, not before, for the pod of the CPU that the caller runs on now. False if it is already
    /// pending, on a timer or on a queue; if it is disabled; or if the runtime was [shut down](crate::Runtime::shutdown), which is reported
    /// once per queue. [`try_queue_delayed`](Self::try_queue_delayed) distinguishes these cases. A delay of zero queues it at once, without
    /// a timer.
    ///
    /// The item counts as pending from now on. [`Work::cancel`] takes it off the timer; [`Work::flush`] and
    /// [`Workqueue::flush`](Self::flush) do not wait for it. When the queue is dropped, items that wait on a timer for it are taken off it
    /// a little later: they do not run, and are not pending any more. If nothing else has such an item, what it captured is dropped then,
    /// by a separate thread, `nq/drop`. A runtime has at most four of these, so no more than four destructors may wait for each other. An
    /// item that finds its queue draining does not run either; there is a warning about that.
    ///
    /// If the system refuses the thread that waits for deadlines, each thread that waits for work tries to start it, as do the runtime's
    /// other threads. If the runtime has none, the item waits until a thread waits for work, or asks for the item ([`Work::is_pending`]).
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Work, Workqueue};
    /// use std::time::{Duration, Instant};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// let work = Work::new(move |_: &Work| sender.send(Instant::now()).unwrap());
    /// let begin = Instant::now();
    /// assert!(queue.queue_delayed(&work, Duration::from_millis(5)));
    /// assert!(receiver.recv()? - begin >= Duration::from_millis(5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queue_delayed(&self, work: &Work<P>, delay: Duration) -> bool {
        self.shared().queue_delayed(work.item(), P::current_cpu(), delay)
    }

    /// As [`queue_delayed`](Self::queue_delayed), with an error if the item is refused: false means that it is already pending.
    ///
    /// # Errors
    /// The item is [disabled](Work::disable), or a [`cancel_sync`](Work::cancel_sync) of it is under way; or the runtime was
    /// [shut down](crate::Runtime::shutdown). If the delay is zero, also as [`try_queue`](Self::try_queue).
    pub fn try_queue_delayed(&self, work: &Work<P>, delay: Duration) -> Result<bool, Error> {
        self.shared().try_queue_delayed(work.item(), P::current_cpu(), delay)
    }

    /// As [`try_queue_delayed`](Self::try_queue_delayed), for the pod of `cpu`.
    ///
    /// # Errors
    /// The machine has no such CPU; the item is [disabled](Work::disable), or a [`cancel_sync`](Work::cancel_sync) of it is under way; or
    /// the runtime was [shut down](crate::Runtime::shutdown). If the delay is zero, also as [`try_queue`](Self::try_queue).
    pub fn queue_delayed_on(
        &self,
        cpu: usize,
        work: &Work<P>,
        delay: Duration,
    ) -> Result<bool, Error> {
        let cpu = self.shared().layout().places.cpu(cpu)?;
        self.shared().try_queue_delayed(work.item(), cpu, delay)
    }

    /// Makes `work` be queued when `delay` has passed from now, replacing an existing queueing: false if it was idle, true if it was
    /// pending, on a timer or on a queue, of this queue or another. A delay of zero queues it at once, at the end of the queue. A disabled
    /// item stays idle.
    pub fn modify_delayed(&self, work: &Work<P>, delay: Duration) -> bool {
        self.shared().modify_delayed(work.item(), P::current_cpu(), delay)
    }

    /// Undoes one [`Work::disable`], and queues the item if that was the last; true if it was, and the item was queued for it.
    ///
    /// # Panics
    /// If there was no `disable` to undo.
    pub fn enable_and_queue(&self, work: &Work<P>) -> bool {
        work.enable() && self.queue(work)
    }

    /// Queues a closure that runs once. If the handle is dropped, the closure goes on by itself.
    ///
    /// [`join_set`](Self::join_set) joins many in the order in which they end, [`scope`](Self::scope) takes closures that borrow, and
    /// [`spawn_future`](Self::spawn_future) takes futures.
    ///
    /// If the queue is being [drained](Self::drain), and the caller is not one of its own items, the closure is dropped, and joining the
    /// handle returns [`JoinError::Refused`](crate::JoinError::Refused). That is reported once per queue. [`try_spawn`](Self::try_spawn)
    /// gives the closure back instead, and [`task`](Self::task) sets a home or a CPU.
    ///
    /// Workers block the signals that were blocked by the thread that built the runtime ([`Work`] says more).
    pub fn spawn<T: Send + 'static>(
        &self,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T, P> {
        let (item, handle) = task::new(closure);
        self.send_here(item);
        handle
    }

    /// As [`spawn`](Self::spawn), with an error that holds the closure if it is refused.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// match queue.try_spawn(|| 42) {
    ///     Ok(handle) => assert_eq!(handle.join().unwrap(), 42),
    ///     Err(refused) => {
    ///         println!("{refused}; it runs here instead");
    ///         assert_eq!((refused.into_inner())(), 42);
    ///     }
    /// }
    /// # Ok::<(), nearq::Error>(())
    /// ```
    ///
    /// # Errors
    /// The queue is being [drained](Self::drain), and the caller is not one of its own items; or the runtime was
    /// [shut down](crate::Runtime::shutdown), and the caller is not one of the runtime's.
    pub fn try_spawn<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        closure: F,
    ) -> Result<JoinHandle<T, P>, TrySpawnError<F>> {
        self.task().try_spawn(closure)
    }

    /// Queues a future, which the workers poll. If the handle is dropped, the future goes on by itself.
    ///
    /// Each wake queues it again, for the pod of the CPU that the waker runs on, at the end of what waits there: a future that wakes itself
    /// without end lets others run. It is never polled twice at once, and no wake is lost; what the waker wrote is visible to the poll. It
    /// may be woken from any thread, even after it has ended. No wake allocates. It counts under
    /// [`max_active`](crate::WorkqueueBuilder::max_active) while it is queued or polled, not while it waits for a wake.
    ///
    /// Its panic is passed to the joiner ([`JoinError::Panicked`](crate::JoinError)). It is dropped by the worker that polled it last.
    ///
    /// **Dropping the queue** drains it: futures that are queued are polled, and so are those that are woken by what still runs on the
    /// queue. A future that waits for a wake from elsewhere does not delay the drop; that wake cancels it, whenever it comes: the future is
    /// dropped in the thread that wakes it, and `join` returns [`Cancelled`](crate::JoinError::Cancelled).
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    ///
    /// let queue = Workqueue::builder("async").build()?;
    /// let first = queue.spawn(|| 20);
    /// let sum = queue.spawn_future(async move { first.await.unwrap() + 1 });
    /// assert_eq!(sum.join().unwrap(), 21);
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn spawn_future<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T, P> {
        let route = Arc::downgrade(self.shared());
        let (item, handle) = crate::task::future::owned(task::Alone, route, future);
        self.send_here(item);
        handle
    }

    /// Settings of one closure or future: its [home](crate::home::Home), its CPU. They are spawned by the builder's functions.
    pub fn task(&self) -> TaskBuilder<'_, P> {
        TaskBuilder::by_owner(self)
    }

    /// An empty set of closures and futures, which run on this queue and are joined in the order in which they end.
    pub fn join_set<T: Send + 'static>(&self) -> JoinSet<T, P> {
        JoinSet::new(self.handle())
    }

    /// Sends a new task.
    pub(crate) fn send_here(&self, item: Pending<P>) {
        if let Err(item) = self.inside().send_by(item, P::current_cpu(), SubmitKind::New) {
            task_builder::refuse(item);
            self.inside().warn_refused();
        }
    }

    /// Whether the caller is within an item of this queue.
    pub(crate) fn is_served_here(&self) -> bool {
        crate::queue::serves::<P>(self.inside())
    }

    /// Queues closures that borrow, and waits until all have ended. What they wrote is visible then.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    ///
    /// let queue = Workqueue::builder("scope").build()?;
    /// let mut halves = [0, 0];
    /// queue.scope(|scope| {
    ///     for (number, half) in halves.iter_mut().enumerate() {
    ///         scope.spawn(move || *half = number + 1);
    ///     }
    /// });
    /// assert_eq!(halves, [1, 2]);
    /// # Ok::<(), nearq::Error>(())
    /// ```
    ///
    /// In a worker, another worker takes this one's place meanwhile.
    ///
    /// **Within an item of the same queue**, the item keeps its place under [`max_active`](crate::WorkqueueBuilder::max_active), so there
    /// may be none left for the closures. Such a scope runs those that no worker has started itself, in the item's place, in the order in
    /// which they were spawned: it comes to an end whatever the limit is, even on a queue that runs one item at a time. Items of two queues
    /// that each enter a scope on the other one can still wait for each other.
    ///
    /// # Panics
    /// With the panic of `f`, or else of the first closure that panicked, after all have ended. If the queue is being
    /// [drained](Self::drain), and the caller is not one of its own items: with the text of [`Error::Draining`].
    pub fn scope<'env, R>(
        &self,
        f: impl for<'scope> FnOnce(&'scope crate::user::scope::Scope<'scope, 'env, P>) -> R,
    ) -> R {
        crate::user::scope::scope(self, f)
    }

    // ---- waiting -----------------------------------------------------------------------------------------

    /// Waits until everything that was queued on this queue before the call has ended, including what waits because of the limit. What is
    /// queued later proceeds meanwhile and is not waited for. If nothing is left, it returns at once, within a microsecond. What the items
    /// wrote is visible to the caller.
    ///
    /// A queueing that is still in progress in another thread may be missed. Items that wait for their time are not waited for. In a
    /// worker, another worker takes this one's place meanwhile.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use std::sync::Arc;
    ///
    /// let queue = Workqueue::builder("flushed").build()?;
    /// let count = Arc::new(AtomicU32::new(0));
    /// for _ in 0..10 {
    ///     let count = Arc::clone(&count);
    ///     queue.spawn(move || count.fetch_add(1, Ordering::Relaxed));
    /// }
    /// queue.flush()?;
    /// assert_eq!(count.load(Ordering::Relaxed), 10);
    /// # Ok::<(), nearq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Deadlock`] from inside one of the queue's own items, which would wait for itself. Cycles over several queues are not
    /// detected: an item that flushes another queue, one of whose items flushes this one, waits for ever.
    pub fn flush(&self) -> Result<(), Error> {
        self.inside().flush()
    }

    /// As [`flush`](Self::flush), as a future: it waits for what was queued before its first poll.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), for the item in which it is polled. A future that was spawned on the queue may flush it: it does not
    /// count as running while it waits.
    pub fn flushed(&self) -> FlushedQueue<'_, P> {
        FlushedQueue::new(self.inside())
    }

    /// Waits until the queue is empty, and refuses meanwhile what does not come from one of its own running items: these may go on queueing
    /// each other until they are done. Several threads may drain at once; the queue refuses until the last of them has finished. Afterwards
    /// it works again. What the items wrote is visible to the caller.
    ///
    /// If it takes longer than 10 s, the platform's warning says how many items are left; again after 100 s and 1000 s.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Error, Workqueue};
    ///
    /// let queue = Workqueue::builder("drained").build()?;
    /// let last = queue.spawn(|| 5);
    /// queue.drain()?;
    /// assert!(last.is_finished());
    /// assert_eq!(queue.spawn(|| 6).join().unwrap(), 6);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Deadlock`] from inside one of the queue's own items, which would wait for itself.
    pub fn drain(&self) -> Result<(), Error> {
        self.inside().drain()
    }

    /// As [`drain`](Self::drain), as a future: from its first poll until it is done or dropped. It warns only when it is polled.
    ///
    /// If it is dropped before it is done, for example by a time-out, the items go on, and [the drop of the queue](Workqueue#dropping-it)
    /// waits for them.
    ///
    /// # Errors
    /// As [`drain`](Self::drain), for the item in which it is polled; also in a future that was spawned on the queue.
    pub fn drained(&self) -> DrainedQueue<'_, P> {
        DrainedQueue::new(self.inside())
    }
}

impl<P: Platform> core::ops::Deref for Workqueue<P> {
    type Target = QueueView<P>;

    fn deref(&self) -> &QueueView<P> {
        &self.handle
    }
}

impl<P: Platform> Clone for Workqueue<P> {
    fn clone(&self) -> Self {
        self.shared().add_owner();
        Workqueue { handle: self.handle.clone() }
    }
}

impl<P: Platform> Drop for Workqueue<P> {
    fn drop(&mut self) {
        // SAFETY: once: this is the drop.
        let QueueView { queue } = unsafe { ManuallyDrop::take(&mut self.handle) };
        if queue.drop_owner() {
            end(queue);
        }
    }
}

/// Ends a queue that has no owner any more.
fn end<P: Platform>(queue: Arc<Queue<P>>) {
    queue.rundown.close();
    queue.abandon_delays();
    // Dropped last; waits for the runtime's threads if it is the last handle.
    let runtime = queue.runtime().clone();
    if crate::queue::serves::<P>(Arc::as_ptr(&queue)) {
        // One of its own items drops it; waiting for that item would mean waiting for ourselves.
        runtime.inner().adopt(queue);
        return;
    }
    if runtime.inner().has_given_up() && !runtime.inner().has_ended() {
        // Its owner has waited for as long as it wants to. A worker drops the queue when it is empty; this thread does if it is empty
        // already.
        queue.shut();
        runtime.inner().adopt(queue);
        runtime.inner().reap_orphans();
        return;
    }
    queue.end();
    if let Some(rescuer) = queue.rescuer() {
        rescuer.end(true);
    }
    drop(queue);
}

impl<P: Platform> core::fmt::Debug for Workqueue<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Workqueue")
            .field("name", &self.name())
            .field("scope", &self.affinity_scope_in_words())
            .field("max_active", &self.max_active())
            .finish()
    }
}
