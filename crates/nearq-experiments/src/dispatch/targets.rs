//! The goals that nearq sets itself, whether this run met them, and the published figures.

use super::contestant::Load;
use crate::Machine;
use crate::harness::published as error_factor;
use nearq_report::metric::{self, Metric};
use nearq_report::{Row, find};
use nearq_topology::AffinityScope;
use serde::Serialize;

// The goals that nearq sets itself, and whether this run met them.

/// The row of nearq that has the goals for `Work`.
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
    /// The best other pool.
    pub best_other: String,
    /// Our median.
    pub ours: f64,
    /// Their median.
    pub other: f64,
    /// Ours as a multiple of theirs.
    pub ratio: f64,
    /// The highest ratio that meets the goal.
    pub goal: f64,
    /// Whether the ratio is within the goal.
    pub met: bool,
}

/// Name, our row, load, metric, goal.
const GOALS: [(&str, &str, Load, Metric, f64); 6] = [
    ("requeue, time per item", REQUEUE, Load::Outside, metric::NS_PER_ITEM, 0.5),
    ("spawn, time per item", SPAWN, Load::Outside, metric::NS_PER_ITEM, 1.05),
    ("spawn by a worker, time per item", SPAWN, Load::Inside, metric::NS_PER_ITEM, 1.0),
    ("spawn by 64 threads, time per item", SPAWN, Load::ManyOutside, metric::NS_PER_ITEM, 1.0),
    ("idle, queue to start, p50", REQUEUE, Load::Idle, metric::START_LATENCY_P50, 0.95),
    ("idle, queue to start, p99", REQUEUE, Load::Idle, metric::START_LATENCY_P99, 0.95),
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

/// The least factor by which shards of a cache must beat one pool for the whole cache.
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
    /// The least factor that meets the goal.
    pub goal: f64,
    /// The published factor for this machine.
    pub published: Option<f64>,
    /// Whether the goal is met; `None` if nothing is judged.
    pub met: Option<bool>,
}

/// Whether shards differ from whole caches on a machine: some last-level cache has more than one shard.
pub(crate) fn has_shards(machine: &Machine) -> bool {
    machine.pods(AffinityScope::CacheShard) != machine.pods(AffinityScope::Cache)
}

/// Compares the medians of shards and whole caches; `None` if they are the same.
pub fn judge_shards(rows: &[Row], machine: &Machine) -> Option<Shards> {
    let rate = |scope: AffinityScope| {
        let row = find(rows, Load::Issuers.name(), scope.name(), metric::ITEMS_PER_SECOND)?;
        Some(row.summary.median)
    };
    if !has_shards(machine) {
        return None;
    }
    let (cache_shard, cache) = (rate(AffinityScope::CacheShard)?, rate(AffinityScope::Cache)?);
    let of_document = |scope| Some(published(machine.name(), scope)?.items_per_second);
    let published = of_document(AffinityScope::CacheShard).zip(of_document(AffinityScope::Cache));
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

/// By how much a simulated rate may differ from the published one, in percent.
pub(super) const KERNEL_PERCENT: f64 = 35.0;

/// The kernel's rate with a scope: simulated, and published for the real machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelRate {
    /// The scope.
    pub scope: &'static str,
    /// The simulated rate as a multiple of the published one.
    pub ratio: f64,
    /// The larger rate over the smaller one.
    pub error_factor: f64,
    /// Whether they differ by no more than the goal, in either direction.
    pub met: bool,
}

/// Compares the simulated kernel with what was published for that machine; empty if nothing was.
pub fn judge_kernel(rows: &[Row], machine: &Machine) -> Vec<KernelRate> {
    let judge = |scope: &AffinityScope| {
        let row = find(rows, Load::Kernel.name(), scope.name(), metric::ITEMS_PER_SECOND)?;
        let published = published(machine.name(), *scope)?.items_per_second;
        let ratio = row.summary.median / published;
        Some(KernelRate {
            scope: scope.name(),
            ratio,
            error_factor: error_factor::of_figures(ratio, 1.0),
            met: (ratio - 1.0).abs() * 100.0 <= KERNEL_PERCENT,
        })
    };
    AffinityScope::ALL.iter().filter_map(judge).collect()
}

// What was published for the kernel's test_workqueue, with which the load `issuers` is compared.

/// Figures of one scope.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Items per second over all issuers.
    pub items_per_second: f64,
    /// Median of the call that queues, in microseconds.
    pub call_us_p50: f64,
}

/// The origin of the figures, for a table.
pub(crate) const SOURCE: &str = "the kernel's test_workqueue, 50000 items a thread, posting of 2026-03-12 that proposed cache_shard";

/// Scope, items per second, nanoseconds at p50: one NVIDIA Grace with 72 CPUs under one last-level cache.
const GRACE: [(AffinityScope, f64, f64); 6] = [
    (AffinityScope::Cpu, 3.25e6, 10_944.0),
    (AffinityScope::Smt, 3.36e6, 10_945.0),
    (AffinityScope::CacheShard, 3.63e6, 6_080.0),
    (AffinityScope::Cache, 0.71e6, 44_000.0),
    (AffinityScope::Numa, 0.71e6, 44_096.0),
    (AffinityScope::System, 0.72e6, 43_104.0),
];

/// The figures for a scope on a machine of that name, if there are any.
pub fn published(machine: &str, scope: AffinityScope) -> Option<Published> {
    if machine != "grace-72" {
        return None;
    }
    let (_, items_per_second, ns) = GRACE.into_iter().find(|(known, ..)| *known == scope)?;
    Some(Published { items_per_second, call_us_p50: ns / 1000.0 })
}

#[cfg(test)]
#[path = "tests/targets.rs"]
mod targets_tests;

#[cfg(test)]
#[path = "tests/published.rs"]
mod published_tests;
