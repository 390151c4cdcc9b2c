//! How far apart two CPUs are.

use crate::{LOCAL_DISTANCE, REMOTE_DISTANCE};
use std::fmt;

/// How far apart two CPUs are, nearest first.
///
/// ```
/// # mod nearq { pub use nearq_topology as topology; }
/// use nearq::topology::{Distance, Topology};
///
/// let machine = Topology::from_synthetic("pack:2 l3:2 core:4 pu:2")?;
/// assert_eq!(machine.cpu_distance(0, 1), Distance::SameCore);
/// assert_eq!(machine.cpu_distance(0, 2), Distance::SameLlc);
/// assert!(machine.cpu_distance(0, 8) < machine.cpu_distance(0, 16));
/// # Ok::<(), nearq::topology::TopologyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Distance {
    /// The same CPU.
    SameCpu,
    /// Another CPU of the core.
    SameCore,
    /// Another core of the cluster, with the same last-level cache.
    SameCluster,
    /// Another core with the same last-level cache.
    SameLlc,
    /// Another last-level cache of the same package and node.
    SamePackage,
    /// Another package of the same node.
    SameNode,
    /// Another node, at this distance in the firmware's units (SLIT).
    OtherNode(u32),
}

impl Distance {
    /// The distance as one number that grows with it: 0 to 5 within a node, and between nodes the firmware's own figure, but at least 10
    /// ([`LOCAL_DISTANCE`]).
    pub const fn weight(self) -> u32 {
        match self {
            Self::SameCpu => 0,
            Self::SameCore => 1,
            Self::SameCluster => 2,
            Self::SameLlc => 3,
            Self::SamePackage => 4,
            Self::SameNode => 5,
            Self::OtherNode(apart) if apart < LOCAL_DISTANCE => LOCAL_DISTANCE,
            Self::OtherNode(apart) => apart,
        }
    }
}

/// Where a CPU is, by index, as far as distances go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CpuPosition {
    pub cpu: usize,
    pub core: usize,
    pub cluster: Option<usize>,
    pub llc: usize,
    pub package: Option<usize>,
    pub node: Option<usize>,
}

impl CpuPosition {
    /// The distance to another position; `nodes` holds the distances between nodes.
    pub(crate) fn distance(&self, other: &Self, nodes: &[Vec<u32>]) -> Distance {
        let same = |a: Option<usize>, b: Option<usize>| a.is_some() && a == b;
        if self.cpu == other.cpu {
            Distance::SameCpu
        } else if self.core == other.core {
            Distance::SameCore
        } else if self.llc == other.llc {
            if same(self.cluster, other.cluster) {
                Distance::SameCluster
            } else {
                Distance::SameLlc
            }
        } else if self.node == other.node {
            if same(self.package, other.package) {
                Distance::SamePackage
            } else {
                Distance::SameNode
            }
        } else {
            let apart = self.node.zip(other.node).map_or(REMOTE_DISTANCE, |(a, b)| nodes[a][b]);
            Distance::OtherNode(apart)
        }
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameCpu => f.pad("same CPU"),
            Self::SameCore => f.pad("same core"),
            Self::SameCluster => f.pad("same cluster"),
            Self::SameLlc => f.pad("same last-level cache"),
            Self::SamePackage => f.pad("same package"),
            Self::SameNode => f.pad("same node"),
            Self::OtherNode(apart) => f.pad(&format!("other node at {apart}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_grows_with_the_distance() {
        use Distance::*;
        let all = [
            SameCpu,
            SameCore,
            SameCluster,
            SameLlc,
            SamePackage,
            SameNode,
            OtherNode(10),
            OtherNode(21),
        ];
        for pair in all.windows(2) {
            assert!(pair[0] < pair[1] && pair[0].weight() < pair[1].weight(), "{pair:?}");
        }
    }

    #[test]
    fn packages_of_one_node_are_farther_apart_than_caches_of_one_package() {
        let machine = crate::Topology::from_synthetic("numa:1 pack:2 l3:2 core:1").unwrap();
        assert_eq!(machine.cpu_distance(0, 1), Distance::SamePackage);
        assert_eq!(machine.cpu_distance(0, 2), Distance::SameNode);
    }
}
