//! The C library's mutex, of the kinds that do not look at who holds them.

use super::contestant::Exclusive;
use core::cell::UnsafeCell;
use libc::{PTHREAD_MUTEX_INITIALIZER, pthread_mutex_t};

/// A mutex of the C library: the ordinary kind, or the one that looks for a while before it sleeps.
///
/// It is what the static initialiser says until it is first locked, holds no address of its own, and is not moved from then on.
pub(super) struct Pthread<const ADAPTIVE: bool>(UnsafeCell<pthread_mutex_t>);

// SAFETY: a mutex is there to be used by several threads; it is locked from no thread before it is shared, so it may go to
// another one.
unsafe impl<const ADAPTIVE: bool> Send for Pthread<ADAPTIVE> {}
// SAFETY: as above.
unsafe impl<const ADAPTIVE: bool> Sync for Pthread<ADAPTIVE> {}

#[cfg(target_env = "gnu")]
const ADAPTIVE_INITIALIZER: pthread_mutex_t = libc::PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
/// Other C libraries have the ordinary kind alone.
#[cfg(not(target_env = "gnu"))]
const ADAPTIVE_INITIALIZER: pthread_mutex_t = PTHREAD_MUTEX_INITIALIZER;

impl<const ADAPTIVE: bool> Exclusive for Pthread<ADAPTIVE> {
    fn free() -> Self {
        let initial = if ADAPTIVE { ADAPTIVE_INITIALIZER } else { PTHREAD_MUTEX_INITIALIZER };
        Self(UnsafeCell::new(initial))
    }

    #[inline]
    fn with<R>(&self, section: impl FnOnce() -> R) -> R {
        // SAFETY: the mutex was initialised, is borrowed and so lives, and the cell allows the C library to change it.
        let taken = unsafe { libc::pthread_mutex_lock(self.0.get()) };
        assert_eq!(taken, 0, "this kind refuses nothing");
        let result = section();
        // SAFETY: as above; the caller holds it, since just now.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
        result
    }
}
