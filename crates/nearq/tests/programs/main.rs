//! What programs that use nearq can rely on in any environment.

#![cfg(feature = "control")]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]

#[path = "../../../nearq-platform/tests/filter/mod.rs"]
mod filter;
#[path = "../../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;

mod auto_traits;
mod control;
mod errors;
mod machine;
mod variables;
