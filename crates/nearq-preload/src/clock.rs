//! Converts programs' deadlines to those by which threads wait here: on the same clock, so that the kernel takes it into account when that
//! clock is set.

use core::ffi::c_int;
use core::time::Duration;

use libc::{clockid_t, timespec};
use nearq_platform::{Instant, Linux, LockPlatform};

const NANOS: i64 = 1_000_000_000;

/// Whether it is a clock by which a thread can wait.
pub(crate) fn is_known(clock: clockid_t) -> bool {
    matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC)
}

/// A point in time. A time before the clock's beginning becomes the beginning. `EINVAL` for a clock by which no thread can wait, or an
/// invalid number of nanoseconds.
pub(crate) fn deadline(clock: clockid_t, time: timespec) -> Result<Instant, c_int> {
    if !is_known(clock) || !(0..NANOS).contains(&time.tv_nsec) {
        return Err(libc::EINVAL);
    }
    let nanos = match u64::try_from(time.tv_sec) {
        Ok(seconds) => seconds.saturating_mul(NANOS as u64).saturating_add(time.tv_nsec as u64),
        Err(_) => 0,
    };
    Ok(if clock == libc::CLOCK_REALTIME {
        Instant::on_real_time_clock(nanos)
    } else {
        // A time later than can be represented means never.
        Instant::from_nanos(nanos.min(i64::MAX as u64))
    })
}

/// The time left until a deadline, as its clock is set now.
pub(crate) fn left(deadline: Instant) -> Duration {
    let Some(nanos) = deadline.real_time() else { return deadline - Linux::now() };
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists everywhere, and the time is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    let now = now.tv_sec as u64 * NANOS as u64 + now.tv_nsec as u64;
    Duration::from_nanos(nanos.saturating_sub(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(clock: clockid_t, tv_sec: i64, tv_nsec: i64) -> Result<Instant, c_int> {
        deadline(clock, timespec { tv_sec, tv_nsec })
    }

    #[test]
    fn an_invalid_time_is_refused() {
        for nanos in [-1, NANOS, i64::MAX] {
            assert_eq!(at(libc::CLOCK_REALTIME, 1, nanos), Err(libc::EINVAL));
        }
        assert_eq!(at(libc::CLOCK_PROCESS_CPUTIME_ID, 1, 0), Err(libc::EINVAL));
        assert_eq!(at(libc::CLOCK_MONOTONIC, -1, 5), Ok(Instant::from_nanos(0)));
    }

    #[test]
    fn a_deadline_stays_on_its_clock() {
        for (clock, real) in [(libc::CLOCK_REALTIME, true), (libc::CLOCK_MONOTONIC, false)] {
            let past = at(clock, 1, 9).unwrap();
            assert_eq!(past.real_time().is_some(), real);
            assert!(Linux::has_come(past) && left(past) == Duration::ZERO);
            let never = at(clock, i64::MAX, 5).unwrap();
            assert!(!Linux::has_come(never) && left(never) > Duration::from_secs(1 << 32));
        }
        let minute = left(Linux::now() + Duration::from_mins(1));
        assert!(minute <= Duration::from_mins(1) && minute > Duration::from_secs(1));
    }
}
