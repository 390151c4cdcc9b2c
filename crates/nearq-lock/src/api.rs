//! The raw mutex under the names of the crate `lock_api`, for code that is written against that crate. Each version has a file and a
//! feature, because its traits are other traits than those of the next version.

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
    };
}
use test_of;
