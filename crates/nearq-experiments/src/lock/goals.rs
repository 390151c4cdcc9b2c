//! The goals that the mutex has, and whether this run reached them.

use super::contestant::{AUTO, PARKING_LOT, PTHREAD, PTHREAD_ADAPTIVE, STD};
use super::figures::{self, beside};
use super::load::{Load, Place};
use nearq_report::Row;
use nearq_report::metric::{self, Metric};
use serde::Serialize;
use std::ops::RangeInclusive;

/// A goal, and what was reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// The load that it is about.
    pub load: &'static str,
    /// What is compared.
    pub what: String,
    /// The figure; of several numbers of writers the worst.
    pub reached: f64,
    /// The writers of that figure; none where it is a mean over all.
    pub writers: Option<usize>,
    /// What the figure shall be at least, or at most.
    pub goal: f64,
    /// Whether that is the most it may be.
    pub at_most: bool,
    /// The unit, for people: nothing for a ratio.
    pub unit: &'static str,
    /// Whether the goal is reached.
    pub met: bool,
}

/// The one thread's share of the faster of std and parking_lot.
const ONE_THREAD: f64 = 0.95;
/// Where more than one want it: the numbers of them for which there are goals.
const CONTENDED: RangeInclusive<usize> = 2..=64;
/// The least ratio for each number of them, and the least geometric mean of the ratios.
const EACH: f64 = 0.95;
const MEAN: f64 = 1.0;
/// The most of the fairness.
const FAIRNESS: f64 = 0.6;
/// The most of the long waits, as a ratio to the better one's.
const WAITS: f64 = 0.5;
/// The least ratio to the C library's.
const OF_PTHREAD: f64 = 1.0;
/// Simulated: the document's gains in percent, by writers.
const GAINS: [(usize, f64); 4] = [(16, 72.0), (32, 73.0), (48, 80.0), (64, 91.0)];
/// Simulated: what may be lost with so few writers, in percent.
const FEW: (usize, f64) = (8, -1.0);

/// A load, and the figures of it.
struct Figures<'f> {
    rows: &'f [Row],
    load: Load,
    writers: Vec<usize>,
}

impl Figures<'_> {
    /// The medians of a metric of a row, with their writers.
    fn medians(&self, row: &str, metric: Metric) -> impl Iterator<Item = (usize, f64)> {
        let median = move |&writers: &usize| {
            let summary = figures::of(self.rows, self.load, writers, row, metric)?;
            Some((writers, summary.median))
        };
        self.writers.iter().filter_map(median)
    }

    /// The median ratios of ours to the others, for each number of writers the worst: the ratio to the better of them. Which one that is
    /// is decided by the medians; the better one of each run would be one that was lucky, and the more so the more figures
    /// vary.
    fn ratios(&self, others: &[&str], metric: Metric, at_most: bool) -> Vec<(usize, f64)> {
        let mut ratios: Vec<(usize, f64)> = Vec::new();
        for other in others {
            for (writers, ratio) in self.medians(&beside(other), metric) {
                match ratios.iter_mut().find(|(of, _)| *of == writers) {
                    Some((_, worst)) if at_most => *worst = worst.max(ratio),
                    Some((_, worst)) => *worst = worst.min(ratio),
                    None => ratios.push((writers, ratio)),
                }
            }
        }
        ratios
    }

    fn goal(
        &self,
        what: &str,
        (writers, reached): (Option<usize>, f64),
        goal: f64,
        at_most: bool,
    ) -> Goal {
        let met = if at_most { reached <= goal } else { reached >= goal };
        let (load, what) = (self.load.name(), what.to_owned());
        Goal { load, what, reached, writers, goal, at_most, unit: "", met }
    }

    /// The worst number of writers decides.
    fn contended(
        &self,
        what: &str,
        figures: &[(usize, f64)],
        goal: f64,
        at_most: bool,
    ) -> Option<Goal> {
        let figures = figures.iter().filter(|(writers, _)| CONTENDED.contains(writers));
        let worse = |a: &&(usize, f64), b: &&(usize, f64)| a.1.total_cmp(&b.1);
        let worst = if at_most { figures.max_by(worse) } else { figures.min_by(worse) };
        worst.map(|&(writers, figure)| self.goal(what, (Some(writers), figure), goal, at_most))
    }

    /// Against the other locks, which run on the real machine alone.
    fn beside_others(&self) -> Vec<Goal> {
        let both = [STD, PARKING_LOT];
        let rates = |others: &[&str]| self.ratios(others, metric::ACQUISITIONS_RATIO, false);
        let better = rates(&both);
        let one = better.iter().find(|(writers, _)| *writers == 1).map(|&(_, reached)| {
            let what = "one thread, to the faster of std and parking_lot";
            self.goal(what, (Some(1), reached), ONE_THREAD, false)
        });
        let contended = better.iter().filter(|(writers, _)| CONTENDED.contains(writers));
        let ratios: Vec<f64> = contended.map(|(_, ratio)| *ratio).collect();
        let mean = geometric_mean(&ratios).map(|mean| {
            let what = "2 to 64 threads, to the better of them, geometric mean";
            self.goal(what, (None, mean), MEAN, false)
        });
        let each = "2 to 64 threads, to the better of them, each";
        let fairness: Vec<_> = self.medians(AUTO, metric::FAIRNESS).collect();
        let longest = self.ratios(&both, metric::WAIT_RATIO_MAX, true);
        let p9999 = self.ratios(&both, metric::WAIT_RATIO_P9999, true);
        let goals = [
            one,
            self.contended(each, &better, EACH, false),
            mean,
            self.contended("fairness", &fairness, FAIRNESS, true),
            self.contended("longest wait, to the lesser of theirs", &longest, WAITS, true),
            self.contended("p99.99 of the waits, likewise", &p9999, WAITS, true),
            self.contended("to pthread normal", &rates(&[PTHREAD]), OF_PTHREAD, false),
            self.contended("to pthread adaptive", &rates(&[PTHREAD_ADAPTIVE]), OF_PTHREAD, false),
        ];
        goals.into_iter().flatten().collect()
    }

    /// Against our plain mutex, on a simulated machine.
    fn beside_plain(&self) -> Vec<Goal> {
        let goal = |(writers, gain): (usize, f64)| {
            let of_document = GAINS.iter().find(|(of, _)| *of == writers).map(|(_, gain)| *gain);
            let least = of_document.or((writers <= FEW.0).then_some(FEW.1))?;
            let goal = self.goal("auto over plain", (Some(writers), gain), least, false);
            Some(Goal { unit: " %", ..goal })
        };
        self.medians(AUTO, metric::GAIN).filter_map(goal).collect()
    }
}

/// None of no ratios.
fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (logarithms / ratios.len() as f64).exp())
}

/// Compares medians with the goals; goals whose rows are missing are left out. On a simulated machine there are goals for the short
/// section and compact placement alone, on the real one for torture.
pub(super) fn judge(
    rows: &[Row],
    scenarios: impl Iterator<Item = (Load, usize)>,
    simulated: bool,
    place: Place,
) -> Vec<Goal> {
    let scenarios: Vec<(Load, usize)> = scenarios.collect();
    let mut goals = Vec::new();
    for load in [Load::Short, Load::Long] {
        let writers = scenarios.iter().filter(|(of, _)| *of == load).map(|(_, writers)| *writers);
        let figures = Figures { rows, load, writers: writers.collect() };
        if !simulated {
            goals.extend(figures.beside_others());
        } else if load == Load::Short && place == Place::Compact {
            goals.extend(figures.beside_plain());
        }
    }
    goals
}

#[cfg(test)]
mod tests {
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
    fn the_worst_number_of_writers_and_the_medians_decide() {
        let rates = metric::ACQUISITIONS_RATIO;
        let (to_std, to_other) = (beside(STD), beside(PARKING_LOT));
        let rows = rows(&[
            (&to_std, 1, rates, [0.94, 0.96, 0.1]),
            // The better one is std in two of three runs, and so by the medians; not the better one of each run.
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
        let goals = judge(&rows, scenarios.into_iter(), false, Place::Spread);
        let short: Vec<_> =
            goals.iter().map(|goal| (goal.reached, goal.writers, goal.met)).collect();
        assert_eq!(short.len(), 6, "{goals:?}");
        assert_eq!(short[0], (0.94, Some(1), false));
        assert_eq!(short[1], (0.97, Some(2), true));
        assert!((short[2].0 - (0.97_f64 * 1.2).sqrt()).abs() < 1e-12 && short[2].2);
        assert_eq!(short[3..], [(0.6, Some(8), true), (0.7, Some(2), false), (1.0, Some(8), true)]);
        assert_eq!(judge(&[], scenarios.into_iter(), false, Place::Compact), []);
    }

    #[test]
    fn gains_are_judged_where_the_document_has_some_and_losses_where_writers_are_few() {
        let gains = [(1, 0.0), (4, -0.9), (8, -1.1), (12, -50.0), (16, 72.0), (64, 90.9)];
        let figures = gains.map(|(writers, gain)| (AUTO, writers, metric::GAIN, [gain; 3]));
        let rows = rows(&figures);
        let scenarios = || gains.iter().map(|(writers, _)| (Load::Short, *writers));
        let goals = judge(&rows, scenarios(), true, Place::Compact);
        let short: Vec<_> =
            goals.iter().map(|goal| (goal.writers.unwrap(), goal.goal, goal.met)).collect();
        assert_eq!(
            short,
            [
                (1, -1.0, true),
                (4, -1.0, true),
                (8, -1.0, false),
                (16, 72.0, true),
                (64, 91.0, false)
            ]
        );
        assert_eq!(judge(&rows, scenarios(), true, Place::Spread), [], "shown without a goal");
    }

    #[test]
    fn the_geometric_mean_of_known_ratios() {
        assert!((geometric_mean(&[2.0, 0.5, 1.0]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[]), None);
    }
}
