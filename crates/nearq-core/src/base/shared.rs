//! Pointers that are recovered from their addresses: one more reference to a value in an `Arc`, by a plain reference to it; and the nodes
//! of lists onto which any thread pushes.
//!
//! A plain reference may be used for the value alone, and the count lies in front of the value. So the pointer to the whole is exposed when
//! the `Arc` is made, and recovered from the address.

use core::ptr::NonNull;
use std::sync::Arc;

/// Puts the value into an `Arc` of which [`share`] can make more.
pub(crate) fn exposed<T>(value: T) -> Arc<T> {
    expose(Arc::new(value))
}

/// Makes an existing `Arc` usable by [`share`].
pub(crate) fn expose<T>(arc: Arc<T>) -> Arc<T> {
    let _ = Arc::as_ptr(&arc).expose_provenance();
    arc
}

/// Adds one reference.
///
/// # Safety
/// The value lies in an `Arc` that [`exposed`] has made, and a reference to that exists throughout the call.
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
// A thread that is about to push has written the first node's address into its own node. Meanwhile that first node may be taken and freed,
// and another node may be made at the same address and pushed. Then the exchange, which compares addresses, succeeds, and the pointer
// points to the freed node. So a node's address is exposed before the node is pushed, and the thread that takes the list recovers pointers
// from addresses.

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
