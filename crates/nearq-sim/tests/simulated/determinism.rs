//! The same machine, program and seed give the same trace, byte for byte; another seed gives another trace.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::Mutex;
use nearq_platform::{LockPlatform, Parker, ThreadSpec, Threads};
use nearq_sim::{Faults, Outcome, Schedule, Sim, Simulation, TraceLevel, compute};
use nearq_topology::Topology;

/// Threads that lock, sleep, compute, park and wake each other.
fn program() -> u64 {
    let total = Arc::new(Mutex::<u64, Sim>::new_in(0));
    let parkers: Arc<Vec<Parker<Sim>>> = Arc::new((0..12).map(|_| Parker::new()).collect());
    let threads: Vec<_> = (0..12_usize)
        .map(|at| {
            let (total, parkers) = (Arc::clone(&total), Arc::clone(&parkers));
            let main = move || {
                for round in 0..30_u64 {
                    // One box per round: memory that is allocated and freed must have no effect.
                    let add = Box::new(Mutex::<u64, Sim>::new_in(round));
                    *total.lock() += *add.lock();
                    parkers[(at + 1) % 12].unpark();
                    parkers[at].park(Some(Sim::now() + Duration::from_micros(50)));
                    compute(Duration::from_micros(at as u64));
                    if round % 10 == 0 {
                        Sim::sleep(Duration::from_micros(20));
                    }
                }
            };
            Sim::spawn(ThreadSpec::default(), main).expect("a free slot")
        })
        .collect();
    threads.into_iter().for_each(Sim::join);
    *total.lock()
}

fn run(seed: u64, schedule: Schedule, level: TraceLevel) -> Outcome<u64> {
    let machine = Topology::from_synthetic("numa:2 l3:2 core:2 pu:1").expect("well formed");
    Simulation::new(machine, seed).schedule(schedule).trace(level).run(program)
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for schedule in [Schedule::Fair, Schedule::Random, Schedule::Pct { depth: 3 }] {
        let first = run(3, schedule, TraceLevel::Accesses);
        // Allocations in between that leave the allocator in another state.
        let fragments: Vec<Box<[u8]>> = (1..200).map(|size| vec![0; size * 7].into()).collect();
        drop(fragments.into_iter().step_by(2).collect::<Vec<_>>());
        let second = run(3, schedule, TraceLevel::Accesses);
        assert!(first.trace.len() > 1000);
        for (at, (a, b)) in first.trace.iter().zip(&second.trace).enumerate() {
            assert_eq!(a, b, "line {at}");
        }
        assert_eq!(
            (first.trace_hash, first.end, first.accesses),
            (second.trace_hash, second.end, second.accesses)
        );
        let silent = run(3, schedule, TraceLevel::Hash);
        assert_eq!(
            (first.trace_hash, silent.trace.len()),
            (silent.trace_hash, 0),
            "the trace level does not change the hash"
        );
        assert_eq!(first.expect(), 12 * (0..30).sum::<u64>());
    }
}

#[test]
fn different_seeds_give_different_runs_with_the_same_result() {
    let mut hashes: Vec<u64> = (0..20)
        .map(|seed| {
            let outcome = run(seed, Schedule::Fair, TraceLevel::Hash);
            let hash = outcome.trace_hash;
            assert_eq!(outcome.expect(), 12 * (0..30).sum::<u64>());
            hash
        })
        .collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 20);
}

/// The results of some runs.
fn hashes() -> String {
    let hash = |schedule, faults| {
        let machine = Topology::from_synthetic("numa:2 l3:2 core:2 pu:1").expect("well formed");
        let simulation = Simulation::new(machine, 9).schedule(schedule).faults(faults);
        simulation.run(program).trace_hash
    };
    let mut faults = Faults::ALL;
    // The program expects its threads in the process.
    faults.spawn_refused_one_in = 0;
    let fair = hash(Schedule::Fair, faults);
    let random = hash(Schedule::Random, Faults::NONE);
    let priorities = hash(Schedule::Pct { depth: 4 }, Faults::NONE);
    format!("hashes {fair:x} {random:x} {priorities:x}.")
}

/// This is not a test of its own: the child process of the test below runs it.
#[test]
#[ignore = "run by another test"]
fn print_the_hash() {
    println!("{}", hashes());
}

#[test]
fn another_process_with_another_environment_gives_the_same_trace() {
    let here = hashes();
    for length in [0, 1000, 7777] {
        let child =
            std::process::Command::new(std::env::current_exe().expect("this test program exists"))
                .args(["--ignored", "--exact", "determinism::print_the_hash", "--nocapture"])
                // A longer environment and argument list move stacks and heaps.
                .env("NEARQ_TEST_PADDING", "x".repeat(length))
                .arg("z".repeat(length / 3))
                .output()
                .expect("the test binary runs");
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(output.contains(&here), "{here} is not in {output}");
    }
}
