//! Tests of the conclusions of `lock`.

use super::*;
use crate::Machine;

const SHORT: Size = Size { writers: &[2, 16, 32], duration: Duration::from_millis(2) };

fn ask(machine: &str, seed: u64) -> Answer {
    let machine = Machine::named(machine).unwrap();
    answer(&Setting { machine: &machine, parameter: None, seed, quick: true }, SHORT).unwrap()
}

#[test]
fn auto_is_compared_with_both_queues_by_the_goals_of_the_experiment() {
    let answer = ask("l3:4 core:4", 1);
    let bounds: Vec<_> =
        answer.conclusions.iter().map(|one| (one.name.as_str(), one.bound)).collect();
    // 32 writers are left out, and for two there is no published gain.
    let expected = [
        ("2 writers, throughput of auto over plain", Bound::AtLeast(0.99)),
        ("16 writers, throughput of auto over plain", Bound::AtLeast(0.95)),
        ("16 writers, throughput of auto over OsqLock", Bound::AtLeast(1.72)),
    ];
    assert_eq!(bounds, expected);
    assert_eq!(answer, ask("l3:4 core:4", 1));
    assert_ne!(answer.trace_hash, ask("l3:4 core:4", 2).trace_hash);
}

#[test]
fn on_the_documents_machine_queues_by_cache_pay_for_many_writers_alone() {
    let answer = ask(LOCK.machine, 1);
    let [few, some, many] = [0, 1, 2].map(|at| answer.conclusions[at].value);
    assert!((0.99..1.01).contains(&few) && some > 1.2 && many > 1.2, "{answer:?}");
}

#[test]
fn a_machine_with_fewer_cpus_than_writers_has_no_conclusions() {
    let check = |name| LOCK.check(&Machine::named(name).unwrap());
    assert_eq!(check("l3:4 core:4"), Ok(()));
    let error = check("l3:3 core:5").unwrap_err().to_string();
    assert!(error.contains("16 writers or more, and it has 15 CPUs"), "{error}");
}
