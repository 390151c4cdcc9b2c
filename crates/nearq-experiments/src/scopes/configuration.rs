//! The queue configurations that are compared, and which of them are the same thing on a given machine.

use crate::Machine;
use crate::executor::Placement;
use nearq_topology::{CpuSet, Scope};

/// A named way to place items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The document's name for it, in lower case.
    pub name: &'static str,
    /// The placement.
    pub placement: Placement,
}

const fn configuration(
    name: &'static str,
    scope: Scope,
    strict: bool,
    localize: bool,
) -> Configuration {
    Configuration { name, placement: Placement { scope, strict, localize } }
}

/// The five configurations of the document in its order, and two beyond it.
pub const CONFIGURATIONS: [Configuration; 7] = [
    configuration("system", Scope::System, false, false),
    configuration("cache", Scope::Cache, false, false),
    configuration("cache+strict", Scope::Cache, true, false),
    configuration("system+local", Scope::System, false, true),
    configuration("cache+local", Scope::Cache, false, true),
    configuration("cache_shard", Scope::CacheShard, false, false),
    configuration("cpu+strict", Scope::Cpu, true, false),
];

/// A configuration on a machine: run, or the same as another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The configuration.
    pub configuration: Configuration,
    /// The name of the earlier configuration that it coincides with, and why.
    pub same_as: Option<(&'static str, String)>,
}

/// What a configuration comes down to: equal keys place items equally.
type Key = (Vec<CpuSet>, bool, bool);

fn key(placement: Placement, machine: &Machine) -> Key {
    let mut pods = machine.pods(placement.scope);
    pods.sort_by_key(CpuSet::first);
    // A worker cannot leave the only pod, and an item cannot run anywhere but on the only CPU.
    let strict = placement.strict && pods.len() > 1;
    let localize = placement.localize && machine.pods(Scope::Cpu).len() > 1;
    (pods, strict, localize)
}

/// Says for every configuration whether it is run here or coincides with one that is.
pub fn plan(machine: &Machine) -> Vec<Planned> {
    let mut run: Vec<(Key, Configuration)> = Vec::new();
    let planned = CONFIGURATIONS.map(|configuration| {
        let key = key(configuration.placement, machine);
        let same = run.iter().find(|(earlier, _)| *earlier == key).map(|(_, earlier)| *earlier);
        if same.is_none() {
            run.push((key, configuration));
        }
        let same_as = same.map(|earlier| (earlier.name, reason(configuration, earlier, machine)));
        Planned { configuration, same_as }
    });
    planned.into()
}

/// Why two configurations coincide.
fn reason(configuration: Configuration, earlier: Configuration, machine: &Machine) -> String {
    let (placement, other) = (configuration.placement, earlier.placement);
    if machine.pods(Scope::Cpu).len() == 1 {
        return "one CPU here".into();
    }
    if placement.scope == other.scope {
        return format!(
            "strictness and localisation change nothing: {}",
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
        assert!(reason.starts_with("the same pods: 4 shard of"), "{reason}");
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
