//! The point at which a thread is in a wait, for a thread that leaves the wait without returning from it, by a jump out of a signal
//! handler.
//!
//! # Protocol
//! The thread that waits notes its *station* in the stay. From that, a handler on the same thread knows what the thread would leave behind.
//!
//! | station | what is there | what [`Stay::leave`] does |
//! |---|---|---|
//! | `NOWHERE` | nothing, or something that the thread is about to clean up itself | nothing |
//! | `LISTED` | the record in a condition's ring | as at a deadline: takes the record out; if the thread has been notified, as at `QUEUED` |
//! | `QUEUED` | the record in a mutex's queue, or about to be put there by a notifier (`turn/moved.rs`) | as at a deadline: the record stays behind, for the thread that would send it a message. If it has got its message already, the turn is handed on |
//! | `FRONT` | the turn | as at a deadline: hands it on |
//! | `ON_WORD` | `ASLEEP` in the mutex's word | wakes one thread that sleeps there, because the caller may have consumed a wake-up |
//!
//! In addition, a thread that was counted as spinning (`process_state.rs`) is no longer counted.
//!
//! Invariants:
//! 1. **What is noted is true**: a station is noted after the step that makes it true, and withdrawn before the step that lets another
//!    thread have the record. So leaving never touches a record, a ring or a turn that belongs to another thread.
//! 2. **A thread that sleeps or spins has noted its station.** For some instructions between the steps, `NOWHERE` is noted while something
//!    is there. A jump at such a moment leaves that behind, just as such a jump leaves the C library's own state half changed.
//! 3. **The thread does not hold the mutex after it has left**, unless it took the mutex in the last step before the jump: then the mutex
//!    stays held, as the C library's does.
//! 4. **Leaving waits for no mutex, and allocates nothing.** It may take the lock of a ring, which the thread does not hold at the station
//!    `LISTED`.
//! 5. **A notification that the thread has got is lost with it**, as with the C library when a thread has consumed a notification and then
//!    waits for its mutex. It cannot be passed on: the condition variable may be gone as soon as all that waited have been notified.
//!
//! When a thread that was notified leaves, the notifier may still be using the mutex, until it has queued the record: the mutex must not be
//! destroyed before the call that notified has returned.
//!
//! A stay belongs to one thread, and to one wait at a time: a handler that waits within a wait needs a stay of its own.
//!
//! Orderings: only one thread and the signal handlers that run on it access a stay. The station is written after the data that it vouches
//! for, and read before them; a compiler fence on each side keeps that order.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::compiler_fence;

use nearq_platform::{Atomic, ConstAtomic, Linux, LockPlatform, Ordering};

use crate::process_state::ProcessState;
use crate::queue::{Received, TURN};
use crate::turn::Turns;

const NOWHERE: u32 = 0;
const LISTED: u32 = 1;
const QUEUED: u32 = 2;
const FRONT: u32 = 3;
const ON_WORD: u32 = 4;

/// Where a thread is in a wait that it may leave by a jump ([`RawMutex::lock_staying`](crate::raw::RawMutex::lock_staying),
/// [`RawCondvar::wait_as`](crate::raw::RawCondvar::wait_as)). A wait in a signal handler that interrupts another wait needs a stay of its
/// own.
#[derive(Debug)]
pub struct Stay<P: LockPlatform = Linux> {
    station: P::AtomicU32,
    /// The record by which the thread waits; unused at `ON_WORD`.
    number: Cell<u32>,
    /// The mutex's word.
    word: Cell<*const P::AtomicU32>,
    /// At `LISTED`: the ring's word.
    ring: Cell<*const P::AtomicU32>,
    /// The domain where the thread is counted as spinning, plus one; or 0.
    spins: P::AtomicU32,
}

impl Stay<Linux> {
    /// The stay of a thread that does not wait, on Linux.
    pub const fn new() -> Self {
        Stay {
            station: <<Linux as LockPlatform>::AtomicU32 as ConstAtomic>::ZERO,
            number: Cell::new(0),
            word: Cell::new(ptr::null()),
            ring: Cell::new(ptr::null()),
            spins: <<Linux as LockPlatform>::AtomicU32 as ConstAtomic>::ZERO,
        }
    }
}

impl<P: LockPlatform> Stay<P> {
    /// The stay of a thread that does not wait, on any platform.
    pub fn new_in() -> Self {
        Stay {
            station: P::AtomicU32::new(NOWHERE),
            number: Cell::new(0),
            word: Cell::new(ptr::null()),
            ring: Cell::new(ptr::null()),
            spins: P::AtomicU32::new(0),
        }
    }

    /// Cleans up the wait that has this stay, so that the caller can jump out of it. Must be called by the thread that waits, in a signal
    /// handler that interrupts the wait, before it jumps. Does nothing if the thread does not wait.
    ///
    /// # Safety
    /// The thread does not return to the wait. The mutex for which it waits exists. If the thread waits for a condition and was not
    /// notified, the condition variable exists too.
    pub unsafe fn leave(&self) {
        // Relaxed, here and below: see the head of the file.
        let spins = self.spins.load(Ordering::Relaxed);
        if spins != 0 {
            self.spins.store(0, Ordering::Relaxed);
            ProcessState::<P>::get().spins_no_more(spins as usize - 1);
        }
        let station = self.station.load(Ordering::Relaxed);
        compiler_fence(Ordering::Acquire);
        let (number, word) = (self.number.get(), self.word.get());
        self.station.store(NOWHERE, Ordering::Relaxed);
        match station {
            NOWHERE => {}
            ON_WORD => {
                P::wake(word, 1);
            }
            LISTED => {
                let waiters = &ProcessState::<P>::get().waiters;
                if waiters.leaves_ring(number) {
                    // SAFETY: not notified, so the condition variable exists, as the caller promises.
                    waiters.leave(number, unsafe { &*self.ring.get() });
                } else {
                    // SAFETY: as the caller promises.
                    unsafe { Self::leave_queue(number, word) };
                }
            }
            QUEUED => {
                // SAFETY: the mutex of that word exists, as the caller promises, or there is none.
                unsafe { Self::leave_queue(number, word) };
            }
            _ => {
                // SAFETY: a turn is that of a mutex, so the word is not null; the mutex exists, as the caller promises.
                let turns = Turns::of_record(unsafe { &*word }, ProcessState::<P>::get(), number);
                turns.hand_on_unused(number, TURN);
            }
        }
    }

    /// In the child of a fork, whose only thread is the caller, which forked in a signal handler that interrupts the wait: ends a wait for
    /// a condition for no reason, because no thread that might notify it knows of it. The caller may return to the wait.
    pub fn forked(&self) {
        // Relaxed: see the head of the file.
        let station = self.station.load(Ordering::Relaxed);
        compiler_fence(Ordering::Acquire);
        if station == LISTED {
            ProcessState::<P>::get().waiters.call_away(self.number.get());
        }
    }

    /// # Safety
    /// The mutex of that word exists, or there is none (null).
    unsafe fn leave_queue(number: u32, word: *const P::AtomicU32) {
        let process = ProcessState::<P>::get();
        if let Received::Message(message) = process.waiters.give_up(number) {
            if word.is_null() {
                return process.waiters.give_back(number);
            }
            // SAFETY: as the caller promises.
            Turns::of_record(unsafe { &*word }, process, number).hand_on_unused(number, message);
        }
    }

    fn note(&self, station: u32) {
        compiler_fence(Ordering::Release);
        self.station.store(station, Ordering::Relaxed);
        compiler_fence(Ordering::Release);
    }

    /// The thread will wait by the given record, for the mutex with the given word, or for none (null). The record is not in a ring or
    /// queue yet.
    pub(crate) fn begin(&self, number: u32, word: *const P::AtomicU32) {
        self.number.set(number);
        self.word.set(word);
    }

    /// The record is in a ring, which is not locked.
    pub(crate) fn is_listed(&self, ring: &P::AtomicU32) {
        self.ring.set(ring);
        self.note(LISTED);
    }

    /// The record is in a queue of the mutex, or was claimed by a notifier.
    pub(crate) fn is_queued(&self) {
        self.note(QUEUED);
    }

    /// The thread has the turn; what came with it is in the record.
    pub(crate) fn is_in_front(&self) {
        self.note(FRONT);
    }

    /// The thread is about to sleep on the word.
    pub(crate) fn is_on_word(&self, word: &P::AtomicU32) {
        self.word.set(word);
        self.note(ON_WORD);
    }

    /// The thread is at no station any more.
    pub(crate) fn goes_on(&self) {
        self.note(NOWHERE);
    }

    /// The thread is counted as spinning in that domain, or in none.
    pub(crate) fn spins(&self, domain: Option<usize>) {
        self.spins.store(domain.map_or(0, |domain| domain as u32 + 1), Ordering::Relaxed);
    }
}

impl Default for Stay<Linux> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(miri, tsan))))]
mod tests;
