//! `nearq bench home`: what home nodes gain for tasks, in three scenarios.
//!
//! - **numa-test**: the test of the document of 2003, rewritten. Tasks walk over memory at random; after three seconds a storm of 800 small
//!   processes pushes them to other CPUs. How long do the tasks take?
//! - **displace**: hogs that are pinned to one node start, displace tasks from it, and end. Are the tasks at home a second later?
//! - **overload**: a node is the home of twice as many tasks as it has CPUs, while others idle; then half of the tasks end. Was
//!   every CPU used, and do the tasks that had to leave come home?
//!
//! Each is run without homes (the kernel alone), with homes (picked when a task starts, kept by `nearq_home::SoftAffinity`), and with
//! dynamic homes, which follow the memory. On the real machine (`real`) tasks are processes of this command; on a simulated one
//! (`simulated`) they are simulated processes whose accesses are declared, and there are three more rows: the document's kernel,
//! without and with its patch (`2.6.0-test1`), and `oracle`: tasks are pinned in turn to the CPUs of all nodes with their memory on the same
//! node, and no system that must discover this placement can beat it by much.
//!
//! A task keeps its own account (`account`): it reads its node and its clocks every 20,000 updates.

mod figures;
mod plan;
mod real;
pub(crate) mod render;
mod scheduler;
mod simulated;
mod task;

pub(crate) use figures::GAP;
pub use figures::Goal;
pub(crate) use plan::Row;
pub use real::Child;

use crate::harness::options::{all_within, means_something, number, too_small, within};
use crate::harness::{self, Common, Experiment, Run};
use crate::{Error, Machine};
use clap::Args;
use nearq_home::Nodes;
use nearq_processes::proc::available_memory;
use nearq_report::{Collector, metric};
use plan::{Plan, Scenario, Size};
use scheduler::Scheduler;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use task::TaskReport;

/// The options of `home`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct HomeOptions {
    #[command(flatten)]
    #[expect(missing_docs, reason = "it would stand in the command's help")]
    pub common: Common,

    /// Run only one scenario: `numa-test`, `displace` or `overload`
    #[arg(long, value_name = "SCENARIO")]
    pub scenario: Option<String>,

    /// How many tasks numa-test has, 1 to 4096: numbers, separated by commas; half, once, twice and four times the number of CPUs if not
    /// given
    #[arg(long, value_name = "N,...", value_parser = number, value_delimiter = ',', allow_negative_numbers = true)]
    pub tasks: Option<Vec<usize>>,

    /// How many elements of 20 bytes a task of numa-test has, 1000 to 1000000000. If not given: 2000000 as in the document, or four times a
    /// core's share of the last-level cache if that is more, but at most half of the free memory
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub problem_size: Option<usize>,

    /// How many passes a task of numa-test makes, 1 to 1000000; 100 if not given
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub passes: Option<usize>,

    /// The load that disturbs numa-test begins again that many seconds after it began, 1 to 3600, until all tasks have ended; once if not given
    #[arg(long, value_name = "SECONDS", value_parser = number, allow_negative_numbers = true)]
    pub storm_every: Option<usize>,

    /// The kernel's scheduler: `stock` for its own, `home` for the node affine one of nearq-scx, as it is and with the stealing rule of 2003
    /// (compared with its own without homes), `both` for all rows; stock if not given
    #[arg(long, value_name = "SCHEDULER")]
    pub scheduler: Option<String>,

    /// The command whose `bench home-child` the processes on the real machine are; this very program if not set.
    #[arg(skip)]
    pub program: Option<PathBuf>,
}

/// Most tasks.
const MOST_TASKS: usize = 4096;
/// Fewest and most elements.
const ELEMENTS: [usize; 2] = [1_000, 1_000_000_000];
/// Most passes.
const MOST_PASSES: usize = 1_000_000;
/// Most seconds between two beginnings of the load that disturbs numa-test.
const MOST_EVERY: usize = 3600;
/// Most CPUs of a simulated machine: for each there are several tasks, and each has a stack.
const MOST_CPUS: usize = 512;
/// A simulated machine with up to this many CPUs is small, and more is run on it in the same time.
const SMALL: usize = 32;
/// Runs: the document's, those on a large simulated machine, and quick ones on small simulated machines.
const RUNS: [usize; 3] = [10, 3, 3];

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// From the start of the first task to the end of the last.
    elapsed: Duration,
    tasks: Vec<TaskReport>,
}

/// What must be done, and how often.
#[derive(Debug)]
pub struct Job {
    program: PathBuf,
    size: Size,
    plans: Vec<Plan>,
    runs: usize,
    runs_of_a_quick_run: usize,
    simulated: bool,
    scheduler: Scheduler,
}

impl Job {
    /// The rows of a plan.
    fn rows(&self, plan: &Plan) -> &'static [Row] {
        self.scheduler.rows(plan.scenario, self.simulated)
    }

    /// What is run in sequence, plans by their index, and rows: forwards in one run and backwards in the next. Loading a scheduler takes
    /// seconds, so the rows that need the same one run one after the other.
    fn steps(&self, run: usize) -> Vec<(usize, Row)> {
        let plans = self.plans.iter().enumerate();
        let mut steps: Vec<(usize, Row)> = plans
            .flat_map(|(at, plan)| self.rows(plan).iter().map(move |row| (at, *row)))
            .collect();
        if !self.simulated {
            steps.sort_by_key(|(_, row)| row.own_bonus());
        }
        if run % 2 == 1 {
            steps.reverse();
        }
        steps
    }

    /// Whether numa_test is run as in the document, on its machine.
    fn is_published(&self, machine: &Machine) -> bool {
        machine.name() == figures::MACHINE && self.size.is_published()
    }
}

type Facts<'f> = harness::Facts<'f, HomeOptions>;

impl Experiment for HomeOptions {
    const NAME: &'static str = "home";
    type Plan = Job;
    /// The first run of each plan.
    type Found = Vec<Vec<(Row, Ran)>>;
    type Verdict = Vec<Goal>;

    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self, machine: &Machine) -> Result<Job, Error> {
        let walks = self.scenario.as_ref().is_none_or(|scenario| scenario == "numa-test");
        for (option, is_given) in [
            ("--tasks", self.tasks.is_some()),
            ("--problem-size", self.problem_size.is_some()),
            ("--passes", self.passes.is_some()),
            ("--storm-every", self.storm_every.is_some()),
        ] {
            means_something(option, is_given, walks, "--scenario numa-test")?;
        }
        if let Some(duration) = self.common.duration {
            return Err(Error::input(format!(
                "--duration {}: a run lasts as long as its work; give --passes instead",
                duration.as_secs_f64()
            )));
        }
        let program = self.program.clone().map_or_else(std::env::current_exe, Ok);
        let program = program.map_err(|error| {
            Error::run(format!("cannot find the file of this program: {error}"))
        })?;
        let scenarios = Scenario::named(self.scenario.as_deref())?;
        let scheduler = Scheduler::named(self.scheduler.as_deref(), machine, &program)?;
        let (quick, simulated) = (self.common.quick, machine.model().is_some());
        let cpus = machine.parallelism();
        if simulated && cpus > MOST_CPUS {
            return Err(Error::input(format!(
                "this machine has {cpus} CPUs, but the experiment supports at most {MOST_CPUS}; give a smaller machine with --on"
            )));
        }
        let large = simulated && cpus > SMALL;
        let mut distinct = match &self.tasks {
            Some(tasks) => {
                all_within("--tasks", tasks, MOST_TASKS)?;
                tasks.clone()
            }
            None if large && quick => vec![cpus / 2, cpus],
            None if quick && !simulated => vec![cpus, 2 * cpus],
            None => vec![(cpus / 2).max(1), cpus, 2 * cpus, 4 * cpus],
        };
        if let Some(elements) = self.problem_size {
            within("--problem-size", elements, ELEMENTS[0], ELEMENTS[1])?;
        }
        if let Some(passes) = self.passes {
            within("--passes", passes, 1, MOST_PASSES)?;
        }
        if let Some(seconds) = self.storm_every {
            within("--storm-every", seconds, 1, MOST_EVERY)?;
        }
        // On one CPU, half and once the number of CPUs are the same number of tasks.
        distinct.dedup();
        let most = distinct.iter().copied().max().unwrap_or(1);
        let nodes = Nodes::of(machine.topology(), machine.usable());
        let given = (self.problem_size, self.passes);
        let free = (!simulated).then(available_memory).flatten();
        let every = self.storm_every.map(|seconds| Duration::from_secs(seconds as u64));
        let size = Size::of(machine, nodes, quick, given, free, most);
        let size = Size { storm_every: every, ..size };
        let mut plans = Vec::new();
        for scenario in scenarios {
            match scenario {
                Scenario::NumaTest => {
                    plans.extend(distinct.iter().map(|tasks| size.numa_test(*tasks)))
                }
                Scenario::Displace if quick => plans.push(size.displace(cpus)),
                Scenario::Displace => {
                    plans.extend([cpus, 2 * cpus].map(|tasks| size.displace(tasks)))
                }
                Scenario::Overload => plans.push(size.overload()),
            }
        }
        let runs_of_a_quick_run = if simulated && !large { RUNS[2] } else { 1 };
        let runs = match (quick, large) {
            (true, _) => runs_of_a_quick_run,
            (false, true) => RUNS[1],
            (false, false) => RUNS[0],
        };
        let runs = self.common.runs.unwrap_or(runs);
        Ok(Job { program, size, plans, runs, runs_of_a_quick_run, simulated, scheduler })
    }

    fn measure(&self, run: &mut Run<'_>, job: &mut Job) -> Result<Self::Found, Error> {
        let (machine, nodes) = (run.machine, &job.size.nodes);
        let mut runner = real::Runner::new(&job.program);
        let mut first = Vec::new();
        run.begin(job.runs * job.plans.iter().map(|plan| job.rows(plan).len()).sum::<usize>());
        for number in 0..job.runs {
            let mut samples: Vec<Vec<(Row, Ran)>> = job.plans.iter().map(|_| Vec::new()).collect();
            for (at, row) in job.steps(number) {
                let plan = &job.plans[at];
                let what = format!("run {}, {}: {}", number + 1, plan.title(), row.name());
                let ran = run.step(what, || {
                    if job.simulated {
                        Ok(simulated::run(machine, nodes, plan, row, number as u64)?.0)
                    } else {
                        runner.run(nodes, plan, row)
                    }
                })?;
                samples[at].push((row, ran));
            }
            for (plan, mut samples) in job.plans.iter().zip(samples) {
                // In the order of the tables, whatever the order of the measurements.
                samples.sort_by_key(|(row, _)| job.rows(plan).iter().position(|one| one == row));
                figures::collect(&mut run.figures, plan, &samples);
                if number == 0 {
                    first.push(samples);
                }
            }
        }
        figures::compare(&mut run.figures, &job.plans, job.is_published(machine));
        Ok(first)
    }

    fn too_small(&self, machine: &Machine, job: &Job) -> Result<Option<String>, Error> {
        Ok(too_small(machine, [job.runs, job.runs_of_a_quick_run], &[]))
    }

    fn judge(facts: &Facts<'_>) -> Vec<Goal> {
        let job = &facts.plan;
        if facts.too_small.is_some() || job.size.nodes.is_single() {
            return Vec::new();
        }
        figures::judge(&facts.rows, &job.plans, job.is_published(facts.machine))
    }

    fn parameters(facts: &Facts<'_>) -> Value {
        let job = &facts.plan;
        let rows = job.plans.iter().flat_map(|plan| job.rows(plan));
        // Otherwise the scheduler is the kernel's, whichever that is.
        let known = job.simulated || job.scheduler != Scheduler::Stock;
        let scheduler = |row: &Row| (row.name().to_owned(), row.scheduler().into());
        let schedulers = rows.filter(|_| known).map(scheduler).collect();
        let node = |node: &nearq_home::Node| json!({"id": node.id, "cpus": node.cpus.to_list()});
        let storm = job.plans.iter().find_map(|plan| plan.storm);
        json!({
            "scheduler": job.scheduler.name(),
            "schedulers": Value::Object(schedulers),
            "runs": job.runs,
            "scenarios": job.plans.iter().map(Plan::title).collect::<Vec<_>>(),
            "nodes": job.size.nodes.iter().map(node).collect::<Vec<_>>(),
            "problem_size": job.size.elements,
            "problem_size_why": job.size.why,
            "bytes_per_task": job.size.elements * task::ELEMENT,
            "passes": job.size.passes,
            "storm_processes": storm.map(|storm| storm.processes()),
            "storm_every_s": storm.and_then(|storm| storm.every).map(|every| every.as_secs()),
            "memory_policy_refused": refused(facts),
            "published": published(facts),
            "goals": facts.verdict,
        })
    }

    fn text(facts: &Facts<'_>) -> String {
        render::text(facts)
    }
}

/// The document's figures beside those of its kernel's scheduler here, if it is the same test.
fn published(facts: &Facts<'_>) -> Vec<figures::Compared> {
    if facts.plan.is_published(facts.machine) {
        figures::published(&facts.rows, &facts.plan.plans)
    } else {
        Vec::new()
    }
}

/// What one run of a row of numa_test took, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Walk {
    pub(crate) row: Row,
    pub(crate) elapsed: f64,
    /// The user time of a task.
    pub(crate) average_user: f64,
}

/// A numa_test of this many passes, with a task for every other CPU of the simulated machine; the rest may be that of a quick run.
fn short_numa_test(machine: &Machine, passes: usize, quick: bool) -> Result<Job, Error> {
    let common = Common { machine: machine.name().into(), quick, ..Common::default() };
    let options = HomeOptions {
        common,
        scenario: Some(Scenario::NumaTest.name().into()),
        tasks: Some(vec![(machine.parallelism() / 2).max(1)]),
        passes: Some(passes),
        ..HomeOptions::default()
    };
    options.plan(machine)
}

/// Why numa_test says nothing about homes on a simulated machine, if it does not.
pub(crate) fn refuses(machine: &Machine) -> Option<String> {
    match short_numa_test(machine, 1, false) {
        Err(refused) => Some(refused.to_string()),
        Ok(job) if job.size.nodes.is_single() => {
            Some(format!("it has one node; give a machine such as {}", figures::MACHINE))
        }
        Ok(_) => None,
    }
}

/// One run of each row of a short numa_test with a seed, without those of the document's kernel, for code that varies other parameters; and the hashes of what happened.
pub(crate) fn numa_test(
    machine: &Machine,
    passes: usize,
    quick: bool,
    seed: u64,
) -> Result<(Vec<Walk>, Vec<u64>), Error> {
    let job = short_numa_test(machine, passes, quick)?;
    let (plan, mut samples, mut hashes) = (&job.plans[0], Vec::new(), Vec::new());
    let kept = |row: &&Row| !matches!(row, Row::Before | Row::After);
    let kept: Vec<Row> = job.rows(plan).iter().filter(kept).copied().collect();
    for &row in &kept {
        let (ran, hash) = simulated::run(machine, &job.size.nodes, plan, row, seed)?;
        samples.push((row, ran));
        hashes.push(hash);
    }
    let mut collector = Collector::default();
    figures::collect(&mut collector, plan, &samples);
    let (rows, title) = (collector.rows(), plan.title());
    let walk = |&row: &Row| {
        let of = |metric| figures::mean_of(&rows, &title, row, metric).expect("each row has it");
        Walk { row, elapsed: of(metric::ELAPSED), average_user: of(metric::AVERAGE_USER) }
    };
    Ok((kept.iter().map(walk).collect(), hashes))
}

/// The kernel's error if it refused to place memory.
fn refused<'f>(facts: &'f Facts<'_>) -> Option<&'f str> {
    let mut reports = facts.found.iter().flatten().flat_map(|(_, ran)| &ran.tasks);
    reports.find_map(|report| report.refused.as_deref())
}

#[cfg(test)]
mod tests;
