//! What users see: workqueues and their settings, sets, scopes and homes, and observation from outside. Imports all other folders.
//!
//! | file | what it holds |
//! |---|---|
//! | `workqueue`, `handle`, `settings`, `default` | queues: their owner, weak handles, how they are built, the system queues |
//! | `late` | delayed items that may be late |
//! | `task_builder` | one closure or future with settings of its own |
//! | `bounded`, `places` | a limit on what is spawned and has not ended |
//! | `executors` | handles as executors of other crates |
//! | `cancel` | tokens by which tasks are asked to end early |
//! | `unwind` | what may be used after a caught panic |
//! | `builder`, `variables`, `shutdown`, `freeze`, `fork` | runtimes: how they begin and end, and what becomes of them in the child of a fork |
//! | `set`, `scope`, `each_cpu` | many tasks at once |
//! | `homes`, `at_home`, `node_homes` | homes: how they are picked, threads that enter them, what is on a node |
//! | `view`, `snapshot`, `readers`, `info` | observation from outside: settings, what runs and waits, times and events, pools |

pub(crate) mod at_home;
pub(crate) mod bounded;
pub(crate) mod builder;
pub(crate) mod cancel;
#[cfg(target_os = "linux")]
pub(crate) mod default;
pub(crate) mod each_cpu;
#[cfg(any(feature = "hyper_1", feature = "futures_task_0_3"))]
mod executors;
pub(crate) mod fork;
pub(crate) mod fork_join;
pub(crate) mod freeze;
pub(crate) mod handle;
pub(crate) mod homes;
pub(crate) mod info;
pub(crate) mod late;
pub(crate) mod node_homes;
pub(crate) mod places;
pub(crate) mod readers;
pub(crate) mod scope;
pub(crate) mod set;
pub(crate) mod settings;
pub(crate) mod shutdown;
pub(crate) mod snapshot;
pub(crate) mod task_builder;
pub(crate) mod unwind;
pub(crate) mod variables;
pub(crate) mod view;
pub(crate) mod workqueue;
