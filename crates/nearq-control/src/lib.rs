//! The protocol and server through which a live process is inspected and tuned.
//!
//! A process listens on a Unix socket of its own. The command `nearq`, or any program that speaks varlink, connects and makes calls.
//!
//! ```text
//!   client ──► socket ──► server: access, limits, rates ──► target: what can be inspected and set
//!                         (one thread, `nq/control`)        (the runtime, the mutexes)
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `protocol` | the calls and their answers, as data |
//! | `control_target` | what a server needs from the thing that it answers for |
//! | `server` | answering: one thread, and the limits of what it does for clients |
//! | `socket` | where the socket is, and how it is made |
//! | `find` | the processes that can be inspected |
//! | `client` | asking a process |
//! | `locks` | the mutexes of this process; a process without a runtime has nothing else |
//! | `settings_table` | everything that can be set: its names in the kernel, the environment and the API, and how it is shown and set |
//! | `builder_settings` | what only the program itself can set, by the calls of the builders |
//! | `variables` | variables of the environment that are no setting of that table |
//! | `metrics` | the counts as OpenMetrics, with the feature of that name |
//! | `runtime` | the process-wide runtime, in programs that have one |
//! | `attend` | how the server starts in a program that never calls it |
//! | `values` | values as text: what `set` takes and `get` shows |
//!
//! | feature | what it adds |
//! |---|---|
//! | `runtime` (default) | a runtime can be inspected; without it, only the mutexes of a process |
//! | `metrics` | the counts as OpenMetrics |

// This crate is for Linux: it uses sockets, a thread that blocks on them, the clock, and files of the process.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[cfg(feature = "runtime")]
mod attend;
pub mod builder_settings;
pub mod client;
pub mod control_target;
#[cfg(test)]
#[path = "../../nearq-platform/tests/filter/mod.rs"]
mod filter;
pub mod find;
pub mod locks;
#[cfg(feature = "metrics")]
pub mod metrics;
mod process;
pub mod protocol;
#[cfg(feature = "runtime")]
pub mod runtime;
pub mod server;
pub mod settings_table;
#[cfg(test)]
#[path = "../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;
mod socket;
pub mod values;
pub mod variables;

#[cfg(feature = "runtime")]
pub use attend::allow;
pub use server::status;
