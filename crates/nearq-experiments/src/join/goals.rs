//! The goals of nearq in this experiment, and whether this run met them: on this machine limits to the other pools' times, on a simulated
//! one that keeping to a cache pays.

use super::pools::{Chili, Nearq, Pool as _, Rayon};
use super::program::{Kind, SCENARIOS};
use super::simulated::{CACHE, RANDOM, SCENARIO, SYSTEM};
use nearq_report::metric;
use nearq_report::{Row, find};
use serde::Serialize;

/// A goal, and what was reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// What is compared.
    pub name: String,
    /// With which row.
    pub other: &'static str,
    /// The ratio of our median to that of the other row, unless that is not above 0.
    pub ratio: Option<f64>,
    /// The limit that it must not exceed.
    pub goal: f64,
    /// Whether it does not exceed the limit.
    pub met: bool,
}

/// The most time for a join, as a multiple of the other pool's.
const JOIN: [(&str, f64); 2] = [(Rayon::NAME, 0.5), (Chili::NAME, 1.0)];
/// The most time for a program, as a multiple of rayon's: the geometric mean, and the slowest.
const PROGRAMS: [(&str, f64); 2] =
    [("programs, geometric mean", 0.95), ("programs, the slowest", 1.05)];
/// The most time of the scope `cache`, as a multiple of the other row's.
const CACHE_SIZED: [(&str, f64); 2] = [(SYSTEM, 1.0), (RANDOM, 1.0)];

/// Compares our medians with the goals; goals whose rows are missing are left out.
pub(super) fn judge(rows: &[Row]) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut add = |name: String, other, [ours, theirs]: [f64; 2], goal| {
        let ratio = (theirs > 0.0).then(|| ours / theirs);
        goals.push(Goal { name, other, ratio, goal, met: ours <= goal * theirs });
    };
    let medians = |scenario: &str, row, other, metric| {
        let median = |row| Some(find(rows, scenario, row, metric)?.summary.median);
        Some([median(row)?, median(other)?])
    };
    let names = |kind| SCENARIOS.iter().filter(move |one| one.kind == kind).map(|one| one.name);
    for (other, goal) in JOIN {
        for scenario in names(Kind::Joins) {
            if let Some(both) = medians(scenario, Nearq::NAME, other, metric::PER_JOIN) {
                add(format!("{scenario}, time per join"), other, both, goal);
            }
        }
    }
    let of = |scenario| medians(scenario, Nearq::NAME, Rayon::NAME, metric::ELAPSED);
    let ratios: Vec<f64> =
        names(Kind::Programs).filter_map(of).map(|[ours, theirs]| ours / theirs).collect();
    if !ratios.is_empty() {
        let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64;
        let slowest = ratios.into_iter().fold(0.0, f64::max);
        for ((name, goal), ratio) in PROGRAMS.into_iter().zip([mean.exp(), slowest]) {
            add(name.into(), Rayon::NAME, [ratio, 1.0], goal);
        }
    }
    for (other, goal) in CACHE_SIZED {
        if let Some(both) = medians(SCENARIO, CACHE, other, metric::ELAPSED) {
            add(format!("{SCENARIO}, {CACHE}"), other, both, goal);
        }
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_report::Collector;

    #[test]
    fn ratios_of_medians_decide_and_programs_are_judged_together() {
        let mut collector = Collector::default();
        for (row, ns) in [("nearq", 4.0), ("rayon", 10.0), ("chili", 3.0)] {
            collector.add("fib", row, metric::PER_JOIN, ns);
            collector.add("uts", row, metric::PER_JOIN, ns - 3.5);
        }
        for (scenario, ours) in [("matmul", 0.5), ("sieve", 1.125)] {
            collector.add(scenario, "nearq", metric::ELAPSED, ours);
            collector.add(scenario, "rayon", metric::ELAPSED, 1.0);
        }
        let goals = judge(&collector.rows());
        let short: Vec<_> = goals.iter().map(|goal| (goal.other, goal.ratio, goal.met)).collect();
        let expected = [
            ("rayon", Some(0.4), true),
            ("rayon", Some(0.5 / 6.5), true),
            ("chili", Some(4.0 / 3.0), false),
            // Theirs is faster than the sequential program.
            ("chili", None, false),
            ("rayon", Some(0.75), true),
            ("rayon", Some(1.125), false),
        ];
        assert_eq!(short.len(), expected.len());
        for (found, expected) in short.iter().zip(expected) {
            assert_eq!((found.0, found.2), (expected.0, expected.2), "{goals:?}");
            let off = found.1.zip(expected.1).map_or(0.0, |(found, expected)| found - expected);
            assert!(off.abs() < 1e-9 && found.1.is_some() == expected.1.is_some(), "{goals:?}");
        }
        assert_eq!(judge(&[]), []);
    }

    #[test]
    fn the_scope_cache_must_not_be_slower_than_the_others() {
        let mut collector = Collector::default();
        for (row, seconds) in [(CACHE, 2.0), (SYSTEM, 2.5), (RANDOM, 1.0)] {
            collector.add(SCENARIO, row, metric::ELAPSED, seconds);
        }
        let met: Vec<bool> = judge(&collector.rows()).iter().map(|goal| goal.met).collect();
        assert_eq!(met, [true, false]);
    }
}
