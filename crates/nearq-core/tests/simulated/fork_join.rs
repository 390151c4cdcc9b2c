//! Fork-join on simulated machines: a tree uses all CPUs, strict queues stay in their pod, near CPUs take part first, and nothing is lost
//! where threads are preempted at any moment.

use core::time::Duration;
use std::sync::Arc;

use nearq_core::{AffinityScope, Runtime, Workqueue};
use nearq_lock::Mutex;
use nearq_platform::LockPlatform;
use nearq_sim::{Faults, Sim, Simulation, compute};
use nearq_topology::Topology;

use crate::common::simulate;

const MACHINE: &str = "pack:2 l3:2 core:4 pu:1";
const LEAF: Duration = Duration::from_micros(50);

/// A tree whose leaves compute and note their CPU. The pause before each fork is what a caller does besides.
fn tree(queue: &Workqueue<Sim>, depth: u32, cpus: &Mutex<Vec<usize>, Sim>) -> u32 {
    if depth == 0 {
        compute(LEAF);
        cpus.lock().push(Sim::current_cpu());
        return 1;
    }
    let (a, b) = queue.join(|| tree(queue, depth - 1, cpus), || tree(queue, depth - 1, cpus));
    a + b
}

/// How long a tree of 2 to the power of `depth` leaves takes on such a queue, and on which CPUs they ran.
fn run(scope: AffinityScope, strict: bool, depth: u32, seed: u64) -> (Duration, Vec<usize>) {
    simulate(MACHINE, seed, move || {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let queue = runtime
            .workqueue_builder("tree")
            .affinity_scope(scope)
            .affinity_strict(strict)
            .build()
            .expect("the attributes are valid");
        let cpus = Mutex::<_, Sim>::new_in(Vec::new());
        let began = Sim::now();
        let leaves = queue.install(|| tree(&queue, depth, &cpus));
        let took = Sim::now() - began;
        assert_eq!(leaves, 1 << depth);
        (took, cpus.into_inner())
    })
}

#[test]
fn a_tree_uses_all_cpus() {
    for scope in [AffinityScope::Cache, AffinityScope::System] {
        let (took, cpus) = run(scope, false, 10, 1);
        let ideal = LEAF * 1024 / 16;
        assert!(took < ideal * 3 / 2, "{scope}: {took:?}, ideally {ideal:?}");
        let used = cpus.iter().collect::<std::collections::BTreeSet<_>>().len();
        assert_eq!(used, 16, "{scope}");
    }
}

#[test]
fn a_tree_of_a_strict_queue_stays_in_its_pod() {
    let (_, mut cpus) = run(AffinityScope::Cache, true, 8, 1);
    cpus.sort_unstable();
    cpus.dedup();
    assert_eq!(cpus.len(), 4);
    assert!(cpus.iter().all(|cpu| cpu / 4 == cpus[0] / 4), "{cpus:?}");
}

/// A tree that is too small for the whole machine stays where it began.
#[test]
fn near_cpus_take_part_first() {
    let mut near = 0;
    for seed in 1..=10 {
        let (_, cpus) = run(AffinityScope::Cache, false, 2, seed);
        near += usize::from(cpus.iter().all(|cpu| cpu / 4 == cpus[0] / 4));
    }
    assert!(near >= 8, "{near} of 10 trees of four leaves stayed under one cache");
}

/// Threads are preempted in the middle of everything, woken for nothing and refused; CPUs come and go.
#[test]
fn trees_are_computed_whatever_goes_wrong() {
    for seed in 1..=50 {
        let machine = Topology::from_synthetic("l3:2 core:2").expect("well formed");
        let outcome = Simulation::new(machine, seed).time_limit(Duration::from_mins(1)).run(|| {
            let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
            let queue = Arc::new(runtime.workqueue_builder("tree").build().expect("valid"));
            Sim::start_faults(Faults::ALL);
            let trees: Vec<_> = (0..3)
                .map(|_| {
                    let inside = Arc::clone(&queue);
                    queue.spawn(move || {
                        let cpus = Mutex::<_, Sim>::new_in(Vec::new());
                        (0..4).map(|_| tree(&inside, 5, &cpus)).sum::<u32>()
                    })
                })
                .collect();
            let leaves: Vec<_> =
                trees.into_iter().map(|tree| tree.join().expect("no panic")).collect();
            Sim::start_faults(Faults::NONE);
            leaves
        });
        assert_eq!(outcome.expect(), [128; 3], "seed {seed}");
    }
}

/// A thief that waits for a CPU while all of them compute: no worker is added for it, and nothing is reported as stalled.
#[test]
fn a_long_tree_has_no_more_workers_than_cpus_and_is_no_stall() {
    let (most, stalls) = simulate("core:2", 1, || {
        let stalls = Arc::new(Mutex::<_, Sim>::new_in(0));
        let count = Arc::clone(&stalls);
        let runtime = Runtime::<Sim>::builder_in()
            .stall_after(Duration::from_millis(200))
            .on_stall(move |_| *count.lock() += 1)
            .build()
            .expect("the machine is known");
        let queue = runtime.workqueue_builder("long").build().expect("valid");
        let running = Mutex::<_, Sim>::new_in((0, 0));
        fn tree(queue: &Workqueue<Sim>, depth: u32, leaf: &(impl Fn() + Sync)) {
            if depth == 0 {
                leaf();
            } else {
                queue.join(|| tree(queue, depth - 1, leaf), || tree(queue, depth - 1, leaf));
            }
        }
        let leaf = || {
            {
                let (now, most) = &mut *running.lock();
                *now += 1;
                *most = (*most).max(*now);
            }
            compute(Duration::from_millis(20));
            running.lock().0 -= 1;
        };
        queue.install(|| tree(&queue, 7, &leaf));
        let most = running.lock().1;
        let stalls = *stalls.lock();
        (most, stalls)
    });
    assert_eq!((most, stalls), (2, 0));
}
