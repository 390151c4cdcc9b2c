//! Fork-join on simulated machines: a tree uses all CPUs, strict queues stay in their pod, near CPUs take part first, and nothing is lost
//! if threads are preempted at any moment.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use nearq_core::inspect::PoolStatistics;
use nearq_core::{AffinityScope, Runtime, Workqueue};
use nearq_lock::Mutex;
use nearq_platform::LockPlatform;
use nearq_sim::{Costs, Faults, Sim, Simulation, compute};
use nearq_topology::Topology;

use crate::common::simulate;

const MACHINE: &str = "pack:2 l3:2 core:4 pu:1";
const LEAF: Duration = Duration::from_micros(50);

/// A tree whose leaves compute and note their CPU. The pause before each fork represents the other work of a caller.
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
        let used = cpus.iter().collect::<BTreeSet<_>>().len();
        assert_eq!(used, 16, "{scope}");
    }
}

#[test]
fn thieves_are_counted_apart_from_the_items_of_the_program() {
    let (depth, items) = (8, 3);
    let (completed, thieves, stolen) = simulate(MACHINE, 1, move || {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let queue = runtime.workqueue_builder("tree").build().expect("valid");
        let cpus = Mutex::<_, Sim>::new_in(Vec::new());
        for _ in 0..items {
            queue.install(|| tree(&queue, depth, &cpus));
        }
        // The last thieves still search.
        queue.drain().expect("not in an item of the queue");
        let rows = queue.statistics();
        let sum = |of: fn(&PoolStatistics) -> u64| rows.iter().map(of).sum::<u64>();
        (sum(|row| row.completed), sum(|row| row.thieves), sum(|row| row.stolen))
    });
    assert_eq!(completed - thieves, items);
    assert!(thieves >= items && stolen >= thieves / 2, "{thieves} thieves, {stolen} stolen");
    assert!(stolen <= items * ((1 << depth) - 1), "{stolen} stolen, one for each join at most");
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

/// Threads are preempted at any point, woken for nothing and refused; CPUs go offline and come back.
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

/// A thief has a long closure, and there is no other job at that moment. The owner goes on forking: the whole machine helps. Most seeds,
/// because a worker that wakes may find its CPU taken, and then waits for a time slice.
#[test]
fn what_is_forked_while_the_only_thief_is_busy_is_shared() {
    let run = |seed| {
        simulate(MACHINE, seed, || {
            let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
            let queue = runtime
                .workqueue_builder("tree")
                .affinity_scope(AffinityScope::System)
                .build()
                .expect("valid");
            let cpus = Mutex::<_, Sim>::new_in(Vec::new());
            let (took, ()) = queue.join(
                || {
                    compute(Duration::from_micros(200));
                    let began = Sim::now();
                    tree(&queue, 10, &cpus);
                    Sim::now() - began
                },
                || compute(Duration::from_millis(100)),
            );
            let used = cpus.into_inner().into_iter().collect::<BTreeSet<_>>().len();
            (took, used)
        })
    };
    let ideal = LEAF * 1024 / 15;
    let mut runs: Vec<_> = (1..=5).map(run).collect();
    assert!(runs.iter().all(|&(_, used)| used >= 15), "CPUs used: {runs:?}");
    runs.sort_unstable();
    assert!(runs[2].0 < ideal * 3 / 2, "{runs:?}, ideally {ideal:?}");
}

/// Mixes both into a pseudo-random number.
fn scrambled(seed: u64, salt: u64) -> u64 {
    let mut x = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(salt * 2 + 1);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 32)
}

/// Random trees on queues of all kinds, during flushes, freezes and changes, with faults.
#[test]
fn random_trees_beside_changes() {
    fn grow(queue: &Workqueue<Sim>, depth: u32, seed: u64) -> u64 {
        let next = |salt| scrambled(seed, salt);
        if depth == 0 {
            match next(9) % 8 {
                0 => Sim::sleep(Duration::from_micros(next(8) % 300)),
                1 => queue
                    .runtime()
                    .block_in_place(|| Sim::sleep(Duration::from_micros(next(8) % 300))),
                _ => compute(Duration::from_micros(next(8) % 40)),
            }
            return 1;
        }
        let left = depth - 1 - (next(3) % 2).min(u64::from(depth - 1)) as u32;
        let (a, b) = queue.join(|| grow(queue, left, next(1)), || grow(queue, depth - 1, next(2)));
        a + b
    }
    fn count(depth: u32, seed: u64) -> u64 {
        let next = |salt| scrambled(seed, salt);
        if depth == 0 {
            return 1;
        }
        let left = depth - 1 - (next(3) % 2).min(u64::from(depth - 1)) as u32;
        count(left, next(1)) + count(depth - 1, next(2))
    }
    for seed in 1..=100_u64 {
        let machine = Topology::from_synthetic(
            ["l3:2 core:2", "numa:2 l3:2 core:2", "core:1", "l3:4 core:1 pu:2"][seed as usize % 4],
        )
        .expect("well formed");
        let outcome =
            Simulation::new(machine, seed).time_limit(Duration::from_mins(2)).run(move || {
                let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
                let scopes = [
                    AffinityScope::Cache,
                    AffinityScope::System,
                    AffinityScope::Numa,
                    AffinityScope::Cpu,
                ];
                let queues: Vec<_> = (0..3_u64)
                    .map(|number| {
                        let limit = [2, 3, 8, 500][((seed + number) % 4) as usize];
                        let queue = runtime
                            .workqueue_builder("tree")
                            .affinity_scope(scopes[((seed / 3 + number) % 4) as usize])
                            .affinity_strict((seed + number) % 5 == 0)
                            .max_active(limit)
                            .freezable()
                            .build()
                            .expect("valid");
                        Arc::new(queue)
                    })
                    .collect();
                if seed % 3 != 0 {
                    Sim::start_faults(Faults::ALL);
                }
                let trees: Vec<_> = (0..9_u64)
                    .map(|number| {
                        let queue = Arc::clone(&queues[(number % 3) as usize]);
                        let inside = Arc::clone(&queue);
                        queue.spawn(move || {
                            let seed = seed * 100 + number;
                            let mut right = true;
                            for round in 0..4 {
                                right &= grow(&inside, 6, seed + round) == count(6, seed + round);
                            }
                            right
                        })
                    })
                    .collect();
                for step in 0..6_u64 {
                    Sim::sleep(Duration::from_micros(50 + seed % 97 * 7));
                    let queue = &queues[(step % 3) as usize];
                    match (seed + step) % 7 {
                        0 => queue.flush().unwrap(),
                        1 => queue.set_affinity_scope(scopes[(seed % 4) as usize]).unwrap(),
                        2 => queue.set_max_active(2 + (seed % 5) as usize).unwrap(),
                        3 => {
                            runtime.freeze().unwrap();
                            runtime.thaw();
                        }
                        4 => queue.drain().unwrap(),
                        5 => queue.set_nice((seed % 3) as i32).unwrap(),
                        _ => assert_eq!(queue.install(|| grow(queue, 4, seed)), count(4, seed)),
                    }
                }
                let all = trees.into_iter().all(|tree| tree.join().expect("no panic"));
                Sim::start_faults(Faults::NONE);
                all
            });
        assert!(outcome.panics.is_empty(), "seed {seed}: {}", outcome.report());
        assert!(outcome.expect(), "seed {seed}");
    }
}

/// Each pod of a strict queue has an item that forks. The thieves of one pod cannot help in another, so each pod calls its own.
#[test]
fn trees_in_several_strict_pods_are_all_shared() {
    for seed in 1..=10 {
        let times = simulate("l3:4 core:4 pu:1", seed, || {
            let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
            let queue = runtime
                .workqueue_builder("tree")
                .affinity_scope(AffinityScope::Cache)
                .affinity_strict(true)
                .build()
                .expect("valid");
            let queue = Arc::new(queue);
            let trees: Vec<_> = (0..4)
                .map(|pod| {
                    let inside = Arc::clone(&queue);
                    queue.task().on_cpu(pod * 4).expect("placed").spawn(move || {
                        let cpus = Mutex::<_, Sim>::new_in(Vec::new());
                        let began = Sim::now();
                        inside.join(|| tree(&inside, 9, &cpus), || ());
                        Sim::now() - began
                    })
                })
                .collect();
            trees.into_iter().map(|tree| tree.join().expect("no panic")).collect::<Vec<_>>()
        });
        let ideal = LEAF * 512 / 4;
        assert!(times.iter().all(|took| *took < ideal * 3 / 2), "{times:?}, ideally {ideal:?}");
    }
}

// ---- scopes within items ---------------------------------------------------------------------------------

/// As `tree`, with a scope for each fork; every other fork spawns on the scope above.
fn scope_tree(queue: &Workqueue<Sim>, depth: u32, leaves: &Mutex<u32, Sim>) {
    if depth == 0 {
        compute(LEAF);
        *leaves.lock() += 1;
        return;
    }
    queue.scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || {
                if half == 0 && depth > 1 {
                    scope.spawn(move || scope_tree(queue, depth - 2, leaves));
                    scope.spawn(move || scope_tree(queue, depth - 2, leaves));
                } else {
                    scope_tree(queue, depth - 1, leaves);
                }
            });
        }
    });
}

/// How long such a tree of 2 to the power of `depth` leaves takes.
fn run_scopes(machine: &str, seed: u64, max_active: Option<usize>, depth: u32) -> Duration {
    simulate(machine, seed, move || {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let builder = runtime.workqueue_builder("tree");
        let builder = match max_active {
            Some(items) => builder.max_active(items),
            None => builder,
        };
        let queue = builder.build().expect("valid");
        let leaves = Mutex::<_, Sim>::new_in(0);
        let began = Sim::now();
        queue.install(|| scope_tree(&queue, depth, &leaves));
        assert_eq!(leaves.into_inner(), 1 << depth);
        Sim::now() - began
    })
}

#[test]
fn a_tree_of_scopes_uses_all_cpus() {
    let took = run_scopes(MACHINE, 1, None, 10);
    let ideal = LEAF * 1024 / 16;
    assert!(took < ideal * 3 / 2, "{took:?}, ideally {ideal:?}");
}

/// An item and one thief have places. The item's scope waits for closures that the thief has, and helps it.
#[test]
fn a_scope_that_waits_helps_the_thief() {
    for seed in 1..=20 {
        let took = run_scopes("core:2", seed, Some(2), 8);
        let ideal = LEAF * 256 / 2;
        assert!(took < ideal * 4 / 3, "seed {seed}: {took:?}, ideally {ideal:?}");
    }
}

/// Threads are preempted at any point, woken for nothing and refused; CPUs go offline and come back; the limit changes.
#[test]
fn scopes_end_whatever_goes_wrong() {
    for seed in 1..=60 {
        let machine = Topology::from_synthetic("l3:2 core:2").expect("well formed");
        let outcome = Simulation::new(machine, seed).time_limit(Duration::from_mins(1)).run(|| {
            let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
            let queue = Arc::new(runtime.workqueue_builder("tree").build().expect("valid"));
            Sim::start_faults(Faults::ALL);
            let trees: Vec<_> = (0..3)
                .map(|_| {
                    let inside = Arc::clone(&queue);
                    queue.spawn(move || {
                        let leaves = Mutex::<_, Sim>::new_in(0);
                        (0..4).for_each(|_| scope_tree(&inside, 5, &leaves));
                        leaves.into_inner()
                    })
                })
                .collect();
            for max_active in [2, 1, 3, 256] {
                queue.change(|attributes| attributes.max_active = max_active).expect("valid");
            }
            let leaves: Vec<_> =
                trees.into_iter().map(|tree| tree.join().expect("no panic")).collect();
            Sim::start_faults(Faults::NONE);
            leaves
        });
        assert_eq!(outcome.expect(), [128; 3], "seed {seed}");
    }
}

/// On a slow machine, a round over the deques of many blocked workers takes longer than a search, and the owners do not answer: their jobs
/// are claimed all the same.
#[test]
fn each_of_many_leaves_that_wait_for_the_others_is_stolen() {
    fn wait(
        runtime: &Runtime<Sim>,
        queue: &Workqueue<Sim>,
        depth: u32,
        arrived: &Mutex<usize, Sim>,
    ) {
        if depth > 0 {
            let half = || wait(runtime, queue, depth - 1, arrived);
            queue.join(half, half);
            return;
        }
        *arrived.lock() += 1;
        runtime.block_in_place(|| {
            while *arrived.lock() < 32 {
                Sim::sleep(Duration::from_millis(1));
            }
        });
    }
    let machine = Topology::from_synthetic("core:2").expect("well formed");
    let mut costs = Costs::DEFAULT;
    (costs.own_line, costs.own_line_ps) = (500, 500_000);
    let simulation = Simulation::new(machine, 1).costs(costs).time_limit(Duration::from_secs(20));
    let outcome = simulation.run(|| {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let queue = runtime.workqueue_builder("leaves").build().expect("valid");
        let arrived = Mutex::<_, Sim>::new_in(0);
        queue.install(|| wait(&runtime, &queue, 5, &arrived));
        arrived.into_inner()
    });
    assert_eq!(outcome.expect(), 32);
}

/// Two items use up the queue's limit, so there are no thieves. One blocks until a closure that it has offered has run; the other only
/// yields.
#[test]
fn an_item_that_only_yields_runs_the_job_of_a_blocked_one() {
    let machine = Topology::from_synthetic("core:2").expect("well formed");
    let outcome = Simulation::new(machine, 1).time_limit(Duration::from_secs(20)).run(|| {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let queue =
            Arc::new(runtime.workqueue_builder("two").max_active(2).build().expect("valid"));
        let ran = Arc::new(Mutex::<_, Sim>::new_in(false));
        let [(blocked, is_done), (yields, has_ended)] =
            [(); 2].map(|()| (Arc::clone(&queue), Arc::clone(&ran)));
        let yields = queue.spawn(move || {
            yields.scope(|_| {
                while !*has_ended.lock() {
                    nearq_core::team::run_stolen_job::<Sim>();
                    compute(Duration::from_micros(1));
                }
            });
        });
        let blocked = queue.spawn(move || {
            let wait = || {
                while !*is_done.lock() {
                    Sim::sleep(Duration::from_millis(1));
                }
            };
            // The first closure that an item offers is public.
            blocked.join(|| blocked.join(wait, || *is_done.lock() = true), || ());
        });
        blocked.join().expect("no panic");
        yields.join().expect("no panic");
        *ran.lock()
    });
    assert!(outcome.expect());
}
