//! What workers say about themselves when they are asked: a server knows how many jobs are out, and not where.
//!
//! `nearq jobs` publishes to `NEARQ.workers.STREAM` and gathers the answers. Nothing depends on them: a worker that may not
//! subscribe there is not listed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A worker's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Worker {
    /// The name of its machine.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// The consumer that it gets jobs from.
    pub consumer: String,
    /// How many jobs it runs at a time.
    pub slots: usize,
    /// Whether it takes no more jobs.
    pub drains: bool,
    /// What it runs now, or holds for other reasons, by the sequence of the job in its stream.
    pub running: BTreeMap<u64, RunningJob>,
}

/// A job of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunningJob {
    /// How many times it has been delivered.
    pub tries: u64,
    /// Since when the worker has it, in seconds.
    pub seconds: f64,
}

/// Where workers of a stream are asked.
pub(crate) fn subject(stream: &str) -> String {
    format!("NEARQ.workers.{stream}")
}

/// The name of this machine.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
