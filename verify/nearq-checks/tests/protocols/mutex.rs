//! The protocol of the mutex: everything that two to four threads can do to it, one step at a time.
//!
//! `cargo test -p nearq-checks -- --nocapture` says how many states were visited. Each part of the protocol has a scenario as small
//! as one that still reaches all of that part. Larger scenarios are ignored: `cargo test --release -p nearq-checks -- --ignored
//! --nocapture` checks those.

use nearq_checks::cycles;
use nearq_checks::mutex::Mode::{Auto, Numa, Off, Plain};
use nearq_checks::mutex::{Mode, Op, Scenario, Script, State};
use stateright::{Checker, HasDiscoveries, Model};

use crate::properties;

/// What can happen in scenarios: the names of the properties.
const BOUND: &str = "a slot is bound";
const UNBOUND: &str = "a slot is unbound";
const WITHOUT_QUEUE: &str = "one waits without a queue";
const ASLEEP: &str = "one with the turn sleeps";
const ANEW: &str = "one begins anew";
const STANDS_UP: &str = "one stands up";
const ACROSS: &str = "the turn goes across";
const NOT_LINKED: &str = "one leaves before the next has linked";
const LEFT: &str = "one that has left is told";
const LATE: &str = "one comes late to a slot";
const TRIED: &str = "one tries a mutex that is kept for nobody";
const IGNORED: &str = "RESERVED is ignored";
const RESERVED: &str = "one with the turn keeps the mutex for itself";

fn script(threads: u8, domain: u8, mode: Mode, ops: &[Op]) -> Script {
    Script { threads, domain, mode, ops: ops.to_vec() }
}

/// Puts the first mutex into a slot at the start.
fn bound(scripts: Vec<Script>) -> Scenario {
    Scenario { bound: true, ..Scenario::new(scripts) }
}

/// Visits all states: each property holds, and what `reaches` names does happen, so that the check is not empty.
fn check(scenario: &Scenario, reaches: &[&str]) -> usize {
    let checker = scenario
        .clone()
        .checker()
        .threads(2)
        .symmetry_fn(State::representative)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_dfs()
        .join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    properties::hold(scenario, &checker, reaches);
    eprintln!("{states} states, up to {depth} steps");
    states
}

/// Likewise, and checks that there is no circle: so every path ends with every thread served.
fn check_all(scenario: &Scenario, reaches: &[&str]) {
    let states = check(scenario, reaches);
    // Both have visited equally many states: neither left one out.
    assert_eq!(cycles::find(scenario, State::representative), Ok(states));
}

#[test]
fn the_plain_queue() {
    let once = Scenario::new(vec![script(3, 0, Plain, &[Op::lock(0)])]);
    check_all(&once, &[ASLEEP, NOT_LINKED, RESERVED]);
    let again = [script(1, 0, Plain, &[Op::lock(0), Op::until(0)])];
    let rest = [script(2, 0, Plain, &[Op::until(0)])];
    let again = Scenario::new([again, rest].concat());
    check_all(&again, &[ASLEEP, NOT_LINKED, LEFT, RESERVED]);
}

#[test]
fn giving_up_in_the_plain_queue() {
    let mut startled = Scenario::new(vec![script(3, 0, Plain, &[Op::until(0)])]);
    startled.spurious = 1;
    check_all(&startled, &[ASLEEP, NOT_LINKED, LEFT, RESERVED]);
}

#[test]
fn fair_unlocks_and_attempts() {
    let fair = script(1, 0, Plain, &[Op::fair(0), Op::try_lock(0)]);
    let until = |threads| script(threads, 0, Plain, &[Op::until(0)]);
    let attempt = script(1, 0, Plain, &[Op::try_lock(0)]);
    let reaches = [ASLEEP, NOT_LINKED, LEFT, RESERVED];
    check_all(&Scenario::new(vec![fair.clone(), until(1), attempt]), &reaches);
    check_all(&Scenario::new(vec![fair, until(2)]), &reaches);
}

/// A thread that has no record, or does not want one, is not stopped by `RESERVED`: it would never have the turn, and would wait for ever
/// for a mutex that is reserved for no thread.
#[test]
fn waiting_without_a_queue() {
    let off = Scenario::new(vec![script(4, 0, Off, &[Op::until(0)])]);
    check_all(&off, &[WITHOUT_QUEUE]);
    for (without, with) in [(1, 2), (2, 1)] {
        let scripts =
            vec![script(without, 0, Off, &[Op::until(0)]), script(with, 0, Plain, &[Op::until(0)])];
        let both = Scenario { ignores: true, ..Scenario::new(scripts) };
        check_all(&both, &[WITHOUT_QUEUE, ASLEEP, NOT_LINKED, LEFT, IGNORED]);
    }
    let scripts = vec![script(3, 0, Plain, &[Op::until(0)])];
    let few = Scenario { ignores: true, records: 1, ..Scenario::new(scripts) };
    check_all(&few, &[WITHOUT_QUEUE, ASLEEP, IGNORED]);
}

#[test]
fn the_change_up() {
    let back = [BOUND, UNBOUND, ASLEEP, ANEW, STANDS_UP, NOT_LINKED, LATE, RESERVED];
    let (once, twice) = ([Op::lock(0)], [Op::lock(0), Op::lock(0)]);
    let two = Scenario::new(vec![script(1, 0, Auto, &twice), script(1, 1, Auto, &twice)]);
    check_all(&two, &back);
    let three = Scenario::new(vec![script(2, 0, Auto, &once), script(1, 1, Auto, &twice)]);
    check(&three, &back);
    let numa = Scenario::new(vec![script(2, 0, Numa, &once), script(1, 1, Numa, &once)]);
    check_all(&numa, &[BOUND, ASLEEP, NOT_LINKED, RESERVED]);
}

#[test]
fn queues_by_domain() {
    let reaches = [UNBOUND, ASLEEP, ANEW, STANDS_UP, NOT_LINKED, LATE, RESERVED];
    let one = [Op::lock(0)];
    check_all(&bound(vec![script(2, 0, Auto, &one), script(1, 1, Auto, &one)]), &reaches);
    let (first, second) = ([Op::until(0), Op::lock(0)], [Op::lock(0), Op::until(0)]);
    let twice = bound(vec![script(1, 0, Auto, &first), script(1, 1, Auto, &second)]);
    check_all(&twice, &[BOUND, UNBOUND, ANEW, STANDS_UP, LEFT, LATE, RESERVED]);
}

/// Two in one domain and one in the other, behind a holder.
#[test]
fn the_turn_goes_across() {
    let (once, twice) = ([Op::lock(0)], [Op::lock(0), Op::lock(0)]);
    let scenario = bound(vec![script(2, 0, Numa, &once), script(1, 1, Numa, &twice)]);
    check_all(&scenario, &[ASLEEP, STANDS_UP, ACROSS, NOT_LINKED, RESERVED]);
}

#[test]
fn giving_up_in_queues_by_domain() {
    let reaches = [UNBOUND, ASLEEP, ANEW, STANDS_UP, NOT_LINKED, LEFT, LATE, RESERVED];
    let scripts = vec![script(2, 0, Auto, &[Op::until(0)]), script(1, 1, Auto, &[Op::lock(0)])];
    check_all(&bound(scripts), &reaches);
    let scripts = vec![script(1, 0, Auto, &[Op::until(0)]), script(1, 1, Auto, &[Op::lock(0)])];
    let startled = Scenario { spurious: 1, ..bound(scripts) };
    check_all(&startled, &[UNBOUND, ASLEEP, ANEW, STANDS_UP, LEFT, LATE, RESERVED]);
}

/// A `try_lock` that finds the mutex reserved for no thread takes the slot's turn first: the word does not say which thread has it.
#[test]
fn fair_unlocks_and_attempts_with_a_slot() {
    let scripts = vec![
        script(1, 0, Auto, &[Op::fair(0)]),
        script(1, 0, Auto, &[Op::lock(0)]),
        script(1, 1, Auto, &[Op::until(0), Op::try_lock(0)]),
    ];
    let reaches = [UNBOUND, ANEW, STANDS_UP, NOT_LINKED, LEFT, LATE, TRIED, RESERVED];
    check(&bound(scripts), &reaches);
}

/// While some threads still wait by the earlier settings.
#[test]
fn other_settings_while_others_wait() {
    let scripts =
        [Auto, Numa, Plain].map(|mode| script(1, u8::from(mode == Plain), mode, &[Op::until(0)]));
    let reaches = [BOUND, UNBOUND, ASLEEP, ANEW, STANDS_UP, NOT_LINKED, LEFT, LATE, RESERVED];
    check_all(&bound(scripts.to_vec()), &reaches);
}

/// A slot goes from one mutex to another, while one thread waits for the first and one for the second; the second is dropped.
#[test]
fn a_slot_that_is_used_again() {
    let scripts = vec![
        script(1, 0, Auto, &[Op::lock(0), Op::bind(1), Op::Drop(1)]),
        script(1, 1, Auto, &[Op::lock(0)]),
        script(1, 1, Auto, &[Op::until(1)]),
    ];
    let reaches = [BOUND, UNBOUND, ASLEEP, ANEW, STANDS_UP, NOT_LINKED, LEFT, LATE, RESERVED];
    check_all(&bound(scripts), &reaches);
}

#[test]
fn two_mutexes_with_two_slots() {
    let scripts = vec![
        script(1, 0, Auto, &[Op::lock(0), Op::bind(1)]),
        script(1, 1, Auto, &[Op::lock(0)]),
        script(1, 0, Auto, &[Op::lock(1)]),
    ];
    let reaches = [BOUND, UNBOUND, ASLEEP, ANEW, STANDS_UP, NOT_LINKED, LATE, RESERVED];
    check_all(&Scenario { slots: 2, ..bound(scripts) }, &reaches);
}

#[test]
fn a_mutex_that_is_dropped_after_others_gave_up() {
    let scripts = vec![
        script(1, 0, Auto, &[Op::bind(0), Op::until(0), Op::Drop(0)]),
        script(1, 1, Auto, &[Op::until(0), Op::until(0)]),
    ];
    let reaches = [BOUND, UNBOUND, ASLEEP, ANEW, STANDS_UP, NOT_LINKED, LEFT, LATE, RESERVED];
    check_all(&Scenario::new(scripts), &reaches);
}

// ---- larger ones --------------------------------------------------------------------------------------------

#[test]
#[ignore = "long: 163,702 states"]
fn four_and_three_twice_in_the_plain_queue() {
    let once = Scenario::new(vec![script(4, 0, Plain, &[Op::lock(0)])]);
    check_all(&once, &[ASLEEP, NOT_LINKED, RESERVED]);
    let again = Scenario::new(vec![script(3, 0, Plain, &[Op::lock(0), Op::until(0)])]);
    check_all(&again, &[ASLEEP, NOT_LINKED, LEFT, RESERVED]);
}

#[test]
#[ignore = "long: 90,706 states"]
fn four_that_give_up_in_the_plain_queue() {
    let four = Scenario::new(vec![script(4, 0, Plain, &[Op::until(0)])]);
    check_all(&four, &[ASLEEP, NOT_LINKED, LEFT, RESERVED]);
}

#[test]
#[ignore = "long: 284,618 states"]
fn four_with_fair_unlocks_and_attempts() {
    let fair = script(1, 0, Plain, &[Op::fair(0), Op::try_lock(0)]);
    let rest = [script(2, 0, Plain, &[Op::until(0)]), script(1, 0, Plain, &[Op::try_lock(0)])];
    check(&Scenario::new([&[fair], &rest[..]].concat()), &[NOT_LINKED, LEFT, RESERVED]);
}

#[test]
#[ignore = "long: 318,033 states"]
fn fair_unlocks_and_attempts_while_two_give_up_with_a_slot() {
    let scripts = vec![
        script(1, 0, Auto, &[Op::fair(0)]),
        script(1, 0, Auto, &[Op::until(0)]),
        script(1, 1, Auto, &[Op::until(0), Op::try_lock(0)]),
    ];
    let reaches = [UNBOUND, ANEW, STANDS_UP, NOT_LINKED, LEFT, LATE, TRIED, RESERVED];
    check(&bound(scripts), &reaches);
}

#[test]
#[ignore = "long: 459,020 states"]
fn four_of_which_some_wait_without_a_queue() {
    let scripts = vec![script(2, 0, Off, &[Op::until(0)]), script(2, 0, Plain, &[Op::until(0)])];
    let both = Scenario { ignores: true, ..Scenario::new(scripts) };
    check(&both, &[WITHOUT_QUEUE, ASLEEP, NOT_LINKED, LEFT, IGNORED]);
    let scripts = vec![script(4, 0, Plain, &[Op::until(0)])];
    let few = Scenario { ignores: true, records: 2, ..Scenario::new(scripts) };
    check_all(&few, &[WITHOUT_QUEUE, ASLEEP, NOT_LINKED, LEFT, IGNORED]);
}

#[test]
#[ignore = "long: 1,004,590 states"]
fn the_change_up_by_two_and_two() {
    let back = [BOUND, UNBOUND, ASLEEP, ANEW, STANDS_UP, NOT_LINKED, LATE, RESERVED];
    let (once, twice) = ([Op::lock(0)], [Op::lock(0), Op::lock(0)]);
    let auto = Scenario::new(vec![script(2, 0, Auto, &once), script(2, 1, Auto, &once)]);
    check_all(&auto, &back);
    let numa = Scenario::new(vec![script(2, 0, Numa, &once), script(2, 1, Numa, &once)]);
    check(&numa, &[BOUND, ASLEEP, STANDS_UP, NOT_LINKED, RESERVED]);
    let again = Scenario::new(vec![script(2, 0, Auto, &twice), script(1, 1, Auto, &once)]);
    check(&again, &back);
}

#[test]
#[ignore = "long: 297,805 states"]
fn three_that_are_woken_for_no_reason_in_queues_by_domain() {
    let reaches = [UNBOUND, ASLEEP, ANEW, STANDS_UP, NOT_LINKED, LEFT, LATE, RESERVED];
    let scripts = vec![script(2, 0, Auto, &[Op::until(0)]), script(1, 1, Auto, &[Op::lock(0)])];
    check(&Scenario { spurious: 1, ..bound(scripts) }, &reaches);
}

#[test]
#[ignore = "long: 2,964,362 states"]
fn two_and_two_in_queues_by_domain() {
    let ops = [Op::lock(0)];
    let scenario = bound(vec![script(2, 0, Auto, &ops), script(2, 1, Auto, &ops)]);
    check_all(&scenario, &[BOUND, UNBOUND, ANEW, STANDS_UP, ACROSS, NOT_LINKED, LATE, RESERVED]);
}

#[test]
#[ignore = "long: 2,144,423 states"]
fn three_and_one_in_queues_by_domain() {
    let ops = [Op::lock(0)];
    let scenario = bound(vec![script(3, 0, Auto, &ops), script(1, 1, Auto, &ops)]);
    check_all(&scenario, &[BOUND, UNBOUND, ANEW, STANDS_UP, ACROSS, NOT_LINKED, LATE, RESERVED]);
}

#[test]
#[ignore = "long: 2,144,745 states"]
fn few_records_in_queues_by_domain() {
    let ops = [Op::until(0)];
    let scripts = vec![script(3, 0, Auto, &ops), script(1, 1, Auto, &ops)];
    let scenario = Scenario { ignores: true, records: 2, ..bound(scripts) };
    check_all(&scenario, &[BOUND, UNBOUND, WITHOUT_QUEUE, ANEW, STANDS_UP, LEFT, LATE, IGNORED]);
}

#[test]
#[ignore = "long: 1,444,535 states"]
fn up_and_down_and_up() {
    let first = script(2, 0, Auto, &[Op::lock(0), Op::until(0)]);
    let second = script(1, 1, Auto, &[Op::lock(0), Op::lock(0)]);
    let reaches = [BOUND, UNBOUND, ANEW, STANDS_UP, ACROSS, NOT_LINKED, LEFT, LATE];
    check_all(&Scenario::new(vec![first, second]), &reaches);
}
