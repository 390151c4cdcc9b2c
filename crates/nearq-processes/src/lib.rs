//! Homes of whole processes of other programs: where the processes run and what they use, which of them are let out of a crowded home, and
//! which are brought back.
//!
//! | file | does |
//! |---|---|
//! | `proc` | reads what the kernel says about CPUs, threads and memory in `/proc` |
//! | `observe` | what CPUs and tasks have done since the last measurement |
//! | `survey` | which processes live where now, on the whole machine |
//! | `tree` | the table that all processes of a tree share, the process that keeps it, and how a tree is started |
//! | `rebalancer` | once per period measures, lets [`nearq_home::SoftAffinity`] decide, and changes the masks of threads; keeps accounts |
//! | `jobs` | runs a command for each of many inputs, each job at home on a node |
//! | `search` | which file a command is |
//! | `system` | signals and processes, as the system has them |
//!
//! In this crate, a *task* is a process together with all processes that it has started, except those that are tasks of their own. A task
//! need not do anything for its home: everything is done from outside, through the CPU masks of its threads.

// This crate is for Linux: it reads real processes in real time.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod jobs;
pub mod observe;
pub mod proc;
mod rebalancer;
mod search;
#[cfg(test)]
#[path = "../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;
pub mod survey;
mod system;
pub mod tree;

pub use rebalancer::{Account, Event, Rebalancer};
