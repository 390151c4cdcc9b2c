//! Near which CPU workers wake up under a scheduler that receives hints.

use std::time::Duration;

use nearq_core::{AffinityScope, Runtime, Workqueue};
use nearq_platform::{LockPlatform as _, Placement as _, Threads as _};
use nearq_sim::{Sim, Simulation};
use nearq_topology::{CpuSet, Topology};

/// Long enough for a worker to run an item and to sleep.
const WHILE: Duration = Duration::from_millis(2);

/// Two caches of four CPUs each: 0 to 3 and 4 to 7.
fn two_caches<R: 'static>(hints: bool, program: impl FnOnce() -> R + 'static) -> R {
    let machine = Topology::from_synthetic("l3:2 core:4").unwrap();
    let program = move || {
        Sim::receive_wake_hints(hints);
        program()
    };
    Simulation::new(machine, 1).run(program).expect()
}

fn stand_on(cpu: usize) {
    Sim::set_affinity(Sim::current_thread(), &CpuSet::single(cpu)).unwrap();
}

/// A queue with one worker awake at a time.
fn queue(scope: AffinityScope, localize: bool) -> Workqueue<Sim> {
    let runtime = Runtime::<Sim>::builder_in().build().unwrap();
    let queue = runtime.workqueue_builder("near").affinity_scope(scope).localize(localize);
    queue.max_active(1).build().unwrap()
}

/// Queues an item from a CPU and returns on which it ran.
fn ran_on(queue: &Workqueue<Sim>, cpu: usize) -> usize {
    stand_on(cpu);
    let ran = queue.spawn(Sim::current_cpu).join().unwrap();
    Sim::sleep(WHILE);
    ran
}

/// How many items ran under the cache of the CPU that queued them.
fn near(hints: bool, localize: bool) -> usize {
    two_caches(hints, move || {
        let queue = queue(AffinityScope::System, localize);
        let is_near = |round: &usize| {
            let cpu = (round * 5) % 8;
            ran_on(&queue, cpu) / 4 == cpu / 4
        };
        (0..40).filter(is_near).count()
    })
}

#[test]
fn workers_of_localised_queues_wake_up_near_the_cpu_that_queued() {
    let (hinted, not_localised) = (near(true, true), near(true, false));
    assert!(hinted >= 38, "{hinted} of 40 items ran near");
    assert!(not_localised <= 30, "{not_localised} of 40 items ran near by chance");
}

#[test]
fn a_worker_that_slept_outside_its_pod_wakes_up_in_it() {
    two_caches(true, || {
        let queue = queue(AffinityScope::Cache, false);
        let forced = || queue.statistics().iter().map(|row| row.repatriated).sum::<u64>();
        // A new thread may begin outside.
        ran_on(&queue, 1);
        let before = forced();
        let me = |cpus: &str| Sim::set_affinity(Sim::current_thread(), &cpus.parse().unwrap());
        for cpu in [1, 2, 1, 0] {
            stand_on(cpu);
            // As a scheduler that finds a CPU free elsewhere.
            let moved = queue.spawn(move || {
                me("6").unwrap();
                me("0-7").unwrap();
                Sim::current_cpu()
            });
            assert_eq!(moved.join().unwrap(), 6);
            Sim::sleep(WHILE);
            assert!(ran_on(&queue, cpu) < 4, "it is back in the pod");
        }
        assert_eq!(forced(), before, "and was not moved by force");
    });
}
