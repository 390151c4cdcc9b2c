//! The mutex without a value: the word, and the paths through it that do not wait.
//!
//! # Protocol
//! One 32-bit word; zero when the mutex is free and no thread waits.
//!
//! | bits | name | meaning | changed by |
//! |---|---|---|---|
//! | 0 | `LOCKED` | a thread holds the mutex | any thread from 0 to 1, unless it is `RESERVED` for another one; a thread that waits without a queue even then; the holder to 0 |
//! | 1 | `ASLEEP` | a thread sleeps on the word, or is about to | a thread that is about to sleep, while `LOCKED`, to 1; the holder to 0, together with `LOCKED`, and then it wakes |
//! | 2 | `RESERVED` | only the thread that has the turn may take it, and those that wait without a queue | the thread that has the turn to 1, when it has waited too long, and to 0 when it takes the mutex, gives up or sleeps while CPUs are few; a fair unlock to 1; a thread that is overtaken while it queues up to 1; `try_lock`, if no thread has the turn, to 0 |
//! | 3 | `NUMA` | waiters queue up in the slot | the holder, if it has the turn |
//! | 4-15 | `SLOT` | the slot's number; 0 without `NUMA` | the holder, by the same step as `NUMA` |
//! | 16-31 | `TAIL` | the last record in the plain queue | a thread that joins the queue; a thread that leaves its front |
//!
//! Each change is a compare-exchange of the whole word.
//!
//! - *lock, fast*: 0 to `LOCKED`.
//! - *lock otherwise*: `waiting.rs`. A thread that finds the word not `LOCKED` and not `RESERVED` may take it, even if other threads wait.
//!   A thread that waits without a queue takes it when it is not `LOCKED`.
//! - *unlock*: remove `LOCKED` and `ASLEEP`; if `ASLEEP` was there, wake.
//!
//! Invariants:
//! 1. **The thread that changes `LOCKED` from 0 to 1 holds the mutex.** Nothing else gives a thread the mutex: queues only decide which
//!    threads may read the word and which are woken. So whatever happens to the queues, two threads never hold it.
//! 2. **An unlock does not touch the mutex after the compare-exchange that succeeds**: one read-modify-write if no thread waits; the
//!    wake-up afterwards uses only the address. The next holder may free the mutex at once.
//! 3. **A thread that sleeps on the word is woken by the unlock that comes next**: it sleeps only while `LOCKED` and `ASLEEP` are both set,
//!    and only an unlock clears either. Usually it is one thread, the one that has the turn. All other sleepers sleep by their records
//!    (`queue.rs`).
//! 4. **A thread that is handed the turn asleep is woken by the thread that handed it on, when that one unlocks** (`Waking::Later`). Until
//!    the sleeper wakes up there is a record in a queue, so the word is more than `LOCKED`, and the unlock takes the longer path, which
//!    wakes it.
//!
//! Orderings: every step from not `LOCKED` to `LOCKED` is acquire, every step back is release: the next holder sees what the previous one
//! wrote. Other threads' steps in between are read-modify-writes, which keep the release visible through them.

use core::time::Duration;

use nearq_platform::{
    Atomic, ConstAtomic, ConstPlatform, Instant, Linux, LockPlatform, Ordering, Wait,
};

use crate::misuse;
use crate::process_state::ProcessState;
use crate::stay::Stay;
use crate::waiting::Waiting;
use crate::word::{ASLEEP, LOCKED, NUMA, RESERVED, SLOT, TAIL, slot};

/// A mutex without a value: four bytes.
///
/// Ordering, fairness and forks are as with [`Mutex`](crate::Mutex).
///
/// ```
/// use nearq_lock::raw::RawMutex;
///
/// let mutex = RawMutex::new();
/// mutex.lock();
/// assert!(!mutex.try_lock());
/// // SAFETY: taken above.
/// unsafe { mutex.unlock() };
/// ```
pub struct RawMutex<P: LockPlatform = Linux> {
    word: P::AtomicU32,
}

const _: () = assert!(size_of::<RawMutex<Linux>>() == 4, "the lock is embedded by the thousand");

impl RawMutex<Linux> {
    /// A free lock.
    pub const fn new() -> Self {
        Self::const_new_in()
    }
}

impl<P: ConstPlatform> RawMutex<P> {
    /// A free lock, in a constant.
    #[doc(hidden)]
    pub const fn const_new_in() -> Self {
        RawMutex { word: <P::AtomicU32 as ConstAtomic>::ZERO }
    }
}

impl<P: LockPlatform> RawMutex<P> {
    /// A free lock, on any platform.
    #[doc(hidden)]
    pub fn new_in() -> Self {
        RawMutex { word: P::AtomicU32::new(0) }
    }

    /// Takes the lock; sleeps while another thread holds it. A thread that already holds it waits for ever.
    ///
    /// # Panics
    /// In debug builds, if the thread already holds it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) {
        self.lock_as(None);
    }

    /// As [`lock`](Self::lock); if there is a stay, the caller notes in it where it waits.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn lock_as(&self, stay: Option<&Stay<P>>) {
        // Relaxed: only a read, so that a thread that comes late does not take the line away from the threads that compete for the mutex.
        // With 16 writers on two sockets, all of them are a quarter faster because of it.
        if self.word.load(Ordering::Relaxed) != 0
            // Acquire: pairs with the release in `unlock`.
            || self
                .word
                .compare_exchange_weak(0, LOCKED, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            match stay {
                None => self.lock_slow(),
                Some(stay) => {
                    self.lock_staying(None, stay);
                }
            }
        } else {
            misuse::took::<P>(&self.word);
        }
    }

    #[cold]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_slow(&self) {
        misuse::waits::<P>(&self.word);
        let locked = self.wait(None);
        debug_assert!(locked, "without a deadline it waits until it has the lock");
    }

    /// Takes the lock if it is free, and not reserved for a thread that has waited too long. True if the caller holds it now.
    #[inline]
    pub fn try_lock(&self) -> bool {
        // Acquire: pairs with the release in `unlock`.
        match self.word.compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => {
                misuse::took::<P>(&self.word);
                true
            }
            Err(word) => word & LOCKED == 0 && self.try_lock_slow(),
        }
    }

    /// Takes the lock if it is free and no thread waits for it, in no thread's name: as [`try_lock`](Self::try_lock) and then
    /// [`disown`](Self::disown), in one step. True if it is held now; then it is the caller's to release.
    ///
    /// ```
    /// let lock = nearq_lock::raw::RawMutex::new();
    /// assert!(lock.take_free() && !lock.take_free());
    /// lock.adopt();
    /// // SAFETY: taken above.
    /// unsafe { lock.unlock() };
    /// ```
    #[doc(hidden)]
    #[inline]
    pub fn take_free(&self) -> bool {
        // Acquire: pairs with the release in `unlock`.
        self.word.compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// As [`take_free`](Self::take_free); but if the lock is free and a thread may wait for it, returns the result of `otherwise`.
    ///
    /// ```
    /// let lock = nearq_lock::raw::RawMutex::new();
    /// assert!(lock.take_free_or(|| unreachable!()));
    /// assert!(!lock.take_free_or(|| unreachable!()));
    /// ```
    #[doc(hidden)]
    #[inline]
    pub fn take_free_or(&self, otherwise: impl FnOnce() -> bool) -> bool {
        // Acquire: pairs with the release in `unlock`.
        match self.word.compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => true,
            Err(word) => word & LOCKED == 0 && otherwise(),
        }
    }

    /// Releases the lock if no thread waits for it, in no thread's name: as [`adopt`](Self::adopt) and then [`unlock`](Self::unlock), in
    /// one step. False if a thread may wait: then nothing has happened, and the caller still has to release it.
    ///
    /// ```
    /// let lock = nearq_lock::raw::RawMutex::new();
    /// assert!(lock.take_free());
    /// // SAFETY: taken above.
    /// assert!(unsafe { lock.give_back_unwaited() } && !lock.is_locked());
    /// ```
    ///
    /// # Safety
    /// The lock is held, [disowned](Self::disown), and the caller's to release.
    #[doc(hidden)]
    #[inline]
    pub unsafe fn give_back_unwaited(&self) -> bool {
        // Relaxed: a guess, which the step below compares.
        self.word.load(Ordering::Relaxed) == LOCKED
            // Release: pairs with the acquire of the thread that takes the lock next. `*self` may be gone once this has succeeded.
            && self.word.compare_exchange(LOCKED, 0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn try_lock_slow(&self) -> bool {
        let locked = Waiting::<P>::new(&self.word).try_lock();
        if locked {
            misuse::took::<P>(&self.word);
        }
        locked
    }

    #[cold]
    fn wait(&self, deadline: Option<Instant>) -> bool {
        let locked = Waiting::<P>::new(&self.word).lock(deadline);
        if locked {
            misuse::took::<P>(&self.word);
        }
        locked
    }

    /// As [`try_lock_until`](RawMutex::try_lock_until), on any platform.
    #[doc(hidden)]
    #[inline]
    pub fn try_lock_until_in(&self, deadline: Instant) -> bool {
        self.try_lock() || self.wait(Some(deadline))
    }

    /// Takes the lock if that is possible within `time`; sleeps until then. True if the caller holds it now.
    #[inline]
    pub fn try_lock_for(&self, time: Duration) -> bool {
        self.try_lock() || self.wait(Some(P::now() + time))
    }

    /// As [`lock`](Self::lock), or as [`try_lock_until`](Self::try_lock_until) if there is a deadline, for a thread that may jump out of
    /// the wait from a signal handler: before it jumps, it must call [`Stay::leave`] on `stay`. True if the caller holds the lock now.
    ///
    /// ```
    /// use nearq_lock::raw::{RawMutex, Stay};
    ///
    /// let (lock, stay) = (RawMutex::new(), Stay::new());
    /// assert!(lock.lock_staying(None, &stay));
    /// assert!(!lock.lock_staying(Some(nearq_lock::platform::Instant::from_nanos(1)), &stay));
    /// ```
    ///
    /// # Panics
    /// In debug builds, if the thread already holds it and there is no deadline.
    #[doc(hidden)]
    #[cold]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock_staying(&self, deadline: Option<Instant>, stay: &Stay<P>) -> bool {
        if deadline.is_none() {
            misuse::waits::<P>(&self.word);
        }
        let locked = Waiting::<P>::new(&self.word).staying(Some(stay)).lock(deadline);
        if locked {
            misuse::took::<P>(&self.word);
        }
        locked
    }

    /// Takes the lock without a place in any queue, if that is possible before `deadline`. True if the caller holds it now.
    ///
    /// For threads that may have to wait before [`start`](crate::start) was called, in places that cannot call it: for example in a
    /// program's allocator. It never allocates and reads no files, and is as fair as the system's wake-ups.
    ///
    /// ```
    /// let lock = nearq_lock::raw::RawMutex::new();
    /// assert!(lock.lock_unqueued(None));
    /// assert!(!lock.lock_unqueued(Some(nearq_lock::platform::Instant::from_nanos(1))));
    /// ```
    ///
    /// # Panics
    /// In debug builds, if the thread already holds it and there is no deadline.
    #[doc(hidden)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock_unqueued(&self, deadline: Option<Instant>) -> bool {
        if self.try_lock() {
            return true;
        }
        if deadline.is_none() {
            misuse::waits::<P>(&self.word);
        }
        let locked = Waiting::<P>::new(&self.word).wait_without_queue(deadline);
        if locked {
            misuse::took::<P>(&self.word);
        }
        locked
    }

    /// As [`lock_unqueued`](Self::lock_unqueued), for a thread that may vanish while it sleeps, by unwinding or a jump: it leaves nothing
    /// behind that other threads would wait for. It sleeps by calling `sleep`, while the word has the given value, and does not get the
    /// lock if `sleep` reports that the time is over. If the thread vanishes after it was woken, another one that waits without a queue may
    /// sleep on: a `sleep` that unwinds wakes one thread on the word first ([`LockPlatform::wake`]).
    ///
    /// `sleep` gets the address of the word, to sleep there. The word names queues and records, so safe code must not be able to change it.
    ///
    /// ```
    /// use nearq_lock::platform::Wait;
    ///
    /// let lock = nearq_lock::raw::RawMutex::new();
    /// assert!(lock.lock_unqueued_by(|_word, _value| unreachable!()));
    /// assert!(!lock.lock_unqueued_by(|_word, _value| Wait::TimedOut));
    /// ```
    ///
    /// ```compile_fail
    /// use core::sync::atomic::Ordering;
    /// use nearq_lock::platform::Wait;
    ///
    /// let lock = nearq_lock::raw::RawMutex::new();
    /// lock.lock_unqueued_by(|word, _value| {
    ///     word.store(u32::MAX, Ordering::Relaxed);
    ///     Wait::TimedOut
    /// });
    /// ```
    #[doc(hidden)]
    pub fn lock_unqueued_by(&self, sleep: impl FnMut(*const P::AtomicU32, u32) -> Wait) -> bool {
        if self.try_lock() {
            return true;
        }
        let locked = Waiting::<P>::new(&self.word).wait_without_queue_by(sleep);
        if locked {
            misuse::took::<P>(&self.word);
        }
        locked
    }

    /// Releases the lock, and wakes a thread that sleeps for it.
    ///
    /// # Safety
    /// The caller holds the lock: it took it, and has not released it.
    ///
    /// # Panics
    /// In debug builds, if the thread does not hold it. The lock stays as it is.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn unlock(&self) {
        misuse::gives_back::<P>(&self.word);
        let word = &raw const self.word;
        // Relaxed: a guess, which the step below compares. It spares the threads that spin on the word a step that fails.
        let mut found = self.word.load(Ordering::Relaxed);
        if found == LOCKED {
            // Release: pairs with the acquire of the thread that takes the lock next. `*self` may be gone once this has succeeded.
            match self.word.compare_exchange(LOCKED, 0, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => found = other,
            }
        }
        // SAFETY: we still hold the lock, so the mutex is still there.
        unsafe { Self::unlock_slow(word, found, 0) };
    }

    /// Releases the lock; if threads wait for it, the one that has the turn gets it next, and no other.
    ///
    /// # Safety
    /// The caller holds the lock: it took it, and has not released it.
    ///
    /// # Panics
    /// In debug builds, if the thread does not hold it. The lock stays as it is.
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn unlock_fair(&self) {
        misuse::gives_back::<P>(&self.word);
        // Relaxed: a hint; a thread that joins later is not waiting yet.
        let found = self.word.load(Ordering::Relaxed);
        // A slot is the mutex's while we hold it.
        let waited_for = found & TAIL != 0
            || found & NUMA != 0 && !ProcessState::<P>::get().slots.get(slot(found)).is_quiet();
        let keep = if waited_for { RESERVED } else { 0 };
        // SAFETY: as the caller promises.
        unsafe { Self::unlock_slow(&raw const self.word, found, keep) };
    }

    /// Lets a waiting thread have the lock, and takes it again. Does nothing if no thread waits.
    ///
    /// # Safety
    /// The caller holds the lock. Afterwards it holds the lock again.
    ///
    /// # Panics
    /// In debug builds, if the thread does not hold it. The lock stays as it is.
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn bump(&self) {
        misuse::expect_held::<P>(&self.word);
        // Relaxed: a hint.
        if self.word.load(Ordering::Relaxed) != LOCKED {
            // SAFETY: as the caller promises.
            unsafe { self.unlock_fair() };
            self.lock();
        }
    }

    /// Removes `LOCKED` from a word in which more is set.
    ///
    /// # Safety
    /// The caller holds the lock, and `word` is the lock's word.
    #[cold]
    unsafe fn unlock_slow(word: *const P::AtomicU32, found: u32, keep: u32) {
        let mut found = found;
        loop {
            let free = found & !(LOCKED | ASLEEP) | keep;
            // SAFETY: the caller holds the lock, and does so until the step succeeds; no thread may free it before.
            let step = unsafe { &*word }.compare_exchange(
                found,
                free,
                Ordering::Release, // pairs with the acquire of the thread that takes the lock next
                Ordering::Relaxed,
            );
            match step {
                Ok(_) => break,
                Err(other) => found = other,
            }
        }
        if found & ASLEEP != 0 {
            // Without a queue, the threads that sleep here have no order, and each that is woken sets `ASLEEP`, as there may be more. With
            // one, the thread that has the turn sleeps here, and must not miss this.
            let count = if found & (TAIL | NUMA) == 0 { 1 } else { usize::MAX };
            P::wake(word, count);
        }
        if found & (TAIL | NUMA) != 0 {
            ProcessState::<P>::get().waiters.wake_deferred();
        }
    }

    /// From now on the lock, which stays held, is not this thread's: any thread may [adopt](Self::adopt) it and release it. For code that
    /// hands a held mutex to another thread, moves it, or does not know which thread will release it. Without this call, a mutex that
    /// another thread releases may leave a waiting thread asleep for ever; debug builds check that the thread that releases a mutex has
    /// taken it.
    ///
    /// ```
    /// use nearq_lock::raw::RawMutex;
    ///
    /// static MUTEX: RawMutex = RawMutex::new();
    /// MUTEX.lock();
    /// MUTEX.disown();
    /// let thread = std::thread::spawn(|| {
    ///     MUTEX.adopt();
    ///     // SAFETY: the thread that took it has handed it to us.
    ///     unsafe { MUTEX.unlock() };
    /// });
    /// thread.join().unwrap();
    /// assert!(!MUTEX.is_locked());
    /// ```
    #[doc(hidden)]
    #[inline]
    pub fn disown(&self) {
        // Relaxed: we hold it; the threads that we know to be waiting have been in a queue since before.
        if self.word.load(Ordering::Relaxed) & (TAIL | NUMA) != 0 {
            // The thread that releases it does not know to which threads we have sent messages.
            ProcessState::<P>::get().waiters.wake_deferred();
        }
        misuse::disowns::<P>(&self.word);
    }

    /// The lock, which is held and [disowned](Self::disown), is this thread's from now on.
    #[doc(hidden)]
    #[inline]
    pub fn adopt(&self) {
        misuse::took::<P>(&self.word);
    }

    /// Makes the lock free, whichever threads of the parent had it or slept on it.
    ///
    /// # Safety
    /// No other thread uses the lock: threads that held it or slept on it are not copied into the child of a fork.
    #[doc(hidden)]
    pub unsafe fn renew(&self) {
        misuse::lost::<P>(&self.word);
        self.leave_slot();
        // Relaxed: only the caller, and threads that it starts, can see it.
        self.word.store(0, Ordering::Relaxed);
    }

    /// Whether threads queue up for the lock, or did a moment ago. That may have changed by the time the caller uses the answer.
    pub(crate) fn is_queued_for(&self) -> bool {
        // Relaxed: a hint.
        self.word.load(Ordering::Relaxed) & (TAIL | NUMA) != 0
    }

    /// The word; it may have changed by the time the caller uses the answer.
    #[cfg(test)]
    pub(crate) fn word_now(&self) -> u32 {
        // Acquire: sees what the thread that put the slot there did before.
        self.word.load(Ordering::Acquire)
    }

    /// Changes the word by a step that neither takes nor releases the mutex.
    #[cfg(test)]
    pub(crate) fn change_word(&self, change: impl Fn(u32) -> u32) {
        let mut word = self.word_now();
        // Release: what the step names is ready. Acquire: sees what the thread that put the slot there did before.
        while let Err(found) =
            self.word.compare_exchange(word, change(word), Ordering::AcqRel, Ordering::Acquire)
        {
            word = found;
        }
    }

    /// Binds a slot to a mutex that no thread waits for, as the change to queues by domain would. Returns whether there was one.
    #[cfg(test)]
    pub(crate) fn bind_for_test(&self) -> bool {
        self.lock();
        let bound = self.bind_for_test_while_held();
        // SAFETY: taken above.
        unsafe { self.unlock() };
        bound
    }

    /// Likewise, if the caller holds the mutex and other threads may queue up.
    #[cfg(test)]
    pub(crate) fn bind_for_test_while_held(&self) -> bool {
        Waiting::<P>::new(&self.word).bind_in_front()
    }

    /// Gives the slot back, if there is one. No other thread uses the mutex.
    fn leave_slot(&self) {
        // Relaxed: no other thread uses it.
        let word = self.word.load(Ordering::Relaxed);
        if word & SLOT != 0 {
            Self::leave_slot_of(word);
        }
        if word & LOCKED != 0 {
            // The mutex was leaked; its address may soon be another mutex's.
            misuse::lost::<P>(&self.word);
        }
    }

    #[cold]
    fn leave_slot_of(word: u32) {
        let there = P::shared();
        if !there.is_null() {
            ProcessState::<P>::get().give_slot_back(slot(word));
        }
    }

    /// The word, for code that waits for the mutex in another way than by [`lock`](Self::lock).
    pub(crate) fn word(&self) -> &P::AtomicU32 {
        &self.word
    }

    /// Whether a thread holds the lock, or it is reserved for a thread that waits. That may have changed by the time the caller uses the
    /// answer, and the answer orders nothing.
    pub fn is_locked(&self) -> bool {
        // Relaxed: a hint; conclude nothing from it.
        self.word.load(Ordering::Relaxed) & (LOCKED | RESERVED) != 0
    }
}

impl<P: LockPlatform> Drop for RawMutex<P> {
    #[inline]
    fn drop(&mut self) {
        self.leave_slot();
    }
}

impl<P: LockPlatform> Default for RawMutex<P> {
    fn default() -> Self {
        Self::new_in()
    }
}

impl<P: LockPlatform> core::fmt::Debug for RawMutex<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RawMutex").field("locked", &self.is_locked()).finish()
    }
}
