//! CPU time: the thread pauses to make up for what clients cost beyond a share of a CPU.
//!
//! A bucket holds [`BURST`] of CPU time and is filled with one part in [`SHARE`] of the elapsed time. What the thread has used is taken
//! out; if that is more than the bucket held, the thread pauses until the debt is paid.
//!
//! A pause is followed by a turn of service, although waking up has cost CPU time: that cost is part of the next debt. If it had to be paid
//! first, a thread whose wakeup costs 50 µs would pause for 1 ms, use 50 µs to find that it owes 50 µs, and so never serve again.

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
    /// When the pause ends that the thread makes.
    pause: Option<Instant>,
}

/// CPU time of the calling thread.
pub(super) fn own_cpu_time() -> Duration {
    Linux::cpu_time(Linux::current_thread()).unwrap_or_default()
}

impl Budget {
    /// A full bucket, for a thread that has used `used` CPU time so far.
    pub(super) fn new(now: Instant, used: Duration) -> Self {
        Budget { level: BURST.as_nanos() as i64, filled: now, used, pause: None }
    }

    /// Returns how long the thread must pause; `None` if it may serve. To be called before each turn and after each pause, also after one that
    /// was interrupted.
    pub(super) fn pause(&mut self, now: Instant, used: Duration) -> Option<Duration> {
        if let Some(end) = self.pause {
            if now < end {
                return Some(end - now);
            }
            self.pause = None;
            return None;
        }
        let debt = self.debt(now, used)?;
        self.pause = Some(now + debt);
        Some(debt)
    }

    /// Takes out what the thread has used by now. Returns how long it takes until the debt is paid; `None` if there is no debt.
    fn debt(&mut self, now: Instant, used: Duration) -> Option<Duration> {
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
    fn a_turn_follows_each_pause_whatever_waking_up_costs() {
        let (begin, wakeup) = (Instant::now(), Duration::from_millis(2));
        let (mut now, mut used) = (begin, Duration::ZERO);
        let mut budget = Budget::new(now, used);
        let mut turns = 0;
        used += BURST;
        for _ in 0..100 {
            used += wakeup;
            match budget.pause(now, used) {
                // The pause is interrupted once.
                Some(pause) => {
                    let half = pause / 2;
                    now += half;
                    assert_eq!(budget.pause(now, used), pause.checked_sub(half));
                    now += half;
                }
                None => turns += 1,
            }
        }
        assert_eq!(turns, 50);
        assert!(used <= BURST + (now - begin) / SHARE as u32 + wakeup * 2, "{used:?}");
    }

    #[test]
    fn the_clock_measures_the_calling_thread() {
        let before = own_cpu_time();
        while own_cpu_time() < before + Duration::from_millis(5) {}
        let other = std::thread::spawn(own_cpu_time).join().unwrap();
        assert!(other < own_cpu_time());
    }
}
