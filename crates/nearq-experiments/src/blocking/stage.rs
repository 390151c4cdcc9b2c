//! What the experiment asks of a platform beyond `dispatch`'s: computing, confinement to some CPUs, and counts.

use super::threads::Sampler;
use super::work;
use crate::{Error, dispatch};
use nearq_platform::{Linux, Platform as _};
use nearq_report::usage;
use nearq_sim::Sim;
use nearq_topology::CpuSet;
use std::thread;
use std::time::Duration;

/// A platform that the experiment runs on.
pub trait Stage: dispatch::Stage {
    /// Uses the CPU for so many rounds.
    fn compute(rounds: u64);

    /// Runs `body` on a thread that, with all that it starts, may use `cpus` alone.
    fn confined<T: Send>(
        cpus: &CpuSet,
        body: impl FnOnce() -> Result<T, Error> + Send,
    ) -> Result<T, Error>;

    /// Context switches of the program so far, where somebody counts them.
    fn switches() -> Option<u64>;

    /// Counts threads from now on, where that is possible from outside.
    fn sampler() -> Result<Option<Sampler>, Error>;
}

impl Stage for Linux {
    fn compute(rounds: u64) {
        work::compute(rounds);
    }

    fn confined<T: Send>(
        cpus: &CpuSet,
        body: impl FnOnce() -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let confine = || {
            Linux::set_affinity(Linux::current_thread(), cpus)
                .map_err(|refused| Error::run(refused.to_string()))?;
            body()
        };
        thread::scope(|scope| scope.spawn(confine).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn switches() -> Option<u64> {
        Some(usage::switches())
    }

    fn sampler() -> Result<Option<Sampler>, Error> {
        Sampler::start().map(Some)
    }
}

/// A round is a nanosecond. The queue's mask alone says which CPUs are used.
impl Stage for Sim {
    fn compute(rounds: u64) {
        nearq_sim::compute(Duration::from_nanos(rounds));
    }

    fn confined<T: Send>(
        _cpus: &CpuSet,
        body: impl FnOnce() -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        body()
    }

    fn switches() -> Option<u64> {
        None
    }

    fn sampler() -> Result<Option<Sampler>, Error> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_started_by_the_confined_are_confined_too() {
        let own = Linux::affinity(Linux::current_thread()).unwrap();
        let first = CpuSet::single(own.first().unwrap());
        let inner = Linux::confined(&first, || {
            let thread = thread::spawn(|| Linux::affinity(Linux::current_thread()).unwrap());
            Ok(thread.join().unwrap())
        });
        assert_eq!(inner.unwrap(), first);
        assert_eq!(Linux::affinity(Linux::current_thread()).unwrap(), own, "the caller is not");
    }
}
