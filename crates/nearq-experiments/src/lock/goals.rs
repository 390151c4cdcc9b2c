//! Turns samples into figures; also has the goals.

use super::contestants::{
    AUTO, HQ_CACHES, HQ_SOCKETS, OSQ, PARKING_LOT, PLAIN, PTHREAD, PTHREAD_ADAPTIVE, QSPINLOCK, STD,
};
use super::load::{CpuPlacement, Load, Sample, scenario};
use super::published;
use nearq_report::metric::{self, Metric};
use nearq_report::{Collector, Row, Summary, find};
use serde::Serialize;
use std::ops::RangeInclusive;

// Turns samples into numbers: the figures of each contestant, and of one contestant compared with another.

/// A metric, and how it is read off a sample.
type Reading<T> = (Metric, fn(&Sample) -> T);

/// What is read off a sample.
const OF_A_SAMPLE: [Reading<Option<f64>>; 6] = [
    (metric::ACQUISITIONS_PER_SECOND, |sample| Some(sample.per_second())),
    (metric::FAIRNESS, Sample::fairness),
    (metric::WAIT_P50, |sample| Some(sample.waits.quantile_us(0.5))),
    (metric::WAIT_P99, |sample| Some(sample.waits.quantile_us(0.99))),
    (metric::WAIT_P9999, |sample| Some(sample.waits.quantile_us(0.9999))),
    (metric::WAIT_MAX, |sample| Some(sample.waits.longest_us())),
];

/// Adds one run of a scenario: the figures of each, and the ratios within the run.
pub(super) fn collect(
    collector: &mut Collector,
    load: Load,
    writers: usize,
    samples: &[(&'static str, Sample)],
) {
    let scenario = scenario(load, writers);
    for (row, sample) in samples {
        for (metric, read) in OF_A_SAMPLE {
            if let Some(value) = read(sample) {
                collector.add(&scenario, row, metric, value);
            }
        }
    }
    let sample = |row| samples.iter().find(|(of, _)| *of == row).map(|(_, sample)| sample);
    let mut add = |row: &str, metric, value: Option<f64>| {
        // A run in which the other lock was never taken has no ratio.
        if let Some(value) = value.filter(|value| value.is_finite()) {
            collector.add(&scenario, row, metric, value);
        }
    };
    let rate = |row| sample(row).map(Sample::per_second);
    for (row, _) in samples {
        let base = published::base(row).and_then(rate);
        let gain = rate(row).zip(base).map(|(of, base)| (of / base - 1.0) * 100.0);
        add(row, metric::GAIN, gain);
    }
    let ratios: [Reading<f64>; 3] = [
        (metric::ACQUISITIONS_RATIO, Sample::per_second),
        (metric::WAIT_RATIO_P9999, |sample| sample.waits.quantile_us(0.9999)),
        (metric::WAIT_RATIO_MAX, |sample| sample.waits.longest_us()),
    ];
    for other in [STD, PARKING_LOT, PTHREAD, PTHREAD_ADAPTIVE] {
        let Some((ours, theirs)) = sample(AUTO).zip(sample(other)) else { continue };
        for (metric, read) in ratios {
            add(&beside(other), metric, Some(read(ours) / read(theirs)));
        }
    }
}

/// The row of the ratios of our mutex, with its default settings, to another lock.
pub(super) fn beside(other: &str) -> String {
    format!("{AUTO} / {other}")
}

/// Puts the published gains beside those of the rows.
pub(super) fn publish(
    collector: &mut Collector,
    machine: &str,
    scenarios: impl Iterator<Item = (Load, usize)>,
    rows: &[&str],
) {
    for (load, writers) in scenarios {
        for row in rows {
            if let Some(gain) = published::gain(machine, load, writers, row) {
                collector.publish(&scenario(load, writers), row, metric::GAIN, gain);
            }
        }
    }
}

/// The coefficient of variation over the runs, in percent.
pub(super) fn variation(summary: &Summary) -> f64 {
    if summary.mean == 0.0 { 0.0 } else { summary.deviation / summary.mean * 100.0 }
}

/// The runs of a number.
pub(super) fn of(
    rows: &[Row],
    load: Load,
    writers: usize,
    row: &str,
    metric: Metric,
) -> Option<Summary> {
    find(rows, &scenario(load, writers), row, metric).map(|row| row.summary)
}

// The goals that the mutex has, and whether this run reached them.

/// A goal, and what was reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// The load that it is about.
    pub load: &'static str,
    /// What is compared.
    pub what: String,
    /// The figure; for several numbers of writers, the worst.
    pub reached: f64,
    /// The writers of that figure; `None` if it is a mean over all numbers of writers.
    pub writers: Option<usize>,
    /// What the figure must be at least, or at most.
    pub goal: f64,
    /// Whether that bound is an upper one.
    pub at_most: bool,
    /// The unit, for people: nothing for a ratio.
    pub unit: &'static str,
    /// Whether the goal is reached.
    pub met: bool,
}

/// The one thread's share of the faster of std and parking_lot.
const ONE_THREAD: f64 = 0.95;
/// For contended locks: the numbers of writers for which there are goals.
const CONTENDED: RangeInclusive<usize> = 2..=64;
/// The least ratio for each number of writers, and the least geometric mean of the ratios.
const EACH: f64 = 0.95;
const MEAN: f64 = 1.0;
/// The most of the fairness.
const FAIRNESS: f64 = 0.6;
/// The largest allowed ratio of the long waits to those of the better lock.
const WAITS: f64 = 0.5;
/// The least ratio to the C library's.
const OF_PTHREAD: f64 = 1.0;
/// Simulated: the document's gains in percent over the kernel's lock, by writers; ours are over the same queue, `OsqLock`.
const GAINS: [(usize, f64); 4] = [(16, 72.0), (32, 73.0), (48, 80.0), (64, 91.0)];
/// Simulated: what may be lost to one queue with few writers, and with more of them, in percent.
const FEW: (usize, f64) = (8, -1.0);
const LOSS: f64 = -5.0;
/// Simulated: how far a gain of the HQ-spinlock may be from the published one, as a share of it, and at least in points of percent.
const SHARE: f64 = 0.35;
const POINTS: f64 = 5.0;

/// The rows that the goals beside one queue compare.
pub(super) const BESIDE_ONE_QUEUE: [&str; 3] = [AUTO, PLAIN, OSQ];

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
            let summary = of(self.rows, self.load, writers, row, metric)?;
            Some((writers, summary.median))
        };
        self.writers.iter().filter_map(median)
    }

    /// The median ratios of our mutex to the other locks; for each number of writers the worst ratio, which is the ratio to the better
    /// lock. The medians decide which lock is the better one: the better lock of each single run would often be only the luckier one,
    /// especially if the figures vary much.
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

    /// Against one queue on a simulated machine: that of our plain mutex, and the kernel's.
    fn beside_one_queue(&self) -> Vec<Goal> {
        let goal = |what, (writers, gain), least| Goal {
            unit: " %",
            ..self.goal(what, (Some(writers), gain), least, false)
        };
        let plain = self.medians(AUTO, metric::GAIN).map(|(writers, gain)| {
            let least = if writers <= FEW.0 { FEW.1 } else { LOSS };
            goal("auto over plain", (writers, gain), least)
        });
        let rates = |row| self.medians(row, metric::ACQUISITIONS_PER_SECOND);
        let osq = rates(AUTO).filter_map(|(writers, rate)| {
            let (_, of_osq) = rates(OSQ).find(|(of, _)| *of == writers)?;
            let (_, least) = GAINS.iter().find(|(of, _)| *of == writers)?;
            Some(goal("auto over OsqLock", (writers, (rate / of_osq - 1.0) * 100.0), *least))
        });
        plain.chain(osq).collect()
    }

    /// The HQ-spinlock against the kernel's spinlock: as far as was published, in both directions, and in the same order.
    fn as_published(&self, machine: &str) -> Vec<Goal> {
        let goal = |what: String, (writers, gain), bound, at_most| Goal {
            unit: " %",
            ..self.goal(&what, (Some(writers), gain), bound, at_most)
        };
        let gains = |row| self.medians(row, metric::GAIN);
        let mut goals = Vec::new();
        for row in [HQ_SOCKETS, HQ_CACHES] {
            for (writers, gain) in gains(row) {
                let Some(told) = published::gain(machine, self.load, writers, row) else {
                    continue;
                };
                let off = (told.abs() * SHARE).max(POINTS);
                for (bound, at_most) in [(told - off, false), (told + off, true)] {
                    let what = format!("{row} over {QSPINLOCK}, as published");
                    goals.push(goal(what, (writers, gain), bound, at_most));
                }
            }
        }
        for (writers, sockets) in gains(HQ_SOCKETS) {
            let caches = gains(HQ_CACHES).find(|(of, _)| *of == writers);
            let told = published::gain(machine, self.load, writers, HQ_CACHES);
            if let (Some((_, caches)), Some(_)) = (caches, told) {
                let what = format!("{HQ_CACHES} over {HQ_SOCKETS}");
                let gain = ((100.0 + caches) / (100.0 + sockets) - 1.0) * 100.0;
                goals.push(goal(what, (writers, gain), 0.0, false));
            }
        }
        goals
    }
}

/// `None` if there are no ratios.
fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (logarithms / ratios.len() as f64).exp())
}

/// Compares medians with the goals; goals whose rows are missing are left out. `simulated` is the simulated machine. On a simulated machine there are goals only for the
/// short section and compact placement, on the real one only for torture.
pub(super) fn judge(
    rows: &[Row],
    scenarios: impl Iterator<Item = (Load, usize)>,
    simulated: Option<&str>,
    place: CpuPlacement,
) -> Vec<Goal> {
    let scenarios: Vec<(Load, usize)> = scenarios.collect();
    let mut goals = Vec::new();
    for load in [Load::Short, Load::Long] {
        let writers = scenarios.iter().filter(|(of, _)| *of == load).map(|(_, writers)| *writers);
        let figures = Figures { rows, load, writers: writers.collect() };
        match simulated {
            None => goals.extend(figures.beside_others()),
            Some(machine) if load == Load::Short && place == CpuPlacement::Compact => {
                goals.extend(figures.beside_one_queue());
                goals.extend(figures.as_published(machine));
            }
            Some(_) => {}
        }
    }
    goals
}

#[cfg(test)]
#[path = "tests/figures.rs"]
mod figures_tests;

#[cfg(test)]
#[path = "tests/goals.rs"]
mod goals_tests;
