//! Tests on this machine that examine the whole process: its threads, the names of these threads, when they end and how soon they run.
//!
//! Each takes [`common::alone`] first, so that they run one at a time, or does its work in a child process ([`common::command`]).
//! No test may start a thread of the runtime without that lock, or use the default runtime, whose threads stay.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]

#[path = "../common/mod.rs"]
mod common;

mod idleness;
mod memory;
mod observing;
mod progress;
#[cfg(not(any(miri, tsan)))]
mod refused;
#[cfg(not(miri))]
mod rescue;
mod shutdown;
#[cfg(not(miri))]
mod stalls;
