//! Where a thread is in a wait, for a thread that leaves the wait without returning from it: by a jump out of a signal handler.
//!
//! # Protocol
//! The thread that waits notes its *station*, by which a handler on the same thread knows what it leaves behind.
//!
//! | station | what is there | what [`Stay::leave`] does |
//! |---|---|---|
//! | `NOWHERE` | nothing, or something that the thread is about to put in order by itself | nothing |
//! | `LISTED` | the record in a condition's ring | as at a deadline: takes it out; if it was notified meanwhile, as `QUEUED` |
//! | `QUEUED` | the record in a mutex's queue; or about to be put there by a notifier (`turn/moved.rs`) | as at a deadline: the record stays behind, for the thread that tells it. If it was told already, the turn is handed on |
//! | `FRONT` | the turn | as at a deadline: hands it on |
//! | `ON_WORD` | `ASLEEP` in the mutex's word | wakes one that sleeps there, as a wake-up may have come for the caller |
//!
//! Beside that: if the thread was counted as one that spins (`room.rs`), it is not any more.
//!
//! Invariants:
//! 1. **What is noted is true**: a station is noted after the step that makes it true, and taken away before the step that lets another
//!    thread have the record. So leaving never touches a record, a ring or a turn that is another thread's.
//! 2. **A thread that sleeps or spins has noted its station.** Between the steps, for some instructions, `NOWHERE` is noted while
//!    something is there. A jump at such a moment leaves it behind, as a jump from there leaves the C library's own state half changed.
//! 3. **The caller does not have the mutex after it has left**, unless it had taken it by the step before the jump: then it stays held, as
//!    the C library's does.
//! 4. **Leaving waits for no mutex, and allocates nothing.** It may take the lock of a ring, which the thread does not hold at the station
//!    `LISTED`.
//! 5. **A notification that had come goes along**, as with the C library one that the thread has consumed and then waits for its mutex.
//!    It cannot be passed on: a condition variable may be gone as soon as all that waited have been notified.
//!
//! A thread that was notified and leaves may be in the hands of the notifier still, which uses the mutex until it has queued the record
//! up: the mutex must not be destroyed before the call that notified has returned.
//!
//! A stay is of one thread, and of one wait at a time: a handler that waits within a wait has another one.
//!
//! Orderings: all is of one thread and of the signal handlers that run on it. The station is written after what it is about, and read
//! before it; a fence for the compiler each keeps that order.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::compiler_fence;

use nearq_platform::{Atomic, ConstAtomic, Linux, Ordering, Platform};

use crate::queue::{Heard, TURN};
use crate::room::Room;
use crate::turn::Turns;

const NOWHERE: u32 = 0;
const LISTED: u32 = 1;
const QUEUED: u32 = 2;
const FRONT: u32 = 3;
const ON_WORD: u32 = 4;

/// Where a thread is in a wait that it may leave by a jump ([`RawMutex::lock_staying`](crate::RawMutex::lock_staying),
/// [`RawCondvar::wait_as`](crate::RawCondvar::wait_as)). Each wait of a thread that is within another one, in a signal handler,
/// has one of its own.
#[derive(Debug)]
pub struct Stay<P: Platform = Linux> {
    station: P::AtomicU32,
    /// By which the thread waits; not at `ON_WORD`.
    number: Cell<u32>,
    /// The mutex's word.
    word: Cell<*const P::AtomicU32>,
    /// At `LISTED`: the ring's word.
    ring: Cell<*const P::AtomicU32>,
    /// The domain where the thread is counted as one that spins, plus one; or 0.
    spins: P::AtomicU32,
}

impl Stay<Linux> {
    /// Of a thread that does not wait, on Linux.
    pub const fn new() -> Self {
        Stay {
            station: <<Linux as Platform>::AtomicU32 as ConstAtomic>::ZERO,
            number: Cell::new(0),
            word: Cell::new(ptr::null()),
            ring: Cell::new(ptr::null()),
            spins: <<Linux as Platform>::AtomicU32 as ConstAtomic>::ZERO,
        }
    }
}

impl<P: Platform> Stay<P> {
    /// Of a thread that does not wait, on any platform.
    pub fn new_in() -> Self {
        Stay {
            station: P::AtomicU32::new(NOWHERE),
            number: Cell::new(0),
            word: Cell::new(ptr::null()),
            ring: Cell::new(ptr::null()),
            spins: P::AtomicU32::new(0),
        }
    }

    /// Puts in order what the wait leaves behind that has this stay, in which the caller is and to which it will not return. To be called
    /// by the thread that waits, in a signal handler that interrupts the wait, before it jumps. Nothing if the thread does not wait.
    ///
    /// # Safety
    /// The wait is not gone on with. The mutex for which it waits is there; if the thread was at a condition, so is the condition variable,
    /// unless the thread was notified.
    pub unsafe fn leave(&self) {
        // Relaxed, here and below: see the head of the file.
        let spins = self.spins.load(Ordering::Relaxed);
        if spins != 0 {
            self.spins.store(0, Ordering::Relaxed);
            Room::<P>::get().spins_no_more(spins as usize - 1);
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
                let table = &Room::<P>::get().table;
                if table.leaves_ring(number) {
                    // SAFETY: not notified, so the condition variable is there, as the caller promises.
                    table.leave(number, unsafe { &*self.ring.get() });
                } else {
                    // SAFETY: as the caller promises.
                    unsafe { Self::leave_queue(number, word) };
                }
            }
            QUEUED => {
                // SAFETY: likewise.
                unsafe { Self::leave_queue(number, word) };
            }
            _ => {
                // SAFETY: likewise.
                let turns = Turns::of_record(unsafe { &*word }, Room::<P>::get(), number);
                turns.hand_on_unused(number, TURN);
            }
        }
    }

    /// # Safety
    /// The mutex of that word is there.
    unsafe fn leave_queue(number: u32, word: *const P::AtomicU32) {
        let room = Room::<P>::get();
        if let Heard::Message(message) = room.table.give_up(number) {
            // SAFETY: as the caller promises.
            Turns::of_record(unsafe { &*word }, room, number).hand_on_unused(number, message);
        }
    }

    fn note(&self, station: u32) {
        compiler_fence(Ordering::Release);
        self.station.store(station, Ordering::Relaxed);
        compiler_fence(Ordering::Release);
    }

    /// The thread will wait by that record, for the mutex with that word. Nothing is there yet.
    pub(crate) fn begin(&self, number: u32, word: &P::AtomicU32) {
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

    /// The thread goes on by itself.
    pub(crate) fn goes_on(&self) {
        self.note(NOWHERE);
    }

    /// Whether the thread is counted as one that spins in the domain.
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
