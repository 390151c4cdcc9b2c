//! Jobs from NATS JetStream, with Debian's nats-server: one test program, run by `.ci/steps/fleet` and `.ci/long-steps/fleet`.
//!
//! | module | shows |
//! |---|---|
//! | `faults` | killed workers and jobs, a server that restarts, a network that is cut: no job is lost, and none runs more often than that explains |
//! | `ends` | what is said to the server when jobs end, fail, live long, are stopped, and when workers are asked to end |
//! | `away` | a server that goes away: nothing is lost, and what waits for it says so |
//! | `bad` | bad input: one clear line, and nothing is lost |
//! | `near` | jobs near devices: `--near` with `--from` |
//! | `nats` | a server of a test's own, and a client that knows no more than a test needs |
//! | `proxy` | a network that can be cut |
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]

#[path = "../command/common.rs"]
mod common;

mod away;
mod bad;
mod ends;
mod faults;
mod nats;
mod near;
mod proxy;

/// The command that is tested.
const PROGRAM: &str = env!("CARGO_BIN_EXE_nearq");
