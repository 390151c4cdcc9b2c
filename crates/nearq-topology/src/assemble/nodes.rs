//! Which CPUs are on which node, if the machine does not say so or names several nodes for a CPU.

use super::Draft;
use crate::{Cache, CpuSet, Group, MAX_NODES, Node, TopologyError};

impl Draft {
    /// Every CPU that is online gets one node; the node of an offline CPU may stay unknown.
    pub(super) fn settle_nodes(
        &mut self,
        cores: &[Group],
        caches: &[Cache],
        packages: &[Group],
    ) -> Result<(), TopologyError> {
        if self.nodes.len() > MAX_NODES {
            return Err(TopologyError::TooManyNodes { count: self.nodes.len() });
        }
        self.settle_overlaps();
        let unknown = self.without_node();
        if self.nodes.is_empty() {
            self.note("the machine does not describe its NUMA nodes: all CPUs are put on one node");
            self.nodes.push(Node { id: 0, cpus: unknown, memory: None });
            self.distances.clear();
        } else if let [only] = self.nodes.as_mut_slice() {
            only.cpus = &only.cpus | &unknown;
        } else if !unknown.is_empty() {
            // From the best known to the least: lower caches come before higher ones.
            let near = cores.iter().map(|group| &group.cpus);
            let near = near.chain(caches.iter().rev().map(|cache| &cache.cpus));
            self.settle_by_members(near.chain(packages.iter().map(|group| &group.cpus)));
            self.settle_rest();
        }
        Ok(())
    }

    /// The CPUs that are on no node.
    fn without_node(&self) -> CpuSet {
        self.nodes.iter().fold(self.possible.clone(), |rest, node| &rest - &node.cpus)
    }

    /// A CPU that several nodes list stays on the node with the shortest list, because a list becomes longer if CPUs of other nodes are in
    /// it. Afterwards the nodes are in order of their numbers.
    fn settle_overlaps(&mut self) {
        let mut taken = CpuSet::new();
        let mut overlap = CpuSet::new();
        self.nodes.sort_by_key(|node| (node.cpus.len(), node.id));
        for node in &mut self.nodes {
            node.cpus = &node.cpus & &self.possible;
            overlap = &overlap | &(&node.cpus & &taken);
            node.cpus = &node.cpus - &taken;
            taken = &taken | &node.cpus;
        }
        self.nodes.sort_by_key(|node| node.id);
        if !overlap.is_empty() {
            self.note(format!(
                "CPUs {overlap} are on several nodes; the one with the fewest CPUs is used"
            ));
        }
    }

    /// Puts the online CPUs of a set whose node is unknown on the node of the other CPUs of the set, if those are all on one node.
    fn settle_by_members<'a>(&mut self, sets: impl Iterator<Item = &'a CpuSet>) {
        let mut unknown = &self.without_node() & &self.online;
        let mut settled = CpuSet::new();
        for set in sets {
            if !set.intersects(&unknown) {
                continue;
            }
            let mut there = self.nodes.iter_mut().filter(|node| node.cpus.intersects(set));
            if let (Some(node), None) = (there.next(), there.next()) {
                let companions = set & &unknown;
                node.cpus = &node.cpus | &companions;
                settled = &settled | &companions;
                unknown = &unknown - &companions;
            }
        }
        if !settled.is_empty() {
            self.note(format!(
                "no node lists CPUs {settled}: they are put on the node of the CPUs that share their core, cache or package"
            ));
        }
    }

    /// Places CPUs about which nothing is known: if only one node can have a CPU, the CPU is put there; other online CPUs are put on the
    /// first node that does not list its CPUs, or else on the first node that can have them.
    fn settle_rest(&mut self) {
        let unknown = self.without_node();
        let unlisted = std::mem::take(&mut self.unlisted);
        let is_unlisted = |node: &Node| node.cpus.is_empty() && unlisted.contains(&node.id);
        // A node that lists no CPUs has none.
        let may = |node: &Node| !node.cpus.is_empty() || is_unlisted(node);
        let mut homes: Vec<&mut Node> = self.nodes.iter_mut().filter(|node| may(node)).collect();
        if let [only] = homes.as_mut_slice() {
            only.cpus = &only.cpus | &unknown;
            return;
        }
        let online = &unknown & &self.online;
        if !online.is_empty() {
            let place = self.nodes.iter().position(is_unlisted);
            let place = place.or_else(|| self.nodes.iter().position(may));
            let node = &mut self.nodes[place.unwrap_or(0)];
            node.cpus = &node.cpus | &online;
            let id = node.id;
            self.note(format!("the node of CPUs {online} is not known: they are put on node {id}"));
        }
        let offline = &unknown - &online;
        if !offline.is_empty() {
            self.note(format!("the node of CPUs {offline} is not known"));
        }
    }
}
