//! Tests of the conclusions of `highpri`.

use super::*;
use crate::Machine;

fn ask(seed: u64) -> Answer {
    let machine = Machine::named("core:2").unwrap();
    let setting = Setting { machine: &machine, parameter: None, seed, quick: true };
    answer(&setting, 600, Duration::from_millis(200)).unwrap()
}

#[test]
fn an_ordinary_item_waits_longer_by_the_goals_of_the_experiment() {
    let answer = ask(1);
    let bounds: Vec<_> =
        answer.conclusions.iter().map(|one| (one.name.as_str(), one.bound)).collect();
    let expected =
        [("normal waits at least 100 times as long as high+slice, top20", Bound::AtLeast(100.0))];
    assert_eq!(bounds, expected);
    assert!(
        answer.conclusions.iter().all(|one| one.value > 10.0),
        "beside 600 threads: {answer:?}"
    );
    assert_eq!(answer, ask(1));
    assert_ne!(answer.trace_hash, ask(2).trace_hash);
}
