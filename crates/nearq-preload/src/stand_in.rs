//! Condition variables of the C library's, for programs' condition variables that are used with mutexes that are not ours.
//!
//! In groups that are never given back; each has a bit for each of its condition variables, set while somebody has it. Whoever sets
//! the bit has it (acquire), whoever has it clears the bit (release). New groups are pushed in front of the others (release), and found
//! from there (acquire).

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use libc::{clockid_t, pthread_cond_t};

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
    let found = groups().find_map(Group::take);
    let condvar = found.unwrap_or_else(Group::add);
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: attributes of ours, made and ended in order; the condition variable is ours.
    unsafe {
        libc::pthread_condattr_init(attributes.as_mut_ptr());
        libc::pthread_condattr_setclock(attributes.as_mut_ptr(), clock);
        real::cond_init::call(condvar, attributes.as_ptr());
        libc::pthread_condattr_destroy(attributes.as_mut_ptr());
    }
    condvar
}

/// Ends a condition variable, which nobody uses any more, when all that were notified have left it.
pub(crate) fn give_back(condvar: *mut pthread_cond_t) {
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

    /// The first condition variable of a new group.
    #[cold]
    fn add() -> *mut pthread_cond_t {
        let group = Box::into_raw(Box::new(Group {
            had: AtomicU64::new(1),
            condvars: [const { UnsafeCell::new(MaybeUninit::zeroed()) }; 64],
            next: ptr::null(),
        }));
        // Relaxed: decided by the step below.
        let mut first = GROUPS.load(Ordering::Relaxed);
        loop {
            // SAFETY: ours, until it is pushed.
            unsafe { (*group).next = first };
            match GROUPS.compare_exchange_weak(first, group, Ordering::AcqRel, Ordering::Relaxed) {
                // SAFETY: never given back.
                Ok(_) => return unsafe { &*group }.condvars[0].get().cast(),
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
    }
}
