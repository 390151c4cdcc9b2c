//! Which item the current thread executes, if it is a worker; freeing an item, and other foreign code that a worker runs between two items.
//!
//! The thread's slot (`Platform::slot`) leads to the worker's `Context`, which begins with [`Executing`]. So this file knows items and no
//! workers.

use core::cell::Cell;
use core::ptr::NonNull;

use nearq_platform::Platform;

use crate::item::{Finished, Item};

/// What a worker executes. Private to its thread.
pub(crate) struct Executing<P: Platform> {
    /// The item that it executes, or has executed last: then only an address to compare with. Null while the worker itself
    /// frees something (`fork`).
    pub(crate) item: Cell<*const Item<P>>,
}

impl<P: Platform> Executing<P> {
    pub(crate) fn nothing() -> Self {
        Executing { item: Cell::new(core::ptr::null()) }
    }
}

/// Runs `f` with what the current thread executes, if it is a worker.
fn current<P: Platform, R>(f: impl FnOnce(&Executing<P>) -> R) -> Option<R> {
    // SAFETY: the slot of a thread of platform P is null, or was set by `Context::enter` to a context of the same P on this thread's stack,
    // which begins with this record; the guard clears it before the context goes, and nobody else has a reference that excludes ours.
    let executing = unsafe { P::slot().cast::<Executing<P>>().as_ref() }?;
    Some(f(executing))
}

/// Whether the caller is a worker that executes `item` right now.
pub(crate) fn executes<P: Platform>(item: *const Item<P>) -> bool {
    current::<P, _>(|executing| core::ptr::eq(executing.item.get(), item)).unwrap_or(false)
}

/// Frees an item. What its function captured may panic when it is dropped; that must not end a worker.
///
/// # Safety
/// Nobody has the item any more.
#[cold]
pub(crate) unsafe fn free<P: Platform>(item: NonNull<Item<P>>) {
    // SAFETY: as the caller says.
    outside_item::<P>(|| unsafe { (item.as_ref().table().free)(item) });
}

/// Frees an item if that is what is left to be done, or lets go of its last handle.
///
/// # Safety
/// Where it is to be freed, nobody has it any more; where a handle is left, it is the caller's.
pub(crate) unsafe fn free_if_over<P: Platform>(left: Finished, item: NonNull<Item<P>>) {
    match left {
        // SAFETY: as the caller says.
        Finished::Free => unsafe { free(item) },
        // SAFETY: as the caller says.
        Finished::Last => outside_item::<P>(|| unsafe { Item::let_go(item) }),
        Finished::Done | Finished::Deferred => {}
    }
}

/// Runs foreign code that is not the function of an item; a panic goes no further. What the calling worker executed last may be gone; should
/// the foreign code fork, that must not be touched (`fork`).
pub(crate) fn outside_item<P: Platform>(foreign: impl FnOnce()) {
    let executed = current::<P, _>(|executing| executing.item.replace(core::ptr::null()));
    crate::outcome::contain(foreign);
    if let Some(executed) = executed {
        current::<P, _>(|executing| executing.item.set(executed));
    }
}
