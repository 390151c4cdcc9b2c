//! `nearq bench highpri`: how long a high-priority item waits for a CPU that thousands of ordinary threads want, after the
//! document of 2012 that gave the kernel's high-priority workqueues workers of their own.
//!
//! One CPU has 3000 threads at nice 0, each of which sleeps 1 ms in a loop; an item that is queued every 4 ms, a jiffy at 250 Hz,
//! notes how long it took until it started. The issuer is on another CPU, or its own waiting would set the pace. The document's "before"
//! is a queue whose items go to the head of the common list: as nothing else is on the list, that is what our queue of ordinary
//! priority does.
//!
//! Beside our rows there are a plain thread, tokio and rayon on the same CPU, each ordinary and favoured, and a real-time thread
//! that only sleeps: what is late there is late by the machine.
//!
//! On a simulated machine the same crowd, issuer and queues run in virtual time; each run is a seed and each row has a fresh
//! machine.

mod conclusions;
mod contestant;
mod crowd;
mod issuer;
mod limits;
mod others;
mod ours;
mod privilege;
mod render;
mod samples;
mod stage;
mod steal;

pub use conclusions::Ratio;
pub(crate) use limits::room;
pub use samples::{Figures, Sample, Samples, TOP};

use crate::options::{Common, too_small, with_reason, within};
use crate::simulated::simulate;
use crate::{Error, Machine, Progress};
use contestant::{Contestant, Privilege};
use crowd::Crowd;
use issuer::Plan;
use nearq_platform::Linux;
use nearq_report::{Collector, Environment, Report, Watch, metric};
use nearq_sim::Sim;
use nearq_topology::Scope;
use serde_json::json;
use std::rc::Rc;
use std::time::Duration;

/// What `highpri` can be told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HighpriOptions {
    /// What every experiment can be told; `duration` is that of one row.
    pub common: Common,
    /// Threads that sleep in a loop; `None` is the document's 3000, and 1000 where it shall be quick on this machine.
    pub threads: Option<usize>,
    /// How often the item is queued; `None` is a jiffy at 250 Hz.
    pub interval: Option<Duration>,
}

/// The document's threads.
const THREADS: usize = 3000;
/// The same when it shall be quick: to start and to end a thread takes a turn of all others.
const QUICK_THREADS: usize = 1000;
/// Most threads that can be asked for.
const MOST_THREADS: usize = 1_000_000;
/// A jiffy at 250 Hz.
const JIFFY: Duration = Duration::from_millis(4);
/// Shortest and longest interval.
const INTERVALS: [Duration; 2] = [Duration::from_micros(100), Duration::from_secs(10)];
/// How long a row lasts; the document's lasted 300 seconds.
const DURATION: Duration = Duration::from_secs(10);
/// The same when all rows shall end within 30 seconds.
const QUICK_DURATION: Duration = Duration::from_secs(1);
/// How long a row lasts in virtual time, which takes about as long in real time.
const SIMULATED_DURATION: Duration = Duration::from_secs(1);
/// The same when it shall be quick.
const SIMULATED_QUICK: Duration = Duration::from_millis(400);
/// So many items must be queued in a row for a percentile to mean something.
const LEAST_SAMPLES: u32 = 100;
/// Virtual time after which a simulated row has gone wrong, beside what it takes.
const SIMULATED_LIMIT: Duration = Duration::from_mins(3);

/// What is to be done.
struct Task {
    plan: Plan,
    threads: usize,
    runs: usize,
}

impl HighpriOptions {
    fn task(&self, machine: &Machine) -> Result<Task, Error> {
        self.common.check()?;
        let here = machine.model().is_none();
        let usual = if self.common.quick && here { QUICK_THREADS } else { THREADS };
        let threads = self.threads.unwrap_or(usual);
        within("--threads", threads, 1, MOST_THREADS)?;
        let interval = self.interval.unwrap_or(JIFFY);
        if !(INTERVALS[0]..=INTERVALS[1]).contains(&interval) {
            let [shortest, longest] = INTERVALS.map(|limit| limit.as_secs_f64() * 1000.0);
            let given = interval.as_secs_f64() * 1000.0;
            return Err(Error::input(format!(
                "--interval {given}: give {shortest} to {longest} milliseconds"
            )));
        }
        let (runs, duration) = match (here, self.common.quick) {
            (true, false) => (3, DURATION),
            (true, true) => (1, QUICK_DURATION),
            (false, false) => (3, SIMULATED_DURATION),
            (false, true) => (1, SIMULATED_QUICK),
        };
        let duration = self.common.duration.unwrap_or(duration);
        let (cpu, issuer_cpu) = places(machine);
        let plan = Plan { cpu, issuer_cpu, interval, duration };
        Ok(Task { plan, threads, runs: self.common.runs.unwrap_or(runs) })
    }
}

impl HighpriOptions {
    /// Why a task is not judged, if it is too small.
    fn too_small(&self, machine: &Machine, task: &Task) -> Result<Option<String>, Error> {
        let common = self.common.of_a_quick_run();
        let least = Self { common, threads: None, ..self.clone() }.task(machine)?;
        let shortest = least.plan.duration.max(task.plan.interval * LEAST_SAMPLES);
        let duration = [task.plan.duration, shortest].map(|time| time.as_secs_f64());
        let threads = [task.threads, least.threads].map(|threads| threads as f64);
        let sizes = [("--duration", duration), ("--threads", threads)];
        Ok(too_small(machine, [task.runs, least.runs], &sizes))
    }
}

/// The CPU of the crowd and that of the issuer: another core where there is one.
fn places(machine: &Machine) -> (usize, usize) {
    let usable = machine.pods(Scope::System).remove(0);
    let crowd = usable.last().unwrap_or(0);
    let cores = machine.pods(Scope::Smt);
    let core = cores.iter().find(|core| core.contains(crowd));
    let elsewhere = usable.iter().find(|&cpu| core.is_none_or(|core| !core.contains(cpu)));
    let issuer = elsewhere.or_else(|| usable.iter().find(|&cpu| cpu != crowd));
    (crowd, issuer.unwrap_or(crowd))
}

/// What was measured and found.
struct Measured {
    collector: Collector,
    /// The samples of all runs, row by row.
    all: Vec<(Rc<dyn Contestant>, Samples)>,
    /// Rows that were left out, and why; and what else one must know.
    remarks: Vec<String>,
    /// How often a thread of the crowd woke up, per second, all together.
    wake_ups: Option<f64>,
}

/// Runs the experiment.
pub fn highpri(options: &HighpriOptions, progress: &Progress) -> Result<Report, Error> {
    let machine = options.common.on()?;
    let result = run(options, &machine, progress);
    progress.end();
    result
}

fn run(options: &HighpriOptions, machine: &Machine, progress: &Progress) -> Result<Report, Error> {
    let task = options.task(machine)?;
    let watch = Watch::start(machine.parallelism());
    let measured = match machine.model() {
        Some(_) => simulated(machine, &task, progress)?,
        None => here(&task, progress)?,
    };
    let environment = match machine.model() {
        Some(model) => Environment::simulated(model.about(), machine.parallelism()),
        None => watch.finish(),
    };
    let rows = measured.collector.rows();
    let scenario = scenario(task.threads);
    let too_small = options.too_small(machine, &task)?;
    let ratios = conclusions::ratios(&rows, &scenario, too_small.is_none());
    let facts = render::Facts {
        machine,
        task: &task,
        scenario: &scenario,
        measured: &measured,
        ratios: &ratios,
        too_small: too_small.as_deref(),
        show_goals: options.common.goals,
    };
    let text = facts.text(&rows, &environment);
    let svg = facts.picture(&environment);
    let parameters = json!({
        "quick": options.common.quick,
        "runs": task.runs,
        "threads": task.threads,
        "sleep_ms": crowd::SLEEP.as_secs_f64() * 1000.0,
        "interval_ms": task.plan.interval.as_secs_f64() * 1000.0,
        "duration_s": task.plan.duration.as_secs_f64(),
        "crowd_cpu": task.plan.cpu,
        "issuer_cpu": task.plan.issuer_cpu,
        "slice_us": ours::SLICE.as_secs_f64() * 1e6,
        "crowd_work_us": machine.model().map(|_| stage::CROWD_WORK.as_secs_f64() * 1e6),
        "crowd_wake_ups_per_second": measured.wake_ups,
        "remarks": measured.remarks,
        "ratios": ratios,
    });
    let parameters = with_reason(parameters, too_small.as_deref());
    let machine = machine.name().to_owned();
    Ok(Report { experiment: "highpri", machine, environment, parameters, rows, text, svg })
}

/// The scenario's name in the results.
fn scenario(threads: usize) -> String {
    format!("beside {threads} {}", if threads == 1 { "thread" } else { "threads" })
}

/// On this machine: the crowd is there once, for all rows.
fn here(task: &Task, progress: &Progress) -> Result<Measured, Error> {
    let mut contestants = ours::contestants::<Linux>();
    contestants.extend(ours::refused());
    contestants.extend(others::contestants());
    let mut remarks = Vec::new();
    for (need, attempt, remedy) in [
        (
            Privilege::Favoured,
            (|| privilege::favour(privilege::MOST_FAVOURED)) as fn() -> std::io::Result<()>,
            "CAP_SYS_NICE, or RLIMIT_NICE of 40 (ulimit -e 40)",
        ),
        (
            Privilege::RealTime,
            privilege::real_time,
            "CAP_SYS_NICE, or RLIMIT_RTPRIO of 1 (ulimit -r 1)",
        ),
    ] {
        let Err(error) = privilege::may(attempt) else { continue };
        let (out, stay): (Vec<_>, Vec<_>) =
            contestants.into_iter().partition(|contestant| contestant.needs() == need);
        contestants = stay;
        let rows: Vec<_> = out.iter().map(|contestant| contestant.row()).collect();
        remarks.push(format!("left out: {}: {error}; needs {remedy}", rows.join(", ")));
    }
    if in_autogroups() {
        remarks.push(
            "nice values count within an autogroup here (kernel.sched_autogroup_enabled is 1): programs of others are not \
             held back by them"
                .into(),
        );
    }
    if let Some((room, limit)) = limits::room()
        && task.threads > room
    {
        return Err(Error::input(format!(
            "--threads {}: {room} could be started, no more: {limit}; give {room} at most, or raise the limit",
            task.threads
        )));
    }
    progress.step(format!("starting {} threads", task.threads));
    let crowd = Crowd::<Linux>::start(task.threads, task.plan.cpu)?;
    let (begin, sleeps) = (std::time::Instant::now(), crowd.sleeps());
    let mut measured =
        measure(contestants, task, progress, |contestant, _| contestant.measure(&task.plan))?;
    let wake_ups = (crowd.sleeps() - sleeps) as f64 / begin.elapsed().as_secs_f64();
    drop(crowd);
    measured.remarks = remarks;
    measured.wake_ups = Some(wake_ups);
    Ok(measured)
}

/// Whether the kernel shares CPUs between autogroups first, and then within them.
fn in_autogroups() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    setting.is_ok_and(|text| text.trim() == "1")
}

/// On a simulated machine: a fresh one, with a crowd of its own, for each row and run.
fn simulated(machine: &Machine, task: &Task, progress: &Progress) -> Result<Measured, Error> {
    let limit = SIMULATED_LIMIT + task.plan.duration;
    measure(ours::contestants::<Sim>(), task, progress, |contestant, run| {
        let (contestant, plan, threads) = (Rc::clone(contestant), task.plan.clone(), task.threads);
        let ended = simulate(machine, run as u64, limit, move || {
            let crowd = Crowd::<Sim>::start(threads, plan.cpu)?;
            let samples = contestant.measure(&plan);
            drop(crowd);
            samples
        })?;
        ended.result
    })
}

/// Measures every row in every run, forwards and backwards in turn.
fn measure(
    contestants: Vec<Rc<dyn Contestant>>,
    task: &Task,
    progress: &Progress,
    one: impl Fn(&Rc<dyn Contestant>, usize) -> Result<Samples, Error>,
) -> Result<Measured, Error> {
    let scenario = scenario(task.threads);
    let mut collector = Collector::default();
    let mut all: Vec<_> =
        contestants.into_iter().map(|contestant| (contestant, Samples::default())).collect();
    progress.begin(task.runs * all.len());
    for run in 0..task.runs {
        for step in 0..all.len() {
            let at = if run.is_multiple_of(2) { step } else { all.len() - 1 - step };
            let (contestant, samples) = &mut all[at];
            progress.step(format!("run {} of {}: {}", run + 1, task.runs, contestant.row()));
            let new = one(contestant, run)?;
            let Some(figures) = new.figures() else {
                return Err(Error::run(format!(
                    "{}: nothing was queued in {:?}: give a longer --duration",
                    contestant.row(),
                    task.plan.duration
                )));
            };
            collect(&mut collector, &scenario, contestant.row(), &figures);
            samples.append(new);
            progress.done();
        }
    }
    conclusions::publish(&mut collector, &scenario, task.threads == THREADS);
    Ok(Measured { collector, all, remarks: Vec::new(), wake_ups: None })
}

fn collect(collector: &mut Collector, scenario: &str, row: &str, figures: &Figures) {
    let mut add = |metric, value| collector.add(scenario, row, metric, value);
    add(metric::SAMPLES, figures.samples as f64);
    add(metric::SAMPLES_STOLEN, figures.stolen as f64);
    add(metric::LATENCY_MAX, figures.max);
    add(metric::LATENCY_TOP20, figures.top);
    add(metric::LATENCY_TOP20_DEVIATION, figures.top_deviation);
    add(metric::LATENCY_P50, figures.p50);
    add(metric::LATENCY_P99, figures.p99);
    add(metric::LATENCY_P999, figures.p999);
    add(metric::LATENCY_MAX_UNSTOLEN, figures.max_unstolen);
}

#[cfg(test)]
mod tests;
