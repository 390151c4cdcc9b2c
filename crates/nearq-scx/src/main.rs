//! The command `nearq-scx`: a scheduler of the whole machine that knows home nodes, loaded into the kernel.
//!
//! | file | does |
//! |---|---|
//! | `checks` | says what a machine lacks |
//! | `load`, `pins` | the scheduler in the kernel, and its maps, by which other processes find it |
//! | `private` | folders and files that are root's alone |
//! | `start`, `hotplug` | loads it, follows it and the CPUs, unloads it |
//! | `memory`, `residency`, `remedy`, `crowd`, `pages`, `decisions` | dynamic homes |
//! | `state`, `status`, `tasks`, `top`, `metrics` | show what it does, to people and programs |
//! | `set`, `weights` | what can be set, and homes that are told |
//!
//! The part that the kernel runs is in `bpf/`; what it decides is in the crate `nearq-scx-policy`.

// This is a Linux program: it inspects real processes in real time.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod checks;
mod crowd;
mod decisions;
#[cfg(test)]
mod files;
mod hotplug;
mod load;
mod memory;
mod metrics;
mod output;
mod pages;
mod pins;
mod private;
mod remedy;
mod residency;
mod set;
#[cfg(test)]
#[path = "../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;
mod start;
mod state;
mod status;
mod tasks;
mod top;
mod weights;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use nearq_command::{arguments, completion, man, signals};
use output::Failure;

/// A scheduler for the whole machine that knows home nodes: each task runs where its memory is, while there is room
#[derive(Debug, Parser)]
#[command(name = "nearq-scx", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  nearq-scx start                   run the scheduler until Ctrl-C
  nearq-scx start -- make -j64      run it only while a command runs
  nearq-scx status                  show what it does, by node
  nearq-scx status --task 4711      show where a process is at home, and why
  nearq-scx top                     watch what it does, by node
  nearq-scx set stay 50ms           change a weight while it runs
  nearq-scx tell 4711 1             set the home of a process to node 1

It needs Linux 6.12 or later with CONFIG_SCHED_CLASS_EXT, and root. The kernel
returns to its own scheduler when `start` ends, however it ends.

Exit status: 0; 1 if something went wrong; 2 if the request is invalid or not
possible on this machine. `start` has more: see its help.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Load the scheduler, follow it, and unload it at the end
    Start(start::Options),
    /// Show what the scheduler does, by node, and where tasks are at home
    Status(status::Options),
    /// Watch what the scheduler does, by node, each second
    Top(top::Options),
    /// Print all counts, for a system that stores metrics
    Metrics(metrics::Options),
    /// Change a weight of the scheduler while it runs
    Set(set::SetOptions),
    /// Set the home of a process or a thread
    Tell(set::TellOptions),
    /// Print a script with which a shell completes arguments
    Completions(completion::Options),
    /// Write the manual pages into a folder
    Man(man::Options),
}

fn main() -> ExitCode {
    signals::outlive_file_limit();
    let done = |result: Result<(), Failure>| result.map(|()| ExitCode::SUCCESS);
    if let Some(words) = completion::asked() {
        let answered = done(completion::answer(Cli::command(), &words, |_| None));
        return answered.unwrap_or_else(|failure| failure.report(output::NAME));
    }
    let result = match arguments::parsed() {
        Ok(Cli { command }) => match command {
            Command::Start(options) => start::run(&options),
            Command::Status(options) => done(status::run(&options)),
            Command::Top(options) => done(top::run(&options)),
            Command::Metrics(options) => done(metrics::run(&options)),
            Command::Set(options) => done(set::set(&options)),
            Command::Tell(options) => done(set::tell(&options)),
            Command::Completions(options) => done(completion::run(output::NAME, options)),
            Command::Man(options) => {
                done(man::run(output::NAME, Cli::command(), &options.folder, &[]))
            }
        },
        Err(error) => done(refused(&error)),
    };
    result.unwrap_or_else(|failure| failure.report(output::NAME))
}

/// Prints help and version; turns every other error into one line.
fn refused(error: &clap::Error) -> Result<(), Failure> {
    arguments::refused(error, commands, |_, line| {
        format!("{line}; `nearq-scx --help` and `nearq-scx COMMAND --help` say what is allowed")
    })
}

/// `start, status, ...`: all commands.
fn commands() -> String {
    let command = Cli::command();
    let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    names.join(", ")
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
    fn arguments_are_understood() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).is_ok();
        for right in [
            "nearq-scx start --weight stay=1ms --weight imbalance=5 --no-memory -q -- make -j 4",
            "nearq-scx status --json --task 1 2 3",
            "nearq-scx top",
            "nearq-scx metrics",
            "nearq-scx set stay 50ms",
            "nearq-scx tell 4711 1",
            "nearq-scx tell 4711 --forget",
        ] {
            assert!(parse(right), "{right}");
        }
        for wrong in [
            "nearq-scx start make",
            "nearq-scx tell 4711",
            "nearq-scx tell 0 1",
            "nearq-scx tell -1 1",
            "nearq-scx tell 4711 1 --forget",
            "nearq-scx set stay",
            "nearq-scx top --seconds 0",
            "nearq-scx status --task x",
            "nearq-scx run",
        ] {
            assert!(!parse(wrong), "{wrong}");
        }
    }

    #[test]
    fn errors_of_clap_become_one_line() {
        let error = Cli::try_parse_from(["nearq-scx", "starts"]).unwrap_err();
        let refusal = refused(&error).unwrap_err().to_string();
        assert!(refusal.starts_with("unrecognized subcommand 'starts'"), "{refusal}");
        assert!(
            refusal
                .ends_with("; there are start, status, top, metrics, set, tell, completions, man"),
            "{refusal}"
        );
        assert!(!refusal.contains('\n'), "{refusal}");
    }

    #[test]
    fn help_lines_are_wrapped_to_the_width() {
        help::check(&Cli::command());
    }
}
