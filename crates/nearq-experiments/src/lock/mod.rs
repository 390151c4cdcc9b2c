//! `nearq bench lock`: one lock that many threads want. How often and how evenly is it taken, and how long do threads wait for it?
//!
//! Threads that are pinned to CPUs take a lock, do a little under it, give it back and do a little without it, for a fixed time:
//! what the kernel's locktorture does, and, as other shapes, the lock patterns of `perf bench epoll` and of three of fxmark's
//! loads over structures in memory that really are changed under the locks and checked at the end.
//!
//! All locks take turns within each run, forwards and backwards, so that other activity affects them equally; ratios are taken
//! within a run, and then their median over the runs. On a simulated machine our locks and the kernel's run in virtual time, a fresh
//! machine and a seed for each run; the other locks are Linux programs.

mod contestants;
mod goals;
pub(crate) mod load;
mod published;
pub(crate) mod render;
mod shapes;
pub(crate) mod surface;

pub use contestants::{
    AUTO, CNA, Contestant, Exclusive, HQ_CACHES, HQ_DEPTH, HQ_SOCKETS, KERNEL_OSQ, KERNEL_OSQ_2,
    KERNEL_OSQ_DYNAMIC, MCS, NUMA, OSQ, PARKING_LOT, PLAIN, PTHREAD, PTHREAD_ADAPTIVE, QSPINLOCK,
    Roster, STD, here, simulated,
};
pub use goals::Goal;
pub use load::{LONG, Sample, Waits, fairness};
pub use load::{Load, Plan, scenario};

use crate::blocking::{nanoseconds_per_round, rounds_for};
use crate::harness::options::{all_within, number, too_small, within};
use crate::harness::{self, Common, Experiment, Host, Run, simulate};
use crate::highpri;
use crate::{Error, Machine, Progress};
use clap::Args;
pub(crate) use contestants::QSpinLock;
use contestants::{DEPTH, Site};
use goals::judge;
use load::{CpuPlacement, described};
use nearq_lock::Settings;
use nearq_platform::{Atomic as _, Linux, Ordering};
use nearq_report::{Collector, Report};
use nearq_sim::Sim;
use nearq_topology::CpuSet;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The options of `lock`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct LockOptions {
    #[command(flatten)]
    #[expect(missing_docs, reason = "it would stand in the command's help")]
    pub common: Common,

    /// How many threads want the lock, 1 to 4096: numbers, separated by commas; 1,2,4,8,16,32,48,64 if not given
    #[arg(long, value_name = "N,...", value_parser = number, value_delimiter = ',', allow_negative_numbers = true)]
    pub writers: Option<Vec<usize>>,

    /// How long they hold it: `short`, `long` or `both`; if not given: both, or short with --quick. Only for torture
    #[arg(long, value_name = "SECTION")]
    pub section: Option<String>,

    /// Where they are pinned: `compact` fills one cache after the other, `spread` alternates between caches; compact if not given
    #[arg(long, value_name = "PLACE")]
    pub place: Option<String>,

    /// What they do: `torture`, `epoll`, `shared-file` or `shared-dir`; torture if not given
    #[arg(long, value_name = "SHAPE")]
    pub shape: Option<String>,

    /// How long each computes between two acquisitions, in nanoseconds, 0 to 1000000; 100 if not given
    #[arg(long = "outside", value_name = "NS", value_parser = number, allow_negative_numbers = true)]
    pub outside_ns: Option<usize>,

    /// How many threads must wait until the locks that go by it change to queues by group, 5 to 32; 8 if not given
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub depth: Option<usize>,

    /// What `auto` gains over one queue, by the time between two acquisitions and the number of writers: on a simulated machine
    #[arg(long, conflicts_with = "beside_simulated")]
    pub surface: bool,
}

/// Runs the experiment.
pub fn lock(options: &LockOptions, progress: &Progress) -> Result<Report, Error> {
    if options.surface {
        return harness::run(&surface::Surface(options), progress);
    }
    harness::run(options, progress)
}

/// The document's numbers of writers.
const WRITERS: [usize; 8] = [1, 2, 4, 8, 16, 32, 48, 64];
/// Most threads.
const MOST_WRITERS: usize = 4096;
/// Nanoseconds between two turns: the default and the maximum.
const OUTSIDE_NS: [usize; 2] = [100, 1_000_000];
/// The document's bounds for the length of the queue at which its lock changes.
const DEPTHS: [usize; 2] = [5, 32];
/// Runs: as many as the document, and for a quick one.
const RUNS: [usize; 2] = [9, 3];
/// How long a run lasts.
const DURATION: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(50)];
/// How long a run lasts in virtual time: many times the mutex's patience, so it does not matter that waking up all writers takes
/// the first part of a millisecond.
const SIMULATED_DURATION: [Duration; 2] = [Duration::from_millis(30), Duration::from_millis(10)];
/// Virtual time, beyond a run's duration, after which the run counts as failed.
const SIMULATED_LIMIT: Duration = Duration::from_secs(10);
/// How long after the end of a run the last thread may acquire the lock; a lock that takes longer is left out from then on.
const OVERTIME: Duration = Duration::from_secs(2);

/// On two cache lines of its own, because some CPUs fetch the neighbour too.
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);

/// Counts in two steps, so that one of two simultaneous counts is lost, and the processor does not have to prevent that.
#[inline]
pub(crate) fn bump<P: Host>(count: &P::AtomicU64) {
    // Relaxed, both: under the lock that is measured.
    count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// What must be done, and how often.
#[derive(Clone, Debug)]
pub struct Job {
    loads: Vec<Load>,
    writers: Vec<usize>,
    place: CpuPlacement,
    cpus: Vec<usize>,
    /// The places of those CPUs.
    places: Vec<Site>,
    /// The threshold of the locks that measure how long their queue is.
    depth: usize,
    outside_ns: usize,
    /// The same in rounds of computing.
    outside: u64,
    duration: Duration,
    runs: usize,
}

impl Job {
    fn plan(&self, load: Load, writers: usize, seed: u64) -> Plan {
        let (cpus, outside) = (self.cpus.clone(), self.outside);
        let roster = Roster::new(writers, &self.places, self.depth);
        Plan { load, writers, cpus, roster, outside, duration: self.duration, seed }
    }

    fn scenarios(&self) -> impl Iterator<Item = (Load, usize)> {
        let of = |&load: &Load| self.writers.iter().map(move |&writers| (load, writers));
        self.loads.iter().flat_map(of)
    }
}

/// What is found besides the figures.
#[derive(Debug)]
pub struct Found {
    rows: Vec<&'static str>,
    /// On the real machine: nanoseconds of a reading of the clock.
    reading_ns: Option<f64>,
    /// Which locks stopped taking part, and from which number of threads on.
    left_out: Vec<String>,
}

type Facts<'f> = harness::Facts<'f, LockOptions>;

impl Experiment for LockOptions {
    const NAME: &'static str = "lock";
    type Plan = Job;
    type Found = Found;
    type Verdict = Vec<Goal>;

    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self, machine: &Machine) -> Result<Job, Error> {
        let quick = usize::from(self.common.quick);
        let shape = self.shape.as_deref();
        let loads = load::loads(shape, self.section.as_deref(), self.common.quick)?;
        let writers = self.writers.clone().unwrap_or_else(|| WRITERS.to_vec());
        all_within("--writers", &writers, MOST_WRITERS)?;
        let place = CpuPlacement::named(self.place.as_deref())?;
        let outside_ns = self.outside_ns.unwrap_or(OUTSIDE_NS[0]);
        within("--outside", outside_ns, 0, OUTSIDE_NS[1])?;
        let duration = if machine.model().is_none() { DURATION } else { SIMULATED_DURATION };
        let depth = self.depth.unwrap_or(DEPTH);
        within("--depth", depth, DEPTHS[0], DEPTHS[1])?;
        let cpus = place.order(machine);
        Ok(Job {
            loads,
            writers,
            place,
            places: cpus.iter().map(|&cpu| Site::of(machine.topology(), cpu)).collect(),
            cpus,
            depth,
            outside_ns,
            // A simulated round is a nanosecond; on Linux it is measured.
            outside: outside_ns as u64,
            duration: self.common.duration.unwrap_or(duration[quick]),
            runs: self.common.runs.unwrap_or(RUNS[quick]),
        })
    }

    fn measure(&self, run: &mut Run<'_>, job: &mut Job) -> Result<Found, Error> {
        let machine = run.machine;
        if machine.model().is_some() {
            return measure(run, job, &simulated(), None, |contestant, plan| {
                Ok(simulated_run(machine, *contestant, plan.clone())?.0)
            });
        }
        highpri::check_capacity("--writers", job.writers.iter().copied().max().unwrap_or(0))?;
        if job.outside > 0 {
            let calibrated = nanoseconds_per_round(&CpuSet::single(job.cpus[0]))?;
            // The least: other programs on the machine make a round longer, never shorter.
            job.outside = rounds_for(Duration::from_nanos(job.outside_ns as u64), calibrated.min);
        }
        let reading = Some(load::cost_of_reading::<Linux>());
        let before = Settings::of_process();
        let found = measure(run, job, &here(), reading, |contestant, plan| {
            contestant.measure::<Linux>(plan)
        });
        before.set_for_process();
        found
    }

    fn too_small(&self, machine: &Machine, job: &Job) -> Result<Option<String>, Error> {
        let least = Self { common: self.common.of_a_quick_run(), ..self.clone() }.plan(machine)?;
        let duration = [job.duration, least.duration].map(|time| time.as_secs_f64());
        Ok(too_small(machine, [job.runs, least.runs], &[("--duration", duration)]))
    }

    fn judge(facts: &Facts<'_>) -> Vec<Goal> {
        if facts.too_small.is_some() {
            return Vec::new();
        }
        let job = &facts.plan;
        let simulated = facts.model().is_some().then(|| facts.machine.name());
        judge(&facts.rows, job.scenarios(), simulated, job.place)
    }

    fn parameters(facts: &Facts<'_>) -> Value {
        let job = &facts.plan;
        json!({
            "runs": job.runs,
            "duration_s": job.duration.as_secs_f64(),
            "shape": facts.experiment.shape.as_deref().unwrap_or("torture"),
            "loads": job.loads.iter().map(|load| load.name()).collect::<Vec<_>>(),
            "writers": job.writers,
            "place": job.place.name(),
            "cpus": job.cpus,
            "outside_ns": job.outside_ns,
            "depth": job.depth,
            "clock_reading_ns": facts.found.reading_ns,
            "left_out": facts.found.left_out,
            "goals": facts.verdict,
            "published": render::compared(facts),
        })
    }

    fn text(facts: &Facts<'_>) -> String {
        render::text(facts)
    }
}

/// One run on a fresh simulated machine, and the hash of what happened.
fn simulated_run(
    machine: &Machine,
    contestant: Contestant,
    plan: Plan,
) -> Result<(Sample, u64), Error> {
    let (seed, limit) = (plan.seed, plan.duration + SIMULATED_LIMIT);
    let ended = simulate(machine, seed, limit, move || contestant.measure::<Sim>(&plan))?;
    Ok((ended.result?, ended.trace_hash))
}

/// The goals of `auto` beside one queue in one run with a seed, short sections, for code that varies other parameters; and the hashes
/// of what happened.
pub(crate) fn goals_of_one_run(
    machine: &Machine,
    writers: Vec<usize>,
    duration: Duration,
    seed: u64,
) -> Result<(Vec<Goal>, Vec<u64>), Error> {
    let common =
        Common { machine: machine.name().into(), duration: Some(duration), ..Common::default() };
    let section = Some(Load::Short.name().into());
    let job = LockOptions { common, writers: Some(writers), section, ..LockOptions::default() }
        .plan(machine)?;
    let (mut figures, mut hashes) = (Collector::default(), Vec::new());
    for (load, writers) in job.scenarios() {
        let mut samples = Vec::new();
        for contestant in
            simulated().into_iter().filter(|one| goals::BESIDE_ONE_QUEUE.contains(&one.row))
        {
            let (sample, hash) = simulated_run(machine, contestant, job.plan(load, writers, seed))?;
            samples.push((contestant.row, sample));
            hashes.push(hash);
        }
        goals::collect(&mut figures, load, writers, &samples);
    }
    let goals = judge(&figures.rows(), job.scenarios(), Some(machine.name()), job.place);
    Ok((goals, hashes))
}

/// Measures every lock in every scenario of every run.
fn measure(
    run: &mut Run<'_>,
    job: &Job,
    contestants: &[Contestant],
    reading_ns: Option<f64>,
    measure: impl Fn(&Contestant, &Plan) -> Result<Sample, Error>,
) -> Result<Found, Error> {
    let mut left_out = LeftOut::default();
    let machine = run.machine;
    run.begin(job.runs * job.scenarios().count() * contestants.len());
    for round in 0..job.runs {
        for (load, writers) in job.scenarios() {
            let plan = job.plan(load, writers, round as u64);
            let of = described(load, writers);
            let what = |of_row: &Contestant| format!("run {}, {of}: {}", round + 1, of_row.row);
            let samples = run.round(round, contestants, what, |contestant| {
                if left_out.contains(contestant.row, load, writers) {
                    return Ok(None);
                }
                let start = Instant::now();
                let sample = measure(contestant, &plan)?;
                if machine.model().is_none() {
                    left_out.judge(contestant.row, load, writers, start.elapsed(), &plan);
                }
                Ok(Some((contestant.row, sample)))
            })?;
            let samples: Vec<_> = samples.into_iter().flatten().collect();
            goals::collect(&mut run.figures, load, writers, &samples);
        }
    }
    let rows: Vec<_> = contestants.iter().map(|contestant| contestant.row).collect();
    if job.place == CpuPlacement::Compact {
        goals::publish(&mut run.figures, machine.name(), job.scenarios(), &rows);
    }
    Ok(Found { rows, reading_ns, left_out: left_out.messages() })
}

/// The locks that take too long with too many threads: a lock that only spins can take seconds until each of them has acquired it.
#[derive(Default)]
struct LeftOut(Vec<(&'static str, Load, usize, Duration)>);

impl LeftOut {
    fn judge(
        &mut self,
        row: &'static str,
        load: Load,
        writers: usize,
        took: Duration,
        plan: &Plan,
    ) {
        if took > plan.duration + OVERTIME {
            self.0.push((row, load, writers, took));
        }
    }

    fn contains(&self, row: &str, load: Load, writers: usize) -> bool {
        self.0.iter().any(|&(name, of, from, _)| name == row && of == load && writers >= from)
    }

    fn messages(&self) -> Vec<String> {
        let describe = |&(row, load, writers, took): &(&str, Load, usize, Duration)| {
            format!(
                "{row}, {}: a run took {:.1} s until its last thread had had its turn; not run again with so many or more",
                described(load, writers),
                took.as_secs_f64(),
            )
        };
        self.0.iter().map(describe).collect()
    }
}

#[cfg(test)]
mod tests;
