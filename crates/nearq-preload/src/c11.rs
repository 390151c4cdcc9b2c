//! C11's `mtx_*` and `cnd_*`: the same objects as `pthread_mutex_t` and `pthread_cond_t`, with different return values.
//!
//! `mtx_init` stays the C library's: it writes the kind, and zeros. `mtx_timedlock` and `cnd_timedwait` use the real-time clock.

use core::ffi::{CStr, c_int};
use core::ptr;

use libc::{pthread_cond_t, pthread_mutex_t, timespec};

use crate::exports::{
    pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_init, pthread_cond_signal,
    pthread_cond_timedwait, pthread_cond_wait, pthread_mutex_destroy, pthread_mutex_lock,
    pthread_mutex_timedlock, pthread_mutex_trylock, pthread_mutex_unlock,
};
use crate::real;

const SUCCESS: c_int = 0;
const BUSY: c_int = 1;
pub(crate) const ERROR: c_int = 2;
const NO_MEMORY: c_int = 3;
const TIMED_OUT: c_int = 4;

/// C11's return value for an error number.
fn word(error: c_int) -> c_int {
    match error {
        0 => SUCCESS,
        libc::EBUSY => BUSY,
        libc::ENOMEM => NO_MEMORY,
        libc::ETIMEDOUT => TIMED_OUT,
        _ => ERROR,
    }
}

/// Exports C11's functions by means of POSIX's.
macro_rules! export {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty, $body:expr;)*) => {
        /// All of them must be ours, like the functions in `exports.rs`.
        pub(crate) const ALL: &[&CStr] = &[$(real::symbol(concat!(stringify!($name), "\0"))),*];
        $(
        // SAFETY: the name and type of the C library's function, which it does the work of.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $out {
            // SAFETY: as the caller promises.
            let outcome = unsafe { $body };
            Outcome::from_error(outcome)
        }
        )*
    };
}

/// What a function of C11 returns.
trait Outcome {
    fn from_error(error: c_int) -> Self;
}

impl Outcome for c_int {
    fn from_error(error: c_int) -> Self {
        word(error)
    }
}

impl Outcome for () {
    fn from_error(_error: c_int) {}
}

export! {
    mtx_lock(mutex: *mut pthread_mutex_t) -> c_int, pthread_mutex_lock(mutex);
    mtx_trylock(mutex: *mut pthread_mutex_t) -> c_int, pthread_mutex_trylock(mutex);
    mtx_timedlock(mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int, pthread_mutex_timedlock(mutex, until);
    mtx_unlock(mutex: *mut pthread_mutex_t) -> c_int, pthread_mutex_unlock(mutex);
    mtx_destroy(mutex: *mut pthread_mutex_t) -> (), pthread_mutex_destroy(mutex);
    cnd_init(condvar: *mut pthread_cond_t) -> c_int, pthread_cond_init(condvar, ptr::null());
    cnd_signal(condvar: *mut pthread_cond_t) -> c_int, pthread_cond_signal(condvar);
    cnd_broadcast(condvar: *mut pthread_cond_t) -> c_int, pthread_cond_broadcast(condvar);
    cnd_wait(condvar: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int, pthread_cond_wait(condvar, mutex);
    cnd_timedwait(condvar: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int, pthread_cond_timedwait(condvar, mutex, until);
    cnd_destroy(condvar: *mut pthread_cond_t) -> (), pthread_cond_destroy(condvar);
}
