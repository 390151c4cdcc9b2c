//! `nearq bench numa`: a job of many compilations, spread over nodes or kept on them: how long until all is done?
//!
//! The document of 2013 made unbound workqueues affine to NUMA nodes and asked whether that shows where it matters least: in a kernel
//! build with `-j20` on two sockets. It compared five runs with five runs. Here each compilation is an item of an unbound queue,
//! of scope `system` as before that change and of scope `numa` as after it, then with a home for each item; and the same
//! job as a tree of processes, under `nearq run --tree` without and with homes.
//!
//! - `job`: what is done on a real machine: C files that are made up, or real files that are compressed
//! - `ours`: the items; `tree`: the processes
//! - `declared`: the same on a simulated machine, with declared work and memory
//! - `render`: the tables and the picture, beside the document's figures

mod declared;
mod job;
mod ours;
pub(crate) mod render;
mod tree;

pub use declared::Declared;
pub use job::{Job, Kind};

use crate::options::{Common, too_small, with_reason, within};
use crate::{Error, Machine, Progress};
use nearq_report::{Collector, Environment, Report, Row, Summary, Watch, find, metric, usage};
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What `numa` can be told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NumaOptions {
    /// What every experiment can be told; a run lasts as long as its job does, so `duration` is refused.
    pub common: Common,
    /// Files of the job.
    pub files: Option<usize>,
    /// Jobs at a time.
    pub jobs: Option<usize>,
    /// `compile` or `compress`; what the machine can do if not set.
    pub kind: Option<String>,
    /// Where the files are; a folder in that for temporary files if not set.
    pub folder: Option<PathBuf>,
    /// The command `nearq`, for the rows that are trees of processes; these are left out if not set.
    pub command: Option<PathBuf>,
}

/// The one load.
pub(crate) const SCENARIO: &str = "job";

/// The rows, in the order of the tables.
pub const SYSTEM: &str = "system";
/// As before and after the change of 2013.
pub const NUMA: &str = "numa";
/// Scope `numa`, and each item has a home.
pub const HOMES: &str = "numa, homes";
/// A tree of processes that go wherever the kernel puts them.
pub const TREE: &str = "tree";
/// A tree of processes that choose a home when they begin.
pub const TREE_HOMES: &str = "tree, homes";

/// Whose figures are compared: what was, and what is new.
const COMPARED: [(&str, &str); 3] = [(SYSTEM, NUMA), (SYSTEM, HOMES), (TREE, TREE_HOMES)];

/// Runs: the document's, and for a quick run.
const RUNS: [usize; 2] = [5, 3];
/// Files for each CPU, and for a quick run.
const FILES_PER_CPU: [usize; 2] = [12, 3];
/// The same on a simulated machine, where a file takes milliseconds, and how many a quick run has at most.
const SIMULATED_PER_CPU: [usize; 2] = [60, 20];
const MOST_QUICK: usize = 600;
/// So many files for each place must be done for a difference to mean something.
const LEAST_TURNS: usize = 2;
const MOST_FILES: usize = 100_000;
/// The document's 20 jobs were for some 12 CPUs.
const JOBS_PER_12_CPUS: usize = 20;
/// What all rows of a quick run may take together, and how many there are.
const QUICK: Duration = Duration::from_secs(20);
const ROWS: usize = 5;

/// The difference between two rows, and whether it is one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// What was.
    pub before: &'static str,
    /// What is new.
    pub after: &'static str,
    /// Mean of the elapsed times, in seconds.
    pub means: [f64; 2],
    /// Their standard deviations.
    pub deviations: [f64; 2],
    /// What is gained: seconds.
    pub gain_s: f64,
    /// The same in percent of what was.
    pub gain_percent: f64,
    /// The same in deviations of what was: the document's measure, of which 1.2 was "not completely conclusive".
    pub sigmas: f64,
    /// Whether it exceeds both deviations.
    pub exceeds: bool,
}

/// Compares the rows that are there.
pub fn differences(rows: &[Row]) -> Vec<Difference> {
    let elapsed = |row| find(rows, SCENARIO, row, metric::ELAPSED).map(|row| row.summary);
    let compare = |&(before, after): &(&'static str, &'static str)| {
        let (old, new): (Summary, Summary) = (elapsed(before)?, elapsed(after)?);
        let gain = old.mean - new.mean;
        Some(Difference {
            before,
            after,
            means: [old.mean, new.mean],
            deviations: [old.deviation, new.deviation],
            gain_s: gain,
            gain_percent: gain / old.mean * 100.0,
            sigmas: if old.deviation > 0.0 { gain / old.deviation } else { 0.0 },
            exceeds: gain.abs() > old.deviation.max(new.deviation),
        })
    };
    COMPARED.iter().filter_map(compare).collect()
}

/// What is to be done, on any machine.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) files: usize,
    pub(crate) jobs: usize,
    pub(crate) runs: usize,
}

impl NumaOptions {
    fn plan(&self, machine: &Machine) -> Result<Plan, Error> {
        self.common.check()?;
        if self.common.duration.is_some() {
            return Err(Error::input(
                "--duration: a run lasts as long as its job; give --files and --jobs",
            ));
        }
        let quick = usize::from(self.common.quick);
        let cpus = machine.parallelism();
        let usual = match machine.model() {
            None => FILES_PER_CPU[quick] * cpus,
            Some(_) if self.common.quick => (SIMULATED_PER_CPU[quick] * cpus).min(MOST_QUICK),
            Some(_) => SIMULATED_PER_CPU[quick] * cpus,
        };
        let files = self.files.unwrap_or(usual);
        within("--files", files, 1, MOST_FILES)?;
        let jobs = self.jobs.unwrap_or((JOBS_PER_12_CPUS * cpus).div_ceil(12));
        within("--jobs", jobs, 1, 4096)?;
        Ok(Plan { files, jobs, runs: self.common.runs.unwrap_or(RUNS[quick]) })
    }
}

impl Plan {
    /// As many files as there is time for in a quick run, where one takes so long and each CPU does one at a time; and, if that is too long for
    /// each run, a single run, where runs were not asked for.
    fn shorten(&mut self, one: Duration, cpus: usize, may_leave_out_runs: bool) {
        let turns = |runs: usize| {
            let turns = QUICK.as_nanos() / (ROWS * runs) as u128 / one.as_nanos().max(1);
            usize::try_from(turns).unwrap_or(usize::MAX)
        };
        if may_leave_out_runs && turns(self.runs) == 0 {
            self.runs = 1;
        }
        self.files = self.files.min(turns(self.runs).max(1).saturating_mul(cpus)).max(1);
    }

    /// Why the runs say nothing about differences, if they are too few or too short.
    fn too_small(&self, machine: &Machine) -> Option<String> {
        let files = [self.files, LEAST_TURNS * self.jobs].map(|files| files as f64);
        too_small(machine, [self.runs, RUNS[1]], &[("--files", files)])
    }
}

/// What one run took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) elapsed: Duration,
    pub(crate) user: Option<Duration>,
    pub(crate) system: Option<Duration>,
}

impl Taken {
    fn collect(self, collector: &mut Collector, row: &str) {
        let mut add = |metric, value: Duration| {
            collector.add(SCENARIO, row, metric, value.as_secs_f64());
        };
        add(metric::ELAPSED, self.elapsed);
        if let (Some(user), Some(system)) = (self.user, self.system) {
            add(metric::USER, user);
            add(metric::SYSTEM, system);
        }
    }
}

/// Does something, and counts its time and that of the processes that ended in it.
fn timed(run: impl FnOnce() -> Result<(), Error>) -> Result<Taken, Error> {
    let (before, begin) = (usage::of_children(), Instant::now());
    run()?;
    let (elapsed, after) = (begin.elapsed(), usage::of_children());
    Ok(Taken {
        elapsed,
        user: Some(after.0.saturating_sub(before.0)),
        system: Some(after.1.saturating_sub(before.1)),
    })
}

/// What the tables are made from, beside the rows.
struct Facts<'f> {
    plan: &'f Plan,
    job: Option<&'f Job>,
    model: Option<&'f nearq_sim::Machine>,
    differences: &'f [Difference],
    /// Why there are none.
    too_small: Option<String>,
    nodes: usize,
    left_out: &'f [(&'static str, String)],
}

/// Runs the experiment.
pub fn numa(options: &NumaOptions, progress: &Progress) -> Result<Report, Error> {
    let machine = options.common.on()?;
    let result = match machine.model() {
        None => here(options, &machine, progress),
        Some(_) => simulated(options, &machine, progress),
    };
    progress.end();
    result
}

/// On the real machine.
fn here(options: &NumaOptions, machine: &Machine, progress: &Progress) -> Result<Report, Error> {
    let mut plan = options.plan(machine)?;
    let kind = options.kind.as_deref().map(Kind::named).transpose()?;
    let job = Arc::new(Job::prepare(kind, plan.files, options.folder.as_deref())?);
    if options.common.quick && options.files.is_none() {
        // One file tells how long they take.
        let one = timed(|| job.do_one(0))?.elapsed;
        plan.shorten(one, machine.parallelism(), options.common.runs.is_none());
    }
    let contestants =
        [ours::Contestant::new(SYSTEM), ours::Contestant::new(NUMA), ours::Contestant::new(HOMES)];
    let mut left_out = Vec::new();
    let trees: Vec<&'static str> = match (&options.command, tree::maker()) {
        (Some(_), Ok(_)) => vec![TREE, TREE_HOMES],
        (None, _) => {
            left_out.push((TREE, "the command nearq is not known here".to_owned()));
            Vec::new()
        }
        (_, Err(reason)) => {
            left_out.push((TREE, reason));
            Vec::new()
        }
    };
    let watch = Watch::start(machine.parallelism());
    let mut collector = Collector::default();
    progress.begin(plan.runs * (contestants.len() + trees.len()));
    for run in 0..plan.runs {
        let mut rows: Vec<&'static str> = contestants.iter().map(|one| one.row).collect();
        rows.extend(&trees);
        if !run.is_multiple_of(2) {
            rows.reverse();
        }
        for row in rows {
            progress.step(format!("run {}: {row}", run + 1));
            job.clean()?;
            let taken = match (contestants.iter().find(|one| one.row == row), &options.command) {
                (Some(contestant), _) => timed(|| contestant.run(&job, &plan))?,
                (None, Some(command)) => {
                    timed(|| tree::run(command, row == TREE_HOMES, &job, &plan))?
                }
                (None, None) => continue,
            };
            job.check(plan.files)?;
            taken.collect(&mut collector, row);
            progress.done();
        }
    }
    let environment = watch.finish();
    let nodes = machine.topology().nodes().len();
    let facts = (Some(&*job), &*left_out, nodes);
    Ok(report(machine, options, &plan, collector, environment, facts))
}

/// On a simulated machine, where the processes are left out: what a process costs to start is not simulated.
fn simulated(
    options: &NumaOptions,
    machine: &Machine,
    progress: &Progress,
) -> Result<Report, Error> {
    let plan = options.plan(machine)?;
    if options.kind.is_some() || options.folder.is_some() {
        return Err(Error::input(
            "--kind, --folder: on a simulated machine the work is declared; there are no files",
        ));
    }
    let mut collector = Collector::default();
    let rows = [SYSTEM, NUMA, HOMES];
    progress.begin(plan.runs * rows.len());
    for run in 0..plan.runs {
        for row in rows {
            progress.step(format!("seed {run}: {row}"));
            declared::run(machine, row, &plan, run as u64)?.collect(&mut collector, row);
            progress.done();
        }
    }
    let about = machine.model().map_or("", |model| model.about());
    let environment = Environment::simulated(about, machine.parallelism());
    let left_out = [(TREE, "what it costs to start a process is not simulated".to_owned())];
    let nodes = machine.topology().nodes().len();
    Ok(report(machine, options, &plan, collector, environment, (None, &left_out, nodes)))
}

fn report(
    machine: &Machine,
    options: &NumaOptions,
    plan: &Plan,
    mut collector: Collector,
    environment: Environment,
    (job, left_out, nodes): (Option<&Job>, &[(&'static str, String)], usize),
) -> Report {
    for (row, published) in [(SYSTEM, render::PUBLISHED_BEFORE), (NUMA, render::PUBLISHED_AFTER)] {
        let mean = published.iter().sum::<f64>() / published.len() as f64;
        collector.publish(SCENARIO, row, metric::ELAPSED, mean);
    }
    let rows = collector.rows();
    let too_small = plan.too_small(machine);
    let differences = if too_small.is_some() { Vec::new() } else { differences(&rows) };
    let why = too_small.clone();
    let facts = Facts {
        plan,
        job,
        model: machine.model(),
        differences: &differences,
        too_small,
        nodes,
        left_out,
    };
    let left_out: Vec<_> =
        left_out.iter().map(|(row, reason)| json!({ "row": row, "reason": reason })).collect();
    let parameters = json!({
        "quick": options.common.quick,
        "runs": plan.runs,
        "files": plan.files,
        "jobs": plan.jobs,
        "kind": job.map(|job| job.kind().name()),
        "command": job.map(Job::command_line),
        "declared": machine.model().map(|_| Declared::USUAL),
        "nodes": nodes,
        "differences": differences,
        "left_out": left_out,
    });
    let parameters = with_reason(parameters, why.as_deref());
    let (text, svg) = (facts.text(&rows, &environment), String::new());
    let machine = machine.name().to_owned();
    let mut report =
        Report { experiment: "numa", machine, environment, parameters, rows, text, svg };
    report.svg = render::picture(&report);
    report
}

#[cfg(test)]
mod tests;
