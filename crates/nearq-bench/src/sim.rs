//! `nearq sim`: experiments about the simulated machine and about the results found on it.

use crate::{bench, soak};
use clap::Subcommand;
use nearq_command::Failure;
use nearq_experiments::{SensitivityOptions, sensitivity};

const SENSITIVITY_EXAMPLES: &str = "\
The costs of a simulated machine are measurements, and have errors. This command halves each cost and raises it by half, one at a time,
runs the experiments again, and shows which of their conclusions survive: a table of costs by conclusions, the most influential costs
first. A cost counts as unused by an experiment if its runs are the same to the last event.

Examples:
  nearq sim sensitivity --quick
  nearq sim sensitivity --experiment dispatch --json - | jq '.rows[] | select(.median < 0)'
  nearq sim sensitivity --on my-machine.json --experiment scopes
  nearq sim sensitivity --on \"l3:2 core:16\" --costs same_llc,other_llc,wake_up --svg sensitivity.svg";

/// The subcommands of `nearq sim`.
#[derive(Debug, Subcommand)]
pub(crate) enum Question {
    /// Vary the costs of the machine, and show which conclusions of the experiments survive
    #[command(after_help = SENSITIVITY_EXAMPLES)]
    Sensitivity(SensitivityOptions),
    /// Run random programs on the runtime while faults occur, and check every promise
    #[command(after_help = soak::EXAMPLES)]
    Soak(soak::Soak),
}

/// Runs the command.
pub(crate) fn run(question: &Question) -> Result<(), Failure> {
    match question {
        Question::Sensitivity(options) => {
            bench::written(&options.outputs, |progress| sensitivity(options, progress))
        }
        Question::Soak(options) => options.run(),
    }
}
