//! The caller's `errno`, which functions of the mutex must leave alone.

use core::ffi::c_int;

/// Gives `errno` its value back when it is dropped.
pub(crate) struct Saved(c_int);

impl Saved {
    pub(crate) fn new() -> Self {
        // SAFETY: the C library's address of the caller's own `errno`.
        Saved(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        // SAFETY: as in `new`.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
