//! `nearq bench numa`: how long does a job of many compilations take that are spread over nodes or kept on them?
//!
//! The document of 2013 made unbound workqueues affine to NUMA nodes and asked whether the effect is visible in the load for which it
//! matters least: a kernel build with `-j20` on two sockets. It compared five runs with five runs. Here each compilation is an item of an
//! unbound queue, of scope `system` as before that change and of scope `numa` as after it, then with a home for each item; and the same job
//! as a tree of processes, under `nearq run --tree` without and with homes.
//!
//! What the document converted to an unbound queue is not the compilations but the kernel's writeback, which writes to the disk what they
//! have left in memory. The rows `writeback` do that: compilations run wherever the scheduler puts them, and each queues an item that writes
//! its output away.
//!
//! - `job`: what is done on a real machine: C files that are made up, or real files that are compressed
//! - `ours`: the items; `tree`: the processes
//! - `declared`: the same on a simulated machine, with declared work and memory
//! - `render`: the tables and the picture, beside the document's figures

mod declared;
mod job;
pub(crate) mod render;

pub use declared::Declared;
pub use job::{Job, Kind};

use crate::harness::options::{named, number, too_small, within};
use crate::harness::{self, Common, Experiment, Run};
use crate::{Error, Machine};
use clap::Args;
use nearq_report::{Collector, Row, Summary, find, metric, usage};
use render::{PUBLISHED_AFTER, PUBLISHED_BEFORE};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The options of `numa`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct NumaOptions {
    #[command(flatten)]
    #[expect(missing_docs, reason = "it would stand in the command's help")]
    pub common: Common,

    /// How many files the job has, 1 to 100000; if not given: 12 for each CPU, or 3 or fewer with --quick
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub files: Option<usize>,

    /// How many files are compiled at a time, 1 to 4096; if not given: 20 for 12 CPUs, as in the document
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub jobs: Option<usize>,

    /// What is done with each file: `compile` or `compress`; compile if not given and there is a C compiler
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,

    /// The folder in which a folder for the files is created; the folder for temporary files if not given
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,

    /// The command `nearq`, for the trees of processes; without it they are left out.
    #[arg(skip)]
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
/// The compilations are no items; an item of a queue of scope `system` writes away what each has made.
pub const WRITEBACK: &str = "writeback, system";
/// The same with a queue of scope `numa`.
pub const WRITEBACK_NUMA: &str = "writeback, numa";
/// Whether a row is one of those whose items write away.
fn writes_back(row: &str) -> bool {
    [WRITEBACK, WRITEBACK_NUMA].contains(&row)
}

/// A tree of processes that run wherever the kernel puts them.
pub const TREE: &str = "tree";
/// A tree of processes that choose a home when they begin.
pub const TREE_HOMES: &str = "tree, homes";

/// The rows that are compared: the old one and the new one.
const COMPARED: [(&str, &str); 4] =
    [(SYSTEM, NUMA), (SYSTEM, HOMES), (WRITEBACK, WRITEBACK_NUMA), (TREE, TREE_HOMES)];
/// Those of them that differ by the scope of the queue alone.
pub(crate) const COMPARED_POOLS: [(&str, &str); 2] = [COMPARED[0], COMPARED[2]];

/// Runs: the document's, and for a quick run.
const RUNS: [usize; 2] = [5, 3];
/// Files for each CPU, and for a quick run.
const FILES_PER_CPU: [usize; 2] = [12, 3];
/// The same on a simulated machine, where a file takes milliseconds, and how many a quick run has at most.
const SIMULATED_PER_CPU: [usize; 2] = [60, 20];
const MOST_QUICK: usize = 600;
/// The number of files for each place that must be done for a difference to be meaningful.
const LEAST_TURNS: usize = 2;
const MOST_FILES: usize = 100_000;
/// The document's 20 jobs were for some 12 CPUs.
const JOBS_PER_12_CPUS: usize = 20;
/// What all rows of a quick run may take together, and how many there are.
const QUICK: Duration = Duration::from_secs(20);
const ROWS: usize = 7;

/// The difference between two rows, and whether it is significant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The old row.
    pub before: &'static str,
    /// The new row.
    pub after: &'static str,
    /// Mean of the elapsed times, in seconds.
    pub means: [f64; 2],
    /// Their standard deviations.
    pub deviations: [f64; 2],
    /// What is gained: seconds.
    pub gain_s: f64,
    /// The same in percent of the old row.
    pub gain_percent: f64,
    /// The same in deviations of the old row: the document's measure, in which 1.2 was "not completely conclusive".
    pub sigmas: f64,
    /// The same in standard errors of the difference of the means (Welch), which more runs make smaller; 0 if there is only one run.
    pub errors: f64,
    /// Whether the gain exceeds both deviations.
    pub exceeds: bool,
}

/// The standard error of the difference of two means.
pub(crate) fn error_of_difference(old: &Summary, new: &Summary) -> f64 {
    let square = |of: &Summary| of.deviation * of.deviation / of.runs as f64;
    (square(old) + square(new)).sqrt()
}

/// The gain in standard errors of the difference of two means.
pub(crate) fn in_errors(old: &Summary, new: &Summary) -> f64 {
    let error = error_of_difference(old, new);
    if error > 0.0 { (old.mean - new.mean) / error } else { 0.0 }
}

/// Compares the rows that exist.
pub fn differences(rows: &[Row]) -> Vec<Difference> {
    let elapsed = |row| find(rows, SCENARIO, row, metric::ELAPSED).map(|row| row.summary);
    let compare = |&(before, after): &(&'static str, &'static str)| {
        let (old, new) = (elapsed(before)?, elapsed(after)?);
        let gain = old.mean - new.mean;
        Some(Difference {
            before,
            after,
            means: [old.mean, new.mean],
            deviations: [old.deviation, new.deviation],
            gain_s: gain,
            gain_percent: gain / old.mean * 100.0,
            sigmas: if old.deviation > 0.0 { gain / old.deviation } else { 0.0 },
            errors: in_errors(&old, &new),
            exceeds: gain.abs() > old.deviation.max(new.deviation),
        })
    };
    COMPARED.iter().filter_map(compare).collect()
}

/// What must be done, on any machine.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) files: usize,
    pub(crate) jobs: usize,
    pub(crate) runs: usize,
}

impl Plan {
    /// Reduces the files to what fits in a quick run, if one takes `one` and each CPU does one at a time. If even that is too long, reduces
    /// the runs to one, unless a number of runs was asked for.
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

/// Runs a function, and measures its time and that of the processes that ended during it.
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

/// What is found besides the figures.
#[derive(Debug)]
pub struct Found {
    /// What was done, on the real machine.
    job: Option<Arc<Job>>,
    left_out: Vec<(&'static str, String)>,
}

type Facts<'f> = harness::Facts<'f, NumaOptions>;

impl Experiment for NumaOptions {
    const NAME: &'static str = "numa";
    type Plan = Plan;
    type Found = Found;
    type Verdict = Vec<Difference>;

    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self, machine: &Machine) -> Result<Plan, Error> {
        if self.common.duration.is_some() {
            return Err(Error::input(
                "--duration: a run lasts as long as its job; give --files and --jobs instead",
            ));
        }
        let quick = usize::from(self.common.quick);
        let cpus = machine.parallelism();
        let usual = match machine.model() {
            None => FILES_PER_CPU[quick] * cpus,
            Some(_) if self.common.quick => (SIMULATED_PER_CPU[quick] * cpus).min(MOST_QUICK),
            Some(_) => SIMULATED_PER_CPU[quick] * cpus,
        };
        let files = within("--files", self.files.unwrap_or(usual), 1, MOST_FILES)?;
        let jobs = self.jobs.unwrap_or((JOBS_PER_12_CPUS * cpus).div_ceil(12));
        within("--jobs", jobs, 1, 4096)?;
        Ok(Plan { files, jobs, runs: self.common.runs.unwrap_or(RUNS[quick]) })
    }

    fn measure(&self, run: &mut Run<'_>, plan: &mut Plan) -> Result<Found, Error> {
        let found = match run.machine.model() {
            None => self.here(run, plan)?,
            Some(_) => self.simulated(run, plan)?,
        };
        for (row, published) in [(WRITEBACK, PUBLISHED_BEFORE), (WRITEBACK_NUMA, PUBLISHED_AFTER)] {
            let mean = published.iter().sum::<f64>() / published.len() as f64;
            run.figures.publish(SCENARIO, row, metric::ELAPSED, mean);
        }
        Ok(found)
    }

    fn too_small(&self, machine: &Machine, plan: &Plan) -> Result<Option<String>, Error> {
        let files = [plan.files, LEAST_TURNS * plan.jobs].map(|files| files as f64);
        Ok(too_small(machine, [plan.runs, RUNS[1]], &[("--files", files)]))
    }

    fn judge(facts: &Facts<'_>) -> Vec<Difference> {
        if facts.too_small.is_some() { Vec::new() } else { differences(&facts.rows) }
    }

    fn parameters(facts: &Facts<'_>) -> Value {
        let (plan, Found { job, left_out }) = (&facts.plan, &facts.found);
        let left_out = left_out.iter().map(|(row, reason)| json!({ "row": row, "reason": reason }));
        json!({
            "runs": plan.runs,
            "files": plan.files,
            "jobs": plan.jobs,
            "kind": job.as_ref().map(|job| job.kind().name()),
            "command": job.as_ref().map(|job| job.command_line()),
            "declared": facts.model().map(|_| Declared::USUAL),
            "nodes": facts.machine.topology().nodes().len(),
            "differences": facts.verdict,
            "left_out": left_out.collect::<Vec<_>>(),
        })
    }

    fn text(facts: &Facts<'_>) -> String {
        render::text(facts)
    }
}

impl NumaOptions {
    /// On the real machine.
    fn here(&self, run: &mut Run<'_>, plan: &mut Plan) -> Result<Found, Error> {
        let kind = self.kind.as_ref().map(|kind| named("--kind", kind, &Kind::ALL)).transpose()?;
        let job = Arc::new(Job::prepare(kind, plan.files, self.folder.as_deref())?);
        if self.common.quick && self.files.is_none() {
            let one = timed(|| job.do_one(0))?.elapsed;
            plan.shorten(one, run.machine.parallelism(), self.common.runs.is_none());
        }
        let (mut rows, mut left_out) =
            (vec![SYSTEM, NUMA, HOMES, WRITEBACK, WRITEBACK_NUMA], Vec::new());
        let nearq = self.command.as_ref().ok_or("the command nearq is not known here".to_owned());
        match nearq.and_then(|nearq| job::maker().map(|_| nearq)) {
            Ok(_) => rows.extend([TREE, TREE_HOMES]),
            Err(reason) => left_out.push((TREE, reason)),
        }
        run.begin(plan.runs * rows.len());
        for number in 0..plan.runs {
            let what = |row: &&str| format!("run {}: {row}", number + 1);
            let taken = run.round(number, &rows, what, |&row| {
                job.clean()?;
                let taken = match &self.command {
                    Some(nearq) if [TREE, TREE_HOMES].contains(&row) => {
                        timed(|| job::do_as_tree(nearq, row == TREE_HOMES, &job, plan))?
                    }
                    _ if writes_back(row) => timed(|| job::do_with_writeback(row, &job, plan))?,
                    _ => timed(|| job::do_as_items(row, &job, plan))?,
                };
                job.check(plan.files, writes_back(row))?;
                Ok(taken)
            })?;
            for (row, taken) in rows.iter().zip(taken) {
                taken.collect(&mut run.figures, row);
            }
        }
        Ok(Found { job: Some(job), left_out })
    }

    /// On a simulated machine.
    fn simulated(&self, run: &mut Run<'_>, plan: &Plan) -> Result<Found, Error> {
        if self.kind.is_some() || self.folder.is_some() {
            return Err(Error::input(
                "--kind, --folder: on a simulated machine the work is declared and there are no files; leave the options out",
            ));
        }
        let (machine, rows) = (run.machine, [SYSTEM, NUMA, HOMES, WRITEBACK, WRITEBACK_NUMA]);
        run.begin(plan.runs * rows.len());
        for seed in 0..plan.runs {
            let what = |row: &&str| format!("seed {seed}: {row}");
            let taken = run.round(seed, &rows, what, |&row| {
                Ok(declared::run(machine, row, plan, seed as u64)?.0)
            })?;
            for (row, taken) in rows.iter().zip(taken) {
                taken.collect(&mut run.figures, row);
            }
        }
        let why = "what it costs to start a process is not simulated".to_owned();
        Ok(Found { job: None, left_out: vec![(TREE, why)] })
    }
}

/// How long one job of a row takes on a simulated machine with a seed, for code that varies other parameters; and the hash of what
/// happened.
pub(crate) fn one_run(
    machine: &Machine,
    row: &'static str,
    files: usize,
    seed: u64,
) -> Result<(Duration, u64), Error> {
    let common = Common { machine: machine.name().into(), ..Common::default() };
    let options = NumaOptions { common, files: Some(files), ..NumaOptions::default() };
    let (taken, hash) = declared::run(machine, row, &options.plan(machine)?, seed)?;
    Ok((taken.elapsed, hash))
}

#[cfg(test)]
mod tests;
