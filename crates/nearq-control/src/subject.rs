//! What a server needs of that which it answers for. The server knows who may ask; the subject knows what there is to say.

use std::collections::BTreeMap;

use crate::protocol::{Dump, GetDump, Process, Refusal, Settings, Statistics, Trace, TraceBatch};

/// What is looked into and tuned: a runtime, or the mutexes of a process. Called by the server's thread only.
///
/// None of the calls waits for a worker or for an item.
pub trait Subject: Send {
    /// Who the process is. What is allowed to whom is the server's to say.
    fn process(&self) -> Process;

    /// Times items from now on, or no more.
    ///
    /// # Errors
    /// There are no items here.
    fn time_items(&mut self, on: bool) -> Result<(), Refusal>;

    /// What has happened. The CPU time of the thread that answers is the server's to say.
    ///
    /// # Errors
    /// There are no queues here.
    fn statistics(&self) -> Result<Statistics, Refusal>;

    /// Everything that there is to see.
    ///
    /// # Errors
    /// There is nothing of that here.
    fn dump(&self, wanted: &GetDump) -> Result<Dump, Refusal>;

    /// What is set; of all queues and the process, or of one queue.
    ///
    /// # Errors
    /// There is no such queue.
    fn settings(&self, queue: Option<&str>) -> Result<Settings, Refusal>;

    /// Changes settings of a queue or of the process, and says what is set then: all of them, or, where one is refused, none.
    ///
    /// # Errors
    /// There is no such queue or key, or a value that cannot be.
    fn set(
        &mut self,
        queue: Option<&str>,
        changes: &BTreeMap<String, String>,
    ) -> Result<Settings, Refusal>;

    /// Begins to tell what happens to items; ends when the answer is dropped.
    ///
    /// # Errors
    /// There is no such queue, or nothing to tell.
    fn trace(&mut self, wanted: &Trace) -> Result<Box<dyn Tracing>, Refusal>;
}

/// A trace that is under way.
pub trait Tracing: Send {
    /// What has happened since the last call, at most so many events.
    fn take(&mut self, most: usize) -> TraceBatch;
}
