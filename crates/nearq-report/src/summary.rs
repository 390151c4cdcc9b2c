//! Several runs of one measurement, summarised in five numbers.

use serde::{Deserialize, Serialize};

/// Several runs of one measurement, summarised in five numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The middle run; of an even number, the mean of the middle two.
    pub median: f64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The sample standard deviation; zero for a single run.
    pub deviation: f64,
    /// The smallest run.
    pub min: f64,
    /// The largest run.
    pub max: f64,
    /// How many runs there were.
    pub runs: usize,
}

/// The number that a share of the numbers does not exceed, between two of them in proportion. There must be a number.
pub fn quantile(numbers: &[f64], share: f64) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

impl Summary {
    /// Summarises `runs`; `None` when there are none.
    pub fn of(runs: &[f64]) -> Option<Self> {
        let (&first, count) = (runs.first()?, runs.len());
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let median = if count.is_multiple_of(2) {
            f64::midpoint(sorted[count / 2 - 1], sorted[count / 2])
        } else {
            sorted[count / 2]
        };
        // Computed relative to the first run, so that the mean of equal runs is exactly their value and the deviation is zero.
        let mean = first + runs.iter().map(|run| run - first).sum::<f64>() / count as f64;
        let squares: f64 = runs.iter().map(|run| (run - mean).powi(2)).sum();
        let deviation = if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 };
        Some(Self { median, mean, deviation, min: sorted[0], max: sorted[count - 1], runs: count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_known_runs_is_right() {
        let summary = Summary::of(&[4.0, 2.0, 9.0, 4.0, 5.0, 4.0, 7.0, 5.0]).unwrap();
        assert_eq!(summary.median, 4.5);
        assert_eq!(summary.mean, 5.0);
        assert!((summary.deviation - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!((summary.min, summary.max, summary.runs), (2.0, 9.0, 8));
    }

    #[test]
    fn the_median_of_an_odd_number_of_runs_is_the_middle_one() {
        assert_eq!(Summary::of(&[10.0, -1.0, 3.0]).unwrap().median, 3.0);
    }

    #[test]
    fn one_run_has_no_deviation_and_no_run_has_no_summary() {
        let one = Summary::of(&[0.1]).unwrap();
        assert_eq!((one.median, one.mean, one.deviation, one.runs), (0.1, 0.1, 0.0, 1));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn equal_runs_have_a_deviation_of_exactly_zero() {
        assert_eq!(Summary::of(&[0.1; 7]).unwrap().deviation, 0.0);
    }
}
