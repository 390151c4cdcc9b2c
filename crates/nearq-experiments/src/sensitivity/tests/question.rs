//! Tests of `question`: what an experiment provides so that its conclusions can be examined.

use super::*;

/// A question of which only the description is used.
pub(in super::super) fn question() -> Question {
    Question {
        name: "dispatch",
        machine: "grace-72",
        parameters: &[],
        sizes: ["60 items", "4 items"],
        least_runs: [1, 3],
        has_noise: false,
        refuses: |machine| (machine.parallelism() == 1).then(|| "it has one CPU".into()),
        ask: |_| Err(Error::run("only described")),
    }
}

#[test]
fn a_machine_without_conclusions_is_refused_with_the_reason() {
    let check = |name| question().check(&Machine::named(name).unwrap());
    assert_eq!(check("core:2"), Ok(()));
    let error = check("core:1").unwrap_err();
    assert_eq!(error.exit_status(), 2);
    assert_eq!(error.to_string(), "dispatch has no conclusions for core:1: it has one CPU");
}

#[test]
fn margins_are_positive_where_a_bound_is_kept() {
    assert_eq!(Bound::AtLeast(1.5).margin(2.0), 0.5);
    assert_eq!(Bound::AtLeast(1.5).margin(1.25), -0.25);
    assert_eq!(Bound::AtMost(1.0).margin(0.75), 0.25);
    assert_eq!(Bound::AtMost(1.0).margin(1.5), -0.5);
    assert_eq!(Bound::AtMost(1.0).to_string(), "at most 1");
    assert_ne!(joined([1, 2]), joined([2, 1]));
}
