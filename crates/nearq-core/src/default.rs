//! The process-wide runtime, and the system workqueues. Linux only: other platforms have no process-wide anything.
//!
//! Both are made on first use and never dropped: a process may exit while their items run.

use nearq_platform::{Linux, Ordering, Platform};

use crate::builder::RuntimeBuilder;
use crate::error::Error;
use crate::runtime::Runtime;
use crate::workqueue::Workqueue;

type Pointer<T> = <Linux as Platform>::AtomicPtr<T>;

/// A value that is made once, by whoever comes first.
struct Once<T>(Pointer<T>);

impl<T: Send + Sync> Once<T> {
    const fn new() -> Self {
        Once(Pointer::new(core::ptr::null_mut()))
    }

    fn get_or_make(
        &'static self,
        make: impl FnOnce() -> Result<T, Error>,
    ) -> Result<&'static T, Error> {
        // Acquire: pairs with the release of who made it.
        let known = self.0.load(Ordering::Acquire);
        // SAFETY: null, or a box that is never freed.
        if let Some(known) = unsafe { known.as_ref() } {
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
                // SAFETY: ours; somebody else was faster, and nobody has seen it. Its drop ends no thread: it has none.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: not null, and never freed.
                Ok(unsafe { &*first })
            }
        }
    }
}

static RUNTIME: Once<Runtime> = Once::new();
static SYSTEM_UNBOUND: Once<Workqueue> = Once::new();
static SYSTEM_LONG: Once<Workqueue> = Once::new();

/// What the kernel gives its system queues.
const SYSTEM_MAX_ACTIVE: usize = 2048;

impl Runtime<Linux> {
    /// Settings of a new runtime.
    pub fn builder() -> RuntimeBuilder {
        Self::builder_in()
    }

    /// The process-wide runtime, made on first use.
    ///
    /// # Errors
    /// The machine cannot be described, or an environment variable has a value that is not known.
    pub fn try_default() -> Result<Self, Error> {
        RUNTIME.get_or_make(|| Self::builder().build()).cloned()
    }
}

impl Default for Runtime<Linux> {
    /// The process-wide runtime, made on first use.
    ///
    /// # Panics
    /// Where [`try_default`](Self::try_default) fails.
    fn default() -> Self {
        match Self::try_default() {
            Ok(runtime) => runtime,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The queue for anything that needs none of its own; 2048 items active at most.
///
/// # Panics
/// Where [`Runtime::try_default`] fails.
pub fn system_unbound() -> &'static Workqueue {
    system(&SYSTEM_UNBOUND, "events_unbound")
}

/// As [`system_unbound`], for items that take long, so that others can be waited for without them.
///
/// # Panics
/// Where [`Runtime::try_default`] fails.
pub fn system_long() -> &'static Workqueue {
    system(&SYSTEM_LONG, "events_dfl_long")
}

fn system(queue: &'static Once<Workqueue>, name: &str) -> &'static Workqueue {
    let made = queue.get_or_make(|| Workqueue::builder(name).max_active(SYSTEM_MAX_ACTIVE).build());
    match made {
        Ok(queue) => queue,
        Err(error) => panic!("{error}"),
    }
}
