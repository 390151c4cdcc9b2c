//! Priorities on a simulated machine: an item of high priority starts although threads are busy on its CPU, and an item of the idle class
//! waits for all others.

use std::sync::Arc;
use std::time::Duration;

use nearq_core::{Runtime, Work, WorkqueueBuilder};
use nearq_lock::Mutex;
use nearq_platform::{Atomic, LockPlatform, Ordering, Placement, ThreadSpec, Threads};
use nearq_sim::{AtomicU32, Outcome, Sim, Simulation, compute};
use nearq_topology::{CpuSet, Topology};

const MILLISECOND: Duration = Duration::from_millis(1);
/// How long an item computes.
const ITEM: Duration = Duration::from_micros(10);

/// The median and the longest of the times that a hundred items took from their queueing to their start. They are items of a per-CPU queue
/// on CPU 1, where `busy` ordinary threads compute without end, and each item computes for the time `item`; the issuer is on CPU 0.
fn from_queueing_to_start(
    seed: u64,
    busy: u32,
    item: Duration,
    settings: fn(WorkqueueBuilder<Sim>) -> WorkqueueBuilder<Sim>,
) -> Outcome<(Duration, Duration)> {
    let machine = Topology::from_synthetic("core:2").expect("well formed");
    Simulation::new(machine, seed).run(move || {
        Sim::set_affinity(Sim::current_thread(), &CpuSet::single(0)).expect("there is one");
        let stop = Arc::new(AtomicU32::new(0));
        let crowd: Vec<_> = (0..busy)
            .map(|_| {
                let (stop, affinity) = (Arc::clone(&stop), Some(CpuSet::single(1)));
                let main = move || {
                    while stop.load(Ordering::Relaxed) == 0 {
                        compute(MILLISECOND);
                    }
                };
                Sim::spawn(ThreadSpec { affinity, ..ThreadSpec::default() }, main)
                    .expect("a thread can be started")
            })
            .collect();
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        // The issuer's mask is not the process's.
        let queue = settings(runtime.workqueue_builder("measured").per_cpu());
        let queue = queue.build().expect("the call succeeds");
        let times = Arc::new(Mutex::<Vec<Duration>, Sim>::new_in(Vec::new()));
        for _ in 0..100 {
            let (queued, times_clone) = (Sim::now(), Arc::clone(&times));
            let work = Work::<Sim>::new_in(move |_: &Work<Sim>| {
                let took = Sim::now() - queued;
                compute(item);
                times_clone.lock().push(took);
            });
            assert!(queue.queue_on(1, &work).expect("there is the CPU"));
            work.flush().expect("not from within it");
            Sim::sleep(4 * MILLISECOND);
        }
        stop.store(1, Ordering::Relaxed);
        crowd.into_iter().for_each(Sim::join);
        let mut times = core::mem::take(&mut *times.lock());
        // The first item started the thread.
        times.remove(0);
        times.sort_unstable();
        (times[times.len() / 2], times[times.len() - 1])
    })
}

#[test]
fn an_item_of_high_priority_starts_beside_busy_threads() {
    for seed in 0..5 {
        let usual = from_queueing_to_start(seed, 20, ITEM, |queue| queue).expect();
        let urgent = from_queueing_to_start(seed, 20, ITEM, WorkqueueBuilder::highpri).expect();
        let alone = from_queueing_to_start(seed, 0, ITEM, WorkqueueBuilder::highpri).expect();
        println!("{usual:?}, with high priority {urgent:?}, alone {alone:?}");
        assert!(usual.1 > 20 * MILLISECOND, "seed {seed}: it waits for its turn: {usual:?}");
        assert!(
            urgent.1 < Duration::from_micros(100),
            "seed {seed}: the urgent item waits: {urgent:?}"
        );
        assert!(urgent.0 < 3 * alone.0, "seed {seed}: {urgent:?} beside them, {alone:?} alone");
    }
}

#[test]
fn a_short_slice_helps_without_privileges() {
    for seed in 0..5 {
        let usual = from_queueing_to_start(seed, 2, ITEM, |queue| queue).expect();
        let sliced = from_queueing_to_start(seed, 2, ITEM, |queue| {
            queue.time_slice(Duration::from_micros(100))
        });
        let sliced = sliced.expect();
        println!("{usual:?}, with a short slice {sliced:?}");
        assert!(sliced.1 < usual.1 / 2, "seed {seed}: {sliced:?}, without it {usual:?}");
    }
}

#[test]
fn an_item_of_the_idle_class_waits_for_all_other_threads() {
    // Items that compute for so long that the worker's share of the CPU matters: a worker that hardly uses the CPU gets it at the next tick
    // in either class.
    let item = 2 * MILLISECOND;
    for seed in 0..5 {
        let idle = from_queueing_to_start(seed, 1, item, WorkqueueBuilder::sched_idle).expect();
        let usual = from_queueing_to_start(seed, 1, item, |queue| queue.nice(19)).expect();
        println!("idle {idle:?}, nice 19 {usual:?}");
        // Their weights are 3 and 15.
        assert!(idle.1 > 2 * usual.1, "seed {seed}: {idle:?}, at nice 19 {usual:?}");
    }
}
