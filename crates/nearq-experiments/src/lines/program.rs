//! What runs on the simulated machine: two CPUs that take a line by turns, and CPUs that add to one.
//!
//! The programs are those of the publications, so they spin on the line as those do, without a pause.

use crate::calibrate::places::Pair;
use crate::harness::{on_cpus, simulate};
use crate::{Error, Machine};
use nearq_platform::{
    Atomic as _, AtomicInt as _, LockPlatform as _, MemoryPolicy, Ordering, Placement as _,
    Threads as _,
};
use nearq_sim::{AtomicU64, Sim};
use nearq_topology::CpuSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Virtual time within which a program must end.
const LIMIT: Duration = Duration::from_secs(1);
/// Round trips that are not counted: the threads start one after the other.
const WARM_UP: u64 = 20;
/// Round trips that count.
const ROUNDS: u64 = 200;
/// Additions of each CPU.
const ADDITIONS: u64 = 500;
/// From the creation of the first thread until all of them begin.
const START: Duration = Duration::from_millis(10);

/// A thread that is pinned to a CPU.
fn pinned(
    cpu: usize,
    body: impl FnOnce() + Send + 'static,
) -> <Sim as nearq_platform::Threads>::JoinHandle {
    let spec = on_cpus(format!("cpu/{cpu}"), CpuSet::single(cpu));
    Sim::spawn(spec, body).expect("simulated threads are not limited")
}

/// Takes the line in `expected` and leaves it in `next`.
fn take(line: &AtomicU64, expected: u64, next: u64) {
    // Relaxed, both: the line is all that the two share.
    while line.compare_exchange(expected, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {}
}

/// The bounce of a line between two CPUs, in nanoseconds: half of a round trip.
pub(super) fn bounce(machine: &Machine, pair: Pair, seed: u64) -> Result<f64, Error> {
    let Pair { cpus: [a, b], home } = pair;
    let home = home.map(|at| machine.topology().nodes()[at].id);
    let program = move || {
        if let Some(home) = home {
            Sim::set_memory_policy(&MemoryPolicy::Preferred(home)).expect("it has memory");
        }
        let line = Arc::new(AtomicU64::new(0));
        // The first touch, which gives it its home.
        line.store(0, Ordering::Relaxed);
        let took = Arc::new(AtomicU64::new(0));
        let (theirs, result) = (Arc::clone(&line), Arc::clone(&took));
        let second = pinned(b, move || (0..WARM_UP + ROUNDS).for_each(|_| take(&theirs, 1, 0)));
        let first = pinned(a, move || {
            (0..WARM_UP).for_each(|_| take(&line, 0, 1));
            let start = Sim::now();
            (0..ROUNDS).for_each(|_| take(&line, 0, 1));
            result.store((Sim::now() - start).as_nanos() as u64, Ordering::Relaxed);
        });
        Sim::join(first);
        Sim::join(second);
        took.load(Ordering::Relaxed)
    };
    let took = simulate(machine, seed, LIMIT, program)?.result;
    Ok(took as f64 / (2 * ROUNDS) as f64)
}

/// Nanoseconds from one addition to the next, whichever of the CPUs did it.
pub(super) fn addition(machine: &Machine, cpus: &[usize], seed: u64) -> Result<f64, Error> {
    let cpus = cpus.to_vec();
    let count = cpus.len() as u64 * ADDITIONS;
    let program = move || {
        let line = Arc::new(AtomicU64::new(0));
        // When each thread began and ended.
        let times = Arc::new(Mutex::new(Vec::new()));
        let start = Sim::now() + START;
        let threads: Vec<_> = cpus
            .into_iter()
            .map(|cpu| {
                let (line, times) = (Arc::clone(&line), Arc::clone(&times));
                pinned(cpu, move || {
                    Sim::sleep(start - Sim::now());
                    line.fetch_add(1, Ordering::Relaxed);
                    let began = Sim::now();
                    for _ in 0..ADDITIONS {
                        line.fetch_add(1, Ordering::Relaxed);
                    }
                    // Not while the real lock is held: the simulator may run another thread here.
                    let ended = Sim::now();
                    times.lock().expect("no thread panics").push((began, ended));
                })
            })
            .collect();
        threads.into_iter().for_each(Sim::join);
        let times = times.lock().expect("no thread panics");
        let began = times.iter().map(|(began, _)| *began).min().expect("there is a thread");
        let ended = times.iter().map(|(_, ended)| *ended).max().expect("there is a thread");
        (ended - began).as_nanos() as u64
    };
    let took = simulate(machine, seed, LIMIT, program)?.result;
    Ok(took as f64 / count as f64)
}
