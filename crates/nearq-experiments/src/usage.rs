//! How much CPU time this process uses.

use std::time::Duration;

/// User and system time of the process so far, all threads together.
pub(crate) fn cpu_time() -> Duration {
    // SAFETY: rusage is made of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes into a live rusage. The call cannot fail with these arguments.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_thread_that_computes_uses_time_of_the_clock_on_the_wall_and_of_the_cpu() {
        let (wall, cpu) = (Instant::now(), cpu_time());
        while cpu_time().saturating_sub(cpu) < Duration::from_millis(30) {
            std::hint::spin_loop();
        }
        assert!(wall.elapsed() > Duration::from_millis(1));
    }
}
