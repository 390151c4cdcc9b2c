//! How fast the simulator is. Ignored by default: `cargo test --release -p nearq-sim --test simulated -- --ignored --nocapture speed`.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "measures real time")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use nearq_platform::{Atomic, AtomicInt, LockPlatform, Ordering, Parker, ThreadSpec, Threads};
use nearq_sim::{AtomicU64, Outcome, Sim, Simulation, compute};
use nearq_topology::Topology;

fn measure<R: 'static>(what: &str, cpus: usize, main: impl FnOnce() -> R + 'static) -> Outcome<R> {
    let topology =
        Topology::from_synthetic(&format!("l3:{} core:8", cpus.div_ceil(8))).expect("well formed");
    let start = Instant::now();
    let outcome = Simulation::new(topology, 1).run(main);
    let took = start.elapsed();
    println!(
        "{what:<40} {:>9} accesses {:>9} switches {:>7.3} s: {:.2} million accesses/s, {:.2} million switches/s",
        outcome.accesses,
        outcome.switches,
        took.as_secs_f64(),
        outcome.accesses as f64 / took.as_secs_f64() / 1e6,
        outcome.switches as f64 / took.as_secs_f64() / 1e6,
    );
    outcome
}

fn all(threads: usize, main: impl Fn(usize) + Clone + Send + 'static) {
    let threads: Vec<_> = (0..threads)
        .map(|at| {
            let main = main.clone();
            Sim::spawn(ThreadSpec::default(), move || main(at)).expect("a free slot")
        })
        .collect();
    threads.into_iter().for_each(Sim::join);
}

#[test]
#[ignore = "measures; run it in release mode"]
fn simulation_speed() {
    for cpus in [8, 128, 384] {
        let rounds = 4_000_000 / cpus;
        measure(&format!("{cpus} CPUs, one shared counter"), cpus, move || {
            let count = Arc::new(AtomicU64::new(0));
            all(cpus, move |_| {
                for _ in 0..rounds {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        });
        measure(&format!("{cpus} CPUs, a counter each"), cpus, move || {
            let counts: Arc<Vec<_>> = Arc::new((0..cpus * 8).map(|_| AtomicU64::new(0)).collect());
            all(cpus, move |at| {
                for _ in 0..rounds {
                    counts[at * 8].fetch_add(1, Ordering::Relaxed);
                }
            });
        });
        measure(&format!("{cpus} CPUs, park and unpark in a ring"), cpus, move || {
            let parkers: Arc<Vec<_>> = Arc::new((0..cpus).map(|_| Parker::<Sim>::new()).collect());
            all(cpus, move |at| {
                for _ in 0..rounds / 10 {
                    parkers[(at + 1) % cpus].unpark();
                    parkers[at].park(Some(Sim::now() + Duration::from_micros(100)));
                }
            });
        });
        measure(&format!("{cpus} CPUs, 3000 threads compute 1 ms"), cpus, move || {
            all(3000, |_| {
                for _ in 0..20 {
                    compute(Duration::from_millis(1));
                }
            });
        });
    }
    let single = measure("1 thread", 8, || {
        let count = AtomicU64::new(0);
        while count.fetch_add(1, Ordering::Relaxed) < 10_000_000 {}
        count.load(Ordering::Relaxed)
    });
    assert_eq!(single.expect(), 10_000_001);
}
