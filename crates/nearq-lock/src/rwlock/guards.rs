//! The guards of a reader-writer lock. Each proves that its thread has the lock, and gives it back when dropped.

use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::time::Duration;

use nearq_platform::{Linux, LockPlatform};

use super::RwLock;
#[cfg(all(test, not(any(miri, tsan))))]
use crate::raw::RawRwLock;

/// The right to read the value of an [`RwLock`]; releases the lock when dropped.
///
/// It cannot be sent to another thread. If it is forgotten (`core::mem::forget`), the lock stays locked for reading.
#[must_use = "the lock is given back when the guard is dropped, which is at once if nothing holds it"]
pub struct RwLockReadGuard<'a, T: ?Sized, P: LockPlatform = Linux> {
    lock: &'a RwLock<T, P>,
    /// In debug builds, each thread has a list of what it holds.
    not_send: PhantomData<*const ()>,
}

/// The right to change the value of an [`RwLock`]; releases the lock when dropped.
///
/// It cannot be sent to another thread. If it is forgotten (`core::mem::forget`), the lock stays locked.
#[must_use = "the lock is given back when the guard is dropped, which is at once if nothing holds it"]
pub struct RwLockWriteGuard<'a, T: ?Sized, P: LockPlatform = Linux> {
    lock: &'a RwLock<T, P>,
    not_send: PhantomData<*const ()>,
}

/// The right to read the value of an [`RwLock`], and to [change it](Self::upgrade) later; releases the lock when dropped.
///
/// It cannot be sent to another thread. If it is forgotten (`core::mem::forget`), no thread can write any more.
#[must_use = "the lock is given back when the guard is dropped, which is at once if nothing holds it"]
pub struct RwLockUpgradableReadGuard<'a, T: ?Sized, P: LockPlatform = Linux> {
    lock: &'a RwLock<T, P>,
    not_send: PhantomData<*const ()>,
}

macro_rules! guard {
    ($guard:ident, $unlock:ident) => {
        impl<'a, T: ?Sized, P: LockPlatform> $guard<'a, T, P> {
            /// The caller has the lock, and gives the right to release it to the guard.
            #[inline]
            pub(super) fn new(lock: &'a RwLock<T, P>) -> Self {
                $guard { lock, not_send: PhantomData }
            }
        }

        // SAFETY: a shared guard gives `&T` and nothing else.
        unsafe impl<T: ?Sized + Sync, P: LockPlatform> Sync for $guard<'_, T, P> {}

        impl<T: ?Sized, P: LockPlatform> Deref for $guard<'_, T, P> {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                // SAFETY: the lock, and with it the value, lives as long as the guard's borrow. The guard exists, so we have the lock, and
                // no other thread has `&mut T` (invariant 1 in `raw_rwlock.rs`); within this thread, a `&mut T` borrows the write guard,
                // which excludes this borrow.
                unsafe { &*self.lock.value.get() }
            }
        }

        impl<T: ?Sized, P: LockPlatform> Drop for $guard<'_, T, P> {
            #[inline]
            fn drop(&mut self) {
                // SAFETY: a guard is made only after taking the lock so, and dropped once: we have it.
                unsafe { self.lock.raw.$unlock() }
            }
        }

        impl<T: ?Sized + fmt::Debug, P: LockPlatform> fmt::Debug for $guard<'_, T, P> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<T: ?Sized + fmt::Display, P: LockPlatform> fmt::Display for $guard<'_, T, P> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}

guard!(RwLockReadGuard, unlock_read);
guard!(RwLockWriteGuard, unlock_write);
guard!(RwLockUpgradableReadGuard, unlock_upgradable);

impl<T: ?Sized, P: LockPlatform> DerefMut for RwLockWriteGuard<'_, T, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock outlives the guard, which has it for writing: no other thread has a reference (invariant 1 in `raw_rwlock.rs`).
        // `&mut self` makes this the only borrow of the guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<'a, T: ?Sized, P: LockPlatform> RwLockWriteGuard<'a, T, P> {
    /// Goes on as a reader; no other writer comes in between.
    ///
    /// ```
    /// use nearq_lock::{RwLock, RwLockWriteGuard};
    ///
    /// let lock = RwLock::new(1);
    /// let mut guard = lock.write();
    /// *guard = 2;
    /// let guard = RwLockWriteGuard::downgrade(guard);
    /// assert_eq!((*guard, *lock.read()), (2, 2));
    /// ```
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T, P> {
        let lock = ManuallyDrop::new(guard).lock;
        // SAFETY: a guard is made only after taking the lock for writing; this one is no longer dropped.
        unsafe { lock.raw.downgrade() };
        RwLockReadGuard::new(lock)
    }

    /// Goes on as an upgradable reader; no other writer comes in between.
    ///
    /// ```
    /// use nearq_lock::{RwLock, RwLockWriteGuard};
    ///
    /// let lock = RwLock::new(1);
    /// let guard = RwLockWriteGuard::downgrade_to_upgradable(lock.write());
    /// assert!(lock.try_read().is_some() && lock.try_upgradable_read().is_none());
    /// # drop(guard);
    /// ```
    pub fn downgrade_to_upgradable(guard: Self) -> RwLockUpgradableReadGuard<'a, T, P> {
        let lock = ManuallyDrop::new(guard).lock;
        // SAFETY: a guard is made only after taking the lock for writing; this one is no longer dropped.
        unsafe { lock.raw.downgrade_to_upgradable() };
        RwLockUpgradableReadGuard::new(lock)
    }
}

impl<'a, T: ?Sized, P: LockPlatform> RwLockUpgradableReadGuard<'a, T, P> {
    /// The lock that the guard has.
    #[cfg(all(test, not(any(miri, tsan))))]
    pub(crate) fn raw(guard: &Self) -> &RawRwLock<P> {
        &guard.lock.raw
    }

    /// Becomes a writer; sleeps until the other readers have left. New readers wait.
    /// [`upgradable_read`](RwLock::upgradable_read) has an example.
    ///
    /// # Panics
    /// In debug builds, if the thread also has the lock for reading, and so waits for itself.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn upgrade(guard: Self) -> RwLockWriteGuard<'a, T, P> {
        // SAFETY: a guard is made only after taking the lock so. If this panics, the guard releases it.
        unsafe { guard.lock.raw.upgrade() };
        RwLockWriteGuard::new(ManuallyDrop::new(guard).lock)
    }

    /// Becomes a writer if there is no other reader now.
    ///
    /// ```
    /// use nearq_lock::{RwLock, RwLockUpgradableReadGuard};
    ///
    /// let lock = RwLock::new(1);
    /// let reader = lock.read();
    /// let guard = RwLockUpgradableReadGuard::try_upgrade(lock.upgradable_read()).unwrap_err();
    /// drop(reader);
    /// *RwLockUpgradableReadGuard::try_upgrade(guard).expect("no other reader") += 1;
    /// assert_eq!(*lock.read(), 2);
    /// ```
    ///
    /// # Errors
    /// The guard, if there is another reader.
    pub fn try_upgrade(guard: Self) -> Result<RwLockWriteGuard<'a, T, P>, Self> {
        // SAFETY: a guard is made only after taking the lock so.
        if unsafe { guard.lock.raw.try_upgrade() } {
            return Ok(RwLockWriteGuard::new(ManuallyDrop::new(guard).lock));
        }
        Err(guard)
    }

    /// Becomes a writer if the other readers leave within `time`; sleeps until then. Readers that come in the meantime wait.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use nearq_lock::{RwLock, RwLockUpgradableReadGuard};
    ///
    /// let lock = RwLock::new(1);
    /// let reader = lock.read();
    /// let guard = lock.upgradable_read();
    /// let time = Duration::from_millis(1);
    /// assert!(RwLockUpgradableReadGuard::try_upgrade_for(guard, time).is_err());
    /// # drop(reader);
    /// ```
    ///
    /// # Errors
    /// The guard, if other readers are left when the time is over.
    pub fn try_upgrade_for(
        guard: Self,
        time: Duration,
    ) -> Result<RwLockWriteGuard<'a, T, P>, Self> {
        // SAFETY: a guard is made only after taking the lock so.
        if unsafe { guard.lock.raw.try_upgrade_for(time) } {
            return Ok(RwLockWriteGuard::new(ManuallyDrop::new(guard).lock));
        }
        Err(guard)
    }

    /// Goes on as a reader; other threads may become writers or upgradable readers after that.
    ///
    /// ```
    /// use nearq_lock::{RwLock, RwLockUpgradableReadGuard};
    ///
    /// let lock = RwLock::new(1);
    /// let guard = RwLockUpgradableReadGuard::downgrade(lock.upgradable_read());
    /// assert!(lock.try_upgradable_read().is_some());
    /// # drop(guard);
    /// ```
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T, P> {
        let lock = ManuallyDrop::new(guard).lock;
        // SAFETY: a guard is made only after taking the lock so; this one is no longer dropped.
        unsafe { lock.raw.downgrade_upgradable() };
        RwLockReadGuard::new(lock)
    }
}
