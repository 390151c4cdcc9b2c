//! What can be wrong with a request to the runtime.

use core::fmt;
use core::time::Duration;

use nearq_home::{NoHome, WrongWeight};
use nearq_platform::OsError;
use nearq_topology::CpuSet;

/// A request that cannot be carried out; nothing was changed.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A scope's name that does not exist.
    UnknownScope(String),
    /// A CPU that the machine does not have.
    NoSuchCpu {
        /// What was asked for.
        cpu: usize,
        /// The CPUs that exist.
        possible: CpuSet,
    },
    /// A node that the machine does not have, or that has no CPU.
    NoSuchNode {
        /// What was asked for.
        node: usize,
        /// The nodes with CPUs.
        nodes: Vec<usize>,
    },
    /// A mask without any CPU.
    EmptyMask,
    /// A mask with CPUs that this process may not use.
    MaskNotAllowed {
        /// What was asked for.
        mask: CpuSet,
        /// The CPUs that this process may use.
        allowed: CpuSet,
    },
    /// A nice value outside -20 to 19.
    NiceOutOfRange(i32),
    /// A slice outside 0.1 to 100 ms.
    SliceOutOfRange(Duration),
    /// A `min_active` above `max_active`.
    MinActive {
        /// What was asked for.
        asked: usize,
        /// The queue's `max_active`.
        max_active: usize,
    },
    /// Something that a per-CPU queue does not have; the text names it.
    PerCpu(&'static str),
    /// A limit for an ordered queue; the text names it.
    Ordered(&'static str),
    /// Waiting would never end; the text says why.
    Deadlock(&'static str),
    /// The workqueue is being drained: only its own running items may queue to it.
    Draining {
        /// The workqueue's name.
        queue: String,
    },
    /// The workqueue has ended: its last [`Workqueue`](crate::Workqueue) was dropped.
    Ended {
        /// The workqueue's name.
        queue: String,
    },
    /// The work item is [disabled](crate::Work::disable).
    Disabled,
    /// A limit of zero threads.
    NoThreads,
    /// The rescuer of a workqueue could not be started, or a thread without which it would not know when it is needed.
    NoRescuer {
        /// The workqueue's name.
        queue: String,
        /// What was refused, and the limits that refuse it.
        refused: OsError,
    },
    /// The runtime was shut down, or is being shut down: it accepts only what its own running items queue.
    ShutDown,
    /// The machine could not be described.
    Machine(String),
    /// A node that cannot be a home.
    NoHome(NoHome),
    /// A weight of homes that does not exist, or that is not allowed.
    Weight(WrongWeight),
    /// The operating system refused.
    Refused(OsError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnknownScope(name) => write!(
                f,
                "there is no scope `{name}`; the scopes are cpu, smt, cache, cache_shard, numa and system"
            ),
            Error::NoSuchCpu { cpu, possible } => {
                write!(f, "there is no CPU {cpu}; this machine has {possible}")
            }
            Error::NoSuchNode { node, nodes } => {
                write!(f, "there is no node {node} with CPUs; this machine has {nodes:?}")
            }
            Error::EmptyMask => write!(f, "a CPU mask must name at least one CPU"),
            Error::MaskNotAllowed { mask, allowed } => write!(
                f,
                "the CPU mask {mask} has no CPU that this process may use; it may use {allowed}"
            ),
            Error::NiceOutOfRange(nice) => {
                write!(f, "nice {nice} is not between -20 (most favoured) and 19")
            }
            Error::SliceOutOfRange(slice) => write!(
                f,
                "a slice is 100 µs to 100 ms, not {slice:?}; without one, or with 0, the system's default is used"
            ),
            Error::MinActive { asked, max_active } => write!(
                f,
                "min_active {asked} is more than this queue's max_active; it may be 0 to {max_active}"
            ),
            Error::PerCpu(what) => write!(
                f,
                "{what} cannot be set for a per-CPU queue, whose items run on the CPU that queues them or on the one given to `queue_on`; \
                 nice, idle, slice and max_active can be set, or use a queue that is not per-CPU"
            ),
            Error::Ordered(what) => write!(
                f,
                "{what} cannot be set for an ordered queue, which runs one item at a time; its other settings can be set, or use a queue that is not ordered"
            ),
            Error::Deadlock(text) => f.write_str(text),
            Error::Disabled => f.write_str(
                "the work item is disabled and was not queued; enable it as many times as it was disabled",
            ),
            Error::NoThreads => write!(f, "a limit of 0 threads would run nothing; give at least 1"),
            Error::NoRescuer { queue, refused } => write!(
                f,
                "the workqueue `{queue}` cannot have a rescuer: {refused}. Raise that limit, or end other threads first; \
                 the queue can also be built without `rescuer(true)`"
            ),
            Error::Draining { queue } => write!(
                f,
                "the workqueue `{queue}` is being drained and accepts items only from its own running items; queue again when the drain has ended"
            ),
            Error::Ended { queue } => write!(
                f,
                "the workqueue `{queue}` has ended, because its last `Workqueue` was dropped; keep a clone of it for as long as \
                 handles queue"
            ),
            Error::ShutDown => f.write_str(
                "the runtime was shut down and accepts nothing new; queue before `Runtime::shutdown`, or build another runtime",
            ),
            Error::Machine(text) => write!(f, "{text}"),
            Error::NoHome(why) => write!(f, "{why}"),
            Error::Weight(wrong) => write!(f, "{wrong}"),
            Error::Refused(refused) => write!(f, "{refused}"),
        }
    }
}

nearq_topology::debug_as_display!(Error);

impl std::error::Error for Error {}

impl From<NoHome> for Error {
    fn from(why: NoHome) -> Self {
        Error::NoHome(why)
    }
}

impl From<WrongWeight> for Error {
    fn from(wrong: WrongWeight) -> Self {
        Error::Weight(wrong)
    }
}

impl From<OsError> for Error {
    fn from(refused: OsError) -> Self {
        Error::Refused(refused)
    }
}
