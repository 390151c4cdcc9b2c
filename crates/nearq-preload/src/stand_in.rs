//! Condition variables of the C library's, for programs' condition variables that are used with mutexes that are not ours.
//!
//! In groups that are never given back; each has a bit for each of its condition variables, set while somebody has it. Whoever sets
//! the bit has it (acquire), whoever has it clears the bit (release). New groups are pushed in front of the others (release), and found
//! from there (acquire).
//!
//! Where there is no memory for a group, one of two that are there from the beginning stands in, for any number of condition variables
//! that go by its clock ([`common`]). To notify by one of those wakes all that wait there, which to the
//! threads that wait for something else is a wake-up for no reason.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::alloc::{self, Layout};

use libc::{clockid_t, pthread_cond_t};
use nearq_platform::{Linux, Platform};

use crate::real;

struct Group {
    had: AtomicU64,
    condvars: [UnsafeCell<MaybeUninit<pthread_cond_t>>; 64],
    next: *const Group,
}

// SAFETY: `next` does not change; who has a condition variable's bit has the condition variable.
unsafe impl Sync for Group {}

static GROUPS: AtomicPtr<Group> = AtomicPtr::new(ptr::null_mut());

/// All groups.
fn groups() -> impl Iterator<Item = &'static Group> {
    let first = GROUPS.load(Ordering::Acquire).cast_const();
    // SAFETY: groups are never given back.
    core::iter::successors(unsafe { first.as_ref() }, |group| unsafe { group.next.as_ref() })
}

/// A new condition variable that goes by `clock`.
pub(crate) fn take(clock: clockid_t) -> *mut pthread_cond_t {
    let found = groups().find_map(Group::take).or_else(Group::add);
    let Some(condvar) = found else { return common(clock) };
    initialise(condvar, clock);
    condvar
}

fn initialise(condvar: *mut pthread_cond_t, clock: clockid_t) {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: attributes of ours, made and ended in order; the condition variable is ours.
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

// SAFETY: only ever given to the C library, after it was initialised, by the one thread that turns `state` to 1.
unsafe impl Sync for Common {}

impl Common {
    const fn new() -> Self {
        Common { state: AtomicU32::new(0), condvar: UnsafeCell::new(MaybeUninit::zeroed()) }
    }
}

/// By the real-time clock, and by the monotonic one.
static COMMON: [Common; 2] = [Common::new(), Common::new()];

/// How long one sleeps until another thread has initialised one.
const MOMENT: Duration = Duration::from_micros(50);

/// The one that stands in for all that go by a clock for which there was no memory.
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
        // Acquire: as above.
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

/// In the child of a fork, whose only thread the caller is: nobody is at initialising any.
pub(crate) fn forked() {
    for common in &COMMON {
        // Relaxed: as the caller is alone.
        if common.state.load(Ordering::Relaxed) == 1 {
            common.state.store(0, Ordering::Relaxed);
        }
    }
}

/// Ends a condition variable, which nobody uses any more, when all that were notified have left it.
pub(crate) fn give_back(condvar: *mut pthread_cond_t) {
    if is_common(condvar) {
        return;
    }
    // SAFETY: it was taken, and initialised.
    unsafe { real::cond_destroy::call(condvar) };
    for group in groups() {
        let place = group.condvars.iter().position(|one| one.get().cast() == condvar);
        if let Some(place) = place {
            group.had.fetch_and(!(1 << place), Ordering::Release);
            return;
        }
    }
}

impl Group {
    fn take(&self) -> Option<*mut pthread_cond_t> {
        // Relaxed: decided by the step below.
        let mut had = self.had.load(Ordering::Relaxed);
        while had != u64::MAX {
            let place = had.trailing_ones();
            let before = self.had.fetch_or(1 << place, Ordering::Acquire);
            if before & 1 << place == 0 {
                return Some(self.condvars[place as usize].get().cast());
            }
            had = before;
        }
        None
    }

    /// The first condition variable of a new group; none if there is no memory.
    #[cold]
    fn add() -> Option<*mut pthread_cond_t> {
        #[allow(clippy::cast_ptr_alignment, reason = "the layout says how it is aligned")]
        // SAFETY: not of size zero.
        let group = unsafe { alloc::alloc(Layout::new::<Group>()) }.cast::<Group>();
        if group.is_null() {
            return None;
        }
        let new = Group {
            had: AtomicU64::new(1),
            condvars: [const { UnsafeCell::new(MaybeUninit::zeroed()) }; 64],
            next: ptr::null(),
        };
        // SAFETY: allocated for it, and nobody else knows of it.
        unsafe { group.write(new) };
        // Relaxed: decided by the step below.
        let mut first = GROUPS.load(Ordering::Relaxed);
        loop {
            // SAFETY: ours, until it is pushed.
            unsafe { (*group).next = first };
            match GROUPS.compare_exchange_weak(first, group, Ordering::AcqRel, Ordering::Relaxed) {
                // SAFETY: never given back.
                Ok(_) => return Some(unsafe { &*group }.condvars[0].get().cast()),
                Err(found) => first = found,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn there_are_as_many_as_are_wanted_and_they_are_used_again() {
        real::find_all();
        let taken: BTreeSet<_> = (0..256).map(|_| take(libc::CLOCK_MONOTONIC).addr()).collect();
        assert_eq!(taken.len(), 256);
        let one = *taken.first().unwrap();
        give_back(ptr::with_exposed_provenance_mut(one));
        assert_eq!(take(libc::CLOCK_REALTIME).addr(), one);
        // Those of the last resort, which are never given back.
        let common = [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC].map(common);
        give_back(common[0]);
        assert!(common[0] != common[1] && common.into_iter().all(is_common));
        assert!(!is_common(ptr::with_exposed_provenance_mut(one)));
    }
}
