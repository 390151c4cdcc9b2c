//! The simulated machine's shape, in the form that every access needs: the distances between CPUs.

use nearq_topology::{CpuSet, Topology};

use crate::costs::Costs;

/// The capacity of a CPU that is as fast as the fastest one.
pub(crate) const FULL_CAPACITY: u64 = 1024;

/// Where a CPU is.
#[derive(Clone, Copy, Debug, Default)]
struct CpuLocation {
    core: u32,
    llc: u32,
    node: u32,
}

/// A topology, prepared for quick answers. CPUs are addressed by their number, which may have gaps.
#[derive(Debug)]
pub(crate) struct Hardware {
    topology: Topology,
    locations: Vec<CpuLocation>,
    /// The other CPUs of each CPU's core.
    siblings: Vec<Vec<u32>>,
    /// Each CPU's share of the fastest CPU's speed, of 1024.
    capacities: Vec<u64>,
    /// Nanoseconds that a line takes from node to node, row by row.
    between_nodes: Vec<u64>,
    /// Nanoseconds of the way from a node to a line's home, row by row. Empty if the home does not count.
    to_home: Vec<u64>,
    costs: Costs,
}

impl Hardware {
    pub(crate) fn new(topology: Topology, costs: &Costs) -> Self {
        let numbers = topology.possible().last().map_or(0, |last| last + 1);
        let mut locations = vec![CpuLocation::default(); numbers];
        let mut siblings = vec![Vec::new(); numbers];
        let mut capacities = vec![FULL_CAPACITY; numbers];
        let unknown = node_of_unknown(&topology);
        for cpu in topology.cpus() {
            let node = cpu.node_index.unwrap_or(unknown) as u32;
            locations[cpu.id] =
                CpuLocation { core: cpu.core_index as u32, llc: cpu.llc_index as u32, node };
            let core = &topology.cores()[cpu.core_index].cpus;
            siblings[cpu.id] =
                core.iter().filter(|other| *other != cpu.id).map(|other| other as u32).collect();
            if let Some(capacity) = cpu.capacity {
                capacities[cpu.id] = u64::from(capacity).clamp(1, FULL_CAPACITY);
            }
        }
        let between_nodes = by_node(&topology, 0, costs.same_package, costs.other_package);
        let (near, far) = (costs.home_same_package, costs.home_other_package);
        let to_home = if near.max(far) > 0 { by_node(&topology, 0, near, far) } else { Vec::new() };
        Hardware {
            topology,
            locations,
            siblings,
            capacities,
            between_nodes,
            to_home,
            costs: *costs,
        }
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// One more than the largest CPU number.
    pub(crate) fn numbers(&self) -> usize {
        self.locations.len()
    }

    /// The CPUs under the same last-level cache.
    pub(crate) fn llc_cpus(&self, cpu: usize) -> &CpuSet {
        &self.topology.llcs()[self.locations[cpu].llc as usize].cpus
    }

    /// The CPUs of the same node.
    pub(crate) fn node_cpus(&self, cpu: usize) -> &CpuSet {
        &self.topology.nodes()[self.locations[cpu].node as usize].cpus
    }

    /// The CPUs of the same core.
    pub(crate) fn core_cpus(&self, cpu: usize) -> &CpuSet {
        &self.topology.cores()[self.locations[cpu].core as usize].cpus
    }

    /// The other CPUs of the same core.
    pub(crate) fn siblings(&self, cpu: usize) -> &[u32] {
        &self.siblings[cpu]
    }

    /// Index of the CPU's core.
    pub(crate) fn core(&self, cpu: usize) -> usize {
        self.locations[cpu].core as usize
    }

    /// Index of the CPU's last-level cache.
    pub(crate) fn llc(&self, cpu: usize) -> usize {
        self.locations[cpu].llc as usize
    }

    /// Index of the CPU's node.
    pub(crate) fn node(&self, cpu: usize) -> usize {
        self.locations[cpu].node as usize
    }

    /// The CPU's share of the fastest one's speed, of [`FULL_CAPACITY`].
    pub(crate) fn capacity(&self, cpu: usize) -> u64 {
        self.capacities[cpu]
    }

    /// Nanoseconds that a line takes from a last-level cache to a CPU below it.
    pub(crate) fn same_llc(&self) -> u64 {
        self.costs.same_llc
    }

    /// Nanoseconds that a line takes from one CPU to another, if its home is the node of either.
    fn transfer(&self, from: usize, to: usize) -> u64 {
        let (a, b) = (self.locations[from], self.locations[to]);
        if from == to {
            self.costs.own_line
        } else if a.node != b.node {
            self.between_nodes[a.node as usize * self.topology.nodes().len() + b.node as usize]
        } else if a.llc != b.llc {
            self.costs.other_llc
        } else if a.core != b.core {
            self.costs.same_llc
        } else {
            self.costs.same_core
        }
    }

    /// Nanoseconds that a line takes from one CPU to another, with its home on the node `home`.
    ///
    /// The one that wants it asks the home, the home asks the owner, and the owner sends it: three ways. With the home on the node of
    /// either CPU, the third is as long as the other two together, and all three are part of the published costs. Another home makes the
    /// first two longer. Below one last-level cache the home is not asked.
    pub(crate) fn line(&self, from: usize, to: usize, home: usize) -> u64 {
        let near = self.transfer(from, to);
        let (a, b) = (self.locations[from], self.locations[to]);
        if self.to_home.is_empty() || a.llc == b.llc {
            return near;
        }
        let nodes = self.topology.nodes().len();
        let way = |from: u32, to: usize| self.to_home[from as usize * nodes + to];
        let ways = way(a.node, home) + way(b.node, home);
        near + ways.saturating_sub(way(a.node, b.node as usize))
    }
}

/// Index of the node that stands for the unknown node of a CPU, because every CPU needs one: the first node that has CPUs.
pub(crate) fn node_of_unknown(topology: &Topology) -> usize {
    topology.nodes().iter().position(|node| !node.cpus.is_empty()).unwrap_or(0)
}

/// A cost for each pair of nodes, row by row: `same_node` on one node, `same_package` between nodes of one package, `other_package` between
/// a package and the nearest node of another; to farther nodes in proportion to the firmware's distances.
pub(crate) fn by_node(
    topology: &Topology,
    same_node: u64,
    same_package: u64,
    other_package: u64,
) -> Vec<u64> {
    let nodes = topology.nodes();
    let package =
        |node: usize| nodes[node].cpus.first().and_then(|cpu| topology.package_index(cpu));
    let pairs = || (0..nodes.len()).flat_map(|a| (0..nodes.len()).map(move |b| (a, b)));
    let nearest = pairs()
        .filter(|&(a, b)| package(a) != package(b))
        .map(|(a, b)| topology.distance(a, b))
        .min()
        .unwrap_or(1)
        .max(1);
    let cost = |(a, b): (usize, usize)| {
        if a == b {
            same_node
        } else if package(a).is_some() && package(a) == package(b) {
            same_package
        } else {
            other_package * u64::from(topology.distance(a, b)) / u64::from(nearest)
        }
    };
    pairs().map(cost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn farther_transfers_cost_more() {
        let topology = Topology::from_synthetic("numa:2 l3:2 core:2 pu:2").expect("well formed");
        let hardware = Hardware::new(topology, &Costs::DEFAULT);
        let costs = [0, 1, 2, 4, 8].map(|to| hardware.transfer(0, to));
        let c = Costs::DEFAULT;
        assert_eq!(costs, [c.own_line, c.same_core, c.same_llc, c.other_llc, c.same_package]);
        assert_eq!(hardware.llc_cpus(5).to_list(), "4-7");
        assert_eq!(hardware.node_cpus(5).to_list(), "0-7");
        assert_eq!(hardware.numbers(), 16);
    }

    #[test]
    fn a_home_far_from_both_cpus_costs_both_ways() {
        let costs = Costs { home_same_package: 40, home_other_package: 100, ..Costs::DEFAULT };
        let topology = Topology::from_synthetic("pack:2 numa:2 l3:2 core:2").expect("well formed");
        let hardware = Hardware::new(topology.clone(), &costs);
        // From CPU 0, with each of the four nodes as the home.
        let by_home = |to| [0, 1, 2, 3].map(|home| hardware.line(0, to, home));
        let Costs { same_llc, other_llc, same_package, other_package, .. } = costs;
        assert_eq!(by_home(1), [same_llc; 4], "the home is not asked");
        assert_eq!(by_home(2), [0, 80, 200, 200].map(|longer| other_llc + longer));
        assert_eq!(by_home(4), [0, 0, 160, 160].map(|longer| same_package + longer));
        assert_eq!(by_home(8), [0, 40, 0, 40].map(|longer| other_package + longer));
        let silent = Hardware::new(topology, &Costs::DEFAULT);
        assert_eq!([0, 1, 2, 3].map(|home| silent.line(0, 8, home)), [other_package; 4]);
    }

    #[test]
    fn farther_nodes_cost_in_proportion() {
        let topology = Topology::from_synthetic("pack:4 numa:1 core:1").expect("well formed");
        let rows = [[10, 20, 20, 30], [20, 10, 30, 20], [20, 30, 10, 20], [30, 20, 20, 10]];
        let topology = topology.with_distances(&rows.map(Vec::from)).expect("square");
        let costs = by_node(&topology, 0, 100, 200);
        assert_eq!(costs[..4], [0, 200, 200, 300]);
    }
}
