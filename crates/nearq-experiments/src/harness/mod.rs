//! The common parts of all experiments. An experiment defines only what is specific to it: its options, its load, its contestants and its
//! table. Everything else is in this module, once.
//!
//! | file | has |
//! |---|---|
//! | `options` | the options that all have, as clap's `Args`, and the checks of numbers and names |
//! | `host` | what loads need from a machine beyond `Platform`: [`Host`], for Linux and for the simulator |
//! | `published` | how far a figure is from a published one |
//! | `simulated` | one simulated run, and many side by side |
//! | `table` | rows of figures as cells of a table, and what tables and pictures have in common |
//! | `mod` | [`Experiment`], [`Run`] and [`Facts`] |
//!
//! # How an experiment runs
//! [`run`] takes the options, which are an [`Experiment`], and does this for each:
//! 1. The machine is what `--on` names. The options that all have are checked.
//! 2. [`plan`](Experiment::plan) checks the other options, and says what will be done: sizes, runs, loads.
//! 3. [`measure`](Experiment::measure) carries out the plan. It puts figures into the [`Run`], by scenario, row and metric, and returns its
//!    other findings. [`Run::round`] has all contestants take their turn once, forwards and backwards in alternate rounds; [`Run::step`]
//!    does one thing and moves the bar. On the real machine a row is measured where the program runs; on a simulated one each has a fresh
//!    machine ([`simulate`]), and its seed is the number of the run.
//! 4. The figures of all runs are summarised in rows, and [`too_small`](Experiment::too_small) says why they are not meaningful, if they
//!    are not.
//! 5. [`judge`](Experiment::judge) compares them with the goals of the project.
//! 6. [`parameters`](Experiment::parameters), [`text`](Experiment::text) and [`picture`](Experiment::picture) make the report of these
//!    [`Facts`]. A picture is drawn from the report alone, so that it can be drawn again from its JSON.

pub mod host;
pub mod options;
pub(crate) mod published;
pub mod simulated;
pub mod table;

pub use host::{Bell, Census, EventBell, Host, ParkBell, Role};
pub(crate) use host::{Running, Since, on_cpus, on_thread};
pub use options::Common;
pub(crate) use simulated::waking_within_cache;
pub use simulated::{Simulated, simulate};

use crate::{Error, Machine, Progress, redraw};
use nearq_report::metric::Metric;
use nearq_report::{Collector, Environment, Report, Row, Summary, Watch, find};
use serde_json::Value;

/// An experiment, implemented by its options.
pub trait Experiment: Sized + Clone {
    /// Its name on the command line.
    const NAME: &'static str;
    /// What will be done.
    type Plan;
    /// What is found besides the figures.
    type Found;
    /// The result of comparing with the goals.
    type Verdict: Default;

    /// The options that all experiments have.
    fn common(&self) -> &Common;

    /// Checks the options, and makes a plan for a machine.
    fn plan(&self, machine: &Machine) -> Result<Self::Plan, Error>;

    /// The same options for a simulated machine, with the sizes of a run on this machine, as far as figures depend on them.
    #[must_use]
    fn sized_as_here(&self) -> Self {
        self.clone()
    }

    /// Carries out the plan.
    fn measure(&self, run: &mut Run<'_>, plan: &mut Self::Plan) -> Result<Self::Found, Error>;

    /// Why a run of this plan says nothing about goals, if it is too small.
    fn too_small(&self, machine: &Machine, plan: &Self::Plan) -> Result<Option<String>, Error>;

    /// Compares the figures with the goals.
    fn judge(facts: &Facts<'_, Self>) -> Self::Verdict;

    /// The parameters of the JSON besides the figures. `quick` and `too_small` are added.
    fn parameters(facts: &Facts<'_, Self>) -> Value;

    /// The tables.
    fn text(facts: &Facts<'_, Self>) -> String;

    /// The picture. Most are drawn from the report alone.
    fn picture(facts: &Facts<'_, Self>, report: &Report) -> String {
        redraw(report, facts.show_goals()).expect("all is in the report")
    }
}

/// What is known at the end of an experiment.
#[derive(Debug)]
pub struct Facts<'f, E: Experiment> {
    /// The experiment.
    pub experiment: &'f E,
    /// The machine.
    pub machine: &'f Machine,
    /// What was done.
    pub plan: E::Plan,
    /// What was found beside the figures.
    pub found: E::Found,
    /// The figures.
    pub rows: Vec<Row>,
    /// The conditions.
    pub environment: Environment,
    /// Why nothing is judged, if nothing is.
    pub too_small: Option<String>,
    /// The result of comparing with the goals.
    pub verdict: E::Verdict,
}

/// An experiment under way: where it runs, and where figures go.
#[derive(Debug)]
pub struct Run<'r> {
    /// The machine.
    pub machine: &'r Machine,
    /// The figures.
    pub figures: Collector,
    progress: &'r Progress,
}

impl<'r> Run<'r> {
    pub(crate) fn new(machine: &'r Machine, progress: &'r Progress) -> Self {
        Self { machine, figures: Collector::default(), progress }
    }

    /// Shows what happens before the first step.
    pub fn says(&self, what: String) {
        self.progress.step(what);
    }

    /// Begins, with that many steps to go.
    pub fn begin(&self, steps: usize) {
        self.progress.begin(steps);
    }

    /// Does one step.
    pub fn step<R>(
        &self,
        what: String,
        step: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.progress.step(what);
        let result = step()?;
        self.progress.done();
        Ok(result)
    }

    /// Does many steps in parallel: the steps of simulated machines.
    pub(crate) fn all<T: Sync, R: Send>(
        &self,
        tasks: &[T],
        what: impl Fn(usize, &T) -> String + Sync,
        work: impl Fn(&T) -> Result<R, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        simulated::all(tasks, self.progress, what, work)
    }

    /// One round: each contestant takes its turn, the first one first in even rounds and last in odd rounds. Returns the result of each, in
    /// the order of the contestants.
    pub fn round<C, R>(
        &self,
        round: usize,
        contestants: &[C],
        what: impl Fn(&C) -> String,
        mut turn: impl FnMut(&C) -> Result<R, Error>,
    ) -> Result<Vec<R>, Error> {
        let backwards = !round.is_multiple_of(2);
        let mut order: Vec<&C> = contestants.iter().collect();
        if backwards {
            order.reverse();
        }
        let step = |contestant| self.step(what(contestant), || turn(contestant));
        let mut results = order.into_iter().map(step).collect::<Result<Vec<R>, Error>>()?;
        if backwards {
            results.reverse();
        }
        Ok(results)
    }
}

/// Runs an experiment.
pub fn run<E: Experiment>(experiment: &E, progress: &Progress) -> Result<Report, Error> {
    let machine = experiment.common().on();
    let result = machine.and_then(|machine| run_on(experiment, &machine, progress));
    progress.end();
    result
}

/// As [`run`], on a machine that has already been read.
pub(crate) fn run_on<E: Experiment>(
    experiment: &E,
    machine: &Machine,
    progress: &Progress,
) -> Result<Report, Error> {
    experiment.common().check()?;
    run_plan(experiment, machine, experiment.plan(machine)?, progress)
}

/// As [`run`], with a given plan.
pub(crate) fn run_plan<E: Experiment>(
    experiment: &E,
    machine: &Machine,
    mut plan: E::Plan,
    progress: &Progress,
) -> Result<Report, Error> {
    let watch = Watch::start(machine.parallelism());
    let mut run = Run::new(machine, progress);
    let found = experiment.measure(&mut run, &mut plan)?;
    let environment = match machine.model() {
        Some(model) => Environment::simulated(model.about(), machine.parallelism()),
        None => watch.finish(),
    };
    let (rows, too_small) = (run.figures.rows(), experiment.too_small(machine, &plan)?);
    let verdict = E::Verdict::default();
    let mut facts =
        Facts { experiment, machine, plan, found, rows, environment, too_small, verdict };
    facts.verdict = E::judge(&facts);
    Ok(Report { quartiles: run.figures.quartiles(), ..facts.report() })
}

impl<E: Experiment> Facts<'_, E> {
    fn report(self) -> Report {
        let mut parameters = E::parameters(&self);
        parameters["quick"] = self.experiment.common().quick.into();
        if self.experiment.common().noise {
            parameters["noise"] = true.into();
        }
        if let Some(entries) = self.experiment.common().store_buffer {
            parameters["store_buffer"] = entries.into();
        }
        if let Some(why) = &self.too_small {
            parameters["too_small"] = why.as_str().into();
        }
        let mut report = Report {
            experiment: E::NAME,
            machine: self.machine.name().into(),
            environment: self.environment.clone(),
            parameters,
            rows: self.rows.clone(),
            quartiles: Vec::new(),
            text: E::text(&self),
            svg: String::new(),
        };
        report.svg = E::picture(&self, &report);
        report
    }

    /// The simulated machine, if it is one.
    pub fn model(&self) -> Option<&nearq_sim::Machine> {
        self.machine.model()
    }

    /// Whether goals are asked for.
    pub fn show_goals(&self) -> bool {
        self.experiment.common().goals
    }

    /// The runs of a figure.
    pub fn of(&self, scenario: &str, row: &str, metric: Metric) -> Option<Summary> {
        find(&self.rows, scenario, row, metric).map(|found| found.summary)
    }
}

/// Any error as an error of a run.
pub(crate) fn failed(error: impl std::fmt::Display) -> Error {
    Error::run(error.to_string())
}
