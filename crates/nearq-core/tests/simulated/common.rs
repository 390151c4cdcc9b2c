//! What the tests of threads on simulated machines share.

use std::time::Duration;

use nearq_sim::Simulation;
use nearq_topology::Topology;

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Longer than anything takes that is not blocked.
pub(crate) const LONG: Duration = Duration::from_secs(2);

/// Runs a program in which no thread may panic and no warning may be given.
pub(crate) fn simulate<R: 'static>(
    text: &str,
    seed: u64,
    program: impl FnOnce() -> R + 'static,
) -> R {
    let machine = Topology::from_synthetic(text).expect("well formed");
    let outcome = Simulation::new(machine, seed).run(program);
    assert!(outcome.panics.is_empty() && outcome.warnings.is_empty(), "{}", outcome.report());
    outcome.expect()
}
