//! Tests of `goals`: the goals that the mutex has, and whether this run reached them.

use super::super::load::scenario;
use super::*;
use nearq_report::Collector;

fn rows(figures: &[(&str, usize, Metric, [f64; 3])]) -> Vec<Row> {
    let mut collector = Collector::default();
    for (row, writers, metric, runs) in figures {
        for run in runs {
            collector.add(&scenario(Load::Short, *writers), row, *metric, *run);
        }
    }
    collector.rows()
}

#[test]
fn goals_are_judged_by_medians_at_the_worst_number_of_writers() {
    let rates = metric::ACQUISITIONS_RATIO;
    let (to_std, to_other) = (beside(STD), beside(PARKING_LOT));
    let rows = rows(&[
        (&to_std, 1, rates, [0.94, 0.96, 0.1]),
        // The better lock is std in two of three runs, and therefore by the medians; the better lock of each run does not count.
        (&to_std, 2, rates, [0.96, 1.1, 0.97]),
        (&to_other, 2, rates, [1.2, 0.7, 1.3]),
        (&to_std, 8, rates, [1.2, 1.2, 0.1]),
        (&to_std, 128, rates, [0.1, 0.1, 0.1]),
        (AUTO, 2, metric::FAIRNESS, [0.5, 0.5, 0.9]),
        (AUTO, 8, metric::FAIRNESS, [0.6, 0.6, 0.6]),
        (&to_std, 2, metric::WAIT_RATIO_MAX, [0.2, 0.2, 0.2]),
        (&to_other, 2, metric::WAIT_RATIO_MAX, [0.7, 0.7, 0.7]),
        (&beside(PTHREAD), 8, rates, [1.0, 1.0, 1.0]),
    ]);
    let scenarios = [1, 2, 8, 128].map(|writers| (Load::Short, writers));
    let goals = judge(&rows, scenarios.into_iter(), None, CpuPlacement::Spread);
    let short: Vec<_> = goals.iter().map(|goal| (goal.reached, goal.writers, goal.met)).collect();
    assert_eq!(short.len(), 6, "{goals:?}");
    assert_eq!(short[0], (0.94, Some(1), false));
    assert_eq!(short[1], (0.97, Some(2), true));
    assert!((short[2].0 - (0.97_f64 * 1.2).sqrt()).abs() < 1e-12 && short[2].2);
    assert_eq!(short[3..], [(0.6, Some(8), true), (0.7, Some(2), false), (1.0, Some(8), true)]);
    assert_eq!(judge(&[], scenarios.into_iter(), None, CpuPlacement::Compact), []);
}

#[test]
fn gains_over_the_kernels_queue_are_those_of_the_document_and_one_queue_is_never_much_faster() {
    let gains = [(1, 0.0), (8, -1.1), (12, -5.1), (16, -4.9)];
    let rates = [(12, 200.0, 100.0), (16, 172.0, 100.0), (64, 190.0, 100.0)];
    let gains_of = gains.map(|(writers, gain)| (AUTO, writers, metric::GAIN, [gain; 3]));
    let rate = metric::ACQUISITIONS_PER_SECOND;
    let rates_of = rates.map(|(writers, ours, theirs)| {
        [(AUTO, writers, rate, [ours; 3]), (OSQ, writers, rate, [theirs; 3])]
    });
    let rows = rows(&[&gains_of[..], &rates_of.concat()].concat());
    let scenarios = || [1, 8, 12, 16, 64].map(|writers| (Load::Short, writers)).into_iter();
    let goals = judge(&rows, scenarios(), Some("epyc-7551-2s"), CpuPlacement::Compact);
    let short: Vec<_> =
        goals.iter().map(|goal| (goal.writers.unwrap(), goal.goal, goal.met)).collect();
    let plain = [(1, -1.0, true), (8, -1.0, false), (12, -5.0, false), (16, -5.0, true)];
    assert_eq!(short[..4], plain, "{goals:?}");
    assert_eq!(short[4..], [(16, 72.0, true), (64, 91.0, false)], "{goals:?}");
    assert_eq!(
        judge(&rows, scenarios(), Some("epyc-7551-2s"), CpuPlacement::Spread),
        [],
        "shown without a goal"
    );
}

#[test]
fn the_geometric_mean_of_known_ratios() {
    assert!((geometric_mean(&[2.0, 0.5, 1.0]).unwrap() - 1.0).abs() < 1e-12);
    assert_eq!(geometric_mean(&[]), None);
}

#[test]
fn a_gain_of_the_hq_spinlock_is_to_be_as_published_and_not_beyond() {
    let rows = rows(&[
        (HQ_SOCKETS, 128, metric::GAIN, [12.0; 3]),
        (HQ_CACHES, 128, metric::GAIN, [221.0; 3]),
        (HQ_SOCKETS, 384, metric::GAIN, [4.0; 3]),
        (HQ_CACHES, 384, metric::GAIN, [-50.0; 3]),
        (HQ_CACHES, 64, metric::GAIN, [0.0; 3]),
    ]);
    let scenarios = || [64, 128, 384].map(|writers| (Load::Short, writers)).into_iter();
    let goals = judge(&rows, scenarios(), Some("epyc-9654-2s"), CpuPlacement::Compact);
    let short: Vec<_> = goals
        .iter()
        .map(|goal| (goal.writers.unwrap(), (goal.goal * 100.0).round() / 100.0, goal.met))
        .collect();
    let sockets = [(128, 4.0, true), (128, 14.0, true), (384, -6.0, true), (384, 4.0, true)];
    assert_eq!(short[..4], sockets, "{goals:?}");
    let caches =
        [(128, 105.95, true), (128, 220.05, false), (384, 120.9, false), (384, 251.1, true)];
    assert_eq!(short[4..8], caches);
    assert_eq!(short[8..], [(128, 0.0, true), (384, 0.0, false)], "the order");
    assert_eq!(judge(&rows, scenarios(), Some("epyc-7551-2s"), CpuPlacement::Compact), []);
}
