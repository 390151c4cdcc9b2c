//! What a server needs from the target that it answers for. The server decides which callers may ask; the target provides the answers.

use std::collections::BTreeMap;

use crate::protocol::{Dump, GetDump, Process, Refusal, Settings, Statistics, Trace, TraceBatch};

/// What is inspected and tuned: a runtime, or the mutexes of a process. Called by the server's thread only.
///
/// None of the calls waits for a worker or for an item.
pub trait ControlTarget: Send {
    /// Identifies the process. The server adds what each caller may do.
    fn process(&self) -> Process;

    /// Starts or stops timing items.
    ///
    /// # Errors
    /// The target has no items.
    fn time_items(&mut self, on: bool) -> Result<(), Refusal>;

    /// Counts what has happened on each queue. The server adds the CPU time of the thread that answers.
    ///
    /// # Errors
    /// The target has no queues.
    fn statistics(&self) -> Result<Statistics, Refusal>;

    /// A snapshot of everything that can be inspected.
    ///
    /// # Errors
    /// The target has nothing that was asked for.
    fn dump(&self, wanted: &GetDump) -> Result<Dump, Refusal>;

    /// The settings of all queues and the process, or of one queue.
    ///
    /// # Errors
    /// There is no such queue.
    fn settings(&self, queue: Option<&str>) -> Result<Settings, Refusal>;

    /// Changes settings of a queue or of the process, and returns the settings afterwards. If one change is refused, none is made.
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
    /// The events since the last call, at most `most`.
    fn take(&mut self, most: usize) -> TraceBatch;
}
