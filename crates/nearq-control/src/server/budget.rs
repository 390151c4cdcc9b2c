//! CPU time: the thread pauses to make up for what clients cost beyond a share of a CPU.
//!
//! A bucket holds [`BURST`] of CPU time and is filled with one part in [`SHARE`] of the elapsed time. What the thread has used is taken
//! out; if that is more than the bucket held, the thread does nothing until the debt is paid.

use std::time::{Duration, Instant};

use nearq_platform::{Linux, Threads};

use super::limits::{BURST, SHARE};

/// The bucket.
#[derive(Debug)]
pub(super) struct Budget {
    /// The nanoseconds in the bucket; a negative number is a debt.
    level: i64,
    filled: Instant,
    /// The thread's CPU time that was taken out.
    used: Duration,
}

/// CPU time of the calling thread.
pub(super) fn own_cpu_time() -> Duration {
    Linux::cpu_time(Linux::current_thread()).unwrap_or_default()
}

impl Budget {
    /// A full bucket, for a thread that has used `used` CPU time so far.
    pub(super) fn new(now: Instant, used: Duration) -> Self {
        Budget { level: BURST.as_nanos() as i64, filled: now, used }
    }

    /// Takes out what the thread has used by now. Returns how long it takes until the debt is paid; `None` if there is no debt.
    pub(super) fn debt(&mut self, now: Instant, used: Duration) -> Option<Duration> {
        let passed = now.saturating_duration_since(std::mem::replace(&mut self.filled, now));
        let spent = used.saturating_sub(std::mem::replace(&mut self.used, used));
        let gained = (passed.as_nanos() / u128::from(SHARE)).min(BURST.as_nanos()) as i64;
        self.level = (self.level + gained).min(BURST.as_nanos() as i64) - spent.as_nanos() as i64;
        (self.level < 0).then(|| Duration::from_nanos(self.level.unsigned_abs() * SHARE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_beyond_the_burst_must_be_waited_for() {
        let begin = Instant::now();
        let ms = Duration::from_millis;
        let mut budget = Budget::new(begin, ms(7));
        assert_eq!(budget.debt(begin, ms(7)), None);
        let used = ms(7) + BURST + ms(1);
        assert_eq!(budget.debt(begin, used), Some(ms(20)));
        assert_eq!(budget.debt(begin + ms(10), used), Some(ms(10)));
        assert_eq!(budget.debt(begin + ms(20), used), None);
        // However long no client asks, the bucket never holds more than the burst.
        let later = begin + Duration::from_secs(1000);
        assert_eq!(budget.debt(later, used), None);
        assert_eq!(budget.debt(later, used + BURST), None);
        assert_eq!(budget.debt(later, used + BURST + ms(2)), Some(ms(40)));
    }

    #[test]
    fn the_clock_measures_the_calling_thread() {
        let before = own_cpu_time();
        while own_cpu_time() < before + Duration::from_millis(5) {}
        let other = std::thread::spawn(own_cpu_time).join().unwrap();
        assert!(other < own_cpu_time());
    }
}
