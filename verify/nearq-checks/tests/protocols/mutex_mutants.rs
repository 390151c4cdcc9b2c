//! The checks of the mutex's protocol find what is wrong with it: each mistake is planted on purpose, and must be found by the property
//! that is meant for it. Without the mistake the same scenario passes.

use std::collections::HashSet;

use nearq_checks::cycles;
use nearq_checks::mutex::Mode::{Auto, Off, Plain};
use nearq_checks::mutex::{Action, Mode, Mutant, Op, Scenario, Script, State, Step};
use stateright::{Checker, HasDiscoveries, Model};

use crate::properties::not_held;

fn script(threads: u8, domain: u8, mode: Mode, ops: &[Op]) -> Script {
    Script { threads, domain, mode, ops: ops.to_vec() }
}

/// The properties that do not hold.
fn failures(scenario: &Scenario) -> Vec<&'static str> {
    let checker = scenario.clone().checker();
    not_held(scenario, &checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join())
}

/// The properties that do not hold if only one of the states that differ only in names is visited (`symmetry_loses_nothing`).
fn failures_by_symmetry(scenario: &Scenario) -> Vec<&'static str> {
    let checker = scenario.clone().checker().symmetry_fn(State::representative);
    not_held(scenario, &checker.finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join())
}

/// Checks that `expected` does not hold with the mutant, and that everything holds without it.
fn is_found(mutant: Mutant, expected: &str, scenario: Scenario) {
    assert_eq!(failures_by_symmetry(&scenario), [""; 0], "without {mutant:?}");
    let found = failures(&Scenario { mutant: Some(mutant), ..scenario });
    assert!(found.contains(&expected), "{mutant:?}: {found:?}");
}

/// Two threads that meet once at a mutex.
fn two(op: Op, mode: Mode) -> Scenario {
    Scenario::new(vec![script(2, 0, mode, &[op])])
}

/// One thread in each domain, and the mutex in a slot.
fn in_slot(first: &[Op], second: &[Op]) -> Scenario {
    let scripts = vec![script(1, 0, Auto, first), script(1, 1, Auto, second)];
    Scenario { bound: true, ..Scenario::new(scripts) }
}

/// A slot goes from one mutex to another, while a thread waits for the first one.
fn slot_used_again() -> Scenario {
    in_slot(&[Op::lock(0), Op::bind(1), Op::Drop(1)], &[Op::lock(0), Op::Drop(0)])
}

#[test]
fn two_holders_are_found() {
    is_found(Mutant::TakeInTwoSteps, "exclusion", two(Op::lock(0), Plain));
}

#[test]
fn one_that_sleeps_for_ever_is_found() {
    is_found(Mutant::UnlockForgetsWake, "no lost wake-up", two(Op::lock(0), Plain));
    is_found(Mutant::UnlockForgetsWake, "no lost wake-up", two(Op::lock(0), Off));
}

#[test]
fn one_that_was_told_asleep_and_is_not_woken_is_found() {
    let three = |mode| Scenario::new(vec![script(3, 0, mode, &[Op::lock(0)])]);
    is_found(Mutant::UnlockForgetsDeferredWake, "no lost wake-up", three(Plain));
    let in_slot = Scenario { bound: true, ..three(Auto) };
    is_found(Mutant::UnlockForgetsDeferredWake, "no lost wake-up", in_slot);
}

#[test]
fn waking_one_where_one_has_the_turn_is_found() {
    for (with, without) in [(2, 1), (1, 2)] {
        let with = script(with, 0, Plain, &[Op::lock(0)]);
        let without = script(without, 0, Off, &[Op::until(0)]);
        let scenario = Scenario { ignores: true, ..Scenario::new(vec![with, without]) };
        is_found(Mutant::UnlockWakesOne, "no lost wake-up", scenario);
    }
}

#[test]
fn one_that_trusts_an_old_look_at_the_word_is_found() {
    is_found(Mutant::NoLookAgain, "no fault", slot_used_again());
}

#[test]
fn a_generation_that_is_used_twice_is_found() {
    is_found(Mutant::SameGeneration, "no fault", in_slot(&[Op::lock(0)], &[Op::lock(0)]));
}

#[test]
fn one_that_stands_up_and_is_forgotten_is_found() {
    let scenario = in_slot(&[Op::lock(0)], &[Op::lock(0), Op::lock(0)]);
    is_found(Mutant::UnbindTellsNobody, "no lost wake-up", scenario.clone());
    is_found(Mutant::RestBlindly, "no lost wake-up", scenario);
}

#[test]
fn a_slot_that_is_bound_with_old_tails_is_found() {
    is_found(Mutant::BindOverSomebody, "no lost record", slot_used_again());
    // A thread that queues up there starts over again and again while the mutex is held.
    let scenario = in_slot(&[Op::lock(0), Op::bind(1)], &[Op::lock(1)]);
    assert!(cycles::find(&scenario, State::representative).is_ok());
    let mutant = Scenario { mutant: Some(Mutant::BindLeavesTails), ..scenario };
    let found = cycles::find(&mutant, State::representative).expect_err("a circle");
    let anew = |action: &Action| matches!(action.step, Step::TakeRecord(_));
    assert!(found.circle.iter().any(anew), "{found:?}");
}

#[test]
fn one_that_passes_by_all_the_same_is_found() {
    let scripts = vec![script(2, 0, Plain, &[Op::lock(0), Op::lock(0)])];
    let scenario = Scenario::new(scripts);
    is_found(Mutant::UnlockForgetsReserved, "nobody passes by", scenario.clone());
    is_found(Mutant::ReservedIgnored, "RESERVED is heeded", scenario);
}

#[test]
fn a_message_that_is_not_found_is_found() {
    let three = Scenario::new(vec![script(3, 0, Plain, &[Op::lock(0)])]);
    is_found(Mutant::LinkSeesNoGone, "no lost wake-up", three.clone());
    is_found(Mutant::StepOutSeesNoJoiner, "no lost wake-up", three);
}

#[test]
fn giving_up_without_looking_is_found() {
    let three = Scenario::new(vec![script(3, 0, Plain, &[Op::until(0)])]);
    is_found(Mutant::LeftByStore, "no lost record", three.clone());
    is_found(Mutant::TurnNotHandedOn, "no stuck slot", three);
}

#[test]
fn taking_the_next_ones_reservation_away_is_found() {
    let robbed = "nobody takes another's reservation away";
    let plain = Scenario::new(vec![script(3, 0, Plain, &[Op::until(0)])]);
    is_found(Mutant::UnreservesLate, robbed, plain);
    let scripts = vec![script(2, 0, Auto, &[Op::until(0)]), script(1, 1, Auto, &[Op::lock(0)])];
    let in_domains = Scenario { bound: true, ..Scenario::new(scripts) };
    is_found(Mutant::UnreservesLate, robbed, in_domains);
    let scripts = vec![
        script(1, 0, Auto, &[Op::fair(0)]),
        script(1, 0, Auto, &[Op::lock(0)]),
        script(1, 1, Auto, &[Op::until(0), Op::try_lock(0)]),
    ];
    let tried = Scenario { bound: true, ..Scenario::new(scripts) };
    is_found(Mutant::TryWithoutTurn, robbed, tried);
}

/// By then the slot's turn may belong to another mutex.
#[test]
fn one_that_tries_and_trusts_an_old_look_at_the_word_is_found() {
    let scripts = vec![
        script(1, 0, Auto, &[Op::fair(0), Op::lock(0), Op::bind(1), Op::lock(1)]),
        script(1, 1, Auto, &[Op::until(0), Op::try_lock(0)]),
    ];
    let scenario = Scenario { bound: true, ..Scenario::new(scripts) };
    is_found(Mutant::TryTrustsOldLook, "no fault", scenario);
}

/// Visiting only one of the states that differ only in names misses none of these mistakes.
#[test]
fn symmetry_loses_nothing() {
    let three = Scenario::new(vec![script(3, 0, Plain, &[Op::until(0)])]);
    let mut all: HashSet<State> = three.init_states().into_iter().collect();
    let mut rest: Vec<State> = all.iter().cloned().collect();
    while let Some(state) = rest.pop() {
        let new = three.next_states(&state).into_iter().filter(|next| all.insert(next.clone()));
        rest.extend(new);
    }
    let represented: HashSet<State> = all.iter().map(State::representative).collect();
    assert!(represented.iter().all(|state| state.representative() == *state));
    let checker = three.checker().symmetry_fn(State::representative).spawn_dfs().join();
    assert_eq!(checker.unique_state_count(), represented.len());
    assert!(represented.len() * 4 < all.len(), "{} for {}", represented.len(), all.len());
}
