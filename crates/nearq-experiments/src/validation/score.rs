//! Which figures of two runs are compared, and how the comparison is summarised.

use nearq_report::{Report, rounded};
use serde::{Deserialize, Serialize};

/// Metrics that are compared: rates, times and ratios that do not depend on how long a run lasts. Longest waits, counts and shares of the CPU
/// are not among them.
const METRICS: [&str; 11] = [
    "acquisitions_per_second",
    "wait_us_p50",
    "gain_percent",
    "ns_per_item",
    "queue_latency_us_p50",
    "start_latency_us_p50",
    "ratio_to_ideal",
    "latency_ms_p50",
    "latency_ms_p99",
    "latency_ms_top20",
    "throughput_mib_s",
];

/// Metrics whose sign counts, and not their ratio.
const SIGNED: [&str; 1] = ["gain_percent"];

/// By how much a simulated figure may lie beyond the quartiles, in percent: the goal of the simulator for that experiment.
pub(super) fn tolerance_percent(experiment: &str) -> u32 {
    if experiment == "blocking" { 10 } else { 25 }
}

/// One figure, measured and simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The scenario.
    pub scenario: String,
    /// The row.
    pub row: String,
    /// The metric's name.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// The median that was measured.
    pub measured: f64,
    /// The first and the third quartile that were measured.
    pub quartiles: [f64; 2],
    /// The median that was simulated.
    pub simulated: f64,
    /// Whether the simulated figure is inside the band.
    pub inside: bool,
}

impl Compared {
    /// What it is, in one text.
    pub fn name(&self) -> String {
        format!("{}, {}, {}", self.scenario, self.row, self.metric)
    }

    fn is_signed(&self) -> bool {
        SIGNED.contains(&self.metric.as_str())
    }

    /// Simulated by measured, if both are positive and the metric has no sign.
    pub fn ratio(&self) -> Option<f64> {
        let positive = self.measured > 0.0 && self.simulated > 0.0 && !self.is_signed();
        positive.then(|| self.simulated / self.measured)
    }
}

/// The figures that both reports have.
pub(super) fn compare(experiment: &str, measured: &Report, simulated: &Report) -> Vec<Compared> {
    let tolerance = f64::from(tolerance_percent(experiment)) / 100.0;
    let both = measured.rows.iter().zip(&measured.quartiles).filter_map(|(row, quartiles)| {
        let is_same = |other: &&nearq_report::Row| {
            (&other.scenario, &other.row, other.metric) == (&row.scenario, &row.row, row.metric)
        };
        let other = simulated.rows.iter().find(is_same)?;
        if !METRICS.contains(&row.metric) {
            return None;
        }
        let figure = other.summary.median;
        let [low, high] = *quartiles;
        let slack = |quartile: f64| quartile.abs() * tolerance;
        Some(Compared {
            scenario: row.scenario.clone(),
            row: row.row.clone(),
            metric: row.metric.into(),
            unit: row.unit.into(),
            measured: row.summary.median,
            quartiles: *quartiles,
            simulated: figure,
            inside: (low - slack(low)..=high + slack(high)).contains(&figure),
        })
    });
    both.collect()
}

/// A summary of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// How many figures are inside the band, and of how many.
    pub inside: [usize; 2],
    /// The geometric mean of the ratios.
    pub geometric_mean: Option<f64>,
    /// The geometric mean of the error factors: of each ratio or its inverse, whichever is larger.
    pub error_factor: Option<f64>,
    /// The figure with the largest error factor, and its ratio.
    pub worst: Option<(String, f64)>,
    /// How many differences have the same sign, and of how many: of all pairs of rows of a scenario whose measured quartiles do not overlap,
    /// and of all gains whose quartiles do not contain zero.
    pub signs: [usize; 2],
    /// How far the order of the rows agrees: Spearman's rank correlation within each metric with three rows or more, mean by rows.
    pub rank_correlation: Option<f64>,
}

impl Score {
    /// The summary of these figures.
    pub fn of(compared: &[Compared]) -> Self {
        let ratios: Vec<(String, f64)> =
            compared.iter().filter_map(|one| Some((one.name(), one.ratio()?))).collect();
        let mean = |of: fn(f64) -> f64| {
            let sum: f64 = ratios.iter().map(|(_, ratio)| of(ratio.ln())).sum();
            (!ratios.is_empty()).then(|| (sum / ratios.len() as f64).exp())
        };
        let error = |ratio: f64| ratio.ln().abs();
        Self {
            inside: [compared.iter().filter(|one| one.inside).count(), compared.len()],
            geometric_mean: mean(|ln| ln),
            error_factor: mean(f64::abs),
            worst: ratios.iter().max_by(|a, b| error(a.1).total_cmp(&error(b.1))).cloned(),
            signs: signs(compared),
            rank_correlation: rank_correlation(compared),
        }
    }

    /// The summary in one line.
    pub fn line(&self) -> String {
        let known = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
        let worst = self
            .worst
            .as_ref()
            .map_or("-".into(), |(name, ratio)| format!("{name}: {} times", rounded(*ratio)));
        format!(
            "Geometric mean of the ratios {}, error factor {}; worst: {worst}; signs right: {} of {}; rank correlation {}; inside the band: {} of {}.",
            known(self.geometric_mean),
            known(self.error_factor),
            self.signs[0],
            self.signs[1],
            known(self.rank_correlation),
            self.inside[0],
            self.inside[1],
        )
    }
}

/// How many differences have the right sign, and of how many.
fn signs(compared: &[Compared]) -> [usize; 2] {
    let [mut right, mut all] = [0, 0];
    let mut count = |measured: f64, simulated: f64| {
        all += 1;
        right += usize::from(measured * simulated > 0.0);
    };
    for (at, a) in compared.iter().enumerate() {
        if a.is_signed() {
            if a.quartiles[0] > 0.0 || a.quartiles[1] < 0.0 {
                count(a.measured, a.simulated);
            }
            continue;
        }
        let beside = |b: &&Compared| (&a.scenario, &a.metric) == (&b.scenario, &b.metric);
        for b in compared[at + 1..].iter().filter(beside) {
            let apart = a.quartiles[0] > b.quartiles[1] || b.quartiles[0] > a.quartiles[1];
            if apart {
                count(a.measured - b.measured, a.simulated - b.simulated);
            }
        }
    }
    [right, all]
}

/// The rank of each number; equal numbers have the mean of their ranks.
fn ranks(numbers: &[f64]) -> Vec<f64> {
    let rank = |number: &f64| {
        let below = numbers.iter().filter(|other| *other < number).count();
        let equal = numbers.iter().filter(|other| *other == number).count();
        below as f64 + (equal as f64 - 1.0) / 2.0
    };
    numbers.iter().map(rank).collect()
}

/// Spearman's coefficient; none if one side has no order.
fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = (ranks(a), ranks(b));
    let middle = (a.len() as f64 - 1.0) / 2.0;
    let product = |x: &[f64], y: &[f64]| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - middle) * (y - middle)).sum()
    };
    let spread = (product(&a, &a) * product(&b, &b)).sqrt();
    (spread > 0.0).then(|| product(&a, &b) / spread)
}

/// The rows of a metric from which on their order says something.
const LEAST_ROWS: usize = 3;

fn rank_correlation(compared: &[Compared]) -> Option<f64> {
    let [mut sum, mut rows] = [0.0, 0.0];
    for metric in METRICS {
        let of: Vec<&Compared> = compared.iter().filter(|one| one.metric == metric).collect();
        if of.len() < LEAST_ROWS {
            continue;
        }
        let side = |of: &[&Compared], figure: fn(&Compared) -> f64| -> Vec<f64> {
            of.iter().map(|one| figure(one)).collect()
        };
        let correlation = spearman(&side(&of, |one| one.measured), &side(&of, |one| one.simulated));
        if let Some(correlation) = correlation {
            sum += correlation * of.len() as f64;
            rows += of.len() as f64;
        }
    }
    (rows > 0.0).then(|| sum / rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(row: &str, metric: &str, measured: f64, simulated: f64) -> Compared {
        Compared {
            scenario: "short 2".into(),
            row: row.into(),
            metric: metric.into(),
            unit: String::new(),
            measured,
            quartiles: [measured - 1.0, measured + 1.0],
            simulated,
            inside: true,
        }
    }

    #[test]
    fn the_summary_of_known_figures_is_right() {
        let compared = [
            one("a", "ns_per_item", 100.0, 200.0),
            one("b", "ns_per_item", 200.0, 100.0),
            one("c", "ns_per_item", 400.0, 1600.0),
            Compared { inside: false, ..one("c", "gain_percent", 10.0, -5.0) },
            // Inside the noise: its sign does not count.
            one("d", "gain_percent", 0.5, -5.0),
        ];
        let score = Score::of(&compared);
        assert_eq!(score.inside, [4, 5]);
        assert!((score.geometric_mean.unwrap() - 4.0_f64.powf(1.0 / 3.0)).abs() < 1e-9);
        assert!((score.error_factor.unwrap() - 16.0_f64.powf(1.0 / 3.0)).abs() < 1e-9);
        assert_eq!(score.worst, Some(("short 2, c, ns_per_item".into(), 4.0)));
        // a < c and b < c are right, a < b is wrong, and so is the gain.
        assert_eq!(score.signs, [2, 4]);
        assert_eq!(score.rank_correlation, Some(0.5));
        let line = score.line();
        for part in ["1.59", "2.52", "4", "2 of 4", "0.50", "4 of 5"] {
            assert!(line.contains(part), "{part} is missing from {line}");
        }
        assert!(!line.contains('\n'));
        assert_eq!(Score::of(&[]).geometric_mean, None);
    }

    #[test]
    fn equal_numbers_share_their_rank() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0]), [1.5, 0.0, 1.5]);
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), Some(-1.0));
        assert_eq!(spearman(&[1.0, 1.0, 1.0], &[3.0, 2.0, 1.0]), None);
    }
}
