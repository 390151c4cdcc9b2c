//! The raw mutex and the raw reader-writer lock under the names of the crate `lock_api`, for code that is written against that crate. Each
//! version has a file and a feature, because its traits are other traits than those of the next version.

#[cfg(feature = "lock_api_0_4")]
mod v0_4;
#[cfg(feature = "lock_api_0_5")]
mod v0_5;

/// The test of one version, in whose file `lock_api` is that version of the crate.
macro_rules! test_of {
    () => {
        #[cfg(test)]
        mod tests {
            use core::time::Duration;

            use super::lock_api;
            use crate::raw::{RawMutex, RawRwLock};

            type Mutex<T> = lock_api::Mutex<RawMutex, T>;
            type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
            type Upgradable<'a, T> = lock_api::RwLockUpgradableReadGuard<'a, RawRwLock, T>;
            type Writing<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

            const TIME: Duration = Duration::from_millis(1);

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

            #[test]
            fn readers_and_writers() {
                static LOCK: RwLock<u32> = RwLock::new(1);
                let soon = || std::time::Instant::now() + TIME;
                let guard = LOCK.write();
                assert!(LOCK.is_locked_exclusive() && LOCK.try_read().is_none());
                assert!(LOCK.try_read_for(TIME).is_none() && LOCK.try_read_until(soon()).is_none());
                assert!(LOCK.try_upgradable_read().is_none());
                let reader = Writing::downgrade(guard);
                assert!(LOCK.is_locked() && !LOCK.is_locked_exclusive());
                assert!(LOCK.try_write().is_none() && LOCK.try_write_for(TIME).is_none());
                assert!(LOCK.try_write_until(soon()).is_none());
                assert_eq!(*reader + *LOCK.read() + *LOCK.try_read().expect("readers share"), 3);
                let guard = Upgradable::try_upgrade(LOCK.upgradable_read()).unwrap_err();
                let guard = Upgradable::try_upgrade_for(guard, TIME).unwrap_err();
                let guard = Upgradable::try_upgrade_until(guard, soon()).unwrap_err();
                assert!(LOCK.try_upgradable_read_for(TIME).is_none());
                assert!(LOCK.try_upgradable_read_until(soon()).is_none());
                drop(reader);
                let mut guard = Upgradable::upgrade(guard);
                *guard += 1;
                let reader = Upgradable::downgrade(Writing::downgrade_to_upgradable(guard));
                assert_eq!(*reader, 2);
                drop(reader);
                assert!(!LOCK.is_locked());
                assert_eq!(size_of::<RwLock<u32>>(), 12);
            }
        }
    };
}
use test_of;
