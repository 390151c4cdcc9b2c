//! [`Bounded`]: back-pressure, a limit on what has been spawned on a queue and has not ended.
//!
//! A bound has a number of places. A task takes one before it is queued, and gives it back when it has ended, was cancelled or was refused
//! (`Place`). The queue itself knows nothing of it. `places` has the protocol.
//!
//! # A task of the bound that spawns on it
//! It would wait for places that only it and its like give back. So a task that is spawned within one of the same bound gets no place, and
//! nothing waits. Whether the caller is within one is noted in the worker's context (`Context::bound`).

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use nearq_platform::{Atomic, Linux, Ordering, Platform};

use crate::base::error::Error;
use crate::task::join::JoinHandle;
use crate::task::work::Work;
use crate::user::handle::Handle;
use crate::user::places::{Place, Places, Request};
use crate::user::task_builder::{TaskBuilder, TrySpawnError};
use crate::user::workqueue::Workqueue;

/// A queue with back-pressure: at most so many tasks have been spawned through it and have not ended. [`spawn`](Self::spawn) waits for a
/// place, [`try_spawn`](Self::try_spawn) refuses, and [`reserve`](Self::reserve) is awaited. Made by [`Workqueue::bounded`].
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::Workqueue;
///
/// let queue = Workqueue::builder("hash").build()?;
/// let bounded = queue.bounded(16);
/// // However long the list is, no more than 16 closures exist at any time.
/// let tasks: Vec<_> = (0..1000u64).map(|n| bounded.spawn(move || n * n)).collect();
/// let sum: u64 = tasks.into_iter().map(|task| task.join().unwrap()).sum();
/// assert_eq!(sum, 332_833_500);
/// # Ok::<(), nearq::Error>(())
/// ```
///
/// A task has its place from the call that spawns it until its closure or future has ended or is dropped, not until its result is taken;
/// so what is dropped then may spawn. A future that waits for a wake has its place also after a [shutdown](crate::Runtime::shutdown). The
/// limit is separate from [`max_active`](crate::WorkqueueBuilder::max_active), which says how many items run at once; what waits beyond
/// that is unlimited without a bound. What is spawned on the queue by other means does not count.
///
/// Places are given in the order in which they are asked for.
///
/// # Within its own tasks
/// A task that is spawned by a task of the same bound gets no place, and nothing waits: the spawner would wait for its own place.
/// [`try_spawn`](Self::try_spawn) takes a place there too, or refuses. This applies to the closure itself, and not to what other workers
/// run for it in a [`join`](crate::join) or scope: there, waiting for a place may never end.
///
/// # Clones and fork
/// Clones share the places. Like a [`Handle`], a bound does not keep its queue open. In the child of a fork all places are free: what has
/// them is the parent's.
pub struct Bounded<P: Platform = Linux> {
    queue: Handle<P>,
    places: Arc<Places<P>>,
}

impl<P: Platform> Workqueue<P> {
    /// Makes a bound for at most that many tasks, shared by the clones of what is returned.
    ///
    /// # Panics
    /// If `places` is zero.
    pub fn bounded(&self, places: usize) -> Bounded<P> {
        self.handle().bounded(places)
    }
}

impl<P: Platform> Handle<P> {
    /// As [`Workqueue::bounded`].
    ///
    /// # Panics
    /// If `places` is zero.
    pub fn bounded(&self, places: usize) -> Bounded<P> {
        Bounded { queue: self.clone(), places: Places::new(places) }
    }
}

impl<P: Platform> Bounded<P> {
    /// Returns the queue.
    pub fn queue(&self) -> &Handle<P> {
        &self.queue
    }

    /// Returns how many places there are.
    pub fn places(&self) -> usize {
        self.places.total()
    }

    /// Returns how many places are taken. May be out of date at once.
    pub fn in_use(&self) -> usize {
        self.places.in_use()
    }

    /// Queues a closure as [`Handle::spawn`] does, once there is a place. On a worker, another worker runs in its place while it waits. In
    /// an async task, await [`reserve`](Self::reserve) instead.
    pub fn spawn<T: Send + 'static>(
        &self,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T, P> {
        self.task().spawn(closure)
    }

    /// Queues a closure if there is a place.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Error, Workqueue};
    ///
    /// let queue = Workqueue::builder("requests").build()?;
    /// let bounded = queue.bounded(1);
    /// let (end, ended) = std::sync::mpsc::channel::<()>();
    /// let first = bounded.spawn(move || ended.recv().is_err());
    /// let refused = bounded.try_spawn(|| "served").unwrap_err();
    /// assert!(matches!(refused.error(), Error::Full { places: 1, .. }));
    /// drop(end);
    /// assert!(first.join()?);
    /// assert_eq!(bounded.spawn(refused.into_inner()).join()?, "served");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Every place is taken ([`Error::Full`]); and as [`Handle::try_spawn`]. The error returns the closure.
    pub fn try_spawn<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        closure: F,
    ) -> Result<JoinHandle<T, P>, TrySpawnError<F>> {
        self.task().try_spawn(closure)
    }

    /// Queues a future as [`Handle::spawn_future`] does, once there is a place, which the future has until it has ended.
    pub fn spawn_future<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T, P> {
        self.task().spawn_future(future)
    }

    /// Begins a task with settings of its own. It takes its place when it is spawned.
    pub fn task(&self) -> TaskBuilder<'_, P> {
        self.queue.task().within(self)
    }

    /// Awaits a place.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// # let queue = nearq::Workqueue::builder("requests").build()?;
    /// let bounded = queue.bounded(8);
    /// # let server = nearq::Workqueue::builder("server").build()?;
    /// let server = server.spawn_future(async move {
    ///     let mut answers = Vec::new();
    ///     for n in 0..100 {
    ///         answers.push(bounded.reserve().await.spawn(move || n + 1));
    ///     }
    ///     let mut sum = 0;
    ///     for answer in answers {
    ///         sum += answer.await.unwrap();
    ///     }
    ///     sum
    /// });
    /// assert_eq!(server.join().unwrap(), 5050);
    /// # Ok::<(), nearq::Error>(())
    /// ```
    ///
    /// Dropping the future loses nothing. A dropped [`Permit`] gives its place back.
    pub fn reserve(&self) -> Reserve<'_, P> {
        Reserve { bounded: self, request: Request::new() }
    }

    /// Takes a place, if there is one.
    pub fn try_reserve(&self) -> Option<Permit<'_, P>> {
        let place = Places::try_take(&self.places)?;
        Some(Permit { bounded: self, place })
    }

    /// Makes an item that takes a place each time that it is queued.
    pub fn work(&self, function: impl FnMut() + Send + 'static) -> BoundedWork<P> {
        BoundedWork::new(self, function)
    }

    pub(crate) fn shared(&self) -> &Arc<Places<P>> {
        &self.places
    }

    /// The error if every place is taken.
    pub(crate) fn full(&self) -> Error {
        Error::Full { queue: self.queue.shared().name.clone(), places: self.places() }
    }
}

impl<P: Platform> Clone for Bounded<P> {
    fn clone(&self) -> Self {
        Bounded { queue: self.queue.clone(), places: Arc::clone(&self.places) }
    }
}

impl<P: Platform> fmt::Debug for Bounded<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounded")
            .field("queue", &self.queue.shared().name)
            .field("places", &self.places())
            .field("in_use", &self.in_use())
            .finish()
    }
}

/// Becomes a [`Permit`] when there is a place; returned by [`Bounded::reserve`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Reserve<'bound, P: Platform = Linux> {
    bounded: &'bound Bounded<P>,
    request: Request<P>,
}

impl<'bound, P: Platform> Future for Reserve<'bound, P> {
    type Output = Permit<'bound, P>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let bounded = self.bounded;
        match self.request.poll(&bounded.places, context.waker()) {
            Some(place) => Poll::Ready(Permit { bounded, place }),
            None => {
                P::retry_now();
                Poll::Pending
            }
        }
    }
}

impl<P: Platform> fmt::Debug for Reserve<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reserve").field(self.bounded).finish()
    }
}

/// A place for one task of a [`Bounded`]; returned by [`Bounded::reserve`] and [`Bounded::try_reserve`].
#[must_use = "a permit that is dropped gives its place back"]
pub struct Permit<'bound, P: Platform = Linux> {
    bounded: &'bound Bounded<P>,
    place: Place<P>,
}

impl<'bound, P: Platform> Permit<'bound, P> {
    /// Queues a closure, which takes over the place, as [`Handle::spawn`] does.
    pub fn spawn<T: Send + 'static>(
        self,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T, P> {
        self.task().spawn(closure)
    }

    /// Queues a future, which takes over the place, as [`Handle::spawn_future`] does.
    pub fn spawn_future<T: Send + 'static>(
        self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T, P> {
        self.task().spawn_future(future)
    }

    /// Begins a task with settings of its own, which takes over the place.
    pub fn task(self) -> TaskBuilder<'bound, P> {
        self.bounded.queue.task().with_place(self.bounded, self.place)
    }
}

impl<P: Platform> fmt::Debug for Permit<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(self.bounded).finish()
    }
}

/// A [`Work`] that takes a place of a [`Bounded`] each time that it is queued, and gives it back when that execution has ended or was
/// cancelled. Made by [`Bounded::work`]. Clones are handles of the same item.
///
/// ```
/// # use nearq_core as nearq;
/// let queue = nearq::Workqueue::builder("write back").build()?;
/// let bounded = queue.bounded(2);
/// let pages: Vec<_> = (0..10).map(|page| bounded.work(move || println!("page {page}"))).collect();
/// for page in &pages {
///     // Waits while two are queued or run.
///     page.queue();
/// }
/// queue.flush()?;
/// # Ok::<(), nearq::Error>(())
/// ```
pub struct BoundedWork<P: Platform = Linux> {
    bounded: Bounded<P>,
    work: Work<P>,
    held: Arc<Held<P>>,
}

/// The places of the executions of an item that have not ended. All places are alike, so a number is enough.
struct Held<P: Platform> {
    /// The process in which they were taken, and how many: of one execution that runs and one that is pending, and of threads that are
    /// about to queue the item.
    count: P::AtomicU64,
    places: Arc<Places<P>>,
}

/// Where the process begins in [`Held::count`].
const PROCESS: u32 = 32;

impl<P: Platform> Held<P> {
    /// Takes over a place. False if it is none.
    fn keep(&self, place: Place<P>) -> bool {
        let Some(epoch) = place.keep() else { return false };
        let mut count = self.count.load(Ordering::Relaxed);
        loop {
            // Those of another process are the parent's.
            let next = if count >> PROCESS == epoch { count + 1 } else { epoch << PROCESS | 1 };
            // Relaxed: the item's own word orders its executions, and only the number matters.
            match self.count.compare_exchange_weak(
                count,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(found) => count = found,
            }
        }
    }

    /// Gives one back, if there is one of that process, and it is this process.
    fn give_back(&self, epoch: u64) {
        let mut count = self.count.load(Ordering::Relaxed);
        loop {
            let is_none =
                count as u32 == 0 || count >> PROCESS != epoch || epoch != P::fork_epoch();
            if is_none {
                return;
            }
            // Relaxed: as in `keep`.
            match self.count.compare_exchange_weak(
                count,
                count - 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(found) => count = found,
            }
        }
        self.places.give_back();
    }
}

impl<P: Platform> BoundedWork<P> {
    fn new<F: FnMut() + Send + 'static>(bounded: &Bounded<P>, mut function: F) -> Self {
        struct Back<'a, P: Platform>(&'a Held<P>, u64);
        impl<P: Platform> Drop for Back<'_, P> {
            fn drop(&mut self) {
                self.0.give_back(self.1);
            }
        }
        let places = Arc::clone(&bounded.places);
        let held = Arc::new(Held { count: P::AtomicU64::new(0), places });
        let own = Arc::clone(&held);
        let run = move |_: &Work<P>| {
            // Also if the function panics.
            let _back = Back(&own, P::fork_epoch());
            own.places.within(&mut function);
        };
        let work = Work::named_in(core::any::type_name::<F>(), run);
        BoundedWork { bounded: bounded.clone(), work, held }
    }

    /// Queues the item once there is a place. False, without a wait, if it is pending already; false if it is refused. In its own function,
    /// and in any other task of the bound, it does not wait.
    pub fn queue(&self) -> bool {
        if self.work.header().joins_pending() {
            return false;
        }
        let place = Places::take(self.bounded.shared());
        matches!(self.queue_with(place), Ok(true))
    }

    /// Queues the item if there is a place. `Ok(false)` if it is pending already.
    ///
    /// # Errors
    /// Every place is taken ([`Error::Full`]); and as [`Handle::try_queue`].
    pub fn try_queue(&self) -> Result<bool, Error> {
        if self.work.header().joins_pending() {
            return Ok(false);
        }
        let place = Places::try_take(self.bounded.shared()).ok_or_else(|| self.bounded.full())?;
        self.queue_with(place)
    }

    fn queue_with(&self, place: Place<P>) -> Result<bool, Error> {
        // First, because the execution may end before `try_queue` returns.
        let has_place = self.held.keep(place);
        let queued = self.bounded.queue.try_queue(&self.work);
        if has_place && !matches!(queued, Ok(true)) {
            self.held.give_back(P::fork_epoch());
        }
        queued
    }

    /// Cancels the pending execution, as [`Work::cancel`] does, and gives its place back.
    pub fn cancel(&self) -> bool {
        let cancelled = self.work.cancel();
        if cancelled {
            self.held.give_back(P::fork_epoch());
        }
        cancelled
    }

    /// As [`cancel`](Self::cancel), and waits for the end of a running execution.
    ///
    /// # Errors
    /// As [`Work::cancel_sync`].
    pub fn cancel_sync(&self) -> Result<bool, Error> {
        let cancelled = self.work.cancel_sync()?;
        if cancelled {
            self.held.give_back(P::fork_epoch());
        }
        Ok(cancelled)
    }

    /// Waits for the execution that was queued last, as [`Work::flush`] does.
    ///
    /// # Errors
    /// As [`Work::flush`].
    pub fn flush(&self) -> Result<bool, Error> {
        self.work.flush()
    }

    /// As [`Work::is_pending`].
    pub fn is_pending(&self) -> bool {
        self.work.is_pending()
    }

    /// As [`Work::is_running`].
    pub fn is_running(&self) -> bool {
        self.work.is_running()
    }
}

impl<P: Platform> Clone for BoundedWork<P> {
    fn clone(&self) -> Self {
        BoundedWork {
            bounded: self.bounded.clone(),
            work: self.work.clone(),
            held: Arc::clone(&self.held),
        }
    }
}

impl<P: Platform> fmt::Debug for BoundedWork<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedWork")
            .field("work", &self.work)
            .field("bound", &self.bounded)
            .finish_non_exhaustive()
    }
}
