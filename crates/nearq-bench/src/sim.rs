//! `nearq sim`: experiments about the simulated machine and about the results found on it.

use crate::{bench, failed, soak};
use clap::{Args, Subcommand};
use nearq_command::{Failure, file, output};
use nearq_experiments::{
    CalibrateOptions, LinesOptions, SensitivityOptions, calibrate, lines, sensitivity,
};
use nearq_report::{Error, Progress};
use std::path::{Path, PathBuf};

const SENSITIVITY_EXAMPLES: &str = "\
The costs of a simulated machine are measurements, and have errors; its rules are choices of a model. This command halves each cost and
raises it by half, and replaces each of four rules by another one, one at a time. It runs the experiments again, and shows which of their
conclusions survive: a table of costs and rules by conclusions, the most influential first. What leaves the runs of an experiment the same
to the last event counts as unused by it.

The rules, and what replaces them:
  home agent   none: it does not matter on which node a line is at home
  wake rule    within the cache: a woken thread searches for an idle CPU under its last-level cache, and not in the rest of its node
  SMT          a busy sibling costs nothing
  far atomics  on: an update of a contended line is executed at its home, in the time of a line from another cache; off, if the machine has them

Examples:
  nearq sim sensitivity --quick
  nearq sim sensitivity --experiment dispatch --json - | jq '.rows[] | select(.median < 0)'
  nearq sim sensitivity --on my-machine.json --experiment scopes
  nearq sim sensitivity --experiment lock --costs \"home agent,far atomics\"
  nearq sim sensitivity --on \"l3:2 core:16\" --costs same_llc,other_llc,wake_up --svg sensitivity.svg";

const CALIBRATE_EXAMPLES: &str = "\
Measures what things cost on this machine, in half a minute to two and without root: lines between CPUs of each distance, contended and own
lines, memory, and the kernel's calls, wake-ups, switches, threads and page faults. Everything is measured again, up to eight times, until
each quantity was the same twice in a row. The file has the quartiles of each quantity, and the costs that follow from them, and --on takes
it. docs/calibrate.md says how to check results with it.

If the machine was too noisy, no file is written: if other programs or the host took more than 5 % of the time, or a quantity drifted by more
than 5 % each time.

Examples:
  nearq sim calibrate -o my.machine
  nearq bench lock --on my.machine
  nearq bench lock --on \"l3:4 core:8@my.machine\"   # its costs, for another shape
  nearq topo --on my.machine --costs";

const LINES_EXAMPLES: &str = "\
Runs a core-to-core benchmark on simulated machines: two CPUs take one line by turns with a compare-exchange. The table has a row for each
distance of the two and each home of the line (the node of its memory), beside the median that was published for the real machine.
For two machines, CPUs add to one word without a pause. It shows what programs see of the costs in a machine file.

Examples:
  nearq sim lines
  nearq sim lines --on epyc-7551-2s
  nearq sim lines --on my.machine --json - | jq '.rows[] | {row, median}'";

const SCORE_EXAMPLES: &str = "\
Each JSON file of the folder is a comparison, as written by `nearq bench NAME --beside-simulated MACHINE --json FILE`. The page has a table of
all, and the figures of each.

Examples:
  nearq bench lock --beside-simulated my.machine --json docs/results/validation/lock-mine.json
  nearq sim score docs/results/validation
  nearq sim score docs/results/validation --output docs/results/validation.md";

/// What to score.
#[derive(Args, Debug)]
pub(crate) struct Score {
    /// The folder with the JSON files of comparisons
    folder: PathBuf,

    /// Write the page, in Markdown, to this file; it is printed if not given
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The subcommands of `nearq sim`.
#[derive(Debug, Subcommand)]
pub(crate) enum Question {
    /// Measure what things cost on this machine, and write a machine file for --on
    #[command(after_help = CALIBRATE_EXAMPLES)]
    Calibrate(CalibrateOptions),
    /// Bounce cache lines between the CPUs of simulated machines, and compare with published figures
    #[command(after_help = LINES_EXAMPLES)]
    Lines(LinesOptions),
    /// Make a page of comparisons with simulated machines: how right the simulator is
    #[command(after_help = SCORE_EXAMPLES)]
    Score(Score),
    /// Vary the costs and rules of the machine, and show which conclusions of the experiments survive
    #[command(after_help = SENSITIVITY_EXAMPLES)]
    Sensitivity(SensitivityOptions),
    /// Run random programs on the runtime while faults occur, and check every promise
    #[command(after_help = soak::EXAMPLES)]
    Soak(soak::Soak),
}

/// Runs the command.
pub(crate) fn run(question: &Question) -> Result<(), Failure> {
    match question {
        Question::Calibrate(options) => measure(options),
        Question::Lines(options) => {
            bench::written(&options.outputs, |progress| lines(options, progress))
        }
        Question::Score(score) => score.run(),
        Question::Sensitivity(options) => {
            bench::written(&options.outputs, |progress| sensitivity(options, progress))
        }
        Question::Soak(options) => options.run(),
    }
}

/// Measures this machine and writes its file. A path that cannot be written is refused before that.
fn measure(options: &CalibrateOptions) -> Result<(), Failure> {
    let path = &options.output;
    options.check().map_err(failed)?;
    probe(path)?;
    let measured = calibrate(options, &Progress::stderr()).map_err(failed)?;
    output::print_text(&measured.text)?;
    let text = measured.file.map_err(failed)?;
    written(path, &text)
}

/// Refuses a file that cannot be written.
fn probe(path: &Path) -> Result<(), Failure> {
    file::probe(path).map_err(|error| failed(Error::input(file::refusal("--output", path, &error))))
}

fn written(path: &Path, text: &str) -> Result<(), Failure> {
    file::write(path, text.as_bytes()).map_err(|error| {
        failed(Error::run(format!("{}: cannot be written: {error}", path.display())))
    })
}

impl Score {
    fn run(&self) -> Result<(), Failure> {
        self.output.as_deref().map_or(Ok(()), probe)?;
        let page = nearq_experiments::validation::page(&self.folder).map_err(failed)?;
        match &self.output {
            Some(path) => written(path, &page),
            None => output::print_text(&page),
        }
    }
}
