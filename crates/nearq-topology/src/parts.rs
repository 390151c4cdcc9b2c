//! The parts a machine is made of, as plain data.
//!
//! A part names another one by its *index* in the slice of the same name of
//! [`Topology`](crate::Topology); the operating system's own number, which may have gaps, is `id`.

use crate::CpuSet;
use std::fmt;

/// A logical CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cpu {
    /// The CPU's number, as in an affinity mask.
    pub id: usize,
    /// Index of its core.
    pub core: usize,
    /// Index of its last-level cache domain.
    pub llc: usize,
    /// Index of its node; `None` if the machine does not say, which happens for CPUs that are offline.
    pub node: Option<usize>,
    /// Index of its package, if known.
    pub package: Option<usize>,
    /// Index of its die, if the machine has packages of several dies.
    pub die: Option<usize>,
    /// Index of its cluster, if the machine has groups between core and last-level cache.
    pub cluster: Option<usize>,
    /// Whether it was online when the machine was read.
    pub online: bool,
    /// Relative speed, 1024 being that of the fastest CPU, if the machine says.
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
    /// Index of its last-level cache domain.
    pub llc: usize,
    /// Index of its node.
    pub node: Option<usize>,
    /// The kind of core on a hybrid machine.
    pub kind: Option<String>,
}

/// A last-level cache domain: the CPUs of one node that share the last level of cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Llc {
    /// Its CPUs, all on one node.
    pub cpus: CpuSet,
    /// Index of the cache; `None` if the machine names no cache and a larger group stands in for it.
    pub cache: Option<usize>,
    /// Index of its node.
    pub node: Option<usize>,
    /// Indices of its cores, in CPU order.
    pub cores: Vec<usize>,
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
    /// The operating system's number, if it has one. Dies and clusters are numbered within their package.
    pub id: Option<usize>,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// What a cache holds.
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
    /// 1 is the nearest to the core.
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
