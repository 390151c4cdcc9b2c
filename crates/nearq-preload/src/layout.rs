//! What we know of the inside of the C library's objects, verified before we rely on it.
//!
//! | object | bytes | |
//! |---|---|---|
//! | `pthread_mutex_t` | 0 to 3 | zero when free: our mutex's word |
//! | | 4 to 7 | how many times a recursive one is held |
//! | | 8 to 11 | the holder's number, for debuggers; only in mutexes that know their holder |
//! | | 12 to 15 | ours: how many threads wait for a condition with it |
//! | | 16 to 19 | **the kind**: type in the lower four bits, then robust, inheriting, protecting, shared |
//! | | 24 to 39 | ours: the holder's thread pointer and name |
//! | `pthread_cond_t` | one word | **bit 0: shared between processes**, bit 1: by the monotonic clock. Byte 36 up to glibc 2.40, byte 28 since |
//! | | the rest | ours, while that bit is clear (`condvar.rs`) |
//! | `pthread_rwlock_t` | 0 to 23 | zero when free: ours (`rwlock.rs`) |
//! | | 24 to 27 | the writer's number, for debuggers |
//! | | 28 to 31 | **1 if it is shared between processes**; then it is one of the C library's |
//! | | 48 to 51 | **the kind** |

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use libc::{pthread_cond_t, pthread_mutex_t, pthread_rwlock_t, pthread_rwlockattr_t};

use crate::real;

/// The offset of a mutex's kind.
pub(crate) const KIND: usize = 16;

/// The offset at which a reader-writer lock says whether it is shared.
pub(crate) const RWLOCK_SHARED: usize = 28;

/// The offset of a reader-writer lock's kind.
pub(crate) const RWLOCK_KIND: usize = 48;

/// The offsets at which a condition variable may say that it is shared.
const SHARED_AT: [usize; 2] = [36, 28];

/// The one that applies here.
static SHARED: AtomicUsize = AtomicUsize::new(SHARED_AT[0]);

/// Whether a condition variable is shared between processes; then it is one of the C library's.
#[inline]
pub(crate) unsafe fn is_shared(condvar: *const pthread_cond_t) -> bool {
    // SAFETY: as the caller promises.
    unsafe { shared_word(condvar) & 1 == 1 }
}

/// The clock that a shared condition variable uses.
pub(crate) unsafe fn shared_clock(condvar: *const pthread_cond_t) -> libc::clockid_t {
    // SAFETY: as the caller promises.
    let word = unsafe { shared_word(condvar) };
    if word & 2 == 0 { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC }
}

#[inline]
unsafe fn shared_word(condvar: *const pthread_cond_t) -> u32 {
    // Relaxed for both: the place was found before the decision; the bits do not change while the condition variable lives.
    let at = SHARED.load(Ordering::Relaxed);
    // SAFETY: within the object, which the caller promises to be one; the C library changes the word by atomic steps too.
    unsafe { &*condvar.byte_add(at).cast::<AtomicU32>() }.load(Ordering::Relaxed)
}

/// Verifies that the layouts are as described above.
pub(crate) fn is_known() -> bool {
    mutexes_are_known() && condvars_are_known() && rwlocks_are_known()
}

fn mutexes_are_known() -> bool {
    [libc::PTHREAD_MUTEX_RECURSIVE, libc::PTHREAD_MUTEX_ERRORCHECK].into_iter().all(|kind| {
        let bytes = new_mutex(kind);
        let expected = |at| if at == KIND { kind as u8 } else { 0 };
        bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at))
    })
}

/// The bytes of a mutex of a type, as the C library makes it.
fn new_mutex(kind: c_int) -> [u8; size_of::<pthread_mutex_t>()] {
    let mut bytes = [0; size_of::<pthread_mutex_t>()];
    let mut attributes = MaybeUninit::uninit();
    let mut mutex = MaybeUninit::<pthread_mutex_t>::zeroed();
    // SAFETY: objects of ours, made and ended in order; a mutex of bytes may be read as bytes.
    unsafe {
        libc::pthread_mutexattr_init(attributes.as_mut_ptr());
        libc::pthread_mutexattr_settype(attributes.as_mut_ptr(), kind);
        real::mutex_init::call(mutex.as_mut_ptr(), attributes.as_ptr());
        bytes.as_mut_ptr().copy_from_nonoverlapping(mutex.as_ptr().cast(), bytes.len());
        real::mutex_destroy::call(mutex.as_mut_ptr());
        libc::pthread_mutexattr_destroy(attributes.as_mut_ptr());
    }
    bytes
}

/// Whether exactly one of the places has the bits, and nothing else is set.
fn condvars_are_known() -> bool {
    let private = new_condvar(libc::PTHREAD_PROCESS_PRIVATE, libc::CLOCK_REALTIME);
    let shared = new_condvar(libc::PTHREAD_PROCESS_SHARED, libc::CLOCK_REALTIME);
    let monotonic = new_condvar(libc::PTHREAD_PROCESS_SHARED, libc::CLOCK_MONOTONIC);
    let set = shared.iter().position(|byte| *byte != 0);
    let Some(at) = set.filter(|at| SHARED_AT.contains(at)) else { return false };
    // Relaxed: published by the decision.
    SHARED.store(at, Ordering::Relaxed);
    let is = |bytes: &[u8], value| {
        bytes.iter().enumerate().all(|(place, byte)| *byte == if place == at { value } else { 0 })
    };
    is(&private, 0) && is(&shared, 1) && is(&monotonic, 3)
}

fn new_condvar(shared: c_int, clock: libc::clockid_t) -> [u8; size_of::<pthread_cond_t>()] {
    let mut bytes = [0; size_of::<pthread_cond_t>()];
    let mut attributes = MaybeUninit::uninit();
    let mut condvar = MaybeUninit::<pthread_cond_t>::zeroed();
    // SAFETY: objects of ours, made and ended in order; a condition variable of bytes may be read as bytes.
    unsafe {
        libc::pthread_condattr_init(attributes.as_mut_ptr());
        libc::pthread_condattr_setpshared(attributes.as_mut_ptr(), shared);
        libc::pthread_condattr_setclock(attributes.as_mut_ptr(), clock);
        real::cond_init::call(condvar.as_mut_ptr(), attributes.as_ptr());
        bytes.as_mut_ptr().copy_from_nonoverlapping(condvar.as_ptr().cast(), bytes.len());
        real::cond_destroy::call(condvar.as_mut_ptr());
        libc::pthread_condattr_destroy(attributes.as_mut_ptr());
    }
    bytes
}

unsafe extern "C" {
    fn pthread_rwlockattr_setkind_np(attributes: *mut pthread_rwlockattr_t, kind: c_int) -> c_int;
}

/// Whether only the kind and the mark of a shared one are not zero.
fn rwlocks_are_known() -> bool {
    let is = |bytes: [u8; size_of::<pthread_rwlock_t>()], shared, kind| {
        bytes.iter().enumerate().all(|(at, byte)| match at {
            RWLOCK_SHARED => *byte == shared,
            RWLOCK_KIND => *byte == kind,
            _ => *byte == 0,
        })
    };
    is(new_rwlock(libc::PTHREAD_PROCESS_PRIVATE, 0), 0, 0)
        && is(new_rwlock(libc::PTHREAD_PROCESS_PRIVATE, 2), 0, 2)
        && is(new_rwlock(libc::PTHREAD_PROCESS_SHARED, 0), 1, 0)
}

fn new_rwlock(shared: c_int, kind: c_int) -> [u8; size_of::<pthread_rwlock_t>()] {
    let mut bytes = [0; size_of::<pthread_rwlock_t>()];
    let mut attributes = MaybeUninit::uninit();
    let mut lock = MaybeUninit::<pthread_rwlock_t>::zeroed();
    // SAFETY: objects of ours, made and ended in order; a lock of bytes may be read as bytes.
    unsafe {
        libc::pthread_rwlockattr_init(attributes.as_mut_ptr());
        libc::pthread_rwlockattr_setpshared(attributes.as_mut_ptr(), shared);
        pthread_rwlockattr_setkind_np(attributes.as_mut_ptr(), kind);
        real::rwlock_init::call(lock.as_mut_ptr(), attributes.as_ptr());
        bytes.as_mut_ptr().copy_from_nonoverlapping(lock.as_ptr().cast(), bytes.len());
        real::rwlock_destroy::call(lock.as_mut_ptr());
        libc::pthread_rwlockattr_destroy(attributes.as_mut_ptr());
    }
    bytes
}

/// This applies to the C library to which the type's definition belongs.
const _: () = assert!(
    size_of::<pthread_mutex_t>() >= 40
        && size_of::<pthread_cond_t>() == 48
        && align_of::<pthread_cond_t>() >= align_of::<*const ()>()
);
