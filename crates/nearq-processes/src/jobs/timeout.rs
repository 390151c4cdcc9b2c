//! `Timeout`: how long a job may run, as a fixed time or as a share of the median time of the jobs that have succeeded.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// How long a job may run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timeout {
    /// That long.
    After(Duration),
    /// That many times the median of the jobs that have succeeded so far.
    OfMedian(f64),
}

/// How many jobs must have succeeded until their median counts.
const FEWEST: usize = 3;

/// Computes the limit from the jobs that have ended.
#[derive(Debug)]
pub(crate) struct TimeLimit {
    timeout: Option<Timeout>,
    /// The shorter half of the times, and the longer half. The first has as many as the second, or one more.
    shorter: BinaryHeap<Duration>,
    longer: BinaryHeap<Reverse<Duration>>,
}

impl TimeLimit {
    pub(crate) fn new(timeout: Option<Timeout>) -> Self {
        Self { timeout, shorter: BinaryHeap::new(), longer: BinaryHeap::new() }
    }

    /// How long a job may run now; `None` if there is no limit, or none yet.
    pub(crate) fn get(&self) -> Option<Duration> {
        match self.timeout? {
            Timeout::After(time) => Some(time),
            Timeout::OfMedian(_) if self.shorter.len() + self.longer.len() < FEWEST => None,
            // A number beyond what a duration can hold is no limit.
            Timeout::OfMedian(times) => {
                Duration::try_from_secs_f64(self.shorter.peek()?.as_secs_f64() * times).ok()
            }
        }
    }

    /// A job that took that long has succeeded.
    pub(crate) fn succeeded(&mut self, elapsed: Duration) {
        if !matches!(self.timeout, Some(Timeout::OfMedian(_))) {
            return;
        }
        self.shorter.push(elapsed);
        self.longer.extend(self.shorter.pop().map(Reverse));
        if self.longer.len() > self.shorter.len() {
            self.shorter.extend(self.longer.pop().map(|Reverse(time)| time));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_median_counts_from_the_third_success_on() {
        let mut limit = TimeLimit::new(Some(Timeout::OfMedian(2.0)));
        let mut next = |seconds: u64| {
            limit.succeeded(Duration::from_secs(seconds));
            limit.get().map(|time| time.as_secs())
        };
        assert_eq!(
            [9, 1, 5, 7, 8, 1].map(&mut next),
            [None, None, Some(10), Some(10), Some(14), Some(10)]
        );
    }

    #[test]
    fn the_median_is_the_middle_of_the_sorted_times() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut limit = TimeLimit::new(Some(Timeout::OfMedian(1.0)));
        let mut all = Vec::new();
        for _ in 0..500 {
            let time = Duration::from_millis(random.u64(..1000));
            limit.succeeded(time);
            all.push(time);
            all.sort_unstable();
            let middle = (all.len() >= FEWEST).then(|| all[(all.len() - 1) / 2]);
            assert_eq!(limit.get(), middle);
        }
    }

    #[test]
    fn a_fixed_time_is_independent_of_other_jobs() {
        let mut limit = TimeLimit::new(Some(Timeout::After(Duration::from_secs(4))));
        limit.succeeded(Duration::from_secs(1));
        assert_eq!(limit.get(), Some(Duration::from_secs(4)));
        assert_eq!(TimeLimit::new(None).get(), None);
    }
}
