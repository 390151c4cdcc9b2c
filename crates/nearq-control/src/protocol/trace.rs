//! What happens to items, one after the other.

use serde::{Deserialize, Serialize};

use super::bounds::{self, MOST_ROWS};

/// The events since the last batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceBatch {
    /// Queues that the events name and that no earlier batch has named.
    #[serde(deserialize_with = "bounds::most::<MOST_ROWS, _, _>")]
    pub queues: Vec<TracedQueue>,
    /// By time, unless threads were interrupted between reading the clock and recording it.
    #[serde(deserialize_with = "bounds::most::<MOST_ROWS, _, _>")]
    pub events: Vec<TraceEvent>,
    /// Events that were lost since the trace began, because they came faster than they were read.
    pub dropped: u64,
    /// One item in this many is reported now, for the queue with the fewest reports.
    pub every: u64,
}

/// A queue that events name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedQueue {
    /// Its number.
    pub id: u64,
    /// Its name.
    #[serde(deserialize_with = "bounds::name")]
    pub name: String,
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// When it happened.
    pub at_ns: u64,
    /// What happened.
    pub kind: TraceKind,
    /// The queue's number.
    pub queue: u64,
    /// The item: the same number for its events, and for a later item at the same place in memory.
    pub item: u64,
    /// The name of its function.
    #[serde(deserialize_with = "bounds::text")]
    pub function: String,
    /// The CPU.
    pub cpu: u64,
    /// The thread, in the system's own tools; 0 for a queueing.
    pub thread: u64,
    /// The pool of the worker; for a queueing, the pool that the item goes to.
    pub pool: u64,
    /// For a start, the time since queueing; for an end, the time since the start; for a
    /// queueing, 0.
    pub took_ns: u64,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceKind {
    /// The item was queued.
    #[default]
    Queue,
    /// Its function begins.
    Start,
    /// Its function has ended.
    End,
}
