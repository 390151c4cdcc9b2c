//! A value behind the reader-writer lock, and the ways to its guards, which are in `rwlock/guards.rs`.

mod guards;

use core::cell::UnsafeCell;
use core::fmt;
use core::time::Duration;

use nearq_platform::{ConstPlatform, Instant, Linux, LockPlatform};

pub use self::guards::{RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};
use crate::raw::RawRwLock;

/// A value that many threads may read at once, or one may change.
///
/// The lock takes eight bytes, and no initialisation before use. It is never poisoned: a panic while a guard exists releases the lock, and
/// the next holder finds the value as it was left. It is not reentrant: a thread that holds it for writing and locks it again waits for
/// ever, or panics in debug builds. A thread that reads and wants to read again may wait for ever, if a writer waits in between.
///
/// Ordering: all that a thread did before it released the lock happens before what a later holder does after it took the lock, if one of
/// the two is a writer.
///
/// Fairness: neither readers nor writers starve. Readers that come while a writer waits or writes wait until that writer is done; then they
/// all read, before the next writer. A writer waits for its turn among the writers, and for the readers that came before it. Among the
/// writers, the fairness is that of a [`Mutex`](crate::Mutex): they queue up, by cache while that pays, and threads that come while the lock
/// is free may overtake them until [`Settings::patience`](crate::Settings::patience) is over.
///
/// Upgradable readers read along with other readers, but there is at most one of them, and no writer, at a time. So such a thread may look
/// at the value first and become a writer when it has to, without another writer in between.
///
/// Forks: in the child of a fork, a lock that another thread of the parent held or waited for stays locked: the child must not use it.
///
/// ```
/// use nearq_lock::RwLock;
///
/// static NAMES: RwLock<Vec<&str>> = RwLock::new(Vec::new());
///
/// NAMES.write().push("first");
/// let (one, another) = (NAMES.read(), NAMES.read());
/// assert_eq!((one[0], another.len()), ("first", 1));
/// ```
pub struct RwLock<T: ?Sized, P: LockPlatform = Linux> {
    raw: RawRwLock<P>,
    value: UnsafeCell<T>,
}

// SAFETY: moving the lock moves the value; the lock itself is atomics and may go anywhere.
unsafe impl<T: ?Sized + Send, P: LockPlatform> Send for RwLock<T, P> {}
// SAFETY: a shared lock hands out `&T` to several threads at once, which `Sync` allows, and `&mut T` to one thread while no other has the
// lock (invariant 1 in `raw_rwlock.rs`), so that the value goes from thread to thread, which `Send` allows.
unsafe impl<T: ?Sized + Send + Sync, P: LockPlatform> Sync for RwLock<T, P> {}

impl<T> RwLock<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self::const_new_in(value)
    }
}

impl<T, P: ConstPlatform> RwLock<T, P> {
    /// A free lock around `value`, in a constant.
    #[doc(hidden)]
    pub const fn const_new_in(value: T) -> Self {
        RwLock { raw: RawRwLock::const_new_in(), value: UnsafeCell::new(value) }
    }
}

impl<T, P: LockPlatform> RwLock<T, P> {
    /// A free lock around `value`, on any platform.
    #[doc(hidden)]
    pub fn new_in(value: T) -> Self {
        RwLock { raw: RawRwLock::new_in(), value: UnsafeCell::new(value) }
    }

    /// Unwraps the value. Nothing is locked: the caller owns the lock.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, P: LockPlatform> RwLock<T, P> {
    /// Takes the lock for reading; sleeps while a writer has it, or waits for readers. The guard releases it when dropped.
    ///
    /// # Panics
    /// In debug builds, if the thread has the lock for writing.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self) -> RwLockReadGuard<'_, T, P> {
        self.raw.read();
        RwLockReadGuard::new(self)
    }

    /// Takes the lock for reading, if no writer has it or waits for readers. Never sleeps.
    ///
    /// ```
    /// let lock = nearq_lock::RwLock::new(1);
    /// let guard = lock.read();
    /// assert!(lock.try_read().is_some() && lock.try_write().is_none());
    /// # drop(guard);
    /// ```
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T, P>> {
        self.raw.try_read().then(|| RwLockReadGuard::new(self))
    }

    /// Takes the lock for reading if that is possible within `time`; sleeps until then. With a time of zero, as
    /// [`try_read`](Self::try_read).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let lock = nearq_lock::RwLock::new(1);
    /// let guard = lock.write();
    /// assert!(lock.try_read_for(Duration::from_millis(1)).is_none());
    /// # drop(guard);
    /// ```
    pub fn try_read_for(&self, time: Duration) -> Option<RwLockReadGuard<'_, T, P>> {
        self.raw.try_read_for(time).then(|| RwLockReadGuard::new(self))
    }

    /// As [`try_read_until`](RwLock::try_read_until), on any platform.
    #[doc(hidden)]
    pub fn try_read_until_in(&self, deadline: Instant) -> Option<RwLockReadGuard<'_, T, P>> {
        self.raw.try_read_until_in(deadline).then(|| RwLockReadGuard::new(self))
    }

    /// Takes the lock for writing; sleeps while other threads have it. The guard releases it when dropped.
    ///
    /// # Panics
    /// In debug builds, if the thread already has the lock.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) -> RwLockWriteGuard<'_, T, P> {
        self.raw.write();
        RwLockWriteGuard::new(self)
    }

    /// Takes the lock for writing if no thread has it, and it is not reserved for a writer that has waited too long. Never sleeps.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T, P>> {
        self.raw.try_write().then(|| RwLockWriteGuard::new(self))
    }

    /// Takes the lock for writing if that is possible within `time`; sleeps until then. With a time of zero, as
    /// [`try_write`](Self::try_write).
    ///
    /// A thread whose time is over leaves its place in the queue at once. Readers that waited for it go on.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let lock = nearq_lock::RwLock::new(1);
    /// let guard = lock.read();
    /// assert!(lock.try_write_for(Duration::from_millis(1)).is_none());
    /// # drop(guard);
    /// ```
    pub fn try_write_for(&self, time: Duration) -> Option<RwLockWriteGuard<'_, T, P>> {
        self.raw.try_write_for(time).then(|| RwLockWriteGuard::new(self))
    }

    /// As [`try_write_until`](RwLock::try_write_until), on any platform.
    #[doc(hidden)]
    pub fn try_write_until_in(&self, deadline: Instant) -> Option<RwLockWriteGuard<'_, T, P>> {
        self.raw.try_write_until_in(deadline).then(|| RwLockWriteGuard::new(self))
    }

    /// Takes the lock for reading, with the right to become a writer later. Sleeps while a writer or another upgradable reader has it.
    ///
    /// ```
    /// use nearq_lock::{RwLock, RwLockUpgradableReadGuard};
    ///
    /// let cache = RwLock::new(None);
    /// let seen = cache.upgradable_read();
    /// if seen.is_none() {
    ///     *RwLockUpgradableReadGuard::upgrade(seen) = Some(42);
    /// }
    /// assert_eq!(*cache.read(), Some(42));
    /// ```
    ///
    /// # Panics
    /// In debug builds, if the thread already has the lock for writing or as an upgradable reader.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn upgradable_read(&self) -> RwLockUpgradableReadGuard<'_, T, P> {
        self.raw.upgradable_read();
        RwLockUpgradableReadGuard::new(self)
    }

    /// Takes the lock as an upgradable reader if no writer and no other upgradable reader has it. Never sleeps.
    pub fn try_upgradable_read(&self) -> Option<RwLockUpgradableReadGuard<'_, T, P>> {
        self.raw.try_upgradable_read().then(|| RwLockUpgradableReadGuard::new(self))
    }

    /// Takes the lock as an upgradable reader if that is possible within `time`; sleeps until then.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let lock = nearq_lock::RwLock::new(1);
    /// let guard = lock.upgradable_read();
    /// assert!(lock.try_upgradable_read_for(Duration::from_millis(1)).is_none());
    /// # drop(guard);
    /// ```
    pub fn try_upgradable_read_for(
        &self,
        time: Duration,
    ) -> Option<RwLockUpgradableReadGuard<'_, T, P>> {
        self.raw.try_upgradable_read_for(time).then(|| RwLockUpgradableReadGuard::new(self))
    }

    /// As [`try_upgradable_read_until`](RwLock::try_upgradable_read_until), on any platform.
    #[doc(hidden)]
    pub fn try_upgradable_read_until_in(
        &self,
        deadline: Instant,
    ) -> Option<RwLockUpgradableReadGuard<'_, T, P>> {
        self.raw
            .try_upgradable_read_until_in(deadline)
            .then(|| RwLockUpgradableReadGuard::new(self))
    }

    #[cfg(all(test, not(any(miri, tsan))))]
    pub(crate) fn raw(&self) -> &RawRwLock<P> {
        &self.raw
    }

    /// The value. Nothing is locked: `&mut self` proves that no other thread can have the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The address of the value. Nothing is locked. For code that has forgotten a guard (`core::mem::forget`) and still has the lock.
    pub fn data_ptr(&self) -> *mut T {
        self.value.get()
    }

    /// Whether a thread has the lock. That may have changed by the time the caller uses the answer, and the answer orders nothing.
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }

    /// Whether a writer has the lock, or waits for readers to leave. That may have changed by the time the caller uses the answer, and the
    /// answer orders nothing.
    pub fn is_locked_for_writing(&self) -> bool {
        self.raw.is_locked_for_writing()
    }
}

impl<T: Default, P: LockPlatform> Default for RwLock<T, P> {
    fn default() -> Self {
        Self::new_in(T::default())
    }
}

impl<T, P: LockPlatform> From<T> for RwLock<T, P> {
    fn from(value: T) -> Self {
        Self::new_in(value)
    }
}

impl<T: ?Sized + fmt::Debug, P: LockPlatform> fmt::Debug for RwLock<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RwLock");
        match self.try_read() {
            Some(guard) => shown.field("value", &&*guard),
            None => shown.field("value", &format_args!("<locked>")),
        };
        shown.finish()
    }
}

#[cfg(test)]
mod tests;
