//! `nearq bench highpri`: how long a high-priority item waits for a CPU that thousands of ordinary threads want, after the
//! document of 2012 that gave the kernel's high-priority workqueues workers of their own.
//!
//! One CPU has 3000 threads at nice 0, each of which sleeps 1 ms in a loop; an item that is queued every 4 ms, a jiffy at 250 Hz, notes how
//! long it took until it started. The issuer is on another CPU, because otherwise its own waiting would set the pace. The document's
//! "before" is a queue whose items go to the head of the common list, from which one ordinary worker takes them (`one_list`). As nothing
//! else is on the list, our queue of ordinary priority waits as long.
//!
//! Besides our rows there are a plain thread, tokio and rayon on the same CPU, each ordinary and favoured, and a real-time thread that only
//! sleeps: its delays are due to the machine.
//!
//! On a simulated machine the same crowd, issuer and queues run in virtual time; each run is a seed and each row has a fresh
//! machine.

mod conclusions;
mod contestant;
mod crowd;
mod issuer;
mod one_list;
pub(crate) mod privilege;
mod render;

pub use conclusions::Ratio;
pub(crate) use crowd::CROWD_WORK;
pub(crate) use crowd::check_capacity;
pub use issuer::{Figures, Sample, Samples, TOP};
pub use privilege::StealClock;

use crate::harness::options::{milliseconds, number, too_small, within};
use crate::harness::{self, Common, Experiment, Run, simulate};
use crate::{Error, Machine};
use clap::Args;
use contestant::{Contestant, Privilege};
use crowd::Crowd;
use issuer::Plan;
use nearq_platform::Linux;
use nearq_report::{Collector, Report, metric};
use nearq_sim::Sim;
use nearq_topology::AffinityScope;
use serde_json::{Value, json};
use std::time::Duration;

/// The options of `highpri`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct HighpriOptions {
    #[command(flatten)]
    #[expect(missing_docs, reason = "it would stand in the command's help")]
    pub common: Common,

    /// How many threads sleep 1 ms in a loop, 1 to 1000000; if not given: 3000 as in the document, or 1000 with --quick
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub threads: Option<usize>,

    /// The interval at which the item is queued, in milliseconds, 0.1 to 10000; 4 if not given, which is a jiffy at 250 Hz
    #[arg(long, value_name = "MS", value_parser = milliseconds, allow_negative_numbers = true)]
    pub interval: Option<Duration>,
}

/// The document's threads.
pub(crate) const THREADS: usize = 3000;
/// The same for a quick run: starting a thread and ending it each take a turn of all the others.
const QUICK_THREADS: usize = 1000;
/// Most threads that can be asked for.
const MOST_THREADS: usize = 1_000_000;
/// A jiffy at 250 Hz.
const JIFFY: Duration = Duration::from_millis(4);
/// Shortest and longest interval.
const INTERVALS: [Duration; 2] = [Duration::from_micros(100), Duration::from_secs(10)];
/// How long a row lasts; the document's lasted 300 seconds.
const DURATION: Duration = Duration::from_secs(10);
/// The same if all rows must end within 30 seconds.
const QUICK_DURATION: Duration = Duration::from_secs(1);
/// How long a row lasts in virtual time, which takes about as long in real time.
const SIMULATED_DURATION: Duration = Duration::from_secs(1);
/// The same for a quick run.
const SIMULATED_QUICK: Duration = Duration::from_millis(400);
/// This many items must be queued in a row for a percentile to be meaningful.
const LEAST_SAMPLES: u32 = 100;
/// Virtual time, beyond its own length, after which a simulated row counts as failed.
const SIMULATED_LIMIT: Duration = Duration::from_mins(3);

/// What must be done.
#[derive(Debug)]
pub struct Task {
    plan: Plan,
    threads: usize,
    runs: usize,
}

/// The CPU of the crowd and that of the issuer: on another core if there is one.
fn places(machine: &Machine) -> (usize, usize) {
    let usable = machine.pods(AffinityScope::System).remove(0);
    let crowd = usable.last().unwrap_or(0);
    let cores = machine.pods(AffinityScope::Smt);
    let core = cores.iter().find(|core| core.contains(crowd));
    let elsewhere = usable.iter().find(|&cpu| core.is_none_or(|core| !core.contains(cpu)));
    let issuer = elsewhere.or_else(|| usable.iter().find(|&cpu| cpu != crowd));
    (crowd, issuer.unwrap_or(crowd))
}

/// All contestants, and the measurements of each in all runs together.
type AllSamples = Vec<(Contestant, Samples)>;

/// What is found besides the figures.
pub struct Found {
    all: AllSamples,
    /// Which contestants are left out, and what else is worth knowing.
    remarks: Vec<String>,
    /// Wake-ups of the crowd per second, if they are counted.
    wake_ups: Option<f64>,
}

type Facts<'f> = harness::Facts<'f, HighpriOptions>;

impl Experiment for HighpriOptions {
    const NAME: &'static str = "highpri";
    type Plan = Task;
    type Found = Found;
    type Verdict = Vec<Ratio>;

    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self, machine: &Machine) -> Result<Task, Error> {
        let here = machine.model().is_none();
        let usual = if self.common.quick && here { QUICK_THREADS } else { THREADS };
        let threads = within("--threads", self.threads.unwrap_or(usual), 1, MOST_THREADS)?;
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

    /// The crowd, the duration and the runs: the mean of the longest twenty waits depends on how many items there were.
    fn sized_as_here(&self) -> Self {
        let (threads, runs, duration) = if self.common.quick {
            (QUICK_THREADS, 1, QUICK_DURATION)
        } else {
            (THREADS, 3, DURATION)
        };
        let mut same = self.clone();
        same.threads.get_or_insert(threads);
        same.common.runs.get_or_insert(runs);
        same.common.duration.get_or_insert(duration);
        same
    }

    fn measure(&self, run: &mut Run<'_>, task: &mut Task) -> Result<Found, Error> {
        if run.machine.model().is_some() { simulated(run, task) } else { here(run, task) }
    }

    fn too_small(&self, machine: &Machine, task: &Task) -> Result<Option<String>, Error> {
        let common = self.common.of_a_quick_run();
        let least = Self { common, threads: None, ..self.clone() }.plan(machine)?;
        let shortest = least.plan.duration.max(task.plan.interval * LEAST_SAMPLES);
        let duration = [task.plan.duration, shortest].map(|time| time.as_secs_f64());
        let threads = [task.threads, least.threads].map(|threads| threads as f64);
        let sizes = [("--duration", duration), ("--threads", threads)];
        Ok(too_small(machine, [task.runs, least.runs], &sizes))
    }

    fn judge(facts: &Facts<'_>) -> Vec<Ratio> {
        let scenario = scenario(facts.plan.threads);
        conclusions::ratios(&facts.rows, &scenario, facts.too_small.is_none())
    }

    fn parameters(facts: &Facts<'_>) -> Value {
        let task = &facts.plan;
        json!({
            "runs": task.runs,
            "threads": task.threads,
            "sleep_ms": crowd::SLEEP.as_secs_f64() * 1000.0,
            "interval_ms": task.plan.interval.as_secs_f64() * 1000.0,
            "duration_s": task.plan.duration.as_secs_f64(),
            "crowd_cpu": task.plan.cpu,
            "issuer_cpu": task.plan.issuer_cpu,
            "slice_us": contestant::SLICE.as_secs_f64() * 1e6,
            "crowd_work_us": facts.model().map(|_| CROWD_WORK.as_secs_f64() * 1e6),
            "crowd_wake_ups_per_second": facts.found.wake_ups,
            "remarks": facts.found.remarks,
            "ratios": facts.verdict,
            "published": conclusions::published(&facts.rows, &scenario(task.threads)),
        })
    }

    fn text(facts: &Facts<'_>) -> String {
        render::text(facts)
    }

    fn picture(facts: &Facts<'_>, _: &Report) -> String {
        render::picture(facts)
    }
}

/// The scenario's name in the results.
fn scenario(threads: usize) -> String {
    format!("beside {threads} {}", if threads == 1 { "thread" } else { "threads" })
}

/// On this machine: there is one crowd, for all rows.
fn here(run: &mut Run<'_>, task: &Task) -> Result<Found, Error> {
    let mut contestants = contestant::everywhere::<Linux>();
    contestants.push(contestant::refused());
    contestants.extend(contestant::others());
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
            contestants.into_iter().partition(|contestant| contestant.needs == need);
        contestants = stay;
        let rows: Vec<_> = out.iter().map(|contestant| contestant.row).collect();
        remarks.push(format!("left out: {}: {error}; needs {remedy}", rows.join(", ")));
    }
    if in_autogroups() {
        remarks.push(
            "nice values count only within an autogroup here (kernel.sched_autogroup_enabled is 1): they do not hold back other programs"
                .into(),
        );
    }
    if let Some((capacity, limit)) = crowd::thread_capacity()
        && task.threads > capacity
    {
        return Err(Error::input(format!(
            "--threads {}: only {capacity} could be started: {limit}; give at most {capacity}, or raise the limit",
            task.threads
        )));
    }
    run.says(format!("starting {} threads", task.threads));
    let crowd = Crowd::<Linux>::start(task.threads, task.plan.cpu)?;
    let (begin, sleeps) = (std::time::Instant::now(), crowd.sleeps());
    let all = measure(run, contestants, task, |contestant, _| (contestant.measure)(&task.plan))?;
    let wake_ups = Some((crowd.sleeps() - sleeps) as f64 / begin.elapsed().as_secs_f64());
    Ok(Found { all, remarks, wake_ups })
}

/// Whether the kernel distributes CPU time first between autogroups, and then within them.
fn in_autogroups() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    setting.is_ok_and(|text| text.trim() == "1")
}

/// On a simulated machine: a fresh one, with a crowd of its own, for each row and run.
fn simulated(run: &mut Run<'_>, task: &Task) -> Result<Found, Error> {
    let machine = run.machine;
    let all = measure(run, contestant::everywhere::<Sim>(), task, |contestant, number| {
        Ok(simulated_run(machine, contestant, task, number as u64)?.0)
    })?;
    Ok(Found { all, remarks: Vec::new(), wake_ups: None })
}

/// One run of a row on a simulated machine, and the hash of what happened.
fn simulated_run(
    machine: &Machine,
    contestant: &Contestant,
    task: &Task,
    seed: u64,
) -> Result<(Samples, u64), Error> {
    // The crowd's load is the kernel's work for timers, which the machine has only with noise.
    let machine = &machine.clone().with_noise();
    let limit = SIMULATED_LIMIT + task.plan.duration;
    let (contestant, plan, threads) = (contestant.clone(), task.plan.clone(), task.threads);
    let ended = simulate(machine, seed, limit, move || {
        let crowd = Crowd::<Sim>::start(threads, plan.cpu)?;
        let samples = (contestant.measure)(&plan);
        drop(crowd);
        samples
    })?;
    Ok((ended.result?, ended.trace_hash))
}

/// The ratios that have goals, in one run with a seed, for code that varies other parameters; and the hashes of what happened.
pub(crate) fn goals_of_one_run(
    machine: &Machine,
    threads: usize,
    duration: Duration,
    seed: u64,
) -> Result<(Vec<Ratio>, Vec<u64>), Error> {
    let common =
        Common { machine: machine.name().into(), duration: Some(duration), ..Common::default() };
    let options = HighpriOptions { common, threads: Some(threads), ..HighpriOptions::default() };
    let task = options.plan(machine)?;
    let scenario = scenario(threads);
    let (mut collector, mut hashes) = (Collector::default(), Vec::new());
    let rows = contestant::everywhere::<Sim>();
    for contestant in rows.iter().filter(|one| conclusions::has_goal(one.row)) {
        let (samples, hash) = simulated_run(machine, contestant, &task, seed)?;
        collect(&mut collector, &scenario, contestant.row, &figures(contestant, &samples, &task)?);
        hashes.push(hash);
    }
    let mut ratios = conclusions::ratios(&collector.rows(), &scenario, true);
    ratios.retain(|ratio| ratio.goal.is_some());
    Ok((ratios, hashes))
}

/// The figures of a run of a row.
fn figures(contestant: &Contestant, samples: &Samples, task: &Task) -> Result<Figures, Error> {
    samples.figures().ok_or_else(|| {
        Error::run(format!(
            "{}: nothing was queued within {:?}: give a longer --duration",
            contestant.row, task.plan.duration
        ))
    })
}

/// Measures every contestant in every run.
fn measure(
    run: &mut Run<'_>,
    contestants: Vec<Contestant>,
    task: &Task,
    one: impl Fn(&Contestant, usize) -> Result<Samples, Error>,
) -> Result<AllSamples, Error> {
    let (scenario, runs) = (scenario(task.threads), task.runs);
    let mut all = vec![Samples::default(); contestants.len()];
    run.begin(runs * contestants.len());
    for number in 0..runs {
        let what = |of: &Contestant| format!("run {} of {runs}: {}", number + 1, of.row);
        let new = run.round(number, &contestants, what, |contestant| {
            let samples = one(contestant, number)?;
            let figures = figures(contestant, &samples, task)?;
            Ok((samples, figures))
        })?;
        for ((contestant, all), (samples, figures)) in contestants.iter().zip(&mut all).zip(new) {
            collect(&mut run.figures, &scenario, contestant.row, &figures);
            all.append(samples);
        }
    }
    conclusions::publish(&mut run.figures, &scenario, task.threads == THREADS);
    Ok(contestants.into_iter().zip(all).collect())
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
