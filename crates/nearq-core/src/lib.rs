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

mod admission;
mod at_home;
mod attributes;
mod balance;
mod batch;
mod bell;
mod broken;
mod builder;
mod by_pool;
mod config;
mod context;
mod credits;
#[cfg(target_os = "linux")]
mod default;
mod delayed;
mod domain;
mod ending;
mod error;
mod event;
mod executing;
mod extra;
mod flush;
mod fork;
mod forked;
mod freeze;
mod future;
mod gate;
mod handle;
mod held;
mod histogram;
mod hogs;
mod home;
mod homes;
mod idle;
mod inbox;
mod info;
mod item;
mod join;
mod kept;
mod kicker;
mod level;
mod link;
mod list;
mod look;
mod monitor;
mod near;
mod node_homes;
#[cfg_attr(
    not(feature = "observe"),
    allow(dead_code, unused_imports, reason = "nobody can look on")
)]
mod observe;
mod outcome;
mod pad;
mod pause;
mod place;
mod points;
mod pool;
mod priority;
mod queue;
mod readers;
mod report;
mod run;
mod runtime;
mod scope;
mod serving;
mod set;
mod settings;
mod shared;
mod shutdown;
mod sight;
#[cfg(any(test, feature = "slice"))]
#[doc(hidden)]
pub mod slice;
mod stall;
mod stamp;
mod stand_in;
mod table;
mod task;
mod timer;
mod turn;
mod variables;
mod waiting;
mod watch;
mod wheel;
mod work;
mod worker;
mod workqueue;

pub use at_home::{AtHome, AtHomeForGood};
pub use attributes::Attributes;
pub use builder::RuntimeBuilder;
pub use config::WorkerInfo;
#[doc(hidden)]
pub use default::attend_default;
pub use default::{
    system_freezable, system_highpri, system_long, system_percpu, system_unbound,
    system_unbound_long,
};
pub use domain::{Domain, DomainLimit};
pub use error::Error;
pub use flush::{DrainedQueue, FlushedQueue};
pub use handle::QueueHandle;
pub use histogram::{TimeClass, Times};
pub use home::{Home, HomeChoice, QueueMemory, Registered};
pub use info::{PoolInfo, WorkerState};
pub use join::JoinHandle;
pub use link::{InHand, LinkStatistics};
pub use look::{RunningNow, WaitingNow};
pub use nearq_home::{NoHome, Weights, WrongWeight};
pub use nearq_platform::Residency;
pub use nearq_topology::{CpuSet, Scope};
pub use node_homes::NodeHomes;
pub use observe::{TraceEvent, TraceKind};
pub use outcome::{JoinError, Panic};
pub use queue::runtime::Runtime;
pub use readers::{Timing, Tracer};
pub use report::{Activity, BusyWorker, PoolThreads, Stall, ThreadLimit};
pub use scope::Scope as BorrowScope;
pub use set::{JoinNext, JoinSet};
pub use settings::WorkqueueBuilder;
pub use shutdown::{RunningItem, StillRunning, WaitingItems};
pub use waiting::Flushed;
pub use work::Work;
pub use workqueue::Workqueue;

/// Says what the current item does, for who looks at the worker; cut to 31 bytes, gone when the item ends.
/// Nothing happens outside a worker.
pub fn set_description(text: &str) {
    set_description_in::<nearq_platform::Linux>(text);
}

/// As [`set_description`], on the platform that the type says.
pub fn set_description_in<P: nearq_platform::Platform>(text: &str) {
    context::with_current::<P, _>(|context| {
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
    context::blocking::<nearq_platform::Linux, R>(f)
}
