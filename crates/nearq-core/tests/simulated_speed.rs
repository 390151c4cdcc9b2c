//! A million items on 128 simulated CPUs: how much real time of one core that takes. Ignored by default, because it means
//! nothing without optimisation: `cargo test --release -p nearq-core --test simulated_speed -- --ignored --nocapture`.

use std::sync::Arc;
use std::time::Duration;

use nearq_core::{AffinityScope, Runtime, Work, Workqueue};
use nearq_platform::{Atomic, AtomicInt, Linux, Ordering, Parker, ThreadSpec, Threads};
use nearq_sim::{AtomicU32, AtomicU64, Sim, Simulation, compute};
use nearq_topology::{CpuSet, Topology};

#[global_allocator]
static ALLOCATOR: nearq_sim::LineAligned = nearq_sim::LineAligned;

const CPUS: usize = 128;
const ITEMS: usize = 1_000_000;
/// Items that an issuer queues before it waits for them.
const ROUND: usize = 8;
/// How long an item computes.
const COMPUTED: Duration = Duration::from_micros(2);
/// The longest time that a million items may take.
const MOST: Duration = Duration::from_secs(20);

/// One issuer a CPU, each with items of its own, until a million have run.
fn program(scope: AffinityScope) -> usize {
    let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
    let queue = runtime
        .workqueue_builder("speed")
        .affinity_scope(scope)
        .build()
        .expect("the call succeeds");
    let queue = Arc::new(queue);
    let ran = Arc::new(AtomicU64::new(0));
    let issuers: Vec<_> = (0..CPUS)
        .map(|cpu| {
            let (queue, ran) = (Arc::clone(&queue), Arc::clone(&ran));
            let spec = ThreadSpec { affinity: Some(CpuSet::single(cpu)), ..ThreadSpec::default() };
            Sim::spawn(spec, move || {
                ran.fetch_add(issue(&queue, ITEMS / CPUS), Ordering::Relaxed);
            })
            .expect("a thread can be started")
        })
        .collect();
    issuers.into_iter().for_each(Sim::join);
    drop(queue);
    drop(runtime);
    ran.load(Ordering::Relaxed) as usize
}

/// Queues `items`, a round at a time. How many ran.
fn issue(queue: &Workqueue<Sim>, items: usize) -> u64 {
    let left = Arc::new(AtomicU32::new(0));
    let parker = Arc::new(Parker::<Sim>::new());
    let works: Vec<Work<Sim>> = (0..ROUND)
        .map(|_| {
            let (left, parker) = (Arc::clone(&left), Arc::clone(&parker));
            Work::new_in(move |_: &Work<Sim>| {
                compute(COMPUTED);
                if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                    parker.unpark();
                }
            })
        })
        .collect();
    let mut ran = 0;
    while ran < items as u64 {
        left.store(ROUND as u32, Ordering::Relaxed);
        for work in &works {
            // It may be running still, but not pending.
            assert!(queue.queue(work));
        }
        while left.load(Ordering::Relaxed) != 0 {
            parker.park(None);
        }
        ran += ROUND as u64;
    }
    ran
}

#[test]
#[ignore = "measures; run it in release mode"]
fn a_million_items_on_128_cpus() {
    let machine = Topology::from_synthetic("pack:2 l3:8 core:8").expect("well formed");
    assert_eq!(machine.possible().len(), CPUS);
    // CPU time: what others do on the machine must not count.
    let me = Linux::current_thread();
    let before = Linux::cpu_time(me).expect("the clock is readable");
    let outcome = Simulation::new(machine, 1).run(|| program(AffinityScope::CacheShard));
    let took = Linux::cpu_time(me).expect("the clock is readable").saturating_sub(before);
    println!(
        "{took:.2?} for {} ms of virtual time, {} accesses, {} switches",
        outcome.end.as_nanos() / 1_000_000,
        outcome.accesses,
        outcome.switches
    );
    let ran = outcome.expect();
    assert!(ran >= ITEMS / CPUS * CPUS);
    assert!(took < MOST, "{took:?}");
}
