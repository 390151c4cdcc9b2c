//! Tests of `published`: what was published about locks, and how far a run is from it.

use super::super::load::scenario;
use super::*;
use nearq_report::Collector;

#[test]
fn figures_are_found_by_machine_load_writers_and_row() {
    let short = |machine, writers, row| gain(machine, Load::Short, writers, row);
    // As printed in the document, for both the lock that was compared and the mutex that stands for it.
    for (writers, disabled, enabled) in [
        (1, 1.35, 1.48),
        (2, 2.96, 0.51),
        (4, 1.53, -10.37),
        (8, 11.66, -4.69),
        (16, 23.27, 72.39),
        (32, 8.82, 72.52),
        (48, 1.70, 80.35),
        (64, 5.38, 90.83),
    ] {
        assert_eq!(short(EPYC_7551, writers, KERNEL_OSQ_2), Some(disabled));
        assert_eq!(short(EPYC_7551, writers, KERNEL_OSQ_DYNAMIC), Some(enabled));
        assert_eq!(short(EPYC_7551, writers, AUTO), Some(enabled));
    }
    assert_eq!((short(EPYC_7551, 3, AUTO), short(EPYC_7551, 64, CNA)), (None, None));
    assert_eq!(short(KH_40000, 32, KERNEL_OSQ_DYNAMIC), Some(141.87));
    assert_eq!((short(KH_40000, 64, AUTO), short(KH_40000, 32, HQ_CACHES)), (None, None));
    assert_eq!(short(EPYC_9654, 384, HQ_CACHES), Some(186.0));
    assert_eq!((short(EPYC_9654, 384, HQ_SOCKETS), short(EPYC_9654, 64, CNA)), (Some(-1.0), None));
    let dwom = |machine, writers| gain(machine, Load::Dwom, writers, AUTO);
    assert_eq!((dwom(EPYC_7551, 64), dwom(KH_40000, 24)), (Some(210.41), Some(45.93)));
    assert_eq!(gain(EPYC_7551, Load::Long, 64, AUTO), None);
}

#[test]
fn an_error_factor_is_the_larger_ratio_over_the_smaller_one() {
    let mut collector = Collector::default();
    let rates = [
        (KERNEL_OSQ, 1, 100.0),
        // Published: 43 of 21 million.
        (KERNEL_OSQ, 4, 100.0),
        (KERNEL_OSQ, 8, 208.0),
        (KERNEL_OSQ_DYNAMIC, 8, 500.0),
    ];
    for (row, writers, rate) in rates {
        let scenario = scenario(Load::Short, writers);
        collector.add(&scenario, row, metric::ACQUISITIONS_PER_SECOND, rate);
    }
    let rows = collector.rows();
    let found = compare(&rows, EPYC_7551, Load::Short, &[1, 4, 8], &COLUMNS);
    let short: Vec<_> = found
        .iter()
        .map(|of| (of.row, of.writers, of.over_writers, of.error_factor, of.reproduced))
        .map(|(row, writers, over, factor, is)| {
            (row, writers, over, (factor * 100.0).round() / 100.0, is)
        })
        .collect();
    let expected = [
        (KERNEL_OSQ, 4, 1, 2.07, false),
        (KERNEL_OSQ, 8, 1, 1.0, true),
        (KERNEL_OSQ_DYNAMIC, 8, 1, 2.52, false),
        // 500 of 208 is a gain of 140 %; -4.7 % was published.
        (KERNEL_OSQ_DYNAMIC, 8, 8, 29.01, false),
    ];
    assert_eq!(short, expected, "{found:?}");
    assert_eq!(compare(&rows, KH_40000, Load::Short, &[4, 8], &COLUMNS), []);
}

#[test]
fn the_error_factor_of_a_gain_is_that_of_the_gains() {
    let near = |one: f64, other: f64| (error_factor::of_gains(one, other) * 100.0).round() / 100.0;
    // As much as published, half of it, twice as much.
    assert_eq!([near(0.72, 0.72), near(0.36, 0.72), near(1.44, 0.72)], [1.0, 2.0, 2.0]);
    // No gain, and a loss, where a gain was published; the order does not matter.
    assert_eq!([near(0.0, 0.72), near(0.72, 0.0), near(-0.05, 0.72)], [14.4, 14.4, 15.4]);
    // Noise on both sides of 0.
    assert_eq!([near(0.02, -0.02), near(0.0, 0.049), near(0.0, 0.0)], [1.0; 3]);
    assert_eq!([near(0.05, -0.05), near(-0.1, -0.1)], [2.0, 1.0]);
}
