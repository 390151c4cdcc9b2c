//! Pointers that are taken up again by their addresses: one more reference of what lies in an `Arc`, by a plain reference to it; and the nodes
//! of lists onto which any thread pushes.
//!
//! A plain reference may be used for the value alone, and the count lies in front of that. So the pointer of the whole is exposed when the
//! `Arc` is made, and taken up again by the address.

use core::ptr::NonNull;
use std::sync::Arc;

/// Puts the value into an `Arc` of which [`share`] can make more.
pub(crate) fn exposed<T>(value: T) -> Arc<T> {
    expose(Arc::new(value))
}

/// Lets [`share`] make more of an `Arc`.
pub(crate) fn expose<T>(arc: Arc<T>) -> Arc<T> {
    let _ = Arc::as_ptr(&arc).expose_provenance();
    arc
}

/// One reference more.
///
/// # Safety
/// The value lies in an `Arc` that [`exposed`] has made, and somebody has a reference of that throughout the call.
pub(crate) unsafe fn share<T>(value: &T) -> Arc<T> {
    let whole = core::ptr::with_exposed_provenance::<T>(core::ptr::from_ref(value).addr());
    // SAFETY: as the caller promises.
    unsafe {
        Arc::increment_strong_count(whole);
        Arc::from_raw(whole)
    }
}

// ---- nodes of lists ------------------------------------------------------------------------------------------
//
// A thread that is about to push has written the first node's address into its own node. Meanwhile that first node may be taken and freed, and
// another one be made at the same address and pushed: then the exchange, which compares addresses, succeeds, and the pointer is one to what is
// gone. So a node is made public by its address before it is pushed, and the thread that takes the list goes by addresses.

/// The node's pointer, as it is pushed.
#[inline(always)]
pub(crate) fn pushed<T>(node: NonNull<T>) -> *mut T {
    let _ = node.as_ptr().expose_provenance();
    node.as_ptr()
}

/// The node at that address, which was [`pushed`]; none if it is null.
#[inline(always)]
pub(crate) fn taken<T>(node: *const T) -> Option<NonNull<T>> {
    NonNull::new(core::ptr::with_exposed_provenance_mut(node.addr()))
}
