//! Trees of real processes on two pretended homes.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "the tests run programs")]
#![cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]

mod common;
#[path = "../../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;

mod kills;
mod terminal;
mod tree;
