//! `nearq sim`: questions about the simulated machine and about what was found on it.

use crate::{bench, soak};
use clap::Subcommand;
use nearq_command::Failure;
use nearq_experiments::{SensitivityOptions, sensitivity};

const SENSITIVITY_EXAMPLES: &str = "\
The costs of a simulated machine are measurements with errors of their own. This halves each and raises it by half,
one at a time, runs the experiments again, and shows which of their conclusions survive: a table of costs by
conclusions, with what moves most first. Costs that an experiment does not use are recognised by runs that are the
same to the last event.

Examples:
  nearq sim sensitivity --quick
  nearq sim sensitivity --experiment dispatch --json - | jq '.rows[] | select(.median < 0)'
  nearq sim sensitivity --on my-machine.json --experiment scopes
  nearq sim sensitivity --on \"l3:2 core:16\" --costs same_llc,other_llc,wake_up --svg sensitivity.svg";

/// The questions that there are.
#[derive(Debug, Subcommand)]
pub(crate) enum Question {
    /// Vary what the machine costs, and show which conclusions of the experiments survive
    #[command(after_help = SENSITIVITY_EXAMPLES)]
    Sensitivity(SensitivityOptions),
    /// Run random programs over the runtime while things go wrong, and check every promise
    #[command(after_help = soak::EXAMPLES)]
    Soak(soak::Soak),
}

/// Carries it out.
pub(crate) fn run(question: &Question) -> Result<(), Failure> {
    match question {
        Question::Sensitivity(options) => {
            bench::written(&options.outputs, |progress| sensitivity(options, progress))
        }
        Question::Soak(options) => options.run(),
    }
}
