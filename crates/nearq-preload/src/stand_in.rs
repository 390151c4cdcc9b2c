//! Condition variables of the C library's, for programs' condition variables that are used with mutexes that are not ours.
//!
//! They are kept in groups (`groups.rs`, which has a model). One is initialised by the thread that takes it, before another thread can know
//! of it, and destroyed before it is given back.
//!
//! If there is no memory for a group, one of two static ones stands in, for any number of condition variables that use its clock
//! ([`common`]). A notification through one of those wakes all threads that wait there; for a thread that waits for something else, that is
//! a wake-up for no reason. `tests/c/no_memory.c` has programs that use them. There is no model of them, as an existing one is only ever
//! passed to the C library.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use libc::{clockid_t, pthread_cond_t};
use nearq_platform::{Linux, LockPlatform};

use crate::groups::Groups;
use crate::real;

static CONDVARS: Groups<pthread_cond_t, 64> = Groups::new();

/// A new condition variable that uses `clock`.
pub(crate) fn take(clock: clockid_t) -> *mut pthread_cond_t {
    let Some(place) = CONDVARS.take() else { return common(clock) };
    let condvar = place.get().cast();
    initialise(condvar, clock);
    condvar
}

fn initialise(condvar: *mut pthread_cond_t, clock: clockid_t) {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: attributes of ours, made and destroyed in order; the condition variable is ours.
    unsafe {
        libc::pthread_condattr_init(attributes.as_mut_ptr());
        libc::pthread_condattr_setclock(attributes.as_mut_ptr(), clock);
        real::cond_init::call(condvar, attributes.as_ptr());
        libc::pthread_condattr_destroy(attributes.as_mut_ptr());
    }
}

/// One that stands in for many.
struct Common {
    /// 0, 1 while it is initialised, 2 afterwards.
    state: AtomicU32,
    condvar: UnsafeCell<MaybeUninit<pthread_cond_t>>,
}

// SAFETY: only ever passed to the C library, after it was initialised, by the one thread that changes `state` to 1.
unsafe impl Sync for Common {}

impl Common {
    const fn new() -> Self {
        Common { state: AtomicU32::new(0), condvar: UnsafeCell::new(MaybeUninit::zeroed()) }
    }
}

/// For the real-time clock, and for the monotonic one.
static COMMON: [Common; 2] = [Common::new(), Common::new()];

/// How long to sleep until another thread has initialised one.
const MOMENT: Duration = Duration::from_micros(50);

/// The one that stands in for all that use a clock and for which there was no memory.
#[cold]
fn common(clock: clockid_t) -> *mut pthread_cond_t {
    let common = &COMMON[usize::from(clock == libc::CLOCK_MONOTONIC)];
    // Acquire: pairs with the release below.
    match common.state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
            initialise(common.condvar.get().cast(), clock);
            // Release: it is initialised.
            common.state.store(2, Ordering::Release);
        }
        // Acquire: pairs with the release of the thread that initialises it.
        Err(_) => {
            while common.state.load(Ordering::Acquire) != 2 {
                Linux::sleep(MOMENT);
            }
        }
    }
    common.condvar.get().cast()
}

/// Whether it stands in for several.
pub(crate) fn is_common(condvar: *mut pthread_cond_t) -> bool {
    COMMON.iter().any(|common| common.condvar.get().cast() == condvar)
}

/// In the child of a fork, whose only thread is the caller: no thread is initialising any.
pub(crate) fn forked() {
    for common in &COMMON {
        // Relaxed: the caller is the only thread.
        if common.state.load(Ordering::Relaxed) == 1 {
            common.state.store(0, Ordering::Relaxed);
        }
    }
}

/// Destroys a condition variable, which no thread uses any more, when all that were notified have left it.
pub(crate) fn give_back(condvar: *mut pthread_cond_t) {
    if is_common(condvar) {
        return;
    }
    // SAFETY: it was taken, and initialised.
    unsafe { real::cond_destroy::call(condvar) };
    CONDVARS.give_back(condvar.cast());
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use super::*;

    #[test]
    fn released_stand_ins_are_reused_except_the_common_ones() {
        real::find_all();
        let [one, other] = [(); 2].map(|()| take(libc::CLOCK_MONOTONIC).addr());
        assert!(one != other);
        give_back(ptr::with_exposed_provenance_mut(one));
        assert_eq!(take(libc::CLOCK_REALTIME).addr(), one);
        // The static condition variables, which are never given back.
        let common = [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC].map(common);
        give_back(common[0]);
        assert!(common[0] != common[1] && common.into_iter().all(is_common));
        assert!(!is_common(ptr::with_exposed_provenance_mut(one)));
    }
}
