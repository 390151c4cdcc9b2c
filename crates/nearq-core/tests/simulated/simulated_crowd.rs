//! Queues of several scopes on one simulated machine, alone and while other programs run: at most as many workers run at once as there are
//! CPUs.

use std::sync::Arc;
use std::time::Duration;

use nearq_core::{AffinityScope, Runtime};
use nearq_platform::{Atomic, AtomicInt, Ordering, ThreadSpec, Threads};
use nearq_sim::{AtomicU32, Sim, Simulation, compute};
use nearq_topology::Topology;

/// Items, of 100 µs each.
const ITEMS: usize = 3000;

/// How many of the items found more than `cpus` running, themselves included, while `strangers` threads of other programs compute without
/// end.
fn crowded(seed: u64, cpus: usize, strangers: usize) -> u32 {
    let machine = Topology::from_synthetic(&format!("core:{cpus}")).expect("well formed");
    let outcome = Simulation::new(machine, seed).run(move || {
        let stop = Arc::new(AtomicU32::new(0));
        let others: Vec<_> = (0..strangers)
            .map(|_| {
                let stop = Arc::clone(&stop);
                let main = move || {
                    while stop.load(Ordering::Relaxed) == 0 {
                        compute(Duration::from_millis(1));
                    }
                };
                Sim::spawn(ThreadSpec::default(), main).expect("a thread can be started")
            })
            .collect();
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let queues =
            [AffinityScope::Cpu, AffinityScope::System, AffinityScope::Cache].map(|scope| {
                runtime
                    .workqueue_builder("crowd")
                    .affinity_scope(scope)
                    .build()
                    .expect("the call succeeds")
            });
        let counts = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let visit = |number: usize| {
            let counts = Arc::clone(&counts);
            queues[number % 3].spawn(move || {
                let [inside, crowded] = &*counts;
                if inside.fetch_add(1, Ordering::SeqCst) as usize >= cpus {
                    crowded.fetch_add(1, Ordering::SeqCst);
                }
                compute(Duration::from_micros(100));
                inside.fetch_sub(1, Ordering::SeqCst);
            })
        };
        let handles: Vec<_> = (0..ITEMS).map(visit).collect();
        for handle in handles {
            handle.join().expect("no panic");
        }
        stop.store(1, Ordering::Relaxed);
        others.into_iter().for_each(Sim::join);
        counts[1].load(Ordering::Relaxed)
    });
    // Some 80 accesses for each item. A worker that gets no place must not try again and again.
    assert!(outcome.accesses < 120 * ITEMS as u64, "{} accesses", outcome.accesses);
    outcome.expect()
}

#[test]
fn no_more_items_run_at_once_than_there_are_cpus() {
    for (cpus, strangers) in [(2, 0), (2, 1), (2, 2), (8, 4), (8, 8)] {
        for seed in 0..nearq_model::bound(8, 20) {
            let crowded = crowded(seed, cpus, strangers);
            assert_eq!(
                crowded, 0,
                "seed {seed}: {cpus} CPUs, {strangers} threads of others: so many of {ITEMS}"
            );
        }
    }
}
