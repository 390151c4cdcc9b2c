//! The monotonic and the real-time clock, and the clocks that count a thread's CPU time.

use super::{Errno, Result, Tid, check};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Nanoseconds on `CLOCK_MONOTONIC`. A call into the vDSO, 20 to 40 ns.
#[inline]
pub(crate) fn monotonic() -> u64 {
    // The clock exists on every Linux: the only errors are an unknown clock and a bad address.
    read(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// Nanoseconds on `CLOCK_REALTIME` since the beginning of 1970. As above.
pub(crate) fn real_time() -> u64 {
    read(libc::CLOCK_REALTIME).unwrap_or(0)
}

/// Nanoseconds of CPU time that a thread of this process has used; `ESRCH` if it is gone.
///
/// A system call, about 200 ns.
pub(crate) fn cpu_time(tid: Tid) -> Result<u64> {
    if cfg!(miri) {
        return Err(Errno::NOSYS);
    }
    // The clock's number is made from the thread's: if the thread is not ours, that is a bad number.
    read(thread_clock(tid)).map_err(|error| if error == Errno::INVAL { Errno::SRCH } else { error })
}

/// The clock that counts the CPU time of one thread, as `pthread_getcpuclockid` makes it.
///
/// ```text
/// bits 31..3   the thread id, inverted
/// bit  2       of one thread, not of a process     CPUCLOCK_PERTHREAD_MASK
/// bits 1..0    2, time that the scheduler counted  CPUCLOCK_SCHED
/// ```
///
/// From the kernel's `include/linux/posix-timers_types.h`; the numbers are part of its interface, because
/// the C libraries compute them too.
const fn thread_clock(tid: Tid) -> libc::clockid_t {
    const CPUCLOCK_PERTHREAD_MASK: i32 = 4;
    const CPUCLOCK_SCHED: i32 = 2;
    (!tid.as_raw() << 3) | CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED
}

#[inline]
fn read(clock: libc::clockid_t) -> Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: validity: `time` is a live, writable timespec for the length of the call. Aliasing: the only
    // reference to it is the one passed. Thread: any thread may read any clock.
    let returned = unsafe { libc::clock_gettime(clock, &raw mut time) };
    check(returned)?;
    Ok(time.tv_sec as u64 * NANOS_PER_SECOND + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no CPU clocks of threads")]
    fn the_clock_number_matches_the_c_library() {
        let mut clock = 0;
        // SAFETY: validity: the thread is the caller, `clock` is a live integer. Aliasing: the only
        // reference is the one passed. Thread: the caller asks about itself.
        let error = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        assert_eq!(error, 0);
        assert_eq!(thread_clock(super::super::tid()), clock);
    }

    #[test]
    fn the_monotonic_clock_does_not_go_back() {
        let first = monotonic();
        assert!(first > 0);
        assert!(monotonic() >= first);
    }
}
