//! Programs in C under the preload, and how third-party tests are judged.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "the tests run programs")]
#![cfg(not(miri))]

mod common;
#[path = "../../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;

mod control;
mod preload;
mod suites;
