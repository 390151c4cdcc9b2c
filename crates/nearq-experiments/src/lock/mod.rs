//! `nearq bench lock`: one lock that many want. How often is it taken, how evenly, and how long does who wants it wait?
//!
//! Threads that are pinned to CPUs take a lock, do a little under it, give it back and do a little without it, for a fixed time:
//! what the kernel's locktorture does, and, as other shapes, the lock patterns of `perf bench epoll` and of three of fxmark's
//! loads over structures in memory that really are changed under the locks and checked at the end.
//!
//! All locks take turns within each run, forwards and backwards, so that what else goes on meets them alike; ratios are taken within
//! a run, and then their median over the runs. On a simulated machine our locks run in virtual time, a fresh machine and
//! a seed for each run; the other locks are Linux programs.

mod contestant;
mod epoll;
mod figures;
mod file;
mod goals;
mod load;
mod pthread;
mod published;
pub(crate) mod render;
mod run;
mod sample;
mod stage;
mod torture;
mod tree;

pub use contestant::{
    AUTO, Contestant, Exclusive, MCS, NUMA, OSQ, PARKING_LOT, PLAIN, PTHREAD, PTHREAD_ADAPTIVE,
    STD, here, simulated,
};
pub use goals::Goal;
pub use load::{Load, Plan, scenario};
pub use published::gain;
pub use sample::{LONG, Sample, Waits, fairness};
pub use stage::Stage;

use crate::blocking::{nanoseconds_per_round, rounds_for};
use crate::highpri;
use crate::options::{Common, too_small, with_reason, within};
use crate::simulated::simulate;
use crate::{Error, Machine, Progress};
use goals::judge;
use load::{Place, described};
use nearq_lock::Settings;
use nearq_platform::{Atomic as _, Linux, Ordering};
use nearq_report::{Collector, Environment, Report, Watch};
use nearq_sim::Sim;
use nearq_topology::CpuSet;
use serde_json::json;
use std::time::{Duration, Instant};

/// What `lock` can be told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LockOptions {
    /// What every experiment can be told.
    pub common: Common,
    /// How many threads want the lock, one scenario for each number; the document's if not set.
    pub writers: Option<Vec<usize>>,
    /// How long they hold it: `short`, `long` or `both`.
    pub section: Option<String>,
    /// Where they are pinned: `compact` or `spread`.
    pub place: Option<String>,
    /// What they do: `torture`, `epoll`, `shared-file` or `shared-dir`.
    pub shape: Option<String>,
    /// Nanoseconds of computing between two turns of a thread.
    pub outside_ns: Option<usize>,
}

/// The document's numbers of writers.
const WRITERS: [usize; 8] = [1, 2, 4, 8, 16, 32, 48, 64];
/// Most threads.
const MOST_WRITERS: usize = 4096;
/// Nanoseconds between two turns, if not set and at most.
const OUTSIDE_NS: [usize; 2] = [100, 1_000_000];
/// Runs: as many as the document, and for a quick one.
const RUNS: [usize; 2] = [9, 3];
/// How long a run lasts.
const DURATION: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(100)];
/// How long one lasts in virtual time: many patiences of the mutex, beside which it does not count that waking up all writers
/// takes the first part of a millisecond.
const SIMULATED_DURATION: [Duration; 2] = [Duration::from_millis(30), Duration::from_millis(10)];
/// Virtual time beyond a run's duration after which it has gone wrong.
const SIMULATED_LIMIT: Duration = Duration::from_secs(10);
/// Who takes so much longer than a run lasts until the last thread has had its turn does not take part any more.
const OVERTIME: Duration = Duration::from_secs(2);

/// On cache lines of its own, two of them, as some CPUs fetch the neighbour too.
#[repr(align(128))]
struct Line<T>(T);

/// Counts in two steps, so that one of two counts at the same time is lost, and the processor need not see to it that none is.
#[inline]
fn bump<P: Stage>(count: &P::AtomicU64) {
    // Relaxed, both: under the lock that is measured.
    count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// What is to be done, and how often.
struct Job {
    loads: Vec<Load>,
    writers: Vec<usize>,
    place: Place,
    cpus: Vec<usize>,
    outside_ns: usize,
    /// The same in rounds of computing.
    outside: u64,
    duration: Duration,
    runs: usize,
}

impl LockOptions {
    fn job(&self, machine: &Machine) -> Result<Job, Error> {
        self.common.check()?;
        let quick = usize::from(self.common.quick);
        let shape = self.shape.as_deref();
        let loads = load::loads(shape, self.section.as_deref(), self.common.quick)?;
        let writers = self.writers.clone().unwrap_or_else(|| WRITERS.to_vec());
        if writers.is_empty() {
            return Err(Error::input(format!(
                "--writers: give numbers from 1 to {MOST_WRITERS}, with commas between them"
            )));
        }
        for (at, &number) in writers.iter().enumerate() {
            within("--writers", number, 1, MOST_WRITERS)?;
            if writers[..at].contains(&number) {
                return Err(Error::input(format!("--writers {number}: give each number once")));
            }
        }
        let place = Place::named(self.place.as_deref())?;
        let outside_ns = self.outside_ns.unwrap_or(OUTSIDE_NS[0]);
        within("--outside", outside_ns, 0, OUTSIDE_NS[1])?;
        let duration = if machine.model().is_none() { DURATION } else { SIMULATED_DURATION };
        Ok(Job {
            loads,
            writers,
            place,
            cpus: place.order(machine),
            outside_ns,
            // A simulated round is a nanosecond; on Linux it is measured.
            outside: outside_ns as u64,
            duration: self.common.duration.unwrap_or(duration[quick]),
            runs: self.common.runs.unwrap_or(RUNS[quick]),
        })
    }

    /// Why a run is not judged, if it is too small.
    fn too_small(&self, machine: &Machine, job: &Job) -> Result<Option<String>, Error> {
        let least = Self { common: self.common.of_a_quick_run(), ..self.clone() }.job(machine)?;
        let duration = [job.duration, least.duration].map(|time| time.as_secs_f64());
        Ok(too_small(machine, [job.runs, least.runs], &[("--duration", duration)]))
    }
}

impl Job {
    fn plan(&self, load: Load, writers: usize) -> Plan {
        let (cpus, outside) = (self.cpus.clone(), self.outside);
        Plan { load, writers, cpus, outside, duration: self.duration }
    }

    fn scenarios(&self) -> impl Iterator<Item = (Load, usize)> {
        let of = |&load: &Load| self.writers.iter().map(move |&writers| (load, writers));
        self.loads.iter().flat_map(of)
    }
}

/// What the tables are made from, beside the rows.
struct Facts<'f> {
    job: &'f Job,
    machine: &'f Machine,
    rows: Vec<&'static str>,
    /// On the real machine: nanoseconds of a reading of the clock.
    reading_ns: Option<f64>,
    /// Who did not take part any more, and from where on.
    left_out: &'f [String],
    goals: &'f [Goal],
    /// Why nothing is judged, if that is so.
    too_small: Option<String>,
    /// Whether the goals are shown.
    show_goals: bool,
}

/// Runs the experiment.
pub fn lock(options: &LockOptions, progress: &Progress) -> Result<Report, Error> {
    let machine = options.common.on()?;
    let result = match machine.model() {
        None => on_this_machine(options, &machine, progress),
        Some(_) => options
            .job(&machine)
            .and_then(|job| on_a_simulated_one(options, &machine, &job, progress)),
    };
    progress.end();
    result
}

fn on_this_machine(
    options: &LockOptions,
    machine: &Machine,
    progress: &Progress,
) -> Result<Report, Error> {
    let mut job = options.job(machine)?;
    let most = job.writers.iter().copied().max().unwrap_or(0);
    if let Some((room, limit)) = highpri::room()
        && most > room
    {
        return Err(Error::input(format!(
            "--writers {most}: there is room for {room} threads: {limit}; give {room} at most, or raise the limit"
        )));
    }
    if job.outside > 0 {
        // The least: whoever else is on the machine makes a round longer, never shorter.
        let calibrated = nanoseconds_per_round(&CpuSet::single(job.cpus[0]))?;
        job.outside = rounds_for(Duration::from_nanos(job.outside_ns as u64), calibrated.min);
    }
    let reading = stage::cost_of_reading::<Linux>();
    let before = Settings::of_process::<Linux>();
    let measure = |contestant: &Contestant, plan: &Plan, _| contestant.measure::<Linux>(plan);
    let result = report(options, machine, &job, &here(), Some(reading), &measure, progress);
    before.set_for_process::<Linux>();
    result
}

fn on_a_simulated_one(
    options: &LockOptions,
    machine: &Machine,
    job: &Job,
    progress: &Progress,
) -> Result<Report, Error> {
    let measure = |contestant: &Contestant, plan: &Plan, run: usize| {
        let (contestant, plan) = (*contestant, plan.clone());
        let limit = plan.duration + SIMULATED_LIMIT;
        simulate(machine, run as u64, limit, move || contestant.measure::<Sim>(&plan))?.result
    };
    report(options, machine, job, &simulated(), None, &measure, progress)
}

/// How a contestant is measured: for a plan, in a run.
type Measure<'m> = dyn Fn(&Contestant, &Plan, usize) -> Result<Sample, Error> + 'm;

/// Measures everybody, and puts it all together.
fn report(
    options: &LockOptions,
    machine: &Machine,
    job: &Job,
    contestants: &[Contestant],
    reading_ns: Option<f64>,
    measure: &Measure<'_>,
    progress: &Progress,
) -> Result<Report, Error> {
    let watch = Watch::start(machine.parallelism());
    let mut collector = Collector::default();
    let mut left_out = LeftOut::default();
    progress.begin(job.runs * job.scenarios().count() * contestants.len());
    for run in 0..job.runs {
        for (load, writers) in job.scenarios() {
            let plan = job.plan(load, writers);
            let mut samples = Vec::new();
            let mut order: Vec<&Contestant> = contestants.iter().collect();
            if run % 2 == 1 {
                order.reverse();
            }
            for contestant in order {
                let of = described(load, writers);
                progress.step(format!("run {}, {of}: {}", run + 1, contestant.row));
                if !left_out.contains(contestant.row, load, writers) {
                    let start = Instant::now();
                    samples.push((contestant.row, measure(contestant, &plan, run)?));
                    if machine.model().is_none() {
                        left_out.judge(contestant.row, load, writers, start.elapsed(), &plan);
                    }
                }
                progress.done();
            }
            if run % 2 == 1 {
                // In the order of the tables, whatever the order of the measurements.
                samples.reverse();
            }
            figures::collect(&mut collector, load, writers, &samples);
        }
    }
    if machine.name() == published::MACHINE && job.place == Place::Compact {
        figures::publish(&mut collector, job.scenarios());
    }
    let rows = collector.rows();
    let too_small = options.too_small(machine, job)?;
    let goals = match too_small {
        Some(_) => Vec::new(),
        None => judge(&rows, job.scenarios(), machine.model().is_some(), job.place),
    };
    let environment = match machine.model() {
        Some(model) => Environment::simulated(model.about(), machine.parallelism()),
        None => watch.finish(),
    };
    let facts = Facts {
        job,
        machine,
        rows: contestants.iter().map(|contestant| contestant.row).collect(),
        reading_ns,
        left_out: &left_out.told(),
        goals: &goals,
        too_small,
        show_goals: options.common.goals,
    };
    let parameters = facts.parameters(options);
    let text = facts.text(&rows, &environment);
    let (machine, svg) = (machine.name().to_owned(), String::new());
    let mut report =
        Report { experiment: "lock", machine, environment, parameters, rows, text, svg };
    report.svg = render::picture(&report);
    Ok(report)
}

/// Who takes too long with too many threads: a lock that only spins can take seconds until each of them has had its turn.
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
        self.0.iter().any(|&(who, of, from, _)| who == row && of == load && writers >= from)
    }

    fn told(&self) -> Vec<String> {
        let tell = |&(row, load, writers, took): &(&str, Load, usize, Duration)| {
            format!(
                "{row}, {}: a run took {:.1} s until its last thread had had its turn; not run again with so many or more",
                described(load, writers),
                took.as_secs_f64(),
            )
        };
        self.0.iter().map(tell).collect()
    }
}

impl Facts<'_> {
    fn parameters(&self, options: &LockOptions) -> serde_json::Value {
        let loads: Vec<&str> = self.job.loads.iter().map(|load| load.name()).collect();
        let parameters = json!({
            "quick": options.common.quick,
            "runs": self.job.runs,
            "duration_s": self.job.duration.as_secs_f64(),
            "shape": options.shape.as_deref().unwrap_or("torture"),
            "loads": loads,
            "writers": self.job.writers,
            "place": self.job.place.name(),
            "cpus": self.job.cpus,
            "outside_ns": self.job.outside_ns,
            "clock_reading_ns": self.reading_ns,
            "left_out": self.left_out,
            "goals": self.goals,
        });
        with_reason(parameters, self.too_small.as_deref())
    }
}

#[cfg(test)]
mod tests;
