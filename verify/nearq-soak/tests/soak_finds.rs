//! Checks that the fault soak finds mistakes: with each planted variant of the runtime (`.ci/variants`) it must fail, and soon.
//!
//! `cargo xtask variants` runs it, in the copy of the checkout in which the variants are planted.

use nearq_report::Progress;
use nearq_soak::{ManyOptions, SeedOptions, run_many, run_seed};

#[global_allocator]
static ALLOCATOR: nearq_sim::Switched = nearq_sim::Switched;

/// What is reported about a program that hangs: if one of its threads keeps running on a timer, the hang is not a deadlock.
const HANGS: [&str; 3] = ["what was queued has not ended", "deadlock", "did not end within"];

/// The maximum number of seeds that a variant may take. Most fail within a few. A lost wake-up shows in one seed of some 300 (10 of the
/// first 3,203): only the last item that a pool gets can be lost for good, because the next one wakes a worker. So this is thirty times as
/// many, and the test ends with the first seed that fails.
const MOST_SEEDS: u64 = 10_000;

/// The variants that a test here looks for.
const NAMED: [&str; 7] = [
    "lost-wake-up",
    "double-run",
    "node_active-leak",
    "cancel-leak",
    "early-timer",
    "strict-leak",
    "join-asleep",
];

/// Every planted variant is tested for. A variant that takes several files has a block for each, named after the first one; `none` says
/// which variant a program is.
#[test]
fn every_variant_is_looked_for() {
    let list = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.ci/variants");
    let list = std::fs::read_to_string(list).expect("the copy has it");
    let names = list.lines().filter_map(|line| line.strip_prefix("== ")?.split(':').next());
    let unknown: Vec<&str> = names
        .filter(|name| *name != "none" && !NAMED.iter().any(|known| name.starts_with(known)))
        .collect();
    assert!(unknown.is_empty(), "no test looks for {unknown:?}");
}

/// A variant fails within [`MOST_SEEDS`], with a violation that contains one of the texts, and the seed that showed it fails again.
fn is_found(variant: &str, texts: &[&str]) {
    assert!(NAMED.contains(&variant), "{variant} is not in the list above");
    let options = ManyOptions {
        seeds: MOST_SEEDS,
        from: 0,
        until_failure: true,
        variant: Some(variant.to_owned()),
    };
    let summary = run_many(&options, &Progress::hidden());
    let verdict = summary.failures.first();
    let verdict = verdict.unwrap_or_else(|| panic!("{variant} was not found: {summary}"));
    println!("{variant}: found after {} seeds, {verdict}", summary.seeds);
    let named = verdict.violations.iter().any(|line| texts.iter().any(|text| line.contains(text)));
    assert!(named, "{variant} was found by something else: {verdict}");
    let again = SeedOptions { variant: options.variant, ..SeedOptions::default() };
    assert_eq!(run_seed(verdict.seed(), &again).violations, verdict.violations, "it fails again");
    let whole = run_seed(verdict.seed(), &SeedOptions::default());
    assert!(whole.passed(), "the runtime as it is keeps its promises there: {whole}");
}

#[test]
fn a_lost_wake_up() {
    is_found("lost-wake-up", &HANGS);
}

#[test]
fn two_executions_at_once() {
    // A thread that waits for the item sees that it counts as ended before it has.
    is_found(
        "double-run",
        &[
            "two executions of it run at once",
            "has not ended what was on its way then",
            "it is not idle (busy: false",
        ],
    );
}

#[test]
fn an_item_that_is_held_back_for_ever() {
    is_found("node_active-leak", &HANGS);
}

#[test]
fn a_cancel_that_keeps_its_place() {
    is_found("cancel-leak", &[&["nothing runs, and it says"], &HANGS[..]].concat());
}

#[test]
fn a_timer_that_fires_early() {
    is_found("early-timer", &["before its time"]);
}

#[test]
fn a_strict_item_in_another_pod() {
    is_found(
        "strict-leak",
        &[
            "a strict item for CPU",
            "a per-CPU item belongs to",
            "the queue's CPUs were",
            "run leaves of one tree",
        ],
    );
}

#[test]
fn a_join_that_is_not_woken() {
    is_found("join-asleep", &HANGS);
}
