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
        let made = Box::into_raw(Box::new(make()?));
        match self.0.compare_exchange(
            core::ptr::null_mut(),
            made,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            // SAFETY: just made, and never freed.
            Ok(_) => Ok(unsafe { &*made }),
            Err(first) => {
                // SAFETY: ours; another thread was faster, and none has seen it. Its drop ends no thread: it has none.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: not null, and never freed.
                Ok(unsafe { &*first })
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
    /// Settings of a new runtime.
    pub fn builder() -> RuntimeBuilder {
        Self::builder_in()
    }

    /// The process-wide runtime, made on first use. If an environment variable has an unknown value, there is one warning, and it counts as
    /// not set.
    ///
    /// # Errors
    /// The machine cannot be described.
    pub fn try_default() -> Result<Self, Error> {
        let make = || {
            let mut builder = Self::builder();
            builder.beginning.config.attendant = ATTENDANT.get().copied();
            builder.build()
        };
        RUNTIME.get_or_make(make).cloned()
    }
}

/// Makes each worker of the process-wide runtime call `attendant` before it does anything else: for a crate that must be active in every
/// process that has workers, and in no other. The first one that is set before the runtime is made counts. Not for users.
#[doc(hidden)]
pub fn attend_default(attendant: fn()) {
    let _ = ATTENDANT.get_or_make(|| Ok(attendant));
}

impl Default for Runtime<Linux> {
    /// The process-wide runtime, made on first use.
    ///
    /// # Panics
    /// If [`try_default`](Self::try_default) fails.
    fn default() -> Self {
        match Self::try_default() {
            Ok(runtime) => runtime,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The per-CPU queue for short items that need none of their own; 1024 items active at most on each CPU.
///
/// An item should not take long, nor wait for another item of this queue: those of the same CPU wait behind it.
///
/// # Panics
/// If [`Runtime::try_default`] fails.
pub fn percpu() -> &'static Workqueue {
    system(&PERCPU, || Workqueue::builder("events").per_cpu())
}

/// The queue for anything that needs none of its own and may run on any CPU nearby; 2048 items active at most.
///
/// # Panics
/// If [`Runtime::try_default`] fails.
pub fn unbound() -> &'static Workqueue {
    system(&UNBOUND, || Workqueue::builder("events_unbound").max_active(UNBOUND_MAX_ACTIVE))
}

/// As [`percpu`], [favoured](WorkqueueBuilder::highpri) by the scheduler: for short items that must not wait for the CPU.
///
/// ```
/// # use nearq_core as nearq;
/// let answer = nearq::system::highpri().spawn(|| 42);
/// assert_eq!(answer.join()?, 42);
/// # Ok::<(), nearq::JoinError>(())
/// ```
///
/// # Panics
/// If [`Runtime::try_default`] fails.
pub fn highpri() -> &'static Workqueue {
    system(&HIGHPRI, || Workqueue::builder("events_highpri").per_cpu().highpri())
}

/// As [`percpu`], for items that take long, so that a wait for other items does not include them.
///
/// # Panics
/// If [`Runtime::try_default`] fails.
pub fn long() -> &'static Workqueue {
    system(&LONG, || Workqueue::builder("events_long").per_cpu())
}

/// As [`unbound`], for items that take long, so that a wait for other items does not include them.
///
/// # Panics
/// If [`Runtime::try_default`] fails.
pub fn unbound_long() -> &'static Workqueue {
    system(&UNBOUND_LONG, || Workqueue::builder("events_dfl_long").max_active(UNBOUND_MAX_ACTIVE))
}

/// As [`percpu`], for items that [`Runtime::freeze`] holds back.
///
/// # Panics
/// If [`Runtime::try_default`] fails.
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
