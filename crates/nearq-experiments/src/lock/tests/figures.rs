//! Tests of `goals`: from samples to numbers.

use super::super::contestants::{NUMA, PLAIN};
use super::super::load::{Tally, Waits};
use super::*;
use nearq_sim::Sim;
use std::time::Duration;

fn sample(acquisitions: u64, wait: u64) -> Sample {
    let mut waits = Waits::new::<Sim>();
    waits.note::<Sim>(wait);
    let tally = Tally { entered: acquisitions, counted: acquisitions, waits };
    Sample::of::<Sim>(&[tally.clone(), tally], Duration::from_secs(2))
}

#[test]
fn ratios_are_those_within_a_run() {
    let mut collector = Collector::default();
    // What the machine does to all contestants in a run cancels out: it was half as fast in the
    // second one.
    for slow in [1, 2] {
        let of = |rate: u64, wait: u64| sample(rate / slow, wait * slow);
        let samples = [
            (PLAIN, of(1000, 40)),
            (AUTO, of(1500, 20)),
            (STD, of(1200, 100)),
            (PARKING_LOT, of(600, 80)),
            (PTHREAD, of(3000, 10)),
        ];
        collect(&mut collector, Load::Short, 2, &samples);
    }
    let rows = collector.rows();
    let found = |row: &str, metric| of(&rows, Load::Short, 2, row, metric);
    // The same in both runs, except for how the quotients are rounded.
    let same = |summary: Option<Summary>, wanted: f64| {
        let near = |found: f64| (found - wanted).abs() < 1e-9;
        summary.is_some_and(|of| of.runs == 2 && near(of.min) && near(of.max))
    };
    let ratio = |other, metric| found(&beside(other), metric);
    assert!(same(ratio(STD, metric::ACQUISITIONS_RATIO), 1.25));
    assert!(same(ratio(PARKING_LOT, metric::ACQUISITIONS_RATIO), 2.5));
    assert!(same(ratio(PTHREAD, metric::ACQUISITIONS_RATIO), 0.5));
    assert!(same(ratio(STD, metric::WAIT_RATIO_MAX), 0.2));
    assert!(same(ratio(PARKING_LOT, metric::WAIT_RATIO_P9999), 0.25));
    assert!(same(found(AUTO, metric::GAIN), 50.0));
    assert!(same(found(AUTO, metric::FAIRNESS), 0.5));
    assert_eq!(
        (ratio(PTHREAD_ADAPTIVE, metric::ACQUISITIONS_RATIO), found(NUMA, metric::GAIN)),
        (None, None),
        "they were left out"
    );
    assert_eq!(found(STD, metric::ACQUISITIONS_PER_SECOND).unwrap().max, 1200.0);
}

#[test]
fn variation_is_the_deviation_in_percent_of_the_mean() {
    let summary = Summary::of(&[9.0, 10.0, 11.0]).unwrap();
    assert!((variation(&summary) - 10.0).abs() < 1e-9);
    assert_eq!(variation(&Summary::of(&[0.0]).unwrap()), 0.0);
}
