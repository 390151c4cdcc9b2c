//! `nearq sim lines`: what a cache line costs on simulated machines, beside what was published about the real ones.
//!
//! | file | has |
//! |---|---|
//! | `program` | the programs that run on the simulated machine |
//! | `published` | the published figures, and the machines that are not built in |
//! | `machines` | the files of those machines |
//! | `render` | the table and the picture |
//!
//! A simulated machine charges a transfer for each access to a line. What a program sees is another matter: accesses wait for each other, and a
//! failed compare-exchange takes the line too. So the published program runs, on a few pairs of CPUs of each distance and each home of the line.

mod program;
mod published;
mod render;
#[cfg(test)]
mod tests;

use crate::calibrate::places::{Class, Home, Pair, one_of_each_core, pairs_by_home};
use crate::harness::simulated;
use crate::{Error, Machine, Progress};
use clap::Args;
use nearq_report::{Collector, Environment, Outputs, Report, metric};
use published::{ALL, Published};
pub(crate) use render::picture;
use serde_json::json;

/// The options of `lines`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct LinesOptions {
    /// The simulated machine: a name, FILE.json with your own costs (docs/machines.md), or another form that `nearq topo --help` lists. If
    /// not given: each machine about which figures were published
    #[arg(long = "on", value_name = "MACHINE")]
    pub machine: Option<String>,

    #[command(flatten)]
    #[expect(missing_docs, reason = "it would stand in the command's help")]
    pub outputs: Outputs,
}

/// A machine, and what was published about it.
struct Case {
    machine: Machine,
    published: Option<&'static Published>,
}

impl Case {
    /// The machine that the user names.
    fn named(name: &str) -> Result<Self, Error> {
        let machine = match ALL.iter().find(|published| published.name == name) {
            Some(published) => published.machine()?,
            None => Machine::named(name)?,
        };
        if machine.model().is_none() {
            return Err(Error::input(format!(
                "--on {name}: lines are simulated; give a simulated machine, or measure this one with `nearq sim calibrate`"
            )));
        }
        let published = ALL.iter().find(|published| published.name == name);
        Ok(Self { machine, published })
    }

    /// What is run: for a machine with published figures what these are about; for another one a bounce of each distance and home.
    fn tasks(&self, case: usize) -> Vec<Task> {
        let topology = self.machine.topology();
        let mut tasks = Vec::new();
        for (class, home, pairs) in pairs_by_home(topology, self.published.and_then(|of| of.home)) {
            let published = match self.published.map(|of| of.bounce(class, home)) {
                Some(None) => continue,
                found => found.flatten().map(|bounce| bounce.2),
            };
            tasks.extend(pairs.into_iter().map(|pair| {
                let row = bounce_row(class, home);
                Task { case, row, program: Program::Bounce(pair), published }
            }));
        }
        let cores = one_of_each_core(topology, self.machine.usable());
        for &(cpus, nanoseconds, _) in self.published.map_or(&[][..], |of| of.additions) {
            let program = Program::Addition(cores[..cpus].to_vec());
            tasks.push(Task {
                case,
                row: addition_row(cpus),
                program,
                published: Some(nanoseconds),
            });
        }
        tasks
    }
}

/// The row of a bounce.
fn bounce_row(class: Class, home: Home) -> String {
    format!("bounce {}{}", class.cost(), home.suffix())
}

/// The row of additions.
fn addition_row(cpus: usize) -> String {
    format!("contended fetch_add, {cpus} CPU{}", if cpus == 1 { "" } else { "s" })
}

/// What runs.
enum Program {
    Bounce(Pair),
    Addition(Vec<usize>),
}

/// One program to run.
struct Task {
    case: usize,
    row: String,
    program: Program,
    published: Option<f64>,
}

impl Task {
    fn metric(&self) -> metric::Metric {
        match self.program {
            Program::Bounce(_) => metric::BOUNCE,
            Program::Addition(_) => metric::ADDITION,
        }
    }

    fn run(&self, machine: &Machine, seed: u64) -> Result<f64, Error> {
        match &self.program {
            Program::Bounce(pair) => program::bounce(machine, *pair, seed),
            Program::Addition(cpus) => program::addition(machine, cpus, seed),
        }
    }
}

/// Runs the published programs on simulated machines.
pub fn lines(options: &LinesOptions, progress: &Progress) -> Result<Report, Error> {
    let result = compare(options, progress);
    progress.end();
    result
}

fn compare(options: &LinesOptions, progress: &Progress) -> Result<Report, Error> {
    let cases: Vec<Case> = match &options.machine {
        Some(name) => vec![Case::named(name)?],
        None => ALL.iter().map(|of| Case::named(of.name)).collect::<Result<_, Error>>()?,
    };
    let tasks = cases.iter().enumerate().flat_map(|(number, case)| case.tasks(number));
    let what =
        |_, (_, task): &(u64, Task)| format!("{}, {}", cases[task.case].machine.name(), task.row);
    // Each program has a seed of its own.
    let numbered: Vec<(u64, Task)> = (1..).zip(tasks).collect();
    let taken = simulated::all(&numbered, progress, what, |(seed, task)| {
        task.run(&cases[task.case].machine, *seed)
    })?;
    let mut collector = Collector::default();
    for ((_, task), taken) in numbered.iter().zip(taken) {
        let scenario = cases[task.case].machine.name();
        collector.add(scenario, &task.row, task.metric(), taken);
        if let Some(published) = task.published {
            collector.publish(scenario, &task.row, task.metric(), published);
        }
    }
    let rows = collector.rows();
    let listed = |of: fn(&Case) -> &str| cases.iter().map(of).collect::<Vec<_>>().join(", ");
    let about = listed(|case| case.machine.model().map_or("", |model| model.about()));
    let cpus = cases.iter().map(|case| case.machine.parallelism()).max().unwrap_or(0);
    let mut report = Report {
        experiment: "lines",
        machine: listed(|case| case.machine.name()),
        environment: Environment::simulated(&about, cpus),
        parameters: json!({}),
        quartiles: collector.quartiles(),
        text: render::text(&cases, &rows),
        svg: String::new(),
        rows,
    };
    report.svg = picture(&report);
    Ok(report)
}
