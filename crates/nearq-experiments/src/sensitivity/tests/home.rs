//! Tests of the conclusions of `home`.

use super::*;
use crate::Machine;

fn walks(elapsed: [f64; 4], average_user: [f64; 4]) -> Vec<Walk> {
    let rows = [Row::Without, Row::Homes, Row::Dynamic, Row::Oracle];
    let figures = rows.into_iter().zip(elapsed).zip(average_user);
    figures.map(|((row, elapsed), average_user)| Walk { row, elapsed, average_user }).collect()
}

#[test]
fn homes_are_compared_with_none_and_with_the_oracle() {
    // The oracle gains 2 of 10 seconds, the homes 1.5, the dynamic ones 1.
    let conclusions = conclusions(&walks([10.0, 8.5, 9.0, 8.0], [5.0, 4.0, 5.5, 4.0]));
    let names: Vec<_> = conclusions.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names[0], "homes, elapsed time at most that without");
    assert_eq!(names[4], "dynamic homes, average user time at most that without");
    assert_eq!(
        names[5],
        "dynamic homes, elapsed time at most what 70 % of the oracle's gain leaves"
    );
    let expected = [0.85, 0.8, 8.5 / 8.6, 0.9, 1.1, 9.0 / 8.6];
    for (conclusion, value) in conclusions.iter().zip(expected) {
        assert!((conclusion.value - value).abs() < 1e-9, "{conclusion:?} is not {value}");
        assert_eq!(conclusion.bound, Bound::AtMost(1.0));
    }
}

#[test]
fn a_run_is_a_function_of_the_machine_and_the_seed() {
    let ask = |seed| {
        let machine = Machine::named("numa:2 core:2").unwrap();
        answer(&Setting { machine: &machine, parameter: None, seed, quick: true }, 1, true).unwrap()
    };
    let first = ask(1);
    assert_eq!(first.conclusions.len(), 6);
    assert!(first.conclusions.iter().all(|one| (0.5..2.0).contains(&one.value)), "{first:?}");
    assert_eq!(first, ask(1));
    assert_ne!(first.trace_hash, ask(2).trace_hash);
}

#[test]
fn machines_with_one_node_or_too_many_cpus_have_no_conclusions() {
    let refused = |name| HOME.check(&Machine::named(name).unwrap()).unwrap_err().to_string();
    assert!(refused("core:4").contains("it has one node; give a machine such as tx7-itanium2"));
    assert!(refused("pack:2 core:300").contains("600 CPUs"));
    assert_eq!(HOME.check(&Machine::named(HOME.machine).unwrap()), Ok(()));
}
