//! Decides when a failed job ends other jobs too, and the exit status of the whole run.

use std::str::FromStr;

use crate::system::Child;

/// What happens when a job fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Halt {
    /// All jobs run nevertheless.
    #[default]
    Never,
    /// No further job starts; running jobs may finish.
    Soon,
    /// No further job starts, and running jobs are ended too.
    Now,
}

impl Halt {
    /// The names, as [`FromStr`] takes them.
    pub const NAMES: [&'static str; 3] = ["never", "soon", "now"];
}

impl FromStr for Halt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // As GNU parallel spells it.
        match text.strip_suffix(",fail=1").unwrap_or(text) {
            "never" => Ok(Self::Never),
            "soon" => Ok(Self::Soon),
            "now" => Ok(Self::Now),
            _ => Err(format!("give one of {}", Self::NAMES.join(", "))),
        }
    }
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It ended by itself, with this exit status. 126: its command could not be executed; 127: its command was not found.
    Exit(u8),
    /// It was ended by this signal.
    Signal(i32),
}

impl End {
    /// What a child's end means for its job.
    pub(crate) fn of(child: Child) -> Self {
        match child {
            Child::Signalled(signal) => Self::Signal(signal),
            Child::Exited(status) | Child::Stopped(status) => {
                Self::Exit(u8::try_from(status).unwrap_or(u8::MAX))
            }
        }
    }

    /// Whether the job succeeded.
    pub fn is_success(self) -> bool {
        self == Self::Exit(0)
    }
}

/// What the ends so far mean for the jobs to come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decision {
    halt: Halt,
    failed: u64,
}

impl Decision {
    pub(crate) fn new(halt: Halt) -> Self {
        Self { halt, failed: 0 }
    }

    /// A job has ended, by itself or because it was `stopped`: then it has not failed. Returns whether running jobs must be ended
    /// now, which happens once.
    pub(crate) fn ended(&mut self, succeeded: bool, stopped: bool) -> bool {
        if succeeded || stopped {
            return false;
        }
        self.failed += 1;
        self.halt == Halt::Now && self.failed == 1
    }

    /// Whether another job may start.
    pub(crate) fn may_start(&self) -> bool {
        self.halt == Halt::Never || self.failed == 0
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed
    }
}

/// The exit status for that many failed jobs: their number up to 100, and 101 for more.
///
/// ```
/// use nearq_processes::jobs::exit_status;
///
/// assert_eq!([0, 1, 100, 101, 5000].map(exit_status), [0, 1, 100, 101, 101]);
/// ```
pub fn exit_status(failed: u64) -> u8 {
    u8::try_from(failed.min(101)).unwrap_or(101)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: [End; 4] = [End::Exit(0), End::Exit(3), End::Exit(0), End::Signal(9)];

    fn decisions(halt: Halt) -> Vec<(bool, bool)> {
        let mut decision = Decision::new(halt);
        ENDS.map(|end| (decision.ended(end.is_success(), false), decision.may_start())).to_vec()
    }

    #[test]
    fn with_never_all_jobs_run() {
        assert_eq!(decisions(Halt::Never), [(false, true); 4]);
    }

    #[test]
    fn with_soon_no_job_starts_after_the_first_failure() {
        let expected = [(false, true), (false, false), (false, false), (false, false)];
        assert_eq!(decisions(Halt::Soon), expected);
    }

    #[test]
    fn with_now_running_jobs_are_ended_once() {
        let expected = [(false, true), (true, false), (false, false), (false, false)];
        assert_eq!(decisions(Halt::Now), expected);
    }

    #[test]
    fn a_stopped_job_has_not_failed() {
        let mut decision = Decision::new(Halt::Now);
        assert!(decision.ended(false, false));
        assert!(!decision.ended(false, true));
        assert_eq!(decision.failed(), 1);
    }

    #[test]
    fn wait_statuses_are_converted() {
        assert_eq!(End::of(Child::Exited(3)), End::Exit(3));
        assert_eq!(End::of(Child::Signalled(libc::SIGKILL)), End::Signal(libc::SIGKILL));
    }

    #[test]
    fn unknown_words_are_refused_with_the_allowed_ones() {
        assert_eq!("now".parse(), Ok(Halt::Now));
        assert_eq!("soon,fail=1".parse(), Ok(Halt::Soon));
        assert!("now,fail=30%".parse::<Halt>().is_err());
        assert_eq!("later".parse::<Halt>(), Err("give one of never, soon, now".to_owned()));
    }
}
