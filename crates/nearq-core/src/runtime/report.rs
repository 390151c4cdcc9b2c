//! What is reported of a stall (`stall`), and its text.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use nearq_topology::CpuSet;

use crate::base::ids::PoolId;

/// Workers and pools that a report's text names.
pub(crate) const MOST_SHOWN: usize = 16;

/// The callback for stalls.
pub(crate) type OnStall = Arc<dyn Fn(&Stall) + Send + Sync>;

/// A stall: a pool in which work waits, and that has started nothing for a period. See
/// [`RuntimeBuilder::on_stall`](crate::RuntimeBuilder::on_stall). The text of `Display` is the whole report.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// The pool's number.
    pub pool: PoolId,
    /// The CPUs of its pod.
    pub pod: CpuSet,
    /// The nice value that was set for its workers.
    pub nice: i32,
    /// How long it has started nothing, at least.
    pub lasts: Duration,
    /// How many items wait, at least.
    pub waiting: usize,
    /// How many of its workers sleep for lack of work, or of a free CPU.
    pub idle: usize,
    /// Whether the last worker that it needed could not be started, because of limits on threads or lack of memory.
    pub refused: bool,
    /// The runtime's own [limit](crate::RuntimeBuilder::thread_limit), if that has refused the worker.
    pub limit: Option<ThreadLimit>,
    /// The workers that are in the middle of an item or of their start hook; at most 64.
    pub busy: Vec<BusyWorker>,
    /// How many such workers there are beyond these.
    pub more_busy: usize,
}

/// The runtime's own limit on threads, which has been reached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadLimit {
    /// The most worker threads that the runtime may have.
    pub threads: usize,
    /// The pools that have the threads, those with the most threads first; at most 16 pools. Workers that are about to end are not counted.
    pub pools: Vec<PoolThreads>,
}

/// How many threads a pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolThreads {
    /// The pool's number.
    pub pool: PoolId,
    /// The number of its threads.
    pub threads: usize,
    /// How many of them sleep for lack of work or of a free CPU.
    pub idle: usize,
}

/// A worker in the middle of an item, or of its start hook.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BusyWorker {
    /// The thread's name.
    pub thread: String,
    /// The thread's number in the system's own tools (on Linux, its thread ID).
    pub thread_id: Option<u64>,
    /// The name of the item's function; `the hook on_worker_start` if the worker is in [that hook](crate::RuntimeBuilder::on_worker_start).
    pub function: &'static str,
    /// The description that the item has set; see [`set_description`](crate::set_description).
    pub description: String,
    /// How long it has run, at least: since a check first found it running. While work waits, the workers are checked every few
    /// milliseconds. `None` for a worker that has [declared that it blocks](crate::block_in_place).
    pub runs: Option<Duration>,
    /// What its thread does.
    pub activity: Activity,
    /// Where the thread sleeps, in the system's words; `None` if that is not known.
    pub place: Option<String>,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// It uses its CPU.
    Runs,
    /// It could run, and waits for a CPU: other threads have it, or the quota is used up.
    WaitsForCpu,
    /// It waits for something else: a lock, a device, another thread.
    Sleeps,
    /// Not known.
    Unknown,
}

impl fmt::Display for Stall {
    /// One line, and one more for each busy worker, up to 16.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stall { pool, pod, nice, lasts, waiting, idle, .. } = self;
        let items = if *waiting == 1 { "item waits" } else { "items wait" };
        write!(
            f,
            "pool {pool} (CPUs {pod}, nice {nice}) has started nothing for {lasts:.1?}, and at least {waiting} {items}"
        )?;
        if let Some(limit) = &self.limit {
            write!(f, "; no thread can be started: {limit}")?;
        } else if self.refused {
            f.write_str("; no thread can be started: a limit on threads or memory may be reached")?;
        }
        if *idle != 0 {
            write!(f, "; {idle} of its workers sleep because they have no CPU to run on")?;
        }
        if self.busy.is_empty() {
            f.write_str("; none of its workers runs an item")?;
        }
        for worker in self.busy.iter().take(MOST_SHOWN) {
            write!(f, "\n  {worker}")?;
        }
        let others = self.busy.len().saturating_sub(MOST_SHOWN) + self.more_busy;
        if others != 0 {
            write!(f, "\n  and {others} others")?;
        }
        Ok(())
    }
}

impl fmt::Display for ThreadLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the runtime's own limit of {} threads (thread_limit) is reached", self.threads)?;
        for (at, PoolThreads { pool, threads, idle }) in self.pools.iter().enumerate() {
            let before = if at == 0 { ":" } else { "," };
            write!(f, "{before} pool {pool} has {threads}")?;
            if *idle != 0 {
                write!(f, " ({idle} asleep)")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for BusyWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.thread)?;
        if let Some(id) = self.thread_id {
            write!(f, " (thread {id})")?;
        }
        write!(f, ": {}", self.function)?;
        if let Some(runs) = self.runs {
            write!(f, " for at least {runs:.1?}")?;
        }
        f.write_str(match self.activity {
            Activity::Runs => ", runs",
            Activity::WaitsForCpu => ", waits for a CPU",
            Activity::Sleeps => ", sleeps",
            Activity::Unknown => "",
        })?;
        if let Some(place) = &self.place {
            write!(f, " in {place}")?;
        }
        if !self.description.is_empty() {
            write!(f, ": {}", self.description)?;
        }
        Ok(())
    }
}
