//! One job while it runs, and what is told of it afterwards.

use std::time::{Duration, Instant, SystemTime};

use libc::{c_int, rusage, timeval};
use rustix::process::{Pid, Signal, kill_process_group};

use super::halt::End;
use super::output::Kept;
use super::report::Report;
use crate::Account;

/// A job that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) number: u64,
    /// Which of the places it runs in, from 1.
    pub(crate) place: usize,
    pub(crate) command: Vec<u8>,
    /// Its first process, and its process group: both have that number.
    pub(crate) pid: u32,
    pub(crate) started: Instant,
    pub(crate) started_at: SystemTime,
    pub(crate) kept: Option<Kept>,
    pub(crate) home: usize,
    /// Whether it has been told to end.
    pub(crate) stopped: bool,
    /// Whether it has been told to end because it prints too much.
    pub(crate) too_long: bool,
}

impl Running {
    /// Sends a signal to all of the job's process group. Its number is the job's as long as its first process has not been
    /// waited for.
    pub(crate) fn signal(&self, signal: c_int) {
        let group = Pid::from_raw(self.pid.cast_signed());
        // SAFETY: validity: it is one of the signals that the kernel has.
        let signal = unsafe { Signal::from_raw_unchecked(signal) };
        if let Some(group) = group {
            // The last of the group may just have ended.
            let _ = kill_process_group(group, signal);
        }
    }

    /// What is told of it, now that it has ended.
    pub(crate) fn report(
        self,
        status: c_int,
        usage: &rusage,
        account: Option<(Account, bool)>,
    ) -> (Report, Option<Kept>) {
        let printed = self.kept.as_ref().map_or(0, |kept| kept.lengths()[0]);
        let left_alone = account.as_ref().is_some_and(|(_, left_alone)| *left_alone);
        let report = Report {
            number: self.number,
            process: self.pid,
            command: self.command,
            end: End::of(status),
            stopped: self.stopped,
            started: self.started_at,
            elapsed: self.started.elapsed(),
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
            max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
            printed,
            account: account.map(|(account, _)| account),
            left_alone,
        };
        (report, self.kept)
    }
}

fn duration(time: timeval) -> Duration {
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    seconds + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

/// The next child that has ended, its status and what it used; `None` where none has. `Err` where there are no children.
pub(crate) fn next_ended() -> Result<Option<(u32, c_int, rusage)>, ()> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<rusage>::zeroed();
    // SAFETY: validity: both places are what the call writes. Aliasing: the only references are those passed. Thread: the engine's,
    // which alone waits for the children of its process.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    // SAFETY: validity: numbers, for which zeros are a value. Aliasing and thread: a local.
    let usage = unsafe { usage.assume_init() };
    match u32::try_from(pid) {
        Ok(0) => Ok(None),
        Ok(pid) => Ok(Some((pid, status, usage))),
        Err(_) => Err(()),
    }
}
