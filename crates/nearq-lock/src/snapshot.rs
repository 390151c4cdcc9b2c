//! The mutexes of a process that have slots, and the reader-writer locks that have rows, observed from outside by a thread that does not use them.
//!
//! # What is accessed
//! Nothing is written, no lock is taken, and no other thread executes an extra step for it: the snapshot reads what waiters and holders
//! keep for themselves. Each value was right at some moment during the snapshot, but not all at the same moment. So all loads are relaxed,
//! except those that find allocated chunks.
//!
//! A slot does not know where its mutex is, and the mutex may be gone at any time. So the mutex's word is not read: if another thread has
//! the slot's turn, that thread waits because the mutex is held, and so the mutex is reported as held.
//!
//! A row does not know its lock either. How many readers it counts is the sum of its lines, read one after the other while readers come and
//! leave. Readers that had the lock before the row may leave in it, and are missing until the next writer; a sum below zero is shown as none.
//!
//! In the child of a fork, until a thread first waits for a mutex there, the contents of the slots are the parent's (`process_state.rs`):
//! the slots already belong to the child, but the threads that waited do not exist.

use nearq_platform::{Linux, LockPlatform};

use crate::domains::MOST_DOMAINS;
use crate::process_state::ProcessState;

/// The mutexes of a process that have a place for queues by cache (a *slot*), as they were at about the time of the call.
///
/// Taking a snapshot costs the threads that use the mutexes nothing.
///
/// ```
/// use nearq_lock::Snapshot;
///
/// let seen = Snapshot::of_process();
/// assert!(seen.mutexes.len() <= seen.slots);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// How many slots exist. More are made as mutexes need them, up to 4095.
    pub slots: usize,
    /// The mutexes that have a slot, in order of the slots' numbers.
    pub mutexes: Vec<SlottedMutex>,
    /// The reader-writer locks whose readers count themselves by cache, in order of the rows' numbers.
    pub rwlocks: Vec<RowedRwLock>,
}

/// A reader-writer lock whose readers count themselves by cache: it has a *row* of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowedRwLock {
    /// The number of its row, 1 to 31. Another lock may get the row when writers take it away from this one, or it is gone.
    pub row: u32,
    /// At least how many readers there are: those that have the lock, and those that wait for the next phase. Missing are, until the next
    /// writer, as many as had the lock when it got the row.
    pub readers: u32,
}

/// A mutex that has a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlottedMutex {
    /// The number of its slot, starting at 1. Another mutex may get the slot when this one returns to one queue, or is gone.
    pub slot: u32,
    /// Whether it is held, as far as its waiters know: this is seen only if a thread has to wait for it. A mutex that no thread has waited
    /// for since it was taken looks free.
    pub held: bool,
    /// In how many last-level caches threads wait for it. If the machine has more than 32, adjacent ones count as one.
    pub caches: u32,
}

const _: () = assert!(MOST_DOMAINS == 32, "as the documentation says");

impl Snapshot {
    /// Takes a snapshot of the mutexes in this process. It is empty until a thread has had to wait for the first time.
    pub fn of_process() -> Self {
        Self::of_process_in::<Linux>()
    }

    /// As [`of_process`](Self::of_process), on any platform.
    #[doc(hidden)]
    pub fn of_process_in<P: LockPlatform>() -> Self {
        let Some((process, is_ours)) = ProcessState::<P>::as_it_is() else {
            return Snapshot::default();
        };
        let mut mutexes = Vec::new();
        process.slots.each_used(|slot, there| {
            let (held, caches) = if is_ours { there.observe() } else { (false, 0) };
            mutexes.push(SlottedMutex { slot, held, caches });
        });
        let mut rwlocks = Vec::new();
        process.readers.each_lent(|row, readers| rwlocks.push(RowedRwLock { row, readers }));
        // Read last, so that the number of slots is at least the number of mutexes that were found.
        Snapshot { slots: process.slots.made_count(), mutexes, rwlocks }
    }
}
