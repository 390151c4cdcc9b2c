//! What the experiment asks of a platform beyond [`Platform`].

use super::privilege;
use super::steal::StealClock;
use nearq_platform::{Linux, Platform};
use nearq_sim::Sim;
use std::time::Duration;

/// What a simulated thread of the crowd does between two sleeps, beside what the simulated kernel takes for the timer, the
/// wake-up and the switch: a stated round input, not a measurement. On Linux it does nothing, in some 10 ns.
pub(crate) const CROWD_WORK: Duration = Duration::from_micros(1);

/// A platform that the experiment runs on.
pub(crate) trait Stage: Platform {
    /// Tells how much time the host took from a CPU.
    type Steal;

    /// For that CPU.
    fn steal(cpu: usize) -> Self::Steal;

    /// Time that the host has taken so far, in any unit.
    fn stolen(clock: &mut Self::Steal) -> u64;

    /// What a thread of the crowd does between two sleeps.
    fn crowd_work();

    /// Favours the caller, who queues, but not the threads that it starts. Whether that was allowed.
    fn favour_issuer() -> bool;
}

impl Stage for Linux {
    type Steal = StealClock;

    fn steal(cpu: usize) -> StealClock {
        StealClock::of(cpu)
    }

    fn stolen(clock: &mut StealClock) -> u64 {
        clock.read()
    }

    #[inline]
    fn crowd_work() {}

    fn favour_issuer() -> bool {
        privilege::real_time().or_else(|_| privilege::favour_alone()).is_ok()
    }
}

/// No host, and an issuer that has its CPU for itself.
impl Stage for Sim {
    type Steal = ();

    fn steal(_cpu: usize) {}

    fn stolen(_clock: &mut ()) -> u64 {
        0
    }

    #[inline]
    fn crowd_work() {
        Self::charge(CROWD_WORK);
    }

    fn favour_issuer() -> bool {
        true
    }
}
