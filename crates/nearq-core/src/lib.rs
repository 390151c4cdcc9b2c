//! Work items, workqueues, links, pools and workers: the runtime itself, generic over the platform.
//!
//! Users take it through the crate `nearq`. An item's way, and the file that describes each step:
//!
//! ```text
//! Workqueue::queue ─► item: PENDING ─► queue: pod of the CPU ─► admission: max_active? ─ no ─► link: inactive
//!                                                                    │ yes                       │ when another ends
//!                                                                    ▼                           ▼
//!                                     inbox ─► idle: wake at most one worker ─► run: repatriate, start, call, finish, count
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `item` | the state word: who owns an item |
//! | `inbox`, `batch`, `list` | where items wait: for a pool, for a worker, with one thread |
//! | `pause`, `pad`, `near` | who lost a race for a word; keeping apart what different CPUs write, and near what those of one node do |
//! | `idle`, `level` | who sleeps and who is woken; how many run at once |
//! | `pool`, `worker`, `table`, `run`, `place`, `context`, `executing`, `serving` | pools and their threads |
//! | `held`, `stand_in`, `extra`, `delayed` | what is rare: cancelling, waiting, queueing again, later |
//! | `event`, `flush` | who waits for a queue, and how |
//! | `attributes`, `priority`, `queue`, `link`, `gate` | queues: what can be set, and where items go |
//! | `domain`, `admission`, `turn`, `credits`, `kicker` | the limit, and where it is counted |
//! | `home`, `homes`, `at_home`, `node_homes` | nodes that items, threads and memory belong to; what of that is on an item's way is in `queue/homes`, `pool/homes`, `run/homes` |
//! | `builder`, `variables`, `config`, `runtime`, `freeze`, `kept`, `info` | what belongs to all queues |
//! | `monitor`, `watch`, `balance`, `by_pool`, `hogs` | who looks while work waits: what workers do, how many may be awake, who computes too long |
//! | `observe`, `readers`, `stamp`, `histogram`, `handle`, `look`, `sight`, `points` | who looks on from outside: times, events, settings, what there is now |
//! | `stall`, `report` | who is told that work waits and nothing starts |
//! | `rescuer` | who runs a queue's items where no thread can be started |
//! | `timer`, `wheel` | who sleeps until something is due; when which is |
//! | `shutdown` | how a runtime ends, and what it is still busy with |
//! | `fork`, `forked` | what the child of a fork makes of all that |
//! | `broken` | what the fault soak must find |
//! | `task`, `future`, `ending`, `join`, `outcome`, `set`, `scope`, `bell` | what is spawned, how it ends, and who waits for it |
//! | `work`, `waiting`, `workqueue`, `settings`, `default`, `error` | what users see |

mod base;
mod home;
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
pub use home::{Home, HomeChoice, QueueMemory, Registered};
pub use layout::attributes::Attributes;
pub use layout::domain::{Domain, DomainLimit};
pub use limit::link::{InHand, LinkStatistics};
pub use nearq_home::{NoHome, Weights, WrongWeight};
pub use nearq_platform::Residency;
pub use nearq_topology::{CpuSet, Scope};
pub use observe::histogram::{TimeClass, Times};
pub use observe::{TraceEvent, TraceKind};
pub use queue::flush::{DrainedQueue, FlushedQueue};
pub use queue::runtime::Runtime;
pub use runtime::config::WorkerInfo;
pub use runtime::report::{Activity, BusyWorker, PoolThreads, Stall, ThreadLimit};
pub use task::join::JoinHandle;
pub use task::waiting::Flushed;
pub use task::work::Work;
pub use user::at_home::AtHome;
pub use user::builder::RuntimeBuilder;
#[doc(hidden)]
pub use user::default::attend_default;
pub use user::default::{
    system_freezable, system_highpri, system_long, system_percpu, system_unbound,
    system_unbound_long,
};
pub use user::handle::QueueHandle;
pub use user::info::{PoolInfo, WorkerState};
pub use user::look::{RunningNow, WaitingNow};
pub use user::node_homes::NodeHomes;
pub use user::readers::{Timing, Tracer};
pub use user::scope::Scope as BorrowScope;
pub use user::set::{JoinNext, JoinSet};
pub use user::settings::WorkqueueBuilder;
pub use user::shutdown::{RunningItem, StillRunning, WaitingItems};
pub use user::workqueue::Workqueue;

/// Says what the current item does, for who looks at the worker; cut to 31 bytes, gone when the item ends.
/// Nothing happens outside a worker.
pub fn set_description(text: &str) {
    set_description_in::<nearq_platform::Linux>(text);
}

/// As [`set_description`], on the platform that the type says.
pub fn set_description_in<P: nearq_platform::Platform>(text: &str) {
    pool::context::with_current::<P, _>(|context| {
        context.worker.set_description(text);
        context.look_after.set(true);
    });
}

/// Runs `f`, which may sleep for long: in a lock, a read, a call to somewhere else. Another worker takes the caller's place at once,
/// where work waits; without this hint the runtime needs some milliseconds to notice. Calls may nest. When `f` has returned, the
/// caller goes on without waiting for a place, and somebody else gives one up at the end of an item.
///
/// Costs some 50 ns where no work waits. Outside a worker it is a plain call.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{blocking, Workqueue};
/// use std::{thread::sleep, time::Duration};
///
/// let queue = Workqueue::builder("files").build()?;
/// let read = queue.spawn(|| blocking(|| sleep(Duration::from_millis(20))));
/// let computed = queue.spawn(|| 6 * 7);
/// assert_eq!(computed.join()?, 42);
/// read.join()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If `f` does.
pub fn blocking<R>(f: impl FnOnce() -> R) -> R {
    pool::context::blocking::<nearq_platform::Linux, R>(f)
}
