//! Freeing an item, and other foreign code that a worker runs between two items.

use core::ptr::NonNull;

use nearq_platform::Platform;

use crate::item::{Finished, Item};

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
    let executed =
        crate::context::with_current::<P, _>(|context| context.item.replace(core::ptr::null()));
    crate::outcome::contain(foreign);
    if let Some(executed) = executed {
        crate::context::with_current::<P, _>(|context| context.item.set(executed));
    }
}
