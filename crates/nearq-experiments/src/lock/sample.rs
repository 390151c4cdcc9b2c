//! What one run of one lock gave: who took it how often, and how long they waited.

use crate::harness::Host;
use hdrhistogram::Histogram;
use std::time::Duration;

/// Waits from here on are all kept, whatever is sampled.
pub const LONG: Duration = Duration::from_micros(20);
/// The longest wait that has a place of its own in the distribution.
const LONGEST: Duration = Duration::from_hours(1);
/// Significant digits of the distribution.
const DIGITS: u8 = 2;

/// How long threads waited: from before they asked for the lock until they had it.
#[derive(Clone, Debug)]
pub struct Waits {
    nanoseconds: Histogram<u64>,
    longest: u64,
    tick_ns: f64,
    /// [`LONG`], in ticks.
    long: u64,
    seen: u64,
}

impl Waits {
    pub(super) fn new<P: Host>() -> Self {
        let tick_ns = P::tick_ns();
        let most = LONGEST.as_nanos() as u64;
        Self {
            nanoseconds: Histogram::new_with_bounds(1, most, DIGITS)
                .expect("the bounds are constants"),
            longest: 0,
            tick_ns,
            long: (LONG.as_nanos() as f64 / tick_ns) as u64,
            seen: 0,
        }
    }

    /// Notes a wait: each that is long, and of the others one in [`Host::EVERY`], with that weight.
    #[inline]
    pub(super) fn note<P: Host>(&mut self, ticks: u64) {
        self.seen += 1;
        if ticks >= self.long {
            self.keep(ticks, 1);
        } else if self.seen.is_multiple_of(P::EVERY) {
            self.keep(ticks, P::EVERY);
        }
    }

    fn keep(&mut self, ticks: u64, weight: u64) {
        let nanoseconds = ((ticks as f64 * self.tick_ns) as u64).max(1);
        self.longest = self.longest.max(nanoseconds);
        self.nanoseconds.saturating_record_n(nanoseconds, weight);
    }

    fn add(&mut self, other: &Self) {
        self.longest = self.longest.max(other.longest);
        self.seen += other.seen;
        self.nanoseconds.add(&other.nanoseconds).expect("both have the same bounds");
    }

    /// The wait that a share of all did not exceed, in microseconds.
    pub fn quantile_us(&self, share: f64) -> f64 {
        self.nanoseconds.value_at_quantile(share).min(self.longest) as f64 / 1000.0
    }

    /// The longest one, in microseconds.
    pub fn longest_us(&self) -> f64 {
        self.longest as f64 / 1000.0
    }
}

/// What one thread did.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// How often it had the lock.
    pub(super) entered: u64,
    /// Of them, those that were over before the run was.
    pub(super) counted: u64,
    pub(super) waits: Waits,
}

/// What all of them did.
#[derive(Clone, Debug)]
pub struct Sample {
    /// How often each thread had the lock within the run.
    pub acquisitions: Vec<u64>,
    /// How long the run lasted.
    pub elapsed: Duration,
    /// The waits of all threads.
    pub waits: Waits,
}

impl Sample {
    pub(super) fn of<P: Host>(tallies: &[Tally], elapsed: Duration) -> Self {
        let mut waits = Waits::new::<P>();
        for tally in tallies {
            waits.add(&tally.waits);
        }
        Self { acquisitions: tallies.iter().map(|tally| tally.counted).collect(), elapsed, waits }
    }

    /// Acquisitions of all threads in a second.
    pub fn per_second(&self) -> f64 {
        self.acquisitions.iter().sum::<u64>() as f64 / self.elapsed.as_secs_f64()
    }

    /// See [`fairness`].
    pub fn fairness(&self) -> Option<f64> {
        fairness(&self.acquisitions)
    }
}

/// How many nanoseconds one reading takes, for the report: the least of several means, as whoever else is on the machine makes it
/// longer and never shorter.
pub(super) fn cost_of_reading<P: Host>() -> f64 {
    const READINGS: u32 = 10_000;
    let mean = |_| {
        let start = P::now();
        for _ in 0..READINGS {
            std::hint::black_box(P::ticks());
        }
        (P::now() - start).as_nanos() as f64 / f64::from(READINGS)
    };
    (0..20).map(mean).fold(f64::INFINITY, f64::min)
}

/// The share of the acquisitions that the busier half of the threads made: 0.5 where all made as many, 1 where half of them
/// made none. Of an odd number the one in the middle counts half. None for one thread, and where there was no acquisition.
pub fn fairness(acquisitions: &[u64]) -> Option<f64> {
    let all: u64 = acquisitions.iter().sum();
    if acquisitions.len() < 2 || all == 0 {
        return None;
    }
    let mut sorted = acquisitions.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let half = sorted.len() / 2;
    let busier: u64 = sorted[..half].iter().sum();
    let middle = if sorted.len() % 2 == 1 { sorted[half] as f64 / 2.0 } else { 0.0 };
    Some((busier as f64 + middle) / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_platform::Linux;
    use nearq_sim::Sim;

    #[test]
    fn fairness_is_the_share_of_the_busier_half() {
        assert_eq!(fairness(&[5, 5, 5, 5]), Some(0.5));
        assert_eq!(fairness(&[0, 30, 0, 10]), Some(1.0));
        assert_eq!(fairness(&[1, 3]), Some(0.75));
        assert_eq!(fairness(&[7, 7, 7]), Some(0.5));
        assert_eq!(fairness(&[1, 2, 7]), Some(0.8));
        assert_eq!((fairness(&[9]), fairness(&[0, 0]), fairness(&[])), (None, None, None));
    }

    #[test]
    fn each_long_wait_is_kept_and_short_ones_stand_for_their_neighbours() {
        let mut waits = Waits::new::<Linux>();
        let ticks = |us: f64| (us * 1000.0 / Linux::tick_ns()) as u64;
        // 9990 short ones; every one that is sampled stands for 16.
        for _ in 0..9984 {
            waits.note::<Linux>(ticks(1.0));
        }
        for _ in 0..16 {
            waits.note::<Linux>(ticks(5000.0));
        }
        assert_eq!((waits.nanoseconds.len(), waits.seen), (10_000, 10_000));
        let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.02;
        assert!(near(waits.quantile_us(0.5), 1.0) && near(waits.quantile_us(0.998), 1.0));
        assert!(near(waits.quantile_us(0.999), 5000.0) && near(waits.longest_us(), 5000.0));
    }

    #[test]
    fn a_simulated_run_keeps_them_all_and_threads_add_up() {
        let tally = |waits: &[u64]| {
            let mut tally = Tally { entered: 3, counted: 2, waits: Waits::new::<Sim>() };
            for wait in waits {
                tally.waits.note::<Sim>(*wait);
            }
            tally
        };
        let sample =
            Sample::of::<Sim>(&[tally(&[10, 20]), tally(&[30, 40_000])], Duration::from_micros(2));
        assert_eq!((sample.waits.nanoseconds.len(), sample.waits.longest_us()), (4, 40.0));
        assert_eq!((sample.per_second(), sample.fairness()), (2e6, Some(0.5)));
    }

    #[test]
    fn a_reading_costs_less_than_a_microsecond() {
        assert!(cost_of_reading::<nearq_platform::Linux>() < 1000.0);
    }
}
