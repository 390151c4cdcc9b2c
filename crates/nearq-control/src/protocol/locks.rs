//! The mutexes of a process.

use serde::{Deserialize, Serialize};

use super::bounds::{self, MOST_ROWS};

/// What is known about all mutexes together, and about each mutex that has queues by cache now. The settings are those of the process
/// (`lock_...`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Locks {
    /// `off`, `auto`, `plain` or `numa`.
    #[serde(deserialize_with = "bounds::name")]
    pub mode: String,
    /// Whether the counts below are counted (`lock_count`).
    pub counting: bool,
    /// Slots for queues by cache that mutexes use now.
    pub slots_used: u64,
    /// Slots that were allocated.
    pub slots: u64,
    /// How often a thread had to queue up.
    pub contended: u64,
    /// How often a thread took a mutex in turn.
    pub in_turn: u64,
    /// Hand-overs within a last-level cache.
    pub within: u64,
    /// Hand-overs to another last-level cache.
    pub across: u64,
    /// Changes to queues by cache.
    pub switched: u64,
    /// Changes back to one queue.
    pub switched_back: u64,
    /// How often a thread slept although it was its turn.
    pub slept_in_turn: u64,
    /// How often a thread slept while it was not its turn.
    pub slept_in_queue: u64,
    /// Waits that ended at a deadline.
    pub gave_up: u64,
    /// The mutexes that have a slot for queues by cache now, by the number of the slot.
    #[serde(deserialize_with = "bounds::most::<MOST_ROWS, _, _>")]
    pub adaptive: Vec<AdaptiveLock>,
    /// The reader-writer locks whose readers count themselves by cache now, by the number of the row.
    #[serde(default, deserialize_with = "bounds::most::<MOST_ROWS, _, _>")]
    pub rwlocks: Vec<RowedLock>,
}

/// A reader-writer lock whose readers count themselves by cache now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RowedLock {
    /// The number of its row of counts.
    pub row: u64,
    /// At least how many readers there are, those that wait included.
    pub readers: u64,
}

/// A mutex that has a slot for queues by cache now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AdaptiveLock {
    /// The number of its slot.
    pub slot: u64,
    /// Whether it is held, as far as waiting threads know: a thread has to wait. A mutex that no thread waits for appears
    /// free.
    pub held: bool,
    /// The last-level caches in which threads wait for the mutex. If a machine has more than 32 caches, neighbours count as one.
    pub caches: u64,
}
