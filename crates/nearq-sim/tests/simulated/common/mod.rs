//! Common code of the tests of the simulated machine: machines by description, threads on given CPUs, and times.

use std::time::Duration;

use nearq_platform::{LockPlatform, Placement, ThreadSpec, Threads};
use nearq_sim::{Costs, Outcome, Schedule, Sim, Simulation};
use nearq_topology::{CpuSet, Topology};

/// The right to wait for a simulated thread's end.
pub(crate) type JoinHandle = <Sim as Threads>::JoinHandle;

pub(crate) fn machine(description: &str) -> Topology {
    Topology::from_synthetic(description).expect("the description is well formed")
}

/// Runs `main` on a machine with default costs, without jitter.
pub(crate) fn on<R: 'static>(description: &str, main: impl FnOnce() -> R + 'static) -> Outcome<R> {
    Simulation::new(machine(description), 1).jitter(false).run(main)
}

/// What `main` returns on a machine with these costs, without jitter.
pub(crate) fn run<R: 'static>(
    description: &str,
    costs: &Costs,
    main: impl FnOnce() -> R + 'static,
) -> R {
    Simulation::new(machine(description), 1).costs(*costs).jitter(false).run(main).expect()
}

pub(crate) fn spawn(main: impl FnOnce() + Send + 'static) -> JoinHandle {
    Sim::spawn(ThreadSpec::default(), main).expect("the simulator has room")
}

/// Each kind of schedule in turn, by seed.
pub(crate) fn schedule_of(seed: u64) -> Schedule {
    [Schedule::Fair, Schedule::Random, Schedule::Pct { depth: 3 }][seed as usize % 3]
}

/// Starts a thread on a CPU, or on a list of them.
pub(crate) fn spawn_on(list: impl ToString, main: impl FnOnce() + Send + 'static) -> JoinHandle {
    let affinity = Some(cpus(&list.to_string()));
    Sim::spawn(ThreadSpec { affinity, ..ThreadSpec::default() }, main)
        .expect("the simulator has room")
}

pub(crate) fn cpus(list: &str) -> CpuSet {
    list.parse().expect("a CPU list")
}

/// Moves the caller to a CPU.
pub(crate) fn go_to(cpu: usize) {
    Sim::set_affinity(Sim::current_thread(), &CpuSet::single(cpu)).expect("it exists");
}

/// Nanoseconds that `what` takes.
pub(crate) fn took(what: impl FnOnce()) -> u64 {
    let start = Sim::now();
    what();
    nanoseconds(Sim::now() - start)
}

pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("short")
}
