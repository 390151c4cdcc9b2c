//! `nearq bench home`: what it brings that tasks have a home node, by three scenarios.
//!
//! - **numa-test**: the test of the document of 2003, written anew. Tasks walk over memory at random; after three seconds a storm
//!   of 800 small processes pushes them about. How long does it take them?
//! - **displace**: hogs pinned to one node come, displace tasks from it, and go. Are the tasks at home a second later?
//! - **overload**: a node is home of twice as many tasks as it has CPUs, while others idle; then half of the tasks end. Was every
//!   CPU used, and do those come home that had to leave?
//!
//! Each is run without homes (the kernel alone), with homes (picked when a task starts, kept by the keeper of `nearq_home`), and with
//! dynamic homes, which follow the memory. On the real machine (`real`) tasks are processes of this command; on a simulated
//! one (`simulated`) they are simulated processes whose accesses are declared, and there is one more row: tasks pinned in turn to
//! the CPUs of all nodes with their memory beside them (`oracle`), which no system that has to find that out can beat by much.
//!
//! A task keeps its own account (`account`): it looks at its node and its clocks every 20,000 updates.

mod account;
mod figures;
mod goals;
mod placing;
mod plan;
mod published;
mod real;
pub(crate) mod render;
mod scheduler;
mod simulated;
mod storm;
mod task;
mod watch;

pub use goals::Goal;
pub use real::Child;

use crate::options::{Common, too_small, with_reason, within};
use crate::{Error, Machine, Progress};
use account::Told;
use nearq_home::Nodes;
use nearq_processes::proc::available_memory;
use nearq_report::{Collector, Environment, Report, Watch};
use plan::{Plan, Row, Scenario, Size};
use scheduler::Scheduler;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What `home` can be told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HomeOptions {
    /// What every experiment can be told. A run lasts as long as its work does: `duration` is refused.
    pub common: Common,
    /// One scenario alone: `numa-test`, `displace` or `overload`.
    pub scenario: Option<String>,
    /// How many tasks numa-test has, one table line for each number; half, once, twice and four times the CPUs if not set.
    pub tasks: Option<Vec<usize>>,
    /// Elements of a task of numa-test, of 20 bytes.
    pub problem_size: Option<usize>,
    /// Passes of a task of numa-test.
    pub passes: Option<usize>,
    /// The kernel's scheduler: `stock`, its own, if not set; `home`, the node affine one, beside the other without
    /// homes; or `both`.
    pub scheduler: Option<String>,
    /// The command whose `bench home-child` the processes on the real machine are; this very program if not set.
    pub program: Option<PathBuf>,
}

/// Most tasks.
const MOST_TASKS: usize = 4096;
/// Fewest and most elements.
const ELEMENTS: [usize; 2] = [1_000, 1_000_000_000];
/// Most passes.
const MOST_PASSES: usize = 1_000_000;
/// Most CPUs of a simulated machine: for each there are several tasks, and each has a stack.
const MOST_CPUS: usize = 512;
/// Up to so many CPUs a simulated machine is small, and more is run on it in the same time.
const SMALL: usize = 32;
/// Runs: the document's, those on a large simulated machine, and quick ones on small simulated machines.
const RUNS: [usize; 3] = [10, 3, 3];

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
struct Ran {
    /// From the start of the first task to the end of the last.
    elapsed: Duration,
    tasks: Vec<Told>,
}

/// What is to be done, and how often.
struct Job {
    size: Size,
    plans: Vec<Plan>,
    runs: usize,
    runs_of_a_quick_run: usize,
    simulated: bool,
    scheduler: Scheduler,
}

impl HomeOptions {
    fn job(&self, machine: &Machine, program: &Path) -> Result<Job, Error> {
        self.common.check()?;
        if let Some(duration) = self.common.duration {
            return Err(Error::input(format!(
                "--duration {}: a run lasts as long as its work; give --passes",
                duration.as_secs_f64()
            )));
        }
        let scenarios = Scenario::named(self.scenario.as_deref())?;
        let scheduler = Scheduler::named(self.scheduler.as_deref(), machine, program)?;
        let (quick, simulated) = (self.common.quick, machine.model().is_some());
        let cpus = machine.parallelism();
        if simulated && cpus > MOST_CPUS {
            return Err(Error::input(format!(
                "this machine has {cpus} CPUs, and the experiment is for {MOST_CPUS} at most; give a smaller one (--on)"
            )));
        }
        let large = simulated && cpus > SMALL;
        let tasks = match &self.tasks {
            Some(tasks) => checked(tasks)?,
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
        let mut distinct = tasks;
        distinct.dedup();
        let most = distinct.iter().copied().max().unwrap_or(1);
        let nodes = Nodes::of(machine.topology(), machine.usable());
        let given = (self.problem_size, self.passes);
        let free = (!simulated).then(available_memory).flatten();
        let size = Size::of(machine, nodes, quick, given, free, most);
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
        Ok(Job { size, plans, runs, runs_of_a_quick_run, simulated, scheduler })
    }
}

/// Refuses numbers of tasks that cannot be run.
fn checked(tasks: &[usize]) -> Result<Vec<usize>, Error> {
    if tasks.is_empty() {
        return Err(Error::input(format!(
            "--tasks: give numbers from 1 to {MOST_TASKS}, with commas between them"
        )));
    }
    for (at, number) in tasks.iter().enumerate() {
        within("--tasks", *number, 1, MOST_TASKS)?;
        if tasks[..at].contains(number) {
            return Err(Error::input(format!("--tasks {number}: give each number once")));
        }
    }
    Ok(tasks.to_vec())
}

impl Job {
    /// The rows of a plan.
    fn rows(&self, plan: &Plan) -> &'static [Row] {
        self.scheduler.rows(plan.scenario, self.simulated)
    }

    /// What is run one after the other: plans by their index, and rows, forwards in one run and backwards in the next. To load a scheduler
    /// takes seconds: what needs it is run in one go.
    fn steps(&self, run: usize) -> Vec<(usize, Row)> {
        let backwards = run % 2 == 1;
        let mut steps = Vec::new();
        for (at, plan) in self.plans.iter().enumerate() {
            let mut rows: Vec<Row> = self.rows(plan).to_vec();
            if backwards {
                rows.reverse();
            }
            steps.extend(rows.into_iter().map(|row| (at, row)));
        }
        if !self.simulated {
            steps.sort_by_key(|(_, row)| (*row == Row::Scheduler) != backwards);
        }
        steps
    }
}

/// What the tables are made from, beside the rows.
struct Facts<'f> {
    job: &'f Job,
    machine: &'f Machine,
    /// The first run of each plan.
    first: &'f [Vec<(Row, Ran)>],
    goals: &'f [Goal],
    /// Why nothing is judged, if that is so.
    too_small: Option<String>,
    /// Whether the goals are shown.
    show_goals: bool,
}

/// Runs the experiment.
pub fn home(options: &HomeOptions, progress: &Progress) -> Result<Report, Error> {
    let machine = options.common.on()?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => std::env::current_exe()
            .map_err(|error| Error::run(format!("this program cannot be found: {error}")))?,
    };
    let job = options.job(&machine, &program)?;
    let result = report(options, &machine, &job, &program, progress);
    progress.end();
    result
}

fn report(
    options: &HomeOptions,
    machine: &Machine,
    job: &Job,
    program: &Path,
    progress: &Progress,
) -> Result<Report, Error> {
    let watch = Watch::start(machine.parallelism());
    let mut runner = real::Runner::new(program);
    let mut collector = Collector::default();
    let mut first = Vec::new();
    progress.begin(job.runs * job.plans.iter().map(|plan| job.rows(plan).len()).sum::<usize>());
    for run in 0..job.runs {
        let mut samples: Vec<Vec<(Row, Ran)>> = job.plans.iter().map(|_| Vec::new()).collect();
        for (at, row) in job.steps(run) {
            let plan = &job.plans[at];
            progress.step(format!("run {}, {}: {}", run + 1, plan.title(), row.name()));
            let nodes = &job.size.nodes;
            let ran = if job.simulated {
                simulated::run(machine, nodes, plan, row, run as u64)?
            } else {
                runner.run(nodes, plan, row)?
            };
            samples[at].push((row, ran));
            progress.done();
        }
        for (plan, mut samples) in job.plans.iter().zip(samples) {
            // In the order of the tables, whatever the order of the measurements.
            samples.sort_by_key(|(row, _)| job.rows(plan).iter().position(|other| other == row));
            figures::collect(&mut collector, plan, &samples);
            if run == 0 {
                first.push(samples);
            }
        }
    }
    let publish = machine.name() == published::MACHINE && job.size.is_published();
    figures::compare(&mut collector, &job.plans, publish);
    let rows = collector.rows();
    let too_small = too_small(machine, [job.runs, job.runs_of_a_quick_run], &[]);
    let goals = match too_small {
        Some(_) => Vec::new(),
        None => goals::judge(&rows, &job.plans, publish, job.size.nodes.is_single()),
    };
    let environment = match machine.model() {
        Some(model) => Environment::simulated(model.about(), machine.parallelism()),
        None => watch.finish(),
    };
    let show_goals = options.common.goals;
    let facts = Facts { job, machine, first: &first, goals: &goals, too_small, show_goals };
    let parameters = facts.parameters(options);
    let alone = options.tasks.as_ref().is_some_and(|tasks| tasks.len() == 1);
    let text = facts.text(&rows, &environment, publish, alone);
    let (machine, svg) = (machine.name().to_owned(), String::new());
    let mut report =
        Report { experiment: "home", machine, environment, parameters, rows, text, svg };
    report.svg = render::picture(&report);
    Ok(report)
}

impl Facts<'_> {
    fn parameters(&self, options: &HomeOptions) -> serde_json::Value {
        let job = self.job;
        let plans: Vec<String> = job.plans.iter().map(Plan::title).collect();
        let nodes = job.size.nodes.iter();
        let parameters = json!({
            "quick": options.common.quick,
            "scheduler": job.scheduler.name(),
            "schedulers": self.schedulers(),
            "runs": job.runs,
            "scenarios": plans,
            "nodes": nodes.map(|node| json!({"id": node.id, "cpus": node.cpus.to_list()})).collect::<Vec<_>>(),
            "problem_size": job.size.elements,
            "problem_size_why": job.size.why,
            "bytes_per_task": job.size.elements * task::ELEMENT,
            "passes": job.size.passes,
            "storm_processes": job.plans.iter().find_map(|plan| plan.storm).map(|storm| storm.processes()),
            "memory_policy_refused": self.refused(),
            "goals": self.goals,
        });
        with_reason(parameters, self.too_small.as_deref())
    }

    /// The scheduler of each row, where it is known: otherwise it is the kernel's, whatever that is.
    fn schedulers(&self) -> serde_json::Value {
        let rows = self.job.plans.iter().flat_map(|plan| self.job.rows(plan));
        let of = |row: &Row| (row.name().to_owned(), row.scheduler().into());
        let known = self.job.simulated || self.job.scheduler != Scheduler::Stock;
        serde_json::Value::Object(rows.filter(|_| known).map(of).collect())
    }

    /// What the kernel said where it refused to place memory.
    fn refused(&self) -> Option<&str> {
        let mut told = self.first.iter().flatten().flat_map(|(_, ran)| &ran.tasks);
        told.find_map(|told| told.refused.as_deref())
    }
}

#[cfg(test)]
mod tests;
