//! The loop: starts jobs while there are slots, waits for what happens next, and handles ends.
//!
//! One thread does all of this, and waits in one `poll`: for signals (the end of a child is one), for its source of jobs, for the
//! printer, and, only if there are several nodes, for the next check of homes. So a slow source of jobs or a slow reader of outputs delays
//! nothing else.
//!
//! Jobs lead process groups of their own: signals from the terminal reach only the engine, which passes them on. The jobs' first
//! processes end with the engine, however it ends. Other processes that are left are found because the engine is the reaper of all of
//! them (`tree`), or by the orphan reaper.

mod ends;
mod start;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use libc::c_int;
use nearq_platform::Spawner;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::find::{NoProgram, find};
use super::halt::{Decision, Halt};
use super::orphan_reaper::OrphanReaper;
use super::output::{self, Around, Broken, Order, Printer};
use super::placement::{Homes, Placement};
use super::report::{Counts, Outcome, Report};
use super::results::Results;
use super::running::Running;
use super::signals::{Signal, Signals, stop_self};
use super::source::{Job, Needs, Source};
use super::template::Template;
use super::text::Text;
use super::timeout::{TimeLimit, Timeout};
use crate::proc;
use crate::system::adopt_orphans;
use start::{Attempt, Limit, environment, named};

/// How long jobs that are asked to end may take.
const GRACE: Duration = Duration::from_secs(2);

/// How long until another attempt to start a process, at first and at most.
const RETRY: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// How long attempts continue while no job runs whose end would free resources.
const PATIENCE: Duration = Duration::from_secs(1);

/// The description of a run.
pub struct Plan {
    /// The command of each job; `None` if the source gives each its own.
    pub template: Option<Template>,
    /// Where the jobs come from.
    pub source: Box<dyn Source>,
    /// How many jobs run at a time; at least 1.
    pub width: usize,
    /// What happens when a job fails.
    pub halt: Halt,
    /// In which order outputs are printed.
    pub order: Order,
    /// Whether jobs have the terminal: as their standard input, and in the caller's process group. Only with a width of 1 and
    /// [`Order::None`].
    pub tty: bool,
    /// Whether jobs print only on standard error.
    pub to_error: bool,
    /// What each line of a job's output begins with; not with [`Order::None`].
    pub tag: Option<Text>,
    /// Where each job's output is stored in place of being printed; not with [`Order::None`].
    pub results: Option<Results>,
    /// How many times a job runs at most until it succeeds; `None` for any number of times.
    pub retries: Option<u64>,
    /// How long a job may run.
    pub timeout: Option<Timeout>,
    /// The least time between two starts.
    pub delay: Duration,
    /// Whether each job has the slot of its number, whichever others are free.
    pub own_slots: bool,
    /// What is done before and after printing.
    pub around: Around,
    /// The homes of jobs.
    pub homes: Homes,
}

/// Receives information while jobs run.
pub trait Audience {
    /// A job has started: its first process, its command, the index of its home.
    fn started(&mut self, number: u64, process: u32, command: &[u8], home: usize);
    /// A job has ended.
    fn ended(&mut self, report: &Report);
    /// The numbers of jobs have changed.
    fn counts(&mut self, counts: &Counts);
    /// A notice for the user; each text is given once.
    fn notice(&mut self, text: &str);
}

/// Why nothing was run.
pub enum Error {
    /// There is no such command.
    Program(NoProgram),
    /// There is no source of jobs, in words.
    Source(String),
    /// The system refused something that is indispensable.
    System(io::Error),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Program(error) => error.fmt(f),
            Self::Source(text) => f.write_str(text),
            Self::System(error) => write!(f, "jobs cannot be run: {}", named(error)),
        }
    }
}

nearq_topology::debug_as_display!(Error);

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

/// Runs all jobs. Must be called by a program that does nothing else, from its only thread: meanwhile signals, children and
/// the reaping of orphans belong to the engine.
///
/// # Errors
/// The command cannot be found or executed, the source has no jobs to give, or the system has no descriptors for the engine itself: no
/// job has run.
pub fn run(plan: Plan, audience: &mut dyn Audience) -> Result<Outcome, Error> {
    let mut engine = Engine::new(plan, audience)?;
    loop {
        engine.start_more();
        if engine.is_over() {
            break;
        }
        engine.wait()?;
    }
    engine.end_what_is_left();
    Ok(engine.outcome())
}

struct Engine<'a> {
    template: Option<Template>,
    source: Box<dyn Source>,
    needs: Needs,
    /// When the source is told next which jobs are alive.
    next_beat: Option<Instant>,
    /// Whether running jobs finish, and no more start.
    drains: bool,
    width: usize,
    tty: bool,
    audience: &'a mut dyn Audience,
    /// Made first, because it notes the signal settings that programs must inherit.
    spawner: Spawner,
    signals: Signals,
    printer: Printer,
    placement: Placement,
    reaper: Option<OrphanReaper>,
    path: Option<OsString>,
    /// Of each slot in turn.
    environments: Vec<Vec<CString>>,
    /// The file of the command, if it is the same for all jobs.
    program: Option<CString>,
    /// The standard input of jobs: `/dev/null` or the terminal.
    input: File,
    /// A second descriptor of standard error, if jobs use standard error as their standard output.
    error: Option<OwnedFd>,
    running: BTreeMap<u32, Running>,
    /// Slots below `highest_slot` in which nothing runs.
    free_slots: BTreeSet<usize>,
    highest_slot: usize,
    /// Whether each job has the slot of its number.
    own_slots: bool,
    tag: Option<Text>,
    results: Option<Results>,
    retries: Option<u64>,
    time_limit: TimeLimit,
    delay: Duration,
    /// Before that, no job starts.
    next_start: Option<Instant>,
    /// Jobs that start before those of new inputs.
    pending: VecDeque<Pending>,
    /// Jobs that have ended, and whose output is not printed yet: the report, and the ends of their outputs.
    unprinted: BTreeMap<u64, (Report, [Vec<u8>; 2])>,
    /// Process groups of jobs that ran too long and have ended, and when what is left of them is killed.
    late_groups: Vec<(u32, Instant)>,
    retry: Option<Retry>,
    limit_reported: bool,
    decision: Decision,
    ended: u64,
    stopped: u64,
    stop: Option<Stop>,
    errors: Vec<String>,
    live_output_reported: bool,
    counts: Counts,
    begin: Instant,
}

/// A job that could not be started yet, or that runs again because it has failed.
struct Pending {
    job: Job,
    /// Which time it runs, from 1.
    attempt: u64,
    /// Whether the source knows that it does not run.
    is_given_back: bool,
}

/// When to retry a start that a limit has prevented.
struct Retry {
    at: Instant,
    delay: Duration,
    since: Instant,
}

/// The whole run is ending.
struct Stop {
    /// The signal by which the caller must end.
    signal: Option<c_int>,
    /// When jobs that still run are killed; afterwards, when jobs that still have not ended are abandoned.
    next_at: Instant,
    killed: bool,
    given_up: bool,
}

impl<'a> Engine<'a> {
    fn new(mut plan: Plan, audience: &'a mut dyn Audience) -> Result<Self, Error> {
        let path = std::env::var_os("PATH");
        let program = plan.template.as_ref().and_then(Template::program);
        let program = program.map(|name| find(name, path.as_deref())).transpose();
        let program = program.map_err(Error::Program)?;
        let value = format!("{}.{}", std::process::id(), now_in_nanos());
        let spawner = Spawner::new();
        let signals = Signals::take()?;
        let reaper = OrphanReaper::start(&value);
        if let Err(error) = &reaper {
            audience.notice(&format!(
                "no second process can be started: {error}; if this one is killed by SIGKILL, the processes of jobs keep running"
            ));
        }
        adopt_orphans()?;
        // After the orphan reaper, which a process with one thread starts.
        let needs = plan.source.begin().map_err(Error::Source)?;
        let error = match (plan.to_error, plan.order) {
            (true, Order::None) => Some(rustix::io::fcntl_dupfd_cloexec(io::stderr(), 3)?),
            _ => None,
        };
        let mut environments: Vec<Vec<CString>> =
            plan.homes.slots.iter().map(|slot| environment(&value, &slot.variables)).collect();
        if environments.is_empty() {
            environments.push(environment(&value, &[]));
        }
        let placement = Placement::new(plan.homes);
        let running = vec![0; placement.nodes().len()];
        Ok(Self {
            template: plan.template,
            source: plan.source,
            needs,
            next_beat: None,
            drains: false,
            width: plan.width.max(1),
            tty: plan.tty,
            audience,
            spawner,
            signals,
            printer: Printer::new(
                plan.order,
                output::limit(),
                plan.around,
                plan.to_error,
                needs.ends,
            )?,
            placement,
            reaper: reaper.ok(),
            path,
            environments,
            program,
            input: input(plan.tty)?,
            error,
            running: BTreeMap::new(),
            free_slots: BTreeSet::new(),
            highest_slot: 0,
            own_slots: plan.own_slots,
            tag: plan.tag,
            results: plan.results,
            retries: plan.retries,
            time_limit: TimeLimit::new(plan.timeout),
            delay: plan.delay,
            next_start: None,
            pending: VecDeque::new(),
            unprinted: BTreeMap::new(),
            late_groups: Vec::new(),
            retry: None,
            limit_reported: false,
            decision: Decision::new(plan.halt),
            ended: 0,
            stopped: 0,
            stop: None,
            errors: Vec::new(),
            live_output_reported: false,
            counts: Counts { running, ..Counts::default() },
            begin: Instant::now(),
        })
    }

    // ---- starting --------------------------------------------------------------------------------------

    fn may_start(&self) -> bool {
        self.stop.is_none() && !self.drains && self.decision.may_start()
    }

    fn start_more(&mut self) {
        while self.may_start() && self.running.len() < self.width && !self.printer.is_behind() {
            let now = Instant::now();
            if self.retry.as_ref().is_some_and(|retry| now < retry.at) {
                break;
            }
            self.next_start = self.next_start.filter(|at| now < *at);
            if self.next_start.is_some() {
                break;
            }
            let places = self.width - self.running.len();
            let next = self.pending.pop_front().or_else(|| {
                let job = self.source.take(places)?;
                Some(Pending { job, attempt: 1, is_given_back: false })
            });
            let Some(job) = next else { break };
            match self.start(&job) {
                Attempt::Runs => {
                    self.retry = None;
                    self.next_start = (!self.delay.is_zero()).then(|| now + self.delay);
                }
                Attempt::Limited(limit) => {
                    self.pending.push_front(job);
                    if self.may_start() {
                        self.retry_later(&limit);
                    } else {
                        // The run has begun to end while the job was in neither place.
                        self.forget_pending();
                    }
                    break;
                }
            }
        }
        self.report_counts();
    }

    fn retry_later(&mut self, limit: &Limit) {
        let now = Instant::now();
        let since = self.retry.as_ref().map_or(now, |retry| retry.since);
        let running = self.running.len();
        if running == 0 && (limit.is_own_limit || now.duration_since(since) >= PATIENCE) {
            self.errors.push(format!(
                "no job can be started: {}; and no job is running whose end could help",
                limit.text
            ));
            self.end(None, libc::SIGTERM, false);
            return;
        }
        if running > 0 && !std::mem::replace(&mut self.limit_reported, true) {
            let text = &limit.text;
            let jobs =
                if running == 1 { "1 job is".to_owned() } else { format!("{running} jobs are") };
            self.audience
                .notice(&format!("{text}; {jobs} running, the others wait until some have ended"));
        }
        let delay = self.retry.as_ref().map_or(RETRY[0], |retry| (retry.delay * 2).min(RETRY[1]));
        self.retry = Some(Retry { at: now + delay, delay, since });
    }

    // ---- waiting ---------------------------------------------------------------------------------------

    fn is_over(&self) -> bool {
        // A signal is handled even while a reader is slow; everything else waits for the reader.
        let ends = self.stop.as_ref().is_some_and(|stop| stop.killed && stop.signal.is_some());
        let given_up = self.stop.as_ref().is_some_and(|stop| stop.given_up);
        let nothing_to_come = !self.may_start() || self.pending.is_empty() && self.source.is_over();
        given_up
            || self.running.is_empty()
                && nothing_to_come
                && (self.is_settled() || ends)
                && (self.printer.is_done() || self.printer.broken().is_some() || ends)
    }

    /// Whether all who must know the ends of jobs know them.
    fn is_settled(&self) -> bool {
        (self.unprinted.is_empty() || self.needs.beat.is_none()) && self.source.unsettled() == 0
    }

    fn wait(&mut self) -> Result<(), Error> {
        let left = self.next_time().map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let (signals, printed, readable) = {
            let input = self.source.wanted(self.may_start());
            let outputs = self.printer.wanted();
            let behind_outputs = 1 + outputs.len();
            let all = [self.signals.as_fd()].into_iter().chain(outputs).chain(input);
            let poll_fd = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
            let mut polled: Vec<PollFd<'_>> = all.map(poll_fd).collect();
            match poll(&mut polled, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let is_ready = |fds: &[PollFd<'_>]| fds.iter().any(|fd| !fd.revents().is_empty());
            let (first, input) = polled.split_at(behind_outputs);
            (is_ready(&first[..1]), is_ready(&first[1..]), is_ready(input))
        };
        if printed {
            self.printer.take();
            self.tell_ends();
        }
        if signals {
            self.take_signals();
        }
        self.print_live();
        self.end_without_output();
        if readable && let Err(error) = self.source.fill() {
            self.errors.push(error);
        }
        for text in self.source.notices() {
            self.audience.notice(&text);
        }
        self.tell_alive();
        self.placement.check();
        self.end_late_jobs();
        if let Some(stop) = &mut self.stop
            && Instant::now() >= stop.next_at
        {
            self.kill();
        }
        Ok(())
    }

    /// The time of the next step that is due even if no event occurs.
    fn next_time(&self) -> Option<Instant> {
        let retry = self.retry.as_ref().filter(|_| self.may_start()).map(|retry| retry.at);
        let stop = self.stop.as_ref().map(|stop| stop.next_at);
        // While all slots are taken, the end of a job comes first.
        let start = self.next_start.filter(|_| self.running.len() < self.width && self.may_start());
        let check = self.placement.next_check();
        let times = [retry, start, stop, check, self.next_timeout(), self.next_beat];
        times.into_iter().flatten().min()
    }

    fn take_signals(&mut self) {
        let mut children = false;
        while let Some(signal) = self.signals.next() {
            match signal {
                Signal::Child => children = true,
                Signal::End { .. } if self.needs.drains && !self.drains => self.drain(),
                Signal::End { signal, by_terminal } => {
                    // Jobs that have the terminal get the signal from there as well.
                    self.end(Some(signal), signal, self.tty && by_terminal);
                }
                Signal::Stop => {
                    self.running.values().for_each(|job| job.signal(libc::SIGTSTP));
                    stop_self();
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

    /// Starts to print a job that still runs, if there is no space for outputs.
    fn print_live(&mut self) {
        if let Some(number) = self.printer.print_live()
            && !std::mem::replace(&mut self.live_output_reported, true)
        {
            let mib = output::limit() >> 20;
            self.audience.notice(&format!(
                "outputs take {mib} MiB of memory: job {number} is printed while it runs, and other jobs that print must wait; \
                     with --ungroup, jobs print directly"
            ));
        }
    }

    /// Tells the source which jobs are alive, if it is time. A job that is stopped makes no progress, so it does not count.
    fn tell_alive(&mut self) {
        let Some(beat) = self.needs.beat else { return };
        let now = Instant::now();
        if self.next_beat.is_some_and(|at| now < at) {
            return;
        }
        self.next_beat = Some(now + beat);
        let is_stopped = |pid: u32| proc::stat(pid).is_some_and(proc::Stat::is_stopped);
        let running = self.running.values().filter(|job| !is_stopped(job.pid));
        let pending = self.pending.iter().map(|pending| pending.job.number);
        let unprinted = self.unprinted.keys().copied();
        let alive: Vec<u64> =
            running.map(|job| job.number).chain(pending).chain(unprinted).collect();
        self.source.alive(&alive);
    }

    // ---- telling ---------------------------------------------------------------------------------------

    fn report_counts(&mut self) {
        let (ready, all_known) = self.source.left();
        self.counts.ended = self.ended;
        self.counts.failed = self.decision.failed();
        self.counts.waiting = ready + self.pending.len() as u64;
        self.counts.all_known = all_known;
        self.audience.counts(&self.counts);
    }

    fn outcome(mut self) -> Outcome {
        // The run has ended without waiting for the reader of the outputs.
        self.give_back_unprinted();
        if let Some(Broken::Failed(text)) = self.printer.broken() {
            self.errors.push(text.clone());
        }
        let unsettled = self.source.unsettled();
        if unsettled > 0 {
            self.errors.push(format!(
                "the queue does not know the ends of all jobs, and gives those to a worker again ({unsettled})"
            ));
        }
        let (ready, all_known) = self.source.left();
        Outcome {
            failed: self.decision.failed(),
            ended: self.ended,
            stopped: self.stopped,
            not_started: ready + self.pending.len() as u64,
            all_known,
            drained: self.drains,
            signal: self.stop.and_then(|stop| stop.signal),
            errors: self.errors,
            refused: self.placement.refused().map(str::to_owned),
            elapsed: self.begin.elapsed(),
        }
    }
}

fn input(tty: bool) -> Result<File, Error> {
    let path = if tty { "/dev/tty" } else { "/dev/null" };
    File::open(path).map_err(|error| {
        let text =
            format!("{path}, the standard input of jobs, cannot be opened: {}", named(&error));
        Error::System(io::Error::new(error.kind(), text))
    })
}

fn now_in_nanos() -> u128 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos())
}
