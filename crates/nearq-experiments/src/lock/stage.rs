//! What the experiment asks of a platform beyond `blocking`'s: a clock that is cheap enough to be read around each acquisition.

use crate::blocking;
use nearq_platform::{Linux, Platform as _};
use nearq_sim::Sim;

/// A platform that the experiment runs on.
pub trait Stage: blocking::Stage {
    /// One wait in so many goes into the distribution, with that weight, unless it is long.
    const EVERY: u64;

    /// A counter that goes at a constant rate. Two readings of threads on different CPUs cannot be compared.
    fn ticks() -> u64;

    /// Nanoseconds of one of them.
    fn tick_ns() -> f64;
}

/// For how long the counter is compared with the clock.
#[cfg(target_arch = "x86_64")]
const CALIBRATION: std::time::Duration = std::time::Duration::from_millis(20);

impl Stage for Linux {
    const EVERY: u64 = 16;

    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn ticks() -> u64 {
        // SAFETY: the instruction reads a counter into registers; every x86-64 has it, and Linux allows it to programs.
        unsafe { core::arch::x86_64::_rdtsc() }
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    fn ticks() -> u64 {
        Linux::now().as_nanos()
    }

    #[cfg(target_arch = "x86_64")]
    fn tick_ns() -> f64 {
        static NANOSECONDS: std::sync::OnceLock<f64> = std::sync::OnceLock::new();
        *NANOSECONDS.get_or_init(|| {
            let (time, ticks) = (Linux::now(), Self::ticks());
            Linux::sleep(CALIBRATION);
            let passed = Self::ticks().wrapping_sub(ticks).max(1);
            (Linux::now() - time).as_nanos() as f64 / passed as f64
        })
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn tick_ns() -> f64 {
        1.0
    }
}

/// Reading the clock costs nothing there: all waits are kept.
impl Stage for Sim {
    const EVERY: u64 = 1;

    #[inline]
    fn ticks() -> u64 {
        Sim::now().as_nanos()
    }

    fn tick_ns() -> f64 {
        1.0
    }
}

/// How many nanoseconds one reading takes, for the report: the least of several means, as whoever else is on the machine makes it
/// longer and never shorter.
pub(super) fn cost_of_reading<P: Stage>() -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn ticks_are_as_long_as_they_are_said_to_be() {
        // The best of several: a thread that is preempted between two of the readings is off by that.
        let off = |_| {
            let (time, ticks) = (Linux::now(), Linux::ticks());
            Linux::sleep(Duration::from_millis(10));
            let by_ticks = (Linux::ticks() - ticks) as f64 * Linux::tick_ns();
            let by_clock = (Linux::now() - time).as_nanos() as f64;
            (by_ticks / by_clock - 1.0).abs()
        };
        let best = (0..20).map(off).fold(f64::INFINITY, f64::min);
        assert!(best < 0.02, "{best}");
        assert!(cost_of_reading::<Linux>() < 1000.0);
    }
}
