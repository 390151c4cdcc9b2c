//! Code that `nearq`, `nearq-bench` and `nearq-scx` share.
//!
//! | file | does |
//! |---|---|
//! | `failure` | how a command ends when it cannot continue: one line and an exit status |
//! | `output` | results and progress messages |
//! | `patient` | standard output and standard error, written completely even if they are non-blocking |
//! | `file` | writes files completely or not at all |
//! | `arguments` | arguments; invalid ones are refused in one line |
//! | `completion` | candidates for the word that is being typed in a shell |
//! | `man` | manual pages |
//! | `exposition` | the formats of metrics |
//! | `help` | help, wrapped to the width of the terminal |
//! | `signals` | the first signal as a message, so that a command can end in an orderly way |
//! | `threads` | threads that the system may refuse |
//! | `screen` | properties of the terminal, and text for it |
//!
//! `tests/guest` and `tests/help` are for the tests of the commands: the former boots virtual machines, the latter checks help.

// These are Linux programs: their threads are the system's.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod arguments;
pub mod completion;
pub mod exposition;
mod failure;
pub mod file;
mod help;
pub mod man;
pub mod output;
mod patient;
pub mod screen;
pub mod signals;
pub mod threads;

pub use failure::{Failure, INPUT, RUN};
pub use help::{for_width, laid_out};
pub use patient::Patient;
