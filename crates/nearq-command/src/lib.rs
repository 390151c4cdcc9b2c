//! The manners of a command: what `nearq` and `nearq-scx` do alike whatever they are asked for.
//!
//! | file | does |
//! |---|---|
//! | `failure` | how a command ends when it cannot go on: one line and an exit status |
//! | `output` | what it prints, and what it tells while it goes on |
//! | `arguments` | arguments that cannot be used, refused in one line |
//! | `signals` | the first signal as a message, so that a command ends in an orderly way |
//! | `screen` | how wide the terminal is, and text for it |
//!
//! `tests/guest` is for the tests of both commands: it boots virtual machines.

// These are Linux programs: their threads are the system's.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod arguments;
mod failure;
pub mod output;
pub mod screen;
pub mod signals;

pub use failure::{Failure, INPUT, RUN};
