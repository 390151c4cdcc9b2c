//! Tests of `targets`: the goals that nearq sets itself, and whether this run met them.

use super::*;
use nearq_report::Collector;

#[test]
fn shards_are_judged_if_the_machine_has_any() {
    let mut collector = Collector::default();
    for (row, rate) in [("cache_shard", 300.0), ("cache", 150.0), ("system", 140.0)] {
        collector.add("issuers", row, metric::ITEMS_PER_SECOND, rate);
    }
    let rows = collector.rows();
    let shards = judge_shards(&rows, &Machine::named("grace-72").unwrap()).unwrap();
    assert_eq!((shards.factor, shards.goal, shards.met), (2.0, 1.5, Some(true)));
    assert!((shards.published.unwrap() - 5.11).abs() < 0.01);
    let shards = judge_shards(&rows, &Machine::named("l3:1 core:16").unwrap()).unwrap();
    assert_eq!(shards.published, None);
    assert_eq!(judge_shards(&rows, &Machine::named("l3:2 core:4").unwrap()), None);
    assert_eq!(judge_shards(&[], &Machine::named("grace-72").unwrap()), None);
}

#[test]
fn ratios_compare_medians_with_the_best_of_the_others() {
    let mut collector = Collector::default();
    let mut add = |load: Load, row, metric, runs: [f64; 3]| {
        for run in runs {
            collector.add(load.name(), row, metric, run);
        }
    };
    add(Load::Outside, REQUEUE, metric::NS_PER_ITEM, [100.0, 900.0, 90.0]);
    add(Load::Outside, "rayon", metric::NS_PER_ITEM, [300.0, 310.0, 320.0]);
    add(Load::Outside, "tokio", metric::NS_PER_ITEM, [250.0, 250.0, 1.0]);
    add(Load::Inside, SPAWN, metric::NS_PER_ITEM, [200.0, 200.0, 200.0]);
    add(Load::Inside, "rayon", metric::NS_PER_ITEM, [200.0, 200.0, 200.0]);
    add(Load::ManyOutside, SPAWN, metric::NS_PER_ITEM, [200.0, 200.0, 200.0]);
    add(Load::ManyOutside, "rayon", metric::NS_PER_ITEM, [160.0, 160.0, 160.0]);
    add(Load::Idle, REQUEUE, metric::START_LATENCY_P50, [10.0, 10.0, 10.0]);
    add(Load::Idle, "tokio", metric::START_LATENCY_P50, [10.0, 10.0, 10.0]);
    let peers = [
        (Load::Outside, "rayon"),
        (Load::Outside, "tokio"),
        (Load::Inside, "rayon"),
        (Load::ManyOutside, "rayon"),
        (Load::Idle, "tokio"),
    ];
    let goals = judge(&collector.rows(), &peers);
    assert_eq!(goals.len(), 4, "spawn from outside and p99 were not measured: {goals:?}");
    assert_eq!((goals[0].best_other.as_str(), goals[0].ratio, goals[0].met), ("tokio", 0.4, true));
    let judged = |goal: &Goal| (goal.ratio, goal.goal, goal.met);
    assert_eq!(judged(&goals[1]), (1.0, 1.0, true));
    assert_eq!(judged(&goals[2]), (1.25, 1.0, false));
    assert_eq!(judged(&goals[3]), (1.0, 0.95, false));
    assert_eq!(judge(&collector.rows(), &[]), []);
}

#[test]
fn the_simulated_kernel_is_judged_in_both_directions() {
    let mut collector = Collector::default();
    for (row, rate) in
        [("cpu", 3.25e6 * 1.36), ("cache_shard", 3.63e6 * 0.66), ("cache", 0.71e6 * 0.5)]
    {
        collector.add(Load::Kernel.name(), row, metric::ITEMS_PER_SECOND, rate);
    }
    let rows = collector.rows();
    let rates = judge_kernel(&rows, &Machine::named("grace-72").unwrap());
    let judged: Vec<_> = rates.iter().map(|rate| (rate.scope, rate.met)).collect();
    assert_eq!(judged, [("cpu", false), ("cache_shard", true), ("cache", false)]);
    assert!((rates[2].error_factor - 2.0).abs() < 0.01 && (rates[2].ratio - 0.5).abs() < 0.01);
    assert_eq!(judge_kernel(&rows, &Machine::named("core:4").unwrap()), []);
}
