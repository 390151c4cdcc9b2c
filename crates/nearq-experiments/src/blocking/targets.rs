//! The goals of nearq in this experiment, and whether this run met them.

use super::pools::{HINTED, PLAIN};
use super::ways::Way;
use nearq_report::{Row, find, metric};
use serde::Serialize;

/// Our rows, and the limits for the median of their ratios to the ideal.
const GOALS: [(&str, f64); 2] = [(PLAIN, 1.3), (HINTED, 1.1)];

/// A goal, and what was reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// How items are blocked.
    pub scenario: &'static str,
    /// Our row.
    pub row: &'static str,
    /// The median of the runs' ratios to the ideal.
    pub ratio: f64,
    /// The limit that it must not exceed.
    pub goal: f64,
    /// Whether it does not exceed the limit.
    pub met: bool,
}

/// Compares our medians with the goals; goals whose rows are missing are left out. How long a disk takes is given, so there is no goal for
/// it.
pub fn judge(rows: &[Row]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for way in Way::ALL.into_iter().filter(|&way| way != Way::Disk) {
        for (row, goal) in GOALS {
            let Some(found) = find(rows, way.name(), row, metric::RATIO) else { continue };
            let ratio = found.summary.median;
            goals.push(Goal { scenario: way.name(), row, ratio, goal, met: ratio <= goal });
        }
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_report::Collector;

    #[test]
    fn the_median_of_the_ratios_decides_and_the_disk_has_no_goal() {
        let mut collector = Collector::default();
        for ratio in [1.0, 1.2, 9.0] {
            collector.add("sleep", PLAIN, metric::RATIO, ratio);
            collector.add("sleep", HINTED, metric::RATIO, ratio);
            collector.add("disk", PLAIN, metric::RATIO, ratio);
        }
        let goals = judge(&collector.rows());
        let short: Vec<_> = goals.iter().map(|goal| (goal.row, goal.ratio, goal.met)).collect();
        assert_eq!(short, [(PLAIN, 1.2, true), (HINTED, 1.2, false)]);
        assert_eq!(judge(&[]), []);
    }
}
