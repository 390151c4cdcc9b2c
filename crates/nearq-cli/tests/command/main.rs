//! The command `nearq`, as users and scripts run it: one test program, with a module for each part of the command.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]

mod common;
#[path = "../../../nearq-platform/tests/filter/mod.rs"]
mod filter;
#[path = "../../../nearq-command/tests/guest/mod.rs"]
mod guest;
mod invented;
mod listed;
mod served;

mod alone;
mod beside_parallel;
mod completions;
mod experiments;
mod frozen;
mod habits;
mod homes;
mod hostile;
mod inspect;
mod inspect_running;
mod job_lists;
mod lost_output;
mod namespaces;
mod refusals;
mod run;
mod run_again;
mod run_ends;
mod run_habits;
mod run_limits;
mod run_near;
mod run_terminal;
mod steering;
mod terminal;
mod top;
mod topo;
mod trace;
mod tune;
mod tutorial;
mod virtual_machine;
mod virtual_machine_homes;
mod virtual_machine_near;
mod virtual_machine_tree;

/// The program that is tested.
const PROGRAM: &str = env!("CARGO_BIN_EXE_nearq");
