//! A point in time, on a simulated machine as well as on a real one.

use core::ops::{Add, Sub};
use core::time::Duration;

/// From here on, instants are on the real-time clock, except the last one, which is never.
const REAL_TIME: u64 = 1 << 63;

/// Nanoseconds on the platform's monotonic clock, from an origin that the platform chooses.
///
/// Only differences mean something. On Linux the clock is `CLOCK_MONOTONIC`.
///
/// One kind is on another clock: [a deadline on the real-time clock](Self::on_real_time_clock), which is only for waiting. It is later than
/// all other instants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The instant `nanos` nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Instant(nanos)
    }

    /// A deadline on the real-time clock of Linux, that many nanoseconds after the beginning of 1970: for waits of that platform, which end
    /// when that clock reaches it, even by being set. A deadline later than the year 2262 never comes.
    pub const fn on_real_time_clock(nanos: u64) -> Self {
        if nanos < REAL_TIME - 1 { Instant(REAL_TIME | nanos) } else { Instant(u64::MAX) }
    }

    /// The nanoseconds of a [deadline on the real-time clock](Self::on_real_time_clock); nothing for any other instant.
    pub const fn real_time(self) -> Option<u64> {
        if self.0 >= REAL_TIME && self.0 != u64::MAX { Some(self.0 & !REAL_TIME) } else { None }
    }

    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to here; zero if `earlier` is later. Use it where a [`Duration`] would be divided or compared each time,
    /// which takes several more instructions.
    pub const fn nanos_since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time from `earlier` to here; zero if `earlier` is later.
    pub const fn saturating_since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// An instant later than 292 years after the clock's origin becomes never: 584 years after it.
    fn add(self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let sum = self.0.saturating_add(nanos);
        Instant(if sum < REAL_TIME { sum } else { u64::MAX })
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.saturating_since(earlier)
    }
}
