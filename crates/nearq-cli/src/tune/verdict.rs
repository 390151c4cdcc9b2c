//! Draws the conclusion from a few rounds: which configuration is better than the one in effect, or why that is not known.

use super::statistics::{chance, median, spread};

/// What to improve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Goal {
    /// Items completed per second.
    Throughput,
    /// The 99th percentile of the time from queueing to start.
    Latency,
}

/// The significance level: a difference that is more likely to be chance is not reported.
pub(super) const LEVEL: f64 = 0.05;
/// The least number of items for a measurement to be meaningful.
const FEWEST_ITEMS: f64 = 100.0;
/// If a queue uses less of its CPUs than this, and nothing waits, it does not limit the throughput.
const BUSY: f64 = 0.5;
/// If the first configuration scatters more than this, the load itself varies.
const STEADY: f64 = 0.1;

impl Goal {
    /// The least difference that is worth a change. Times are measured in steps of 6 %.
    pub(super) fn least_gain(self) -> f64 {
        match self {
            Goal::Throughput => 0.02,
            Goal::Latency => 0.1,
        }
    }
}

/// The measurement of one configuration in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Measurement {
    /// Completed items.
    pub(super) items: u64,
    /// The same per second.
    pub(super) items_per_second: f64,
    /// CPU time of the queue's workers per item, in microseconds.
    pub(super) cpu_us_per_item: Option<f64>,
    /// The median time from queueing to start, in microseconds.
    pub(super) wait_us_p50: Option<f64>,
    /// The 99th percentile.
    pub(super) wait_us_p99: Option<f64>,
    /// The share of the CPU time of the runtime's CPUs that the queue's workers used.
    pub(super) busy: f64,
    /// Items that waited or ran at the end, per CPU.
    pub(super) backlog: f64,
}

impl Measurement {
    /// The value of the goal; more is better.
    fn value(&self, goal: Goal) -> Option<f64> {
        match goal {
            Goal::Throughput => Some(self.items_per_second),
            Goal::Latency => self.wait_us_p99.map(|time| -time),
        }
    }

    /// How much better this figure is than another figure, as a fraction of the other figure.
    fn gain(&self, control: &Measurement, goal: Goal) -> Option<f64> {
        match goal {
            Goal::Throughput => Some(self.items_per_second / control.items_per_second - 1.0),
            Goal::Latency => Some(1.0 - self.wait_us_p99? / control.wait_us_p99?),
        }
        .filter(|gain| gain.is_finite())
    }
}

/// How a configuration compares with the one in effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Comparison {
    /// How much better it is: the median of all rounds, each compared with the one in effect in the same round.
    pub(super) gain: f64,
    /// The least and the greatest gain of a round.
    pub(super) range: (f64, f64),
    /// The probability that chance alone makes one of all candidates that much better.
    pub(super) chance: f64,
}

/// The conclusion.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// This configuration is better: its number, and the comparison.
    Better(usize, Comparison),
    /// None is significantly better than the one in effect.
    Same,
    /// Too few items were completed to tell: how many in a measurement.
    TooFewItems(u64),
    /// There were too few rounds to tell: how many are needed.
    TooFewRounds(usize),
}

/// The measurements of all configurations, by round; the first configuration is the configuration in effect.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds(pub(super) Vec<Vec<Measurement>>);

impl Rounds {
    /// One value of a configuration, from all rounds that have it.
    pub(super) fn of(
        &self,
        configuration: usize,
        number: impl Fn(&Measurement) -> Option<f64>,
    ) -> Vec<f64> {
        self.0.iter().filter_map(|round| number(&round[configuration])).collect()
    }

    /// How a configuration compares with the one in effect; none if either has no figures.
    pub(super) fn compare(&self, configuration: usize, goal: Goal) -> Option<Comparison> {
        let value = |which| self.of(which, |measurement| measurement.value(goal));
        let pairs = self.0.iter().map(|round| (&round[configuration], &round[0]));
        let gains: Vec<f64> = pairs.filter_map(|(one, control)| one.gain(control, goal)).collect();
        let candidates = self.0.first()?.len() - 1;
        Some(Comparison {
            gain: median(&gains)?,
            range: (
                gains.iter().copied().fold(f64::INFINITY, f64::min),
                gains.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ),
            chance: (chance(&value(configuration), &value(0)) * candidates as f64).min(1.0),
        })
    }

    /// The conclusion: the configuration with the greatest gain among those that are significantly better, and by enough.
    pub(super) fn verdict(&self, goal: Goal) -> Verdict {
        let Some(first) = self.0.first() else { return Verdict::TooFewRounds(1) };
        let candidates = first.len() - 1;
        let items = self.of(0, |measurement| Some(measurement.items as f64));
        let items = median(&items).unwrap_or(0.0);
        if items < FEWEST_ITEMS {
            return Verdict::TooFewItems(items as u64);
        }
        let needed = rounds_needed(candidates);
        if self.0.len() < needed {
            return Verdict::TooFewRounds(needed);
        }
        let better = |number: usize| {
            let comparison = self.compare(number, goal)?;
            let is = comparison.chance <= LEVEL && comparison.gain >= goal.least_gain();
            is.then_some((number, comparison))
        };
        let best = (1..=candidates)
            .filter_map(better)
            .max_by(|(_, one), (_, other)| one.gain.total_cmp(&other.gain));
        best.map_or(Verdict::Same, |(number, comparison)| Verdict::Better(number, comparison))
    }

    /// Whether the queue runs everything without delay, so that its throughput depends on the program and not on the scope.
    pub(super) fn idle_part(&self) -> Option<f64> {
        let busy = median(&self.of(0, |measurement| Some(measurement.busy)))?;
        let backlog = median(&self.of(0, |measurement| Some(measurement.backlog)))?;
        (busy < BUSY && backlog <= 1.0).then_some(1.0 - busy)
    }

    /// How much the load itself varies, if that is much: the spread of the configuration in effect, as a fraction of its median.
    pub(super) fn unsteady(&self, goal: Goal) -> Option<f64> {
        let values = self.of(0, |measurement| measurement.value(goal));
        let part = spread(&values)? / median(&values)?.abs();
        (part > STEADY).then_some(part)
    }
}

/// How many rounds it takes until the clearest result (every measurement of a candidate above every one of the control) is significant,
/// with this many candidates.
pub(super) fn rounds_needed(candidates: usize) -> usize {
    let clear = |rounds: usize| {
        let (high, low) = (vec![1.0; rounds], vec![0.0; rounds]);
        chance(&high, &low) * candidates as f64 <= LEVEL
    };
    let mut rounds = 1;
    while !clear(rounds) {
        rounds += 1;
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(items_per_second: f64, p99: f64) -> Measurement {
        Measurement {
            items: 1000,
            items_per_second,
            wait_us_p99: Some(p99),
            busy: 0.9,
            ..Measurement::default()
        }
    }

    /// Rounds in which configuration number n is `gains[n]` times as fast as the control; each figure varies by up to `noise`.
    fn rounds(count: usize, gains: &[f64], noise: f64, seed: u64) -> Rounds {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut one = |gain: &f64| {
            let scatter = 1.0 + noise * (2.0 * random.f64() - 1.0);
            measured(1e6 * gain * scatter, 50.0 / gain * scatter)
        };
        Rounds((0..count).map(|_| gains.iter().map(&mut one).collect()).collect())
    }

    #[test]
    fn a_terrible_candidate_does_not_hide_the_best_one() {
        for seed in 0..50 {
            let rounds = rounds(5, &[1.0, 0.2, 1.15, 1.0, 1.1, 0.9], 0.02, seed);
            for goal in [Goal::Throughput, Goal::Latency] {
                let Verdict::Better(2, found) = rounds.verdict(goal) else {
                    panic!("seed {seed}: {:?}", rounds.verdict(goal));
                };
                assert!((0.08..0.22).contains(&found.gain), "{found:?}");
                assert!(found.range.0 <= found.gain && found.gain <= found.range.1);
                assert_eq!(found.chance, 5.0 / 252.0);
            }
        }
    }

    #[test]
    fn equal_candidates_give_no_recommendation() {
        let wrong = (0..200).filter(|&seed| {
            let rounds = rounds(6, &[1.0; 7], 0.1, seed);
            rounds.verdict(Goal::Throughput) != Verdict::Same
        });
        let wrong = wrong.count();
        assert!(wrong <= 10, "{wrong} of 200");
    }

    #[test]
    fn a_negligible_difference_gives_no_recommendation() {
        let rounds = rounds(10, &[1.0, 1.01], 0.001, 5);
        assert!(rounds.compare(1, Goal::Throughput).unwrap().chance < 0.001);
        assert_eq!(rounds.verdict(Goal::Throughput), Verdict::Same);
    }

    #[test]
    fn too_few_rounds_and_items_are_reported() {
        assert_eq!(Rounds::default().verdict(Goal::Latency), Verdict::TooFewRounds(1));
        let mut rounds = rounds(3, &[1.0, 1.5], 0.01, 5);
        assert_eq!(
            rounds.verdict(Goal::Throughput),
            Verdict::Better(1, rounds.compare(1, Goal::Throughput).unwrap())
        );
        rounds.0.pop();
        assert_eq!(rounds.verdict(Goal::Throughput), Verdict::TooFewRounds(3));
        assert_eq!([1, 3, 7, 12].map(rounds_needed), [3, 4, 5, 5]);
        let mut idle = super::tests::rounds(5, &[1.0, 1.5], 0.01, 5);
        for measurement in idle.0.iter_mut().flatten() {
            *measurement = Measurement { items: 12, ..Measurement::default() };
        }
        assert_eq!(idle.verdict(Goal::Throughput), Verdict::TooFewItems(12));
        assert_eq!(idle.compare(1, Goal::Throughput), None, "nothing to divide by");
    }

    #[test]
    fn a_varying_or_light_load_is_noticed() {
        let steady = rounds(5, &[1.0, 1.0], 0.01, 5);
        assert_eq!((steady.unsteady(Goal::Throughput), steady.idle_part()), (None, None));
        let mut varying = rounds(5, &[1.0, 1.0], 0.01, 5);
        for (number, round) in varying.0.iter_mut().enumerate() {
            round[0].items_per_second *= 1.0 + number as f64;
            round[0].busy = 0.2;
        }
        assert!(varying.unsteady(Goal::Throughput).unwrap() > 0.3);
        assert!((varying.idle_part().unwrap() - 0.8).abs() < 1e-9);
        varying.0.iter_mut().for_each(|round| round[0].backlog = 3.0);
        assert_eq!(
            varying.idle_part(),
            None,
            "what has work waiting is not idle, asleep as its items may be"
        );
    }
}
