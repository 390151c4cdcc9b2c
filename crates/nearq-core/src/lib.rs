//! Work items, workqueues, pwqs, pools and workers: the runtime itself, generic over the platform.
//!
//! Users take it through the crate `nearq`. The path of an item, and the file that describes each step:
//!
//! ```text
//! Workqueue::queue ─► item: PENDING ─► queue: pod of the CPU ─► domain: max_active? ─ no ─► pwq: inactive
//!                                                                    │ yes                       │ when another ends
//!                                                                    ▼                           ▼
//!                                     inbox ─► idle: wake at most one worker ─► run: repatriate, start, call, finish, count
//! ```
//!
//! Sources are in folders. A folder imports only those above it in this table, and of these only those that its head names; `cargo xtask
//! layers` checks it. The head of a folder's main file (`pool.rs` for `pool`) says what each of its files holds, and which locks and words
//! are its own.
//!
//! | folder | purpose |
//! |---|---|
//! | `base` | what has no notion of work: waiting, errors, forks, small tools |
//! | `homes` | nodes where things belong |
//! | `layout` | which pools a queue has, and which queues share them |
//! | `timer` | the thread that sleeps until something is due |
//! | `deque` | the jobs of a thread that forks, from which other threads steal |
//! | `item` | what holds an item, and where it waits |
//! | `observe` | times and events, for readers, if there are any |
//! | `pool` | the workers of a pod, and which of them are awake |
//! | `limit` | what a queue admits, and where that is counted |
//! | `runtime` | what all queues share |
//! | `queue` | where items go |
//! | `run` | a worker's thread |
//! | `monitor` | the thread that checks while work waits |
//! | `task` | kinds of items: those that run again and again, closures, futures |
//! | `fork_join` | how an item forks, and how other workers help |
//! | `user` | what users see |
//!
//! | feature | what it adds |
//! |---|---|
//! | `observe` (default) | items can be timed and traced |
//! | `usdt` | each item's queueing, start and end as probes of the system |
//! | `tracing` | each item's queueing and each stall as an event of the crate `tracing`, each execution as a span |
//! | `hyper_1` | [`Handle`] is an executor of hyper 1 |
//! | `futures_task_0_3` | [`Handle`] is a `Spawn` of futures-task 0.3 |

mod base;
mod deque;
mod fork_join;
mod homes;
mod item;
mod layout;
mod limit;
mod monitor;
#[cfg_attr(
    not(feature = "observe"),
    allow(dead_code, unused_imports, reason = "no reader can be made")
)]
mod observe;
mod pool;
mod queue;
mod run;
mod runtime;
mod task;
mod timer;
mod user;

pub use base::error::Error;
pub use base::outcome::{JoinError, Panic};
pub use layout::attributes::Attributes;
pub use nearq_topology::{AffinityScope, CpuSet};
pub use queue::runtime::Runtime;
pub use task::join::JoinHandle;
pub use task::work::Work;
pub use user::bounded::{Bounded, BoundedWork, Permit};
pub use user::builder::RuntimeBuilder;
pub use user::cancel::CancelToken;
#[doc(hidden)]
pub use user::default::attend_default;
pub use user::fork_join::join;
pub use user::handle::Handle;
pub use user::scope::{Scope, ScopedJoinHandle};
pub use user::set::JoinSet;
pub use user::settings::WorkqueueBuilder;
pub use user::shutdown::ShutdownError;
pub use user::task_builder::{TaskBuilder, TrySpawnError};
pub use user::workqueue::Workqueue;

pub mod home {
    //! Work, memory and threads that belong to a NUMA node: [`Home`], how its node is chosen, and the [weights](Weights) that decide when
    //! other nodes help.

    pub use crate::homes::{Home, HomeChoice, MemoryPolicy, Registered};
    pub use crate::user::at_home::AtHome;
    pub use crate::user::node_homes::NodeHomes;
    pub use nearq_home::{NodeError, WeightError, Weights};
    pub use nearq_platform::Residency;
}

pub mod inspect {
    //! What can be seen of a runtime while it works: queues, pools, workers, what runs and what waits. Reading costs the workers nothing,
    //! or as little as each function says.
    //!
    //! | to see | call |
    //! |---|---|
    //! | the queues | [`Runtime::queues`](crate::Runtime::queues), which returns [`QueueView`]s |
    //! | what a queue has done | [`QueueView::statistics`] |
    //! | what a queue runs and holds back | [`QueueView::in_flight`], [`QueueView::limits`] |
    //! | what runs and what waits, by function | [`Runtime::running`](crate::Runtime::running), [`waiting`](crate::Runtime::waiting) |
    //! | pools and worker threads | [`Runtime::pools`](crate::Runtime::pools), [`workers`](crate::Runtime::workers) |
    //! | work that does not start | [`RuntimeBuilder::on_stall`](crate::RuntimeBuilder::on_stall), which is given a [`Stall`] |
    //! | items that keep a CPU to themselves | [`Runtime::cpu_hogs`](crate::Runtime::cpu_hogs) |
    //! | how long items wait and run, and single events | the module [`trace`](crate::trace) |

    pub use crate::base::ids::{PoolId, QueueId, QueueKind};
    pub use crate::layout::domain::{Domain, DomainLimit};
    pub use crate::limit::statistics::{InFlight, PoolStatistics};
    pub use crate::runtime::config::WorkerInfo;
    pub use crate::runtime::hogs::CpuHog;
    pub use crate::runtime::report::{Activity, BusyWorker, PoolThreads, Stall, ThreadLimit};
    pub use crate::user::info::{PoolInfo, WorkerState};
    pub use crate::user::shutdown::{Backlog, StillRunning};
    pub use crate::user::snapshot::{QueueLabel, RunningItem, Waiting, WaitingItems};
    pub use crate::user::view::QueueView;
}

pub mod trace {
    //! How long items wait and run ([`Runtime::time_items`](crate::Runtime::time_items)), and what happens to each of them
    //! ([`Runtime::trace`](crate::Runtime::trace)). While nothing is timed or traced, this costs an item next to nothing.

    pub use crate::observe::histogram::{Bucket, Histogram, QueueTimes};
    pub use crate::observe::{TraceEvent, TraceKind};
    pub use crate::user::readers::{TimingGuard, Tracer};
}

pub mod future {
    //! The types of the futures that functions of this crate return. Any executor can await them.
    //! [`JoinHandle`](crate::JoinHandle#wakers) says which thread calls their wakers.

    pub use crate::queue::flush::{DrainedQueue, FlushedQueue};
    pub use crate::task::cancel_on_drop::CancelOnDrop;
    pub use crate::task::waiting::Flushed;
    pub use crate::user::bounded::Reserve;
    pub use crate::user::cancel::Cancelled;
    pub use crate::user::set::JoinNext;
}

/// For layers that give the workers of a queue numbers and work of their own. Not stable.
#[doc(hidden)]
pub mod team {
    pub use crate::fork_join::{has_own_jobs, run_own_job, run_stolen_job};
    pub use crate::queue::team::{Closure, Team, TeamBell, Wait};
}

/// The process-wide queues for work that needs none of its own, as in the kernel. Each is made on first use and never dropped: a process
/// may exit while their items run.
pub mod system {
    pub use crate::user::default::{freezable, highpri, long, percpu, unbound, unbound_long};
}

/// Sets the description of what the current item does, for observers of the worker. It is cut to 31 bytes, and cleared when the item ends.
/// No effect outside an item.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{Runtime, Workqueue, set_description};
///
/// let queue = Workqueue::builder("described").build()?;
/// let seen = queue.spawn(|| {
///     set_description("page 17");
///     Runtime::global().running().iter().any(|item| item.description == "page 17")
/// });
/// assert!(seen.join()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn set_description(text: &str) {
    set_description_in::<nearq_platform::Linux>(text);
}

/// As [`set_description`], on the platform given by the type.
#[doc(hidden)]
pub fn set_description_in<P: nearq_platform::Platform>(text: &str) {
    pool::context::with_current::<P, _>(|context| {
        context.worker.set_description(text);
        context.clean_up.set(true);
    });
}

/// Returns whether the task or item that the caller executes should end early. Code that computes for long asks this now and then, and
/// returns what it has.
///
/// | in | true after |
/// |---|---|
/// | a spawned closure | [`JoinHandle::cancel`], [`JoinSet::cancel_all`], the drop of the [`JoinSet`] |
/// | a spawned future, while it is polled | the same |
/// | the function of a [`Work`] | [`Work::disable`], [`Work::disable_sync`], [`Work::cancel_sync`]; the last one only while it waits |
///
/// ```
/// # use nearq_core as nearq;
/// let queue = nearq::Workqueue::builder("search").build()?;
/// let (sender, receiver) = std::sync::mpsc::channel();
/// let search = queue.spawn(move || {
///     sender.send(()).unwrap();
///     let mut steps = 0u64;
///     while !nearq::is_cancelled() {
///         steps += 1;
///     }
///     steps
/// });
/// receiver.recv()?;
/// assert!(!search.cancel(), "it has begun, so it has a result");
/// println!("{} steps", search.join()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Costs one load. False outside a worker, in what another worker runs for a [`join`] or [`Scope`], and in the child of a fork for what the
/// parent runs; there, and to end many tasks at once, use a [`CancelToken`].
pub fn is_cancelled() -> bool {
    item::is_cancelled_here::<nearq_platform::Linux>()
}

/// As [`is_cancelled`], on the platform given by the type.
#[doc(hidden)]
pub fn is_cancelled_in<P: nearq_platform::Platform>() -> bool {
    item::is_cancelled_here::<P>()
}

/// Runs `f`, which may block the thread for long: in a lock, a read, a remote call. If work waits, another worker runs in the caller's
/// place at once; without this hint the runtime needs some milliseconds to notice.
///
/// When `f` has returned, the caller goes on without delay, and another worker stops at the end of its item instead. Calls may nest. A call
/// costs some 50 ns if no work waits. Outside a worker it only calls `f`. The runtime's own calls that block do this themselves.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{block_in_place, Workqueue};
/// use std::{thread::sleep, time::Duration};
///
/// let queue = Workqueue::builder("files").build()?;
/// let read = queue.spawn(|| block_in_place(|| sleep(Duration::from_millis(20))));
/// let computed = queue.spawn(|| 6 * 7);
/// assert_eq!(computed.join()?, 42);
/// read.join()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If `f` does.
pub fn block_in_place<R>(f: impl FnOnce() -> R) -> R {
    pool::context::blocking::<nearq_platform::Linux, R>(f)
}
