//! Pods: the groups of CPUs of a scope, by the kernel's rule.
//!
//! CPUs are scanned in order; each joins the pod of the first earlier CPU that it belongs with, or opens a new pod. So pods are numbered in
//! the order of their first CPUs.

use crate::distance::CpuPosition;
use crate::{AffinityScope, CpuSet, Topology};
use std::collections::BTreeMap;

/// The default size of a shard of a last-level cache, in cores: the kernel's default.
pub const DEFAULT_SHARD_SIZE: usize = 8;

/// The pods of one scope.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pods {
    /// The scope that made them.
    pub scope: AffinityScope,
    /// The pods, in order of their first CPU. No pod is empty, and no two overlap.
    pub pods: Vec<Pod>,
    /// The index of a CPU's pod, by the CPU's id.
    pod_of: Vec<Option<usize>>,
    /// The position of the first CPU of each pod.
    positions: Vec<CpuPosition>,
    /// The distances between nodes.
    nodes: Vec<Vec<u32>>,
    /// The other pods for each pod, nearest first.
    nearest: Vec<Vec<usize>>,
}

/// One group of CPUs of a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pod {
    /// Its possible CPUs; some may be offline.
    pub cpus: CpuSet,
    /// Index of its node in [`Topology::nodes`]; `None` if it is not known, or if the scope is [`AffinityScope::System`], whose pod may
    /// span several nodes.
    pub node_index: Option<usize>,
}

impl Pods {
    /// Index in [`pods`](Self::pods) of the pod that the CPU with this id belongs to; `None` if it is in none.
    pub fn pod_index(&self, cpu: usize) -> Option<usize> {
        self.pod_of.get(cpu).copied().flatten()
    }

    /// How far apart two pods are, given by their indices: the [weight](crate::Distance::weight) of the distance between their first CPUs.
    /// That is 0 from a pod to itself, up to 5 within a node, and the firmware's figure between nodes, 10 or more.
    ///
    /// # Panics
    /// If an index is not below the number of pods.
    pub fn distance(&self, a: usize, b: usize) -> u32 {
        self.positions[a].distance(&self.positions[b], &self.nodes).weight()
    }

    /// The indices of the other pods, nearest first. Pods that are equally near are in ring order, starting after this pod, so that pods
    /// that search for help do not all ask the first one.
    ///
    /// # Panics
    /// If the index is not below the number of pods.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::{DEFAULT_SHARD_SIZE, AffinityScope, Topology};
    ///
    /// let pods = Topology::from_synthetic("numa:2 l3:3 core:4")?.pods(AffinityScope::Cache, DEFAULT_SHARD_SIZE);
    /// assert_eq!(pods.nearest(1), [2, 0, 3, 4, 5]);
    /// # Ok::<(), nearq::topology::TopologyError>(())
    /// ```
    pub fn nearest(&self, pod: usize) -> &[usize] {
        &self.nearest[pod]
    }
}

impl Topology {
    /// The pods of `scope` over all possible CPUs, those that are offline included. `shard_size` is the intended number of cores in a
    /// shard: it matters only for [`AffinityScope::CacheShard`], 0 counts as 1, and the kernel's default is [`DEFAULT_SHARD_SIZE`].
    ///
    /// The lists of [`Pods::nearest`] are made here: memory and time grow with the square of the number of pods.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::{DEFAULT_SHARD_SIZE, AffinityScope, Topology};
    ///
    /// let pods = Topology::from_synthetic("l3:1 core:12 pu:2")?.pods(AffinityScope::CacheShard, DEFAULT_SHARD_SIZE);
    /// assert_eq!(pods.pods.iter().map(|pod| pod.cpus.to_list()).collect::<Vec<_>>(), ["0-11", "12-23"]);
    /// # Ok::<(), nearq::topology::TopologyError>(())
    /// ```
    pub fn pods(&self, scope: AffinityScope, shard_size: usize) -> Pods {
        self.near(scope, self.groups(scope, shard_size))
    }

    /// As [`pods`](Self::pods), but each pod has only its CPUs in `within`; pods without a CPU in `within` are left out. Shards are cut
    /// from all possible CPUs first, so that a change of `within` moves no CPU to another shard.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::{CpuSet, DEFAULT_SHARD_SIZE, AffinityScope, Topology};
    ///
    /// let machine = Topology::from_synthetic("l3:2 core:4")?;
    /// let pods = machine.pods_within(AffinityScope::Cache, DEFAULT_SHARD_SIZE, &CpuSet::from_range(2..6));
    /// assert_eq!(pods.pods.iter().map(|pod| pod.cpus.to_list()).collect::<Vec<_>>(), ["2-3", "4-5"]);
    /// # Ok::<(), nearq::topology::TopologyError>(())
    /// ```
    pub fn pods_within(&self, scope: AffinityScope, shard_size: usize, within: &CpuSet) -> Pods {
        let mut groups = self.groups(scope, shard_size);
        for pod in &mut groups {
            pod.cpus = &pod.cpus & within;
        }
        groups.retain(|pod| !pod.cpus.is_empty());
        groups.sort_by_key(|pod| pod.cpus.first());
        self.near(scope, groups)
    }

    /// As [`pods`](Self::pods), without the distances between pods: it uses no time and no memory for pairs of pods.
    pub fn groups(&self, scope: AffinityScope, shard_size: usize) -> Vec<Pod> {
        let shard_of =
            if scope == AffinityScope::CacheShard { self.shards(shard_size) } else { Vec::new() };
        let mut pods: Vec<Pod> = Vec::new();
        // The pod of each group (CPU, core, LLC, shard of an LLC, node), by the group's number.
        let mut pod_of_group: BTreeMap<(Option<usize>, usize), usize> = BTreeMap::new();
        for cpu in &self.cpus {
            let group = match scope {
                AffinityScope::Cpu => (Some(cpu.id), 0),
                AffinityScope::Smt => (Some(cpu.core_index), 0),
                AffinityScope::CacheShard => (Some(cpu.llc_index), shard_of[cpu.core_index]),
                AffinityScope::Cache => (Some(cpu.llc_index), 0),
                AffinityScope::Numa => (cpu.node_index, 0),
                AffinityScope::System => (None, 0),
            };
            let pod = *pod_of_group.entry(group).or_insert_with(|| {
                pods.push(Pod { cpus: CpuSet::new(), node_index: None });
                pods.len() - 1
            });
            pods[pod].cpus.insert(cpu.id);
            pods[pod].node_index =
                if scope == AffinityScope::System { None } else { cpu.node_index };
        }
        pods
    }

    /// The shard of each core within its LLC.
    fn shards(&self, size: usize) -> Vec<usize> {
        let mut shard_of = vec![0; self.cores.len()];
        for llc in &self.llcs {
            let count = llc.core_indices.len();
            // More than all cores has the same effect as all.
            let size = size.clamp(1, 2 * count + 1);
            // Rounded to the nearest, halves up.
            let shards = ((2 * count + size) / (2 * size)).max(1);
            let (base, larger) = (count / shards, count % shards);
            let mut cores = llc.core_indices.iter();
            for shard in 0..shards {
                for core in cores.by_ref().take(base + usize::from(shard < larger)) {
                    shard_of[*core] = shard;
                }
            }
        }
        shard_of
    }

    fn near(&self, scope: AffinityScope, pods: Vec<Pod>) -> Pods {
        let mut pod_of = vec![None; self.places.len()];
        for (index, pod) in pods.iter().enumerate() {
            for cpu in &pod.cpus {
                pod_of[cpu] = Some(index);
            }
        }
        let firsts = pods.iter().filter_map(|pod| pod.cpus.first());
        let positions: Vec<CpuPosition> = firsts.map(|cpu| self.position(cpu)).collect();
        let mut near = Pods {
            scope,
            pods,
            pod_of,
            positions,
            nodes: self.distances.clone(),
            nearest: Vec::new(),
        };
        let count = near.pods.len();
        near.nearest = (0..count)
            .map(|pod| {
                let mut others: Vec<usize> = (1..count).map(|step| (pod + step) % count).collect();
                others.sort_by_cached_key(|other| near.distance(pod, *other));
                others
            })
            .collect();
        near
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(cores: usize) -> Vec<usize> {
        let machine = Topology::from_synthetic(&format!("l3:1 core:{cores} pu:1")).unwrap();
        machine
            .pods(AffinityScope::CacheShard, DEFAULT_SHARD_SIZE)
            .pods
            .iter()
            .map(|pod| pod.cpus.len())
            .collect()
    }

    #[test]
    fn shards_are_cut_as_the_kernel_cuts_them() {
        assert_eq!(sizes(1), [1]);
        assert_eq!(sizes(11), [11]);
        assert_eq!(sizes(12), [6, 6]);
        assert_eq!(sizes(16), [8, 8]);
        assert_eq!(sizes(20), [7, 7, 6]);
        assert_eq!(sizes(24), [8, 8, 8]);
        assert_eq!(sizes(36), [8, 7, 7, 7, 7]);
        assert_eq!(sizes(64), [8; 8]);
        assert_eq!(sizes(72), [8; 9]);
        assert_eq!(sizes(100), [8, 8, 8, 8, 8, 8, 8, 8, 8, 7, 7, 7, 7]);
    }

    #[test]
    fn ties_go_round_the_ring_from_the_pod_itself() {
        let pods = Topology::from_synthetic("core:5")
            .unwrap()
            .pods(AffinityScope::Cpu, DEFAULT_SHARD_SIZE);
        assert_eq!(pods.nearest(0), [1, 2, 3, 4]);
        assert_eq!(pods.nearest(3), [4, 0, 1, 2]);
        assert_eq!(pods.distance(3, 3), 0);
    }

    #[test]
    fn pods_within_keep_their_shards_and_drop_the_empty_ones() {
        let machine = Topology::from_synthetic("l3:2 core:12 pu:2").unwrap();
        let within: CpuSet = "10-13,30".parse().unwrap();
        let pods = machine.pods_within(AffinityScope::CacheShard, DEFAULT_SHARD_SIZE, &within);
        let lists: Vec<String> = pods.pods.iter().map(|pod| pod.cpus.to_list()).collect();
        assert_eq!(lists, ["10-11", "12-13", "30"]);
        assert_eq!(
            (pods.pod_index(13), pods.pod_index(0), pods.pod_index(9999)),
            (Some(1), None, None)
        );
    }
}
