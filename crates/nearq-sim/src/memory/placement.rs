//! Chooses the node of a page: policies of threads and of ranges, as on Linux.
//!
//! A page gets its node when it is first touched: by the policy of its range if it has one, otherwise by the policy of the thread that
//! touches it. Nodes do not fill up: the behaviour of a policy when its nodes are full is not simulated.

use std::collections::BTreeMap;
use std::rc::Rc;

use nearq_platform::{MemoryPolicy, OsError};
use nearq_topology::Topology;

use crate::costs::Costs;
use crate::hardware;

/// `EINVAL`: no such node.
const EINVAL: i32 = 22;

/// Where memory comes from; nodes by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The node of the CPU that touches it, or the nearest one that has memory.
    #[default]
    Local,
    /// This node.
    Preferred(u32),
    /// Of these nodes, the nearest to the CPU that touches it.
    Bind(Rc<[u32]>),
    /// These nodes in turn.
    Interleave(Rc<[u32]>),
}

/// A thread's policy, and its position if it takes nodes in turn. It is copied to the threads that the thread starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placing {
    pub(crate) policy: Policy,
    pub(crate) turn: usize,
}

/// The nodes of a machine, as places for memory.
#[derive(Debug)]
pub(super) struct Nodes {
    /// The operating system's numbers.
    ids: Vec<usize>,
    has_memory: Vec<bool>,
    /// Latency of a read, from the reader's node to the memory's, row by row.
    latencies: Vec<u64>,
}

impl Nodes {
    pub(super) fn new(topology: &Topology, costs: &Costs) -> Self {
        let nodes = topology.nodes();
        let mut has_memory: Vec<bool> = nodes.iter().map(|node| node.memory != Some(0)).collect();
        if !has_memory.contains(&true) {
            // If the description names no memory at all, the memory must still be somewhere.
            has_memory.fill(true);
        }
        let (near, far) = (costs.memory_same_package, costs.memory_other_package);
        Nodes {
            ids: nodes.iter().map(|node| node.id).collect(),
            has_memory,
            latencies: hardware::by_node(topology, costs.memory, near, far),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Turns counts by index into counts by the operating system's number.
    pub(super) fn by_id(&self, counts: &[usize]) -> Vec<usize> {
        let mut by_id = vec![0; self.ids.iter().max().map_or(0, |most| most + 1)];
        for (id, count) in self.ids.iter().zip(counts) {
            by_id[*id] = *count;
        }
        by_id
    }

    /// Latency of a read by a CPU of `from` from the memory of `home`.
    pub(super) fn latency(&self, from: u32, home: u32) -> u64 {
        self.latencies[from as usize * self.len() + home as usize]
    }

    fn nearest(&self, from: u32, among: impl Iterator<Item = u32>) -> Option<u32> {
        among.min_by_key(|node| (self.latency(from, *node), *node))
    }

    /// The node of a page that a CPU of `from` touches. `turn` is the page's position, if that counts.
    pub(super) fn choose(&self, policy: &Policy, from: u32, turn: impl FnOnce() -> usize) -> u32 {
        match policy {
            Policy::Local if self.has_memory[from as usize] => from,
            Policy::Local => {
                let all = (0..self.len() as u32).filter(|node| self.has_memory[*node as usize]);
                self.nearest(from, all).expect("some node has memory")
            }
            Policy::Preferred(node) => *node,
            Policy::Bind(nodes) => {
                self.nearest(from, nodes.iter().copied()).expect("a policy names a node")
            }
            Policy::Interleave(nodes) => nodes[turn() % nodes.len()],
        }
    }

    /// A policy in the simulation's terms. As on Linux, nodes that do not exist or have no memory are skipped, unless
    /// none is left.
    pub(super) fn resolve(&self, policy: &MemoryPolicy, what: &str) -> Result<Policy, OsError> {
        let named: &[usize] = match policy {
            MemoryPolicy::Local => return Ok(Policy::Local),
            MemoryPolicy::Preferred(node) => std::slice::from_ref(node),
            MemoryPolicy::Bind(nodes) | MemoryPolicy::Interleave(nodes) => nodes,
        };
        let usable = (0..self.ids.len()).filter(|node| self.has_memory[*node]);
        let nodes: Rc<[u32]> = usable
            .clone()
            .filter(|node| named.contains(&self.ids[*node]))
            .map(|node| node as u32)
            .collect();
        let Some(first) = nodes.first().copied() else {
            let have: Vec<usize> = usable.map(|node| self.ids[node]).collect();
            return Err(OsError::new(
                format!("have {what} come from nodes {named:?}"),
                EINVAL,
                format!("name nodes that have memory: {have:?}"),
            ));
        };
        Ok(match policy {
            MemoryPolicy::Local => Policy::Local,
            MemoryPolicy::Preferred(_) => Policy::Preferred(first),
            MemoryPolicy::Bind(_) => Policy::Bind(nodes),
            MemoryPolicy::Interleave(_) => Policy::Interleave(nodes),
        })
    }
}

impl Nodes {
    /// Undoes [`resolve`](Self::resolve), except for nodes that were left out.
    pub(super) fn describe(&self, policy: &Policy) -> MemoryPolicy {
        let ids = |nodes: &[u32]| nodes.iter().map(|node| self.ids[*node as usize]).collect();
        match policy {
            Policy::Local => MemoryPolicy::Local,
            Policy::Preferred(node) => MemoryPolicy::Preferred(self.ids[*node as usize]),
            Policy::Bind(nodes) => MemoryPolicy::Bind(ids(nodes)),
            Policy::Interleave(nodes) => MemoryPolicy::Interleave(ids(nodes)),
        }
    }
}

/// A range of pages with a policy of its own.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    /// One more than the number of the last page.
    end: usize,
    /// The page from which to count when nodes are taken in turn.
    origin: usize,
    process: u64,
    policy: Policy,
}

impl Bound {
    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The position of a page in the range.
    pub(super) fn turn(&self, page: usize) -> usize {
        page - self.origin
    }

    /// Whether a page that lives on `home` is where the policy wants it. The local node is determined anew.
    pub(super) fn is_met(&self, home: u32, local: u32) -> bool {
        match &self.policy {
            Policy::Local => home == local,
            Policy::Preferred(node) => home == *node,
            Policy::Bind(nodes) | Policy::Interleave(nodes) => nodes.contains(&home),
        }
    }
}

/// The ranges of pages that have policies of their own, by their first page. They do not overlap.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<usize, Bound>);

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, page: usize) -> Option<&Bound> {
        self.0.range(..=page).next_back().map(|(_, bound)| bound).filter(|bound| page < bound.end)
    }

    /// Gives the pages from `first` to below `end` a policy.
    pub(super) fn set(&mut self, first: usize, end: usize, process: u64, policy: Policy) {
        self.remove(first, end);
        self.0.insert(first, Bound { end, origin: first, process, policy });
    }

    /// Takes the policy from the pages from `first` to below `end`.
    pub(super) fn remove(&mut self, first: usize, end: usize) {
        while let Some((&start, bound)) = self.0.range(..end).next_back()
            && bound.end > first
        {
            let bound = bound.clone();
            self.0.remove(&start);
            if bound.end > end {
                self.0.insert(end, bound.clone());
            }
            if start < first {
                self.0.insert(start, Bound { end: first, ..bound });
            }
        }
    }

    /// Forgets the ranges of a process.
    pub(super) fn remove_process(&mut self, process: u64) {
        self.0.retain(|_, bound| bound.process != process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_split_at_overlaps_and_keep_their_origin() {
        let mut ranges = Ranges::default();
        let policies = |ranges: &Ranges| {
            let node = |page| match ranges.get(page)?.policy() {
                Policy::Preferred(node) => Some(*node),
                _ => None,
            };
            (8..22).map(node).map(|node| node.map_or('.', |n| (b'0' + n as u8) as char)).collect()
        };
        ranges.set(10, 20, 1, Policy::Preferred(1));
        ranges.set(12, 14, 1, Policy::Preferred(2));
        let text: String = policies(&ranges);
        assert_eq!(text, "..1122111111..");
        assert_eq!(ranges.get(15).map(|bound| bound.turn(15)), Some(5));
        ranges.set(8, 13, 2, Policy::Preferred(3));
        ranges.remove(16, 17);
        let text: String = policies(&ranges);
        assert_eq!(text, "33333211.111..");
        ranges.remove_process(1);
        let text: String = policies(&ranges);
        assert_eq!(text, "33333.........");
        ranges.remove(0, 100);
        assert!(ranges.is_empty());
    }

    #[test]
    fn policies_choose_by_distance_and_in_turn() {
        let topology = Topology::from_synthetic("pack:2 numa:2 core:1").expect("well formed");
        let nodes = Nodes::new(&topology, &Costs::DEFAULT);
        let choose = |policy: &MemoryPolicy, from, turn| {
            nodes.choose(&nodes.resolve(policy, "it").expect("exists"), from, || turn)
        };
        assert_eq!(choose(&MemoryPolicy::Local, 3, 0), 3);
        assert_eq!(choose(&MemoryPolicy::Preferred(2), 0, 0), 2);
        assert_eq!(choose(&MemoryPolicy::Bind(vec![0, 2]), 3, 0), 2, "the same package is nearer");
        assert_eq!(choose(&MemoryPolicy::Bind(vec![0, 3, 9]), 3, 0), 3);
        let turns = [0, 1, 2, 3].map(|turn| choose(&MemoryPolicy::Interleave(vec![3, 1]), 0, turn));
        assert_eq!(turns, [1, 3, 1, 3], "by number, in whatever order they are named");
        for none in [MemoryPolicy::Preferred(4), MemoryPolicy::Bind(vec![])] {
            let refused = nodes.resolve(&none, "it").expect_err("no such node");
            assert_eq!(refused.errno(), EINVAL);
            assert!(refused.to_string().contains("[0, 1, 2, 3]"), "{refused}");
        }
    }
}
