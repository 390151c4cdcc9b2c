//! How users identify queues and pools: their numbers, which have types of their own, and the kind of a queue.

use core::fmt;

/// The number of a queue: from 1 on, and never used for another queue of the same runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub(crate) u64);

/// The number of a pool, as in the names of its workers. Never used for another pool of the same runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub(crate) u32);

/// The kind of a queue, which never changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueKind {
    /// Items go to the pod of the CPU that queues them, run on any of its CPUs, and are counted by node. The kernel's `WQ_UNBOUND`.
    #[default]
    Unbound,
    /// Items go to the CPU that queues them, and are counted there: see [`WorkqueueBuilder::per_cpu`](crate::WorkqueueBuilder::per_cpu).
    /// The kernel's `WQ_PERCPU`.
    PerCpu,
    /// Items run one at a time, in the order in which they were queued: see
    /// [`WorkqueueBuilder::ordered`](crate::WorkqueueBuilder::ordered). The kernel's `alloc_ordered_workqueue()`.
    Ordered,
}

impl From<QueueId> for u64 {
    fn from(id: QueueId) -> Self {
        id.0
    }
}

impl From<PoolId> for u32 {
    fn from(id: PoolId) -> Self {
        id.0
    }
}

impl From<PoolId> for u64 {
    fn from(id: PoolId) -> Self {
        id.0.into()
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
