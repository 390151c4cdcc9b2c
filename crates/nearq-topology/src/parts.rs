//! The parts a machine is made of, as plain data.
//!
//! An `id` is the operating system's own number of a part. Ids may have gaps. An `..._index` is the place of a part in the slice of
//! [`Topology`](crate::Topology) that lists all parts of its kind; indices begin at 0 and have no gaps.

use crate::CpuSet;
use std::fmt;

/// A logical CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cpu {
    /// The operating system's number of the CPU, as in an affinity mask.
    pub id: usize,
    /// Index of its core in [`Topology::cores`](crate::Topology::cores).
    pub core_index: usize,
    /// Index of its last-level cache domain in [`Topology::llcs`](crate::Topology::llcs).
    pub llc_index: usize,
    /// Index of its node in [`Topology::nodes`](crate::Topology::nodes); `None` if the machine does not say, which happens for CPUs that
    /// are offline.
    pub node_index: Option<usize>,
    /// Index of its package in [`Topology::packages`](crate::Topology::packages), if known.
    pub package_index: Option<usize>,
    /// Index of its die in [`Topology::dies`](crate::Topology::dies), if the machine has packages of several dies.
    pub die_index: Option<usize>,
    /// Index of its cluster in [`Topology::clusters`](crate::Topology::clusters), if the machine has groups between core and last-level
    /// cache.
    pub cluster_index: Option<usize>,
    /// Whether it was online when the machine was read.
    pub online: bool,
    /// Relative speed, if the machine says; the fastest CPU has 1024.
    pub capacity: Option<u32>,
    /// The kind of core on a hybrid machine, such as `core`, `atom` or `IntelAtom`.
    pub kind: Option<String>,
}

/// A core: the CPUs that share one set of execution units (an SMT group).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Core {
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Index of its last-level cache domain in [`Topology::llcs`](crate::Topology::llcs).
    pub llc_index: usize,
    /// Index of its node in [`Topology::nodes`](crate::Topology::nodes), if known.
    pub node_index: Option<usize>,
    /// The kind of core on a hybrid machine, as [`Cpu::kind`].
    pub kind: Option<String>,
}

/// A last-level cache domain: the CPUs of one node that share the last level of cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Llc {
    /// Its CPUs, all on one node.
    pub cpus: CpuSet,
    /// Index of the cache in [`Topology::caches`](crate::Topology::caches); `None` if the machine names no cache and a larger group stands
    /// in for it.
    pub cache_index: Option<usize>,
    /// Index of its node in [`Topology::nodes`](crate::Topology::nodes), if known.
    pub node_index: Option<usize>,
    /// Indices of its cores in [`Topology::cores`](crate::Topology::cores), in CPU order.
    pub core_indices: Vec<usize>,
}

/// A NUMA node. It may have no CPUs, or no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// The operating system's number of the node.
    pub id: usize,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Its memory in bytes, if known.
    pub memory: Option<u64>,
}

/// A package, a die or a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    /// The operating system's number, if it has one. Dies and clusters are numbered within their package, so two of them may have the same.
    pub id: Option<usize>,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// What a cache holds. Displays as `data`, `instruction` or `unified`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CacheKind {
    /// Only data.
    Data,
    /// Only instructions.
    Instruction,
    /// Both.
    Unified,
}

impl fmt::Display for CacheKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Data => "data",
            Self::Instruction => "instruction",
            Self::Unified => "unified",
        })
    }
}

/// A cache, of any level.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cache {
    /// The level, counted from the core: 1 for the nearest cache.
    pub level: u32,
    /// What it holds.
    pub kind: CacheKind,
    /// Its size in bytes, if known.
    pub size: Option<u64>,
    /// The length of a line in bytes, if known.
    pub line: Option<u32>,
    /// The CPUs that share it.
    pub cpus: CpuSet,
}
