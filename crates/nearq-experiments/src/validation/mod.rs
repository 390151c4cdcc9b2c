//! How right the simulator is: one workload on this machine and on a simulated one, beside each other, and a page of many such comparisons.
//!
//! `nearq bench NAME --beside-simulated FILE` runs the experiment twice and makes a [`Comparison`], whose JSON has everything: the simulated
//! machine with its costs, both reports, the conditions, and the commit. `nearq sim score FOLDER` reads all of a folder and makes a page.
//!
//! | file | has |
//! |---|---|
//! | `mod` | the comparison: how it is made, its JSON, its table |
//! | `score` | which figures are compared, and the summary in one line |
//! | `page` | the page of many comparisons |
//!
//! The simulated run has the sizes of the real one wherever a figure depends on them ([`Experiment::sized_as_here`]).

mod page;
mod score;

pub use page::page;
pub use score::{Compared, Score};

use crate::harness::{Experiment, run_on};
use crate::{Error, HERE, Machine, Progress};
use nearq_report::{Environment, Row, Table, rounded};
use nearq_sim::{Calibration, Costs};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// An experiment on this machine and on a simulated one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The experiment's name.
    pub experiment: String,
    /// The commit of nearq, if git knows it; `-dirty` if there were changes.
    pub commit: Option<String>,
    /// The simulated machine.
    pub machine: Model,
    /// The conditions of the run on this machine.
    pub environment: Environment,
    /// The parameters of the run on this machine.
    pub parameters: Value,
    /// The parameters of the simulated run.
    pub simulated_parameters: Value,
    /// The summary.
    pub score: Score,
    /// The figures that are compared.
    pub compared: Vec<Compared>,
    /// All figures that were measured.
    pub measured: Value,
    /// All figures that were simulated.
    pub simulated: Value,
}

/// A simulated machine, as a comparison records it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// What `--beside-simulated` named.
    pub name: String,
    /// What it is, in a line.
    pub about: String,
    /// Its clock, in MHz.
    pub clock_mhz: u64,
    /// What things cost, by name.
    pub costs: BTreeMap<String, u64>,
    /// How it was measured, if `nearq sim calibrate` did that.
    pub calibration: Option<Calibration>,
}

impl Model {
    fn of(machine: &nearq_sim::Machine) -> Self {
        let cost = |name: &&str| Some(((*name).to_owned(), machine.costs().get(name)?));
        Self {
            name: machine.name().into(),
            about: machine.about().into(),
            clock_mhz: machine.clock_mhz(),
            costs: Costs::NAMES.iter().filter_map(cost).collect(),
            calibration: machine.calibration().cloned(),
        }
    }
}

/// The commit of the source that this program was built from, if the source is still there.
fn commit() -> Option<String> {
    let mut git = std::process::Command::new("git");
    git.args([
        "-C",
        env!("CARGO_MANIFEST_DIR"),
        "describe",
        "--always",
        "--abbrev=40",
        "--dirty",
        "--exclude=*",
    ]);
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// Runs an experiment on this machine and on the simulated one that `--beside-simulated` names.
pub fn beside<E: Experiment>(experiment: &E, progress: &Progress) -> Result<Comparison, Error> {
    let result = compare(experiment, progress);
    progress.end();
    result
}

fn compare<E: Experiment>(experiment: &E, progress: &Progress) -> Result<Comparison, Error> {
    let common = experiment.common();
    let name = common.beside_simulated.as_deref().unwrap_or_default();
    let refused = |why: String| Error::input(format!("--beside-simulated {name:?}: {why}"));
    if common.machine != HERE {
        return Err(refused(format!(
            "it compares with this machine, and --on names {:?}; leave --on out",
            common.machine
        )));
    }
    if common.outputs.svg.is_some() {
        return Err(refused("a comparison has no picture; leave --svg out".into()));
    }
    let (here, machine) = (Machine::here()?, common.with_more(Machine::named(name)?));
    let model = machine.model().ok_or_else(|| {
        refused("give a simulated machine, such as a file of nearq sim calibrate".into())
    })?;
    if machine.parallelism() != here.parallelism() {
        return Err(refused(format!(
            "it has {} CPUs, and this process may use {}; give a machine with as many",
            machine.parallelism(),
            here.parallelism()
        )));
    }
    let simulated = run_on(&experiment.sized_as_here(), &machine, progress)?;
    let measured = run_on(experiment, &here, progress)?;
    let compared = score::compare(E::NAME, &measured, &simulated);
    if compared.is_empty() {
        return Err(Error::run("the two runs have no figure in common that can be compared"));
    }
    let rows = |rows: &[Row]| serde_json::to_value(rows).expect("text keys and finite numbers");
    Ok(Comparison {
        experiment: E::NAME.into(),
        commit: commit(),
        machine: Model::of(model),
        score: Score::of(&compared),
        measured: rows(&measured.rows),
        simulated: rows(&simulated.rows),
        environment: measured.environment,
        parameters: measured.parameters,
        simulated_parameters: simulated.parameters,
        compared,
    })
}

impl Comparison {
    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// The text is something else.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        serde_json::from_str(text).map_err(|error| {
            Error::input(format!(
                "not the JSON of a comparison: {error}; give files written by nearq bench NAME --beside-simulated FILE --json FILE"
            ))
        })
    }

    /// The JSON, indented.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("text keys and finite numbers") + "\n"
    }

    /// Whether the machine or its file was noisy.
    pub fn is_noisy(&self) -> bool {
        let calibration = self.machine.calibration.as_ref();
        self.environment.warning().is_some() || calibration.is_some_and(|one| !one.noisy.is_empty())
    }

    /// The table for people.
    pub fn text(&self) -> String {
        let mut table = Table::new(
            "",
            &[
                "scenario, row, metric",
                "measured",
                "first quartile",
                "third quartile",
                "simulated",
                "ratio",
                "band",
            ],
        );
        for one in &self.compared {
            let [first, third] = one.quartiles;
            let mut cells = vec![one.name()];
            cells.extend([one.measured, first, third, one.simulated].map(rounded));
            cells.push(one.ratio().map_or("-".into(), |ratio| format!("{ratio:.2}")));
            cells.push(if one.inside { "inside" } else { "outside" }.into());
            table.row(cells);
        }
        format!(
            "nearq bench {} beside the simulated {} ({})\n{}\n\n{table}\n\
             Inside the band: from the first quartile less {} % to the third quartile and {} %.\n{}\n",
            self.experiment,
            self.machine.name,
            self.machine.about,
            self.environment.describe(),
            score::tolerance_percent(&self.experiment),
            score::tolerance_percent(&self.experiment),
            self.score.line(),
        )
    }
}

#[cfg(test)]
mod tests;
