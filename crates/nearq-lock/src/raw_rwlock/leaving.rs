//! How a thread leaves a reader-writer lock, and wakes those that this concerns; the head of `raw_rwlock.rs` has the protocol.

use nearq_platform::{Atomic, AtomicInt, LockPlatform, Ordering};

use super::word::{
    ACTIVE_ONE, HEAD, KIND, NONE, PHASE, READERS_ASLEEP, WRITER, WRITER_ASLEEP, active, next_phase,
    row,
};
use super::{RawRwLock, by_cache};
use crate::process_state::ProcessState;

impl<P: LockPlatform> RawRwLock<P> {
    /// Leaves the lock as a reader. Afterwards it may be gone.
    ///
    /// # Safety
    /// The caller has the lock as a reader.
    #[inline]
    pub(super) unsafe fn leave_as_reader(&self) {
        // Since this thread entered, the state has its phase, and the row if the row counts this thread. Acquire: pairs with the release in
        // `lend_row`: another reader may have made a row since, and lent it.
        let word = self.state.load(Ordering::Acquire);
        if row(word) != 0 {
            by_cache::leave::<P>(word);
            return;
        }
        let state = &raw const self.state;
        // Release: pairs with the acquire of the writer that finds no reader. `*self` may be gone once this is done.
        let before = self.state.fetch_sub(ACTIVE_ONE, Ordering::Release);
        debug_assert!(active(before) > 0, "a reader leaves that is not counted");
        let is_last = || active(before) == 1 || row(before) != 0;
        if before & (WRITER | WRITER_ASLEEP) == WRITER | WRITER_ASLEEP && is_last() {
            wake_writer::<P>(state);
        }
    }

    /// Leaves a lock that the caller has as a writer: adds `stays` to the state, which says what the caller has from now on. Afterwards the
    /// lock may be gone.
    ///
    /// # Safety
    /// The caller has the lock as a writer.
    #[inline]
    pub(super) unsafe fn leave_as_writer(&self, stays: u32) {
        // The row is the lock's while the caller has the lock, or was lent to it since; `HEAD` is the caller's. Acquire: as in
        // `leave_as_reader`.
        let word = self.state.load(Ordering::Acquire);
        if word & !PHASE == WRITER {
            // No thread waits, and there is no row: what `next_phase` comes to then. Release: pairs with the acquires of the threads that get
            // the lock next. `*self` may be gone once this has succeeded.
            let left = (word ^ PHASE ^ WRITER) + stays;
            if self.state.compare_exchange(word, left, Ordering::Release, Ordering::Relaxed).is_ok()
            {
                return;
            }
        }
        if word & HEAD != 0 {
            self.writers.adopt();
            // SAFETY: this thread took it as the head, and has it until now.
            unsafe { self.writers.unlock() };
        }
        let state = &raw const self.state;
        // A row that was lent since stays.
        let loses_row = row(word) != 0 && by_cache::before_writer_leaves::<P>(word);
        // SAFETY: as the caller promises.
        unsafe { Self::leave(state, |word| next_phase(word, NONE, loses_row) + stays) };
        if loses_row {
            by_cache::has_lost_row::<P>(word, state.addr());
        }
    }

    /// Changes `KIND` of a lock that the caller has as a writer or as an upgradable reader, and wakes the threads that this concerns.
    ///
    /// # Safety
    /// `state` is the state of a lock that the caller has so, and `next` gives the lock away by its change to `KIND`.
    #[inline]
    pub(super) unsafe fn leave(state: *const P::AtomicU32, next: impl Fn(u32) -> u32) {
        // SAFETY: the caller has the lock, and does so until the step succeeds; no thread may free it before.
        let mut found = unsafe { &*state }.load(Ordering::Relaxed); // a guess, which the step compares
        loop {
            let mut left = next(found) & !READERS_ASLEEP;
            if left & KIND == NONE {
                left &= !WRITER_ASLEEP;
            }
            // SAFETY: as above.
            let step = unsafe { &*state }.compare_exchange_weak(
                found,
                left,
                Ordering::Release, // pairs with the acquires of the threads that get the lock next
                Ordering::Relaxed,
            );
            match step {
                Ok(_) => {
                    if (found & !left) & (READERS_ASLEEP | WRITER_ASLEEP) != 0 {
                        Self::wake(state, found & !left);
                    }
                    return;
                }
                Err(other) => found = other,
            }
        }
    }

    /// Wakes those whose bits were removed.
    #[cold]
    fn wake(state: *const P::AtomicU32, removed: u32) {
        if removed & WRITER_ASLEEP != 0 {
            wake_writer::<P>(state);
        }
        if removed & READERS_ASLEEP != 0 {
            P::wake(state, usize::MAX);
        }
    }
}

/// Wakes the head, or the thread that upgrades, of the lock whose state has that address; the lock may be gone.
#[cold]
pub(super) fn wake_writer<P: LockPlatform>(state: *const P::AtomicU32) {
    let process = ProcessState::<P>::get();
    process.wake_bucket(ProcessState::<P>::bucket_of(state.addr()));
}
