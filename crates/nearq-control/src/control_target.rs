//! What a server needs from the thing that it answers for. The server knows which callers may ask; the target knows
//! the answers.

use std::collections::BTreeMap;

use crate::protocol::{Dump, GetDump, Process, Refusal, Settings, Statistics, Trace, TraceBatch};

/// What is inspected and tuned: a runtime, or the mutexes of a process. Called by the server's thread only.
///
/// None of the calls waits for a worker or for an item.
pub trait ControlTarget: Send {
    /// Which process it is. The server says what each caller may do.
    fn process(&self) -> Process;

    /// Times items from now on, or no longer.
    ///
    /// # Errors
    /// There are no items here.
    fn time_items(&mut self, on: bool) -> Result<(), Refusal>;

    /// What has happened. The server adds the CPU time of the thread that answers.
    ///
    /// # Errors
    /// There are no queues here.
    fn statistics(&self) -> Result<Statistics, Refusal>;

    /// A snapshot of everything that can be inspected.
    ///
    /// # Errors
    /// There is nothing of that here.
    fn dump(&self, wanted: &GetDump) -> Result<Dump, Refusal>;

    /// What is set: for all queues and the process, or for one queue.
    ///
    /// # Errors
    /// There is no such queue.
    fn settings(&self, queue: Option<&str>) -> Result<Settings, Refusal>;

    /// Changes settings of a queue or of the process, and returns what is set then: all of them, or, if one is refused, none.
    ///
    /// # Errors
    /// There is no such queue or key, or a value is not possible.
    fn set(
        &mut self,
        queue: Option<&str>,
        changes: &BTreeMap<String, String>,
    ) -> Result<Settings, Refusal>;

    /// Begins to report what happens to items; ends when the answer is dropped.
    ///
    /// # Errors
    /// There is no such queue, or nothing to report.
    fn trace(&mut self, wanted: &Trace) -> Result<Box<dyn Tracing>, Refusal>;
}

/// A trace that is under way.
pub trait Tracing: Send {
    /// What has happened since the last call, at most `most` events.
    fn take(&mut self, most: usize) -> TraceBatch;
}
