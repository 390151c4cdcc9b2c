//! Tests of `load`: what the items take without any pool.

use super::*;
use crate::Machine;
use crate::harness::simulate;
use nearq_platform::{Linux, Placement as _, Threads as _};
use nearq_sim::Sim;

fn plan(cpus: CpuSet, rounds: u64) -> Plan {
    Plan {
        items: 101,
        item: Duration::from_micros(50),
        rounds,
        every: 32,
        sleep: Duration::ZERO,
        workers: cpus.len(),
        cpus,
    }
}

#[test]
fn the_ideal_time_never_exceeds_the_measured_time() {
    let cpus = Linux::affinity(Linux::current_thread()).unwrap();
    let plan = plan(cpus.iter().take(2).collect(), 20_000);
    let Bare { sample, ideal } = measure_bare::<Linux>(&plan).unwrap();
    assert!(ideal > Duration::ZERO && ideal <= sample.elapsed, "{ideal:?}, {sample:?}");
}

#[test]
fn the_simulated_ideal_is_the_computing_time_and_longer_on_shared_cores() {
    let ideal = |machine: &str, cpus: &str| {
        let machine = Machine::named(machine).unwrap();
        let plan = plan(CpuSet::parse_list(cpus).unwrap(), 50_000);
        let nominal = plan.item.as_secs_f64() * 101.0 / 2.0;
        let run = move || measure_bare::<Sim>(&plan);
        let ended = simulate(&machine, 0, Duration::from_secs(1), run).unwrap();
        ended.result.unwrap().ideal.as_secs_f64() / nominal
    };
    assert!((1.0..1.05).contains(&ideal("core:2", "0-1")));
    assert!(ideal("core:2 pu:2", "0-1") > 1.2, "two CPUs of one core");
}
