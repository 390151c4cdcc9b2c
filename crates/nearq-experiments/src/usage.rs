//! How much CPU time this process uses.

use std::time::{Duration, Instant};

/// User and system time of the process so far, all threads together.
pub(crate) fn cpu_time() -> Duration {
    // SAFETY: rusage is made of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes into a live rusage. The call cannot fail with these arguments.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Wall time and CPU time since a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since {
    wall: Instant,
    cpu: Duration,
}

impl Since {
    /// Begins now.
    pub(crate) fn now() -> Self {
        Self { wall: Instant::now(), cpu: cpu_time() }
    }

    /// Wall time since then.
    pub(crate) fn elapsed(&self) -> Duration {
        self.wall.elapsed()
    }

    /// How many CPUs the process has kept busy since then, on average.
    pub(crate) fn cpus_busy(&self) -> f64 {
        cpu_time().saturating_sub(self.cpu).as_secs_f64() / self.wall.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_computes_keeps_a_cpu_busy() {
        let since = Since::now();
        while cpu_time().saturating_sub(since.cpu) < Duration::from_millis(30) {
            std::hint::spin_loop();
        }
        assert!(since.elapsed() > Duration::from_millis(1));
        assert!(since.cpus_busy() > 0.01, "{}", since.cpus_busy());
    }
}
