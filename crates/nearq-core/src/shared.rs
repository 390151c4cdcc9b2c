//! One more reference of what lies in an `Arc`, by a plain reference to it.
//!
//! A plain reference may be used for the value alone, and the count lies in front of that. So the pointer of the whole is exposed when the
//! `Arc` is made, and taken up again by the address.

use std::sync::Arc;

/// Puts the value into an `Arc` of which [`share`] can make more.
pub(crate) fn exposed<T>(value: T) -> Arc<T> {
    let arc = Arc::new(value);
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
