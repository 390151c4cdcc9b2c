//! Waits until deadlines that are instants of the standard library, on the clock of Linux.
#![allow(
    clippy::disallowed_types,
    reason = "what users of Linux pass; everything else uses the platform's instants"
)]

use std::time::Instant;

use nearq_platform::{Linux, LockPlatform};

use crate::raw::{OsqGuard, OsqLock, RawCondvar, RawMutex, RawRwLock};
use crate::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard,
    RwLockWriteGuard,
};

/// The deadline on the platform's clock. Both clocks are `CLOCK_MONOTONIC`, but the standard library does not say what its instant stands
/// for. So the result is later than the deadline by what passes between two readings of the clock.
fn on_linux(deadline: Instant) -> nearq_platform::Instant {
    let left = deadline.saturating_duration_since(Instant::now());
    Linux::now() + left
}

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock if that is possible before `deadline`; sleeps until then. If the deadline has passed, as
    /// [`try_lock`](Self::try_lock).
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let mutex = nearq_lock::Mutex::new(1);
    /// let guard = mutex.lock();
    /// assert!(mutex.try_lock_until(Instant::now() + Duration::from_millis(1)).is_none());
    /// # drop(guard);
    /// ```
    #[inline]
    pub fn try_lock_until(&self, deadline: Instant) -> Option<MutexGuard<'_, T>> {
        self.try_lock().or_else(|| self.try_lock_until_in(on_linux(deadline)))
    }
}

impl Condvar {
    /// As [`wait`](Self::wait), but sleeps at most until `deadline`. False if the deadline came first. Taking the mutex again may take
    /// longer.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// use nearq_lock::{Condvar, Mutex};
    ///
    /// let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// assert!(!condvar.wait_until(&mut mutex.lock(), deadline));
    /// ```
    pub fn wait_until<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, deadline: Instant) -> bool {
        self.wait_until_in(guard, on_linux(deadline))
    }

    /// As [`wait_while`](Self::wait_while), but at most until `deadline`. False if `condition` still holds then.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// use nearq_lock::{Condvar, Mutex};
    ///
    /// let (mutex, condvar) = (Mutex::new(1), Condvar::new());
    /// let deadline = Instant::now() + Duration::from_secs(1);
    /// assert!(condvar.wait_while_until(&mut mutex.lock(), |value| *value == 0, deadline));
    /// ```
    ///
    /// # Panics
    /// If `condition` does. The guard holds the mutex then.
    pub fn wait_while_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        deadline: Instant,
    ) -> bool {
        self.wait_while_until_in(guard, condition, on_linux(deadline))
    }
}

impl RawMutex {
    /// Takes the lock if that is possible before `deadline`; sleeps until then. True if the caller holds it now.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let mutex = nearq_lock::raw::RawMutex::new();
    /// mutex.lock();
    /// assert!(!mutex.try_lock_until(Instant::now() + Duration::from_millis(1)));
    /// ```
    #[inline]
    pub fn try_lock_until(&self, deadline: Instant) -> bool {
        self.try_lock() || self.try_lock_until_in(on_linux(deadline))
    }
}

impl RawCondvar {
    /// As [`wait`](Self::wait), but sleeps at most until `deadline`. False if the deadline came first. Taking the mutex again may take
    /// longer.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// use nearq_lock::raw::{RawCondvar, RawMutex};
    ///
    /// let (mutex, condvar) = (RawMutex::new(), RawCondvar::new());
    /// mutex.lock();
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// // SAFETY: taken above.
    /// assert!(unsafe { !condvar.wait_until(&mutex, deadline) });
    /// ```
    ///
    /// # Safety
    /// The caller holds `mutex`. It holds it again on return.
    ///
    /// # Panics
    /// In debug builds, if the thread does not hold `mutex`.
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn wait_until(&self, mutex: &RawMutex, deadline: Instant) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.wait_at_most(mutex, Some(on_linux(deadline))) }
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Takes the lock for reading if that is possible before `deadline`; sleeps until then. If the deadline has passed, as
    /// [`try_read`](Self::try_read).
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let lock = nearq_lock::RwLock::new(1);
    /// let guard = lock.write();
    /// assert!(lock.try_read_until(Instant::now() + Duration::from_millis(1)).is_none());
    /// # drop(guard);
    /// ```
    pub fn try_read_until(&self, deadline: Instant) -> Option<RwLockReadGuard<'_, T>> {
        self.try_read().or_else(|| self.try_read_until_in(on_linux(deadline)))
    }

    /// Takes the lock for writing if that is possible before `deadline`; sleeps until then. If the deadline has passed, as
    /// [`try_write`](Self::try_write).
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let lock = nearq_lock::RwLock::new(1);
    /// let guard = lock.read();
    /// assert!(lock.try_write_until(Instant::now() + Duration::from_millis(1)).is_none());
    /// # drop(guard);
    /// ```
    pub fn try_write_until(&self, deadline: Instant) -> Option<RwLockWriteGuard<'_, T>> {
        self.try_write().or_else(|| self.try_write_until_in(on_linux(deadline)))
    }

    /// Takes the lock as an upgradable reader if that is possible before `deadline`; sleeps until then. If the deadline has passed, as
    /// [`try_upgradable_read`](Self::try_upgradable_read).
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let lock = nearq_lock::RwLock::new(1);
    /// let guard = lock.write();
    /// assert!(lock.try_upgradable_read_until(Instant::now() + Duration::from_millis(1)).is_none());
    /// # drop(guard);
    /// ```
    pub fn try_upgradable_read_until(
        &self,
        deadline: Instant,
    ) -> Option<RwLockUpgradableReadGuard<'_, T>> {
        self.try_upgradable_read().or_else(|| self.try_upgradable_read_until_in(on_linux(deadline)))
    }
}

impl RawRwLock {
    /// Takes the lock as a reader if that is possible before `deadline`; sleeps until then. True if the caller has it now.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let lock = nearq_lock::raw::RawRwLock::new();
    /// lock.write();
    /// assert!(!lock.try_read_until(Instant::now() + Duration::from_millis(1)));
    /// ```
    pub fn try_read_until(&self, deadline: Instant) -> bool {
        self.try_read() || self.try_read_until_in(on_linux(deadline))
    }

    /// Takes the lock as a writer if that is possible before `deadline`; sleeps until then. True if the caller has it now.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let lock = nearq_lock::raw::RawRwLock::new();
    /// lock.read();
    /// assert!(!lock.try_write_until(Instant::now() + Duration::from_millis(1)));
    /// ```
    pub fn try_write_until(&self, deadline: Instant) -> bool {
        self.try_write() || self.try_write_until_in(on_linux(deadline))
    }

    /// Takes the lock as an upgradable reader if that is possible before `deadline`; sleeps until then. True if the caller has it now.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let lock = nearq_lock::raw::RawRwLock::new();
    /// lock.upgradable_read();
    /// assert!(!lock.try_upgradable_read_until(Instant::now() + Duration::from_millis(1)));
    /// ```
    pub fn try_upgradable_read_until(&self, deadline: Instant) -> bool {
        self.try_upgradable_read() || self.try_upgradable_read_until_in(on_linux(deadline))
    }

    /// Makes an upgradable reader a writer, if the other readers leave before `deadline`; sleeps until then. True if the caller is a
    /// writer now; otherwise it is still an upgradable reader.
    ///
    /// # Safety
    /// The caller has the lock as an upgradable reader.
    ///
    /// # Panics
    /// In debug builds, if the thread does not have it as an upgradable reader.
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn try_upgrade_until(&self, deadline: Instant) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.try_upgrade_until_in(on_linux(deadline)) }
    }
}

impl<T: ?Sized> OsqLock<T> {
    /// Takes the lock if the caller has the turn before `deadline`; leaves the queue otherwise.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let lock = nearq_lock::raw::OsqLock::new(1);
    /// let guard = lock.lock();
    /// assert!(lock.try_lock_until(Instant::now() + Duration::from_millis(1)).is_none());
    /// # drop(guard);
    /// ```
    pub fn try_lock_until(&self, deadline: Instant) -> Option<OsqGuard<'_, T>> {
        self.try_lock_until_in(on_linux(deadline))
    }
}
