//! The loop: starts jobs while there are places, waits for what happens next, and takes note of ends.
//!
//! One thread does it all, and waits in one `poll`: for signals (the end of a child is one), for inputs while there is room for them,
//! for the printer, and, only where there are several nodes, for the time to look after homes. So a slow writer of inputs or a slow
//! reader of outputs stops nothing else.
//!
//! Jobs lead process groups of their own: what the terminal sends comes to the engine alone, who passes it on. Their first processes end
//! with the engine however it ends; what else is left is found because the engine is the reaper of all of it (`tree`), or by the guard.

mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime};

use libc::c_int;
use nearq_platform::Spawner;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::budget::Budget;
use super::find::{NoProgram, find};
use super::guard::Guard;
use super::halt::{Decision, Halt};
use super::input::{Group, Inputs};
use super::output::{Around, Order, Printer};
use super::placement::{Homes, Placement};
use super::report::{Counts, Outcome, Report};
use super::running::{Running, next_ended};
use super::signals::{Signal, Signals, stop_here};
use super::template::Template;
use super::tree;
use crate::system::adopt_orphans;
use start::{Attempt, environment};

/// How long jobs that are told to end may take for it.
const GRACE: Duration = Duration::from_secs(2);

/// How long until a process is tried again to be started, at first and at most, while none of ours can end.
const RETRY: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// What is to be done.
pub struct Plan {
    /// The command of each job.
    pub template: Template,
    /// What jobs are made of.
    pub inputs: Inputs,
    /// How many run at a time; at least 1.
    pub width: usize,
    /// What happens when one fails.
    pub halt: Halt,
    /// What becomes of outputs.
    pub order: Order,
    /// Whether jobs print on standard error alone.
    pub to_error: bool,
    /// What is done around printing.
    pub around: Around,
    /// Where jobs live.
    pub homes: Homes,
}

/// Who wants to know.
pub trait Audience {
    /// A job has started: its first process, its command, the index of its home.
    fn started(&mut self, number: u64, process: u32, command: &[u8], home: usize);
    /// A job has ended.
    fn ended(&mut self, report: &Report);
    /// The numbers have changed.
    fn counts(&mut self, counts: &Counts);
    /// Something that the user should know; once each.
    fn notice(&mut self, text: &str);
}

/// Why nothing was run.
#[derive(Debug)]
pub enum Error {
    /// There is no such command.
    Program(NoProgram),
    /// The system refused something without which there is no running.
    System(io::Error),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Program(error) => error.fmt(f),
            Self::System(error) => write!(f, "jobs cannot be run: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Self {
        Self::System(error.into())
    }
}

/// Runs all jobs. To be called by a program for which this is all it does, from its only thread: signals, children and the
/// reaping of orphans are the engine's meanwhile.
///
/// # Errors
/// The command cannot be found or executed, or the system has no descriptors for the engine itself: no job has run.
pub fn run(plan: Plan, audience: &mut dyn Audience) -> Result<Outcome, Error> {
    let mut engine = Engine::new(plan, audience)?;
    loop {
        engine.start_more();
        if engine.is_over() {
            break;
        }
        engine.wait()?;
    }
    engine.end_without_reader();
    engine.end_what_is_left();
    Ok(engine.outcome())
}

struct Engine<'a> {
    template: Template,
    inputs: Inputs,
    width: usize,
    order: Order,
    audience: &'a mut dyn Audience,
    /// Made first: it notes what signals programs shall find.
    spawner: Spawner,
    signals: Signals,
    printer: Printer,
    placement: Placement,
    budget: Budget,
    guard: Option<Guard>,
    path: Option<OsString>,
    environment: Vec<CString>,
    /// Where the command is, if it is the same for all jobs.
    program: Option<CString>,
    null: File,
    /// A second descriptor of standard error, where jobs have it as their standard output.
    error: Option<OwnedFd>,
    running: BTreeMap<u32, Running>,
    /// Places below `highest_place` in which nothing runs.
    free_places: BTreeSet<usize>,
    highest_place: usize,
    number: u64,
    /// A job for which there was no process.
    put_off: Option<(u64, Group)>,
    retry: Option<Retry>,
    said_limit: bool,
    decision: Decision,
    ended: u64,
    stop: Option<Stop>,
    input_error: Option<String>,
    counts: Counts,
    begin: Instant,
}

/// When to try again what a limit forbids.
struct Retry {
    at: Instant,
    delay: Duration,
}

/// The whole is ending.
struct Stop {
    /// What the caller shall end by.
    signal: Option<c_int>,
    /// When those that still run are killed.
    kill_at: Instant,
    killed: bool,
}

impl<'a> Engine<'a> {
    fn new(plan: Plan, audience: &'a mut dyn Audience) -> Result<Self, Error> {
        let path = std::env::var_os("PATH");
        let program = plan.template.program();
        let program = program.map(|name| find(name, path.as_deref())).transpose();
        let program = program.map_err(Error::Program)?;
        let value = format!("{}.{}", std::process::id(), now_in_nanos());
        let spawner = Spawner::new();
        let signals = Signals::take()?;
        let guard = Guard::start(&value);
        if let Err(error) = &guard {
            audience.notice(&format!(
                "no second process can be started: {error}; should this one be killed by SIGKILL, what jobs have started lives on"
            ));
        }
        adopt_orphans()?;
        let error = match (plan.to_error, plan.order) {
            (true, Order::None) => Some(rustix::io::fcntl_dupfd_cloexec(io::stderr(), 3)?),
            _ => None,
        };
        let placement = Placement::new(plan.homes);
        let running = vec![0; placement.nodes().len()];
        Ok(Self {
            template: plan.template,
            inputs: plan.inputs,
            width: plan.width.max(1),
            order: plan.order,
            audience,
            spawner,
            signals,
            printer: Printer::new(plan.order, plan.around, plan.to_error)?,
            placement,
            budget: Budget::new(),
            guard: guard.ok(),
            path,
            environment: environment(&value),
            program,
            null: File::open("/dev/null")?,
            error,
            running: BTreeMap::new(),
            free_places: BTreeSet::new(),
            highest_place: 0,
            number: 0,
            put_off: None,
            retry: None,
            said_limit: false,
            decision: Decision::new(plan.halt),
            ended: 0,
            stop: None,
            input_error: None,
            counts: Counts { running, ..Counts::default() },
            begin: Instant::now(),
        })
    }

    // ---- starting --------------------------------------------------------------------------------------

    fn may_start(&self) -> bool {
        self.stop.is_none() && self.decision.may_start()
    }

    fn start_more(&mut self) {
        while self.may_start() && self.running.len() < self.width && !self.printer.is_behind() {
            if self.retry.as_ref().is_some_and(|retry| Instant::now() < retry.at) {
                break;
            }
            let next = self.put_off.take().or_else(|| {
                let inputs = self.inputs.take()?;
                self.number += 1;
                Some((self.number, inputs))
            });
            let Some((number, inputs)) = next else { break };
            match self.start(number, &inputs) {
                Attempt::Runs => self.retry = None,
                Attempt::Limited(why) => {
                    self.put_off = Some((number, inputs));
                    self.wait_for_room(&why);
                    break;
                }
            }
        }
        self.tell_counts();
    }

    fn wait_for_room(&mut self, why: &str) {
        if !self.said_limit {
            self.said_limit = true;
            let running = self.running.len();
            self.audience
                .notice(&format!("{why}; {running} jobs run, others wait until some have ended"));
        }
        let delay = self.retry.as_ref().map_or(RETRY[0], |retry| (retry.delay * 2).min(RETRY[1]));
        self.retry = Some(Retry { at: Instant::now() + delay, delay });
    }

    // ---- waiting ---------------------------------------------------------------------------------------

    fn is_over(&self) -> bool {
        let ends = self.stop.as_ref().is_some_and(|stop| stop.killed);
        let nothing_to_come = !self.may_start() || self.put_off.is_none() && self.inputs.is_over();
        self.running.is_empty()
            && nothing_to_come
            && (self.printer.is_done() || self.printer.is_broken() || ends)
    }

    fn wait(&mut self) -> Result<(), Error> {
        let timeout = self.next_time().map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
        });
        let (signals, printed, readable) = {
            let input = if self.may_start() { self.inputs.wanted() } else { None };
            let mut polled = vec![
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::new(&self.printer, PollFlags::IN),
            ];
            polled.extend(input.map(|input| PollFd::from_borrowed_fd(input, PollFlags::IN)));
            match poll(&mut polled, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let came = |index: usize| polled.get(index).is_some_and(|fd| !fd.revents().is_empty());
            (came(0), came(1), came(2))
        };
        if signals {
            self.take_signals();
        }
        if printed {
            self.printer.noted();
            self.end_without_reader();
        }
        if readable && let Err(error) = self.inputs.fill() {
            self.input_error = Some(error.to_string());
        }
        self.placement.look();
        self.look_at_outputs();
        let kill_now = self.stop.as_ref().is_some_and(|stop| Instant::now() >= stop.kill_at);
        if kill_now {
            self.kill();
        }
        Ok(())
    }

    /// When there is something to do even if nothing happens.
    fn next_time(&self) -> Option<Instant> {
        let retry = self.retry.as_ref().filter(|_| self.may_start()).map(|retry| retry.at);
        let stop = self.stop.as_ref().filter(|stop| !stop.killed).map(|stop| stop.kill_at);
        let looks = [self.placement.next_look(), self.budget.next_look()];
        retry.into_iter().chain(stop).chain(looks.into_iter().flatten()).min()
    }

    fn take_signals(&mut self) {
        let mut children = false;
        while let Some(signal) = self.signals.next() {
            match signal {
                Signal::Child => children = true,
                Signal::End(signal) => self.end(Some(signal), signal),
                Signal::Stop => {
                    self.running.values().for_each(|job| job.signal(libc::SIGTSTP));
                    stop_here();
                }
                Signal::Continue => {
                    self.running.values().for_each(|job| job.signal(libc::SIGCONT));
                }
            }
        }
        if children {
            self.take_ends();
        }
    }

    /// Ends the job that has printed most, where all of them have printed too much.
    fn look_at_outputs(&mut self) {
        if self.budget.next_look().is_none_or(|at| Instant::now() < at) {
            return;
        }
        let kept = self.running.values().filter_map(|job| Some((job.pid, job.kept.as_ref()?)));
        let lengths = kept.map(|(pid, kept)| (kept.lengths().iter().sum::<u64>(), pid));
        let lengths: Vec<(u64, u32)> = lengths.collect();
        if !self.budget.is_exceeded(lengths.iter().map(|(length, _)| length).sum()) {
            return;
        }
        let longest = lengths.into_iter().max();
        if let Some((length, job)) =
            longest.and_then(|(length, pid)| Some((length, self.running.get_mut(&pid)?)))
        {
            // Who goes on all the same is killed at the next look.
            job.signal(if job.too_long { libc::SIGKILL } else { libc::SIGTERM });
            if !std::mem::replace(&mut job.too_long, true) {
                let (number, mib) = (job.number, length >> 20);
                self.audience.notice(&format!(
                    "job {number} is ended: it has printed {mib} MiB, more than should be kept in memory; with --ungroup jobs print themselves"
                ));
            }
        }
    }

    // ---- ends ------------------------------------------------------------------------------------------

    fn take_ends(&mut self) {
        while let Ok(Some((pid, status, usage))) = next_ended() {
            // Orphans of jobs end here as well, and the guard, should somebody kill it.
            if let Some(guard) = self.guard.take_if(|guard| guard.is(pid)) {
                guard.ended();
            }
            if let Some(job) = self.running.remove(&pid) {
                self.job_ended(job, status, &usage);
            }
        }
    }

    fn job_ended(&mut self, job: Running, status: c_int, usage: &libc::rusage) {
        self.free_places.insert(job.place);
        if self.running.is_empty() {
            self.budget.nothing_runs();
        }
        self.retry = None;
        self.ended += 1;
        self.counts.running[job.home] -= 1;
        let account = self.placement.ended(job.number);
        let (report, kept) = job.report(status, usage, account);
        self.audience.ended(&report);
        self.printer.ended(report.number, kept);
        if self.decision.ended(report.end, report.stopped) {
            self.end(None, libc::SIGTERM);
        }
    }

    /// Begins to end the whole; what runs gets `send`. The second time, it is killed.
    fn end(&mut self, signal: Option<c_int>, send: c_int) {
        if let Some(stop) = &mut self.stop {
            // Told again by somebody.
            if signal.is_some() {
                stop.signal = stop.signal.or(signal);
                self.kill();
            }
            return;
        }
        self.stop = Some(Stop { signal, kill_at: Instant::now() + GRACE, killed: false });
        for job in self.running.values_mut() {
            job.stopped = true;
            job.signal(send);
            // Who is stopped can do nothing about it.
            job.signal(libc::SIGCONT);
        }
    }

    /// Nobody reads any more what jobs print: as for any program, that is the end.
    fn end_without_reader(&mut self) {
        if self.printer.is_broken() && self.stop.is_none() {
            self.end(Some(libc::SIGPIPE), libc::SIGTERM);
        }
    }

    fn kill(&mut self) {
        self.running.values().for_each(|job| job.signal(libc::SIGKILL));
        if let Some(stop) = &mut self.stop {
            stop.killed = true;
            stop.kill_at = Instant::now() + GRACE;
        }
    }

    /// Ends what jobs have left behind.
    fn end_what_is_left(&mut self) {
        // First the guard: it is a child as well.
        self.guard = None;
        let begin = Instant::now();
        let mut told = BTreeSet::new();
        loop {
            loop {
                match next_ended() {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(()) => return,
                }
            }
            let left = tree::left_over();
            if left.is_empty() || begin.elapsed() > GRACE * 2 {
                return;
            }
            let signal = if begin.elapsed() < GRACE { libc::SIGTERM } else { libc::SIGKILL };
            for pid in left {
                if signal == libc::SIGKILL || told.insert(pid) {
                    // SAFETY: numbers only. The process is below this one, and this one alone waits for those: it is that process, or
                    // the child of one which ends just now.
                    unsafe { libc::kill(pid.cast_signed(), signal) };
                    // SAFETY: as above.
                    unsafe { libc::kill(pid.cast_signed(), libc::SIGCONT) };
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    // ---- telling ---------------------------------------------------------------------------------------

    fn tell_counts(&mut self) {
        let (ready, all_known) = self.inputs.left();
        self.counts.ended = self.ended;
        self.counts.failed = self.decision.failed();
        self.counts.waiting = ready as u64 + u64::from(self.put_off.is_some());
        self.counts.all_known = all_known;
        self.audience.counts(&self.counts);
    }

    fn outcome(self) -> Outcome {
        let (ready, _) = self.inputs.left();
        Outcome {
            failed: self.decision.failed(),
            ended: self.ended,
            not_started: ready as u64 + u64::from(self.put_off.is_some()),
            signal: self.stop.and_then(|stop| stop.signal),
            input_error: self.input_error,
            refused: self.placement.refused().map(str::to_owned),
            elapsed: self.begin.elapsed(),
        }
    }
}

fn now_in_nanos() -> u128 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos())
}
