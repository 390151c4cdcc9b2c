//! [`Workqueue`]: the queue that users put work on.

use core::future::Future;
use core::mem::ManuallyDrop;
use core::time::Duration;
use std::sync::Arc;

use nearq_platform::{Linux, Ordering, Platform};

use crate::base::error::Error;
use crate::base::ids::QueueKind;
use crate::base::outcome::contain;
use crate::item::owned::Pending;
use crate::queue::flush::{DrainedQueue, FlushedQueue};
use crate::queue::team::{Closure, Team};
use crate::queue::{Queue, SubmitKind};
use crate::task;
use crate::task::join::JoinHandle;
use crate::task::work::Work;
use crate::user::handle::Handle;
use crate::user::set::JoinSet;
use crate::user::task_builder::{self, TaskBuilder, TrySpawnError};
use crate::user::view::QueueView;

/// A queue that runs work near the CPU that queued it, with attributes and limits of its own.
///
/// A queue owns no threads: queues with equal attributes share the workers of the same pods. So a queue costs little, and a program can
/// have one for each kind of work.
///
/// Every attribute can be changed while items are queued and running. A change is in effect for the next item. What was queued before runs
/// where it was queued: nothing is lost, and nothing runs twice.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{AffinityScope, Workqueue};
///
/// let queue = Workqueue::builder("crypt").affinity_scope(AffinityScope::Cache).build()?;
/// let sum = queue.spawn(|| (1..=10).sum::<u32>());
/// assert_eq!(sum.join()?, 55);
/// queue.set_affinity_scope(AffinityScope::System)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Reading and changing it
/// A `Workqueue` dereferences to [`QueueView`], which has the functions that read settings and statistics, and those that change
/// attributes. [`handle`](Self::handle) returns a reference that queues but does not keep the queue open.
///
/// # Clones
/// Clones name the same queue, so closures and threads can each have one. The drop of the last clone is the drop that is described below;
/// other drops do nothing. A clone that an item of the queue never drops keeps the queue alive for good.
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
/// # Dropping it
/// The drop blocks the thread until everything that was queued has run, however long that takes. The exception is a drop by one of the
/// queue's own items: it does not wait, and the queue is kept until it is empty.
///
/// In an async task, await [`drained`](Self::drained) first, because the drop would block the executor's thread. The drop of an empty queue
/// returns at once.
///
/// ```
/// # use nearq_core as nearq;
/// # let tasks = nearq::Workqueue::builder("tasks").build()?;
/// use nearq::Workqueue;
/// use std::{thread::sleep, time::Duration};
///
/// let task = async {
///     let queue = Workqueue::builder("of a task").build()?;
///     queue.spawn(|| sleep(Duration::from_millis(20)));
///     queue.drained().await?;
///     drop(queue);
///     Ok::<(), nearq::Error>(())
/// };
/// # tasks.spawn_future(task).join()??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A time-out around `drained` ends only that wait: the drop that follows waits for the same items. To give up for good, build the queue on
/// a runtime of its own, and end that runtime with [`Runtime::shutdown`](crate::Runtime::shutdown). After the shutdown has timed out,
/// dropping a queue of that runtime does not wait.
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

    /// Returns a weak reference to the queue: it queues like this one, but does not keep the queue open.
    pub fn handle(&self) -> Handle<P> {
        Handle::of(self.shared())
    }

    /// Returns the part of the queue that reads and changes settings. It does not keep the queue open.
    pub fn view(&self) -> QueueView<P> {
        QueueView::clone(self)
    }

    #[inline]
    pub(crate) fn inside(&self) -> &Queue<P> {
        self.shared()
    }

    // ---- queueing ----------------------------------------------------------------------------------------

    /// Queues `work` for the pod of the CPU that the caller runs on. Returns true if this call has queued it, and false if it is already
    /// pending: then it stays where it is.
    ///
    /// Takes no lock and allocates nothing. [`Work`](Work#memory-ordering) says which writes the execution sees.
    ///
    /// Also returns false if the item is refused:
    ///
    /// * It is [disabled](Work::disable), or a [`cancel_sync`](Work::cancel_sync) of it is under way.
    /// * The queue is being [drained](Self::drain), and the caller is not one of its own items.
    /// * The runtime was [shut down](crate::Runtime::shutdown), and the caller is not one of the runtime's items.
    ///
    /// The last two cause one warning on standard error for each queue. [`try_queue`](Self::try_queue) tells all of these cases apart.
    #[inline]
    pub fn queue(&self, work: &Work<P>) -> bool {
        self.inside().queue(work.item())
    }

    /// Queues `work` as [`queue`](Self::queue) does, but returns an error if the item is refused. `Ok(false)` means that it is already
    /// pending.
    ///
    /// # Errors
    /// * [`Error::Disabled`]: the item is [disabled](Work::disable), or a [`cancel_sync`](Work::cancel_sync) of it is under way.
    /// * [`Error::Draining`]: the queue is being [drained](Self::drain), and the caller is not one of its own items.
    /// * [`Error::ShutDown`]: the runtime was [shut down](crate::Runtime::shutdown), and the caller is not one of the runtime's items.
    pub fn try_queue(&self, work: &Work<P>) -> Result<bool, Error> {
        self.inside().try_queue(work.item())
    }

    /// Queues `work` as [`try_queue`](Self::try_queue) does, but for the pod of `cpu`; on a [per-CPU
    /// queue](crate::WorkqueueBuilder::per_cpu), for that CPU.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Work, Workqueue};
    ///
    /// let queue = Workqueue::builder("per device").build()?;
    /// let work = Work::new(|_| println!("in the pod of CPU 0"));
    /// queue.queue_on(0, &work)?;
    /// # Ok::<(), nearq::Error>(())
    /// ```
    ///
    /// # Errors
    /// The machine has no such CPU ([`Error::NoSuchCpu`]); or as [`try_queue`](Self::try_queue).
    pub fn queue_on(&self, cpu: usize, work: &Work<P>) -> Result<bool, Error> {
        self.inside().queue_on(work.item(), |places| places.cpu(cpu))
    }

    /// Queues `work` as [`try_queue`](Self::try_queue) does, but for the pod of a CPU of `node`: the caller's CPU if that is on the node,
    /// otherwise the node's first.
    ///
    /// # Errors
    /// The machine has no such node, or the node has no CPU ([`Error::NoSuchNode`]); or the queue is a per-CPU one, whose items go to CPUs
    /// ([`Error::Unsupported`]); or as [`try_queue`](Self::try_queue).
    pub fn queue_on_node(&self, node: usize, work: &Work<P>) -> Result<bool, Error> {
        if self.is_per_cpu() {
            return Err(Error::Unsupported { attribute: "a node", kind: QueueKind::PerCpu });
        }
        self.inside().queue_on(work.item(), |places| places.cpu_of_node(node, P::current_cpu()))
    }

    /// Queues `work` once `delay` has passed, never earlier, for the pod of the CPU that the caller runs on now. Returns whether this call
    /// has set the timer. A delay of zero queues the item at once, without a timer.
    ///
    /// Returns false if the item is already pending, on a timer or on a queue; if it is disabled; or if the runtime was [shut
    /// down](crate::Runtime::shutdown), which causes one warning for each queue. [`try_queue_delayed`](Self::try_queue_delayed) tells these
    /// cases apart.
    ///
    /// The item counts as pending from now on. [`Work::cancel`] takes it off the timer. [`Work::flush`] and
    /// [`Workqueue::flush`](Self::flush) do not wait for it; [`Work::flush_delayed`] queues it at once and waits.
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
    ///
    /// // An item on the timer can be cancelled.
    /// assert!(queue.queue_delayed(&work, Duration::from_secs(3600)));
    /// assert!(work.cancel());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # When the queue is dropped or drained
    /// A drop of the queue does not wait for items that are on a timer. They are taken off the timer a little later: they do not run, and
    /// are no longer pending. If nothing else keeps such an item, what it captured is dropped then, by a separate thread, `nq/drop`. A
    /// runtime has at most four of these threads, so no more than four destructors may wait for each other.
    ///
    /// If the queue is being drained when the time comes, the item does not run either, and a warning says so.
    ///
    /// # If threads are refused
    /// If the system refuses the thread that waits for deadlines, each thread that waits for work tries to start it, and so do the
    /// runtime's other threads. If the runtime has none, the item waits until a thread waits for work or asks for the item
    /// ([`Work::is_pending`]).
    pub fn queue_delayed(&self, work: &Work<P>, delay: Duration) -> bool {
        self.shared().queue_delayed(work.item(), P::current_cpu(), delay)
    }

    /// Queues `work` as [`queue_delayed`](Self::queue_delayed) does, but returns an error if the item is refused. `Ok(false)` means that it
    /// is already pending.
    ///
    /// # Errors
    /// [`Error::Disabled`] if the item is [disabled](Work::disable), or a [`cancel_sync`](Work::cancel_sync) of it is under way;
    /// [`Error::ShutDown`] if the runtime was [shut down](crate::Runtime::shutdown). If the delay is zero, also as
    /// [`try_queue`](Self::try_queue).
    pub fn try_queue_delayed(&self, work: &Work<P>, delay: Duration) -> Result<bool, Error> {
        self.shared().try_queue_delayed(work.item(), P::current_cpu(), delay)
    }

    /// Queues `work` as [`try_queue_delayed`](Self::try_queue_delayed) does, but for the pod of `cpu`.
    ///
    /// # Errors
    /// The machine has no such CPU ([`Error::NoSuchCpu`]); or as [`try_queue_delayed`](Self::try_queue_delayed).
    pub fn queue_delayed_on(
        &self,
        cpu: usize,
        work: &Work<P>,
        delay: Duration,
    ) -> Result<bool, Error> {
        let cpu = self.shared().cpu(cpu)?;
        self.shared().try_queue_delayed(work.item(), cpu, delay)
    }

    /// Queues `work` once `delay` has passed from now, instead of when or where it is pending so far. Returns true if it was pending, on a
    /// timer or on a queue, of this queue or another; false if it was idle.
    ///
    /// A delay of zero queues it at once, at the end of the queue. A disabled item stays idle.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Work, Workqueue};
    /// use std::time::Duration;
    ///
    /// let queue = Workqueue::builder("watchdog").build()?;
    /// let bark = Work::new(|_| println!("no sign of life for a minute"));
    /// // Each sign of life begins the minute again.
    /// assert!(!queue.modify_delayed(&bark, Duration::from_secs(60)));
    /// assert!(queue.modify_delayed(&bark, Duration::from_secs(60)));
    /// bark.cancel_sync()?;
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn modify_delayed(&self, work: &Work<P>, delay: Duration) -> bool {
        self.shared().modify_delayed(work.item(), P::current_cpu(), delay)
    }

    /// Undoes one [`Work::disable`], and queues the item if that was the last one. Returns true if it was the last one and the item was
    /// queued.
    ///
    /// # Panics
    /// If there was no `disable` to undo.
    pub fn enable_and_queue(&self, work: &Work<P>) -> bool {
        work.enable() && self.queue(work)
    }

    /// Queues a closure that runs once. Returns a handle that can be [joined](JoinHandle::join), which blocks, or awaited. If the handle is
    /// dropped, the closure still runs.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let sum = queue.spawn(|| (1..=10).sum::<u32>());
    /// assert_eq!(sum.join()?, 55);
    /// // Detached: it runs, and its result is dropped.
    /// queue.spawn(|| println!("in a worker"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`scope`](Self::scope) takes closures that borrow, [`join_set`](Self::join_set) joins many in the order in which they end,
    /// [`spawn_future`](Self::spawn_future) takes futures, and [`task`](Self::task) sets a home or a CPU.
    ///
    /// If the closure is refused, it is dropped, and joining the handle returns [`JoinError::Refused`](crate::JoinError::Refused). That
    /// happens if the queue is being [drained](Self::drain), or the runtime was [shut down](crate::Runtime::shutdown), and the caller is
    /// not one of its own items. One warning for each queue reports it. [`try_spawn`](Self::try_spawn) returns the closure instead.
    ///
    /// [`Work`](Work#signals) says which signals workers block.
    pub fn spawn<T: Send + 'static>(
        &self,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T, P> {
        let (item, handle) = task::new(closure);
        self.send_here(item);
        handle
    }

    /// Queues a closure as [`spawn`](Self::spawn) does, but returns an error that holds the closure if it is refused.
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
    /// * [`Error::Draining`]: the queue is being [drained](Self::drain), and the caller is not one of its own items.
    /// * [`Error::ShutDown`]: the runtime was [shut down](crate::Runtime::shutdown), and the caller is not one of the runtime's items.
    pub fn try_spawn<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        closure: F,
    ) -> Result<JoinHandle<T, P>, TrySpawnError<F>> {
        self.task().try_spawn(closure)
    }

    /// Queues a future, which the workers poll. Returns a handle that can be awaited, or [joined](JoinHandle::join), which blocks. If the
    /// handle is dropped, the future still runs.
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
    ///
    /// Each wake queues the future again, for the pod of the CPU that the waking thread runs on, at the end of what waits there. So a
    /// future that keeps waking itself lets other items run. The future is never polled twice at once, and no wake is lost; what the waking
    /// thread wrote is visible to the poll. Any thread may wake it, even after it has ended. A wake does not allocate.
    ///
    /// The future counts under [`max_active`](crate::WorkqueueBuilder::max_active) while it is queued or polled, but not while it waits for
    /// a wake.
    ///
    /// If it panics, joining it returns [`JoinError::Panicked`](crate::JoinError). The worker that polled it last drops it. If it is
    /// refused, the handle says so, as for [`spawn`](Self::spawn); [`TaskBuilder::try_spawn_future`] returns the future instead.
    ///
    /// **Dropping the queue** drains it. Futures that are queued are polled, and so are those that are woken by what still runs on the
    /// queue. A future that waits for a wake from elsewhere does not delay the drop. When that wake comes, it cancels the future: the
    /// thread that wakes the future drops it, and `join` returns [`Cancelled`](crate::JoinError::Cancelled).
    pub fn spawn_future<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T, P> {
        let route = Arc::downgrade(self.shared());
        let (item, handle) = crate::task::future::owned(task::Alone, route, future);
        self.send_here(item);
        handle
    }

    /// Returns a builder that spawns one closure or future with settings of its own: its [home](crate::home::Home), its CPU.
    pub fn task(&self) -> TaskBuilder<'_, P> {
        TaskBuilder::by_owner(self)
    }

    /// Returns an empty set of closures and futures, which run on this queue and are joined in the order in which they end.
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

    /// Gives a closure of a scope to the queue, or to its team.
    pub(crate) fn give(&self, closure: Closure) -> Result<(), Error> {
        if let Some(team) = self.inside().team() {
            let number = team.inject(closure);
            if self.call_thief() {
                return Ok(());
            }
            // If it is gone, a member runs it.
            return team.retract(number).map_or(Ok(()), |closure| {
                contain(|| drop(closure));
                Err(self.inside().refusal())
            });
        }
        self.try_spawn(closure).map(drop).map_err(TrySpawnError::into_error)
    }

    /// Adds numbers and other work to the workers of a queue on which nothing has been queued.
    ///
    /// # Panics
    /// If the queue has a team.
    #[doc(hidden)]
    pub fn form_team(&self, team: Arc<dyn Team<P>>) {
        self.inside().form_team(team);
    }

    /// Ensures that a member of the team comes for work that has become visible. False if the queue refuses that, because the runtime was
    /// shut down or the queue is being drained: then only members that are there may find the work.
    #[doc(hidden)]
    pub fn call_thief(&self) -> bool {
        P::fence(Ordering::SeqCst);
        self.inside().call_thief(crate::fork_join::steal_for)
    }

    /// Whether the caller is within an item of this queue.
    #[doc(hidden)]
    pub fn is_served_here(&self) -> bool {
        crate::queue::serves::<P>(self.inside())
    }

    /// Runs `f`, which spawns closures that may borrow, and blocks until all of them have ended. What they wrote is visible then.
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
    /// On a worker, another worker runs in its place meanwhile. There is no form of a scope to await: in an async task, enter it inside
    /// [`spawn`](Self::spawn), and await that.
    ///
    /// **Within an item of the same queue**, the item keeps its place under [`max_active`](crate::WorkqueueBuilder::max_active), so the
    /// limit may leave none for the closures. Such a scope therefore runs the closures that no worker has started: itself, in the item's
    /// place, newest first; other workers take the oldest, as for [`join`](Self::join). So it ends whatever the limit is, even on a queue
    /// that runs one item at a time. (On per-CPU queues and queues that run one item at a time, the scope runs its closures in the order in
    /// which they were spawned.) Items of two queues that each enter a scope on the other queue can still wait for each other.
    ///
    /// # Panics
    /// With the panic of `f`, or else of the first closure that panicked, after all have ended. If the queue refuses a closure, because it
    /// is being [drained](Self::drain) or the runtime was shut down, and the caller is not one of its own items: with the text of that
    /// [`Error`].
    pub fn scope<'env, R>(
        &self,
        f: impl for<'scope> FnOnce(&'scope crate::user::scope::Scope<'scope, 'env, P>) -> R,
    ) -> R {
        crate::user::scope::scope(self, f)
    }

    // ---- waiting -----------------------------------------------------------------------------------------

    /// Blocks until everything that was queued on this queue before the call has ended, including what the limit holds back. What those
    /// items wrote is visible then. The form to await is [`flushed`](Self::flushed).
    ///
    /// Items that are queued later run meanwhile and are not waited for. Nor are items on a timer. A queueing that is still in progress in
    /// another thread may be missed. If nothing is left, the call returns at once, within a microsecond. On a worker, another worker runs
    /// in its place meanwhile.
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
    /// [`Error::Deadlock`] inside one of the queue's own items, which would wait for itself. Cycles over several queues are not detected:
    /// an item that flushes another queue, one of whose items flushes this one, waits for ever.
    pub fn flush(&self) -> Result<(), Error> {
        self.inside().flush()
    }

    /// Returns a future that does what [`flush`](Self::flush) does. It waits for what was queued before its first poll.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    ///
    /// let log = Workqueue::builder("log").ordered().build()?;
    /// log.spawn(|| println!("written"));
    /// let task = async move { log.flushed().await };
    /// # nearq::system::unbound().spawn_future(task).join()??;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`flush`](Self::flush), for the item in which the future is polled. A future that was spawned on the queue may flush it: it does
    /// not count as running while it waits.
    pub fn flushed(&self) -> FlushedQueue<'_, P> {
        FlushedQueue::new(self.inside())
    }

    /// Blocks until the queue is empty, and refuses new work meanwhile, except from the queue's own running items: these may go on queueing
    /// until they are done. What the items wrote is visible then. The form to await is [`drained`](Self::drained).
    ///
    /// Afterwards the queue works again. Several threads may drain at once; the queue refuses until the last of them has finished. If a
    /// drain takes longer than 10 s, a warning on standard error says how many items are left; again after 100 s and 1000 s.
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
    /// [`Error::Deadlock`] inside one of the queue's own items, which would wait for itself.
    pub fn drain(&self) -> Result<(), Error> {
        self.inside().drain()
    }

    /// Returns a future that does what [`drain`](Self::drain) does, from its first poll until it is done or dropped. It warns only when it
    /// is polled. Await it before you drop a queue in an async task: see [the example](Workqueue#dropping-it).
    ///
    /// If it is dropped before it is done, for example by a time-out, the queue works again, the items go on, and [the drop of the
    /// queue](Workqueue#dropping-it) waits for them.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    ///
    /// let queue = Workqueue::builder("emptied").build()?;
    /// let last = queue.spawn(|| 5);
    /// let task = async move {
    ///     queue.drained().await?;
    ///     assert!(last.is_finished());
    ///     Ok::<(), nearq::Error>(())
    /// };
    /// # nearq::system::unbound().spawn_future(task).join()??;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`drain`](Self::drain), for the item in which the future is polled; also in a future that was spawned on the queue.
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
