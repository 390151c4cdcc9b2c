//! Turns samples into figures, and compares them with the goals of the project.

use super::contestant::{AUTO, MUTEX, PARKING_LOT, PEERS, SIMULATED_PEERS};
use super::load::{Class, Sample};
use super::scenario;
use nearq_report::metric::{self, Metric};
use nearq_report::{Collector, Row, find};
use serde::Serialize;

/// Adds one run of a mix and a number of threads: the figures of each lock, and the ratios of ours to the others within the run.
pub(super) fn collect(
    collector: &mut Collector,
    writes: usize,
    threads: usize,
    samples: &[(&'static str, Sample)],
) {
    let scenario = scenario(writes, threads);
    for (row, sample) in samples {
        let seconds = sample.elapsed.as_secs_f64();
        collector.add(&scenario, row, metric::ACQUISITIONS_PER_SECOND, sample.per_second());
        for (class, rate, p9999, longest) in classes(sample) {
            collector.add(&scenario, row, rate, class.counted as f64 / seconds);
            if class.counted > 0 {
                collector.add(&scenario, row, p9999, class.waits.quantile_us(0.9999));
                collector.add(&scenario, row, longest, class.waits.longest_us());
            }
        }
    }
    let of = |row| samples.iter().find(|(of, _)| *of == row).map(|(_, sample)| sample);
    let Some(ours) = of(AUTO) else { return };
    for (row, theirs) in samples.iter().filter(|(row, _)| *row != AUTO) {
        let mut add = |metric, value: f64| {
            // A run in which the other lock was never taken has no ratio.
            if value.is_finite() {
                collector.add(&scenario, &beside(row), metric, value);
            }
        };
        add(metric::ACQUISITIONS_RATIO, ours.per_second() / theirs.per_second());
        if ours.reads.counted > 0 && theirs.reads.counted > 0 {
            let ratio = ours.reads.waits.longest_us() / theirs.reads.waits.longest_us();
            add(metric::READ_WAIT_RATIO_MAX, ratio);
        }
        if ours.writes.counted > 0 && theirs.writes.counted > 0 {
            let ratio = ours.writes.waits.longest_us() / theirs.writes.waits.longest_us();
            add(metric::WRITE_WAIT_RATIO_MAX, ratio);
        }
    }
}

/// Both classes, with their metrics: the rate, the 99.99th percentile of the waits, the longest.
fn classes(sample: &Sample) -> [(&Class, Metric, Metric, Metric); 2] {
    use metric::{
        READ_WAIT_MAX, READ_WAIT_P9999, READS_PER_SECOND, WRITE_WAIT_MAX, WRITE_WAIT_P9999,
        WRITES_PER_SECOND,
    };
    [
        (&sample.reads, READS_PER_SECOND, READ_WAIT_P9999, READ_WAIT_MAX),
        (&sample.writes, WRITES_PER_SECOND, WRITE_WAIT_P9999, WRITE_WAIT_MAX),
    ]
}

/// The row of the ratios of our lock to another one.
pub(super) fn beside(other: &str) -> String {
    format!("{AUTO} / {other}")
}

/// A goal, and what was reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// How many of a hundred uses are writes.
    pub writes: usize,
    /// What is compared.
    pub what: String,
    /// The ratio; of several numbers of threads, the worst.
    pub reached: f64,
    /// The threads of that ratio.
    pub threads: usize,
    /// What the ratio must be at least, or at most.
    pub goal: f64,
    /// Whether that bound is an upper one.
    pub at_most: bool,
    /// Whether the goal is reached.
    pub met: bool,
}

/// The least ratio of the uses to those of the best other lock, whichever that is.
const OF_THE_BEST: f64 = 0.95;
/// Simulated: the least ratio to our own mutex.
const OF_THE_MUTEX: f64 = 0.95;
/// The largest ratio of the longest waits to those of parking_lot, which bounds the waits of both classes too.
const WAITS: f64 = 1.0;

/// Compares medians with the goals.
pub(super) fn judge(
    rows: &[Row],
    mixes: &[usize],
    threads: &[usize],
    simulated: bool,
) -> Vec<Goal> {
    let mut goals = Vec::new();
    for &writes in mixes {
        let median = |other: &str, metric, threads| {
            let found = find(rows, &scenario(writes, threads), &beside(other), metric)?;
            Some(found.summary.median)
        };
        // For each number of threads, the ratio to the best of the others; of these, the worst.
        let mut add = |what: &str, others: &[&str], metric, goal, at_most: bool| {
            let worse = |a: f64, b: f64| if at_most { a.max(b) } else { a.min(b) };
            let of = |threads: usize| {
                let ratios = others.iter().filter_map(|other| median(other, metric, threads));
                Some((ratios.reduce(worse)?, threads))
            };
            let worst = threads
                .iter()
                .filter_map(|&count| of(count))
                .reduce(|a, b| if worse(a.0, b.0) == a.0 { a } else { b });
            if let Some((reached, threads)) = worst {
                let met = if at_most { reached <= goal } else { reached >= goal };
                let what = what.to_owned();
                goals.push(Goal { writes, what, reached, threads, goal, at_most, met });
            }
        };
        let rate = metric::ACQUISITIONS_RATIO;
        if simulated {
            add("uses, to the best other design", &SIMULATED_PEERS[1..], rate, OF_THE_BEST, false);
            add("uses, to our mutex", &[MUTEX], rate, OF_THE_MUTEX, false);
        } else {
            add("uses, to the best other lock", &PEERS, rate, OF_THE_BEST, false);
            let (reads, writes) = (metric::READ_WAIT_RATIO_MAX, metric::WRITE_WAIT_RATIO_MAX);
            add("longest wait of a reader, to parking_lot's", &[PARKING_LOT], reads, WAITS, true);
            add("longest wait of a writer, to parking_lot's", &[PARKING_LOT], writes, WAITS, true);
        }
    }
    goals
}
