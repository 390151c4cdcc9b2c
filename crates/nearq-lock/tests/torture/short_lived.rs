//! Mutexes that are destroyed by their last user right after its unlock.

use std::ffi::c_void;

use nearq_lock::raw::RawMutex;
use nearq_platform::{Linux, LockPlatform};

use crate::chance::{Chance, Pair};
use crate::system::{mmap, munmap};

const PAGE: usize = 4096;
/// What is left in the place of a mutex that was destroyed.
const GONE: u8 = 0xa5;

/// A mutex on a page of its own, and how many will still use it.
struct ShortLived {
    mutex: RawMutex,
    users: u64,
    pair: Pair,
}

/// Names a short-lived mutex; each of its users has it once.
#[derive(Clone, Copy)]
pub(crate) struct Place(*mut ShortLived);
// SAFETY: what is there is used under its mutex, and freed by the last user.
unsafe impl Send for Place {}

impl Place {
    pub(crate) fn new(users: u64) -> Self {
        const READ_AND_WRITE: i32 = 3;
        const PRIVATE_AND_ANONYMOUS: i32 = 0x22;
        // SAFETY: new memory, at any address that the system chooses.
        let page = unsafe {
            mmap(core::ptr::null_mut(), PAGE, READ_AND_WRITE, PRIVATE_AND_ANONYMOUS, -1, 0)
        };
        assert_ne!(page.addr(), usize::MAX, "there is memory");
        let place = Place(page.cast());
        // SAFETY: a page is large and aligned enough, and ours alone.
        unsafe {
            place.0.write(ShortLived { mutex: RawMutex::new(), users, pair: Pair::default() })
        };
        place
    }

    fn free(page: *mut c_void) {
        // SAFETY: made by `new`, and no thread uses it any more; if that is not true, the process is killed, which is the test.
        assert_eq!(unsafe { munmap(page, PAGE) }, 0);
    }

    /// Uses it the one time that the caller may; if in a hurry, for almost no time.
    pub(crate) fn use_it(self, hurry: bool, chance: &mut Chance) {
        let Place(place) = self;
        // SAFETY: it exists until its last user, of which the caller is one, has had the mutex.
        let mutex = unsafe { &(*place).mutex };
        while !hurry && !chance.one_in(3) {
            if mutex.try_lock_for(chance.micros(50)) {
                // SAFETY: we have the mutex, and it exists while we may use it. No reference outlives the line.
                unsafe { &mut (*place).pair }.use_it(chance);
                // SAFETY: taken above. We will still use it: it stays.
                unsafe { mutex.unlock() };
            }
        }
        mutex.lock();
        if !hurry {
            // SAFETY: we have the mutex, and it exists while we may use it. No reference outlives the line.
            unsafe { &mut (*place).pair }.use_it(chance);
        }
        // SAFETY: we have the mutex, and the count is used only under it; it exists until its last user has had the mutex.
        let left = unsafe {
            (*place).users -= 1;
            (*place).users
        };
        // SAFETY: taken above. Not touched afterwards, unless we are the last user.
        unsafe { if chance.one_in(4) { mutex.unlock_fair() } else { mutex.unlock() } }
        if left > 0 {
            return;
        }
        // SAFETY: all others have had the mutex and have released it.
        unsafe { place.drop_in_place() };
        if chance.one_in(2) {
            Self::free(place.cast());
            return;
        }
        // SAFETY: the page is ours since all other users are gone; what was there is dropped, and any bytes may be written.
        unsafe { place.cast::<u8>().write_bytes(GONE, PAGE) };
        if !hurry {
            chance.dwell();
        }
        Linux::yield_now();
        // SAFETY: the page is still ours, and every byte of it was written; the test is whether a thread writes to it.
        let found = unsafe { core::slice::from_raw_parts(place.cast::<u8>(), PAGE) };
        assert!(found.iter().all(|&byte| byte == GONE), "it was written after it was given back");
        Self::free(place.cast());
    }
}
