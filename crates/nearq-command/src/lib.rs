//! What `nearq`, `nearq-bench` and `nearq-scx` do alike, whatever they are asked for.
//!
//! | file | does |
//! |---|---|
//! | `failure` | how a command ends when it cannot go on: one line and an exit status |
//! | `output` | what it prints, and what it tells while it goes on |
//! | `patient` | standard output and standard error, written whole also where they do not wait |
//! | `file` | files that it writes, whole or not at all |
//! | `arguments` | arguments, and those that cannot be used, refused in one line |
//! | `exposition` | the formats of metrics |
//! | `help` | help laid out for the width of the terminal |
//! | `signals` | the first signal as a message, so that a command ends in an orderly way |
//! | `threads` | threads that the system may refuse |
//! | `screen` | what the terminal is like, and text for it |
//!
//! `tests/guest` and `tests/help` are for the tests of the commands: the former boots virtual machines, the latter looks at help.

// These are Linux programs: their threads are the system's.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod arguments;
pub mod exposition;
mod failure;
pub mod file;
mod help;
pub mod output;
mod patient;
pub mod screen;
pub mod signals;
pub mod threads;

pub use failure::{Failure, INPUT, RUN};
pub use help::{for_width, laid_out};
pub use patient::Patient;
