//! The numbers by which users know queues and pools, as types of their own.

use core::fmt;

/// The number of a queue: from 1 on, and never used for another queue of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub(crate) u64);

/// The number of a pool, as in its workers' names. Never used for another pool of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub(crate) u32);

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
