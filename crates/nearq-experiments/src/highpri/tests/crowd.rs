//! Tests of `crowd`: the load of the document.

use super::*;
use nearq_platform::{Linux, LockPlatform as _};
use nearq_sim::{Sim, Simulation};
use nearq_topology::Topology;

#[test]
fn crowd_threads_sleep_until_the_crowd_is_dropped() {
    let cpu = Linux::current_cpu();
    let crowd = Crowd::<Linux>::start(40, cpu).unwrap();
    Linux::sleep(Duration::from_millis(200));
    // Each thread wakes at most once a millisecond; on a busy machine it may be a tenth of that.
    let sleeps = crowd.sleeps();
    assert!((40..=40 * 250).contains(&sleeps), "{sleeps}");
}

#[test]
fn a_simulated_crowd_saturates_its_cpu_and_no_other() {
    let machine = Topology::from_synthetic("core:2").unwrap();
    let ended = Simulation::new(machine, 1).run(|| {
        let crowd = Crowd::<Sim>::start(1000, 1).unwrap();
        let before = (crowd.sleeps(), Sim::now());
        Sim::sleep(Duration::from_millis(100));
        let each = (Sim::now() - before.1).as_nanos() as u64 / (crowd.sleeps() - before.0);
        assert!((1_000..10_000).contains(&each), "{each} ns a sleep: it cannot be busier");
    });
    ended.expect();
}
