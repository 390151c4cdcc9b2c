//! [`TaskBuilder`]: spawns a closure or future with settings of its own; and [`TrySpawnError`], which returns one that was refused.

use core::fmt;
use core::future::Future;
use std::sync::Arc;

use nearq_platform::{Linux, Platform};

use crate::base::error::Error;
use crate::homes::Home;
use crate::item::owned::Pending;
use crate::queue::SubmitKind;
use crate::task::join::JoinHandle;
use crate::task::{self, Alone};
use crate::user::bounded::Bounded;
use crate::user::handle::Handle;
use crate::user::places::{HasPlace, Place, Places};
use crate::user::workqueue::Workqueue;

/// Where a new task goes.
enum Target<'queue, P: Platform> {
    /// Open as long as the builder lives.
    Owned(&'queue Workqueue<P>),
    /// Possibly ended.
    Handle(&'queue Handle<P>),
}

/// Where it gets its place.
enum Room<'queue, P: Platform> {
    /// It needs none.
    Unlimited,
    /// When it is spawned.
    Bound(&'queue Bounded<P>),
    /// It has one, of these.
    Place(&'queue Arc<Places<P>>, Place<P>),
}

/// Settings of one closure or future before it is spawned; returned by [`Workqueue::task`], [`Handle::task`] and [`Bounded::task`].
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{Workqueue, home::Home};
///
/// let queue = Workqueue::builder("tables").build()?;
/// let home = Home::pick()?;
/// assert_eq!(queue.task().home(&home).spawn(|| 2 + 3).join().unwrap(), 5);
/// let on_cpu_0 = queue.task().named("six").on_cpu(0)?.spawn_future(async { 6 });
/// assert_eq!(on_cpu_0.join().unwrap(), 6);
/// # Ok::<(), nearq::Error>(())
/// ```
#[must_use = "a builder spawns nothing until `spawn`"]
pub struct TaskBuilder<'queue, P: Platform = Linux> {
    target: Target<'queue, P>,
    home: Option<&'queue Home<P>>,
    cpu: Option<usize>,
    name: &'static str,
    room: Room<'queue, P>,
}

impl<'queue, P: Platform> TaskBuilder<'queue, P> {
    pub(crate) fn by_owner(queue: &'queue Workqueue<P>) -> Self {
        Self::new(Target::Owned(queue))
    }

    pub(crate) fn by_handle(queue: &'queue Handle<P>) -> Self {
        Self::new(Target::Handle(queue))
    }

    pub(crate) fn within(self, bound: &'queue Bounded<P>) -> Self {
        TaskBuilder { room: Room::Bound(bound), ..self }
    }

    pub(crate) fn with_place(self, bound: &'queue Bounded<P>, place: Place<P>) -> Self {
        TaskBuilder { room: Room::Place(bound.shared(), place), ..self }
    }

    /// What keeps the place of the task, if it needs one; waits for it.
    fn wait_for_place(&mut self) -> Option<HasPlace<P>> {
        match core::mem::replace(&mut self.room, Room::Unlimited) {
            Room::Unlimited => None,
            Room::Bound(bound) => {
                let places = bound.shared();
                Some(HasPlace::new(places, Places::take(places)))
            }
            Room::Place(places, place) => Some(HasPlace::new(places, place)),
        }
    }

    /// As [`wait_for_place`](Self::wait_for_place), or the error if there is none.
    fn try_place(&mut self) -> Result<Option<HasPlace<P>>, Error> {
        if let Room::Bound(bound) = self.room {
            let place = Places::try_take(bound.shared()).ok_or_else(|| bound.full())?;
            self.room = Room::Place(bound.shared(), place);
        }
        Ok(self.wait_for_place())
    }

    fn new(target: Target<'queue, P>) -> Self {
        TaskBuilder { target, home: None, cpu: None, name: "", room: Room::Unlimited }
    }

    fn queue(&self) -> &'queue Arc<crate::queue::Queue<P>> {
        match self.target {
            Target::Owned(queue) => queue.shared(),
            Target::Handle(handle) => handle.shared(),
        }
    }

    /// Sets the [home](Home) of the task; it takes precedence over the queue's home. A future keeps it, whichever thread wakes it. A
    /// per-CPU queue ignores the setting.
    pub fn home(self, home: &'queue Home<P>) -> Self {
        TaskBuilder { home: Some(home), ..self }
    }

    /// Queues the task as if the caller ran on `cpu`: for the pod of that CPU or, on a per-CPU queue, for that CPU. For a future, this
    /// applies to its first poll.
    ///
    /// The CPU takes precedence over the task's home; memory still comes from the home.
    ///
    /// # Errors
    /// The machine has no such CPU ([`Error::NoSuchCpu`]).
    pub fn on_cpu(self, cpu: usize) -> Result<Self, Error> {
        let cpu = self.queue().cpu(cpu)?;
        Ok(TaskBuilder { cpu: Some(cpu), ..self })
    }

    /// Gives the task a name for display, as [`Work::named`](crate::Work::named) does for an item.
    pub fn named(self, name: &'static str) -> Self {
        TaskBuilder { name, ..self }
    }

    /// Queues a closure as [`Workqueue::spawn`] does.
    pub fn spawn<T: Send + 'static>(
        mut self,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T, P> {
        let (item, handle) = match self.wait_for_place() {
            None => task::new(closure),
            Some(place) => task::owned(place, closure),
        };
        self.send_or_refuse(item);
        handle
    }

    /// Queues a closure as [`Workqueue::try_spawn`] does.
    ///
    /// # Errors
    /// As [`Workqueue::try_spawn`]; through a [`Handle`], also [`Error::Ended`].
    pub fn try_spawn<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        mut self,
        closure: F,
    ) -> Result<JoinHandle<T, P>, TrySpawnError<F>> {
        let place = match self.try_place() {
            Ok(place) => place,
            Err(error) => return Err(TrySpawnError { error, task: closure }),
        };
        let is_bounded = place.is_some();
        let (item, handle) = match place {
            None => task::new(closure),
            Some(place) => task::owned(place, closure),
        };
        let Err((item, error)) = self.send(item) else { return Ok(handle) };
        let task = if is_bounded {
            task::take_back::<P, HasPlace<P>, F, T>(item, handle)
        } else {
            task::take_back::<P, Alone, F, T>(item, handle)
        };
        Err(TrySpawnError { error, task })
    }

    /// Queues a future as [`Workqueue::spawn_future`] does.
    pub fn spawn_future<T: Send + 'static>(
        mut self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T, P> {
        let route = Arc::downgrade(self.queue());
        let (item, handle) = match self.wait_for_place() {
            None => task::future::owned(Alone, route, future),
            Some(place) => task::future::owned(place, route, future),
        };
        self.send_or_refuse(item);
        handle
    }

    /// Queues a future as [`spawn_future`](Self::spawn_future) does, but returns an error that holds the future if it is refused.
    ///
    /// # Errors
    /// As [`try_spawn`](Self::try_spawn).
    pub fn try_spawn_future<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        mut self,
        future: F,
    ) -> Result<JoinHandle<T, P>, TrySpawnError<F>> {
        let place = match self.try_place() {
            Ok(place) => place,
            Err(error) => return Err(TrySpawnError { error, task: future }),
        };
        let is_bounded = place.is_some();
        let route = Arc::downgrade(self.queue());
        let (item, handle) = match place {
            None => task::future::owned(Alone, route, future),
            Some(place) => task::future::owned(place, route, future),
        };
        let Err((item, error)) = self.send(item) else { return Ok(handle) };
        let task = if is_bounded {
            task::future::take_back::<P, HasPlace<P>, F, T>(item, handle)
        } else {
            task::future::take_back::<P, Alone, F, T>(item, handle)
        };
        Err(TrySpawnError { error, task })
    }

    fn send(self, mut item: Pending<P>) -> Result<(), (Pending<P>, Error)> {
        if !self.name.is_empty() {
            // SAFETY: made by `spawn` or a sibling, whose handle has not left this thread.
            unsafe { item.rename(self.name) };
        }
        if let Some(home) = self.home {
            item.attachment.give_home(home.clone());
        }
        let (cpu, submit) = match self.cpu {
            Some(cpu) => (cpu, SubmitKind::Named),
            None => (P::current_cpu(), SubmitKind::New),
        };
        match self.target {
            Target::Owned(queue) => queue.shared().send_new(item, cpu, submit),
            Target::Handle(handle) => handle.send(item, cpu, submit),
        }
    }

    pub(crate) fn send_or_refuse(self, item: Pending<P>) {
        let queue = self.queue();
        if let Err((item, error)) = self.send(item) {
            refuse(item);
            // A queue that has ended is no surprise to a caller with a handle.
            if !matches!(error, Error::Ended { .. }) {
                queue.warn_refused();
            }
        }
    }
}

impl<P: Platform> fmt::Debug for TaskBuilder<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskBuilder")
            .field("queue", &self.queue().name)
            .field("home", &self.home)
            .field("cpu", &self.cpu)
            .field("name", &self.name)
            .finish()
    }
}

/// Ends a task that its queue has refused: its handle says so.
#[cold]
pub(crate) fn refuse<P: Platform>(item: Pending<P>) {
    let refuse = item.table().refuse;
    // SAFETY: made a moment ago, and not queued; its handle is alive.
    unsafe { refuse(item.into_raw()) };
}

/// Why `try_spawn` or `try_spawn_future` refused a closure or future, and the closure or future itself.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{Error, Workqueue};
///
/// let queue = Workqueue::builder("short lived").build()?;
/// let handle = queue.handle();
/// drop(queue);
/// let refused = handle.try_spawn(|| 42).unwrap_err();
/// assert!(matches!(refused.error(), Error::Ended { .. }));
/// assert_eq!((refused.into_inner())(), 42);
/// # Ok::<(), nearq::Error>(())
/// ```
pub struct TrySpawnError<F> {
    error: Error,
    task: F,
}

impl<F> TrySpawnError<F> {
    /// Returns why it was refused.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the reason alone; the closure or future is dropped.
    pub fn into_error(self) -> Error {
        self.error
    }

    /// Returns the closure or future, which has not begun.
    pub fn into_inner(self) -> F {
        self.task
    }
}

impl<F> From<TrySpawnError<F>> for Error {
    fn from(refused: TrySpawnError<F>) -> Self {
        refused.error
    }
}

impl<F> fmt::Display for TrySpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<F> fmt::Debug for TrySpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<F> std::error::Error for TrySpawnError<F> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}
