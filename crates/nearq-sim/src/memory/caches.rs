//! The caches of a simulated machine: which CPU has which cache, how many bytes went through each, and which bytes leave them.
//!
//! Each CPU has a private cache (the largest below the last level; its core has one if the topology names none) and the last-level cache of
//! its domain. Both are filled by everything that the CPU touches.
//!
//! **A cache of S bytes has forgotten what came in more than S bytes ago.** So a cache needs only one number, the bytes that ever came in,
//! and its content follows from the values of that number at which each part came in. This is first in, first out, and real replacement has
//! the same effect on data that is walked over and over.
//!
//! **What was written must go back.** A last-level cache knows, for each piece of its history, how many bytes of each node were written in
//! it and are still the newest. When the piece is forgotten, these bytes go to their node's memory.

use nearq_topology::{CacheKind, Topology};

use super::PAGE;
use crate::costs::Costs;
use crate::hardware::node_of_unknown;

/// The number of pieces in which a last-level cache's history is kept, if each is at least a page.
const PIECES: u64 = 256;

/// What a CPU has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuPosition {
    /// Its private cache.
    pub(super) private: u32,
    /// Its last-level cache.
    pub(super) llc: u32,
    /// Its node.
    pub(super) node: u32,
}

#[derive(Debug)]
struct Cache {
    size: u64,
    /// The last-level cache above; this cache itself if it is one.
    llc: u32,
    node: u32,
    /// One of its CPUs.
    cpu: usize,
    /// Bytes that ever came in.
    brought: u64,
    written: Written,
}

/// Bytes of each node that were written, by piece of a cache's history.
#[derive(Debug, Default)]
struct Written {
    /// Bytes of history a piece.
    piece: u64,
    /// A ring; empty until something is written.
    pieces: Vec<Vec<(u32, u64)>>,
    /// Pieces that are forgotten.
    forgotten: u64,
}

impl Written {
    fn at(&mut self, stamp: u64) -> &mut Vec<(u32, u64)> {
        let place = stamp / self.piece % self.pieces.len() as u64;
        &mut self.pieces[place as usize]
    }
}

/// All caches: first the last-level ones in the order of the topology, then the private ones.
#[derive(Debug)]
pub(super) struct Caches {
    positions: Vec<CpuPosition>,
    caches: Vec<Cache>,
    llcs: usize,
}

impl Caches {
    pub(super) fn new(topology: &Topology, costs: &Costs) -> Self {
        let mut caches = Caches { positions: Vec::new(), caches: Vec::new(), llcs: 0 };
        let unknown = node_of_unknown(topology);
        for (index, llc) in topology.llcs().iter().enumerate() {
            let cache = llc.cache_index.map(|cache| &topology.caches()[cache]);
            // A cache that spans nodes is one domain on each node, with a share of the whole size.
            let share = |size: u64, all: usize| size * llc.cpus.len() as u64 / all.max(1) as u64;
            let size = cache.and_then(|cache| Some(share(cache.size?, cache.cpus.len())));
            let size = size.unwrap_or(costs.llc_size);
            let node = llc.node_index.unwrap_or(unknown) as u32;
            caches.add(size, index as u32, node, llc.cpus.first().unwrap_or(0));
        }
        caches.llcs = caches.caches.len();
        let numbers = topology.possible().last().map_or(0, |last| last + 1);
        caches.positions = vec![CpuPosition::default(); numbers];
        let below = largest_below(topology, numbers);
        let mut made = vec![None; topology.caches().len() + topology.cores().len()];
        for cpu in topology.cpus() {
            let (place, size) = match below[cpu.id] {
                Some(index) => (index, topology.caches()[index].size),
                None => (topology.caches().len() + cpu.core_index, None),
            };
            let (llc, node) = (cpu.llc_index as u32, cpu.node_index.unwrap_or(unknown) as u32);
            let private = *made[place].get_or_insert_with(|| {
                caches.add(size.unwrap_or(costs.l2_size), llc, node, cpu.id)
            });
            caches.positions[cpu.id] = CpuPosition { private, llc, node };
        }
        caches
    }

    fn add(&mut self, size: u64, llc: u32, node: u32, cpu: usize) -> u32 {
        let piece = (size / PIECES).max(PAGE as u64);
        let written = Written { piece, ..Written::default() };
        self.caches.push(Cache { size, llc, node, cpu, brought: 0, written });
        self.caches.len() as u32 - 1
    }

    /// How many last-level caches there are: their indices come first.
    pub(super) fn llcs(&self) -> usize {
        self.llcs
    }

    pub(super) fn position(&self, cpu: usize) -> CpuPosition {
        self.positions[cpu]
    }

    /// The last-level cache above a cache, and its node.
    pub(super) fn llc_of(&self, cache: u32) -> (u32, u32) {
        let cache = &self.caches[cache as usize];
        (cache.llc, cache.node)
    }

    /// One of the CPUs of a cache.
    pub(super) fn cpu_of(&self, cache: u32) -> usize {
        self.caches[cache as usize].cpu
    }

    /// The value of that number for content that comes in now.
    pub(super) fn stamp(&self, cache: u32) -> u64 {
        self.caches[cache as usize].brought
    }

    /// Bytes of a cache.
    pub(super) fn size(&self, cache: u32) -> u64 {
        self.caches[cache as usize].size
    }

    /// Whether a cache still holds what came in at `stamp`.
    pub(super) fn holds(&self, cache: u32, stamp: u64) -> bool {
        let cache = &self.caches[cache as usize];
        cache.brought - stamp <= cache.size
    }

    /// Brings bytes into a cache. The bytes that it must write back for this, by node, are added to `leaving`.
    pub(super) fn bring(&mut self, cache: u32, bytes: u64, leaving: &mut Vec<(u32, u64)>) {
        let cache = &mut self.caches[cache as usize];
        cache.brought += bytes;
        let written = &mut cache.written;
        if written.pieces.is_empty() {
            return;
        }
        while (written.forgotten + 1) * written.piece + cache.size <= cache.brought {
            let start = written.forgotten * written.piece;
            leaving.append(written.at(start));
            written.forgotten += 1;
        }
    }

    /// The piece of a cache's history at `stamp`; `None` if the piece is partly forgotten.
    #[cfg(test)]
    pub(super) fn piece(&self, cache: u32, stamp: u64) -> Option<u64> {
        let piece = self.caches[cache as usize].written.piece;
        let start = stamp / piece * piece;
        self.holds(cache, start).then_some(start)
    }

    /// Bytes that were written, by cache, piece and node, in pieces that are held as a whole.
    #[cfg(test)]
    pub(super) fn all_written(&self) -> std::collections::BTreeMap<(u32, Option<u64>, u32), u64> {
        let mut all = std::collections::BTreeMap::new();
        for (number, cache) in (0..).zip(&self.caches) {
            let Written { piece, pieces, .. } = &cache.written;
            let first = cache.brought.saturating_sub(cache.size).next_multiple_of(*piece);
            for start in (first..=cache.brought).step_by(*piece as usize) {
                if !pieces.is_empty() {
                    for (node, sum) in &pieces[(start / piece) as usize % pieces.len()] {
                        if *sum > 0 {
                            all.insert((number, Some(start), *node), *sum);
                        }
                    }
                }
            }
        }
        all
    }

    /// Records that bytes of `node` that came in at `stamp`, and are held, were written.
    pub(super) fn write(&mut self, cache: u32, stamp: u64, node: u32, bytes: u64) {
        let cache = &mut self.caches[cache as usize];
        let written = &mut cache.written;
        if written.pieces.is_empty() {
            // Everything that is held, the piece that is being filled, and the piece that is about to be forgotten.
            let pieces = cache.size.div_ceil(written.piece) + 3;
            written.pieces.resize_with(pieces as usize, Vec::new);
            written.forgotten = cache.brought.saturating_sub(cache.size) / written.piece;
        }
        let piece = written.at(stamp);
        match piece.iter_mut().find(|(of, _)| *of == node) {
            Some((_, sum)) => *sum += bytes,
            None => piece.push((node, bytes)),
        }
    }

    /// Records that bytes that were written and are held need not go back: another cache has newer ones, or they are no longer needed.
    pub(super) fn unwrite(&mut self, cache: u32, stamp: u64, node: u32, bytes: u64) {
        let piece = self.caches[cache as usize].written.at(stamp);
        if let Some((_, sum)) = piece.iter_mut().find(|(of, _)| *of == node) {
            *sum = sum.saturating_sub(bytes);
        }
    }
}

/// The largest data cache below each CPU's last-level cache, by index, if the topology names one.
fn largest_below(topology: &Topology, numbers: usize) -> Vec<Option<usize>> {
    let mut below: Vec<Option<usize>> = vec![None; numbers];
    let level = |index: usize| topology.caches()[index].level;
    for (index, cache) in topology.caches().iter().enumerate() {
        if cache.kind == CacheKind::Instruction {
            continue;
        }
        for cpu in &cache.cpus {
            let Some(llc) = topology.llc_index(cpu) else { continue };
            let is_below =
                topology.llcs()[llc].cache_index.is_none_or(|llc| cache.level < level(llc));
            if is_below && below[cpu].is_none_or(|best| level(best) < cache.level) {
                below[cpu] = Some(index);
            }
        }
    }
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caches(description: &str) -> Caches {
        let topology = Topology::from_synthetic(description).expect("well formed");
        Caches::new(&topology, &Costs::DEFAULT)
    }

    #[test]
    fn cache_sizes_come_from_the_topology_if_it_has_them() {
        let described =
            caches("numa:2 l3:2(size=64KiB) l2:2(size=16KiB) l1d:1(size=4KiB) core:1 pu:2");
        assert_eq!(described.llcs(), 4);
        let position = described.position(5);
        assert_eq!((position.llc, position.node), (1, 0));
        assert_eq!(position.private, described.position(4).private, "siblings share it");
        assert_ne!(position.private, described.position(6).private);
        assert_eq!(described.caches[position.private as usize].size, 16 * 1024);
        assert_eq!(described.caches[position.llc as usize].size, 64 * 1024);
        assert_eq!(described.llc_of(position.private), (1, 0));
        let silent = caches("numa:2 core:4 pu:2");
        let position = silent.position(2);
        assert_eq!(silent.caches[position.private as usize].size, Costs::DEFAULT.l2_size);
        assert_eq!(silent.caches[position.llc as usize].size, Costs::DEFAULT.llc_size);
        assert_eq!(silent.caches.len(), 2 + 8);
    }

    #[test]
    fn the_oldest_data_is_evicted_and_written_back_if_dirty() {
        let mut caches = caches("l3:1(size=64KiB) core:2");
        let mut leaving = Vec::new();
        let size = 64 * 1024;
        let page = PAGE as u64;
        for _ in 0..2 {
            let stamp = caches.stamp(0);
            caches.bring(0, page, &mut leaving);
            caches.write(0, stamp, 0, page);
        }
        caches.unwrite(0, page, 0, 1000);
        caches.bring(0, size - 2 * page, &mut leaving);
        assert!(caches.holds(0, 0), "exactly full");
        caches.bring(0, page, &mut leaving);
        assert!(!caches.holds(0, 0) && caches.holds(0, page));
        assert_eq!(leaving, [(0, page)]);
        for _ in 0..100 {
            caches.bring(0, page, &mut leaving);
        }
        assert_eq!(leaving, [(0, page), (0, page - 1000)], "each once");
    }
}
