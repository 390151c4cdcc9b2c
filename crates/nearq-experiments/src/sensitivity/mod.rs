//! `nearq sim sensitivity`: which conclusions of the experiments survive when the simulated machine costs something
//! else, or has other rules.
//!
//! The costs of a simulated machine are other people's measurements, with errors of their own, and none of them is
//! fitted to a result. So each is halved and raised by half, one at a time, and the experiment is run again. A
//! conclusion that holds throughout does not depend on that number; one that falls says which number to measure better.
//! Four rules of the machine are replaced by another one in the same way: a conclusion that falls then depends on how the
//! machine is modelled.
//!
//! - `question`: what an experiment provides; `questions`: that of each experiment
//! - `variation`: what is varied
//! - `findings`: the effect; `render`: the tables and the picture

mod findings;
mod question;
mod questions;
mod render;
mod variation;

pub use findings::{Cell, Findings, Line, Verdict};
pub use question::{Answer, Bound, Conclusion, Question, Setting};
pub use variation::{Change, Factor, Kind};

use crate::harness::options::{number, within};
use crate::harness::simulated;
use crate::{Error, Machine, Progress};
use clap::Args;
use nearq_report::{Collector, Environment, Outputs, Report, metric};
use serde_json::json;
use variation::{check_names, factors};

/// The value of `--experiment` for all of them.
pub const ALL: &str = "all";
/// Most seeds.
const MOST_RUNS: usize = 1000;

/// The options of `sensitivity`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct SensitivityOptions {
    /// The simulated machine: a name, FILE.json with your own costs (docs/machines.md), or another form that `nearq topo --help` lists. If
    /// not given: the machine of each experiment's document
    #[arg(long = "on", value_name = "MACHINE")]
    pub machine: Option<String>,

    /// The experiment whose conclusions are tested: `scopes`, `dispatch`, `join`, `lock`, `home`, `highpri`, `numa`, or `all` that have
    /// conclusions for the machine
    #[arg(long, value_name = "EXPERIMENT", default_value = ALL)]
    pub experiment: Option<String>,

    /// Vary only these: names of costs, of rules of the machine ("home agent", "wake rule", SMT, "far atomics") or of parts of the load of
    /// `scopes` (item_work, sha512, generate), separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub costs: Vec<String>,

    /// Shorter runs and fewer seeds
    #[arg(long)]
    pub quick: bool,

    /// How many seeds for each variation, 1 to 1000
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub runs: Option<usize>,

    #[command(flatten)]
    #[expect(missing_docs, reason = "it would stand in the command's help")]
    pub outputs: Outputs,
}

impl SensitivityOptions {
    /// The experiments asked for.
    fn questions(&self) -> Result<Vec<&'static Question>, Error> {
        let wanted = self.experiment.as_deref().unwrap_or(ALL);
        let found: Vec<_> = questions::ALL
            .into_iter()
            .filter(|question| wanted == ALL || question.name == wanted)
            .collect();
        if found.is_empty() {
            return Err(Error::input(format!(
                "--experiment {wanted}: no such experiment, or one without conclusions; give {ALL} or {}",
                questions::ALL.map(|question| question.name).join(", ")
            )));
        }
        Ok(found)
    }

    fn runs(&self) -> Result<usize, Error> {
        let runs = self.runs.unwrap_or(if self.quick { 1 } else { 2 });
        within("--runs", runs, 1, MOST_RUNS)?;
        Ok(runs)
    }
}

/// One experiment on its machine, and everything that is varied.
struct Case {
    question: &'static Question,
    machine: Machine,
    factors: Vec<Factor>,
}

/// A run to do: of which case, what is varied and by how much, and with which seed. With nothing varied, the machine is
/// unchanged.
#[derive(Clone, Copy, Debug)]
struct Task {
    case: usize,
    varied: Option<(usize, Change)>,
    seed: u64,
}

impl Task {
    fn run(self, case: &Case, quick: bool) -> Result<Answer, Error> {
        let varied = self.varied.map(|(factor, change)| (&case.factors[factor], change));
        let machine = match varied {
            Some((factor, change)) => factor.apply(&case.machine, change),
            None => case.machine.clone(),
        };
        let parameter = varied.and_then(|(factor, change)| factor.setting(change));
        let setting = Setting { machine: &machine, parameter, seed: self.seed, quick };
        (case.question.ask)(&setting).map_err(|error| match (error, varied) {
            (Error::Run(text), Some((factor, change))) => {
                Error::run(format!("with {}: {text}", factor.changed(change)))
            }
            (error, _) => error,
        })
    }
}

/// Varies one cost, or one rule, after the other and says which conclusions survive.
pub fn sensitivity(options: &SensitivityOptions, progress: &Progress) -> Result<Report, Error> {
    let result = examine(options, progress);
    progress.end();
    result
}

fn examine(options: &SensitivityOptions, progress: &Progress) -> Result<Report, Error> {
    let (questions, runs) = (options.questions()?, options.runs()?);
    let parameters: Vec<&'static str> =
        questions.iter().flat_map(|question| question.parameters).copied().collect();
    check_names(&options.costs, &parameters)?;
    let (cases, left_out) = cases(options, &questions)?;

    let tasks = tasks(&cases, runs);
    let count = tasks.len();
    let what = |number, _: &Task| format!("simulation {} of {count}", number + 1);
    let answers =
        simulated::all(&tasks, progress, what, |task| task.run(&cases[task.case], options.quick))?;
    let mut answered: Vec<(Task, Answer)> = tasks.into_iter().zip(answers).collect();
    let mut collector = Collector::default();
    let mut all = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let of_case = answered.extract_if(.., |(task, _)| task.case == number).collect::<Vec<_>>();
        let of_case = of_case.into_iter().map(|(task, answer)| (task.varied, answer));
        let findings = Findings::new(
            case.question,
            options.quick,
            &case.machine,
            case.factors.clone(),
            of_case.collect(),
        );
        findings.collect(&mut collector);
        all.push(findings);
    }
    let rows = collector.rows();
    let text = render::text(&all, &left_out, runs, options.quick);
    let svg = render::picture(&all);
    let parameters = json!({
        "quick": options.quick,
        "runs": runs,
        "experiments": all.iter().map(Findings::json).collect::<Vec<_>>(),
        "left_out": left_out,
    });
    let listed = |of: &dyn Fn(&Case) -> &str| {
        let mut names: Vec<&str> = cases.iter().map(of).collect();
        names.dedup();
        names.join(", ")
    };
    let machine = listed(&|case| case.machine.name());
    let about = listed(&|case| case.machine.model().map_or("", |model| model.about()));
    let cpus = cases.iter().map(|case| case.machine.parallelism()).max().unwrap_or(0);
    let environment = Environment::simulated(&about, cpus);
    Ok(Report {
        experiment: "sensitivity",
        machine,
        environment,
        parameters,
        rows,
        quartiles: Vec::new(),
        text,
        svg,
    })
}

/// The experiments on their machines, and which of several are left out because they have no conclusions for the machine.
fn cases(
    options: &SensitivityOptions,
    questions: &[&'static Question],
) -> Result<(Vec<Case>, Vec<String>), Error> {
    let (mut cases, mut left_out) = (Vec::new(), Vec::new());
    for &question in questions {
        let machine = Machine::named(options.machine.as_deref().unwrap_or(question.machine))?;
        let machine = if question.has_noise { machine.with_noise() } else { machine };
        let factors = factors(&machine, question.parameters, &options.costs)?;
        match question.check(&machine) {
            Ok(()) => cases.push(Case { question, machine, factors }),
            Err(refused) if questions.len() == 1 => return Err(refused),
            Err(refused) => left_out.push(refused.to_string()),
        }
    }
    Ok((cases, left_out))
}

/// Every run that is needed: of each case, unchanged and with each factor less and more, each with every seed.
fn tasks(cases: &[Case], runs: usize) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (case, Case { factors, .. }) in cases.iter().enumerate() {
        let varied = factors.iter().enumerate().flat_map(|(number, factor)| {
            factor.changes.into_iter().flatten().map(move |change| Some((number, change)))
        });
        for varied in std::iter::once(None).chain(varied) {
            tasks.extend((0..runs as u64).map(|seed| Task { case, varied, seed }));
        }
    }
    tasks
}

impl Findings {
    /// Puts all margins into the rows of a report.
    fn collect(&self, collector: &mut Collector) {
        let mut add = |scenario: &str, margins: &[Vec<f64>]| {
            for (conclusion, runs) in self.conclusions.iter().zip(margins) {
                let row = format!("{}: {}", self.experiment, conclusion.name);
                for &margin in runs {
                    collector.add(scenario, &row, metric::MARGIN, margin);
                }
            }
        };
        add("as it is", &self.base.margins);
        for line in &self.lines {
            for cell in line.cells.iter().flatten() {
                add(&line.name_of(cell), &cell.margins);
            }
        }
    }

    /// What rows do not hold.
    fn json(&self) -> serde_json::Value {
        let conclusions = self.conclusions.iter().enumerate().map(|(number, one)| {
            json!({
                "name": one.name,
                "bound": one.bound.to_string(),
                "value": self.base.values[number],
                "holds": self.too_small.is_none().then(|| self.base.holds(number)),
                "falls_with": self.falls_with(number),
            })
        });
        json!({
            "name": self.experiment,
            "machine": self.machine,
            "size": self.size,
            "too_small": self.too_small,
            "conclusions": conclusions.collect::<Vec<_>>(),
            "not_used": self.unused().collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_options_are_refused() {
        let refused = |options: SensitivityOptions| {
            let error = sensitivity(&options, &Progress::hidden()).unwrap_err();
            assert_eq!(error.exit_status(), 2, "{error}");
            error.to_string()
        };
        let plain = SensitivityOptions::default;
        let text = refused(SensitivityOptions { experiment: Some("rwlock".into()), ..plain() });
        assert!(text.contains("--experiment rwlock") && text.contains("dispatch"), "{text}");
        let text = refused(SensitivityOptions { runs: Some(0), ..plain() });
        assert_eq!(text, "--runs 0: give a number from 1 to 1000");
        let text = refused(SensitivityOptions { costs: vec!["luck".into()], ..plain() });
        assert!(
            text.starts_with("--costs luck: no such cost") && text.contains("wake rule"),
            "{text}"
        );
        let text = refused(SensitivityOptions { machine: Some("here".into()), ..plain() });
        assert!(text.contains("--on here") && text.contains("simulated"), "{text}");
        let text = refused(SensitivityOptions {
            machine: Some("core:2".into()),
            experiment: Some("dispatch".into()),
            ..plain()
        });
        assert!(text.contains("no conclusions for core:2"), "{text}");
    }

    #[test]
    fn a_quick_run_does_a_sixth_of_the_work_as_far_as_it_can() {
        // The storm of `home` and the crowd of `highpri` cannot be much smaller.
        let runs = |quick| SensitivityOptions { quick, ..Default::default() }.runs().unwrap();
        let [full, quick] = [runs(false), runs(true)];
        let is_a_sixth = |sizes: [usize; 2]| 6 * quick * sizes[1] <= full * sizes[0];
        assert!(is_a_sixth(questions::scopes::DURATIONS.map(|time| time.as_millis() as usize)));
        assert!(is_a_sixth(questions::dispatch::ITEMS));
        let lock = |size: questions::lock::Size| {
            size.writers.iter().sum::<usize>() * size.duration.as_millis() as usize
        };
        assert!(is_a_sixth(questions::lock::SIZES.map(lock)));
        assert!(is_a_sixth(questions::numa::FILES));
    }

    #[test]
    fn of_several_experiments_those_without_conclusions_are_left_out() {
        let options = SensitivityOptions { machine: Some("core:2".into()), ..Default::default() };
        let (cases, left_out) = cases(&options, &options.questions().unwrap()).unwrap();
        let names: Vec<_> = cases.iter().map(|case| case.question.name).collect();
        assert_eq!(names, ["scopes", "join", "highpri"]);
        assert_eq!(left_out.len(), 4);
        assert!(left_out[1].starts_with("lock has no conclusions for core:2: "), "{left_out:?}");
    }

    #[test]
    fn every_factor_is_tried_both_ways_with_every_seed() {
        let machine = Machine::named("l3:2 core:2").unwrap();
        let only = ["wake_up", "own_line", "wake rule"].map(String::from);
        let factors = factors(&machine, &[], &only).unwrap();
        let case = Case { question: questions::ALL[1], machine, factors };
        let tasks = tasks(&[case], 2);
        // Unchanged; own_line has no less on this machine; wake_up has both; there is one other rule.
        assert_eq!(tasks.len(), 2 * (1 + 1 + 2 + 1));
        assert!(tasks[..2].iter().all(|task| task.varied.is_none()));
    }
}
