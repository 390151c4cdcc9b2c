//! Which CPUs are near each other, reduced to what a lock needs: CPU to cache, cache to node.

use nearq_topology::Topology;

use crate::Machine;

/// For each CPU its last-level cache, and for each such cache its node, its package and how many of its CPUs this process may
/// use.
///
/// Caches, nodes and packages are named by their index in the machine's [`Topology`]. Looking a CPU up is one load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheMap {
    by_cpu: Vec<u32>,
    caches: Vec<CacheInfo>,
}

/// A last-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheInfo {
    /// Index of its node; 0 if the machine does not say.
    pub node: usize,
    /// The system's number of that node, as memory policies name it; `None` if the machine does not say.
    pub memory: Option<usize>,
    /// Index of its package; 0 if the machine does not say.
    pub package: usize,
    /// How many of its CPUs the process may use.
    pub cpus: usize,
}

impl CacheMap {
    /// The caches of a machine, as far as its limits let this process use them.
    pub fn of(machine: &Machine) -> Self {
        let topology: &Topology = &machine.topology;
        let usable = machine.limits.effective();
        let end = topology.possible().last().map_or(0, |last| last + 1);
        let by_cpu = (0..end).map(|cpu| topology.llc_index(cpu).unwrap_or(0) as u32).collect();
        let caches = topology
            .llcs()
            .iter()
            .map(|cache| CacheInfo {
                node: cache.node_index.unwrap_or(0),
                memory: cache.node_index.map(|node| topology.nodes()[node].id),
                package: cache.cpus.iter().find_map(|cpu| topology.package_index(cpu)).unwrap_or(0),
                cpus: cache.cpus.intersection(&usable).len(),
            })
            .collect();
        CacheMap { by_cpu, caches }
    }

    /// One cache for all CPUs, for when only the number of the machine's CPUs is known.
    pub fn single(cpus: usize) -> Self {
        let cache = CacheInfo { node: 0, memory: None, package: 0, cpus };
        CacheMap { by_cpu: Vec::new(), caches: vec![cache] }
    }

    /// The caches.
    pub fn caches(&self) -> &[CacheInfo] {
        &self.caches
    }

    /// Index of a CPU's cache; 0 for a CPU that is not known.
    #[inline]
    pub fn cache_of(&self, cpu: usize) -> usize {
        self.by_cpu.get(cpu).map_or(0, |cache| *cache as usize)
    }

    /// The number of caches in which the process may use a CPU.
    pub fn in_use(&self) -> usize {
        self.caches.iter().filter(|cache| cache.cpus > 0).count()
    }

    /// How many CPUs the process may use.
    pub fn cpus(&self) -> usize {
        self.caches.iter().map(|cache| cache.cpus).sum()
    }
}

#[cfg(test)]
mod tests {
    use nearq_topology::{CpuSet, Limits};

    use super::*;

    #[test]
    fn caches_count_only_allowed_cpus() {
        let topology = Topology::from_synthetic("numa:2 l3:2 core:2 pu:1").expect("well formed");
        let limits = Limits::unlimited(CpuSet::from_range(1..6));
        let map = CacheMap::of(&Machine { topology, limits });
        let counted: Vec<_> = map.caches().iter().map(|cache| (cache.node, cache.cpus)).collect();
        assert_eq!(counted, [(0, 1), (0, 2), (1, 2), (1, 0)]);
        let memory: Vec<_> = map.caches().iter().map(|cache| cache.memory).collect();
        assert_eq!(memory, [Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!((map.cache_of(0), map.cache_of(5), map.cache_of(7)), (0, 2, 3));
        assert_eq!((map.cache_of(99), map.in_use(), map.cpus()), (0, 3, 5));
        let single = CacheInfo { node: 0, memory: None, package: 0, cpus: 3 };
        assert_eq!(CacheMap::single(3).caches(), [single]);
    }

    #[test]
    fn caches_have_packages() {
        let text = "package:2 numa:2 l3:2 core:1 pu:1";
        let topology = Topology::from_synthetic(text).expect("well formed");
        let limits = Limits::unlimited(CpuSet::from_range(0..8));
        let map = CacheMap::of(&Machine { topology, limits });
        let packages: Vec<_> = map.caches().iter().map(|cache| cache.package).collect();
        assert_eq!(packages, [0, 0, 0, 0, 1, 1, 1, 1]);
    }
}
