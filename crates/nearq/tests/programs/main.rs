//! What programs that use nearq can rely on in any environment.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]

#[path = "../../../nearq-platform/tests/filter/mod.rs"]
mod filter;
#[path = "../../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;

#[cfg(feature = "control")]
mod auto_traits;
#[cfg(feature = "control")]
mod control;
mod errors;
mod interface;
mod machine;
#[cfg(feature = "control")]
mod variables;
