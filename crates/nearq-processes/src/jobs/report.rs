//! What is reported about a job when it has ended, and about all jobs together.

use std::time::{Duration, SystemTime};

use super::halt::End;
use crate::Account;

/// What a job did. Nodes are indices in the [`Nodes`](nearq_home::Nodes) that the engine was given.
#[derive(Clone, Debug)]
pub struct Report {
    /// From 1, in the order of input.
    pub number: u64,
    /// Its first process; 0 if there was none.
    pub process: u32,
    /// The command, as a user would type it.
    pub command: Vec<u8>,
    /// How it ended.
    pub end: End,
    /// Whether it was ended because the whole run was ended: such a job has not failed.
    pub stopped: bool,
    /// Whether it was ended because it ran too long: such a job has failed.
    pub timed_out: bool,
    /// How many times it ran, this time included.
    pub attempts: u64,
    /// When it started.
    pub started: SystemTime,
    /// How long it took.
    pub elapsed: Duration,
    /// The CPU time in user mode of the job's first process and of all its descendants that were waited for.
    pub user: Duration,
    /// The CPU time of the same processes in the kernel.
    pub system: Duration,
    /// The most memory that one of those processes had, in KiB.
    pub max_rss_kib: u64,
    /// How much it printed on standard output, in bytes; 0 if output is not kept together.
    pub printed: u64,
    /// The nodes on which it was, as far as the rebalancer measured: a process that has ended cannot be inspected any more. `None` if there
    /// is one node.
    pub account: Option<Account>,
    /// Whether it chose its CPUs itself, and was left alone from then on.
    pub left_alone: bool,
}

impl Report {
    /// Whether the job succeeded.
    pub fn has_succeeded(&self) -> bool {
        self.end.is_success() && !self.timed_out
    }
}

/// The node on which a job used the most CPU time, by index.
pub fn most(account: &Account) -> Option<usize> {
    let used = account.cpu_time.iter().enumerate().filter(|(_, time)| !time.is_zero());
    // The first of equals: `max_by_key` takes the last.
    used.rev().max_by_key(|(_, time)| **time).map(|(node, _)| node)
}

/// How many jobs are in which state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Jobs that have ended, for whatever reason.
    pub ended: u64,
    /// Of those, how many failed.
    pub failed: u64,
    /// Jobs that run, by the index of their home; all in one place if there is one node.
    pub running: Vec<u64>,
    /// Jobs that have yet to start, as far as is known.
    pub waiting: u64,
    /// Whether that number is final.
    pub all_known: bool,
}

/// How the whole run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The jobs that ended by themselves and did not succeed.
    pub failed: u64,
    /// All jobs that ended, including those that were stopped.
    pub ended: u64,
    /// The jobs that were ended because the whole run was ended.
    pub stopped: u64,
    /// Known jobs that were not started.
    pub not_started: u64,
    /// Whether the inputs were read to their end; otherwise there may be more jobs.
    pub all_known: bool,
    /// Whether a signal has ended the run by letting running jobs finish.
    pub drained: bool,
    /// The signal that ended the run. The caller should end by the same signal: see [`die_by`](super::die_by).
    pub signal: Option<i32>,
    /// Errors of the run itself rather than of jobs: inputs that could not be read, outputs that could not be written, a limit under which
    /// no job starts.
    pub errors: Vec<String>,
    /// Why jobs have no memory policy, or not the CPUs of their home.
    pub refused: Option<String>,
    /// The wall-clock time of the whole run.
    pub elapsed: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_is_the_node_with_most_cpu_time() {
        let most = |times: [u64; 3]| {
            let cpu_time = times.map(Duration::from_millis).to_vec();
            most(&Account { cpu_time, ..Account::default() })
        };
        assert_eq!(most([0, 0, 0]), None);
        assert_eq!(most([1, 5, 2]), Some(1));
        assert_eq!(most([5, 2, 5]), Some(0));
    }
}
