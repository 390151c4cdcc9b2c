//! A snapshot of everything that can be inspected in a process: what the kernel's `wq_dump` shows, and what is queued and running.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::bounds::{self, MOST_CPUS, MOST_FEW, MOST_NODES, MOST_ROWS};
use super::locks::Locks;

/// The state of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Dump {
    /// The moment of the snapshot.
    pub at_ns: u64,
    /// The CPUs that the runtime's queues may use: what the process may use, within the mask that was set for it.
    #[serde(deserialize_with = "bounds::list")]
    pub allowed: String,
    /// The CPUs that are online.
    #[serde(deserialize_with = "bounds::list")]
    pub online: String,
    /// The CPUs that the machine can have.
    #[serde(deserialize_with = "bounds::list")]
    pub possible: String,
    /// The scopes, from `cpu` to `system`.
    #[serde(deserialize_with = "bounds::most::<MOST_FEW, _, _>")]
    pub scopes: Vec<ScopeDump>,
    /// The pools, by number.
    #[serde(deserialize_with = "bounds::most::<MOST_ROWS, _, _>")]
    pub pools: Vec<PoolDump>,
    /// The queues, oldest first.
    #[serde(deserialize_with = "bounds::most::<MOST_ROWS, _, _>")]
    pub queues: Vec<QueueDump>,
    /// The nodes.
    #[serde(deserialize_with = "bounds::most::<MOST_NODES, _, _>")]
    pub nodes: Vec<MachineNode>,
    /// The items that run.
    #[serde(deserialize_with = "bounds::most::<MOST_ROWS, _, _>")]
    pub running: Vec<RunningItem>,
    /// The items that wait, if they were asked for.
    #[serde(deserialize_with = "bounds::most::<MOST_ROWS, _, _>")]
    pub waiting: Vec<WaitingItems>,
    /// Whether more items wait than are listed.
    pub more_waiting: bool,
    /// The nodes that can be a home, with the number of homes on each.
    #[serde(default, deserialize_with = "bounds::most::<MOST_NODES, _, _>")]
    pub homes: Vec<NodeHomes>,
    /// The numbers that homes are chosen by, by name.
    #[serde(default, deserialize_with = "bounds::by_name::<MOST_FEW, _, _>")]
    pub home_weights: BTreeMap<String, u64>,
    /// The mutexes, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locks: Option<Locks>,
}

/// A node that can be a home.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeHomes {
    /// Its number.
    pub node: u64,
    /// Its CPUs that the process may use.
    #[serde(deserialize_with = "bounds::list")]
    pub cpus: String,
    /// Homes that were assigned on this node.
    pub homes: u64,
    /// Workers on this node that run something whose home is elsewhere.
    pub others: u64,
}

/// A queue's home.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HomeDump {
    /// The number of its node; -1 if the node is yet to be chosen, when it is first needed.
    pub node: i64,
    /// Whether it follows its memory.
    pub follows: bool,
    /// Why the home is on that node, in words.
    #[serde(deserialize_with = "bounds::text")]
    pub why: String,
}

/// A scope and its pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScopeDump {
    /// Its name: `cpu`, `smt`, `cache`, `cache_shard`, `numa`, `system`.
    #[serde(deserialize_with = "bounds::name")]
    pub name: String,
    /// Whether queues that name no scope follow it.
    pub default: bool,
    /// Its pods.
    #[serde(deserialize_with = "bounds::most::<MOST_CPUS, _, _>")]
    pub pods: Vec<PodDump>,
    /// The pod of each CPU, by CPU number; -1 if there is none.
    #[serde(deserialize_with = "bounds::most::<MOST_CPUS, _, _>")]
    pub cpu_pod: Vec<i64>,
}

/// A pod of a scope.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodDump {
    /// Its CPUs.
    #[serde(deserialize_with = "bounds::list")]
    pub cpus: String,
    /// The number of the node that contains the pod; -1 if no single node does.
    pub node: i64,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolDump {
    /// Its number.
    pub id: u64,
    /// Links of queues that lead there by the attributes in effect.
    pub references: u64,
    /// Its workers' nice value as asked for.
    pub nice: i64,
    /// Whether its workers are of the class `SCHED_IDLE`.
    pub idle_class: bool,
    /// Its workers' slice as asked for; 0 is the system's own.
    pub slice_ns: u64,
    /// The number of worker threads.
    pub workers: u64,
    /// The number of workers that sleep.
    pub idle: u64,
    /// Whether it is the pool of one CPU, for per-CPU queues.
    pub per_cpu: bool,
    /// Whether its workers never leave the pod.
    pub strict: bool,
    /// Whether workers of other pods leave its items alone although they could take them.
    #[serde(default)]
    pub no_helping: bool,
    /// The CPUs that its workers may go to.
    #[serde(deserialize_with = "bounds::list")]
    pub cpus: String,
    /// The pod's CPUs.
    #[serde(deserialize_with = "bounds::list")]
    pub pod_cpus: String,
    /// Items that were taken off the inbox and have not begun.
    pub ready: u64,
}

/// A queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueDump {
    /// Its number.
    pub id: u64,
    /// Its name.
    #[serde(deserialize_with = "bounds::name")]
    pub name: String,
    /// `percpu`, `unbound`, `unbound,S` (strict) or `ordered`.
    #[serde(deserialize_with = "bounds::name")]
    pub kind: String,
    /// The pool to which items queued on a CPU go: the pool's number, by CPU number; -1 if the machine has no such CPU.
    #[serde(deserialize_with = "bounds::most::<MOST_CPUS, _, _>")]
    pub cpu_pool: Vec<i64>,
    /// The CPUs that its items may run on.
    #[serde(deserialize_with = "bounds::list")]
    pub cpus: String,
    /// The limit, and the minimum for each node.
    pub max_active: u64,
    /// See [`max_active`](Self::max_active).
    pub min_active: u64,
    /// The counts of the limit.
    #[serde(deserialize_with = "bounds::most::<MOST_CPUS, _, _>")]
    pub limits: Vec<NodeLimit>,
    /// The home of its items that have no home of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<HomeDump>,
    /// The memory policy for memory that its items touch first: `home`, `interleave` or `untouched`.
    #[serde(default, deserialize_with = "bounds::name")]
    pub memory: String,
    /// Executions of items with a home that began at home, and elsewhere.
    #[serde(default)]
    pub at_home: u64,
    /// See [`at_home`](Self::at_home).
    #[serde(default)]
    pub away: u64,
    /// Its rescuer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rescuer: Option<RescuerDump>,
}

/// One count of a queue's limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeLimit {
    /// `node`, `cpu`, `across` (pods that lie inside no node) or `whole` (ordered queues).
    #[serde(deserialize_with = "bounds::name")]
    pub domain: String,
    /// The node's or CPU's number; -1 for the others.
    pub number: i64,
    /// Items on pools or running.
    pub active: u64,
    /// The most that may be active.
    pub limit: u64,
    /// Items that the limit holds back.
    pub inactive: u64,
}

/// A queue's rescuer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RescuerDump {
    /// The number of its thread in the system's own tools; 0 if it has no thread now.
    pub thread: u64,
    /// The CPUs that the thread may run on now.
    #[serde(deserialize_with = "bounds::list")]
    pub cpus: String,
}

/// A node of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineNode {
    /// Its number.
    pub id: u64,
    /// Its CPUs that are online.
    #[serde(deserialize_with = "bounds::list")]
    pub cpus: String,
}

/// An item that runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunningItem {
    /// The queue's name.
    #[serde(deserialize_with = "bounds::name")]
    pub queue: String,
    /// The queue's number.
    pub queue_id: u64,
    /// The name of its function.
    #[serde(deserialize_with = "bounds::text")]
    pub function: String,
    /// The description that the item gives of itself.
    #[serde(deserialize_with = "bounds::text")]
    pub description: String,
    /// The worker's name.
    #[serde(deserialize_with = "bounds::name")]
    pub worker: String,
    /// The number of the worker's thread in the system's own tools.
    pub thread: u64,
    /// The worker's pool.
    pub pool: u64,
    /// Whether the worker is the queue's rescuer.
    pub rescuer: bool,
    /// An upper bound of the time that the item has run: the time since the worker took the batch to which the item belongs. A batch is one
    /// item, unless items are shorter than some microseconds.
    pub at_most_ns: u64,
}

/// Items with one function that wait in one place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitingItems {
    /// The queue's name.
    #[serde(deserialize_with = "bounds::name")]
    pub queue: String,
    /// The queue's number.
    pub queue_id: u64,
    /// The pool where they wait.
    pub pool: u64,
    /// The name of their function.
    #[serde(deserialize_with = "bounds::text")]
    pub function: String,
    /// The number of items.
    pub count: u64,
    /// Whether the queue's limit holds them back.
    pub inactive: bool,
    /// How long the timed item that was queued first has waited; 0 if no item is timed.
    pub oldest_ns: u64,
}
