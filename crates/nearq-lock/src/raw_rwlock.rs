//! The reader-writer lock without a value: the state, and the paths through it that do not wait.
//!
//! # Protocol
//! Two words of 32 bits. `state` decides who has the lock. `writers` is a mutex in which writers and upgradable readers queue up; a thread
//! holds it while it waits as the *head* of that queue, and as a writer until it leaves, if other threads queue up then. So the order of
//! writers, and their batches by cache, are those of the mutex.
//! The lock is all zero before its first use, and again, but for `PHASE`, whenever no thread uses it.
//!
//! | bits | name | meaning | changed by |
//! |---|---|---|---|
//! | 0-1 | `KIND` | `NONE`; `UPGRADABLE`: a reader that may become a writer; `WRITER`: a writer, which has the lock once no reader is left; `ENDING`: one that takes the row away | from `NONE`: the head, and any other thread if it is not `RESERVED`, but to a writer only if no reader is left. Else: the thread that made it what it is |
//! | 2 | `PHASE` | changes when a writer lets readers in | the writer that has the lock, when it leaves |
//! | 3 | `RESERVED` | only the head changes `KIND` from `NONE` | the head: to 1 when it has waited too long; to 0 when it changes `KIND`, or gives up |
//! | 4 | `READERS_ASLEEP` | a reader sleeps on `state`, or is about to | a waiting reader to 1; the writer to 0 when it leaves, and then it wakes |
//! | 5 | `WRITER_ASLEEP` | the head, or a thread that upgrades, sleeps in the lock's bucket, or is about to | that thread to 1; the thread that makes `KIND` `NONE` to 0, and then it wakes; the head, when the lock is its own |
//! | 6 | `HEAD` | the writer came as the head, and has `writers` | that writer: to 1 when it changes `KIND`; to 0 when it leaves, or gives up |
//! | 7-11 | `ROW` | the number of the row in which readers count themselves, or 0 | a reader that was too slow, from 0; the `ENDING` writer to 0 when it leaves |
//! | 12-21 | `ACTIVE` | how many readers have the lock | a reader that enters or leaves; the writer when it leaves |
//! | 22-31 | `WAITING` | how many readers wait for the next phase | a reader that comes while `KIND` is a writer's, gives up, or enters because the writer has given up; the writer to 0 when it leaves |
//!
//! - *read*: if `KIND` is not `WRITER`, `ACTIVE` + 1: the reader has the lock. Otherwise `WAITING` + 1, and the reader has the lock when
//!   `PHASE` has changed.
//! - *join* (only in `disowned.rs`, for locks that prefer readers): if `ROW` is 0 and `ACTIVE` is not, `ACTIVE` + 1, whatever
//!   `KIND` is.
//! - *leave as a reader*: `ACTIVE` - 1. The thread that makes it 0 while `KIND` is `WRITER` and `WRITER_ASLEEP` is set wakes the writer.
//! - *write*: `KIND` to `WRITER`; the writer has the lock when `ACTIVE` is 0. If it was the head, and no thread queued up behind it
//!   when it changed `KIND`, it releases `writers` then. Otherwise it sets `HEAD`, and the next thread does not become the head, nor contend
//!   for the state's cache line, before this one leaves.
//! - *leave as a writer*: if `HEAD` is set, release `writers`. Then in one step, `KIND` to `NONE`, `HEAD` to 0, `PHASE` changed, `WAITING` moved to `ACTIVE`. To downgrade is the same step, with one more in `ACTIVE`, or with `KIND` to `UPGRADABLE`.
//! - *give up* as a writer that waits for readers: `KIND` to what it was. `PHASE` stays, because readers that have been let in may not have
//!   noticed yet. A reader that waits and finds no writer in the same phase moves itself from `WAITING` to `ACTIVE`.
//! - *upgrade*: `KIND` from `UPGRADABLE` to `WRITER`; then as *write*.
//!
//! Invariants:
//! 1. **While a writer has the lock, no other thread has it.** `KIND` is `WRITER` from before it has the lock until it leaves, and only it
//!    can change that. Without a row only *join* adds to `ACTIVE` meanwhile, and its step fails if `ACTIVE` is 0, which it is
//!    when the writer gets the lock; so it stays 0. With one, nothing adds to it (`by_cache.rs`).
//! 2. **`ACTIVE` counts the readers that have the lock, or have been let in and have not noticed yet.** A reader that waits finds out by
//!    `PHASE`. It cannot miss a change: `PHASE` changes back only when the next writer that has had the lock leaves, and that one does not get
//!    the lock before this reader, which is counted in `ACTIVE`, has left.
//! 3. **A reader that waits has the lock after at most one writer's section**, that of the writer that it found: it is counted in
//!    `WAITING`, all of which enter when that writer leaves. (A writer that gives up does not count: if another one comes before the reader
//!    has noticed, the reader waits for that one.) **A writer waits for its place in the queue, and then for the readers that have the
//!    lock**: readers that come later wait, except those that *join*: with these, a writer's wait has no bound. (Readers beyond `MOST` have no
//!    such bound.)
//! 4. **Leaving does not touch the lock after the step that succeeds.** What follows uses the address, and memory of the process: the next
//!    thread may free the lock at once. A head releases `writers` before it leaves.
//! 5. **A reader that sleeps is woken**: it sleeps on `state` while there is a writer and `READERS_ASLEEP` is set, and each step that ends
//!    that clears the bit.
//! 6. **A head or a thread that upgrades and sleeps is woken.** It sleeps in a *bucket*, a counter of the process that the lock's address
//!    selects, so that waking it wakes no readers. It reads the counter, then finds a state for which it has to wait with `WRITER_ASLEEP`
//!    set, then sleeps while the counter is as it was. The thread that ends that state does so by a step on `state`, and finds the bit;
//!    after that it increments the counter, and wakes.
//!
//! `by_cache.rs` describes how readers count themselves by cache, in a row of counts that is lent to the lock, while they meet at `state`.
//!
//! A thread that waits spins if a CPU is left for it. Before it sleeps, it lets other threads run a few times: with more threads than CPUs,
//! those that have the lock are often preempted ones, which need a CPU and no wake-up.
//!
//! A thread that is not the head may overtake it: a thread that runs is faster than one that must be woken. When the head has waited for
//! longer than the patience, it sets `RESERVED`, and no thread overtakes it any more.
//!
//! Orderings: every step by which a thread gets the lock is an acquire, every step by which it leaves is a release. All changes of `state`
//! are read-modify-writes, so a release stays visible through the steps of other threads. A writer's last acquire is the load that finds
//! `ACTIVE` 0, a waiting reader's is the load that finds the changed `PHASE`. A thread that uses the row of a state has read that state by an
//! acquire, which pairs with the release by which the row was lent: another thread may just have made the row.

mod by_cache;
mod disowned;
mod leaving;
mod misuse;
mod requests;
mod waiting;
mod word;

use core::time::Duration;

use nearq_platform::{Atomic, ConstAtomic, ConstPlatform, Instant, Linux, LockPlatform, Ordering};

use self::misuse::{AGAINST_READ, AGAINST_UPGRADABLE, AGAINST_UPGRADE, AGAINST_WRITE, Held};
pub use self::requests::Requests;
use self::waiting::Waiting;
use self::word::{
    ACTIVE_ONE, KIND, NONE, PHASE, RESERVED, UPGRADABLE, WRITER, has_space, has_writer, is_open,
    row,
};
#[cfg(test)]
use crate::process_state::ProcessState;
use crate::raw::RawMutex;

/// A reader-writer lock without a value: eight bytes.
///
/// Ordering, fairness and forks are as with [`RwLock`](crate::RwLock).
///
/// ```
/// use nearq_lock::raw::RawRwLock;
///
/// let lock = RawRwLock::new();
/// lock.read();
/// assert!(lock.try_read() && !lock.try_write());
/// // SAFETY: taken twice above.
/// unsafe {
///     lock.unlock_read();
///     lock.unlock_read();
/// }
/// assert!(!lock.is_locked());
/// ```
pub struct RawRwLock<P: LockPlatform = Linux> {
    state: P::AtomicU32,
    writers: RawMutex<P>,
}

const _: () = assert!(size_of::<RawRwLock<Linux>>() == 8, "as the standard library's");

impl RawRwLock<Linux> {
    /// A free lock.
    pub const fn new() -> Self {
        Self::const_new_in()
    }
}

impl<P: ConstPlatform> RawRwLock<P> {
    /// A free lock, in a constant.
    #[doc(hidden)]
    pub const fn const_new_in() -> Self {
        RawRwLock { state: <P::AtomicU32 as ConstAtomic>::ZERO, writers: RawMutex::const_new_in() }
    }
}

impl<P: LockPlatform> RawRwLock<P> {
    /// A free lock, on any platform.
    #[doc(hidden)]
    pub fn new_in() -> Self {
        RawRwLock { state: P::AtomicU32::new(0), writers: RawMutex::new_in() }
    }

    // ---- readers ----------------------------------------------------------------------------------------

    /// Takes the lock as a reader; sleeps while a writer has it or waits for readers to leave.
    ///
    /// A thread that already reads may wait for ever, if a writer waits in between.
    ///
    /// # Panics
    /// In debug builds, if the thread would wait for a writer that waits for itself.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self) {
        if let Err(found) = self.enter() {
            self.read_slow(found);
        }
        misuse::took::<P>(&self.state, Held::Read);
    }

    /// Takes the lock as a reader, if no writer has it or waits for readers to leave. True if the caller has it now.
    #[inline]
    pub fn try_read(&self) -> bool {
        let entered = self.enter().is_ok() || self.waiting().try_read();
        if entered {
            misuse::took::<P>(&self.state, Held::Read);
        }
        entered
    }

    /// Takes the lock as a reader if that is possible within `time`; sleeps until then. True if the caller has it now.
    pub fn try_read_for(&self, time: Duration) -> bool {
        self.try_read() || self.read_until(P::now() + time)
    }

    /// As [`try_read_until`](RawRwLock::try_read_until), on any platform.
    #[doc(hidden)]
    pub fn try_read_until_in(&self, deadline: Instant) -> bool {
        self.try_read() || self.read_until(deadline)
    }

    /// One attempt to enter as a reader. An error is the state that was found: there is a writer or a row, or another thread was faster.
    #[inline]
    fn enter(&self) -> Result<(), u32> {
        // A guess, which the step below compares. Acquire: pairs with the release in `lend_row`, if the caller counts itself in the row.
        let word = self.state.load(Ordering::Acquire);
        if is_open(word)
            // Acquire: pairs with the release of the writer that left last.
            && self
                .state
                .compare_exchange_weak(
                    word,
                    word + ACTIVE_ONE,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                )
                .is_ok()
        {
            return Ok(());
        }
        Err(word)
    }

    #[cold]
    #[cfg_attr(debug_assertions, track_caller)]
    fn read_slow(&self, found: u32) {
        misuse::waits::<P>(&self.state, AGAINST_READ);
        let entered = self.waiting().read(Some(found), None);
        debug_assert!(entered, "without a deadline it waits until it has the lock");
    }

    #[cold]
    fn read_until(&self, deadline: Instant) -> bool {
        let entered = self.waiting().read(None, Some(deadline));
        if entered {
            misuse::took::<P>(&self.state, Held::Read);
        }
        entered
    }

    /// Leaves the lock as a reader; wakes the writer that waits for the last one.
    ///
    /// # Safety
    /// The caller has the lock as a reader: it took it, and has not left.
    ///
    /// # Panics
    /// In debug builds, if the thread does not have it. The lock stays as it is.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn unlock_read(&self) {
        misuse::gives_back::<P>(&self.state, Held::Read);
        // SAFETY: as the caller promises.
        unsafe { self.leave_as_reader() };
    }

    // ---- writers ----------------------------------------------------------------------------------------

    /// Takes the lock as a writer; sleeps while other threads have it.
    ///
    /// # Panics
    /// In debug builds, if the thread already has the lock, as a reader or otherwise.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) {
        if !self.enter_alone(WRITER) {
            misuse::waits::<P>(&self.state, AGAINST_WRITE);
            self.queue_up(WRITER, None);
        }
        misuse::took::<P>(&self.state, Held::Write);
    }

    /// Takes the lock as a writer if no thread has it, and it is not reserved for a writer that has waited too long. True if the caller has
    /// it now.
    #[inline]
    pub fn try_write(&self) -> bool {
        let entered = self.enter_alone(WRITER) || self.waiting().try_enter(WRITER);
        if entered {
            misuse::took::<P>(&self.state, Held::Write);
        }
        entered
    }

    /// Takes the lock as a writer if that is possible within `time`; sleeps until then. True if the caller has it now.
    pub fn try_write_for(&self, time: Duration) -> bool {
        self.try_write() || self.queue_up_until(WRITER, Held::Write, P::now() + time)
    }

    /// As [`try_write_until`](RawRwLock::try_write_until), on any platform.
    #[doc(hidden)]
    pub fn try_write_until_in(&self, deadline: Instant) -> bool {
        self.try_write() || self.queue_up_until(WRITER, Held::Write, deadline)
    }

    /// One attempt to take a lock that no thread has.
    #[inline]
    fn enter_alone(&self, kind: u32) -> bool {
        // Relaxed: a guess, which the step below compares.
        let word = self.state.load(Ordering::Relaxed);
        word & !PHASE == 0
            // Acquire: pairs with the release of the threads that left.
            && self
                .state
                .compare_exchange_weak(word, word | kind, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    #[cold]
    fn queue_up(&self, kind: u32, deadline: Option<Instant>) -> bool {
        self.waiting().queue_up(kind, deadline)
    }

    #[cold]
    fn queue_up_until(&self, kind: u32, held: Held, deadline: Instant) -> bool {
        let entered = self.queue_up(kind, Some(deadline));
        if entered {
            misuse::took::<P>(&self.state, held);
        }
        entered
    }

    /// Leaves the lock as a writer; lets all waiting readers in, and wakes threads that sleep for it.
    ///
    /// # Safety
    /// The caller has the lock as a writer: it took it, and has not left.
    ///
    /// # Panics
    /// In debug builds, if the thread does not have it. The lock stays as it is.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn unlock_write(&self) {
        misuse::gives_back::<P>(&self.state, Held::Write);
        // SAFETY: as the caller promises.
        unsafe { self.leave_as_writer(NONE) };
    }

    /// Leaves the lock as a writer and stays as a reader, in one step: no other writer comes in between.
    ///
    /// # Safety
    /// The caller has the lock as a writer. Afterwards it has it as a reader.
    ///
    /// # Panics
    /// In debug builds, if the thread does not have it as a writer. The lock stays as it is.
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn downgrade(&self) {
        misuse::gives_back::<P>(&self.state, Held::Write);
        // There is space for one more: no reader is active, and those that wait left one place free (`Waiting::read`).
        // SAFETY: as the caller promises.
        unsafe { self.leave_as_writer(ACTIVE_ONE) };
        misuse::took::<P>(&self.state, Held::Read);
    }

    /// Leaves the lock as a writer and stays as an upgradable reader, in one step.
    ///
    /// # Safety
    /// The caller has the lock as a writer. Afterwards it has it as an upgradable reader.
    ///
    /// # Panics
    /// In debug builds, if the thread does not have it as a writer. The lock stays as it is.
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn downgrade_to_upgradable(&self) {
        misuse::gives_back::<P>(&self.state, Held::Write);
        // SAFETY: as the caller promises.
        unsafe { self.leave_as_writer(UPGRADABLE) };
        misuse::took::<P>(&self.state, Held::Upgradable);
    }

    // ---- upgradable readers -----------------------------------------------------------------------------

    /// Takes the lock as a reader that may become a writer; sleeps while a writer or another upgradable reader has it. Other readers are
    /// not kept out.
    ///
    /// # Panics
    /// In debug builds, if the thread already has the lock as a writer or as an upgradable reader.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn upgradable_read(&self) {
        if !self.enter_alone(UPGRADABLE) {
            misuse::waits::<P>(&self.state, AGAINST_UPGRADABLE);
            self.queue_up(UPGRADABLE, None);
        }
        misuse::took::<P>(&self.state, Held::Upgradable);
    }

    /// Takes the lock as an upgradable reader if no other upgradable reader and no writer has it, and it is not reserved. True if the
    /// caller has it now.
    pub fn try_upgradable_read(&self) -> bool {
        let entered = self.waiting().try_enter(UPGRADABLE);
        if entered {
            misuse::took::<P>(&self.state, Held::Upgradable);
        }
        entered
    }

    /// Takes the lock as an upgradable reader if that is possible within `time`; sleeps until then. True if the caller has it now.
    pub fn try_upgradable_read_for(&self, time: Duration) -> bool {
        self.try_upgradable_read_until_in(P::now() + time)
    }

    /// As [`try_upgradable_read_until`](RawRwLock::try_upgradable_read_until), on any platform.
    #[doc(hidden)]
    pub fn try_upgradable_read_until_in(&self, deadline: Instant) -> bool {
        self.try_upgradable_read() || self.queue_up_until(UPGRADABLE, Held::Upgradable, deadline)
    }

    /// Leaves the lock as an upgradable reader, and wakes a writer that sleeps for it.
    ///
    /// # Safety
    /// The caller has the lock as an upgradable reader.
    ///
    /// # Panics
    /// In debug builds, if the thread does not have it. The lock stays as it is.
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn unlock_upgradable(&self) {
        misuse::gives_back::<P>(&self.state, Held::Upgradable);
        // SAFETY: as the caller promises.
        unsafe { Self::leave(&raw const self.state, |word| word & !KIND) };
    }

    /// Makes an upgradable reader a writer; sleeps until the other readers have left. No other writer comes in between.
    ///
    /// # Safety
    /// The caller has the lock as an upgradable reader. Afterwards it has it as a writer.
    ///
    /// # Panics
    /// In debug builds, if the thread does not have it as an upgradable reader, or is also a reader of it.
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn upgrade(&self) {
        misuse::expect_held::<P>(&self.state, Held::Upgradable);
        if !self.waiting().try_upgrade() {
            misuse::waits::<P>(&self.state, AGAINST_UPGRADE);
            let upgraded = self.waiting().upgrade(None);
            debug_assert!(upgraded, "without a deadline it waits until it has the lock");
        }
        self.is_upgraded(true);
    }

    /// Makes an upgradable reader a writer, if there is no other reader. True if the caller is a writer now; otherwise it is still an
    /// upgradable reader.
    ///
    /// # Safety
    /// The caller has the lock as an upgradable reader.
    ///
    /// # Panics
    /// In debug builds, if the thread does not have it as an upgradable reader.
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn try_upgrade(&self) -> bool {
        misuse::expect_held::<P>(&self.state, Held::Upgradable);
        self.is_upgraded(self.waiting().try_upgrade())
    }

    /// Makes an upgradable reader a writer, if the other readers leave within `time`; sleeps until then. True if the caller is a writer
    /// now; otherwise it is still an upgradable reader.
    ///
    /// # Safety
    /// The caller has the lock as an upgradable reader.
    ///
    /// # Panics
    /// In debug builds, if the thread does not have it as an upgradable reader.
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn try_upgrade_for(&self, time: Duration) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.try_upgrade_until_in(P::now() + time) }
    }

    /// As [`try_upgrade_until`](RawRwLock::try_upgrade_until), on any platform.
    ///
    /// # Safety
    /// The caller has the lock as an upgradable reader.
    #[doc(hidden)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn try_upgrade_until_in(&self, deadline: Instant) -> bool {
        misuse::expect_held::<P>(&self.state, Held::Upgradable);
        let waiting = self.waiting();
        let upgraded = waiting.try_upgrade() || waiting.upgrade(Some(deadline));
        self.is_upgraded(upgraded)
    }

    /// The caller was an upgradable reader, and is a writer now or not.
    fn is_upgraded(&self, upgraded: bool) -> bool {
        if upgraded {
            misuse::becomes::<P>(&self.state, Held::Upgradable, Held::Write);
        }
        upgraded
    }

    /// Makes an upgradable reader a reader, in one step: no writer comes in between.
    ///
    /// # Safety
    /// The caller has the lock as an upgradable reader. Afterwards it has it as a reader.
    ///
    /// # Panics
    /// In debug builds, if the thread does not have it as an upgradable reader. The lock stays as it is.
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn downgrade_upgradable(&self) {
        misuse::gives_back::<P>(&self.state, Held::Upgradable);
        loop {
            // Neither the row, if there is one, nor the phase changes while the caller has the lock. Acquire: pairs with the release in
            // `lend_row`.
            let word = self.state.load(Ordering::Acquire);
            if row(word) != 0 {
                // Counted where it will leave: `ACTIVE` would grow with each call, up to its limit.
                by_cache::becomes_reader::<P>(word);
                // SAFETY: as the caller promises.
                unsafe { Self::leave(&raw const self.state, |word| word & !KIND) };
                break;
            }
            if has_space(word) {
                // SAFETY: as the caller promises.
                unsafe { Self::leave(&raw const self.state, |word| (word & !KIND) + ACTIVE_ONE) };
                break;
            }
            Waiting::<P>::await_space();
        }
        misuse::took::<P>(&self.state, Held::Read);
    }

    // ---- both -------------------------------------------------------------------------------------------
    /// Lends a row to a lock, as a reader that was too slow.
    #[cfg(test)]
    pub(crate) fn lend_row(&self) {
        self.waiting().lend_row();
    }

    /// Makes the next writer take the row away, if there is one.
    #[cfg(test)]
    pub(crate) fn make_row_idle(&self) {
        let word = self.state.load(Ordering::Acquire);
        if row(word) != 0 {
            ProcessState::<P>::get().readers.is_idle(row(word));
        }
    }

    /// Lends a row to a lock that no thread uses; the next writer takes it away, or leaves it to the lock.
    #[cfg(test)]
    pub(crate) fn lend_row_for_test(&self, next_takes_it_away: bool) {
        let before = self.enter();
        self.lend_row();
        let word = self.state.load(Ordering::Relaxed);
        assert!(before.is_ok() && row(word) != 0);
        if next_takes_it_away {
            ProcessState::<P>::get().readers.is_idle(row(word));
        }
        by_cache::leave::<P>(word);
    }

    #[inline]
    fn waiting(&self) -> Waiting<'_, P> {
        Waiting::new(&self.state, &self.writers, None)
    }

    /// Whether a thread has the lock, waits as a writer for the readers to leave, or the lock is reserved for a writer. That may have
    /// changed by the time the caller uses the answer, and the answer orders nothing.
    pub fn is_locked(&self) -> bool {
        // A hint; conclude nothing from it. Acquire: pairs with the release in `lend_row`.
        let word = self.state.load(Ordering::Acquire);
        word & (KIND | RESERVED) != 0 || by_cache::readers::<P>(word) > 0
    }

    /// Whether a writer has the lock, or waits for the readers to leave. That may have changed by the time the caller uses the answer, and
    /// the answer orders nothing.
    pub fn is_locked_for_writing(&self) -> bool {
        // Relaxed: a hint; conclude nothing from it.
        has_writer(self.state.load(Ordering::Relaxed))
    }
}

impl<P: LockPlatform> Drop for RawRwLock<P> {
    #[inline]
    fn drop(&mut self) {
        // Relaxed: no other thread uses it.
        let word = self.state.load(Ordering::Relaxed);
        if word & !PHASE != 0 {
            by_cache::lock_ends::<P>(word);
            // A guard was leaked; the address may soon be another lock's.
            misuse::lost::<P>(&self.state);
        }
    }
}

impl<P: LockPlatform> Default for RawRwLock<P> {
    fn default() -> Self {
        Self::new_in()
    }
}

impl<P: LockPlatform> core::fmt::Debug for RawRwLock<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (locked, writing) = (self.is_locked(), self.is_locked_for_writing());
        f.debug_struct("RawRwLock").field("locked", &locked).field("writing", &writing).finish()
    }
}

#[cfg(test)]
mod tests;
