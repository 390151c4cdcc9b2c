//! Which pods have pools, and what these are like: what is decided when pools are made, and stays in the children of forks.

use std::collections::BTreeMap;

use nearq_platform::Machine;
use nearq_topology::{AffinityScope, CpuSet, DEFAULT_SHARD_SIZE};

/// The pods, and what their pools have in common.
pub(crate) struct Plan {
    pub(crate) scope: AffinityScope,
    /// In the order of their first CPUs. There is at least one.
    pub(crate) pods: Vec<PlannedPod>,
    /// The index of the pod for a caller on a CPU, by the CPU's id.
    pod_of: Vec<usize>,
    /// How the names of threads begin.
    pub(crate) name: String,
    pub(crate) stack_size: Option<usize>,
}

/// One pod.
pub(crate) struct PlannedPod {
    /// Its CPUs, whether the process may use them or not.
    pub(crate) cpus: CpuSet,
    /// The id of its node.
    pub(crate) node: Option<usize>,
    /// How many threads its pool has.
    pub(crate) threads: usize,
}

impl Plan {
    /// The pods of a scope in which the process may use a CPU that is not isolated. The threads of another pod would have nowhere to run.
    pub(crate) fn new(
        machine: &Machine,
        scope: AffinityScope,
        threads: Option<usize>,
        name: String,
        stack_size: Option<usize>,
    ) -> Self {
        let Machine { topology, limits } = machine;
        let allowed = limits.housekeeping();
        let (used, unused): (Vec<_>, Vec<_>) = topology
            .groups(scope, DEFAULT_SHARD_SIZE)
            .into_iter()
            .partition(|pod| pod.cpus.intersects(&allowed));
        let mut pod_of = vec![0; topology.possible().last().map_or(0, |last| last + 1)];
        // A caller on a CPU of another pod, where the process could not run before, goes to the first pod of its node.
        let mut pod_of_node = BTreeMap::new();
        for (index, pod) in used.iter().enumerate() {
            pod_of_node.entry(pod.node_index).or_insert(index);
            pod.cpus.iter().for_each(|cpu| pod_of[cpu] = index);
        }
        for pod in &unused {
            let near = pod_of_node.get(&pod.node_index).copied().unwrap_or(0);
            pod.cpus.iter().for_each(|cpu| pod_of[cpu] = near);
        }
        let pods = used.into_iter().map(|pod| PlannedPod {
            threads: threads
                .unwrap_or_else(|| pod.cpus.intersection(&allowed).len().min(limits.parallelism())),
            node: pod.node_index.map(|index| topology.nodes()[index].id),
            cpus: pod.cpus,
        });
        Self { scope, pods: pods.collect(), pod_of, name, stack_size }
    }

    /// The index of the pod for a caller on that CPU; of the first one if the CPU was plugged in later.
    pub(crate) fn pod_of(&self, cpu: usize) -> usize {
        self.pod_of.get(cpu).copied().unwrap_or(0)
    }
}
