//! Where a worker runs, on a simulated machine: brought back, rate-limited, brought to the CPU that queued.

use core::time::Duration;

use nearq_platform::{LockPlatform, Placement, Threads};
use nearq_sim::{Sim, Simulation};
use nearq_topology::{CpuSet, Topology};

use super::{Affinity, INTERVAL};

fn set(list: &str) -> CpuSet {
    list.parse().expect("well formed")
}

/// Moves the caller onto `cpu`, then allows it all CPUs again.
fn stand_on(cpu: usize) {
    let me = Sim::current_thread();
    Sim::set_affinity(me, &CpuSet::single(cpu)).expect("allowed");
    Sim::set_affinity(me, &set("0-7")).expect("allowed");
    assert_eq!(Sim::current_cpu(), cpu);
}

fn on_eight_cpus(program: impl FnOnce() + 'static) -> Vec<String> {
    let machine = Topology::from_synthetic("l3:2 core:4").expect("well formed");
    let outcome = Simulation::new(machine, 1).run(program);
    let warnings = outcome.warnings.clone();
    outcome.expect();
    warnings
}

#[test]
#[cfg_attr(miri, ignore = "Miri does not know the simulator's stacks")]
fn a_stray_worker_is_brought_back_and_may_leave_again() {
    on_eight_cpus(|| {
        let mut affinity = Affinity::new(set("0-3"), set("0-7"));
        stand_on(6);
        assert!(affinity.repatriate::<Sim>());
        assert!(Sim::current_cpu() < 4);
        assert_eq!(Sim::affinity(Sim::current_thread()).expect("alive"), set("0-7"));
        assert!(!affinity.repatriate::<Sim>(), "it is at home");
    });
}

#[test]
#[cfg_attr(miri, ignore = "Miri does not know the simulator's stacks")]
fn a_worker_is_brought_back_at_most_once_a_millisecond() {
    on_eight_cpus(|| {
        let mut affinity = Affinity::new(set("0-3"), set("0-7"));
        stand_on(6);
        assert!(affinity.repatriate::<Sim>());
        stand_on(5);
        assert!(!affinity.repatriate::<Sim>());
        assert_eq!(Sim::current_cpu(), 5);
        Sim::sleep(INTERVAL + Duration::from_micros(100));
        stand_on(5);
        assert!(affinity.repatriate::<Sim>());
        assert!(Sim::current_cpu() < 4);
    });
}

#[test]
#[cfg_attr(miri, ignore = "Miri does not know the simulator's stacks")]
fn a_worker_that_cannot_stray_is_never_moved() {
    on_eight_cpus(|| {
        // A strict worker: its mask is its pod. (In a test, the thread may be elsewhere nevertheless.)
        let mut affinity = Affinity::new(set("0-3"), set("0-3"));
        stand_on(6);
        assert!(!affinity.repatriate::<Sim>());
        assert_eq!(Sim::current_cpu(), 6);
    });
}

#[test]
#[cfg_attr(miri, ignore = "Miri does not know the simulator's stacks")]
fn localised_to_the_cpu_that_queued_if_the_worker_may_run_there() {
    on_eight_cpus(|| {
        let mut affinity = Affinity::new(set("0-3"), set("0-5"));
        for cpu in [3, 0, 5] {
            affinity.localize::<Sim>(cpu);
            assert_eq!(Sim::current_cpu(), cpu);
            assert_eq!(Sim::affinity(Sim::current_thread()).expect("alive"), set("0-5"));
        }
        affinity.localize::<Sim>(7);
        assert_eq!(Sim::current_cpu(), 5, "not outside its mask");
    });
}

#[test]
#[cfg_attr(miri, ignore = "Miri does not know the simulator's stacks")]
fn a_pod_without_allowed_cpus_is_ignored_and_is_no_refusal() {
    let warnings = on_eight_cpus(|| {
        // A pod that the machine has lost.
        let mut affinity = Affinity::new(set("8-9"), set("0-9"));
        for _ in 0..5 {
            assert!(!affinity.repatriate::<Sim>());
            Sim::sleep(2 * INTERVAL);
        }
        let before = Sim::current_cpu();
        affinity.localize::<Sim>((before + 1) % 8);
        assert_eq!(Sim::current_cpu(), (before + 1) % 8, "it may still be moved elsewhere");
    });
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
#[cfg_attr(miri, ignore = "Miri does not know the simulator's stacks")]
fn a_worker_of_one_cpu_returns_when_the_cpu_is_back() {
    on_eight_cpus(|| {
        let mut affinity = Affinity::bound(set("3"));
        Sim::set_affinity(Sim::current_thread(), &set("3")).unwrap();
        affinity.begin::<Sim>();
        assert!(!affinity.repatriate::<Sim>(), "it is there");
        Sim::set_online(3, false).unwrap();
        Sim::sleep(INTERVAL);
        assert_ne!(Sim::current_cpu(), 3);
        assert!(!affinity.repatriate::<Sim>(), "the thread cannot be there");
        Sim::set_online(3, true).unwrap();
        Sim::sleep(INTERVAL);
        assert!(affinity.repatriate::<Sim>());
        assert_eq!(Sim::current_cpu(), 3);
        assert_eq!(Sim::affinity(Sim::current_thread()).unwrap(), set("3"));
    });
}
