//! What an item's path looks up about the machine: which node a CPU is on, and how much imbalance it takes between two nodes. Single words,
//! so that no thread waits for another that changes them.

use nearq_home::Weights;
use nearq_platform::{Atomic, Ordering, Platform};
use nearq_topology::{LOCAL_DISTANCE, Topology};

/// No node: for a CPU that is not known.
const NOWHERE: u32 = u32::MAX;

/// Nodes by their numbers, as the operating system gives them.
pub(crate) struct Map<P: Platform> {
    /// The node, by CPU number.
    node_of: Box<[u32]>,
    /// One more than the highest number.
    nodes: usize,
    /// From the helper's node to the item's node, a row for each.
    distances: Box<[u32]>,
    /// What the imbalance must exceed, likewise.
    thresholds: Box<[P::AtomicU32]>,
}

impl<P: Platform> Map<P> {
    pub(crate) fn new(topology: &Topology, weights: &Weights) -> Self {
        let list = topology.nodes();
        let number = |cpu| topology.node_index(cpu).map_or(NOWHERE, |index| list[index].id as u32);
        let cpus = topology.possible().last().map_or(0, |last| last + 1);
        let nodes = list.iter().map(|node| node.id + 1).max().unwrap_or(1);
        let mut distances = vec![LOCAL_DISTANCE; nodes * nodes].into_boxed_slice();
        for (a, from) in list.iter().enumerate() {
            for (b, to) in list.iter().enumerate() {
                distances[from.id * nodes + to.id] = topology.distance(a, b);
            }
        }
        let thresholds = (0..distances.len()).map(|_| P::AtomicU32::new(0)).collect();
        let map = Map { node_of: (0..cpus).map(number).collect(), nodes, distances, thresholds };
        map.set_weights(weights);
        map
    }

    /// One more than the highest number of a node.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// The node of a CPU.
    #[inline]
    pub(crate) fn node_of(&self, cpu: usize) -> Option<u32> {
        self.node_of.get(cpu).copied().filter(|node| *node != NOWHERE)
    }

    /// Follows a change of the weights.
    pub(crate) fn set_weights(&self, weights: &Weights) {
        for (distance, threshold) in self.distances.iter().zip(&self.thresholds) {
            threshold.store(weights.threshold(*distance), Ordering::Relaxed);
        }
    }

    /// Whether a worker of one node may take an item from its home, if so many more wait for each CPU there, in thousandths: as
    /// `Weights::may_take`, without the weights' lock.
    pub(crate) fn may_take(&self, helper: u32, home: u32, imbalance: u32) -> bool {
        let threshold = self.thresholds.get(helper as usize * self.nodes + home as usize);
        threshold.is_none_or(|threshold| imbalance > threshold.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_home::Belongs;
    use nearq_platform::Linux;

    #[test]
    fn thresholds_are_those_of_the_weights() {
        let machine = Topology::from_synthetic("pack:2 numa:2 core:2").unwrap();
        let mut weights = Weights::default();
        let map = Map::<Linux>::new(&machine, &weights);
        assert_eq!(map.nodes(), 4);
        assert_eq!([0, 3, 7, 8].map(|cpu| map.node_of(cpu)), [Some(0), Some(1), Some(3), None]);
        for imbalance in [100, 101, 600, 601, 1000, 1001] {
            for step in [500, 900] {
                weights.set("item_imbalance_step", step).unwrap();
                map.set_weights(&weights);
                for (helper, home) in [(0, 1), (0, 2), (3, 0), (2, 2)] {
                    let distance = machine.distance(helper, home);
                    let wanted = weights.may_take(Belongs::Elsewhere, imbalance, distance);
                    assert_eq!(map.may_take(helper as u32, home as u32, imbalance), wanted);
                }
            }
        }
    }
}
