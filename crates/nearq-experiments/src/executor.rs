//! What the `scopes` experiment asks of a work queue: items that are made once and queued many times.

use crate::Error;
use nearq_topology::Scope;

/// Items that a queue may have on its pools at once: the most that one can be told. What is beyond waits, and the order in
/// which it goes on is another question than where items run.
pub const MOST_ACTIVE: usize = 2048;

/// How a queue places its items: one line of the document's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// How CPUs are grouped into pods.
    pub scope: Scope,
    /// Whether workers may never leave their pod.
    pub strict: bool,
    /// Whether an item runs on the CPU that queued it when a worker can.
    pub localize: bool,
    /// Whether idle workers of other pods take items; of no effect where workers are strict or there is one pod.
    pub helping: bool,
}

/// Makes the queue of every run.
pub trait Queues {
    /// A new queue with this placement. It lives for one run.
    fn queue(&self, placement: Placement) -> Result<Box<dyn Executor>, Error>;

    /// What runs the items, for the report.
    fn name(&self) -> &'static str;
}

/// A queue.
pub trait Executor: Send + Sync {
    /// An item that runs `function` each time that it is queued.
    fn item(&self, function: Box<dyn FnMut() + Send>) -> Box<dyn Item>;

    /// What its workers have done so far, if it counts that.
    fn counts(&self) -> Option<Counts> {
        None
    }
}

/// What the workers of a queue have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Items run.
    pub completed: u64,
    /// Items run by workers of other pods.
    pub helped: u64,
    /// How often a worker was brought back into its pod before an item.
    pub repatriated: u64,
}

/// A reusable item.
pub trait Item: Send {
    /// Queues the item from the calling thread. False means that it is queued already and has not started.
    fn queue(&self) -> bool;
}
