//! The machine as nested blocks: packages, nodes and dies in whatever order they contain each other, with the
//! last-level cache domains as leaves.

use super::bytes;
use nearq_topology::{CpuSet, Topology};

/// A package, node or die, or several of them that have the same CPUs.
#[derive(Debug)]
pub(super) struct Block {
    pub label: String,
    pub cpus: CpuSet,
    pub blocks: Vec<Block>,
    /// Indices of the last-level cache domains directly inside.
    pub llcs: Vec<usize>,
}

/// The outermost blocks. Nodes without CPUs come last.
pub(super) fn blocks(machine: &Topology) -> Vec<Block> {
    let mut roots =
        Block { label: String::new(), cpus: CpuSet::new(), blocks: Vec::new(), llcs: Vec::new() };
    for (index, llc) in machine.llcs().iter().enumerate() {
        let mut at = &mut roots;
        for (label, cpus) in path(machine, llc.cpus.first().unwrap_or_default()) {
            let found =
                at.blocks.iter().position(|block| block.label == label).unwrap_or_else(|| {
                    at.blocks.push(Block { label, cpus, blocks: Vec::new(), llcs: Vec::new() });
                    at.blocks.len() - 1
                });
            at = &mut at.blocks[found];
        }
        at.llcs.push(index);
    }
    let bare = machine.nodes().iter().filter(|node| node.cpus.is_empty());
    roots.blocks.extend(bare.map(|node| Block {
        label: format!("{}, no CPUs", node_label(node.id, node.memory)),
        cpus: CpuSet::new(),
        blocks: Vec::new(),
        llcs: Vec::new(),
    }));
    roots.blocks
}

/// What contains a CPU, largest first; groups with the same CPUs count as one.
fn path(machine: &Topology, cpu: usize) -> Vec<(String, CpuSet)> {
    let Some(place) = machine.cpu(cpu) else {
        return Vec::new();
    };
    let package = place.package_index.map(|index| {
        let package = &machine.packages()[index];
        (format!("package {}", package.id.unwrap_or(index)), package.cpus.clone())
    });
    let node = place.node_index.map(|index| {
        let node = &machine.nodes()[index];
        (node_label(node.id, node.memory), node.cpus.clone())
    });
    // Dies are numbered within their package, so the index distinguishes them better.
    let die =
        place.die_index.map(|index| (format!("die {index}"), machine.dies()[index].cpus.clone()));
    let mut path: Vec<(String, CpuSet)> = [package, node, die].into_iter().flatten().collect();
    path.sort_by_key(|(_, cpus)| std::cmp::Reverse(cpus.len()));
    let mut merged: Vec<(String, CpuSet)> = Vec::new();
    for (label, cpus) in path {
        match merged.last_mut() {
            Some(last) if last.1 == cpus => last.0 = format!("{}, {label}", last.0),
            _ => merged.push((label, cpus)),
        }
    }
    if merged.is_empty() {
        merged.push(("place not known".into(), CpuSet::new()));
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
