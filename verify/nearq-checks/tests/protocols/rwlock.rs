//! The protocol of the reader-writer lock: everything that two to four threads can do to it, one step at a time; and that the checks find
//! what is wrong with it, by mistakes that are planted on purpose.

use nearq_checks::cycles;
use nearq_checks::rwlock::What::{Lend, Read, Upgrade, Write};
use nearq_checks::rwlock::{Mutant, Op, Scenario, Script};
use stateright::{Checker, HasDiscoveries, Model};

use crate::properties;

const BY_CACHE: &str = "one enters by cache";
const WAITS_BY_CACHE: &str = "one waits by cache";
const LATE: &str = "one comes late";
const ENDED: &str = "the row is taken away";
const GAVE_UP: &str = "a writer gives up";
const READER_SLEPT: &str = "a reader sleeps";
const WRITER_SLEPT: &str = "a writer sleeps";

const ALONE: &str = "a writer is alone";
const GOES_ON: &str = "a thread can go on";
const AS_BEFORE: &str = "all is as before at the end";
const ONE_WRITER: &str = "a reader waits for one writer";

/// A thread that leaves where it has entered.
fn at(domain: u8, ops: &[Op]) -> Script {
    Script { domain, leaves: domain, ops: ops.to_vec() }
}

fn scenario(scripts: &[Script]) -> Scenario {
    Scenario { scripts: scripts.to_vec(), lent: false, mutant: None }
}

/// The first lock has the row from the start.
fn lent(scripts: &[Script]) -> Scenario {
    Scenario { lent: true, ..scenario(scripts) }
}

/// Visits all states: each property holds, what `reaches` names does happen, and there is no circle: so every path ends with every thread
/// served.
fn check(scenario: &Scenario, reaches: &[&str]) {
    let checker = scenario.clone().checker().threads(2);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    let states = checker.unique_state_count();
    properties::hold(scenario, &checker, reaches);
    eprintln!("{states} states");
    assert_eq!(cycles::find(scenario, Clone::clone), Ok(states));
}

/// Checks that `expected` does not hold with the mutant, and that everything holds without it.
fn is_found(mutant: Mutant, expected: &str, scenario: Scenario) {
    check(&scenario, &[]);
    let scenario = Scenario { mutant: Some(mutant), ..scenario };
    let checker = scenario.clone().checker().threads(2);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found = properties::not_held(&scenario, &checker);
    assert!(found.contains(&expected), "{mutant:?}: {found:?}");
}

fn readers_and_writers_in_the_word() -> Scenario {
    scenario(&[
        at(0, &[Read.of(0), Read.until(0)]),
        at(0, &[Read.of(0)]),
        at(0, &[Write.of(0), Write.of(0)]),
    ])
}

#[test]
fn the_word() {
    check(&readers_and_writers_in_the_word(), &[READER_SLEPT, WRITER_SLEPT]);
    let writers = [at(0, &[Write.of(0)]), at(0, &[Write.of(0)])];
    let rest = [at(0, &[Read.of(0)]), at(0, &[Read.until(0)])];
    check(&scenario(&[writers, rest].concat()), &[READER_SLEPT, WRITER_SLEPT]);
}

fn a_writer_gives_up() -> Scenario {
    scenario(&[at(0, &[Read.of(0), Read.of(0)]), at(0, &[Write.of(0), Write.until(0)])])
}

#[test]
fn giving_up_in_the_word() {
    check(&a_writer_gives_up(), &[GAVE_UP, READER_SLEPT, WRITER_SLEPT]);
    let more =
        [at(0, &[Write.until(0)]), at(0, &[Read.until(0), Read.of(0)]), at(0, &[Write.of(0)])];
    check(&scenario(&more), &[GAVE_UP, READER_SLEPT, WRITER_SLEPT]);
}

#[test]
fn upgrading() {
    let scripts = [at(0, &[Upgrade.of(0)]), at(0, &[Upgrade.until(0)]), at(0, &[Read.of(0)])];
    check(&scenario(&scripts), &[GAVE_UP, READER_SLEPT, WRITER_SLEPT]);
    check(&lent(&scripts), &[BY_CACHE, WAITS_BY_CACHE, ENDED, GAVE_UP, WRITER_SLEPT]);
}

fn by_cache() -> Scenario {
    let moves = Script { domain: 0, leaves: 1, ops: vec![Read.of(0)] };
    lent(&[moves, at(1, &[Read.until(0)]), at(0, &[Write.of(0)])])
}

fn by_cache_again() -> Scenario {
    lent(&[at(0, &[Read.of(0), Read.of(0)]), at(1, &[Write.of(0), Write.of(0)])])
}

#[test]
fn readers_by_cache() {
    let reaches = [BY_CACHE, WAITS_BY_CACHE, LATE, ENDED, READER_SLEPT, WRITER_SLEPT];
    check(&by_cache(), &reaches);
    check(&by_cache_again(), &reaches);
}

fn lending() -> Scenario {
    scenario(&[at(0, &[Read.of(0)]), at(1, &[Lend.of(0)]), at(0, &[Write.of(0)])])
}

/// One of the readers that are counted in the word leaves there, and the other one in the row.
fn lending_beside_two_readers() -> Scenario {
    let reader = || at(0, &[Read.of(0)]);
    scenario(&[reader(), reader(), at(1, &[Lend.of(0)]), at(0, &[Write.of(0)])])
}

#[test]
fn lending_and_taking_away() {
    check(&lending(), &[BY_CACHE, ENDED, READER_SLEPT, WRITER_SLEPT]);
    let again = [at(0, &[Read.of(0), Read.of(0)]), at(1, &[Lend.of(0), Write.of(0)])];
    check(&scenario(&again), &[BY_CACHE, ENDED, READER_SLEPT, WRITER_SLEPT]);
}

fn giving_up_by_cache() -> Scenario {
    lent(&[at(0, &[Read.of(0)]), at(1, &[Read.until(0)]), at(0, &[Write.until(0), Write.of(0)])])
}

#[test]
fn giving_up() {
    let reaches = [BY_CACHE, WAITS_BY_CACHE, ENDED, GAVE_UP, READER_SLEPT, WRITER_SLEPT];
    check(&giving_up_by_cache(), &reaches);
}

/// The row goes to the second lock while a reader of the first one may still add to it.
fn late() -> Scenario {
    lent(&[at(0, &[Read.of(0)]), at(1, &[Write.of(0), Lend.of(1), Write.of(1)])])
}

#[test]
fn a_late_reader() {
    check(&late(), &[BY_CACHE, LATE, ENDED, WRITER_SLEPT]);
    let more = lent(&[
        at(0, &[Read.of(0)]),
        at(1, &[Write.of(0), Lend.of(1), Write.of(1)]),
        at(1, &[Read.of(1)]),
    ]);
    check(&more, &[BY_CACHE, LATE, ENDED, WRITER_SLEPT]);
}

/// A late reader of one domain, and a reader that is in at the other one.
fn two_late() -> Scenario {
    lent(&[at(0, &[Read.of(0)]), at(1, &[Read.of(0)]), at(1, &[Write.of(0), Write.of(0)])])
}

#[test]
fn mistakes_in_the_word_are_found() {
    is_found(Mutant::GiveUpChangesPhase, AS_BEFORE, a_writer_gives_up());
    is_found(Mutant::LetsNobodyIn, ALONE, readers_and_writers_in_the_word());
    is_found(Mutant::PhaseStays, ONE_WRITER, readers_and_writers_in_the_word());
}

#[test]
fn mistakes_by_cache_are_found() {
    is_found(Mutant::NoSecondLook, ALONE, by_cache());
    is_found(Mutant::NoThirdLook, GOES_ON, by_cache());
    // Readers that wait start over, and may wait for a second writer.
    is_found(Mutant::RowGoesUnannounced, ONE_WRITER, by_cache_again());
    is_found(Mutant::LastInWordOnly, GOES_ON, lending_beside_two_readers());
    is_found(Mutant::LenderIsSilent, GOES_ON, lending());
    is_found(Mutant::ActiveStays, AS_BEFORE, lending());
    is_found(Mutant::RowNotCompared, AS_BEFORE, giving_up_by_cache());
    is_found(Mutant::TakesBackElsewhere, ALONE, two_late());
    is_found(Mutant::LateIsSilent, GOES_ON, late());
}
