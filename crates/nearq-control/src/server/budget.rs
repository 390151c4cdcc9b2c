//! CPU time: what connections cost beyond a share of a CPU is waited for.
//!
//! A bucket holds [`BURST`] of CPU time and is filled at one part in [`SHARE`] of the time that goes by. What the thread has used is
//! taken out; where it is more than there was, the thread does nothing until the debt is paid.
//!
//! Traces have a bucket of their own, of the same size: how much there is to tell is bounded where events are made, so one that is read
//! as it should be never empties it, and neither does the one keep the other waiting.

use std::time::{Duration, Instant};

use nearq_platform::{Linux, Platform};

use super::limits::{BURST, SHARE};

/// The bucket.
#[derive(Debug)]
pub(super) struct Budget {
    /// Nanoseconds in it; less than nothing is debt.
    level: i64,
    filled: Instant,
}

/// CPU time of the calling thread.
pub(super) fn own_cpu_time() -> Duration {
    Linux::cpu_time(Linux::current_thread()).unwrap_or_default()
}

/// Reads the calling thread's clock piece by piece.
#[derive(Debug)]
pub(super) struct Meter(Duration);

impl Meter {
    pub(super) fn new() -> Self {
        Meter(own_cpu_time())
    }

    /// CPU time since the last call.
    pub(super) fn spent(&mut self) -> Duration {
        let used = own_cpu_time();
        used.saturating_sub(std::mem::replace(&mut self.0, used))
    }
}

impl Budget {
    /// A full one.
    pub(super) fn new(now: Instant) -> Self {
        Budget { level: BURST.as_nanos() as i64, filled: now }
    }

    /// Takes out what was used.
    pub(super) fn charge(&mut self, spent: Duration) {
        self.level -= spent.as_nanos() as i64;
    }

    /// How long it takes until the debt is paid; none where there is no debt.
    pub(super) fn debt(&mut self, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.filled);
        self.filled = now;
        let gained = (passed.as_nanos() / u128::from(SHARE)).min(BURST.as_nanos()) as i64;
        self.level = (self.level + gained).min(BURST.as_nanos() as i64);
        (self.level < 0).then(|| Duration::from_nanos(self.level.unsigned_abs() * SHARE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_beyond_the_burst_is_waited_for() {
        let begin = Instant::now();
        let mut budget = Budget::new(begin);
        assert_eq!(budget.debt(begin), None);
        budget.charge(BURST + Duration::from_millis(1));
        assert_eq!(budget.debt(begin), Some(Duration::from_millis(20)));
        let later = begin + Duration::from_millis(10);
        assert_eq!(budget.debt(later), Some(Duration::from_millis(10)));
        assert_eq!(budget.debt(begin + Duration::from_millis(20)), None);
        // However long nobody asks, no more is saved than the burst.
        assert_eq!(budget.debt(begin + Duration::from_secs(1000)), None);
        assert_eq!(budget.level, BURST.as_nanos() as i64);
    }

    #[test]
    fn the_meter_reads_each_piece_once() {
        let mut meter = Meter::new();
        let before = own_cpu_time();
        while own_cpu_time() < before + Duration::from_millis(5) {}
        assert!(meter.spent() >= Duration::from_millis(5));
        assert!(meter.spent() < Duration::from_millis(5));
    }
}
