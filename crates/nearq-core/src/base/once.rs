//! A value that is made when it is first needed, by any thread.
//!
//! A thread that needs it and finds none makes one, and stores its address if no other thread has done so meanwhile; otherwise it drops its
//! own. So no thread waits for another one. The exchange releases the value, and each load acquires it.

use nearq_platform::{Atomic, Ordering, Platform};

/// See the head of the file.
pub(crate) struct Once<P: Platform, T>(P::AtomicPtr<T>);

impl<P: Platform, T> Once<P, T> {
    pub(crate) fn new() -> Self {
        Once(P::AtomicPtr::new(core::ptr::null_mut()))
    }

    /// The value, if it has been made.
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: null, or the value, which lives as long as this.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// The value.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(made) = self.get() {
            return made;
        }
        let own = Box::into_raw(Box::new(make()));
        let null = core::ptr::null_mut();
        match self.0.compare_exchange(null, own, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it lives as long as this.
            Ok(_) => unsafe { &*own },
            Err(other) => {
                // SAFETY: made above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(own) });
                // SAFETY: the value of another thread; it lives as long as this.
                unsafe { &*other }
            }
        }
    }
}

// SAFETY: as for a box that is shared.
unsafe impl<P: Platform, T: Send + Sync> Send for Once<P, T> {}
// SAFETY: as above: the value may be made by one thread, read by others, and dropped by another one.
unsafe impl<P: Platform, T: Send + Sync> Sync for Once<P, T> {}

impl<P: Platform, T> Drop for Once<P, T> {
    fn drop(&mut self) {
        let made = self.0.load(Ordering::Acquire);
        if !made.is_null() {
            // SAFETY: made as a box, and this is its owner.
            drop(unsafe { Box::from_raw(made) });
        }
    }
}
