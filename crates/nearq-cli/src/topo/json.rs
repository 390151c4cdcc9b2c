//! The machine as JSON.

use nearq_report::drawing::View;
use nearq_topology::{AffinityScope, CpuSet, Group, Limits, Topology};
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// A value that is printed on one line.
type Line = Box<RawValue>;

/// The machine. Parts refer to each other by their index in the array of that name; unknown values are null.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    model: Option<&'a str>,
    /// All CPUs that the machine can ever have.
    possible: Line,
    /// The CPUs that are plugged in.
    present: Line,
    /// The CPUs in use.
    online: Line,
    /// The CPUs that the machine keeps free of unbound work.
    isolated: Line,
    /// The CPUs that are plugged in, each with what is known about it, and whether the process may use it.
    cpus: Vec<Line>,
    cores: Vec<Line>,
    llcs: Vec<Line>,
    nodes: Vec<Line>,
    /// A row for each node.
    distances: Vec<Line>,
    packages: Vec<Line>,
    dies: Vec<Line>,
    clusters: Vec<Line>,
    caches: Vec<Line>,
    /// GPUs, network interfaces and disks, each with the ids of the nodes that it is near.
    devices: Vec<Line>,
    pods: Members<'a, Vec<Line>>,
    limits: Option<Line>,
    notes: Line,
}

/// An object whose keys stay in this order.
struct Members<'a, T>(Vec<(&'a str, T)>);

impl<T: Serialize> Serialize for Members<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl<'a> Document<'a> {
    /// What is known about a machine.
    pub(super) fn new(view: &View<'a>) -> Self {
        let machine = view.topology;
        let effective = view.limits.map(Limits::effective);
        let cpus = machine.cpus().iter().map(|cpu| {
            object([
                ("cpu", line(cpu.id)),
                ("core", line(cpu.core_index)),
                ("llc", line(cpu.llc_index)),
                ("node", line(cpu.node_index)),
                ("package", line(cpu.package_index)),
                ("die", line(cpu.die_index)),
                ("cluster", line(cpu.cluster_index)),
                ("online", line(cpu.online)),
                ("capacity", line(cpu.capacity)),
                ("kind", line(&cpu.kind)),
                ("allowed", line(effective.as_ref().map(|allowed| allowed.contains(cpu.id)))),
            ])
        });
        let cores = machine.cores().iter().map(|core| {
            object([
                ("cpus", set(&core.cpus)),
                ("llc", line(core.llc_index)),
                ("node", line(core.node_index)),
                ("kind", line(&core.kind)),
            ])
        });
        let nodes = machine.nodes().iter().map(|node| {
            object([
                ("id", line(node.id)),
                ("cpus", set(&node.cpus)),
                ("memory", line(node.memory)),
            ])
        });
        let numbers = 0..machine.nodes().len();
        let distances = numbers.clone().map(|from| {
            line(numbers.clone().map(|to| machine.distance(from, to)).collect::<Vec<_>>())
        });
        let caches = machine.caches().iter().map(|cache| {
            object([
                ("level", line(cache.level)),
                ("kind", line(cache.kind.to_string())),
                ("size", line(cache.size)),
                ("line", line(cache.line)),
                ("cpus", set(&cache.cpus)),
            ])
        });
        let devices = machine.devices().iter().map(|device| {
            object([
                ("kind", line(device.kind.to_string())),
                ("name", line(&device.name)),
                ("address", line(&device.address)),
                ("vendor", line(device.vendor)),
                ("node_ids", line(&device.nodes)),
                ("explain", line(device.explain())),
            ])
        });
        Document {
            model: machine.model_name(),
            possible: set(&(machine.possible() | machine.slots())),
            present: set(machine.possible()),
            online: set(machine.online()),
            isolated: set(machine.isolated()),
            cpus: cpus.collect(),
            cores: cores.collect(),
            llcs: llcs(machine),
            nodes: nodes.collect(),
            distances: distances.collect(),
            packages: groups(machine.packages()),
            dies: groups(machine.dies()),
            clusters: groups(machine.clusters()),
            caches: caches.collect(),
            devices: devices.collect(),
            pods: Members(
                AffinityScope::ALL.iter().map(|&scope| (scope.name(), pods(view, scope))).collect(),
            ),
            limits: view.limits.map(limits),
            notes: line(machine.notes()),
        }
    }
}

fn llcs(machine: &Topology) -> Vec<Line> {
    let llcs = machine.llcs().iter().map(|llc| {
        let cache = llc.cache_index.map(|cache| &machine.caches()[cache]);
        object([
            ("cpus", set(&llc.cpus)),
            ("level", line(cache.map(|cache| cache.level))),
            ("size", line(cache.and_then(|cache| cache.size))),
            ("node", line(llc.node_index)),
            ("cores", line(&llc.core_indices)),
        ])
    });
    llcs.collect()
}

fn groups(groups: &[Group]) -> Vec<Line> {
    let object = |group: &Group| object([("id", line(group.id)), ("cpus", set(&group.cpus))]);
    groups.iter().map(object).collect()
}

fn pods(view: &View<'_>, scope: AffinityScope) -> Vec<Line> {
    let pods = view.topology.groups(scope, view.shard_size);
    pods.iter()
        .map(|pod| object([("cpus", set(&pod.cpus)), ("node", line(pod.node_index))]))
        .collect()
}

fn limits(limits: &Limits) -> Line {
    let quota = limits.quota.as_ref().map(|quota| {
        object([("cpus", line(quota.cpus)), ("source", line(quota.source.to_string_lossy()))])
    });
    object([
        ("affinity", set(&limits.affinity)),
        ("online", set(&limits.online)),
        ("cpuset", line(limits.cpuset.as_ref().map(set))),
        ("quota", line(quota)),
        ("isolated", set(&limits.isolated)),
        ("effective", set(&limits.effective())),
        ("housekeeping", set(&limits.housekeeping())),
        ("parallelism", line(limits.parallelism())),
        ("explain", line(limits.explain())),
        ("notes", line(limits.notes())),
    ])
}

fn object<const N: usize>(members: [(&str, Line); N]) -> Line {
    line(Members(members.into()))
}

fn set(cpus: &CpuSet) -> Line {
    line(cpus.iter().collect::<Vec<_>>())
}

fn line(value: impl Serialize) -> Line {
    to_raw_value(&value).expect("numbers and text can be written")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_topology::Quota;
    use serde_json::{Value, json};

    fn read(view: &View<'_>) -> Value {
        let text = serde_json::to_string(&Document::new(view)).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn unknown_values_are_null_and_parts_are_named_by_index() {
        let machine = Topology::from_synthetic("numa:2 core:1 pu:2").unwrap();
        let machine = read(&View::new(&machine));
        assert_eq!((&machine["model"], &machine["limits"]), (&Value::Null, &Value::Null));
        let cpu = json!({
            "cpu": 3, "core": 1, "llc": 1, "node": 1, "package": 0, "die": null, "cluster": null,
            "online": true, "capacity": null, "kind": null, "allowed": null
        });
        assert_eq!(machine["cpus"][3], cpu);
        assert_eq!(machine["distances"], json!([[10, 20], [20, 10]]));
    }

    #[test]
    fn limits_name_their_source() {
        let machine = Topology::from_synthetic("core:2").unwrap();
        let mut limits = Limits::unlimited(CpuSet::all(2));
        limits.quota = Some(Quota::new(0.5, "/a \"quoted\"\\path"));
        limits.isolated = CpuSet::single(1);
        let machine = read(&View::new(&machine).with_limits(&limits));
        assert_eq!(machine["limits"]["housekeeping"], json!([0]));
        let quota = json!({"cpus": 0.5, "source": "/a \"quoted\"\\path"});
        assert_eq!(machine["limits"]["quota"], quota);
    }
}
