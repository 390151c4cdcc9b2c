//! The traits of `lock_api` 0.5: feature `lock_api_0_5`.
//!
//! ```
//! # use lock_api_0_5 as lock_api;
//! type Mutex<T> = lock_api::Mutex<nearq_lock::raw::RawMutex, T>;
//!
//! static COUNT: Mutex<u32> = Mutex::new(0);
//!
//! *COUNT.lock() += 1;
//! assert_eq!(*COUNT.try_lock().expect("no thread holds it"), 1);
//! ```
#![allow(clippy::disallowed_types, reason = "lock_api names the type of a deadline")]

use core::time::Duration;
use std::time::Instant;

use lock_api::GuardNoSend;
use lock_api_0_5 as lock_api;
use nearq_platform::ConstPlatform;

use crate::raw::RawMutex;

// SAFETY: one thread at a time has the lock (invariant 1 in `raw_mutex.rs`).
unsafe impl<P: ConstPlatform> lock_api::RawMutex for RawMutex<P> {
    const INIT: Self = Self::const_new_in();

    type Guard = GuardNoSend;

    #[inline]
    fn lock(&self) -> GuardNoSend {
        RawMutex::lock(self);
        GuardNoSend::default()
    }

    #[inline]
    fn try_lock(&self) -> Option<GuardNoSend> {
        RawMutex::try_lock(self).then(GuardNoSend::default)
    }

    #[inline]
    unsafe fn unlock(&self, _guard: GuardNoSend) {
        // SAFETY: as the caller promises.
        unsafe { RawMutex::unlock(self) };
    }

    fn is_locked(&self) -> bool {
        RawMutex::is_locked(self)
    }
}

// SAFETY: even after a fair hand-over or a bump, one thread at a time has the lock (invariant 1 in `raw_mutex.rs`).
unsafe impl<P: ConstPlatform> lock_api::RawMutexFair for RawMutex<P> {
    unsafe fn unlock_fair(&self, _guard: GuardNoSend) {
        // SAFETY: as the caller promises.
        unsafe { RawMutex::unlock_fair(self) };
    }

    unsafe fn bump(&self, _guard: &mut GuardNoSend) {
        // SAFETY: as the caller promises.
        unsafe { RawMutex::bump(self) };
    }
}

// SAFETY: a thread whose time is over has not taken the lock; so one thread at a time has it (invariant 1 in `raw_mutex.rs`).
unsafe impl lock_api::RawMutexTimed for RawMutex {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> Option<GuardNoSend> {
        RawMutex::try_lock_for(self, timeout).then(GuardNoSend::default)
    }

    fn try_lock_until(&self, timeout: Instant) -> Option<GuardNoSend> {
        RawMutex::try_lock_until(self, timeout).then(GuardNoSend::default)
    }
}

super::test_of!();
