//! Tests on this machine that run side by side: each has its own runtime, and does not depend on what else the process does. A test that
//! examines all threads of the process belongs in `tests/alone`, one that forks in `tests/forks`, and one that changes the process, its
//! environment or its limits does so in a child process ([`common::command`]).

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod bounded;
mod cancelling;
mod clones;
mod delayed;
mod flushing;
#[cfg(not(miri))]
mod foreign;
mod fork_join;
mod futures;
mod handles;
mod join_set;
mod live;
mod machine;
mod model;
#[cfg(not(miri))]
mod priorities;
mod queueing;
mod scoped_handles;
#[cfg(not(miri))]
mod signals;
mod snapshots;
mod spawning;
mod system_queues;
mod timing;
mod unusual_places;
mod without_proc;
