//! Values that are made one after another, never moved, and freed all together.
//!
//! Threads read them through raw pointers while more are added, so they must keep their addresses and must not be
//! reached through a `Box` that moves (which would claim them for itself alone).

use core::ptr::NonNull;

/// Owns values that are shared through raw pointers until it is dropped.
pub(crate) struct Kept<T>(Vec<NonNull<T>>);

// SAFETY: it owns its values, and hands out shared references only.
unsafe impl<T: Send> Send for Kept<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Kept<T> {}

impl<T> Kept<T> {
    pub(crate) const fn new() -> Self {
        Kept(Vec::new())
    }

    /// Keeps `value`; the pointer is good, for shared use, until this is dropped.
    pub(crate) fn add(&mut self, value: T) -> *mut T {
        let kept = NonNull::from(Box::leak(Box::new(value)));
        self.0.push(kept);
        kept.as_ptr()
    }

    /// The values, in the order in which they came.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        // SAFETY: from `add`, freed by the drop only, and never borrowed exclusively in between.
        self.0.iter().map(|kept| unsafe { kept.as_ref() })
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        for kept in self.0.drain(..) {
            // SAFETY: from `add`; whoever drops this says that nobody reads the values any more.
            drop(unsafe { Box::from_raw(kept.as_ptr()) });
        }
    }
}
