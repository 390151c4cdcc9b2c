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
//!
//! type RwLock<T> = lock_api::RwLock<nearq_lock::raw::RawRwLock, T>;
//!
//! static NAME: RwLock<&str> = RwLock::new("first");
//!
//! *NAME.write() = "second";
//! assert_eq!(*NAME.read(), "second");
//! ```
#![allow(clippy::disallowed_types, reason = "lock_api names the type of a deadline")]

use core::time::Duration;
use std::time::Instant;

use lock_api::GuardNoSend;
use lock_api_0_5 as lock_api;
use nearq_platform::ConstPlatform;

use crate::raw::{RawMutex, RawRwLock};

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

// SAFETY: while a thread has the lock exclusively, no other thread has it (invariant 1 in `raw_rwlock.rs`).
unsafe impl<P: ConstPlatform> lock_api::RawRwLock for RawRwLock<P> {
    const INIT: Self = Self::const_new_in();

    type SharedGuard = GuardNoSend;
    type ExclusiveGuard = GuardNoSend;

    #[inline]
    fn lock_shared(&self) -> GuardNoSend {
        RawRwLock::read(self);
        GuardNoSend::default()
    }

    fn try_lock_shared(&self) -> Option<GuardNoSend> {
        RawRwLock::try_read(self).then(GuardNoSend::default)
    }

    unsafe fn unlock_shared(&self, _guard: GuardNoSend) {
        // SAFETY: as the caller promises.
        unsafe { RawRwLock::unlock_read(self) };
    }

    #[inline]
    fn lock_exclusive(&self) -> GuardNoSend {
        RawRwLock::write(self);
        GuardNoSend::default()
    }

    fn try_lock_exclusive(&self) -> Option<GuardNoSend> {
        RawRwLock::try_write(self).then(GuardNoSend::default)
    }

    unsafe fn unlock_exclusive(&self, _guard: GuardNoSend) {
        // SAFETY: as the caller promises.
        unsafe { RawRwLock::unlock_write(self) };
    }

    fn is_locked(&self) -> bool {
        RawRwLock::is_locked(self)
    }

    fn is_locked_exclusive(&self) -> bool {
        RawRwLock::is_locked_for_writing(self)
    }
}

// SAFETY: a thread whose time is over has not taken the lock (invariant 1 in `raw_rwlock.rs`).
unsafe impl lock_api::RawRwLockTimed for RawRwLock {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_shared_for(&self, timeout: Duration) -> Option<GuardNoSend> {
        RawRwLock::try_read_for(self, timeout).then(GuardNoSend::default)
    }

    fn try_lock_shared_until(&self, timeout: Instant) -> Option<GuardNoSend> {
        RawRwLock::try_read_until(self, timeout).then(GuardNoSend::default)
    }

    fn try_lock_exclusive_for(&self, timeout: Duration) -> Option<GuardNoSend> {
        RawRwLock::try_write_for(self, timeout).then(GuardNoSend::default)
    }

    fn try_lock_exclusive_until(&self, timeout: Instant) -> Option<GuardNoSend> {
        RawRwLock::try_write_until(self, timeout).then(GuardNoSend::default)
    }
}

// SAFETY: the caller had the lock exclusively, and no other thread changes that in between (invariant 1 in `raw_rwlock.rs`).
unsafe impl<P: ConstPlatform> lock_api::RawRwLockDowngrade for RawRwLock<P> {
    unsafe fn downgrade(&self, _guard: GuardNoSend) -> GuardNoSend {
        // SAFETY: as the caller promises.
        unsafe { RawRwLock::downgrade(self) };
        GuardNoSend::default()
    }
}

// SAFETY: one upgradable reader at a time, and none beside a writer: only the thread that has changed the kind changes it back.
unsafe impl<P: ConstPlatform> lock_api::RawRwLockUpgrade for RawRwLock<P> {
    type UpgradableGuard = GuardNoSend;

    #[inline]
    fn lock_upgradable(&self) -> GuardNoSend {
        RawRwLock::upgradable_read(self);
        GuardNoSend::default()
    }

    fn try_lock_upgradable(&self) -> Option<GuardNoSend> {
        RawRwLock::try_upgradable_read(self).then(GuardNoSend::default)
    }

    unsafe fn unlock_upgradable(&self, _guard: GuardNoSend) {
        // SAFETY: as the caller promises.
        unsafe { RawRwLock::unlock_upgradable(self) };
    }

    unsafe fn upgrade(&self, _guard: GuardNoSend) -> GuardNoSend {
        // SAFETY: as the caller promises.
        unsafe { RawRwLock::upgrade(self) };
        GuardNoSend::default()
    }

    unsafe fn try_upgrade(&self, guard: GuardNoSend) -> Result<GuardNoSend, GuardNoSend> {
        // SAFETY: as the caller promises.
        if unsafe { RawRwLock::try_upgrade(self) } {
            Ok(GuardNoSend::default())
        } else {
            Err(guard)
        }
    }
}

// SAFETY: as for the traits above: each of these is one step.
unsafe impl<P: ConstPlatform> lock_api::RawRwLockUpgradeDowngrade for RawRwLock<P> {
    unsafe fn downgrade_upgradable(&self, _guard: GuardNoSend) -> GuardNoSend {
        // SAFETY: as the caller promises.
        unsafe { RawRwLock::downgrade_upgradable(self) };
        GuardNoSend::default()
    }

    unsafe fn downgrade_to_upgradable(&self, _guard: GuardNoSend) -> GuardNoSend {
        // SAFETY: as the caller promises.
        unsafe { RawRwLock::downgrade_to_upgradable(self) };
        GuardNoSend::default()
    }
}

// SAFETY: a thread whose time is over has what it had before.
unsafe impl lock_api::RawRwLockUpgradeTimed for RawRwLock {
    fn try_lock_upgradable_for(&self, timeout: Duration) -> Option<GuardNoSend> {
        RawRwLock::try_upgradable_read_for(self, timeout).then(GuardNoSend::default)
    }

    fn try_lock_upgradable_until(&self, timeout: Instant) -> Option<GuardNoSend> {
        RawRwLock::try_upgradable_read_until(self, timeout).then(GuardNoSend::default)
    }

    unsafe fn try_upgrade_for(
        &self,
        guard: GuardNoSend,
        timeout: Duration,
    ) -> Result<GuardNoSend, GuardNoSend> {
        // SAFETY: as the caller promises.
        if unsafe { RawRwLock::try_upgrade_for(self, timeout) } {
            Ok(GuardNoSend::default())
        } else {
            Err(guard)
        }
    }

    unsafe fn try_upgrade_until(
        &self,
        guard: GuardNoSend,
        timeout: Instant,
    ) -> Result<GuardNoSend, GuardNoSend> {
        // SAFETY: as the caller promises.
        if unsafe { RawRwLock::try_upgrade_until(self, timeout) } {
            Ok(GuardNoSend::default())
        } else {
            Err(guard)
        }
    }
}

super::test_of!();
