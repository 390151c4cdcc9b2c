//! `nearq-bench`: the commands `nearq bench` and `nearq sim`.
//!
//! `nearq` replaces itself by this program, so it calls itself `nearq`, takes the same arguments and has the same exit statuses. It is a
//! separate program because it is built with every pool, lock and plotting library that the experiments use.

mod bench;
mod nearq;
mod refused;
mod sim;
mod soak;

use clap::{CommandFactory, Parser, Subcommand};
use nearq_command::{Failure, arguments, completion, man, signals};
use std::process::ExitCode;

/// This allocator makes simulated runs repeatable; everything else gets the C library's allocator.
#[global_allocator]
static ALLOCATOR: nearq_sim::Switched = nearq_sim::Switched;

/// The experiments of nearq, on this machine and on simulated ones
#[derive(Debug, Parser)]
#[command(name = "nearq", bin_name = "nearq", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an experiment and print its table
    Bench {
        #[command(subcommand)]
        experiment: bench::Experiment,
    },
    /// Test the runtime on a simulated machine, or see how results depend on the machine's costs
    Sim {
        #[command(subcommand)]
        question: sim::Question,
    },
}

fn main() -> ExitCode {
    signals::outlive_file_limit();
    if let Some(result) = asked_by_nearq() {
        return result.map_or_else(|failure| failure.report("nearq"), |()| ExitCode::SUCCESS);
    }
    let result = refused::run(|| match arguments::parsed() {
        Ok(Cli { command: Command::Bench { experiment } }) => bench::run(&experiment),
        Ok(Cli { command: Command::Sim { question } }) => sim::run(&question),
        Err(error) => arguments::refused_by(&Cli::command(), &error),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("nearq"),
    }
}

/// What `nearq` asks this program for its own completions and manual pages.
fn asked_by_nearq() -> Option<Result<(), Failure>> {
    if let Some(words) = completion::asked() {
        return Some(completion::answer(Cli::command(), &words, |_| None));
    }
    man::asked().map(|folder| man::run_inner("nearq", Cli::command(), &folder))
}

/// The failure of an experiment that cannot be run, or that failed.
fn failed(error: nearq_report::Error) -> Failure {
    Failure::with_status(error.exit_status(), error)
}

#[cfg(test)]
#[path = "../../nearq-command/tests/help/mod.rs"]
mod help;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_lines_are_wrapped_to_the_width() {
        help::check(&Cli::command());
    }

    #[test]
    fn all_commands_are_listed() {
        assert_eq!(
            arguments::commands_of(&Cli::command()),
            "`bench scopes`, `bench dispatch`, `bench blocking`, `bench join`, `bench highpri`, `bench lock`, `bench rwlock`, `bench home`, `bench numa`, `sim calibrate`, `sim lines`, `sim score`, `sim sensitivity`, `sim soak`"
        );
    }
}
