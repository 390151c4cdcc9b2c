//! Tests of `variation`: what is varied, and what that changes.

use super::*;

/// The costs that differ after the change of a factor of this name, with their values.
fn changed_costs(machine: &Machine, name: &str, change: Change) -> Vec<(&'static str, u64)> {
    let all = factors(machine, &[], &[name.into()]).unwrap();
    let [factor] = &all[..] else { panic!("one was asked for: {all:?}") };
    assert!(factor.changes.contains(&Some(change)), "{factor:?}");
    let after = factor.apply(machine, change);
    assert_eq!((after.name(), after.topology()), (machine.name(), machine.topology()));
    let [before, after] = [machine, &after].map(|one| one.model().unwrap().costs());
    let changed = |name: &&'static str| {
        Some((*name, after.get(name)?)).filter(|(_, to)| before.get(name) != Some(*to))
    };
    Costs::NAMES.iter().filter_map(changed).collect()
}

fn named(name: &str) -> Machine {
    Machine::named(name).unwrap()
}

#[test]
fn costs_are_halved_and_raised_by_half_as_far_as_they_can_be() {
    let costs = Costs::DEFAULT;
    let factor = Factor::cost("same_llc", &costs).unwrap();
    let percents = [50, 150].map(|percent| Some(Change::Percent(percent)));
    assert_eq!((factor.kind, factor.changes), (Kind::Cost(40), percents));
    let mut small = costs;
    small.own_line = 1;
    let factor = Factor::cost("own_line", &small).unwrap();
    let expected = [None, Some(Change::Percent(200))];
    assert_eq!(factor.changes, expected, "1 ns has no half, and 2 is the next");
    assert_eq!(Factor::cost("interrupt", &costs).unwrap().changes, [None, None], "it is nothing");
    assert_eq!(Factor::cost("luck", &costs), None);
    assert_eq!((difference(50), difference(150)), ("-50 %".into(), "+50 %".into()));
}

#[test]
fn a_cost_changes_alone() {
    let machine = named("l3:2 core:2");
    let wake_up = machine.model().unwrap().costs().wake_up;
    let changed = changed_costs(&machine, "wake_up", Change::Percent(150));
    assert_eq!(changed, [("wake_up", wake_up * 3 / 2)]);
}

#[test]
fn a_rule_changes_its_costs_alone() {
    let other = |machine: &str, rule| changed_costs(&named(machine), rule, Change::Other);
    let homes = [("home_same_package", 0), ("home_other_package", 0)];
    assert_eq!(other("epyc-7551-2s", "home agent"), homes);
    assert_eq!(other("ryzen-3900x", "SMT"), [("smt_percent", 100)]);
    assert_eq!(other("ryzen-3900x", "wake rule"), [], "it is not a cost");
    let other_llc = named("ryzen-3900x").model().unwrap().costs().other_llc;
    assert_eq!(other("ryzen-3900x", "far atomics"), [("far_atomic", other_llc)]);
}

#[test]
fn a_machine_that_has_the_other_rule_is_left_as_it_is() {
    let all = factors(&named("opteron-2s"), &[], &[]).unwrap();
    let of = |name| all.iter().find(|factor| factor.name == name).unwrap().changes;
    assert_eq!((of("home agent"), of("SMT")), ([None; 2], [None; 2]));
    assert_eq!(of("wake rule"), [None, Some(Change::Other)]);
}

#[test]
fn far_atomics_are_switched_off_where_there_are_some() {
    let far = with_costs(&named("l3:2 core:2"), |costs| costs.far_atomic = 9);
    assert_eq!(changed_costs(&far, "far atomics", Change::Other), [("far_atomic", 0)]);
    let describe =
        |machine: &Machine| factors(machine, &[], &["far atomics".into()]).unwrap()[0].describe();
    assert_eq!(describe(&far), "far atomics: off");
    assert_eq!(describe(&named("l3:2 core:2")), "far atomics: on");
}

#[test]
fn the_wake_rule_is_that_of_scopes() {
    use nearq_platform::{LockPlatform as _, Placement as _, ThreadSpec, Threads as _};
    use nearq_sim::{Sim, compute};
    use std::time::Duration;

    /// The CPU of a thread that wakes up while others compute on all CPUs of the first cache.
    fn woken_on(machine: &Machine) -> usize {
        let run = crate::harness::simulate(machine, 1, Duration::from_secs(1), || {
            let on = |cpu| nearq_topology::CpuSet::single(cpu);
            let sleeper = Sim::current_thread();
            Sim::set_affinity(sleeper, &on(0)).unwrap();
            let busy = [0, 1].map(|cpu| {
                let spec = ThreadSpec { affinity: Some(on(cpu)), ..ThreadSpec::default() };
                Sim::spawn(spec, || compute(Duration::from_millis(50))).unwrap()
            });
            let all = (0..4).collect();
            Sim::set_affinity(sleeper, &all).unwrap();
            Sim::sleep(Duration::from_millis(1));
            let cpu = Sim::current_cpu();
            busy.into_iter().for_each(Sim::join);
            cpu
        });
        run.unwrap().result
    }

    let machine = named("numa:1 l3:2 core:2");
    let rule = &factors(&machine, &[], &["wake rule".into()]).unwrap()[0];
    assert_eq!(rule.describe(), "wake rule: within the cache");
    let within = rule.apply(&machine, Change::Other);
    assert!(woken_on(&machine) >= 2, "the other cache of the node has idle CPUs");
    assert!(woken_on(&within) < 2, "it waits under its cache");
}

#[test]
fn parts_of_a_load_are_factors_too_and_other_names_are_refused() {
    let machine = named("l3:2 core:2");
    let all = factors(&machine, &["item_work"], &[]).unwrap();
    assert_eq!(all.len(), Costs::NAMES.len() + RULES.len() + 1);
    let load = all.last().unwrap();
    assert_eq!(load.setting(Change::Percent(50)), Some(("item_work", 50)));
    assert!(all[..all.len() - 1].iter().all(|one| one.setting(Change::Percent(50)).is_none()));
    let known = ["item_work", "spawn", "wake rule", "SMT"].map(String::from);
    assert_eq!(check_names(&known, &["item_work"]), Ok(()));
    let error = check_names(&["luck".into()], &["item_work"]).unwrap_err().to_string();
    for name in ["--costs luck", "same_llc", "home agent", "far atomics", "item_work"] {
        assert!(error.contains(name), "{name} is missing from {error}");
    }
    let here = factors(&Machine::here().unwrap(), &[], &[]).unwrap_err().to_string();
    assert!(here.contains("--on here") && here.contains("grace-72"), "{here}");
}
