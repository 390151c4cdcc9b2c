//! What programs that use nearq can rely on, whatever is around them.

#![cfg(feature = "control")]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]

#[path = "../../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;

mod control;
mod errors;
mod variables;
