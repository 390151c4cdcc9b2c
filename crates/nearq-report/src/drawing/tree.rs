//! The machine as nested blocks: packages, nodes and dies in whatever order they contain each other, with the
//! last-level cache domains as leaves.

use super::bytes;
use nearq_topology::{CpuSet, Device, Topology};

/// A package, node or die, or several of them that have the same CPUs.
#[derive(Debug)]
pub(super) struct Block {
    pub label: String,
    pub cpus: CpuSet,
    /// The ids of the nodes that it is.
    pub nodes: Vec<usize>,
    pub blocks: Vec<Block>,
    /// Indices of the last-level cache domains directly inside.
    pub llcs: Vec<usize>,
}

/// The outermost blocks. Nodes without CPUs come last.
pub(super) fn blocks(machine: &Topology) -> Vec<Block> {
    let mut roots = Block::new(String::new(), CpuSet::new(), Vec::new());
    for (index, llc) in machine.llcs().iter().enumerate() {
        let mut at = &mut roots;
        for (label, cpus, nodes) in path(machine, llc.cpus.first().unwrap_or_default()) {
            let found =
                at.blocks.iter().position(|block| block.label == label).unwrap_or_else(|| {
                    at.blocks.push(Block::new(label, cpus, nodes));
                    at.blocks.len() - 1
                });
            at = &mut at.blocks[found];
        }
        at.llcs.push(index);
    }
    let bare = machine.nodes().iter().filter(|node| node.cpus.is_empty());
    roots.blocks.extend(bare.map(|node| {
        let label = format!("{}, no CPUs", node_label(node.id, node.memory));
        Block::new(label, CpuSet::new(), vec![node.id])
    }));
    roots.blocks
}

impl Block {
    fn new(label: String, cpus: CpuSet, nodes: Vec<usize>) -> Self {
        Block { label, cpus, nodes, blocks: Vec::new(), llcs: Vec::new() }
    }

    /// The names of the devices that are near it.
    pub(super) fn devices(&self, machine: &Topology) -> Vec<String> {
        let is_near = |device: &&Device| device.nodes.iter().any(|node| self.nodes.contains(node));
        machine.devices().iter().filter(is_near).map(Device::to_string).collect()
    }
}

/// The devices of which no node is known.
pub(super) fn devices_nowhere(machine: &Topology) -> Vec<String> {
    machine
        .devices()
        .iter()
        .filter(|device| device.nodes.is_empty())
        .map(Device::to_string)
        .collect()
}

/// A list of devices of which at most `most` are named.
pub(super) fn shown(devices: &[String], most: usize) -> Vec<String> {
    let mut shown = devices[..devices.len().min(most)].to_vec();
    if devices.len() > most {
        shown.push(format!("{} more", devices.len() - most));
    }
    shown
}

/// What contains a CPU, largest first; groups with the same CPUs count as one.
fn path(machine: &Topology, cpu: usize) -> Vec<(String, CpuSet, Vec<usize>)> {
    let Some(place) = machine.cpu(cpu) else {
        return Vec::new();
    };
    let package = place.package_index.map(|index| {
        let package = &machine.packages()[index];
        (format!("package {}", package.id.unwrap_or(index)), package.cpus.clone(), Vec::new())
    });
    let node = place.node_index.map(|index| {
        let node = &machine.nodes()[index];
        (node_label(node.id, node.memory), node.cpus.clone(), vec![node.id])
    });
    // Dies are numbered within their package, so the index distinguishes them better.
    let die = place
        .die_index
        .map(|index| (format!("die {index}"), machine.dies()[index].cpus.clone(), Vec::new()));
    let mut path: Vec<(String, CpuSet, Vec<usize>)> =
        [package, node, die].into_iter().flatten().collect();
    path.sort_by_key(|(_, cpus, _)| std::cmp::Reverse(cpus.len()));
    let mut merged: Vec<(String, CpuSet, Vec<usize>)> = Vec::new();
    for (label, cpus, nodes) in path {
        match merged.last_mut() {
            Some(last) if last.1 == cpus => {
                last.0 = format!("{}, {label}", last.0);
                last.2.extend(nodes);
            }
            _ => merged.push((label, cpus, nodes)),
        }
    }
    if merged.is_empty() {
        merged.push(("place not known".into(), CpuSet::new(), Vec::new()));
    }
    merged
}

fn node_label(id: usize, memory: Option<u64>) -> String {
    match memory {
        Some(memory) => format!("node {id} ({})", bytes(memory)),
        None => format!("node {id}"),
    }
}

/// `L3 32 MiB`, or what stands in for the cache.
pub(super) fn cache_label(machine: &Topology, llc: usize) -> String {
    match machine.llcs()[llc].cache_index.map(|cache| &machine.caches()[cache]) {
        Some(cache) => match cache.size {
            Some(size) => format!("L{} {}", cache.level, bytes(size)),
            None => format!("L{}", cache.level),
        },
        None => "cache not known".into(),
    }
}
