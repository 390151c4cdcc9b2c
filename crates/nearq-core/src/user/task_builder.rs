//! [`TaskBuilder`]: spawns a closure or future with settings of its own; and [`TrySpawnError`], which returns one that was refused.

use core::fmt;
use core::future::Future;
use std::sync::Arc;

use nearq_platform::{Linux, Platform};

use crate::base::error::Error;
use crate::homes::Home;
use crate::item::owned::Pending;
use crate::queue::SubmitKind;
use crate::task;
use crate::task::join::JoinHandle;
use crate::user::handle::Handle;
use crate::user::workqueue::Workqueue;

/// Where a new task goes.
enum Target<'queue, P: Platform> {
    /// Open as long as the builder lives.
    Owned(&'queue Workqueue<P>),
    /// Possibly ended.
    Handle(&'queue Handle<P>),
}

/// Settings of one closure or future before it is spawned; returned by [`Workqueue::task`] and [`Handle::task`].
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{Workqueue, home::Home};
///
/// let queue = Workqueue::builder("tables").build()?;
/// let home = Home::pick()?;
/// assert_eq!(queue.task().home(&home).spawn(|| 2 + 3).join().unwrap(), 5);
/// let on_cpu_0 = queue.task().on_cpu(0)?.spawn_future(async { 6 });
/// assert_eq!(on_cpu_0.join().unwrap(), 6);
/// # Ok::<(), nearq::Error>(())
/// ```
#[must_use = "a builder spawns nothing until `spawn`"]
pub struct TaskBuilder<'queue, P: Platform = Linux> {
    target: Target<'queue, P>,
    home: Option<&'queue Home<P>>,
    cpu: Option<usize>,
}

impl<'queue, P: Platform> TaskBuilder<'queue, P> {
    pub(crate) fn by_owner(queue: &'queue Workqueue<P>) -> Self {
        TaskBuilder { target: Target::Owned(queue), home: None, cpu: None }
    }

    pub(crate) fn by_handle(queue: &'queue Handle<P>) -> Self {
        TaskBuilder { target: Target::Handle(queue), home: None, cpu: None }
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

    /// Queues a closure as [`Workqueue::spawn`] does.
    pub fn spawn<T: Send + 'static>(
        self,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T, P> {
        let (item, handle) = task::new(closure);
        self.send_or_refuse(item);
        handle
    }

    /// Queues a closure as [`Workqueue::try_spawn`] does.
    ///
    /// # Errors
    /// As [`Workqueue::try_spawn`]; through a [`Handle`], also [`Error::Ended`].
    pub fn try_spawn<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        self,
        closure: F,
    ) -> Result<JoinHandle<T, P>, TrySpawnError<F>> {
        let (item, handle) = task::new(closure);
        match self.send(item) {
            Ok(()) => Ok(handle),
            Err((item, error)) => Err(TrySpawnError { error, task: task::take_back(item, handle) }),
        }
    }

    /// Queues a future as [`Workqueue::spawn_future`] does.
    pub fn spawn_future<T: Send + 'static>(
        self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T, P> {
        let route = Arc::downgrade(self.queue());
        let (item, handle) = task::future::owned(task::Alone, route, future);
        self.send_or_refuse(item);
        handle
    }

    /// Queues a future as [`spawn_future`](Self::spawn_future) does, but returns an error that holds the future if it is refused.
    ///
    /// # Errors
    /// As [`try_spawn`](Self::try_spawn).
    pub fn try_spawn_future<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        self,
        future: F,
    ) -> Result<JoinHandle<T, P>, TrySpawnError<F>> {
        let route = Arc::downgrade(self.queue());
        let (item, handle) = task::future::owned(task::Alone, route, future);
        match self.send(item) {
            Ok(()) => Ok(handle),
            Err((item, error)) => {
                let task = task::future::take_back::<P, _, _>(item, handle);
                Err(TrySpawnError { error, task })
            }
        }
    }

    fn send(self, item: Pending<P>) -> Result<(), (Pending<P>, Error)> {
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
