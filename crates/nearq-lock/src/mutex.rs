//! A value behind the lock, and the guard that releases it.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::time::Duration;

use nearq_platform::{ConstPlatform, Instant, Linux, LockPlatform};

use crate::raw::RawMutex;

/// A value that one thread at a time may use.
///
/// The lock takes four bytes, and no other memory and no initialisation before use. It is never poisoned: a panic while a guard exists
/// releases the lock, and the next holder finds the value as it was left. It is not reentrant: a thread that locks it twice waits for ever,
/// or panics in debug builds.
///
/// Ordering: all that a thread did before it released the lock happens before what the next holder does after it took the lock.
///
/// Fairness: a thread that comes while the lock is free may take it before threads that already wait. When the thread that has the turn
/// has tolerated that for [`Settings::patience`](crate::Settings::patience), the lock is reserved for it. There is no such bound without
/// queues ([`Mode::Off`](crate::Mode::Off)).
///
/// Forks: in the child of a fork, a lock that another thread of the parent held stays locked.
///
/// ```
/// use nearq_lock::Mutex;
///
/// let total = Mutex::new(0);
/// std::thread::scope(|scope| {
///     for number in 1..=4 {
///         let total = &total;
///         scope.spawn(move || *total.lock() += number);
///     }
/// });
/// assert_eq!(total.into_inner(), 10);
/// ```
pub struct Mutex<T: ?Sized, P: LockPlatform = Linux> {
    raw: RawMutex<P>,
    value: UnsafeCell<T>,
}

// SAFETY: moving the mutex moves the value; the lock itself is an atomic and may go anywhere.
unsafe impl<T: ?Sized + Send, P: LockPlatform> Send for Mutex<T, P> {}
// SAFETY: a shared mutex hands out the value to one thread at a time (invariant 1 in `raw_mutex.rs`), and the acquire of each holder pairs
// with the release of the previous one. So the value goes from thread to thread, which `Send` allows; it is never used by two at once, so
// `Sync` is not needed.
unsafe impl<T: ?Sized + Send, P: LockPlatform> Sync for Mutex<T, P> {}

impl<T> Mutex<T> {
    /// A free mutex around `value`.
    pub const fn new(value: T) -> Self {
        Self::const_new_in(value)
    }
}

impl<T, P: ConstPlatform> Mutex<T, P> {
    /// A free mutex around `value`, in a constant.
    #[doc(hidden)]
    pub const fn const_new_in(value: T) -> Self {
        Mutex { raw: RawMutex::const_new_in(), value: UnsafeCell::new(value) }
    }
}

impl<T, P: LockPlatform> Mutex<T, P> {
    /// A free mutex around `value`, on any platform.
    #[doc(hidden)]
    pub fn new_in(value: T) -> Self {
        Mutex { raw: RawMutex::new_in(), value: UnsafeCell::new(value) }
    }

    /// Resets the mutex in the child of a fork: free, and with `value`. The old value, which a thread that no longer exists may have left
    /// half changed, is forgotten and not dropped.
    ///
    /// # Safety
    /// No other thread uses the mutex, and the caller has no guard of it.
    #[doc(hidden)]
    pub unsafe fn renew(&self, value: T) {
        // SAFETY: no other thread uses the mutex, so there is no reference to the value; it is overwritten without being read, so it does
        // not matter what it is.
        unsafe { self.value.get().write(value) };
        // SAFETY: as the caller promises.
        unsafe { self.raw.renew() };
    }

    /// Unwraps the value. Nothing is locked: the caller owns the mutex.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, P: LockPlatform> Mutex<T, P> {
    /// Takes the lock, and sleeps while another thread holds it. The guard releases it when dropped.
    ///
    /// A thread that already holds the lock waits for ever.
    ///
    /// # Panics
    /// In debug builds, if the thread already holds the lock.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, T, P> {
        self.raw.lock();
        MutexGuard { mutex: self, not_send: PhantomData }
    }

    /// Takes the lock if it is free, and not reserved for a thread that has waited too long. Never sleeps.
    ///
    /// ```
    /// let mutex = nearq_lock::Mutex::new(1);
    /// let guard = mutex.try_lock().expect("it is free");
    /// assert!(mutex.try_lock().is_none());
    /// # drop(guard);
    /// ```
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, P>> {
        self.raw.try_lock().then(|| MutexGuard { mutex: self, not_send: PhantomData })
    }

    /// Takes the lock if that is possible within `time`; sleeps until then. With a time of zero, as [`try_lock`](Self::try_lock).
    ///
    /// A thread whose time is over leaves its place in the queue at once, wherever that is.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let mutex = nearq_lock::Mutex::new(1);
    /// let guard = mutex.lock();
    /// assert!(mutex.try_lock_for(Duration::from_millis(1)).is_none());
    /// # drop(guard);
    /// ```
    #[inline]
    pub fn try_lock_for(&self, time: Duration) -> Option<MutexGuard<'_, T, P>> {
        self.raw.try_lock_for(time).then(|| MutexGuard { mutex: self, not_send: PhantomData })
    }

    /// As [`try_lock_until`](Mutex::try_lock_until), on any platform.
    #[doc(hidden)]
    #[inline]
    pub fn try_lock_until_in(&self, deadline: Instant) -> Option<MutexGuard<'_, T, P>> {
        self.raw
            .try_lock_until_in(deadline)
            .then(|| MutexGuard { mutex: self, not_send: PhantomData })
    }

    #[cfg(test)]
    pub(crate) fn raw(&self) -> &RawMutex<P> {
        &self.raw
    }

    /// The value. Nothing is locked: `&mut self` proves that no other thread can have the mutex.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The address of the value. Nothing is locked.
    ///
    /// For code that has forgotten the guard (`core::mem::forget`) and still holds the lock: only the thread that holds the lock may
    /// dereference the pointer, or its copy in the child of a fork.
    ///
    /// ```
    /// let mutex = nearq_lock::Mutex::new(1);
    /// core::mem::forget(mutex.lock());
    /// // SAFETY: this thread holds the lock.
    /// unsafe { *mutex.data_ptr() += 1 };
    /// // SAFETY: it holds the lock, and has forgotten the guard.
    /// unsafe { mutex.force_unlock() };
    /// assert_eq!(*mutex.lock(), 2);
    /// ```
    pub fn data_ptr(&self) -> *mut T {
        self.value.get()
    }

    /// Releases the lock in place of a guard that was forgotten (`core::mem::forget`). [`data_ptr`](Self::data_ptr) has an example.
    ///
    /// # Safety
    /// This thread, or the one that it is a copy of after a fork, took the lock and has forgotten the guard.
    ///
    /// # Panics
    /// In debug builds, if the thread does not hold the lock.
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn force_unlock(&self) {
        // SAFETY: as the caller promises; the guard no longer releases it.
        unsafe { self.raw.unlock() };
    }

    /// Whether a thread holds the lock, or it is reserved for a thread that waits. That may have changed by the time the caller uses the
    /// answer, and the answer orders nothing.
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }
}

impl<T: Default, P: LockPlatform> Default for Mutex<T, P> {
    fn default() -> Self {
        Self::new_in(T::default())
    }
}

impl<T, P: LockPlatform> From<T> for Mutex<T, P> {
    fn from(value: T) -> Self {
        Self::new_in(value)
    }
}

impl<T: ?Sized + fmt::Debug, P: LockPlatform> fmt::Debug for Mutex<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Mutex");
        match self.try_lock() {
            Some(guard) => shown.field("value", &&*guard),
            None => shown.field("value", &format_args!("<locked>")),
        };
        shown.finish()
    }
}

/// The right to use the value of a [`Mutex`]; releases the lock when dropped.
///
/// It cannot be sent to another thread. If it is forgotten (`core::mem::forget`), the mutex stays locked.
#[must_use = "the lock is given back when the guard is dropped, which is at once if nothing holds it"]
pub struct MutexGuard<'a, T: ?Sized, P: LockPlatform = Linux> {
    mutex: &'a Mutex<T, P>,
    /// A queued lock keeps the waiter's node in the thread: the guard must not leave it.
    not_send: PhantomData<*const ()>,
}

impl<T: ?Sized, P: LockPlatform> MutexGuard<'_, T, P> {
    /// Hands the lock to the thread that is next in line, if one waits. (After a drop, any thread that comes first may take it.)
    ///
    /// This is slower for all threads together than a drop, and rarely needed: a mutex ensures by itself that no thread waits for long.
    ///
    /// ```
    /// use nearq_lock::{Mutex, MutexGuard};
    ///
    /// let mutex = Mutex::new(1);
    /// MutexGuard::unlock_fair(mutex.lock());
    /// assert!(!mutex.is_locked());
    /// ```
    pub fn unlock_fair(guard: Self) {
        let guard = ManuallyDrop::new(guard);
        // SAFETY: a guard is made only after taking the lock; this one is no longer dropped.
        unsafe { guard.mutex.raw.unlock_fair() }
    }

    /// The lock that the guard holds.
    pub(crate) fn raw(guard: &Self) -> &RawMutex<P> {
        &guard.mutex.raw
    }

    /// Lets the thread that is next in line have the lock, if one waits, and takes it again. The value may have changed afterwards. Does
    /// nothing if no thread waits.
    ///
    /// For a thread that holds the lock for long, between two steps of its work.
    ///
    /// ```
    /// use nearq_lock::{Mutex, MutexGuard};
    ///
    /// let mutex = Mutex::new(0);
    /// let mut guard = mutex.lock();
    /// for _ in 0..3 {
    ///     *guard += 1;
    ///     MutexGuard::bump(&mut guard);
    /// }
    /// # assert_eq!(*guard, 3);
    /// ```
    pub fn bump(guard: &mut Self) {
        // SAFETY: a guard is made only after taking the lock. It is borrowed exclusively, so there is no reference to the value.
        unsafe { guard.mutex.raw.bump() }
    }
}

// SAFETY: a shared guard gives `&T` and nothing else.
unsafe impl<T: ?Sized + Sync, P: LockPlatform> Sync for MutexGuard<'_, T, P> {}

impl<T: ?Sized, P: LockPlatform> Deref for MutexGuard<'_, T, P> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the mutex, and with it the value, lives as long as the guard's borrow. The guard exists, so we
        // hold the lock: no other thread has a reference (invariant 1 in `raw_mutex.rs`), and within this thread
        // borrowing the guard keeps `&T` and `&mut T` apart.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized, P: LockPlatform> DerefMut for MutexGuard<'_, T, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the mutex outlives the guard, which has the lock: no other thread has a reference (invariant 1 in `raw_mutex.rs`). `&mut
        // self` makes this the only borrow of the guard.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized, P: LockPlatform> Drop for MutexGuard<'_, T, P> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a guard is made only after taking the lock, and dropped once: we hold it.
        unsafe { self.mutex.raw.unlock() }
    }
}

impl<T: ?Sized + fmt::Debug, P: LockPlatform> fmt::Debug for MutexGuard<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display, P: LockPlatform> fmt::Display for MutexGuard<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_exclude_each_other_and_release() {
        let mutex: Mutex<i32> = Mutex::new(1);
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none());
        assert!(mutex.is_locked());
        assert_eq!(format!("{mutex:?}"), "Mutex { value: <locked> }");
        drop(guard);
        *mutex.try_lock().expect("free again") += 1;
        assert_eq!(format!("{mutex:?}"), "Mutex { value: 2 }");
        assert_eq!(mutex.into_inner(), 2);
    }

    #[test]
    fn a_panic_releases_the_lock_and_poisons_nothing() {
        let mutex: Mutex<i32> = Mutex::new(1);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            *mutex.lock() = 2;
            let _guard = mutex.lock();
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(outcome.is_err());
        assert_eq!(*mutex.lock(), 2);
    }

    #[test]
    fn a_forgotten_guard_can_be_released_and_a_lost_lock_reset() {
        let mutex = Mutex::new(vec![1]);
        core::mem::forget(mutex.lock());
        assert!(mutex.try_lock().is_none());
        // SAFETY: the lock was taken above and the guard is forgotten, so there is no exclusive reference; this one is gone at the end of
        // the line.
        assert_eq!(unsafe { &*mutex.data_ptr() }, &[1]);
        // SAFETY: we took it, and have forgotten the guard.
        unsafe { mutex.force_unlock() };
        mutex.lock().push(2);
        let mut lost = core::mem::take(&mut *mutex.lock());
        core::mem::forget(mutex.lock());
        lost.push(3);
        // SAFETY: no other thread has the mutex, and the guard was forgotten.
        unsafe { mutex.renew(lost) };
        assert_eq!(*mutex.lock(), [1, 2, 3]);
    }

    #[test]
    fn unsized_values_and_exclusive_access() {
        let mut mutex: Mutex<[u8; 3]> = Mutex::new([1, 2, 3]);
        mutex.get_mut()[0] = 4;
        let slice: &Mutex<[u8]> = &mutex;
        assert_eq!(slice.lock().len(), 3);
        assert_eq!(mutex.lock()[0], 4);
    }
}
