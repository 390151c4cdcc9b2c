//! The raw mutex under the names of the crate `lock_api`, for code that is written against that crate, in version 0.5: feature
//! `lock_api_0_5`.
//!
//! ```
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

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use crate::raw::RawMutex;

    type Mutex<T> = lock_api::Mutex<RawMutex, T>;

    #[test]
    fn all_that_the_interface_has() {
        static COUNT: Mutex<u32> = Mutex::new(1);
        let mut guard = COUNT.lock();
        assert!(COUNT.is_locked() && COUNT.try_lock().is_none());
        assert!(COUNT.try_lock_for(Duration::from_millis(1)).is_none());
        lock_api::MutexGuard::bump(&mut guard);
        *guard += 1;
        lock_api::MutexGuard::unlock_fair(guard);
        let soon = std::time::Instant::now() + Duration::from_millis(1);
        *COUNT.try_lock_until(soon).expect("it is free") += 1;
        assert_eq!(*COUNT.try_lock().expect("it is free"), 3);
        assert!(!COUNT.is_locked());
        assert_eq!(size_of::<Mutex<u32>>(), 8);
    }
}
