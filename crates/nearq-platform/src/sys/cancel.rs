//! Being cancelled (`pthread_cancel`).

use core::ffi::c_int;
use core::ptr;

unsafe extern "C" {
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DEFERRED` of the C libraries' `pthread.h`.
const DEFERRED: c_int = 0;

/// `pthread_setcanceltype`: from now on the caller ends at cancellation points only, if it is cancelled.
///
/// Does nothing under Miri, where no thread is cancelled.
pub(crate) fn defer_cancellation() {
    if cfg!(miri) {
        return;
    }
    // SAFETY: validity: a type that there is; a null pointer says that the one before is not asked for. Aliasing: none. Thread: changes
    // the caller alone, which does not end here, as it is of the deferred type then.
    unsafe { pthread_setcanceltype(DEFERRED, ptr::null_mut()) };
}
