//! What can be wrong with a request to the runtime.

use core::fmt;
use core::time::Duration;

use nearq_home::{NodeError, WeightError};
use nearq_platform::OsError;
use nearq_topology::{CpuSet, DeviceError};

use crate::base::ids::QueueKind;

/// A request that cannot be carried out. Nothing was changed. The text of `Display` says what was wrong, what is allowed, and what to do.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{Error, Workqueue};
///
/// let refused = Workqueue::builder("polite").nice(40).build().unwrap_err();
/// assert!(matches!(refused, Error::NiceOutOfRange(40)));
/// assert_eq!(refused.to_string(), "nice 40 is not between -20 (most favoured) and 19");
/// ```
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// A name that does not exist.
    UnknownName {
        /// What it should name.
        of: &'static str,
        /// The name.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A CPU that the machine does not have.
    NoSuchCpu {
        /// The requested CPU.
        cpu: usize,
        /// The CPUs that exist.
        possible: CpuSet,
    },
    /// A node that the machine does not have, or that has no CPU.
    NoSuchNode {
        /// The requested node.
        node: usize,
        /// The nodes that have CPUs.
        nodes: Vec<usize>,
    },
    /// A mask without any CPU.
    EmptyMask,
    /// A mask with CPUs that this process may not use.
    MaskNotAllowed {
        /// The requested mask.
        mask: CpuSet,
        /// The CPUs that this process may use.
        allowed: CpuSet,
    },
    /// A nice value outside -20 to 19.
    NiceOutOfRange(i32),
    /// A time slice outside 0.1 to 100 ms.
    TimeSliceOutOfRange(Duration),
    /// A `min_active` above `max_active`.
    MinActive {
        /// The requested `min_active`.
        asked: usize,
        /// The queue's `max_active`.
        max_active: usize,
    },
    /// Something that queues of this kind do not have.
    Unsupported {
        /// The attribute.
        attribute: &'static str,
        /// The kind of the queue.
        kind: QueueKind,
    },
    /// A wait that would never end; the text says why.
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
    /// Every place of a [`Bounded`](crate::Bounded) is taken.
    Full {
        /// The workqueue's name.
        queue: String,
        /// How many places there are.
        places: usize,
    },
    /// The item is [disabled](crate::Work::disable).
    Disabled,
    /// A limit of zero threads.
    NoThreads,
    /// The rescuer of a workqueue could not be started, or the thread that would notice when the rescuer is needed.
    NoRescuer {
        /// The workqueue's name.
        queue: String,
        /// What was refused, and the limits that refuse it.
        refused: OsError,
    },
    /// The runtime was shut down, or is being shut down: it accepts only what its own running items queue. Also returned for a change of a
    /// queue that has ended.
    ShutDown,
    /// The process-wide runtime exists already, so its settings can no longer be chosen.
    GlobalExists,
    /// The machine could not be described.
    Machine(String),
    /// A node that cannot be a home.
    NoHome(NodeError),
    /// A device of which no node is known.
    NoDevice(DeviceError),
    /// A weight of homes that does not exist, or that is not allowed.
    Weight(WeightError),
    /// The operating system refused.
    Refused(OsError),
}

impl Error {
    /// The error for a text that names none of `known`.
    pub(crate) fn unknown_name<T: fmt::Display>(of: &'static str, name: &str, known: &[T]) -> Self {
        let known: Vec<String> = known.iter().map(T::to_string).collect();
        Error::UnknownName { of, name: name.to_owned(), known: known.join(", ") }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnknownName { of, name, known } => {
                write!(f, "there is no {of} `{name}`; give one of {known}")
            }
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
            Error::TimeSliceOutOfRange(slice) => write!(
                f,
                "a time slice is 100 µs to 100 ms, not {slice:?}; without one, or with 0, the system's default is used"
            ),
            Error::MinActive { asked, max_active } => write!(
                f,
                "min_active {asked} is more than this queue's max_active; it may be 0 to {max_active}"
            ),
            Error::Unsupported { attribute, kind: QueueKind::PerCpu } => write!(
                f,
                "{attribute} cannot be set for a per-CPU queue, whose items run on the CPU that queues them or on the one given to `queue_on`; \
                 nice, sched_idle, time_slice and max_active can be set, or use a queue that is not per-CPU"
            ),
            Error::Unsupported { attribute, kind: _ } => write!(
                f,
                "{attribute} cannot be set for an ordered queue, which runs one item at a time; its other settings can be set, or use a queue that is not ordered"
            ),
            Error::Deadlock(text) => f.write_str(text),
            Error::Full { queue, places } => write!(
                f,
                "{queue}: every place of the bound is taken ({places}); wait for a task to end, or call `spawn`, which waits"
            ),
            Error::Disabled => f.write_str(
                "the work item is disabled and was not queued; enable it as many times as it was disabled",
            ),
            Error::NoThreads => write!(f, "a limit of 0 threads would run nothing; give at least 1"),
            Error::NoRescuer { queue, refused } => write!(
                f,
                "the workqueue `{queue}` cannot have a rescuer: {refused}. Raise that limit, or end other threads first; \
                 the queue can also be built without `rescuer()`"
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
            Error::GlobalExists => f.write_str(
                "the process-wide runtime exists already; call `build_global` before anything uses it, at the beginning of `main`",
            ),
            Error::Machine(text) => write!(f, "{text}"),
            Error::NoHome(why) => write!(f, "{why}"),
            Error::NoDevice(why) => write!(f, "{why}"),
            Error::Weight(wrong) => write!(f, "{wrong}"),
            Error::Refused(refused) => write!(f, "{refused}"),
        }
    }
}

nearq_topology::debug_as_display!(Error);

impl std::error::Error for Error {}
