//! The goals that nearq sets itself, and whether this run met them.

use super::contestant::Load;
use super::published;
use crate::Machine;
use nearq_report::metric::{self, Metric};
use nearq_report::{Row, find};
use nearq_topology::Scope;
use serde::Serialize;

/// Rows of ours that have a goal.
pub(crate) const REQUEUE: &str = "nearq requeue";
/// The same for closures.
pub(crate) const SPAWN: &str = "nearq spawn";

/// A goal, and what was reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// What is compared.
    pub name: &'static str,
    /// Our row.
    pub row: &'static str,
    /// The best of the others.
    pub best_other: String,
    /// Our median.
    pub ours: f64,
    /// Their median.
    pub other: f64,
    /// Ours as a multiple of theirs.
    pub ratio: f64,
    /// What the ratio shall not exceed.
    pub goal: f64,
    /// Whether it does not.
    pub met: bool,
}

/// Name, our row, load, metric, goal.
const GOALS: [(&str, &str, Load, Metric, f64); 4] = [
    ("requeue, time per item", REQUEUE, Load::Outside, metric::NS_PER_ITEM, 0.5),
    ("spawn, time per item", SPAWN, Load::Outside, metric::NS_PER_ITEM, 1.05),
    ("idle, queue to start, p50", REQUEUE, Load::Idle, metric::START_LATENCY_P50, 1.05),
    ("idle, queue to start, p99", REQUEUE, Load::Idle, metric::START_LATENCY_P99, 1.05),
];

/// Compares our medians with the best of `peers`; goals whose rows are missing are left out.
pub fn judge(rows: &[Row], peers: &[(Load, &'static str)]) -> Vec<Goal> {
    let judge =
        |&(name, row, load, metric, goal): &(&'static str, &'static str, Load, Metric, f64)| {
            let median = |row: &str| Some(find(rows, load.name(), row, metric)?.summary.median);
            let ours = median(row)?;
            let others = peers
                .iter()
                .filter(|(of, _)| *of == load)
                .filter_map(|(_, row)| Some((median(row)?, *row)));
            let (other, best) = others.min_by(|a, b| a.0.total_cmp(&b.0))?;
            let ratio = ours / other;
            Some(Goal {
                name,
                row,
                best_other: best.into(),
                ours,
                other,
                ratio,
                goal,
                met: ratio <= goal,
            })
        };
    GOALS.iter().filter_map(judge).collect()
}

/// Least factor by which shards of a cache shall beat one pool for the whole of it.
pub(crate) const SHARDS: f64 = 1.5;

/// What shards of a last-level cache gain, with an issuer on each CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shards {
    /// Items per second under `cache_shard`.
    pub cache_shard: f64,
    /// Items per second under `cache`.
    pub cache: f64,
    /// The first as a multiple of the second.
    pub factor: f64,
    /// What the factor shall be at least.
    pub goal: f64,
    /// The published factor for this machine.
    pub published: Option<f64>,
    /// Whether the goal is met; none where nothing is judged.
    pub met: Option<bool>,
}

/// Whether shards are something of their own on a machine: no last-level cache is a shard as a whole.
pub(crate) fn has_shards(machine: &Machine) -> bool {
    machine.pods(Scope::CacheShard) != machine.pods(Scope::Cache)
}

/// Compares the medians of shards and whole caches; none where they are the same.
pub fn judge_shards(rows: &[Row], machine: &Machine) -> Option<Shards> {
    let rate = |scope: Scope| {
        let row = find(rows, Load::Issuers.name(), scope.name(), metric::ITEMS_PER_SECOND)?;
        Some(row.summary.median)
    };
    if !has_shards(machine) {
        return None;
    }
    let (cache_shard, cache) = (rate(Scope::CacheShard)?, rate(Scope::Cache)?);
    let of_document = |scope| Some(published(machine.name(), scope)?.items_per_second);
    let published = of_document(Scope::CacheShard).zip(of_document(Scope::Cache));
    let factor = cache_shard / cache;
    Some(Shards {
        cache_shard,
        cache,
        factor,
        goal: SHARDS,
        published: published.map(|(shard, cache)| shard / cache),
        met: Some(factor >= SHARDS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_report::Collector;

    #[test]
    fn shards_are_judged_where_there_are_any() {
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
    fn ratios_are_of_medians_and_to_the_best_of_the_others() {
        let mut collector = Collector::default();
        let mut add = |load: Load, row, metric, runs: [f64; 3]| {
            for run in runs {
                collector.add(load.name(), row, metric, run);
            }
        };
        add(Load::Outside, REQUEUE, metric::NS_PER_ITEM, [100.0, 900.0, 90.0]);
        add(Load::Outside, "rayon", metric::NS_PER_ITEM, [300.0, 310.0, 320.0]);
        add(Load::Outside, "tokio", metric::NS_PER_ITEM, [250.0, 250.0, 1.0]);
        add(Load::Idle, REQUEUE, metric::START_LATENCY_P50, [11.0, 11.0, 11.0]);
        add(Load::Idle, "tokio", metric::START_LATENCY_P50, [10.0, 10.0, 10.0]);
        let peers = [(Load::Outside, "rayon"), (Load::Outside, "tokio"), (Load::Idle, "tokio")];
        let goals = judge(&collector.rows(), &peers);
        assert_eq!(goals.len(), 2, "spawn and p99 were not measured: {goals:?}");
        assert_eq!(
            (goals[0].best_other.as_str(), goals[0].ratio, goals[0].met),
            ("tokio", 0.4, true)
        );
        assert_eq!((goals[1].ratio, goals[1].goal, goals[1].met), (1.1, 1.05, false));
        assert_eq!(judge(&collector.rows(), &[]), []);
    }
}
