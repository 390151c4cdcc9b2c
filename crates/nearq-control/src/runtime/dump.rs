//! A snapshot of everything that can be inspected in a runtime.

use std::collections::BTreeMap;

use nearq_core::{AffinityScope, CpuSet, Runtime, home::Weights, inspect::QueueView};
use nearq_platform::{Linux, LockPlatform};
use nearq_topology::Topology;

use crate::locks;
use crate::protocol::{
    Dump, GetDump, HomeDump, MachineNode, NodeHomes, NodeLimit, PodDump, PoolDump, QueueDump,
    RescuerDump, RunningItem, ScopeDump, WaitingItems,
};

/// From the smallest pods to the largest.
const SCOPES: [AffinityScope; 6] = [
    AffinityScope::Cpu,
    AffinityScope::Smt,
    AffinityScope::CacheShard,
    AffinityScope::Cache,
    AffinityScope::Numa,
    AffinityScope::System,
];

pub(super) fn of(runtime: &Runtime, wanted: &GetDump) -> Dump {
    let topology = runtime.topology();
    let handles = runtime.queues();
    let queues: Vec<QueueDump> = handles.iter().map(|queue| of_queue(queue, &topology)).collect();
    let (waiting, more_waiting) = if wanted.items { waiting(runtime) } else { (Vec::new(), false) };
    Dump {
        at_ns: Linux::now().as_nanos(),
        allowed: runtime.allowed_cpus().to_list(),
        online: topology.online().to_list(),
        possible: topology.possible().to_list(),
        scopes: SCOPES.map(|scope| of_scope(runtime, &topology, scope)).into(),
        pools: pools(runtime, &queues),
        queues,
        nodes: nodes(&topology),
        running: running(runtime),
        waiting,
        more_waiting,
        homes: homes(runtime),
        home_weights: weights(runtime),
        locks: wanted.locks.then(locks::dump),
    }
}

fn homes(runtime: &Runtime) -> Vec<NodeHomes> {
    let homes = runtime.home_nodes().into_iter();
    homes
        .map(|row| NodeHomes {
            node: row.node as u64,
            cpus: row.cpus.to_list(),
            homes: row.homes.into(),
            others: row.others.into(),
        })
        .collect()
}

fn weights(runtime: &Runtime) -> BTreeMap<String, u64> {
    let weights = runtime.home_weights();
    Weights::names().filter_map(|name| Some((name.to_owned(), weights.get(name)?.into()))).collect()
}

fn of_scope(runtime: &Runtime, topology: &Topology, scope: AffinityScope) -> ScopeDump {
    let pods = topology.pods(scope, runtime.cache_shard_size());
    let cpus = 0..topology.possible().last().map_or(0, |last| last + 1);
    ScopeDump {
        name: scope.to_string(),
        default: scope == runtime.default_affinity_scope(),
        cpu_pod: cpus.map(|cpu| pods.pod_index(cpu).map_or(-1, |pod| pod as i64)).collect(),
        pods: pods
            .pods
            .iter()
            .map(|pod| PodDump { cpus: pod.cpus.to_list(), node: node_of(topology, &pod.cpus) })
            .collect(),
    }
}

/// The number of the node that CPUs lie inside, -1 if they do not.
fn node_of(topology: &Topology, cpus: &CpuSet) -> i64 {
    let inside = topology.nodes().iter().find(|node| cpus.is_subset(&node.cpus));
    inside.map_or(-1, |node| node.id as i64)
}

fn nodes(topology: &Topology) -> Vec<MachineNode> {
    let nodes = topology.nodes().iter();
    nodes
        .map(|node| MachineNode {
            id: node.id as u64,
            cpus: node.cpus.intersection(topology.online()).to_list(),
        })
        .collect()
}

fn pools(runtime: &Runtime, queues: &[QueueDump]) -> Vec<PoolDump> {
    let pools = runtime.pools().into_iter();
    pools
        .map(|pool| {
            let id = i64::from(u32::from(pool.id));
            PoolDump {
                id: pool.id.into(),
                references: queues.iter().filter(|queue| queue.cpu_pool.contains(&id)).count()
                    as u64,
                nice: pool.nice.into(),
                idle_class: pool.idle_class,
                slice_ns: pool.slice.map_or(0, |slice| slice.as_nanos() as u64),
                workers: pool.workers as u64,
                idle: pool.sleeping as u64,
                per_cpu: pool.bound,
                strict: pool.strict,
                no_helping: !pool.helping && !pool.strict,
                cpus: pool.allowed.to_list(),
                pod_cpus: pool.pod.to_list(),
                ready: pool.ready as u64,
            }
        })
        .collect()
}

fn of_queue(queue: &QueueView, topology: &Topology) -> QueueDump {
    let pools = queue.pools_by_cpu().into_iter().enumerate();
    let rescuer = queue.has_rescuer().then(|| RescuerDump {
        thread: queue.rescuer_thread_id().unwrap_or(0),
        cpus: queue.rescuer_cpumask().unwrap_or_default().to_list(),
    });
    let statistics = queue.statistics();
    QueueDump {
        home: queue.home().map(|home| HomeDump {
            node: home.node().map_or(-1, |node| node as i64),
            follows: home.is_dynamic(),
            why: home.explain(),
        }),
        memory: queue.memory().name().to_owned(),
        at_home: statistics.iter().map(|row| row.at_home).sum(),
        away: statistics.iter().map(|row| row.away).sum(),
        id: queue.id().into(),
        name: queue.name().to_owned(),
        kind: super::kind(queue).to_owned(),
        cpu_pool: pools
            .map(
                |(cpu, pool)| {
                    if topology.possible().contains(cpu) { u32::from(pool).into() } else { -1 }
                },
            )
            .collect(),
        cpus: queue.effective_cpumask().to_list(),
        max_active: queue.max_active() as u64,
        min_active: queue.min_active() as u64,
        limits: queue
            .limits()
            .into_iter()
            .map(|row| NodeLimit {
                domain: row.domain.kind().to_owned(),
                number: row.domain.number().map_or(-1, |number| number as i64),
                active: row.active as u64,
                limit: row.limit as u64,
                inactive: row.inactive as u64,
            })
            .collect(),
        rescuer,
    }
}

fn running(runtime: &Runtime) -> Vec<RunningItem> {
    let running = runtime.running().into_iter();
    running
        .map(|item| {
            let (queue_id, queue) =
                item.queue.map_or((0, String::new()), |queue| (queue.id.into(), queue.name));
            RunningItem {
                queue,
                queue_id,
                function: item.function.to_owned(),
                description: item.description,
                worker: item.thread,
                thread: item.thread_id.unwrap_or(0),
                pool: item.pool.into(),
                rescuer: item.rescuer,
                at_most_ns: item.at_most.as_nanos() as u64,
            }
        })
        .collect()
}

fn waiting(runtime: &Runtime) -> (Vec<WaitingItems>, bool) {
    let waiting = runtime.waiting();
    let rows = waiting.items.into_iter().map(|row| WaitingItems {
        queue: row.queue.name,
        queue_id: row.queue.id.into(),
        pool: row.pool.into(),
        function: row.function.to_owned(),
        count: row.count as u64,
        inactive: row.inactive,
        oldest_ns: row.oldest.map_or(0, |oldest| oldest.as_nanos() as u64),
    });
    (rows.collect(), waiting.truncated)
}
