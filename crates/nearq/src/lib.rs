//! Work queues that run work near its data: the Linux kernel's workqueues, with their affinity scopes, as a thread pool for user space.
//!
//! ```
//! use nearq::Workqueue;
//!
//! let queue = Workqueue::builder("crypt").build()?;
//! let sum = queue.spawn(|| (1..=10).sum::<u32>());
//! assert_eq!(sum.join()?, 55);
//!
//! let mut squares = [1, 2, 3, 4];
//! queue.scope(|scope| squares.iter_mut().for_each(|n| scope.spawn(move || *n *= *n)));
//! assert_eq!(squares, [1, 4, 9, 16]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Workqueue`] runs *items* on worker threads that belong to *pods*: groups of CPUs that share a cache or a node. An item goes to the
//! pod of the CPU that queued it, so it finds its data in the cache. Idle workers of other pods help, so no CPU stays idle for long while
//! work waits. The attributes of a queue can be changed while items are queued and running; its kind cannot.
//!
//! **Side effects.** By its default feature `control`, a program that links this crate can be inspected from outside:
//!
//! * Before `main`, the loader calls a function that stores one address and does nothing else.
//! * When the first worker of the process-wide runtime starts, a thread `nq/control` starts too. It listens on a Unix socket that only the
//!   same user and root may use, and sleeps until a tool connects. A program that never starts a worker has neither.
//! * The socket is `$XDG_RUNTIME_DIR/nearq/PID`, or else `$TMPDIR/nearq-UID/PID` (`/tmp` if that is not set). It is removed at exit.
//!
//! `NEARQ_CONTROL=off`, or `control::allow(Access::Off)` at the beginning of `main`, prevents the socket and the thread;
//! `default-features = false` prevents all of this.
//!
//! # Which call
//!
//! | for | call | in the kernel |
//! |---|---|---|
//! | a closure | [`Workqueue::spawn`] | |
//! | a future | [`Workqueue::spawn_future`] | |
//! | closures that borrow | [`Workqueue::scope`] and in it [`Scope::spawn`], or [`Scope::spawn_with_handle`] for a value | |
//! | two halves of a computation (fork-join) | [`join`], [`Workqueue::join`], [`Workqueue::install`] | |
//! | a closure for each index of a range | [`Workqueue::for_each`] | |
//! | many closures or futures, joined as they end | [`Workqueue::join_set`] | |
//! | a function that is queued again and again | [`Work::new`], [`Workqueue::queue`] | `INIT_WORK`, `queue_work` |
//! | the same, after a delay | [`Workqueue::queue_delayed`] | `queue_delayed_work` |
//! | the same, with the delay set or changed | [`Workqueue::modify_delayed`] | `mod_delayed_work` |
//! | an item on a CPU or in its pod | [`Workqueue::queue_on`]; for a closure or future, [`TaskBuilder::on_cpu`] | `queue_work_on` |
//! | an item on a node | [`Workqueue::queue_on_node`] | `queue_work_node` |
//! | work at [home](home::Home) | [`WorkqueueBuilder::home`], [`Work::set_home`], [`TaskBuilder::home`] | |
//! | no more tasks than there are places (back-pressure) | [`Workqueue::bounded`] | |
//! | a task or item with a name, for display | [`TaskBuilder::named`], [`Work::named`] | |
//! | more work on the queue that the code runs on | [`Handle::try_current`] | |
//! | to wait for a task, but not for ever | [`JoinHandle::join_timeout`] | |
//! | to ask running code to end early | [`JoinHandle::cancel`], then [`is_cancelled`] in the code; [`CancelToken`] | |
//! | to cancel a task with the future that awaits it | [`JoinHandle::cancel_on_drop`] | |
//! | to keep an item from starting | [`Work::cancel`], [`Work::disable`], [`JoinHandle::cancel`] | `cancel_work`, `disable_work` |
//! | blocking code inside an item | [`block_in_place`] | |
//!
//! Queueing a [`Work`] allocates nothing, and the item never runs twice at once. A spawned closure or future is one allocation.
//!
//! # Which queue
//!
//! | items | builder | in the kernel |
//! |---|---|---|
//! | may run on any CPU of the pod | [`Workqueue::builder`] | `WQ_UNBOUND` |
//! | run on the CPU that queued them | [`per_cpu`](WorkqueueBuilder::per_cpu) | `WQ_PERCPU` |
//! | run one at a time, in order | [`ordered`](WorkqueueBuilder::ordered) | `alloc_ordered_workqueue` |
//! | must not wait for the CPU | [`highpri`](WorkqueueBuilder::highpri) | `WQ_HIGHPRI` |
//! | run when nothing else wants the CPU | [`sched_idle`](WorkqueueBuilder::sched_idle) | |
//! | run only up to a number at once, counted for each node | [`max_active`](WorkqueueBuilder::max_active) (1024) | `max_active` |
//! | compute for long, on a per-CPU queue | [`cpu_intensive`](WorkqueueBuilder::cpu_intensive) | `WQ_CPU_INTENSIVE` |
//! | must run even if no thread can be started | [`rescuer`](WorkqueueBuilder::rescuer) | `WQ_MEM_RECLAIM` |
//! | must stop for a checkpoint | [`freezable`](WorkqueueBuilder::freezable) | `WQ_FREEZABLE` |
//!
//! Queues are cheap: those with equal attributes share their workers. Work that needs no queue of its own can use those of the module
//! [`system`]: [`system::unbound`], [`system::percpu`], [`system::highpri`] and others.
//!
//! # Scopes
//!
//! The [`AffinityScope`] of a queue groups the CPUs into pods. A machine with two sockets, each with two L3 caches of two cores with two
//! hardware threads:
//!
//! ```text
//! CPU            0  1  2  3    4  5  6  7    8  9 10 11   12 13 14 15
//! cpu           [ ][ ][ ][ ]  [ ][ ][ ][ ]  [ ][ ][ ][ ]  [ ][ ][ ][ ]
//! smt           [core][core]  [core][core]  [core][core]  [core][core]
//! cache         [    L3    ]  [    L3    ]  [    L3    ]  [    L3    ]
//! numa          [           node 0       ]  [           node 1       ]
//! system        [                        all                         ]
//! ```
//!
//! `cache_shard`, the default, divides an L3 cache of many cores into shards of about 8 cores; on this machine it equals `cache`. With
//! [`affinity_strict`](WorkqueueBuilder::affinity_strict), items stay in their pod even if CPUs elsewhere are idle.
//!
//! # Blocking and async
//!
//! These calls block the thread. If the thread is a worker, another worker runs in its place meanwhile. In an async task of any executor,
//! await the form on the right instead:
//!
//! | waits for | blocks | await |
//! |---|---|---|
//! | one closure or future | [`JoinHandle::join`] | the [`JoinHandle`] itself |
//! | the next of a set | [`JoinSet::blocking_join_next`] | [`JoinSet::join_next`] |
//! | what was queued so far | [`Workqueue::flush`] | [`Workqueue::flushed`] |
//! | an empty queue | [`Workqueue::drain`] | [`Workqueue::drained`] |
//! | the end of an item that was queued | [`Work::flush`] | [`Work::flushed`] |
//! | the same, without the rest of its delay | [`Work::flush_delayed`] | none |
//! | an item to be neither queued nor running | [`Work::cancel_sync`], [`Work::disable_sync`] | [`Work::disable`], then [`Work::flushed`] |
//! | closures that borrow | [`Workqueue::scope`], [`Workqueue::join`], [`Workqueue::install`] | none: call it inside `spawn`, and await that |
//! | a place of a bound | [`Bounded::spawn`] | [`Bounded::reserve`] |
//! | a frozen or ended runtime | [`Runtime::freeze`], [`Runtime::shutdown`] | none |
//! | the items of a queue that is dropped | the drop of the last [`Workqueue`] | `drained` before the drop |
//!
//! A call that would wait for its own item returns an error ([`Error::Deadlock`]) instead. No other call waits for an item.
//!
//! nearq polls futures, but has no I/O and no timers for them: use those of another runtime.
//!
//! # Drop and shutdown
//!
//! A service that ends takes no more work, finishes what it has, and says what does not end. Then the process ends even so:
//!
//! ```no_run
//! # use std::time::Duration;
//! // No more is taken; what is queued runs, for at most ten seconds.
//! if let Err(error) = nearq::Runtime::global().shutdown(Duration::from_secs(10)) {
//!     // A line for each item that still runs, with its queue, name and thread.
//!     eprintln!("{error}");
//! }
//! std::process::exit(0); // Threads that do not end do not delay this.
//! ```
//!
//! * Dropping a [`JoinHandle`] detaches: what was spawned still runs. Dropping a [`JoinSet`] cancels what has not started.
//! * Dropping the last handle of a [`Work`] that is queued still lets it run.
//! * Dropping the last clone of a [`Workqueue`] blocks until its items have run, except those on timers, which do not run. A drop by one of
//!   the queue's own items does not block. A [`Handle`] does not keep the queue open.
//! * The process-wide runtime and the [`system`] queues are never dropped: items that have not ended when the process exits are cut off.
//! * [`Runtime::shutdown`] refuses new work, waits with a time-out, and ends every thread.
//!
//! # Errors
//!
//! Building a queue and changing it return [`Error`]. [`Workqueue::queue`] and [`spawn`](Workqueue::spawn) do not: the first returns false,
//! the handle of the second returns [`JoinError::Refused`]; `try_queue` and `try_spawn` return the reason. A panic in a closure or future
//! is the [`JoinError`] of its handle; a panic in a [`Work`] is counted. Neither ends the worker. A privilege that the system refuses, such
//! as that for a nice value, is no error: one warning on standard error says what would allow it.
//!
//! # Beside rayon and tokio
//!
//! [rayon](https://docs.rs/rayon) has parallel iterators, for computations that keep all CPUs busy; nearq has only [`join`] and
//! [`Workqueue::scope`]. A rayon task should not block, and its pool does not know which CPUs share a cache. nearq replaces a worker that
//! blocks, and runs an item near the CPU that queued it. rayon itself can run on nearq: `compat/rayon-core` of the checkout.
//! `compat/nearq-rayon` there has one of rayon's own pools for each pod.
//!
//! [tokio](https://docs.rs/tokio) is for network services, with I/O and timers; nearq has neither. `spawn_blocking` moves blocking code to
//! other threads; in nearq, an item may simply block, and with [`block_in_place`] its worker is replaced at once. tokio's `JoinSet` and
//! `JoinHandle` can only be awaited; those of nearq can also block ([`JoinHandle::join`]). Dropping nearq's `JoinSet` lets what has started
//! run on; dropping tokio's aborts it. `docs/tokio.md` of the checkout says how a tokio program runs its CPU work on nearq.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `control` (default) | the control socket and the module [`control`]; [`Runtime::time_items`] and [`Runtime::trace`] |
//! | `metrics` | the module `metrics`: the process's counts as OpenMetrics text; implies `control` |
//! | `prometheus_client_0_25` | in `metrics`, a collector for a registry of that version of `prometheus-client`; implies `metrics` |
//! | `hwloc` | [`topology`]: machines from hwloc's XML format |
//! | `usdt` | each item's queueing, start and end as probes of the system (USDT), for perf, bpftrace and gdb |
//! | `tracing` | for the crate `tracing`: each item's queueing and each stall as an event, each execution as a span |
//! | `hyper_1` | [`Handle`] is an `Executor` of hyper 1 |
//! | `futures_task_0_3` | [`Handle`] is a `Spawn` of futures-task 0.3 |
//!
//! # Environment
//!
//! These variables are read when a runtime is built. A setting of [`RuntimeBuilder`] takes precedence over its variable. If a value is
//! invalid, one warning says so, and the variable counts as not set. A switch is `0`, `off`, `no` or `false`, or `1`, `on`, `yes` or
//! `true`. Capital letters make no difference.
//!
//! `NEARQ_CONTROL` differs: it is read when the first worker of the process-wide runtime starts, it takes precedence over
//! [`control::allow`], and an invalid value means `off`. The words of a switch mean `off` and `read`.
//!
//! | variable | values | effect |
//! |---|---|---|
//! | `NEARQ_DEFAULT_SCOPE` | `cpu smt cache cache_shard numa system` | the scope of queues that name none (`cache_shard`) |
//! | `NEARQ_ABORT_ON_STALL` | a number | the process is aborted at that stall, `1`: the first; `0`: never (never) |
//! | `NEARQ_AFFINITY` | a switch | `0`: no queue's scope has an effect |
//! | `NEARQ_CPUMASK` | a list of CPUs, `0-3,8` | the CPUs that unbound and ordered queues may use (all that are not isolated) |
//! | `NEARQ_CONTROL` | `off read full` | what tools of the same user may do over the control socket (`read`) |
//! | `NEARQ_HOME_CHOICE` | `now first-run` | when the node of a [picked](home::Home::pick) home is chosen (`now`) |
//! | `NEARQ_HOME_INHERIT` | a switch | `0`: an item does not inherit the home of the item that queues it |
//! | `NEARQ_HOME_WEIGHTS` | `NAME=NUMBER,...` | the numbers that homes are chosen by: [`Weights`](home::Weights) |
//! | `NEARQ_STALL_AFTER` | seconds | if a pool has waiting work and starts nothing for this long (30 s), that is reported; `0`: never |
//!
//! `NEARQ_LOCK` is a variable of the crate `nearq-lock`, whose mutex the runtime uses.
//!
//! # Platforms and stability
//!
//! Linux on x86-64 and aarch64; Rust 1.95 or newer. From version 0.1.0 on, versions follow semantic versioning, and the change log lists
//! every change that users may notice.
//!
//! Many types have a parameter `P: Platform`, with the default `Linux`. It is for tests on simulated machines; omit it.

#[cfg(feature = "control")]
pub mod control {
    //! The process's control socket: while the process runs, its own user and root can inspect and tune it with the command `nearq`
    //! (`nearq ps`, `dump`, `top`, `get`, `set`, `trace`, `tune`).
    //!
    //! The socket exists as soon as the process-wide runtime has started a worker, and costs a sleeping thread, `nq/control`. By default,
    //! tools of the same user may only inspect; [`allow`] and `NEARQ_CONTROL` (`off`, `read` or `full`) change that. Root may always
    //! inspect and change, unless there is no socket. A program with more privileges than the process that started it (set-user-ID) has no
    //! socket. [`status`] says where the socket is.

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
#[doc(hidden)]
pub use nearq_core::team;
pub use nearq_core::{
    AffinityScope, Attributes, Bounded, BoundedWork, CancelToken, CpuSet, Error, Handle, JoinError,
    JoinHandle, JoinSet, Panic, Permit, Runtime, RuntimeBuilder, Scope, ScopedJoinHandle,
    ShutdownError, TaskBuilder, TrySpawnError, Work, Workqueue, WorkqueueBuilder, block_in_place,
    is_cancelled, join, set_description,
};
#[doc(inline)]
pub use nearq_core::{future, home, inspect, system, trace};
pub use nearq_platform::OsError;
/// What a machine consists of, as [`Runtime::topology`] describes it.
#[doc(inline)]
pub use nearq_topology as topology;
pub use nearq_topology::Topology;

/// The examples of the README and of the project's are compiled and run with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../PROJECT.md")]
struct Readme;
