//! The protocol and server through which a live process is looked into and tuned.
//!
//! A process listens on a Unix socket of its own; the command `nearq`, or any program that speaks varlink, asks.
//!
//! ```text
//!   client ──► socket ──► server: who may ask, how much, how often ──► subject: what there is to say and to set
//!                                     (one thread, `nq/control`)          (the runtime, the mutexes)
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `protocol` | the calls and their answers, as data |
//! | `subject` | what a server needs of that which it answers for |
//! | `client` | asking a process |
//! | `knobs` | all that can be set, and its names in the kernel, the environment and the API |
//! | `metrics` | the counts as OpenMetrics, with the feature of that name |
//! | `values` | values as text: what `set` takes and `get` shows |

pub mod client;
pub mod knobs;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod protocol;
pub mod subject;
pub mod values;
