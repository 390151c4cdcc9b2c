//! Tests of `configuration`: the queue configurations that are compared, and which of them are the same on a given machine.

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
    let run: Vec<_> =
        run.map(|plan| (plan.configuration.name, plan.configuration.placement.helping)).collect();
    let expected = [
        ("system", false),
        ("cache", false),
        ("cache+strict", false),
        ("system+local", false),
        ("cache+local", false),
        ("cpu+strict", false),
        ("cache+helping", true),
        ("cache+local+helping", true),
        ("hinted: cache", false),
        ("hinted: system+local", false),
        ("hinted: cache+local", false),
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
        [
            "system",
            "system+local",
            "cpu+strict",
            "hinted: cache",
            "hinted: system+local",
            "kernel: system",
            "kernel: system+local"
        ],
        "helping changes nothing in one pod"
    );
}

#[test]
fn with_one_cache_the_cache_scopes_equal_the_system_scope() {
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
fn on_one_cpu_all_configurations_coincide() {
    let machine = machine("core:1");
    assert!(same(&machine)[1..].iter().all(|(_, same)| *same == Some("system")));
    assert_eq!(plan(&machine)[6].same_as.as_ref().unwrap().1, "one CPU here");
}
