//! The queue configurations that are compared, and which of them are the same thing on a given machine.

use crate::Machine;
use crate::scopes::Placement;
use nearq_topology::{CpuSet, Scope};

/// Whose pools run the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Those of the queue that is measured.
    Ours,
    /// Those of the kernel, in outline; on simulated machines.
    Kernel,
}

/// What the names of the kernel's rows begin with.
const KERNEL: &str = "kernel: ";

/// A named way to place items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The document's name for it, in lower case; with `kernel: ` before it if that is whose pools they are.
    pub name: &'static str,
    /// The placement.
    pub placement: Placement,
    /// Whose pools.
    pub policy: Policy,
}

impl Configuration {
    /// The row that it is compared with: `system`, of the same policy.
    pub fn base(&self) -> &'static str {
        match self.policy {
            Policy::Ours => "system",
            Policy::Kernel => "kernel: system",
        }
    }
}

/// The document's name for a row, whoever's pools it is about.
pub(super) fn of_document(name: &str) -> &str {
    name.strip_prefix(KERNEL).unwrap_or(name)
}

const fn kernel(name: &'static str, scope: Scope, strict: bool, localize: bool) -> Configuration {
    let placement = Placement { scope, strict, localize, helping: false };
    Configuration { name, placement, policy: Policy::Kernel }
}

const fn configuration(
    name: &'static str,
    scope: Scope,
    strict: bool,
    localize: bool,
    helping: bool,
) -> Configuration {
    let placement = Placement { scope, strict, localize, helping };
    Configuration { name, placement, policy: Policy::Ours }
}

/// What is measured on this machine: the five configurations of the document in its order, and two beyond it, with
/// idle workers helping other pods, as they do unless told otherwise.
pub const CONFIGURATIONS: [Configuration; 7] = [
    configuration("system", Scope::System, false, false, true),
    configuration("cache", Scope::Cache, false, false, true),
    configuration("cache+strict", Scope::Cache, true, false, true),
    configuration("system+local", Scope::System, false, true, true),
    configuration("cache+local", Scope::Cache, false, true, true),
    configuration("cache_shard", Scope::CacheShard, false, false, true),
    configuration("cpu+strict", Scope::Cpu, true, false, true),
];

/// What is measured on a simulated machine: the same with nobody helping, as in the kernel, where an idle worker of
/// one pool never takes the items of another; again with helping where that makes a difference; and the five of the
/// document on the kernel's own pools.
pub const SIMULATED: [Configuration; 15] = [
    configuration("system", Scope::System, false, false, false),
    configuration("cache", Scope::Cache, false, false, false),
    configuration("cache+strict", Scope::Cache, true, false, false),
    configuration("system+local", Scope::System, false, true, false),
    configuration("cache+local", Scope::Cache, false, true, false),
    configuration("cache_shard", Scope::CacheShard, false, false, false),
    configuration("cpu+strict", Scope::Cpu, true, false, false),
    configuration("cache+helping", Scope::Cache, false, false, true),
    configuration("cache+local+helping", Scope::Cache, false, true, true),
    configuration("cache_shard+helping", Scope::CacheShard, false, false, true),
    kernel("kernel: system", Scope::System, false, false),
    kernel("kernel: cache", Scope::Cache, false, false),
    kernel("kernel: cache+strict", Scope::Cache, true, false),
    kernel("kernel: system+local", Scope::System, false, true),
    kernel("kernel: cache+local", Scope::Cache, false, true),
];

/// What is measured on a machine.
pub fn configurations(machine: &Machine) -> &'static [Configuration] {
    if machine.model().is_some() { &SIMULATED } else { &CONFIGURATIONS }
}

/// A configuration on a machine: run, or the same as another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The configuration.
    pub configuration: Configuration,
    /// The name of the earlier configuration that it coincides with, and why.
    pub same_as: Option<(&'static str, String)>,
}

/// What a configuration comes down to: equal keys place items equally.
type Key = (Policy, Vec<CpuSet>, [bool; 3]);

fn key(configuration: Configuration, machine: &Machine) -> Key {
    let placement = configuration.placement;
    let mut pods = machine.pods(placement.scope);
    pods.sort_by_key(CpuSet::first);
    // A worker cannot leave the only pod, and an item cannot run anywhere but on the only CPU.
    let strict = placement.strict && pods.len() > 1;
    let localize = placement.localize && machine.pods(Scope::Cpu).len() > 1;
    let helping = placement.helping && !strict && pods.len() > 1;
    (configuration.policy, pods, [strict, localize, helping])
}

/// Says for every configuration whether it is run here or coincides with one that is.
pub fn plan(machine: &Machine) -> Vec<Planned> {
    let mut run: Vec<(Key, Configuration)> = Vec::new();
    let planned = configurations(machine).iter().map(|&configuration| {
        let key = key(configuration, machine);
        let same = run.iter().find(|(earlier, _)| *earlier == key).map(|(_, earlier)| *earlier);
        if same.is_none() {
            run.push((key, configuration));
        }
        let same_as = same.map(|earlier| (earlier.name, reason(configuration, earlier, machine)));
        Planned { configuration, same_as }
    });
    planned.collect()
}

/// Why two configurations coincide.
fn reason(configuration: Configuration, earlier: Configuration, machine: &Machine) -> String {
    let (placement, other) = (configuration.placement, earlier.placement);
    if machine.pods(Scope::Cpu).len() == 1 {
        return "one CPU here".into();
    }
    if placement.scope == other.scope {
        return format!(
            "strictness, localisation and helping change nothing: {}",
            machine.count(placement.scope)
        );
    }
    let counts = [placement.scope, other.scope].map(|scope| machine.count(scope));
    let [count, other_count] = counts;
    if placement.scope == Scope::System || other.scope == Scope::System {
        return if other.scope == Scope::System { count } else { other_count };
    }
    format!("the same pods: {count}, {other_count}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_topology::Topology;

    fn machine(synthetic: &str) -> Machine {
        let topology = Topology::from_synthetic(synthetic).unwrap();
        let usable = topology.online().clone();
        Machine::of(topology, usable)
    }

    fn same(machine: &Machine) -> Vec<(&'static str, Option<&'static str>)> {
        let planned = plan(machine);
        planned
            .iter()
            .map(|plan| (plan.configuration.name, plan.same_as.as_ref().map(|(name, _)| *name)))
            .collect()
    }

    #[test]
    fn on_the_documents_machine_only_the_shards_coincide() {
        // A Ryzen 9 3900X: four L3 caches of three cores with two CPUs each.
        let machine = machine("l3:4 core:3 pu:2");
        let expected = [
            ("system", None),
            ("cache", None),
            ("cache+strict", None),
            ("system+local", None),
            ("cache+local", None),
            ("cache_shard", Some("cache")),
            ("cpu+strict", None),
        ];
        assert_eq!(same(&machine), expected);
        let (_, reason) = plan(&machine)[5].same_as.clone().unwrap();
        assert!(reason.starts_with("the same pods: 4 shards of"), "{reason}");
    }

    #[test]
    fn simulated_machines_measure_without_helping_and_with_it() {
        let planned = plan(&Machine::named("ryzen-3900x").unwrap());
        let run = planned.iter().filter(|plan| plan.same_as.is_none());
        let run: Vec<_> = run
            .map(|plan| (plan.configuration.name, plan.configuration.placement.helping))
            .collect();
        let expected = [
            ("system", false),
            ("cache", false),
            ("cache+strict", false),
            ("system+local", false),
            ("cache+local", false),
            ("cpu+strict", false),
            ("cache+helping", true),
            ("cache+local+helping", true),
            ("kernel: system", false),
            ("kernel: cache", false),
            ("kernel: cache+strict", false),
            ("kernel: system+local", false),
            ("kernel: cache+local", false),
        ];
        assert_eq!(run, expected);
        let shard =
            planned.iter().find(|plan| plan.configuration.name == "cache_shard+helping").unwrap();
        assert_eq!(shard.same_as.as_ref().unwrap().0, "cache+helping");
        let one = plan(&Machine::named("l3:1 core:4").unwrap());
        let run: Vec<_> = one
            .iter()
            .filter(|plan| plan.same_as.is_none())
            .map(|plan| plan.configuration.name)
            .collect();
        assert_eq!(
            run,
            ["system", "system+local", "cpu+strict", "kernel: system", "kernel: system+local"],
            "helping changes nothing in one pod"
        );
    }

    #[test]
    fn with_one_cache_everything_about_caches_is_the_system() {
        let machine = machine("l3:1 core:2");
        let expected = [
            ("system", None),
            ("cache", Some("system")),
            ("cache+strict", Some("system")),
            ("system+local", None),
            ("cache+local", Some("system+local")),
            ("cache_shard", Some("system")),
            ("cpu+strict", None),
        ];
        assert_eq!(same(&machine), expected);
        assert_eq!(plan(&machine)[2].same_as.as_ref().unwrap().1, "one last-level cache here");
    }

    #[test]
    fn a_large_cache_is_cut_into_shards_of_its_own() {
        let machine = machine("l3:1 core:72");
        let run: Vec<_> = same(&machine)
            .into_iter()
            .filter(|(_, same)| same.is_none())
            .map(|(name, _)| name)
            .collect();
        assert_eq!(run, ["system", "system+local", "cache_shard", "cpu+strict"]);
    }

    #[test]
    fn a_cache_for_every_cpu_differs_from_cpu_strict_in_strictness_alone() {
        let machine = machine("l3:4 core:1");
        let expected = [
            ("system", None),
            ("cache", None),
            ("cache+strict", None),
            ("system+local", None),
            ("cache+local", None),
            ("cache_shard", Some("cache")),
            ("cpu+strict", Some("cache+strict")),
        ];
        assert_eq!(same(&machine), expected);
    }

    #[test]
    fn on_one_cpu_all_is_one() {
        let machine = machine("core:1");
        assert!(same(&machine)[1..].iter().all(|(_, same)| *same == Some("system")));
        assert_eq!(plan(&machine)[6].same_as.as_ref().unwrap().1, "one CPU here");
    }
}
