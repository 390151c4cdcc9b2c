//! The command `nearq`: what there is to be told, and where it goes.
//!
//! Exit status (but for `run`, which says in its help): 0, or 2 for input that cannot be used, or 1 for a run that failed. Every refusal is one line on
//! standard error that names the value and what is allowed.

mod attach;
mod bench;
mod dump;
mod get;
mod homes;
mod knobs;
mod metrics;
mod output;
mod ps;
mod run;
mod set;
mod sim;
mod soak;
mod top;
mod topo;
mod trace;
mod tune;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use nearq_command::arguments;
use output::Failure;
use std::process::ExitCode;

/// Simulated runs are repeatable with it; everything else gets what the C library gives.
#[global_allocator]
static ALLOCATOR: nearq_experiments::Allocator = nearq_experiments::Allocator;

/// Work queues that run work near its data: look at a machine and into programs, tune them, and measure.
#[derive(Debug, Parser)]
#[command(name = "nearq", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  nearq topo                   CPUs, caches and nodes of this machine, and the pods of every scope
  nearq top                    what the queues of a running process do
  nearq bench scopes --quick   how much the scopes matter on this machine, in half a minute
  nearq bench dispatch         what queueing an item costs, beside other pools
  nearq run gzip -9 ::: *.log  a command for each of many inputs, each job at home on a node
  nearq run --tree -- make -j  each program that is executed chooses its home node
  nearq homes                  who lives where now
  nearq ps                     the processes that can be looked into
  nearq dump PID               scopes, pools, queues and what runs there
  nearq set PID QUEUE affinity_scope=cache
  nearq trace PID              each item as it is queued, starts and ends
  nearq tune PID QUEUE         which scope is best for a queue
  nearq topo --help            all that `topo` can be told, with examples

Exit status: 0; 1 if a run failed; 2 for input that cannot be used.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Show a machine: its CPUs, caches and nodes, the pods of every scope, and what this process may use
    Topo(topo::Options),
    /// Run a command for each of many inputs, so many at a time, each at home on the node with the least load
    Run(run::Options),
    /// Show who lives where now: for each node what is there, then the processes with homes
    Homes(homes::Options),
    /// List the processes that can be looked into
    Ps(ps::Options),
    /// Show all there is of a process, once: scopes, pools, queues, what runs
    Dump(dump::Options),
    /// Watch the queues of a running process, and change their settings
    Top(top::Options),
    /// Show what is set for a process and its queues, and what is in effect
    Get(get::Options),
    /// Change settings of a queue or a process while it runs
    Set(set::Options),
    /// Show what happens to the items of a process as it happens, or write it into a file that Perfetto opens
    Trace(trace::Options),
    /// Try the scopes on a queue of a process while it works, and say which is best
    Tune(tune::Options),
    /// Print a process's counts for a system that stores metrics, as OpenMetrics
    Metrics(metrics::Options),
    /// List all that can be set, with its names in the kernel, the environment and the API
    Knobs(knobs::Options),
    /// Run an experiment and print its table
    Bench {
        #[command(subcommand)]
        experiment: bench::Experiment,
    },
    /// Question the simulated machine, and what was found on it
    Sim {
        #[command(subcommand)]
        question: sim::Question,
    },
}

fn main() -> ExitCode {
    let result = match Cli::try_parse() {
        Ok(cli) => match cli.command {
            Command::Topo(options) => topo::run(&options),
            Command::Run(options) => {
                return run::run(&options).unwrap_or_else(report);
            }
            Command::Homes(options) => homes::run(&options),
            Command::Ps(options) => ps::run(&options),
            Command::Dump(options) => dump::run(&options),
            Command::Top(options) => top::run(&options),
            Command::Get(options) => get::run(&options),
            Command::Set(options) => set::run(&options),
            Command::Trace(options) => trace::run(&options),
            Command::Tune(options) => tune::run(&options),
            Command::Metrics(options) => metrics::run(&options),
            Command::Knobs(options) => knobs::run(&options),
            Command::Bench { experiment } => bench::run(&experiment),
            Command::Sim { question } => sim::run(&question),
        },
        Err(error) => refused(&error),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(failure),
    }
}

fn report(failure: Failure) -> ExitCode {
    failure.report("nearq")
}

/// Prints help and version; everything else is made into one line.
fn refused(error: &clap::Error) -> Result<(), Failure> {
    arguments::refused(error, commands, |kind, line| {
        if kind == ErrorKind::InvalidUtf8 {
            return format!("{}: arguments must be UTF-8", not_utf8());
        }
        let command = command_of(std::env::args().skip(1));
        format!("{line}; `{command} --help` says what is allowed")
    })
}

/// The first argument that is not UTF-8, in quotes.
fn not_utf8() -> String {
    let argument = std::env::args_os().find(|argument| argument.to_str().is_none());
    format!("\"{}\"", argument.unwrap_or_default().as_encoded_bytes().escape_ascii())
}

/// `nearq bench scopes`: as much of a command as there is among the arguments.
fn command_of(arguments: impl IntoIterator<Item = String>) -> String {
    let mut command = Cli::command();
    let mut words = vec![command.get_name().to_owned()];
    for argument in arguments {
        let Some(inner) = command.find_subcommand(&argument).cloned() else { break };
        command = inner;
        words.push(argument);
    }
    words.join(" ")
}

/// `topo, bench scopes, bench dispatch, ...`: the commands that there are.
fn commands() -> String {
    let mut names = Vec::new();
    for command in Cli::command().get_subcommands() {
        let inner: Vec<String> = command
            .get_subcommands()
            .filter(|inner| !inner.is_hide_set())
            .map(|inner| format!("`{} {}`", command.get_name(), inner.get_name()))
            .collect();
        if inner.is_empty() {
            names.push(format!("`{}`", command.get_name()));
        }
        names.extend(inner);
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_command_is_known_by_its_arguments() {
        let command = |line: &str| command_of(line.split_whitespace().map(String::from));
        assert_eq!(command("bench scopes --runs"), "nearq bench scopes");
        assert_eq!(command("topo topo"), "nearq topo");
        assert_eq!(command("--colour topo"), "nearq");
    }

    #[test]
    fn legends_fit_into_80_columns() {
        // clap breaks longer lines, and columns of words with them. What `top` shows is laid out for wider screens too.
        for name in ["topo", "run", "homes", "ps", "dump", "get", "set", "metrics", "knobs"] {
            let command = Cli::command().find_subcommand(name).cloned().expect("there is one");
            let legend = command.get_after_help().expect("it has a legend").to_string();
            let long: Vec<&str> = legend.lines().filter(|line| line.chars().count() > 80).collect();
            assert!(long.is_empty(), "nearq {name} --help: {long:#?}");
        }
    }

    #[test]
    fn all_commands_are_listed() {
        assert_eq!(
            commands(),
            "`topo`, `run`, `homes`, `ps`, `dump`, `top`, `get`, `set`, `trace`, `tune`, `metrics`, `knobs`, `bench scopes`, `bench dispatch`, `bench blocking`, `bench highpri`, `bench lock`, `bench home`, `bench numa`, `sim sensitivity`, `sim soak`"
        );
    }
}
