//! The process-wide runtime, and the system workqueues. Linux only: other platforms have no process-wide anything.
//!
//! Both are made on first use and never dropped: a process may exit while their items run.

use nearq_platform::{Linux, LockPlatform, Ordering};

use crate::base::error::Error;
use crate::queue::runtime::Runtime;
use crate::user::builder::RuntimeBuilder;
use crate::user::settings::WorkqueueBuilder;
use crate::user::workqueue::Workqueue;

type Pointer<T> = <Linux as LockPlatform>::AtomicPtr<T>;

/// A value that is made once, by the first thread that needs it.
struct Once<T>(Pointer<T>);

impl<T: Send + Sync> Once<T> {
    const fn new() -> Self {
        Once(Pointer::new(core::ptr::null_mut()))
    }

    fn get(&'static self) -> Option<&'static T> {
        // Acquire: pairs with the release of the thread that made it.
        let known = self.0.load(Ordering::Acquire);
        // SAFETY: null, or a box that is never freed.
        unsafe { known.as_ref() }
    }

    fn get_or_make(
        &'static self,
        make: impl FnOnce() -> Result<T, Error>,
    ) -> Result<&'static T, Error> {
        if let Some(known) = self.get() {
            return Ok(known);
        }
        Ok(match self.offer(make()?) {
            Ok(ours) => ours,
            Err(first) => first,
        })
    }

    /// Stores the value unless there is one already, which is then returned as the error.
    fn offer(&'static self, value: T) -> Result<&'static T, &'static T> {
        let made = Box::into_raw(Box::new(value));
        match self.0.compare_exchange(
            core::ptr::null_mut(),
            made,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            // SAFETY: just made, and never freed.
            Ok(_) => Ok(unsafe { &*made }),
            Err(first) => {
                // SAFETY: the box is ours; another thread was faster, and no thread has seen ours. Its drop ends no thread: it has none.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: not null, and never freed.
                Err(unsafe { &*first })
            }
        }
    }
}

static RUNTIME: Once<Runtime> = Once::new();
static ATTENDANT: Once<fn()> = Once::new();
static PERCPU: Once<Workqueue> = Once::new();
static UNBOUND: Once<Workqueue> = Once::new();
static HIGHPRI: Once<Workqueue> = Once::new();
static LONG: Once<Workqueue> = Once::new();
static UNBOUND_LONG: Once<Workqueue> = Once::new();
static FREEZABLE: Once<Workqueue> = Once::new();

/// The limit that the kernel gives its unbound system queues; the per-CPU ones have the default.
const UNBOUND_MAX_ACTIVE: usize = 2048;

impl Runtime<Linux> {
    /// Returns the settings of a new runtime.
    pub fn builder() -> RuntimeBuilder {
        Self::builder_in()
    }

    /// Returns the process-wide runtime, which is made on first use with the default settings, or those of
    /// [`build_global`](RuntimeBuilder::build_global). It is never dropped: a process may exit while its items run.
    ///
    /// # Panics
    /// If [`try_global`](Self::try_global) fails.
    pub fn global() -> &'static Self {
        match Self::try_global() {
            Ok(runtime) => runtime,
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns the process-wide runtime as [`global`](Self::global) does, but an error instead of a panic. If an environment variable has
    /// an unknown value, it counts as not set, and one warning says so.
    ///
    /// # Errors
    /// The machine cannot be described ([`Error::Machine`]).
    pub fn try_global() -> Result<&'static Self, Error> {
        RUNTIME.get_or_make(|| build_global(Self::builder()))
    }
}

impl RuntimeBuilder<Linux> {
    /// Builds the process-wide runtime with these settings. Call it at the beginning of `main`, before anything else uses that runtime.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Runtime, Workqueue};
    ///
    /// Runtime::builder().thread_limit(64).build_global()?;
    /// let queue = Workqueue::builder("of that runtime").build()?;
    /// assert!(Runtime::builder().build_global().is_err(), "it exists");
    /// # drop(queue);
    /// # Ok::<(), nearq::Error>(())
    /// ```
    ///
    /// # Errors
    /// It exists already ([`Error::GlobalExists`]); or as [`build`](Self::build).
    pub fn build_global(self) -> Result<&'static Runtime, Error> {
        if RUNTIME.get().is_some() {
            return Err(Error::GlobalExists);
        }
        // Another thread may be making it now.
        RUNTIME.offer(build_global(self)?).map_err(|_| Error::GlobalExists)
    }
}

fn build_global(mut builder: RuntimeBuilder) -> Result<Runtime, Error> {
    builder.beginning.config.attendant = ATTENDANT.get().copied();
    builder.build()
}

/// Makes each worker of the process-wide runtime call `attendant` before it does anything else: for a crate that must be active in every
/// process that has workers, and in no other. The first one that is set before the runtime is made counts. Not for users.
#[doc(hidden)]
pub fn attend_default(attendant: fn()) {
    let _ = ATTENDANT.get_or_make(|| Ok(attendant));
}

/// Returns the per-CPU queue for short items that need no queue of their own; at most 1024 items are active on each CPU. The kernel's
/// `system_percpu_wq`.
///
/// An item should neither take long nor wait for another item of this queue: the items of the same CPU wait behind it.
///
/// # Panics
/// If [`Runtime::try_global`] fails.
pub fn percpu() -> &'static Workqueue {
    system(&PERCPU, || Workqueue::builder("events").per_cpu())
}

/// Returns the queue for anything that needs no queue of its own and may run on any CPU nearby; at most 2048 items are active. The kernel's
/// `system_dfl_wq`, formerly `system_unbound_wq`.
///
/// ```
/// # use nearq_core as nearq;
/// let sum = nearq::system::unbound().spawn(|| (1..=10).sum::<u32>());
/// assert_eq!(sum.join()?, 55);
/// # Ok::<(), nearq::JoinError>(())
/// ```
///
/// # Panics
/// If [`Runtime::try_global`] fails.
pub fn unbound() -> &'static Workqueue {
    system(&UNBOUND, || Workqueue::builder("events_unbound").max_active(UNBOUND_MAX_ACTIVE))
}

/// Returns a queue like [`percpu`], but with workers that the scheduler [favours](WorkqueueBuilder::highpri): for short items that must not
/// wait for the CPU. The kernel's `system_highpri_wq`.
///
/// ```
/// # use nearq_core as nearq;
/// let answer = nearq::system::highpri().spawn(|| 42);
/// assert_eq!(answer.join()?, 42);
/// # Ok::<(), nearq::JoinError>(())
/// ```
///
/// # Panics
/// If [`Runtime::try_global`] fails.
pub fn highpri() -> &'static Workqueue {
    system(&HIGHPRI, || Workqueue::builder("events_highpri").per_cpu().highpri())
}

/// Returns a queue like [`percpu`], for items that take long: a thread that flushes [`percpu`] does not wait for them. The kernel's
/// `system_long_wq`.
///
/// # Panics
/// If [`Runtime::try_global`] fails.
pub fn long() -> &'static Workqueue {
    system(&LONG, || Workqueue::builder("events_long").per_cpu())
}

/// Returns a queue like [`unbound`], for items that take long: a thread that flushes [`unbound`] does not wait for them. The kernel's
/// `system_dfl_long_wq`.
///
/// # Panics
/// If [`Runtime::try_global`] fails.
pub fn unbound_long() -> &'static Workqueue {
    system(&UNBOUND_LONG, || Workqueue::builder("events_dfl_long").max_active(UNBOUND_MAX_ACTIVE))
}

/// Returns a queue like [`percpu`], for items that [`Runtime::freeze`] holds back. The kernel's `system_freezable_wq`.
///
/// # Panics
/// If [`Runtime::try_global`] fails.
pub fn freezable() -> &'static Workqueue {
    system(&FREEZABLE, || Workqueue::builder("events_freezable").per_cpu().freezable())
}

fn system(
    queue: &'static Once<Workqueue>,
    settings: fn() -> WorkqueueBuilder,
) -> &'static Workqueue {
    match queue.get_or_make(|| settings().build()) {
        Ok(queue) => queue,
        Err(error) => panic!("{error}"),
    }
}
