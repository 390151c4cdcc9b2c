//! Tests of the conclusions of `numa`.

use super::*;
use crate::Machine;

fn ask(seed: u64) -> Answer {
    let machine = Machine::named("numa:2 core:2").unwrap();
    answer(&Setting { machine: &machine, parameter: None, seed, quick: true }, 16).unwrap()
}

#[test]
fn pools_for_nodes_are_compared_with_one_pool() {
    let answer = ask(1);
    let names: Vec<_> = answer.conclusions.iter().map(|one| one.name.as_str()).collect();
    let expected = [
        "numa takes at most 1 % longer than system",
        "writeback, numa takes at most 1 % longer than writeback, system",
    ];
    assert_eq!(names, expected);
    assert!(answer.conclusions.iter().all(|one| (0.5..2.0).contains(&one.value)), "{answer:?}");
    assert!(answer.conclusions.iter().all(|one| one.bound == Bound::AtMost(1.01)));
    assert_eq!(answer, ask(1));
    assert_ne!(answer.trace_hash, ask(2).trace_hash);
}

#[test]
fn a_machine_with_one_node_has_no_conclusions() {
    let error = NUMA.check(&Machine::named("core:4").unwrap()).unwrap_err().to_string();
    assert!(error.contains("it has one node; give a machine such as opteron-2s"), "{error}");
}
