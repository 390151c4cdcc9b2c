//! From samples to numbers: what a run of all contestants says of each, and of one beside the other.

use super::contestant::{AUTO, NUMA, PARKING_LOT, PLAIN, PTHREAD, PTHREAD_ADAPTIVE, STD};
use super::load::{Load, scenario};
use super::published;
use super::sample::Sample;
use nearq_report::metric::{self, Metric};
use nearq_report::{Collector, Row, Summary, find};

/// A metric, and how it is read off a sample.
type Reading<T> = (Metric, fn(&Sample) -> T);

/// What is read off a sample.
const OF_A_SAMPLE: [Reading<Option<f64>>; 6] = [
    (metric::ACQUISITIONS_PER_SECOND, |sample| Some(sample.per_second())),
    (metric::FAIRNESS, Sample::fairness),
    (metric::WAIT_P50, |sample| Some(sample.waits.quantile_us(0.5))),
    (metric::WAIT_P99, |sample| Some(sample.waits.quantile_us(0.99))),
    (metric::WAIT_P9999, |sample| Some(sample.waits.quantile_us(0.9999))),
    (metric::WAIT_MAX, |sample| Some(sample.waits.longest_us())),
];

/// Adds one run of a scenario: the figures of each, and the ratios within the run.
pub(super) fn collect(
    collector: &mut Collector,
    load: Load,
    writers: usize,
    samples: &[(&'static str, Sample)],
) {
    let scenario = scenario(load, writers);
    for (row, sample) in samples {
        for (metric, read) in OF_A_SAMPLE {
            if let Some(value) = read(sample) {
                collector.add(&scenario, row, metric, value);
            }
        }
    }
    let sample = |row| samples.iter().find(|(of, _)| *of == row).map(|(_, sample)| sample);
    let mut add = |row: &str, metric, value: Option<f64>| {
        // A run in which the other one had nothing has no ratio.
        if let Some(value) = value.filter(|value| value.is_finite()) {
            collector.add(&scenario, row, metric, value);
        }
    };
    let rate = |row| sample(row).map(Sample::per_second);
    for row in [AUTO, NUMA] {
        let gain = rate(row).zip(rate(PLAIN)).map(|(of, plain)| (of / plain - 1.0) * 100.0);
        add(row, metric::GAIN, gain);
    }
    let ratios: [Reading<f64>; 3] = [
        (metric::ACQUISITIONS_RATIO, Sample::per_second),
        (metric::WAIT_RATIO_P9999, |sample| sample.waits.quantile_us(0.9999)),
        (metric::WAIT_RATIO_MAX, |sample| sample.waits.longest_us()),
    ];
    for other in [STD, PARKING_LOT, PTHREAD, PTHREAD_ADAPTIVE] {
        let Some((ours, theirs)) = sample(AUTO).zip(sample(other)) else { continue };
        for (metric, read) in ratios {
            add(&beside(other), metric, Some(read(ours) / read(theirs)));
        }
    }
}

/// The row of the ratios of ours, as it comes, to another one.
pub(super) fn beside(other: &str) -> String {
    format!("{AUTO} / {other}")
}

/// Puts the document's gains beside ours.
pub(super) fn publish(collector: &mut Collector, scenarios: impl Iterator<Item = (Load, usize)>) {
    for (load, writers) in scenarios {
        if let Some(gain) = published::gain(load, writers) {
            collector.publish(&scenario(load, writers), AUTO, metric::GAIN, gain);
        }
    }
}

/// The coefficient of variation over the runs, in percent.
pub(super) fn variation(summary: &Summary) -> f64 {
    if summary.mean == 0.0 { 0.0 } else { summary.deviation / summary.mean * 100.0 }
}

/// The runs of a number.
pub(super) fn of(
    rows: &[Row],
    load: Load,
    writers: usize,
    row: &str,
    metric: Metric,
) -> Option<Summary> {
    find(rows, &scenario(load, writers), row, metric).map(|row| row.summary)
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Tally, Waits};
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
        // What the machine does to all in a run cancels out: it was half as fast in the second one.
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
        // The same in both runs, but for how the quotients are rounded.
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
            "they did not take part"
        );
        assert_eq!(found(STD, metric::ACQUISITIONS_PER_SECOND).unwrap().max, 1200.0);
    }

    #[test]
    fn variation_is_the_deviation_in_percent_of_the_mean() {
        let summary = Summary::of(&[9.0, 10.0, 11.0]).unwrap();
        assert!((variation(&summary) - 10.0).abs() < 1e-9);
        assert_eq!(variation(&Summary::of(&[0.0]).unwrap()), 0.0);
    }
}
