//! The condition variable for guards: waiting until a value meets a condition.

use core::fmt;
use core::time::Duration;

use nearq_platform::{ConstPlatform, Instant, Linux, LockPlatform};

use crate::MutexGuard;
use crate::raw::RawCondvar;

/// Makes threads wait, without their [`Mutex`](crate::Mutex), until another thread reports that the value has changed.
///
/// It takes four bytes, no other memory, and no initialisation before use. Guarantees:
/// - Threads of real-time classes are notified first, the highest priority before the others; among ordinary threads, the one that has
///   waited longest. A notification reaches a thread that waits at that moment, and none that comes later.
/// - Threads that are notified do not compete for the mutex: each sleeps until it has the turn. Threads of real-time classes wake up
///   instead, and get the mutex in the kernel's order.
/// - There are no wake-ups without a notification, unless 65535 threads wait for mutexes and conditions at once. But another thread may
///   have changed the value before a notified one has the mutex: use [`wait_while`](Self::wait_while), or check again.
/// - It may be dropped as soon as all waiting threads have been notified, although they may not have returned from waiting.
///
/// Threads may wait with different mutexes at the same time.
///
/// ```
/// use nearq_lock::{Condvar, Mutex};
///
/// static QUEUE: Mutex<Vec<u32>> = Mutex::new(Vec::new());
/// static NOT_EMPTY: Condvar = Condvar::new();
///
/// let consumer = std::thread::spawn(|| {
///     let mut queue = QUEUE.lock();
///     NOT_EMPTY.wait_while(&mut queue, |queue| queue.is_empty());
///     assert_eq!(queue.pop(), Some(1));
/// });
/// QUEUE.lock().push(1);
/// NOT_EMPTY.notify_one();
/// consumer.join().unwrap();
/// ```
pub struct Condvar<P: LockPlatform = Linux> {
    raw: RawCondvar<P>,
}

impl Condvar<Linux> {
    /// A condition variable that no thread waits for.
    pub const fn new() -> Self {
        Self::const_new_in()
    }
}

impl<P: ConstPlatform> Condvar<P> {
    /// A condition variable that no thread waits for, in a constant.
    #[doc(hidden)]
    pub const fn const_new_in() -> Self {
        Condvar { raw: RawCondvar::const_new_in() }
    }
}

impl<P: LockPlatform> Condvar<P> {
    /// A condition variable that no thread waits for, on any platform.
    #[doc(hidden)]
    pub fn new_in() -> Self {
        Condvar { raw: RawCondvar::new_in() }
    }

    /// Releases the mutex, sleeps until notified, and takes the mutex again.
    ///
    /// The release and the beginning of the wait are one step for other threads: a thread that takes the mutex afterwards, changes the
    /// value and notifies is not missed. Check the condition again afterwards, or use [`wait_while`](Self::wait_while).
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T, P>) {
        self.wait_at_most(guard, None);
    }

    /// As [`wait_until`](Condvar::wait_until), on any platform.
    #[doc(hidden)]
    pub fn wait_until_in<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T, P>,
        deadline: Instant,
    ) -> bool {
        self.wait_at_most(guard, Some(deadline))
    }

    /// As [`wait`](Self::wait), but sleeps at most for `time`. False if the time was over first. Taking the mutex again may take longer.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T, P>, time: Duration) -> bool {
        self.wait_until_in(guard, P::now() + time)
    }

    /// Waits while `condition` holds for the value; not at all if it does not hold now.
    ///
    /// ```
    /// use nearq_lock::{Condvar, Mutex};
    ///
    /// let (mutex, condvar) = (Mutex::new(1), Condvar::new());
    /// condvar.wait_while(&mut mutex.lock(), |value| *value == 0);
    /// ```
    ///
    /// # Panics
    /// If `condition` does. The guard holds the mutex then.
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T, P>,
        condition: impl FnMut(&mut T) -> bool,
    ) {
        self.wait_while_at_most(guard, condition, None);
    }

    /// As [`wait_while_until`](Condvar::wait_while_until), on any platform.
    ///
    /// # Panics
    /// If `condition` does. The guard holds the mutex then.
    #[doc(hidden)]
    pub fn wait_while_until_in<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T, P>,
        condition: impl FnMut(&mut T) -> bool,
        deadline: Instant,
    ) -> bool {
        self.wait_while_at_most(guard, condition, Some(deadline))
    }

    /// As [`wait_while`](Self::wait_while), but at most for `time`. False if `condition` still holds then.
    ///
    /// ```
    /// use core::time::Duration;
    ///
    /// use nearq_lock::{Condvar, Mutex};
    ///
    /// let (mutex, condvar) = (Mutex::new(0), Condvar::new());
    /// let mut guard = mutex.lock();
    /// let millisecond = Duration::from_millis(1);
    /// assert!(!condvar.wait_while_for(&mut guard, |value| *value == 0, millisecond));
    /// ```
    ///
    /// # Panics
    /// If `condition` does. The guard holds the mutex then.
    pub fn wait_while_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T, P>,
        condition: impl FnMut(&mut T) -> bool,
        time: Duration,
    ) -> bool {
        self.wait_while_until_in(guard, condition, P::now() + time)
    }

    fn wait_at_most<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T, P>,
        deadline: Option<Instant>,
    ) -> bool {
        // SAFETY: a guard is made only after taking the lock, which it holds again afterwards. It is borrowed exclusively, so there is no
        // reference to the value during the wait.
        unsafe { self.raw.wait_at_most(MutexGuard::raw(guard), deadline) }
    }

    fn wait_while_at_most<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T, P>,
        mut condition: impl FnMut(&mut T) -> bool,
        deadline: Option<Instant>,
    ) -> bool {
        let mut in_time = true;
        loop {
            if !condition(guard) {
                return true;
            }
            if !in_time {
                return false;
            }
            in_time = self.wait_at_most(guard, deadline);
        }
    }

    /// Notifies the most urgent thread; among threads of the same urgency, the one that has waited longest. True if one waited.
    ///
    /// The caller may hold the mutex or not. If it holds it, the notified thread gets the mutex when its turn comes after that.
    /// [`Condvar`] has an example.
    pub fn notify_one(&self) -> bool {
        self.raw.notify_one()
    }

    /// Notifies all waiting threads, and returns how many there were.
    ///
    /// They do not all wake up now: each does when it has the turn to take the mutex.
    pub fn notify_all(&self) -> usize {
        self.raw.notify_all()
    }
}

impl<P: LockPlatform> Default for Condvar<P> {
    fn default() -> Self {
        Self::new_in()
    }
}

impl<P: LockPlatform> fmt::Debug for Condvar<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
