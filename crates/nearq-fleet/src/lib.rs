//! Jobs from NATS JetStream: a source of jobs for the engine of `nearq run`, and what puts jobs there and counts them.
//!
//! A stream keeps jobs, a message each. A consumer of the stream gives each job to one worker, which is a `nearq run --from`, and gives it
//! to another one if it hears nothing from the first for the time that is called AckWait. So a job runs **at least once**: a worker that is
//! cut off may still run a job that another one has got meanwhile. A worker keeps a job in its books until the server has confirmed how it ended.
//!
//! ```text
//! submit ─► stream ─► consumer ─► puller ─► engine ─► verdict ─► settle ─► results, dead letters, then the acknowledgement
//!                        ▲           as many as       done,          │
//!                        │           have a place     again, dead    │
//!                        └── "in progress" while a job is alive ◄────┘
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `server` | how to connect |
//! | `api` | the requests of JetStream that are used here, as JSON |
//! | `streams` | streams and consumers: found, checked, made |
//! | `task` | what a message says: the inputs of a job, its command, its deadline |
//! | `verdict` | what the end of a job means for its message |
//! | `delivery` | one delivery of a message, and what can be answered to it |
//! | `source` | the engine's end: credits, jobs, ends, over two channels |
//! | `worker`, `puller` | the server's end, in a thread of its own: gets jobs, says that they are alive |
//! | `settle` | makes the server know how a job has ended, however long that takes |
//! | `submit` | puts jobs into a stream |
//! | `status`, `presence` | how many jobs are where, and what the workers say they run |
//!
//! The asynchronous runtime has one thread, and nothing of it is visible outside of this crate.

// This crate is for Linux: a thread and channels of the standard library.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod api;
mod delivery;
mod presence;
mod puller;
mod server;
mod settle;
mod source;
mod status;
mod streams;
mod submit;
mod task;
mod verdict;
mod worker;

pub use presence::{RunningJob, Worker};
pub use server::Server;
pub use source::{Fleet, Plan, Tally};
pub use status::{Queue, Status, status};
pub use submit::{Kind, Progress, Submission, Submitted, submit};
pub use task::Priority;
