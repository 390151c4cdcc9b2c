//! Which item the current thread executes, if it is a worker; and foreign code that a worker runs between two items.
//!
//! The thread's slot (`Threads::slot`) points to the worker's `Context`, which begins with [`Executing`]. So this file knows neither
//! workers nor items: it has only the address of an item.

use core::cell::Cell;
use core::ptr::NonNull;

use nearq_platform::Platform;

/// What a worker executes. Private to its thread.
pub(crate) struct Executing {
    /// The item that it executes, or has executed last: after the execution, only an address to compare with. Null while the worker itself
    /// frees something (`fork`).
    pub(crate) item: Cell<*const ()>,
}

impl Executing {
    pub(crate) fn nothing() -> Self {
        Executing { item: Cell::new(core::ptr::null()) }
    }
}

/// Runs `f` with what the current thread executes, if it is a worker.
fn current<P: Platform, R>(f: impl FnOnce(&Executing) -> R) -> Option<R> {
    // SAFETY: the slot of a thread of platform P is null, or was set by `Context::enter` to a context of the same P on this thread's stack,
    // which begins with this record; the guard clears it before the context goes, and no other reference excludes ours.
    let executing = unsafe { P::slot().cast::<Executing>().as_ref() }?;
    Some(f(executing))
}

/// Whether the caller is a worker that executes the item at that address right now.
pub(crate) fn executes<P: Platform>(item: *const ()) -> bool {
    current::<P, _>(|executing| core::ptr::eq(executing.item.get(), item)).unwrap_or(false)
}

/// The item that the caller's thread executes, if the caller is in the function of an item.
pub(crate) fn item<P: Platform>() -> Option<NonNull<()>> {
    current::<P, _>(|executing| NonNull::new(executing.item.get().cast_mut())).flatten()
}

/// Runs foreign code that is not the function of an item, and contains its panic. The item that the calling worker executed last may be
/// gone, so it must not be touched if the foreign code forks (`fork`).
pub(crate) fn outside_item<P: Platform>(foreign: impl FnOnce()) {
    let executed = current::<P, _>(|executing| executing.item.replace(core::ptr::null()));
    crate::base::outcome::contain(foreign);
    if let Some(executed) = executed {
        current::<P, _>(|executing| executing.item.set(executed));
    }
}
