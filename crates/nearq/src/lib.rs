//! Work queues that run work near its data.
//!
//! A [`Workqueue`] runs items on worker threads that belong to *pods*: groups of CPUs that share a cache, a node, or
//! whatever its [`AffinityScope`] says. An item goes to the pod of the CPU that queued it, so it finds its data in the
//! cache; workers are brought back to their pod before they start an item, and idle workers of other pods help, so
//! no CPU idles while work waits. Every attribute can be changed while items are queued and running.
//!
//! ```
//! use nearq::{AffinityScope, Work, Workqueue};
//!
//! let queue = Workqueue::builder("crypt").affinity_scope(AffinityScope::Cache).build()?;
//!
//! // A closure that runs once.
//! let sum = queue.spawn(|| (1..=10).sum::<u32>());
//! assert_eq!(sum.join()?, 55);
//!
//! // An item that is queued again and again, without allocating; it never runs twice at once.
//! let mut count = 0;
//! let work = Work::new(move |_| count += 1);
//! queue.queue(&work);
//!
//! // While it runs: workers may never leave their pod now.
//! queue.set_affinity_strict(true)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Settings from outside the program
//!
//! A value that is not known causes one warning and counts as not set. A switch may be `0`, `off`, `no` or `false`, or `1`, `on`, `yes`
//! or `true`. Capital letters make no difference.
//!
//! | variable | values | effect |
//! |---|---|---|
//! | `NEARQ_DEFAULT_SCOPE` | `cpu smt cache cache_shard numa system` | the scope of queues that name none |
//! | `NEARQ_AFFINITY` | a switch | `0`: no queue's scope has an effect |
//! | `NEARQ_CONTROL` | `off read full` | what users other than root may do by the control socket (`read`); `off` if it is not known |
//! | `NEARQ_HOME_CHOICE` | `now first-run` | when the node is chosen for a [`Home`](home::Home) that may be anywhere |
//! | `NEARQ_HOME_INHERIT` | a switch | `0`: items that an item with a home queues do not inherit it |
//! | `NEARQ_HOME_WEIGHTS` | `imbalance=2000,...` | the numbers that homes are chosen by: [`Weights`](home::Weights) |
//! | `NEARQ_STALL_AFTER` | seconds | if work waits and nothing starts for this long (30 s), that is reported; `0`: never |

#[cfg(feature = "control")]
pub mod control {
    //! The process's control socket: a process can be inspected and tuned from outside while it runs (`nearq ps`, `dump`, `top`,
    //! `get`, `set`, `trace`, `tune`), by its own user and root.
    //!
    //! It exists as soon as the process-wide runtime has a worker, and costs a sleeping thread. `NEARQ_CONTROL` says what users other
    //! than root may do: `off`, `read` (the default) or `full`. Without the feature `control` it does not exist.

    pub use nearq_control::protocol::Access;
    pub use nearq_control::server::Status;
    pub use nearq_control::{allow, status};
}
#[cfg(feature = "metrics")]
pub mod metrics {
    //! The process's counts as OpenMetrics: as text ([`text`]) or, with the feature `prometheus_client_0_25`, by a collector for a registry
    //! of that crate's version.

    pub use nearq_control::metrics::{CONTENT_TYPE, statistics, text, write_text};
    #[cfg(feature = "prometheus_client_0_25")]
    pub use nearq_control::metrics::{Metrics, RuntimeSource, Source, prometheus_client};
    pub use nearq_control::protocol::{
        Bucket, Histogram, PodStatistics, QueueStatistics, Refusal, Statistics,
    };
}
pub use nearq_core::{
    AffinityScope, Attributes, CpuSet, Error, Handle, JoinError, JoinHandle, JoinSet, Panic,
    Runtime, RuntimeBuilder, Scope, ShutdownError, TaskBuilder, TrySpawnError, Work, Workqueue,
    WorkqueueBuilder, block_in_place, set_description,
};
#[doc(inline)]
pub use nearq_core::{future, home, inspect, system, trace};
pub use nearq_platform::OsError;
/// What a machine consists of, as [`Runtime::topology`] describes it.
#[doc(inline)]
pub use nearq_topology as topology;
pub use nearq_topology::Topology;

/// The README's example is compiled and run with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
