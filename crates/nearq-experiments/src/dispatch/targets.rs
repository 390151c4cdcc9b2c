//! The goals that nearq sets itself, and whether this run met them.

use super::contestant::Load;
use crate::report::metric::{self, Metric};
use crate::report::{Row, find};
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Collector;

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
