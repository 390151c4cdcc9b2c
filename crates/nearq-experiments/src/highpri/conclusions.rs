//! The conclusions from the rows: how many times as long one row waits as another, and whether that reaches the goals.

use super::contestant::row;
use crate::harness::published as error_factor;
use nearq_report::metric::{self, Metric};
use nearq_report::{Collector, Row, find};
use serde::Serialize;

/// How many times as long one row waits as another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The row that waits longer.
    pub slow: &'static str,
    /// The row that it is compared with.
    pub fast: &'static str,
    /// What is compared.
    pub metric: &'static str,
    /// The first's median.
    pub slow_ms: f64,
    /// The second's median.
    pub fast_ms: f64,
    /// The first as a multiple of the second.
    pub ratio: f64,
    /// The published ratio, if there is one.
    pub published: Option<f64>,
    /// The larger one of these two over the smaller one.
    pub error_factor: Option<f64>,
    /// The least ratio that meets the goal, if there is a goal.
    pub goal: Option<f64>,
    /// Whether the ratio meets the goal; `None` if nothing is judged.
    pub met: Option<bool>,
}

/// The document's figures before and after, in milliseconds: the longest latency, the mean of the longest twenty and their
/// deviation; 300 seconds each, 3000 threads, one CPU, Linux 3.5 and the patches of 9 July 2012.
const PUBLISHED: [(&str, [f64; 3]); 2] =
    [(row::HEAD, [1624.0, 1268.0, 927.0]), (row::HIGH, [16.0, 3.8, 5.6])];

/// The source of these figures, for the table.
pub(super) const SOURCE: &str = "T. Heo, \"[PATCHSET] workqueue: reimplement high priority using a separate worker pool\", \
     linux-kernel, 9 July 2012: 300 s, one CPU; \"before\" beside `head of one list`, \"after\" beside `high`";

/// Fewest samples in a run of a row for its 99th percentile to be judged.
pub(super) const LEAST_SAMPLES: f64 = 100.0;

/// What is compared: slow, fast, and the goals for the 99th percentile and for the worst twenty.
const COMPARED: [(&str, &str, [Option<f64>; 2]); 6] = [
    (row::HEAD, row::HIGH, [None, None]),
    (row::NORMAL, row::HIGH, [None, None]),
    (row::NORMAL, row::HIGH_SLICE, [Some(300.0), Some(100.0)]),
    (row::NORMAL, row::HIGH_DELAYED, [None, None]),
    (row::NORMAL, row::REFUSED, [None, None]),
    (row::HIGH_SLICE, row::HICCUP, [None, None]),
];

/// Whether a goal compares a row with another one.
pub(super) fn has_goal(row: &str) -> bool {
    COMPARED.iter().any(|(slow, fast, goals)| {
        [*slow, *fast].contains(&row) && goals.iter().any(Option::is_some)
    })
}

/// Adds the published figures, if what was measured is the document's load.
pub(super) fn publish(collector: &mut Collector, scenario: &str, same_load: bool) {
    if !same_load {
        return;
    }
    for (row, [max, top, deviation]) in PUBLISHED {
        collector.publish(scenario, row, metric::LATENCY_MAX, max);
        collector.publish(scenario, row, metric::LATENCY_TOP20, top);
        collector.publish(scenario, row, metric::LATENCY_TOP20_DEVIATION, deviation);
    }
}

/// The ratios of the medians; ratios whose rows are missing are left out. `judged` says whether they are compared with their goals.
pub(super) fn ratios(rows: &[Row], scenario: &str, judged: bool) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for (slow, fast, goals) in COMPARED {
        for (metric, goal) in [metric::LATENCY_P99, metric::LATENCY_TOP20].into_iter().zip(goals) {
            ratios.extend(ratio(rows, scenario, slow, fast, metric, goal));
        }
    }
    if !judged {
        for ratio in &mut ratios {
            ratio.met = None;
        }
    }
    ratios
}

fn ratio(
    rows: &[Row],
    scenario: &str,
    slow: &'static str,
    fast: &'static str,
    metric: Metric,
    goal: Option<f64>,
) -> Option<Ratio> {
    let [slow_row, fast_row] = [slow, fast].map(|name| find(rows, scenario, name, metric));
    let (slow_row, fast_row) = (slow_row?, fast_row?);
    let (slow_ms, fast_ms) = (slow_row.summary.median, fast_row.summary.median);
    let ratio = slow_ms / fast_ms;
    let published = slow_row.published.zip(fast_row.published).map(|(slow, fast)| slow / fast);
    let error_factor = published.map(|published| error_factor::of_figures(ratio, published));
    // Of fewer samples, the 99th percentile is the longest one or so.
    let samples = [slow, fast].map(|name| {
        find(rows, scenario, name, metric::SAMPLES).map_or(0.0, |row| row.summary.median)
    });
    let enough = metric != metric::LATENCY_P99 || samples.iter().all(|of| *of >= LEAST_SAMPLES);
    let met = goal.filter(|_| enough).map(|goal| ratio >= goal);
    Some(Ratio {
        slow,
        fast,
        metric: metric.name,
        slow_ms,
        fast_ms,
        ratio,
        published,
        error_factor,
        goal,
        met,
    })
}

/// A published figure beside the measured one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Compared {
    pub(super) row: &'static str,
    pub(super) metric: &'static str,
    pub(super) published_ms: f64,
    pub(super) measured_ms: f64,
    pub(super) error_factor: f64,
}

/// The published figures that are in the rows, beside the measured ones.
pub(super) fn published(rows: &[Row], scenario: &str) -> Vec<Compared> {
    let metrics = [metric::LATENCY_MAX, metric::LATENCY_TOP20];
    let pairs = PUBLISHED.iter().flat_map(|(row, _)| metrics.map(|metric| (*row, metric)));
    let compare = |(row, metric): (&'static str, Metric)| {
        let found = find(rows, scenario, row, metric)?;
        let (published_ms, measured_ms) = (found.published?, found.summary.median);
        let error_factor = error_factor::of_figures(measured_ms, published_ms);
        Some(Compared { row, metric: metric.name, published_ms, measured_ms, error_factor })
    };
    pairs.filter_map(compare).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(same_load: bool, samples: f64) -> Vec<Row> {
        let mut collector = Collector::default();
        let mut add = |row, metric, runs: [f64; 3]| {
            for run in runs {
                collector.add("beside", row, metric, run);
            }
        };
        add(row::HEAD, metric::LATENCY_TOP20, [120.0; 3]);
        add(row::NORMAL, metric::LATENCY_P99, [90.0, 100.0, 500.0]);
        add(row::HIGH, metric::LATENCY_TOP20, [3.0; 3]);
        add(row::HIGH_SLICE, metric::LATENCY_P99, [0.2, 0.2, 0.1]);
        add(row::NORMAL, metric::SAMPLES, [samples; 3]);
        add(row::HIGH_SLICE, metric::SAMPLES, [2000.0; 3]);
        publish(&mut collector, "beside", same_load);
        collector.rows()
    }

    #[test]
    fn ratios_are_of_medians_and_judged_where_there_is_a_goal() {
        let ratios = ratios(&rows(true, 100.0), "beside", true);
        assert_eq!(ratios.len(), 2, "{ratios:?}");
        let factor = ratios[0].error_factor.unwrap();
        assert!((factor - 1268.0 / 3.8 / 40.0).abs() < 1e-9, "{factor}");
        assert_eq!((ratios[0].fast, ratios[0].ratio, ratios[0].met), (row::HIGH, 40.0, None));
        assert!((ratios[0].published.unwrap() - 1268.0 / 3.8).abs() < 1e-9);
        assert_eq!((ratios[1].fast, ratios[1].metric), (row::HIGH_SLICE, "latency_ms_p99"));
        assert_eq!((ratios[1].ratio, ratios[1].met), (500.0, Some(true)));
    }

    #[test]
    fn a_percentile_of_too_few_samples_is_not_judged() {
        let ratios = ratios(&rows(true, 99.0), "beside", true);
        assert_eq!((ratios[1].ratio, ratios[1].goal, ratios[1].met), (500.0, Some(300.0), None));
    }

    #[test]
    fn published_figures_have_error_factors() {
        let found = published(&rows(true, 100.0), "beside");
        let short: Vec<_> = found.iter().map(|one| (one.row, one.measured_ms)).collect();
        assert_eq!(short, [(row::HEAD, 120.0), (row::HIGH, 3.0)]);
        assert!((found[0].error_factor - 1268.0 / 120.0).abs() < 1e-9);
        assert!(published(&rows(false, 100.0), "beside").is_empty());
    }

    #[test]
    fn another_load_has_no_published_figures() {
        assert!(rows(false, 100.0).iter().all(|row| row.published.is_none()));
        let max =
            rows(true, 100.0).into_iter().find(|row| row.metric == "latency_ms_top20").unwrap();
        assert_eq!(max.published, Some(1268.0));
    }
}
