//! Describes a machine for the policy: caches in the order of their nodes, nodes in the order of their nearness.

use std::error::Error;
use std::fmt;

use nearq_topology::{CpuSet, LOCAL_DISTANCE, Topology};

use crate::layout::{self, CPUS, LLCS, NODES, NONE, Nq, UNIT, WORDS};

/// The machine is larger than the policy allows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TooLarge {
    what: &'static str,
    there_are: usize,
    most: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooLarge { what, there_are, most } = self;
        write!(f, "this machine has {there_are} {what}; the scheduler has room for {most}")
    }
}

nearq_topology::debug_as_display!(TooLarge);

impl Error for TooLarge {}

/// The policy's state at the beginning: the machine's shape, and which CPUs are online. No task runs or waits, all CPUs count as busy, and
/// the weights are the default ones.
///
/// It contains only nodes with CPUs. The place of an offline CPU may be unknown. A CPU without a node is assigned to the first node. A CPU
/// without a cache is assigned to the only cache of its node, or else to an additional cache that the machine does not have.
///
/// # Errors
/// If it has too many CPUs, caches or nodes.
pub fn describe(machine: &Topology, online: &CpuSet) -> Result<Box<Nq>, TooLarge> {
    let cpus = machine.possible().last().map_or(0, |last| last + 1);
    let nodes: Vec<usize> =
        (0..machine.nodes().len()).filter(|node| !machine.nodes()[*node].cpus.is_empty()).collect();
    let node_count = nodes.len().max(1);
    let within = |what, there_are, most| {
        if there_are > most { Err(TooLarge { what, there_are, most }) } else { Ok(()) }
    };
    within("CPUs", cpus, CPUS)?;
    within("last-level caches", machine.llcs().len(), LLCS)?;
    within("nodes", node_count, NODES)?;

    let mut nq = Nq::zeroed();
    nq.weights = layout::Weights::default();
    nq.starving = NONE;
    (nq.cpus, nq.nodes) = (cpus as u32, node_count as u32);
    for state in &mut nq.on_cpu {
        state.home = NONE;
    }
    for state in &mut nq.on_llc {
        state.woke = NONE;
    }
    let place_of = |node: Option<usize>| {
        node.and_then(|node| nodes.iter().position(|known| *known == node)).unwrap_or(0)
    };
    let mut places = vec![0; machine.llcs().len().max(1)];
    let mut next = 0;
    for place in 0..node_count {
        let first = next;
        for (llc, found) in machine.llcs().iter().enumerate() {
            if place_of(found.node_index) == place {
                places[llc] = next;
                next += 1;
            }
        }
        // A node whose caches are unknown has one.
        if next == first {
            next += 1;
        }
        let node = &mut nq.node[place];
        (node.llc, node.llcs) = (first as u32, (next - first) as u32);
        node.id = nodes.get(place).map_or(0, |node| machine.nodes()[*node].id as u32);
        let distance = |other: usize| match (nodes.get(place), nodes.get(other)) {
            (Some(from), Some(to)) => machine.distance(*from, *to),
            _ => LOCAL_DISTANCE,
        };
        let mut order: Vec<usize> = (0..node_count).collect();
        order.sort_by_key(|other| (*other != place, distance(*other), *other));
        for (at, other) in order.into_iter().enumerate() {
            node.near[at] = other as u32;
            node.distance[other] = distance(other);
        }
        for llc in first..next {
            nq.llc[llc].node = place as u32;
        }
    }
    within("last-level caches", next, LLCS)?;
    nq.llcs = next as u32;

    for cpu in machine.cpus() {
        let node = place_of(cpu.node_index);
        let llc = match machine.llcs().get(cpu.llc_index) {
            Some(found) if place_of(found.node_index) == node => places[cpu.llc_index],
            _ => nq.node[node].llc as usize,
        };
        let siblings = machine.cores().get(cpu.core_index).map(|core| &core.cpus);
        let sibling =
            siblings.and_then(|all| all.iter().find(|other| *other > cpu.id).or(all.first()));
        nq.cpu[cpu.id] = layout::Cpu {
            llc: llc as u32,
            node: node as u32,
            sibling: sibling.unwrap_or(cpu.id) as u32,
            capacity: cpu.capacity.unwrap_or(UNIT),
        };
        let (word, bit) = (cpu.id / 64, 1 << (cpu.id % 64));
        nq.llc[llc].cpus[word] |= bit;
        nq.node[node].cpus[word] |= bit;
        if online.contains(cpu.id) {
            nq.online[word] |= bit;
            nq.on_llc[llc].capacity += nq.cpu[cpu.id].capacity;
            nq.on_node[node].capacity += nq.cpu[cpu.id].capacity;
        }
    }
    for llc in &mut nq.llc {
        (llc.from, llc.to) = extent(&llc.cpus);
    }
    for node in &mut nq.node {
        (node.from, node.to) = extent(&node.cpus);
    }
    Ok(nq)
}

/// The range of words outside of which all words are zero: its start, and its end (exclusive).
fn extent(words: &[u64; WORDS]) -> (u32, u32) {
    let from = words.iter().position(|word| *word != 0).unwrap_or(0);
    let to = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
    (from as u32, to as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_in_the_order_of_their_nodes() {
        let machine = Topology::from_synthetic("numa:2 l3:2 core:2 pu:2").unwrap();
        let nq = describe(&machine, machine.online()).unwrap();
        assert_eq!((nq.cpus, nq.llcs, nq.nodes), (16, 4, 2));
        assert_eq!((nq.node[1].llc, nq.node[1].llcs), (2, 2));
        for cpu in 0..16 {
            let entry = nq.cpu[cpu];
            assert_eq!((entry.node as usize, entry.llc as usize), (cpu / 8, cpu / 4));
            assert_eq!(entry.sibling as usize, cpu ^ 1);
        }
        assert_eq!(nq.node[1].cpus[0], 0xff00);
        assert_eq!((nq.on_llc[3].capacity, nq.on_node[0].capacity), (4 * UNIT, 8 * UNIT));
    }

    #[test]
    fn the_nearest_nodes_come_first() {
        let machine = Topology::from_synthetic("numa:3 core:1").unwrap();
        let rows = [vec![10, 30, 20], vec![30, 10, 15], vec![20, 15, 10]];
        let machine = machine.with_distances(&rows).unwrap();
        let nq = describe(&machine, machine.online()).unwrap();
        assert_eq!(nq.node[0].near[..3], [0, 2, 1]);
        assert_eq!(nq.node[1].near[..3], [1, 2, 0]);
        assert_eq!(nq.node[1].distance[..3], [30, 10, 15]);
    }

    #[test]
    fn offline_cpus_have_no_capacity() {
        let machine = Topology::from_synthetic("numa:2 core:70").unwrap();
        let nq = describe(&machine, &"0-69,100".parse().unwrap()).unwrap();
        assert_eq!((nq.on_node[0].capacity, nq.on_node[1].capacity), (70 * UNIT, UNIT));
        assert_eq!((nq.node[1].from, nq.node[1].to), (1, 3));
        assert_eq!(nq.online[1], 0x3f | 1 << 36);
    }

    #[test]
    fn a_machine_that_is_too_large_is_refused() {
        let machine = Topology::from_synthetic("numa:33 core:1").unwrap();
        let error = describe(&machine, machine.online()).unwrap_err();
        assert_eq!(error.to_string(), "this machine has 33 nodes; the scheduler has room for 32");
    }
}
