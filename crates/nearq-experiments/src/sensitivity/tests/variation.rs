//! Tests of `findings`: what is varied.

use super::*;

#[test]
fn costs_are_halved_and_raised_by_half_as_far_as_they_can_be() {
    let costs = Costs::DEFAULT;
    let factor = Factor::cost("same_llc", &costs).unwrap();
    assert_eq!((factor.cost, factor.percents), (Some(40), [Some(50), Some(150)]));
    let mut small = costs;
    small.own_line = 1;
    let factor = Factor::cost("own_line", &small).unwrap();
    assert_eq!(factor.percents, [None, Some(200)], "1 ns has no half, and 2 is the next");
    assert_eq!(Factor::cost("luck", &costs), None);
    assert_eq!((difference(50), difference(150)), ("-50 %".into(), "+50 %".into()));
}

#[test]
fn a_factor_changes_its_cost_alone() {
    let machine = Machine::named("l3:2 core:2").unwrap();
    let all = factors(&machine, &["item_work"], &["wake_up".into()]).unwrap();
    let [wake_up] = &all[..] else { panic!("one was asked for") };
    let changed = wake_up.apply(&machine, 150);
    let (before, after) = (machine.model().unwrap(), changed.model().unwrap());
    assert_eq!(after.costs().wake_up, before.costs().wake_up * 3 / 2);
    assert_eq!(after.costs().scaled("wake_up", 100).unwrap().idle_exit, before.costs().idle_exit);
    assert_eq!((changed.name(), wake_up.setting(150)), ("l3:2 core:2", None));
}

#[test]
fn parameters_are_factors_too_and_other_names_are_refused() {
    let machine = Machine::named("l3:2 core:2").unwrap();
    let all = factors(&machine, &["item_work"], &[]).unwrap();
    assert_eq!(all.len(), Costs::NAMES.len() + 1);
    assert_eq!(all.last().unwrap().setting(50), Some(("item_work", 50)));
    assert_eq!(check_names(&["item_work".into(), "spawn".into()], &["item_work"]), Ok(()));
    let error = check_names(&["luck".into()], &["item_work"]).unwrap_err().to_string();
    assert!(error.contains("--costs luck") && error.contains("same_llc"), "{error}");
    let here = factors(&Machine::here().unwrap(), &[], &[]).unwrap_err().to_string();
    assert!(here.contains("--on here") && here.contains("grace-72"), "{here}");
}
