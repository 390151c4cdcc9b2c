//! The records by which threads wait, and the numbers that name them.
//!
//! A lock's word has 16 bits for the last waiter, so a waiter is named by a number from 1 to 65535, not by an address. Any thread can
//! follow a number at any time, even after the owner has ended (`numbered.rs`).
//!
//! # Which thread has a record
//! - A thread keeps the first record that it takes until it ends (`LockPlatform::set_number`), so that to take one again it only reads its
//!   own number. While the record is in a queue, the number carries `IN_USE`.
//! - A thread that waits while its own record is in use (a signal handler, an [`OsqLock`](crate::raw::OsqLock) that is held), or after its
//!   thread-locals are gone, takes another record for that time.
//! - A record can be *left behind* in a queue (`queue.rs`). Then the thread that takes it out of the queue has it.
//! - A thread that ends while its own record is in use leaves it where it is (`ended`). A forgotten guard of an `OsqLock` causes that: the
//!   lock stays held, its queue goes on behind that record, and no other thread may have the record.
//!
//! # Forks
//! In the child of a fork, records of the parent's other threads are taken, and no thread will give them back. Those that are in no queue
//! stay so for ever; those in a queue are freed by a thread that meets them there (`queue.rs`).
//!
//! There is no record only while 65535 are in use at once. A thread that finds none waits in another way.

use nearq_platform::{Atomic, Instant, LockPlatform, Wait};

use crate::numbered::Numbered;

/// The mark on a thread's number: its record is in a queue.
const IN_USE: u32 = 1 << 31;

/// A record by which a thread waits. `queue.rs` has its protocol.
#[repr(align(64))]
pub(crate) struct Record<P: LockPlatform> {
    /// What its owner waits for, and sleeps on.
    pub(crate) state: P::AtomicU32,
    /// The record behind it.
    pub(crate) next: P::AtomicU32,
    /// The record ahead of it: in a condition's ring (`ring.rs`), or as a hint in a queue (`queue.rs`).
    pub(crate) before: P::AtomicU32,
    /// The domain in which its owner waits.
    pub(crate) place: P::AtomicU32,
    /// The process that its owner is a thread of (`LockPlatform::fork_epoch`): after a fork, the parent's threads are gone.
    pub(crate) epoch: P::AtomicU32,
    /// What the thread before hands over, in addition to the message.
    pub(crate) passed: P::AtomicU64,
    /// Likewise: a time.
    pub(crate) since: P::AtomicU64,
    /// The word of the mutex that its owner wants when it has been notified. If the owner leaves its ring while a notifier waits for that:
    /// what the notifier waits on (`ring.rs`).
    pub(crate) word: P::AtomicPtr<P::AtomicU32>,
    /// In a condition's ring: how urgent its owner is (`ring.rs`). If another thread has queued the record, or its owner has a stay: which
    /// queue it is in, as a slot's number, or 0 for the plain queue (`turn/moved.rs`, `stay.rs`).
    pub(crate) slot: P::AtomicU32,
    /// The record whose owner this record's thread must wake when it releases a mutex, or 0. It is 0 while this record is in a queue, where
    /// it may become another thread's.
    pub(crate) wakes: P::AtomicU32,
}

impl<P: LockPlatform> Record<P> {
    fn new() -> Self {
        Record {
            state: P::AtomicU32::new(0),
            next: P::AtomicU32::new(0),
            before: P::AtomicU32::new(0),
            place: P::AtomicU32::new(0),
            epoch: P::AtomicU32::new(0),
            passed: P::AtomicU64::new(0),
            since: P::AtomicU64::new(0),
            word: P::AtomicPtr::new(core::ptr::null_mut()),
            slot: P::AtomicU32::new(0),
            wakes: P::AtomicU32::new(0),
        }
    }
}

const _: () =
    assert!(size_of::<Record<nearq_platform::Linux>>() == 64, "a record fills a cache line");

/// All waiters' records of a process.
pub(crate) struct WaiterSlab<P: LockPlatform> {
    records: Numbered<P, Record<P>, 4, 15>,
    /// Called when a thread that has a number ends.
    end: fn(u32),
}

impl<P: LockPlatform> WaiterSlab<P> {
    /// A slab without records. `end` must lead to [`ended`](Self::ended) of this slab.
    pub(crate) fn new(end: fn(u32)) -> Self {
        WaiterSlab { records: Numbered::new(), end }
    }

    /// Sleeps by a record while its state is `state`, at most until `deadline`.
    #[inline]
    pub(crate) fn sleep_while(&self, number: u32, state: u32, deadline: Option<Instant>) -> Wait {
        P::wait(&self.record(number).state, state, deadline)
    }

    /// The record of that number, which was given out before.
    #[inline]
    pub(crate) fn record(&self, number: u32) -> &Record<P> {
        self.records.get(number)
    }

    /// The record of that number, which may be arbitrary; none if it was never given out.
    pub(crate) fn record_if_made(&self, number: u32) -> Option<&Record<P>> {
        self.records.get_if_made(number)
    }

    /// Takes a record; none if all are in use. The caller has it until it calls [`give_back`](Self::give_back) or
    /// [`leave_behind`](Self::leave_behind).
    #[inline]
    pub(crate) fn take(&self) -> Option<u32> {
        self.take_own().or_else(|| self.take_new(P::number() == 0))
    }

    /// As [`take`](Self::take), if the thread has a record of its own that it does not use.
    #[inline(always)]
    pub(crate) fn take_own(&self) -> Option<u32> {
        let kept = Self::unused()?;
        // The record may be another thread's before the caller releases the mutex that it holds.
        self.wake_deferred_of(kept);
        P::set_number(kept | IN_USE, self.end);
        Some(kept)
    }

    #[cold]
    fn take_new(&self, keep: bool) -> Option<u32> {
        let number = self.records.take(Record::new)?;
        if keep && !P::set_number(number | IN_USE, self.end) {
            // The thread is ending, and the record would never be given back.
            P::set_number(0, self.end);
        }
        Some(number)
    }

    /// The number of the record that the caller keeps, if it is not in use.
    #[inline]
    pub(crate) fn unused() -> Option<u32> {
        let kept = P::number();
        (kept != 0 && kept & IN_USE == 0).then_some(kept)
    }

    /// The caller no longer needs the record, which no thread can reach.
    #[inline]
    pub(crate) fn give_back(&self, number: u32) {
        if P::number() == number | IN_USE {
            P::set_number(number, self.end);
        } else {
            self.free(number);
        }
    }

    /// The caller leaves the record to the thread that takes it out of its queue.
    pub(crate) fn leave_behind(&self, number: u32) {
        if P::number() == number | IN_USE {
            P::set_number(0, self.end);
        }
    }

    /// The caller no longer keeps its own record, which is given back when it is no longer in a queue: when the caller waits next, it has
    /// to find one, like a thread that waits for the first time.
    pub(crate) fn forget_record(&self) {
        let unused = Self::unused();
        P::set_number(0, self.end);
        if let Some(kept) = unused {
            self.wake_deferred_of(kept);
            self.free(kept);
        }
    }

    /// Makes the record free for any thread.
    pub(crate) fn free(&self, number: u32) {
        self.records.free(number);
    }

    /// A thread that had this number has ended.
    pub(crate) fn ended(&self, number: u32) {
        let kept = number & !IN_USE;
        if number & IN_USE != 0 {
            // In a queue, where other threads reach it: it belongs to no thread until it is taken out of there. The guard may still be
            // dropped, by what the C library calls later.
            self.stop_waiting(kept);
            return;
        }
        // The thread may release a mutex after it notes this: one that its thread-locals own.
        self.wake_deferred_of(kept);
        self.free(kept);
    }

    /// How many records are taken.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.records.count()
    }
}

#[cfg(test)]
mod tests;
