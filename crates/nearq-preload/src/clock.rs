//! Deadlines on the clocks that programs name, as ones on the monotonic clock, by which our waits go.
//!
//! A deadline on the real-time clock moves when that clock is set. Going back is seen when the wait is over: it is not over
//! then. Going forward is seen within [`LOOK_AGAIN`].

use core::ffi::c_int;
use core::time::Duration;

use nearq_platform::{Instant, Linux, Platform};

/// After so long a wait by the real-time clock looks at that clock again.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

const NANOS: i64 = 1_000_000_000;

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    clock: libc::clockid_t,
    /// Since the clock's beginning; what was before is 0.
    nanos: u64,
}

impl Deadline {
    /// `EINVAL` for a clock that nobody can wait by, or a number of nanoseconds that is none.
    pub(crate) fn new(clock: libc::clockid_t, time: libc::timespec) -> Result<Self, c_int> {
        if !Self::is_clock(clock) || !(0..NANOS).contains(&time.tv_nsec) {
            return Err(libc::EINVAL);
        }
        let nanos = match u64::try_from(time.tv_sec) {
            Ok(seconds) => seconds.saturating_mul(NANOS as u64).saturating_add(time.tv_nsec as u64),
            Err(_) => 0,
        };
        Ok(Deadline { clock, nanos })
    }

    /// Whether it is a clock by which one can wait.
    pub(crate) fn is_clock(clock: libc::clockid_t) -> bool {
        matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC)
    }

    /// Until when to wait before looking whether it [`has_passed`](Self::has_passed).
    pub(crate) fn next_look(self) -> Instant {
        if self.clock == libc::CLOCK_MONOTONIC {
            return Instant::from_nanos(self.nanos);
        }
        let left = Duration::from_nanos(self.nanos.saturating_sub(real_time()));
        Linux::now() + left.min(LOOK_AGAIN)
    }

    pub(crate) fn has_passed(self) -> bool {
        let now =
            if self.clock == libc::CLOCK_MONOTONIC { Linux::now().as_nanos() } else { real_time() };
        now >= self.nanos
    }
}

/// Nanoseconds on the real-time clock.
fn real_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists everywhere, and the time is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    time.tv_sec as u64 * NANOS as u64 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(clock: libc::clockid_t, tv_sec: i64, tv_nsec: i64) -> Result<Deadline, c_int> {
        Deadline::new(clock, libc::timespec { tv_sec, tv_nsec })
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for nanos in [-1, NANOS, i64::MAX] {
            assert_eq!(at(libc::CLOCK_REALTIME, 1, nanos), Err(libc::EINVAL));
        }
        assert_eq!(at(libc::CLOCK_PROCESS_CPUTIME_ID, 1, 0), Err(libc::EINVAL));
        assert_eq!(at(libc::CLOCK_MONOTONIC, -1, 5).unwrap().nanos, 0);
        assert_eq!(at(libc::CLOCK_MONOTONIC, i64::MAX, 5).unwrap().nanos, u64::MAX);
    }

    #[test]
    fn both_clocks_lead_to_the_monotonic_one() {
        let long_ago = at(libc::CLOCK_REALTIME, 1, 0).unwrap();
        assert!(long_ago.has_passed() && long_ago.next_look() <= Linux::now());
        let soon = (real_time() / NANOS as u64) as i64 + 30;
        let soon = at(libc::CLOCK_REALTIME, soon, 0).unwrap();
        let left = soon.next_look() - Linux::now();
        assert!(!soon.has_passed() && left > Duration::ZERO && left <= Duration::from_secs(30));
        let never = at(libc::CLOCK_REALTIME, i64::MAX, 0).unwrap();
        assert!(never.next_look() <= Linux::now() + LOOK_AGAIN);
        let exact = at(libc::CLOCK_MONOTONIC, 7, 9).unwrap();
        assert_eq!(exact.next_look(), Instant::from_nanos(7_000_000_009));
    }
}
