//! `nearq sim`: questions about the simulated machine and about what was found on it.

use crate::{failed, soak};
use clap::{Args, Subcommand};
use nearq_command::Failure;
use nearq_experiments::{SensitivityOptions, sensitivity};
use nearq_report::{Outputs, Progress, Target};
use std::path::PathBuf;

const SENSITIVITY_EXAMPLES: &str = "\
The costs of a simulated machine are measurements with errors of their own. This halves each and raises it by half,
one at a time, runs the experiments again, and shows which of their conclusions survive: a table of costs by
conclusions, with what moves most first. Costs that an experiment does not use are recognised by runs that are the
same to the last event.

Examples:
  nearq sim sensitivity --quick
  nearq sim sensitivity --experiment dispatch --json - | jq '.rows[] | select(.median < 0)'
  nearq sim sensitivity --on \"l3:2 core:16\" --costs same_llc,other_llc,wake_up --svg sensitivity.svg";

/// The questions that there are.
#[derive(Debug, Subcommand)]
pub(crate) enum Question {
    /// Vary what the machine costs, and show which conclusions of the experiments survive
    #[command(after_help = SENSITIVITY_EXAMPLES)]
    Sensitivity(Sensitivity),
    /// Run random programs over the runtime while things go wrong, and check every promise
    #[command(after_help = soak::EXAMPLES)]
    Soak(soak::Soak),
}

/// What `nearq sim sensitivity` can be told.
#[derive(Args, Debug)]
pub(crate) struct Sensitivity {
    /// The simulated machine, as `nearq topo --help` describes it; the one of each experiment's document if not given
    #[arg(long, value_name = "MACHINE")]
    on: Option<String>,

    /// The experiment whose conclusions are examined, or `all`
    #[arg(long, value_name = "EXPERIMENT", default_value = "all")]
    experiment: String,

    /// Vary these costs alone, by name, with commas between them
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    costs: Vec<String>,

    /// Shorter runs and fewer seeds
    #[arg(long)]
    quick: bool,

    /// Seeds for each variation, 1 to 1000
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    runs: Option<usize>,

    /// Write the numbers as JSON into a file; `-` is standard output, and the table goes to standard error then
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,

    /// Draw a picture into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Carries it out.
pub(crate) fn run(question: &Question) -> Result<(), Failure> {
    match question {
        Question::Sensitivity(options) => options.run(),
        Question::Soak(options) => options.run(),
    }
}

impl Sensitivity {
    fn run(&self) -> Result<(), Failure> {
        let json = self.json.as_deref().map(Target::parse);
        let outputs = Outputs::open(json.as_ref(), self.svg.as_deref()).map_err(failed)?;
        let options = SensitivityOptions {
            machine: self.on.clone(),
            experiment: Some(self.experiment.clone()),
            costs: self.costs.clone(),
            quick: self.quick,
            runs: self.runs,
        };
        let report = sensitivity(&options, &Progress::stderr()).map_err(failed)?;
        outputs.write(&report).map_err(failed)
    }
}

/// A number; the experiment knows the limits.
fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "give a whole number, 1 or more".into())
}
