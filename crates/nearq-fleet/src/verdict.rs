//! What the end of a job means for its message. Pure functions: nothing here knows a server.

use std::time::Duration;

use nearq_processes::jobs::{End, Report};

/// The longest time until a job that has failed is tried again.
pub(crate) const LONGEST_BACKOFF: Duration = Duration::from_mins(10);

/// When jobs are tried again, and when they are given up.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// A job that fails is dead if it has been delivered so many times; `None` for any number.
    pub(crate) tries: Option<u64>,
    /// The exit statuses of jobs that are dead at once.
    pub(crate) dead_on: Vec<u8>,
    /// How long until a job that has failed once is tried again; twice as long after each further failure.
    pub(crate) backoff: Duration,
}

/// What is done with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The job is done: nobody runs it again.
    Done,
    /// Somebody may run it now: it was not its fault that it did not end.
    Back,
    /// Somebody may run it after that time.
    Later(Duration),
    /// Nobody runs it again, for this reason.
    Dead(String),
}

impl Rules {
    /// A job has ended. `tries`: how many times it has been delivered, this time included.
    pub(crate) fn ended(&self, report: &Report, tries: u64) -> Verdict {
        if report.stopped {
            return Verdict::Back;
        }
        if report.has_succeeded() {
            return Verdict::Done;
        }
        let how = describe(report);
        match report.end {
            End::Exit(status) if !report.timed_out && self.dead_on.contains(&status) => {
                Verdict::Dead(format!("{how}, for which it is not tried again (--dead-on)"))
            }
            _ if self.tries.is_some_and(|most| tries >= most) => {
                Verdict::Dead(format!("it failed, and was delivered {tries} times; at last: {how}"))
            }
            _ => Verdict::Later(self.after(tries)),
        }
    }

    /// A job has been delivered again. Whether it is dead already, because it may be the job that ends its workers. The server counts
    /// deliveries, and not failures: also those of jobs that a worker gave back when it was asked to end, or that were silent because the
    /// network was away. So it is dead only after twice as many deliveries as it may fail.
    pub(crate) fn delivered(&self, tries: u64) -> Option<Verdict> {
        let most = self.tries?.saturating_mul(2);
        (tries > most).then(|| {
            Verdict::Dead(format!(
                "it was delivered {most} times without an end that settled it: it may end its worker, or its workers were ended or cut off"
            ))
        })
    }

    /// How long until a job is tried again that has been delivered so many times.
    fn after(&self, tries: u64) -> Duration {
        let doubled = u32::try_from(tries.saturating_sub(1)).unwrap_or(u32::MAX).min(20);
        self.backoff.saturating_mul(1 << doubled).min(LONGEST_BACKOFF)
    }
}

/// How a job has failed, in words.
fn describe(report: &Report) -> String {
    let seconds = report.elapsed.as_secs_f64();
    match report.end {
        _ if report.timed_out => format!("it ran too long, {seconds:.3} s (--timeout)"),
        End::Exit(126) => "exit status 126: its command could not be executed".to_owned(),
        End::Exit(127) => "exit status 127: its command was not found".to_owned(),
        End::Exit(status) => format!("exit status {status}"),
        End::Signal(signal) => format!("ended by signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn report(end: End) -> Report {
        Report {
            number: 1,
            process: 1,
            command: Vec::new(),
            end,
            stopped: false,
            timed_out: false,
            attempts: 1,
            started: SystemTime::UNIX_EPOCH,
            elapsed: Duration::from_secs(2),
            user: Duration::ZERO,
            system: Duration::ZERO,
            max_rss_kib: 0,
            printed: 0,
            account: None,
            left_alone: false,
        }
    }

    fn rules() -> Rules {
        Rules { tries: Some(3), dead_on: vec![65], backoff: Duration::from_secs(1) }
    }

    #[test]
    fn only_success_is_done_and_a_stopped_job_goes_back_whatever_its_status() {
        assert_eq!(rules().ended(&report(End::Exit(0)), 9), Verdict::Done);
        for end in [End::Exit(0), End::Exit(65), End::Signal(15)] {
            let stopped = Report { stopped: true, ..report(end) };
            assert_eq!(rules().ended(&stopped, 9), Verdict::Back);
        }
        let late = Report { timed_out: true, ..report(End::Exit(0)) };
        assert_eq!(rules().ended(&late, 1), Verdict::Later(Duration::from_secs(1)));
    }

    #[test]
    fn a_failed_job_waits_twice_as_long_each_time_and_is_dead_after_the_last_try() {
        let end = |tries| rules().ended(&report(End::Exit(1)), tries);
        assert_eq!([end(1), end(2)], [1, 2].map(|s| Verdict::Later(Duration::from_secs(s))));
        assert!(
            matches!(end(3), Verdict::Dead(why) if why.contains("3 times") && why.contains("exit status 1"))
        );
        let forever = Rules { tries: None, ..rules() };
        assert_eq!(forever.ended(&report(End::Signal(9)), 5000), Verdict::Later(LONGEST_BACKOFF));
    }

    #[test]
    fn a_chosen_status_is_dead_at_once() {
        assert!(
            matches!(rules().ended(&report(End::Exit(65)), 1), Verdict::Dead(why) if why.contains("65"))
        );
    }

    #[test]
    fn a_job_without_an_end_is_dead_only_after_twice_as_many_deliveries() {
        for tries in 1..=6 {
            assert_eq!(rules().delivered(tries), None, "it may have been given back each time");
        }
        assert!(
            matches!(rules().delivered(7), Some(Verdict::Dead(why)) if why.contains("6 times without an end"))
        );
        assert_eq!(Rules { tries: None, ..rules() }.delivered(7), None);
        assert_eq!(Rules { tries: Some(u64::MAX), ..rules() }.delivered(7), None);
    }
}
