//! One job while it runs, and what is reported about it afterwards.

use std::time::{Duration, Instant, SystemTime};

use libc::{c_int, rusage, timeval};
use rustix::process::{Pid, kill_process, kill_process_group};

use super::halt::End;
use super::report::Report;
use super::source::Job;
use crate::Account;
use crate::system::{self, Child, next_child};

/// A job that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) number: u64,
    /// The slot that it runs in, from 1.
    pub(crate) slot: usize,
    pub(crate) command: Vec<u8>,
    /// The job itself, if it may run again.
    pub(crate) again: Option<Job>,
    /// Which time it runs, from 1.
    pub(crate) attempt: u64,
    /// Its first process, and its process group, if it leads one: both have that number.
    pub(crate) pid: u32,
    pub(crate) started: Instant,
    pub(crate) started_at: SystemTime,
    /// Whether it has a process group of its own.
    pub(crate) leads_group: bool,
    pub(crate) home: usize,
    /// Whether it has been asked to end.
    pub(crate) stopped: bool,
    /// Whether it has been asked to end because it ran too long.
    pub(crate) timed_out: bool,
    /// When it is killed because it has not ended after that.
    pub(crate) kill_at: Option<Instant>,
    /// Whether it has been asked to end because it wants the terminal.
    pub(crate) wants_terminal: bool,
}

impl Running {
    /// Sends a signal to all of the job's process group, or to its first process if it is in ours. The number is the job's until its
    /// first process has been waited for.
    pub(crate) fn signal(&self, signal: c_int) {
        let pid = Pid::from_raw(self.pid.cast_signed());
        let signal = system::signal(signal);
        let Some(pid) = pid else { return };
        // The last process of the group may just have ended.
        let _ = if self.leads_group {
            kill_process_group(pid, signal)
        } else {
            kill_process(pid, signal)
        };
    }

    /// The report about the job, now that it has ended.
    pub(crate) fn report(
        self,
        end: Child,
        usage: &rusage,
        account: Option<(Account, bool)>,
        printed: u64,
    ) -> Report {
        let left_alone = account.as_ref().is_some_and(|(_, left_alone)| *left_alone);
        Report {
            number: self.number,
            process: self.pid,
            command: self.command,
            end: End::of(end),
            stopped: self.stopped,
            timed_out: self.timed_out,
            attempts: self.attempt,
            started: self.started_at,
            elapsed: self.started.elapsed(),
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
            max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
            printed,
            account: account.map(|(account, _)| account),
            left_alone,
        }
    }
}

fn duration(time: timeval) -> Duration {
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    seconds + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

/// Waits for all children that have ended by now. Returns false if there are no children.
pub(crate) fn wait_for_all_that_ended() -> bool {
    loop {
        match next_child() {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
