//! The same runtime on simulated machines: 64 CPUs, every scope, the same run for the same seed.

use std::sync::Arc;
use std::time::Duration;

use nearq_core::{AffinityScope, Runtime, Work};
use nearq_lock::Mutex;
use nearq_platform::{LockPlatform, Parker, ThreadSpec, Threads};
use nearq_sim::{Faults, Outcome, Schedule, Sim, Simulation, compute};
use nearq_topology::{CpuSet, Limits, Topology};

/// What an item saw: its number, and the CPU it ran on.
type Seen = Arc<Mutex<Vec<(usize, usize)>, Sim>>;

const ISSUERS: usize = 8;

/// Runs that many items through a queue of `scope`, from eight issuers; returns what the items saw.
fn program(scope: AffinityScope, strict: bool, items: usize) -> Vec<(usize, usize)> {
    let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
    let queue = runtime
        .workqueue_builder("simulated")
        .affinity_scope(scope)
        .affinity_strict(strict)
        .build()
        .expect("the call succeeds");
    let queue = Arc::new(queue);
    let seen: Seen = Arc::new(Mutex::new_in(Vec::with_capacity(items)));
    let issuers: Vec<_> = (0..ISSUERS)
        .map(|issuer| {
            let (queue, seen) = (Arc::clone(&queue), Arc::clone(&seen));
            let main = move || {
                for number in (issuer..items).step_by(ISSUERS) {
                    let seen = Arc::clone(&seen);
                    drop(queue.spawn(move || {
                        let cpu = Sim::current_cpu();
                        compute(Duration::from_micros(1 + number as u64 % 7));
                        seen.lock().push((number, cpu));
                    }));
                    if number % 100 == 0 {
                        Sim::sleep(Duration::from_micros(50));
                    }
                }
            };
            Sim::spawn(ThreadSpec::default(), main).expect("a thread can be started")
        })
        .collect();
    issuers.into_iter().for_each(Sim::join);
    let queue = Arc::into_inner(queue).expect("the issuers have ended");
    drop(queue);
    drop(runtime);
    core::mem::take(&mut *seen.lock())
}

fn run(
    seed: u64,
    schedule: Schedule,
    scope: AffinityScope,
    strict: bool,
    items: usize,
) -> Outcome<Vec<(usize, usize)>> {
    let machine = Topology::from_synthetic("pack:2 l3:4 core:8").expect("well formed");
    assert_eq!(machine.possible().len(), 64);
    Simulation::new(machine, seed).schedule(schedule).run(move || program(scope, strict, items))
}

/// Each item ran once, and all threads have ended.
fn check(outcome: &Outcome<Vec<(usize, usize)>>, items: usize) {
    let seen = outcome.result.as_ref().unwrap_or_else(|| panic!("{}", outcome.report()));
    assert!(outcome.panics.is_empty() && outcome.unfinished.len() <= 1, "{}", outcome.report());
    assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
    let mut numbers: Vec<_> = seen.iter().map(|(number, _)| *number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..items).collect::<Vec<_>>());
}

#[test]
fn thousands_of_items_in_every_scope() {
    let items = nearq_model::bound(3_000, 10_000);
    for &scope in AffinityScope::ALL {
        let outcome = run(1, Schedule::Fair, scope, false, items);
        check(&outcome, items);
        println!("{scope}: {} us, {} accesses", outcome.end.as_nanos() / 1000, outcome.accesses);
        let used: CpuSet = outcome.result.iter().flatten().map(|(_, cpu)| *cpu).collect();
        assert!(used.len() > 1, "{scope}: {used}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for scope in [AffinityScope::Cache, AffinityScope::System] {
        let [first, second, other] =
            [5, 5, 6].map(|seed| run(seed, Schedule::Fair, scope, false, 2_000));
        for outcome in [&first, &second, &other] {
            check(outcome, 2_000);
        }
        assert_eq!((first.end, first.trace_hash), (second.end, second.trace_hash));
        assert_eq!(first.result, second.result);
        assert_ne!(first.trace_hash, other.trace_hash);
    }
}

#[test]
fn nothing_is_lost_under_random_faults() {
    for seed in 0..30 {
        let scope = AffinityScope::ALL[seed as usize % AffinityScope::ALL.len()];
        let outcome = run(seed, Schedule::Random, scope, seed % 4 == 0, 300);
        check(&outcome, 300);
    }
}

#[test]
fn strict_items_run_in_the_pod_of_the_cpu_that_queued_them() {
    let machine = Topology::from_synthetic("pack:2 l3:4 core:8").expect("well formed");
    let pods = machine.clone();
    let outcome = Simulation::new(machine, 3).run(move || {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let strict = runtime
            .workqueue_builder("strict")
            .affinity_scope(AffinityScope::Cache)
            .affinity_strict(true);
        let queue = strict.build().expect("the call succeeds");
        let seen: Seen = Arc::new(Mutex::new_in(Vec::new()));
        let works: Vec<_> = (0..64)
            .map(|cpu| {
                let seen = Arc::clone(&seen);
                Work::<Sim>::new_in(move |_: &Work<Sim>| {
                    compute(Duration::from_micros(3));
                    seen.lock().push((cpu, Sim::current_cpu()));
                })
            })
            .collect();
        for _ in 0..20 {
            for (cpu, work) in works.iter().enumerate() {
                queue.queue_on(cpu, work).expect("there is such a CPU");
            }
            Sim::sleep(Duration::from_micros(100));
        }
        drop(queue);
        core::mem::take(&mut *seen.lock())
    });
    let seen = outcome.expect();
    assert!(seen.len() > 64);
    for (queued, ran) in seen {
        assert_eq!(pods.llc_index(queued), pods.llc_index(ran), "queued on {queued}, ran on {ran}");
    }
}

#[test]
fn sleepers_may_exceed_the_cpus_but_runners_do_not() {
    let machine = Topology::from_synthetic("l3:2 core:4").expect("well formed");
    let outcome = Simulation::new(machine, 9).run(|| {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let queue = runtime
            .workqueue_builder("sleepers")
            .affinity_scope(AffinityScope::Cache)
            .build()
            .expect("the call succeeds");
        let begin = Sim::now();
        let sleepers: Vec<_> =
            (0..12).map(|_| queue.spawn(|| Sim::sleep(Duration::from_secs(1)))).collect();
        Sim::sleep(Duration::from_millis(100));
        let late = queue.spawn(Sim::now).join().expect("no panic") - begin;
        for handle in sleepers {
            handle.join().expect("no panic");
        }
        let all = Sim::now() - begin;
        drop(queue);
        drop(runtime);
        (late, all)
    });
    let (late, all) = outcome.expect();
    assert!(late < Duration::from_millis(150), "started after {late:?} although all workers sleep");
    assert!(all < Duration::from_millis(1200), "twelve sleeps of a second at once took {all:?}");
}

/// CPU time that eight items of 10 ms take together on a machine with two caches of four cores each, if one thread
/// queues them. An item that shares its core takes 10 ms / 0.62.
fn eight_items(helping: bool) -> Duration {
    let machine = Topology::from_synthetic("l3:2 core:4 pu:2").expect("well formed");
    let outcome = Simulation::new(machine, 2).run(move || {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let builder = runtime
            .workqueue_builder("cores")
            .affinity_scope(AffinityScope::Cache)
            .helping(helping);
        let queue = builder.build().expect("the call succeeds");
        let spawn = |_| {
            // By then, the worker that was called for the item before has found that item.
            Sim::sleep(Duration::from_micros(100));
            queue.spawn(|| {
                let begin = Sim::now();
                compute(Duration::from_millis(10));
                Sim::now() - begin
            })
        };
        let round = || -> Duration {
            let items: Vec<_> = (0..8).map(spawn).collect();
            items.into_iter().map(|item| item.join().expect("no panic")).sum()
        };
        // The first round starts the threads.
        round();
        round()
    });
    outcome.expect()
}

#[test]
fn helpers_with_a_core_of_their_own_come_before_workers_that_share_one() {
    let (alone, helped) = (eight_items(false), eight_items(true));
    assert!(alone > Duration::from_millis(120), "eight items on four cores took {alone:?}");
    assert!(helped < Duration::from_millis(105), "eight items on eight cores took {helped:?}");
}

#[test]
fn an_item_runs_although_threads_are_refused_when_it_is_queued() {
    for seed in 0..60 {
        let machine = Topology::from_synthetic("core:2").expect("well formed");
        let mut faults = Faults::NONE;
        faults.spawn_refused_one_in = 2;
        let outcome = Simulation::new(machine, seed).faults(faults).run(|| {
            let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
            let queue = runtime.workqueue_builder("refused").build().expect("the call succeeds");
            let ran = Arc::new(Mutex::<_, Sim>::new_in(false));
            let ran_clone = Arc::clone(&ran);
            let handle = queue.spawn(move || *ran_clone.lock() = true);
            // Only checks, without helping: a join, another item or a query could cause the item to start.
            let deadline = Sim::now() + Duration::from_secs(1);
            while !*ran.lock() && Sim::now() < deadline {
                Sim::sleep(Duration::from_millis(1));
            }
            let ran = *ran.lock();
            drop((handle, queue, runtime));
            ran
        });
        assert!(outcome.expect(), "seed {seed}: the item still waits after a second");
    }
}

#[test]
fn a_queue_whose_mask_was_taken_away_can_be_changed() {
    let machine = Topology::from_synthetic("core:2").expect("well formed");
    let outcome = Simulation::new(machine.clone(), 1).run(move || {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let second = CpuSet::single(1);
        let queue = runtime.workqueue_builder("masked").cpumask(second.clone()).build();
        let queue = queue.expect("the process may use the CPU");
        let mut limits = Limits::unlimited(machine.possible().clone());
        limits.cpuset = Some(CpuSet::single(0));
        Sim::set_limits(limits);
        runtime.refresh();
        assert_eq!(queue.effective_cpumask(), CpuSet::single(0), "the remaining CPU");
        queue.set_affinity_strict(true).expect("the failure is not due to the mask");
        queue.set_cpumask(CpuSet::all(2)).expect("one of them is allowed");
        queue.set_cpumask(second).expect_err("none of it is allowed");
        assert_eq!(queue.spawn(Sim::current_cpu).join().expect("no panic"), 0);
    });
    outcome.expect();
}

/// An issuer on each of 72 CPUs, each of which waits for its item before it queues the item again: returns how many items run a second.
/// After some time, `disturb` is called with the queue.
fn rate(disturb: impl FnOnce(&nearq_core::Workqueue<Sim>) + 'static) -> u64 {
    const ROUNDS: u64 = 300;
    let machine = Topology::from_synthetic("l3:1 core:72").expect("well formed");
    let outcome = Simulation::new(machine, 4).run(move || {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let queue = Arc::new(runtime.workqueue_builder("rate").build().expect("the call succeeds"));
        let issue = |cpu| {
            let queue = Arc::clone(&queue);
            let affinity = Some(CpuSet::single(cpu));
            let main = move || {
                let parker = Arc::new(Parker::<Sim>::new());
                let works = [(); 2].map(|()| {
                    let parker = Arc::clone(&parker);
                    Work::<Sim>::new_in(move |_: &Work<Sim>| parker.unpark())
                });
                for round in 0..ROUNDS {
                    // Two items take turns, because the one that has just run may still be running.
                    assert!(queue.queue(&works[round as usize % 2]));
                    parker.park(None);
                }
            };
            Sim::spawn(ThreadSpec { affinity, ..ThreadSpec::default() }, main)
                .expect("a thread can be started")
        };
        let issuers: Vec<_> = (0..72).map(issue).collect();
        let begin = Sim::now();
        Sim::sleep(Duration::from_micros(300));
        disturb(&queue);
        issuers.into_iter().for_each(Sim::join);
        let took = Sim::now() - begin;
        72 * ROUNDS * 1_000_000_000 / took.as_nanos() as u64
    });
    outcome.expect()
}

#[test]
fn a_briefly_closed_queue_reopens_under_load() {
    let (without, with) =
        (rate(|_| {}), rate(|queue| queue.set_max_active(1023).expect("the call succeeds")));
    println!("{without} items a second, {with} after the limit was written");
    assert!(with > without / 2);
}
