//! The kernel's policy does what its description says, however its threads interleave.

use super::*;
use crate::harness::simulate;
use nearq_sim::switched;

use crate::Machine;
use nearq_platform::AtomicInt as _;
use nearq_sim::{Ending, Schedule, compute};
use nearq_topology::AffinityScope;

const MILLISECOND: Duration = Duration::from_millis(1);
const LIMIT: Duration = Duration::from_secs(10);

fn placement(scope: AffinityScope, strict: bool, localize: bool) -> Placement {
    Placement { scope, strict, localize }
}

fn queue(placement: Placement, most: usize) -> KernelQueue {
    KernelQueue::new(placement, (most, Counting::CompareExchange), &Census::default()).unwrap()
}

fn on<R: 'static>(machine: &str, program: impl FnOnce() -> R + 'static) -> R {
    simulate(&Machine::named(machine).unwrap(), 1, LIMIT, program).unwrap().result
}

fn go_to(cpus: &str) {
    Sim::set_affinity(Sim::current_thread(), &cpus.parse().unwrap()).unwrap();
}

/// Returns where each of that many items of 20 ms, queued on a CPU, was every millisecond; the most items that had begun and not ended, in
/// the last round; the number of workers made; and how many of them were brought back.
fn places(
    placement: Placement,
    cpu: &'static str,
    items: usize,
    rounds: usize,
) -> (Vec<usize>, usize, usize, u64) {
    on("l3:2 core:3", move || {
        go_to(cpu);
        let queue = queue(placement, 2048);
        // Running now, the most so far, and where.
        let seen = Arc::new(Mutex::new((0_usize, 0_usize, Vec::new())));
        let all: Vec<_> = (0..items)
            .map(|_| {
                let seen = Arc::clone(&seen);
                queue.item(Box::new(move || {
                    {
                        let mut seen = host(&seen);
                        seen.0 += 1;
                        seen.1 = seen.1.max(seen.0);
                    }
                    for _ in 0..20 {
                        let cpu = Sim::current_cpu();
                        host(&seen).2.push(cpu);
                        compute(MILLISECOND);
                    }
                    host(&seen).0 -= 1;
                }))
            })
            .collect();
        for _ in 0..rounds {
            host(&seen).1 = 0;
            assert!(all.iter().all(KernelItem::queue));
            while queue.0.left() > 0 {
                Sim::sleep(MILLISECOND);
            }
        }
        let workers = queue.0.pools.iter().map(|pool| pool.state.with(|state| state.workers));
        let workers = workers.sum();
        let repatriated = queue.counts().repatriated;
        assert_eq!(queue.counts().completed as usize, items * rounds);
        let (_, most, places) = std::mem::take(&mut *host(&seen));
        (places, most, workers, repatriated)
    })
}

#[test]
fn as_many_workers_run_as_there_are_items_and_one_is_idle() {
    for scope in [AffinityScope::System, AffinityScope::Cache] {
        for rounds in 1..=2 {
            let (_, most, workers, _) = places(placement(scope, false, false), "0", 16, rounds);
            let pools = if scope == AffinityScope::System { 1 } else { 2 };
            // In the second round they wake one another, each when it gets a CPU, and the first items end in the meantime.
            let least = if rounds == 1 { 16 } else { 7 };
            assert!(most >= least, "{scope:?}, round {rounds}: {most} at once, on 6 CPUs");
            // The idle worker of each pool, and one worker for each item.
            assert_eq!(workers, 16 + pools, "{scope:?}");
        }
    }
}

#[test]
fn strict_workers_stay_in_their_pod_and_others_do_not() {
    for (cpu, pod) in [("0", 0..3), ("4", 3..6)] {
        let (strict, ..) = places(placement(AffinityScope::Cache, true, false), cpu, 12, 2);
        assert!(strict.iter().all(|cpu| pod.contains(cpu)), "{pod:?}: {strict:?}");
        let (free, .., back) = places(placement(AffinityScope::Cache, false, false), cpu, 12, 2);
        assert!(free.iter().any(|cpu| !pod.contains(cpu)), "the scheduler moves workers");
        assert!(back > 0, "moved workers are brought back in the second round");
    }
}

#[test]
fn a_single_item_starts_in_its_pod_and_a_localised_one_near_its_issuer() {
    for scope in [AffinityScope::System, AffinityScope::Cache] {
        let first =
            |strict, localize, cpu| places(placement(scope, strict, localize), cpu, 1, 2).0[20];
        assert!((3..6).contains(&first(false, true, "5")), "{scope:?}, localised");
        assert!((0..3).contains(&first(false, true, "1")), "{scope:?}, localised");
        if scope == AffinityScope::Cache {
            assert!((3..6).contains(&first(false, false, "5")));
        }
    }
}

/// Issuers that queue their items again and again, even while those run. Returns how often an item was queued, how often
/// it ran, and the hash of the run.
fn storm(placement: Placement, seed: u64) -> (usize, usize, u64) {
    let simulation = Machine::named("l3:2 core:2").unwrap().simulation(seed).unwrap();
    let entered = switched::enter();
    let outcome = simulation.schedule(Schedule::Random).time_limit(LIMIT).run(move || {
        // Two of nine items wait most of the time.
        let queue = queue(placement, 7);
        let ran = Arc::new(AtomicU32::new(0));
        let queued = Arc::new(AtomicU32::new(0));
        let issuers: Vec<_> = (0..3)
            .map(|_| {
                let items: Vec<_> = (0..3)
                    .map(|_| {
                        let (ran, inside) = (Arc::clone(&ran), AtomicU32::new(0));
                        queue.item(Box::new(move || {
                            assert_eq!(
                                inside.swap(1, Ordering::AcqRel),
                                0,
                                "an item ran twice at once"
                            );
                            compute(Duration::from_micros(30));
                            ran.fetch_add(1, Ordering::AcqRel);
                            inside.store(0, Ordering::Release);
                        }))
                    })
                    .collect();
                let queued = Arc::clone(&queued);
                let issue = move || {
                    for round in 0..20 {
                        for item in &items {
                            let new = u32::from(item.queue());
                            queued.fetch_add(new, Ordering::AcqRel);
                        }
                        compute(Duration::from_micros(round * 5));
                    }
                };
                Sim::spawn(ThreadSpec::default(), issue).unwrap()
            })
            .collect();
        issuers.into_iter().for_each(Sim::join);
        // Ends when everything has run.
        drop(queue);
        let count = |count: &AtomicU32| count.load(Ordering::Acquire) as usize;
        (count(&queued), count(&ran))
    });
    drop(entered);
    assert_eq!(outcome.ending, Ending::Returned, "seed {seed}: {}", outcome.report());
    assert!(outcome.panics.is_empty(), "seed {seed}: {:?}", outcome.panics);
    let (queued, ran) = outcome.result.expect("it returned");
    (queued, ran, outcome.trace_hash)
}

#[test]
fn every_item_gets_its_worker_however_threads_interleave() {
    for seed in 0..60 {
        let simulation = Machine::named("l3:2 core:2").unwrap().simulation(seed).unwrap();
        let entered = switched::enter();
        let outcome = simulation.schedule(Schedule::Random).time_limit(LIMIT).run(|| {
            let queue = queue(placement(AffinityScope::Cache, true, false), 2048);
            // Running now, and the most so far.
            let seen = Arc::new(Mutex::new((0_usize, 0_usize)));
            let issuers: Vec<_> = (0..2)
                .map(|number| {
                    let items: Vec<_> = (0..12)
                        .map(|_| {
                            let seen = Arc::clone(&seen);
                            queue.item(Box::new(move || {
                                {
                                    let (now, most) = &mut *host(&seen);
                                    *now += 1;
                                    *most = (*most).max(*now);
                                }
                                compute(100 * MILLISECOND);
                                host(&seen).0 -= 1;
                            }))
                        })
                        .collect();
                    let spec = ThreadSpec {
                        affinity: Some(CpuSet::single(2 * number)),
                        ..ThreadSpec::default()
                    };
                    Sim::spawn(spec, move || assert!(items.iter().all(KernelItem::queue))).unwrap()
                })
                .collect();
            issuers.into_iter().for_each(Sim::join);
            drop(queue);
            host(&seen).1
        });
        drop(entered);
        assert_eq!(outcome.ending, Ending::Returned, "seed {seed}: {}", outcome.report());
        assert_eq!(
            outcome.result,
            Some(24),
            "seed {seed}: all run at once, none waits for another"
        );
    }
}

#[test]
fn nothing_is_lost_or_runs_twice_however_threads_interleave() {
    let mut refused = false;
    for seed in 0..20 {
        for (scope, strict, localize) in [
            (AffinityScope::System, false, false),
            (AffinityScope::Cache, false, false),
            (AffinityScope::Cache, true, false),
            (AffinityScope::Cache, false, true),
        ] {
            let (queued, ran, _) = storm(placement(scope, strict, localize), seed);
            assert_eq!(queued, ran, "seed {seed}, {scope:?} strict {strict} local {localize}");
            assert!(queued >= 9, "each item at least once");
            refused |= queued < 180;
        }
    }
    assert!(refused, "some items were still queued at the next round of their issuer");
}

#[test]
fn a_run_is_a_function_of_the_seed() {
    let cache = placement(AffinityScope::Cache, false, true);
    assert_eq!(storm(cache, 3), storm(cache, 3));
    assert_ne!(storm(cache, 3).2, storm(cache, 4).2);
}
