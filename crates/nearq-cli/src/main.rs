//! The command `nearq`: its subcommands, and which module runs each.
//!
//! Exit status: 0, 2 for invalid input, or 1 for a run that failed; `run` has its own, which its help lists. Every refusal is one line on
//! standard error that names the value and what is allowed.

mod attach;
mod complete;
mod dump;
mod experiments;
mod fleet;
mod get;
mod homes;
mod knobs;
mod metrics;
mod output;
mod ps;
mod run;
mod set;
mod top;
mod topo;
mod trace;
mod tune;

use clap::{CommandFactory, Parser, Subcommand};
use nearq_command::{arguments, completion, man, signals};
use output::Failure;
use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

/// Work queues that run work near its data: inspect machines and running programs, tune them, run experiments.
#[derive(Debug, Parser)]
#[command(name = "nearq", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  nearq topo                   the CPUs, caches and nodes of this machine, and the pods of every scope
  nearq top                    what the queues of a running process do
  nearq bench scopes --quick   how much the scopes matter on this machine, in half a minute
  nearq bench dispatch         what queueing an item costs, beside other pools
  nearq run gzip -9 ::: *.log  run a command for each of many inputs; each job has a home node
  nearq run --tree -- make -j  the same for all programs of a build: each chooses a home node
  nearq run --from nats://q:4222 --stream JOBS --consumer encode encode {}
                               the same for the jobs of a queue, on each of many machines
  nearq homes                  which processes have their home on which node
  nearq ps                     the processes that can be inspected
  nearq dump PID               scopes, pools, queues and what runs there
  nearq set PID QUEUE affinity_scope=cache
  nearq trace PID              each item as it is queued, starts and ends
  nearq tune PID QUEUE         which scope is best for a queue
  nearq topo --help            all options of `topo`, with examples

Exit status: 0; 1 on failure; 2 for invalid arguments or input. `nearq run` has more: see its help.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Show a machine: its CPUs, caches and nodes, the pods of every scope, and what this process may use
    Topo(topo::Options),
    /// Run a command for each of many inputs, several at a time, each on the least loaded NUMA node
    Run(Box<run::Options>),
    /// Put jobs into a queue of NATS JetStream, from which `nearq run --from` takes them on any machine
    Submit(fleet::SubmitOptions),
    /// Show how many jobs of such a queue wait, run and are dead, and which workers run them
    Jobs(fleet::BoardOptions),
    /// Show the load and memory of each NUMA node, and the home node and memory of each process
    Homes(homes::Options),
    /// List the processes that can be inspected
    Ps(ps::Options),
    /// Print the state of a process once: scopes, pools, queues, and what runs
    Dump(dump::Options),
    /// Watch the queues of a running process, and change their settings
    Top(top::Options),
    /// Show the settings of a process and its queues
    Get(get::Options),
    /// Change settings of a queue or a process while it runs
    Set(set::Options),
    /// Show the items of a process as they are queued, start and end, or write a file for Perfetto
    Trace(trace::Options),
    /// Find the best scope for a queue by trying each on the running process
    Tune(tune::Options),
    /// Print the metrics of processes, for Prometheus
    Metrics(metrics::Options),
    /// List all settings, with their names in the kernel, the environment and the API
    Knobs(knobs::Options),
    /// Run an experiment and print its table
    Bench(experiments::Options),
    /// Test the runtime on a simulated machine, or see how results depend on the machine's costs
    Sim(experiments::Options),
    /// Print a script with which a shell completes arguments
    Completions(completion::Options),
    /// Write the manual pages into a folder
    Man(man::Options),
}

fn main() -> ExitCode {
    signals::outlive_file_limit();
    if let Some(words) = completion::asked() {
        return ended(complete(&words));
    }
    let result = match arguments::parsed() {
        Ok(Cli { command }) => match command {
            Command::Topo(options) => topo::run(&options),
            Command::Run(options) => {
                return run::run(&options).unwrap_or_else(report);
            }
            Command::Submit(options) => fleet::submit(&options),
            Command::Jobs(options) => fleet::board(&options),
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
            Command::Bench(_) | Command::Sim(_) => experiments::run(),
            Command::Completions(options) => completion::run("nearq", options),
            Command::Man(options) => write_manual(&options),
        },
        Err(_) if experiments::help_is_asked_for(env::args_os().skip(1)) => experiments::run(),
        Err(error) => {
            run::refused(&error).map_or_else(|| arguments::refused_by(&Cli::command(), &error), Err)
        }
    };
    ended(result)
}

fn ended(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(failure),
    }
}

/// Prints candidates for the last word.
fn complete(words: &[OsString]) -> Result<(), Failure> {
    let of_experiments =
        words.len() > 1 && experiments::COMMANDS.iter().any(|name| words[0] == *name);
    if of_experiments {
        return experiments::become_program(env::args_os().skip(1));
    }
    output::open()?;
    completion::answer(Cli::command(), words, complete::values)
}

/// Writes the manual pages: those of `bench` and `sim` too, if their program is there.
fn write_manual(options: &man::Options) -> Result<(), Failure> {
    man::run("nearq", Cli::command(), &options.folder, &experiments::COMMANDS)?;
    if experiments::is_there() {
        let folder = options.folder.clone().into_os_string();
        return experiments::become_program([man::ASKED.into(), folder].into_iter());
    }
    Ok(())
}

fn report(failure: Failure) -> ExitCode {
    failure.report("nearq")
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
    fn help_is_wrapped_where_necessary() {
        help::check(&Cli::command());
    }

    #[test]
    fn all_commands_are_listed() {
        assert_eq!(
            arguments::commands_of(&Cli::command()),
            "`topo`, `run`, `submit`, `jobs`, `homes`, `ps`, `dump`, `top`, `get`, `set`, `trace`, `tune`, `metrics`, `knobs`, `bench`, `sim`, `completions`, `man`"
        );
    }
}
