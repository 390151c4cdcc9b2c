//! What the experiment asks of a platform beyond [`Platform`]: a real machine has other processes and a bill for its
//! time, a simulated one has neither.

use crate::Error;
use crate::peers;
use nearq_platform::{Linux, Platform};
use nearq_report::usage;
use nearq_sim::Sim;
use std::time::Duration;

/// A platform that the experiment runs on.
pub trait Stage: Platform {
    /// An item that has not run for this long never will.
    const LOST_AFTER: Duration;

    /// CPU time of the process so far, where somebody counts it.
    fn process_time() -> Option<Duration>;

    /// Runs `body` so that no thread of it is left for what is measured next.
    fn alone<T>(body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error>;
}

impl Stage for Linux {
    const LOST_AFTER: Duration = Duration::from_secs(20);

    fn process_time() -> Option<Duration> {
        Some(usage::cpu_time())
    }

    fn alone<T>(body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        peers::alone(body)
    }
}

/// Each run has a machine of its own: nothing is left of it.
impl Stage for Sim {
    const LOST_AFTER: Duration = Duration::from_secs(1);

    fn process_time() -> Option<Duration> {
        None
    }

    fn alone<T>(body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        body()
    }
}
