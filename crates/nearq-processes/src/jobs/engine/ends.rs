//! How jobs end: by themselves, because they run too long, or because the whole run ends.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use libc::c_int;
use rustix::io::Errno;
use rustix::process::{Pid, Signal as KernelSignal, kill_process};

use super::{Engine, GRACE, Pending, Stop};
use crate::jobs::halt::End;
use crate::jobs::output::Broken;
use crate::jobs::running::{Running, wait_for_all_that_ended};
use crate::jobs::tree;
use crate::system::{Child, next_child};

impl Engine<'_> {
    pub(super) fn take_ends(&mut self) {
        while let Ok(Some((pid, child, usage))) = next_child() {
            // The ends of orphans of jobs are received here as well, and the end of the orphan reaper if it is killed.
            if let Some(reaper) = self.reaper.take_if(|reaper| reaper.is(pid)) {
                reaper.ended();
            }
            if let Child::Stopped(signal) = child {
                self.job_stopped(pid, signal);
            } else if let Some(job) = self.running.remove(&pid) {
                self.job_ended(job, child, &usage);
            }
        }
    }

    /// A job that uses the terminal is stopped by the kernel, because it is not in the foreground, and nothing would continue it.
    fn job_stopped(&mut self, pid: u32, signal: c_int) {
        let wants_terminal = [libc::SIGTTIN, libc::SIGTTOU].contains(&signal) && !self.tty;
        let Some(job) = self.running.get_mut(&pid).filter(|_| wants_terminal) else { return };
        let was_warned = std::mem::replace(&mut job.wants_terminal, true);
        job.signal(if was_warned { libc::SIGKILL } else { libc::SIGTERM });
        job.signal(libc::SIGCONT);
        if !was_warned {
            let number = job.number;
            self.audience.notice(&format!(
                "job {number} is ended: it was stopped because it tried to use the terminal, which jobs do not have; \
                 with --tty they have it, one at a time"
            ));
        }
    }

    pub(super) fn job_ended(&mut self, job: Running, end: Child, usage: &libc::rusage) {
        self.free_slots.insert(job.slot);
        self.retry = None;
        self.counts.running[job.home] -= 1;
        let account = self.placement.ended(job.number);
        if let Some(at) = job.kill_at {
            self.late_groups.push((job.pid, at));
        }
        if self.runs_again(&job, end)
            && let Some(again) = &job.again
        {
            self.printer.discard(job.number);
            let (job, attempt) = (again.clone(), job.attempt + 1);
            self.pending.push_front(Pending { job, attempt, is_given_back: false });
            return;
        }
        self.ended += 1;
        self.stopped += u64::from(job.stopped);
        let (printed, ends) = self.printer.ended(job.number);
        let report = job.report(end, usage, account, printed);
        if report.has_succeeded() {
            self.time_limit.succeeded(report.elapsed);
        }
        self.audience.ended(&report);
        let ends_run = self.decision.ended(report.has_succeeded(), report.stopped);
        self.unprinted.insert(report.number, (report, ends));
        self.tell_ends();
        if ends_run {
            self.end(None, libc::SIGTERM, false);
        }
        if !self.may_start() {
            self.forget_pending();
        }
    }

    /// Tells the source of the jobs that have ended and whose output is printed: before that, a job is not done.
    pub(super) fn tell_ends(&mut self) {
        while let Some(number) = self.printer.next_printed() {
            // What is found to be broken by now may not have been printed.
            if self.printer.broken().is_none()
                && let Some((report, ends)) = self.unprinted.remove(&number)
            {
                self.source.ended(&report, ends);
            }
        }
        if self.printer.broken().is_some() {
            self.give_back_unprinted();
        }
    }

    /// The output of these jobs may be lost, so they are not done, whatever their status.
    pub(super) fn give_back_unprinted(&mut self) {
        for number in std::mem::take(&mut self.unprinted).into_keys() {
            self.source.give_back(number);
        }
    }

    /// No job starts any more, so the outputs of others need not wait for those of jobs that would run again.
    pub(super) fn forget_pending(&mut self) {
        self.source.stop();
        for pending in &mut self.pending {
            self.printer.forget(pending.job.number);
            if !std::mem::replace(&mut pending.is_given_back, true) {
                self.source.give_back(pending.job.number);
            }
        }
    }

    /// Whether a job that has ended has failed and is tried again. A job that could not be started fails in the same way each time.
    fn runs_again(&self, job: &Running, end: Child) -> bool {
        let failed = job.timed_out || !End::of(end).is_success();
        failed
            && !job.stopped
            && job.pid != 0
            && self.retries.is_none_or(|most| job.attempt < most)
            && self.may_start()
    }

    // ---- jobs that run too long --------------------------------------------------------------------------

    /// When a job that runs will have run too long, or must be killed because of that.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let limit = self.time_limit.get();
        let due = |job: &Running| match job.kill_at {
            Some(at) => Some(at),
            None if job.timed_out || job.stopped => None,
            None => job.started.checked_add(limit?),
        };
        let late = self.late_groups.iter().map(|(_, at)| *at);
        self.running.values().filter_map(due).chain(late).min()
    }

    /// Ends the jobs that run too long, and kills those that have not ended some time later.
    pub(super) fn end_late_jobs(&mut self) {
        let now = Instant::now();
        let limit = self.time_limit.get();
        for job in self.running.values_mut() {
            if job.kill_at.is_some_and(|at| now >= at) {
                job.kill_at = None;
                job.signal(libc::SIGKILL);
            } else if let Some(limit) = limit
                && !job.timed_out
                && !job.stopped
                && now.duration_since(job.started) >= limit
            {
                job.timed_out = true;
                job.kill_at = Some(now + GRACE);
                job.signal(libc::SIGTERM);
                // A stopped process cannot react to the signal.
                job.signal(libc::SIGCONT);
                let number = job.number;
                self.audience.notice(&format!(
                    "job {number} is ended: it ran longer than {:.3} s (--timeout)",
                    limit.as_secs_f64()
                ));
            }
        }
        // What such a job has left behind is a descendant of this process, so its number is still its own. A job that was started since may
        // have the number of an empty group.
        let is_due = |at: &Instant| now >= *at;
        for (group, _) in self.late_groups.extract_if(.., |(_, at)| is_due(at)) {
            if self.running.contains_key(&group) {
                continue;
            }
            for pid in tree::in_group(group) {
                let Some(process) = Pid::from_raw(pid.cast_signed()) else { continue };
                // It may just have ended.
                let _ = kill_process(process, KernelSignal::KILL);
            }
        }
    }

    // ---- the end of the run ------------------------------------------------------------------------------

    /// Running jobs finish, and no more start. The next signal ends them.
    pub(super) fn drain(&mut self) {
        self.drains = true;
        self.forget_pending();
        let text = match self.running.len() {
            0 => "no job runs".to_owned(),
            1 => "1 job runs on; the next signal ends it and gives it back".to_owned(),
            many => format!("{many} jobs run on; the next signal ends them and gives them back"),
        };
        self.audience.notice(&format!("no more jobs are taken; {text}"));
    }

    /// Begins to end the whole run; running jobs get `send`, unless they have it already. At the second request, they are killed.
    pub(super) fn end(&mut self, signal: Option<c_int>, send: c_int, is_sent: bool) {
        if let Some(stop) = &mut self.stop {
            // The request was repeated from outside.
            if signal.is_some() {
                stop.signal = stop.signal.or(signal);
                self.kill();
            }
            return;
        }
        self.forget_pending();
        let next_at = Instant::now() + GRACE;
        self.stop = Some(Stop { signal, next_at, killed: false, given_up: false });
        for job in self.running.values_mut() {
            // A job that ran too long has failed.
            job.stopped = !job.timed_out;
            if !is_sent {
                job.signal(send);
            }
            // A stopped process cannot react to the signal.
            job.signal(libc::SIGCONT);
        }
    }

    /// The output of jobs can no longer be written: as for any program, that ends the run.
    pub(super) fn end_without_output(&mut self) {
        if self.stop.is_none()
            && let Some(broken) = self.printer.broken()
        {
            let signal = (*broken == Broken::Reader).then_some(libc::SIGPIPE);
            self.end(signal, libc::SIGTERM, false);
        }
    }

    /// Kills jobs that still run. A job that does not end even then is abandoned: it hangs in the kernel, or has more rights than this
    /// process.
    pub(super) fn kill(&mut self) {
        self.running.values().for_each(|job| job.signal(libc::SIGKILL));
        let Some(stop) = &mut self.stop else { return };
        stop.next_at = Instant::now() + GRACE;
        if std::mem::replace(&mut stop.killed, true) && !self.running.is_empty() {
            stop.given_up = true;
            let pids: Vec<String> = self.running.keys().map(u32::to_string).collect();
            let jobs = match pids.len() {
                1 => "1 job does not end on SIGKILL and is".to_owned(),
                many => format!("{many} jobs do not end on SIGKILL and are"),
            };
            self.errors.push(format!("{jobs} left running: process {}", pids.join(", ")));
        }
    }

    /// Ends processes that jobs have left behind.
    pub(super) fn end_what_is_left(&mut self) {
        // End the orphan reaper first: it is a child as well.
        self.reaper = None;
        let begin = Instant::now();
        let mut signalled = BTreeSet::new();
        // Processes with more rights than this process.
        let mut out_of_reach = BTreeSet::new();
        loop {
            if !wait_for_all_that_ended() {
                return;
            }
            let mut left = tree::left_over();
            left.retain(|pid| !out_of_reach.contains(pid));
            if left.is_empty() || begin.elapsed() > GRACE * 2 {
                // Wait for processes that ended during the search.
                wait_for_all_that_ended();
                return;
            }
            let signal =
                if begin.elapsed() < GRACE { KernelSignal::TERM } else { KernelSignal::KILL };
            for pid in left {
                if signal == KernelSignal::KILL || signalled.insert(pid) {
                    // The process is a descendant of this one, which alone waits for its descendants. So the number still belongs to that
                    // process, or to one whose parent is just ending.
                    let Some(process) = Pid::from_raw(pid.cast_signed()) else { continue };
                    if kill_process(process, signal) == Err(Errno::PERM) {
                        out_of_reach.insert(pid);
                    }
                    let _ = kill_process(process, KernelSignal::CONT);
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
