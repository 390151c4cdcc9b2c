//! Tests of the conclusions of `join`.

use super::*;
use crate::Machine;

fn ask(machine: &str, seed: u64) -> Result<Answer, Error> {
    let machine = Machine::named(machine).unwrap();
    (JOIN.ask)(&Setting { machine: &machine, parameter: None, seed, quick: true })
}

#[test]
fn the_scope_cache_is_compared_with_the_others() {
    let answer = ask("l3:2 core:2", 1).unwrap();
    let names: Vec<_> = answer.conclusions.iter().map(|one| one.name.as_str()).collect();
    let expected = ["nearq, system", "random stealing"]
        .map(|row| format!("nearq, cache takes at most as long as {row}"));
    assert_eq!(names, expected);
    assert!(answer.conclusions.iter().all(|one| one.value > 0.1 && one.value < 10.0), "{answer:?}");
    assert_eq!(answer, ask("l3:2 core:2", 1).unwrap());
    assert_ne!(answer.trace_hash, ask("l3:2 core:2", 2).unwrap().trace_hash);
}

#[test]
fn with_one_cache_only_the_plain_pool_is_compared() {
    let answer = ask("l3:1 core:4", 1).unwrap();
    let names: Vec<_> = answer.conclusions.into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["nearq, cache takes at most as long as random stealing"]);
}
