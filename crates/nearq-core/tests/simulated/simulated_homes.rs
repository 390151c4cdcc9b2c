//! Homes on simulated machines of several nodes: items run at home, run elsewhere when that is worth it, and come back; their memory stays;
//! and a dynamic home follows its memory no faster than its settings allow.

use std::sync::Arc;
use std::time::Duration;

use nearq_core::inspect::QueueKind;
use nearq_core::{
    AffinityScope, Runtime, Work, Workqueue,
    home::{Home, HomeChoice, MemoryPolicy},
    inspect::PoolStatistics,
};
use nearq_lock::Mutex;
use nearq_platform::{LockPlatform, Placement, ThreadSpec, Threads};
use nearq_sim::{Faults, Schedule, Sim, Simulation, compute};
use nearq_topology::{CpuSet, Topology};

/// Two nodes of four CPUs; each node has one cache.
fn machine() -> Topology {
    Topology::from_synthetic("numa:2 l3:1 core:4").expect("well formed")
}

/// The node of a CPU on that machine.
pub(crate) fn node(cpu: usize) -> usize {
    cpu / 4
}

pub(crate) fn simulate<R: 'static>(
    seed: u64,
    program: impl FnOnce(Runtime<Sim>) -> R + 'static,
) -> R {
    let outcome = Simulation::new(machine(), seed).run(move || {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        program(runtime)
    });
    assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
    outcome.expect()
}

fn queue(runtime: &Runtime<Sim>) -> Workqueue<Sim> {
    runtime
        .workqueue_builder("homes")
        .affinity_scope(AffinityScope::Cache)
        .build()
        .expect("the call succeeds")
}

/// Runs of items at home, and away.
fn runs(statistics: &[PoolStatistics]) -> (u64, u64) {
    let sum = |of: fn(&PoolStatistics) -> u64| statistics.iter().map(of).sum();
    (sum(|row| row.at_home), sum(|row| row.away))
}

/// Runs `main` in a thread that stays on one CPU.
pub(crate) fn on_cpu(cpu: usize, main: impl FnOnce() + Send + 'static) {
    let spec = ThreadSpec { affinity: Some(CpuSet::single(cpu)), ..ThreadSpec::default() };
    Sim::join(Sim::spawn(spec, main).expect("a thread can be started"));
}

#[test]
fn an_item_with_a_home_runs_there_wherever_it_is_queued() {
    for seed in 0..10 {
        let (ran, counted) = simulate(seed, |runtime| {
            let queue = Arc::new(queue(&runtime));
            let home = Home::on_in(&runtime, 1).expect("there is one");
            let ran = Arc::new(Mutex::<_, Sim>::new_in(Vec::new()));
            let (issuers_queue, ran_clone) = (Arc::clone(&queue), Arc::clone(&ran));
            on_cpu(0, move || {
                let note = move || ran_clone.lock().push(node(Sim::current_cpu()));
                let work = Work::new_in({
                    let note = note.clone();
                    move |_: &Work<Sim>| note()
                });
                work.set_home(&home);
                for _ in 0..50 {
                    issuers_queue.queue(&work);
                    let note = note.clone();
                    drop(issuers_queue.task().home(&home).spawn(move || {
                        compute(Duration::from_micros(20));
                        note();
                    }));
                    Sim::sleep(Duration::from_micros(100));
                }
            });
            queue.flush().expect("not within an item");
            let counted = runs(&queue.statistics());
            let ran = core::mem::take(&mut *ran.lock());
            (ran, counted)
        });
        assert_eq!(ran.len(), 100, "seed {seed}");
        assert_eq!(counted, (100, 0), "seed {seed}");
        assert!(ran.iter().all(|node| *node == 1), "seed {seed}: {ran:?}");
    }
}

/// Queues that many items of 5 ms with a home at once; returns how many ran at home and away, and how long all took.
fn burst(seed: u64, items: usize) -> (u64, u64, Duration) {
    simulate(seed, move |runtime| {
        let queue = queue(&runtime);
        let home = Home::on_in(&runtime, 1).expect("there is one");
        // So that the threads exist.
        let warm: Vec<_> = (0..8)
            .map(|cpu| {
                let work = Work::new_in(|_: &Work<Sim>| compute(Duration::from_millis(1)));
                queue.queue_on(cpu, &work).expect("there is such a CPU");
                work
            })
            .collect();
        queue.flush().expect("not within an item");
        drop(warm);
        let begin = Sim::now();
        let all: Vec<_> = (0..items)
            .map(|_| queue.task().home(&home).spawn(|| compute(Duration::from_millis(5))))
            .collect();
        for item in all {
            item.join().expect("no panic");
        }
        let took = Sim::now() - begin;
        let (at_home, away) = runs(&queue.statistics());
        (at_home, away, took)
    })
}

#[test]
fn helpers_take_items_only_beyond_the_threshold_of_a_home() {
    for seed in 0..5 {
        // Two items wait for four CPUs, for 5 ms: helping is not worth it, and they do not wait for long.
        let (at_home, away, took) = burst(seed, 6);
        assert_eq!((at_home, away), (6, 0), "seed {seed}");
        assert!(took < Duration::from_millis(13), "seed {seed}: {took:?}");
        // 60 items wait: helping is worth it, and all CPUs work.
        let (at_home, away, took) = burst(seed, 64);
        println!("{at_home} at home, {away} away, {took:?}");
        assert_eq!(at_home + away, 64);
        assert!((20..=32).contains(&away), "seed {seed}: {away} of 64 ran elsewhere");
        assert!(took < Duration::from_millis(52), "seed {seed}: {took:?} on eight CPUs");
    }
}

#[test]
fn a_long_waiting_item_may_be_taken_by_any_pool() {
    for seed in 0..5 {
        let (away, took) = simulate(seed, |runtime| {
            let queue = queue(&runtime);
            let home = Home::on_in(&runtime, 0).expect("there is one");
            let begin = Sim::now();
            // One item waits for four CPUs: that is far below the threshold.
            let all: Vec<_> = (0..5)
                .map(|_| queue.task().home(&home).spawn(|| compute(Duration::from_millis(100))))
                .collect();
            for item in all {
                item.join().expect("no panic");
            }
            (runs(&queue.statistics()).1, Sim::now() - begin)
        });
        assert_eq!(away, 1, "seed {seed}");
        assert!(took < Duration::from_millis(135), "seed {seed}: {took:?}");
    }
}

#[test]
fn helpers_take_items_without_a_home_from_pools_with_homed_items() {
    let (spread, took) = simulate(3, |runtime| {
        let queue = Arc::new(queue(&runtime));
        let home = Home::on_in(&runtime, 0).expect("there is one");
        let begin = Sim::now();
        let nodes = Arc::new(Mutex::<_, Sim>::new_in(Vec::new()));
        let (issuers_queue, nodes_clone) = (Arc::clone(&queue), Arc::clone(&nodes));
        on_cpu(0, move || {
            for _ in 0..6 {
                drop(issuers_queue.task().home(&home).spawn(|| compute(Duration::from_millis(8))));
            }
            for _ in 0..4 {
                let nodes_clone = Arc::clone(&nodes_clone);
                drop(issuers_queue.spawn(move || {
                    nodes_clone.lock().push(node(Sim::current_cpu()));
                    compute(Duration::from_millis(8));
                }));
            }
        });
        queue.flush().expect("not within an item");
        let spread = nodes.lock().iter().filter(|node| **node == 1).count();
        (spread, Sim::now() - begin)
    });
    assert!(spread >= 3, "{spread} of four that any worker may take ran on the idle node");
    assert!(took < Duration::from_millis(24), "{took:?}");
}

#[test]
fn an_item_that_ran_elsewhere_runs_at_home_the_next_time() {
    simulate(4, |runtime| {
        let queue = queue(&runtime);
        let home = Home::on_in(&runtime, 1).expect("there is one");
        let strays = Arc::new(Mutex::<_, Sim>::new_in(Vec::new()));
        let works: Vec<_> = (0..64)
            .map(|number| {
                let strays = Arc::clone(&strays);
                let work = Work::new_in(move |_: &Work<Sim>| {
                    let cpu = Sim::current_cpu();
                    compute(Duration::from_millis(2));
                    if node(cpu) != 1 {
                        strays.lock().push(number);
                    }
                });
                work.set_home(&home);
                work
            })
            .collect();
        for work in &works {
            queue.queue(work);
        }
        queue.flush().expect("not within an item");
        let strayed = core::mem::take(&mut *strays.lock());
        assert!(!strayed.is_empty(), "the home was overloaded");
        for number in strayed {
            queue.queue(&works[number]);
            queue.flush().expect("not within an item");
        }
        assert_eq!(*strays.lock(), [0; 0], "they ran elsewhere once more");
    });
}

#[test]
fn a_change_of_the_home_takes_effect_for_the_next_run() {
    simulate(5, |runtime| {
        let queue = queue(&runtime);
        let (first, second) =
            [0, 1].map(|node| Home::on_in(&runtime, node).expect("there is one")).into();
        let seen = Arc::new(Mutex::<_, Sim>::new_in(Vec::new()));
        let note = Arc::clone(&seen);
        let work = Work::new_in(move |_: &Work<Sim>| {
            compute(Duration::from_millis(1));
            note.lock().push(node(Sim::current_cpu()));
        });
        let run = |change: &dyn Fn()| {
            queue.queue(&work);
            Sim::sleep(Duration::from_micros(500));
            // The home changes while the item runs: the item goes on where it is.
            change();
            queue.flush().expect("not within an item");
        };
        work.set_home(&first);
        run(&|| work.set_home(&second));
        run(&|| second.move_to(0).expect("there is one"));
        run(&|| work.set_home(None));
        assert_eq!(*seen.lock(), [0, 1, 0]);
        assert_eq!(work.home(), None);
        queue.set_home(&first).expect("not per-CPU");
        first.move_to(1).expect("there is one");
        run(&|| {});
        assert_eq!(seen.lock().last(), Some(&1), "it has the home of its queue now");
        assert!(queue.home().as_ref() == Some(&first));
    });
}

/// Bytes in whole pages.
fn pages(count: usize) -> Vec<u8> {
    vec![0; (count + 1) * Sim::page_size()]
}

/// Whole pages of a range by node.
fn resident(range: &[u8]) -> Vec<usize> {
    let start = range.as_ptr().addr().next_multiple_of(Sim::page_size()) - range.as_ptr().addr();
    let whole = (range.len() - start) / Sim::page_size() * Sim::page_size();
    let mut pages = Sim::residency(&range[start..start + whole], usize::MAX).expect("works").pages;
    pages.resize(2, 0);
    pages
}

#[test]
fn the_memory_of_an_item_that_ran_elsewhere_stays_at_home() {
    for memory in [MemoryPolicy::Home, MemoryPolicy::Interleave, MemoryPolicy::Untouched] {
        let (ran, lies, after) = simulate(6, move |runtime| {
            let queue = runtime
                .workqueue_builder("memory")
                .affinity_scope(AffinityScope::Cache)
                .memory(memory);
            let queue = queue.build().expect("the call succeeds");
            let home = Home::on_in(&runtime, 1).expect("there is one");
            let work = |home: Option<&Home<Sim>>| {
                let seen = Arc::new(Mutex::<_, Sim>::new_in(None));
                let note = Arc::clone(&seen);
                let work = Work::new_in(move |_: &Work<Sim>| {
                    let mut block = pages(8);
                    Sim::write(&mut block);
                    *note.lock() = Some((node(Sim::current_cpu()), resident(&block)));
                });
                work.set_home(home);
                // Queued to a CPU that is named, the item runs away from home.
                queue.queue_on(0, &work).expect("there is such a CPU");
                queue.flush().expect("not within an item");
                seen.lock().take().expect("it ran")
            };
            let (ran, lies) = work(Some(&home));
            // The same worker, without a home: its policy is as it was.
            let (_, after) = work(None);
            (ran, lies, after)
        });
        assert_eq!(ran, 0, "{memory:?}");
        let in_turn = |pages: &[usize]| pages[0] >= 4 && pages[1] >= 4;
        let lies_right = match memory {
            MemoryPolicy::Home => lies[0] == 0 && lies[1] >= 8,
            MemoryPolicy::Interleave => in_turn(&lies),
            MemoryPolicy::Untouched => lies[0] >= 8 && lies[1] == 0,
            _ => unreachable!("a policy that this test does not know"),
        };
        assert!(lies_right, "{memory:?}: {lies:?}");
        let right_after =
            if memory == MemoryPolicy::Interleave { in_turn(&after) } else { after[1] == 0 };
        assert!(right_after, "{memory:?}: {after:?}, of an item without a home");
    }
}

#[test]
fn tasks_spawned_in_an_item_inherit_its_home() {
    for inherits in [true, false] {
        let nodes = simulate(7, move |runtime| {
            runtime.set_inherits_homes(inherits);
            let (outer, inner) = (queue(&runtime), Arc::new(queue(&runtime)));
            let home = Home::on_in(&runtime, 1).expect("there is one");
            let other = Arc::clone(&inner);
            // It runs on the other node, so that a child without a home stays there.
            let work = Work::new_in(move |_: &Work<Sim>| {
                let last = Arc::clone(&other);
                drop(other.spawn(move || {
                    drop(last.spawn(|| {}));
                }));
            });
            work.set_home(&home);
            outer.queue_on(0, &work).expect("there is such a CPU");
            outer.flush().expect("not within an item");
            Sim::sleep(Duration::from_millis(2));
            runs(&inner.statistics())
        });
        assert_eq!(nodes, if inherits { (2, 0) } else { (0, 0) });
    }
}

#[test]
fn homes_are_spread_and_released() {
    simulate(8, |runtime| {
        let given = || runtime.home_nodes().iter().map(|node| node.homes).collect::<Vec<_>>();
        let homes: Vec<_> = (0..6).map(|_| Home::pick_in(&runtime)).collect();
        assert_eq!(given(), [3, 3]);
        let queue =
            runtime.workqueue_builder("its").home(&homes[0]).build().expect("the call succeeds");
        let clone = homes[1].clone();
        drop(homes);
        assert_eq!(given().iter().sum::<u32>(), 2, "the queue has one, and we have a clone");
        drop((queue, clone));
        assert_eq!(given(), [0, 0]);
        runtime.set_home_choice(HomeChoice::FirstRun);
        let late = Home::pick_in(&runtime);
        assert_eq!((late.node(), given()), (None, vec![0, 0]));
        let there = Home::on_in(&runtime, 0).expect("there is one");
        let queue = self::queue(&runtime);
        queue.task().home(&late).spawn(|| {}).join().expect("no panic");
        assert_eq!((late.node(), given()), (Some(1), vec![1, 1]));
        assert!(late.explain().contains("least loaded"), "{}", late.explain());
        drop(there);
        let error = Home::on_in(&runtime, 2).expect_err("two nodes").to_string();
        assert!(error.contains("there is no such node") && error.contains("0, 1"), "{error}");
    });
}

#[test]
fn a_dynamic_home_follows_its_memory_at_most_once_per_interval() {
    let moves = simulate(9, |runtime| {
        let queue = queue(&runtime);
        let home = Home::on_in(&runtime, 0).expect("there is one");
        let mut block = pages(64);
        Sim::write(&mut block);
        let _registered = home.register(&block);
        home.set_dynamic(true);
        let begin = Sim::now();
        let mut moves = Vec::new();
        let mut node = home.node();
        let place = |node: usize| {
            let there = nearq_platform::MemoryPolicy::Preferred(node);
            Sim::bind_memory(&block, &there, true).expect("exists");
        };
        for step in 0..120_u64 {
            // The memory moves back and forth, faster than a home may move.
            place(if step < 40 { 1 } else { (step / 4 % 2) as usize });
            queue
                .task()
                .home(&home)
                .spawn(|| compute(Duration::from_millis(2)))
                .join()
                .expect("no panic");
            Sim::sleep(Duration::from_millis(100));
            if home.node() != node {
                node = home.node();
                moves.push(((Sim::now() - begin).as_millis(), node));
            }
        }
        (moves, home.explain())
    });
    let (moves, why) = moves;
    println!("{moves:?} {why}");
    assert_eq!(moves.first().map(|(_, node)| *node), Some(Some(1)), "{why}");
    assert!(moves[0].0 >= 1000, "seen twice, and not within the interval: {moves:?}");
    assert!(moves.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 1000), "{moves:?}");
    assert!(why.contains("of its memory"), "{why}");
}

#[test]
fn entering_a_home_moves_the_thread_and_leaving_restores_it() {
    simulate(10, |runtime| {
        let home = Home::on_in(&runtime, 1).expect("there is one");
        let me = Sim::current_thread();
        let before = (Sim::affinity(me).expect("the thread is the caller"), Sim::memory_policy());
        {
            let _at_home = home.enter().expect("allowed");
            assert_eq!(node(Sim::current_cpu()), 1);
            assert_eq!(Sim::affinity(me).expect("the thread is the caller").to_list(), "4-7");
            let mut block = pages(4);
            Sim::write(&mut block);
            assert_eq!(resident(&block)[0], 0);
        }
        assert_eq!(
            (Sim::affinity(me).expect("the thread is the caller"), Sim::memory_policy()),
            before
        );
        // The memory is moved there.
        let mut block = pages(4);
        Sim::write(&mut block);
        assert_eq!(home.bind(&mut block), Ok(()));
        let lies = resident(&block);
        assert!(lies[0] == 0 && lies[1] >= 4, "{lies:?}");
        assert_eq!(Home::near_in(&runtime, &block).node(), Some(1));
    });
}

#[test]
fn ordered_queues_and_the_system_scope_move_the_worker_home() {
    for ordered in [true, false] {
        let counted = simulate(11, move |runtime| {
            let home = Home::on_in(&runtime, 1).expect("there is one");
            let kind = if ordered { QueueKind::Ordered } else { QueueKind::Unbound };
            let builder = runtime
                .workqueue_builder("one pod")
                .affinity_scope(AffinityScope::System)
                .kind(kind);
            let queue = builder.home(&home).build().expect("the call succeeds");
            for _ in 0..20 {
                queue.spawn(|| compute(Duration::from_millis(3))).join().expect("no panic");
            }
            runs(&queue.statistics())
        });
        assert!(counted.0 >= 19, "ordered {ordered}: {counted:?}");
    }
}

#[test]
fn on_one_node_nothing_is_counted_or_bound() {
    let machine = Topology::from_synthetic("numa:1 core:4").expect("well formed");
    let outcome = Simulation::new(machine, 1).run(|| {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let home = Home::pick_in(&runtime);
        let queue =
            runtime.workqueue_builder("one").home(&home).build().expect("the call succeeds");
        queue.spawn(|| {}).join().expect("no panic");
        let mut block = pages(2);
        assert_eq!((home.bind(&mut block), home.node()), (Ok(()), Some(0)));
        assert_eq!(runtime.home_nodes()[0].homes, 0);
        drop(home.enter().expect("the call succeeds"));
        (home.explain(), runs(&queue.statistics()))
    });
    let (why, counted) = outcome.expect();
    assert!(why.contains("one node"), "{why}");
    assert_eq!(counted, (0, 0));
}

/// How often items ran that were queued, spawned and woken while their homes, their queue's home and their memory were changed.
fn disturbed(seed: u64) -> (usize, usize) {
    let mut faults = Faults::ALL;
    faults.preempted_one_in = 200;
    faults.preemption = Duration::from_micros(500);
    let schedule = if seed.is_multiple_of(3) { Schedule::Random } else { Schedule::Fair };
    let machine = Topology::from_synthetic("pack:2 numa:2 l3:1 core:2").expect("well formed");
    let outcome = Simulation::new(machine, seed).schedule(schedule).faults(faults).run(move || {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let scope = AffinityScope::ALL[seed as usize % AffinityScope::ALL.len()];
        let queue = runtime
            .workqueue_builder("disturbed")
            .affinity_scope(scope)
            .max_active(seed as usize % 7 * 3);
        let queue = Arc::new(queue.build().expect("the call succeeds"));
        let homes: Arc<[_]> = (0..3).map(|_| Home::pick_in(&runtime)).collect();
        homes[2].set_dynamic(true);
        let (ran, wanted) =
            (Arc::new(Mutex::<_, Sim>::new_in(0)), Arc::new(Mutex::<_, Sim>::new_in(0)));
        let threads: Vec<_> = (0..4_usize)
            .map(|number| {
                let (queue, homes) = (Arc::clone(&queue), Arc::clone(&homes));
                let (ran, wanted, runtime) =
                    (Arc::clone(&ran), Arc::clone(&wanted), runtime.clone());
                let main = move || {
                    let note = move || *ran.lock() += 1;
                    let inner = (Arc::clone(&queue), note.clone(), Arc::clone(&wanted));
                    let work = Work::new_in(move |_: &Work<Sim>| {
                        compute(Duration::from_micros(30));
                        let (queue, note, wanted) = &inner;
                        *wanted.lock() += 1;
                        drop(queue.spawn(note.clone()));
                    });
                    for round in number..number + 40 {
                        let home = &homes[round % 3];
                        match round % 8 {
                            0 => work.set_home(home),
                            1 => work.set_home(None),
                            2 => drop(queue.set_home(home)),
                            3 => drop(queue.set_home(None)),
                            // Some nodes may be gone at this moment.
                            4 => drop(home.move_to(round % 4)),
                            5 => drop(queue.set_memory(MemoryPolicy::Interleave)),
                            6 => drop(queue.set_memory(MemoryPolicy::Home)),
                            _ => runtime.set_inherits_homes(round.is_multiple_of(2)),
                        }
                        *wanted.lock() += 2;
                        drop(queue.task().home(home).spawn(note.clone()));
                        let note = note.clone();
                        drop(queue.task().home(home).spawn_future(async move { note() }));
                        queue.queue(&work);
                        if round.is_multiple_of(5) {
                            // Its child was counted when the item ran, or the item did not run.
                            work.cancel();
                        }
                        compute(Duration::from_micros(round as u64 % 50));
                    }
                };
                spawn_until_room(main)
            })
            .collect();
        threads.into_iter().for_each(Sim::join);
        queue.flush().expect("not within an item");
        // Waits for what the last items have spawned.
        drop(Arc::into_inner(queue));
        let given: u32 = runtime.home_nodes().iter().map(|node| node.homes).sum();
        assert!(given <= 3, "{given} homes are in use, and there are three");
        drop(homes);
        // An item that was cancelled lives until a worker takes its node off the list.
        let deadline = Sim::now() + Duration::from_millis(100);
        let given = || runtime.home_nodes().iter().map(|node| node.homes).sum::<u32>();
        while given() != 0 && Sim::now() < deadline {
            let others = runtime
                .workqueue_builder("others")
                .affinity_scope(scope)
                .build()
                .expect("the call succeeds");
            others.spawn(|| {}).join().expect("no panic");
        }
        // Each item that is left has a reference to `ran`.
        assert!(given() == 0 || Arc::strong_count(&ran) > 1, "{} homes are left", given());
        // The two locks are not held at the same time, nor longer than the values that they protect exist.
        let ran = *ran.lock();
        let wanted = *wanted.lock();
        (ran, wanted)
    });
    outcome.expect()
}

/// Starts a thread, however often that is refused.
fn spawn_until_room(main: impl FnOnce() + Send + Clone + 'static) -> nearq_sim::JoinHandle {
    loop {
        match Sim::spawn(ThreadSpec::default(), main.clone()) {
            Ok(handle) => return handle,
            Err(_) => Sim::sleep(Duration::from_micros(50)),
        }
    }
}

#[test]
fn concurrent_changes_lose_no_items_and_release_all_homes() {
    for seed in 0..24 {
        let (ran, wanted) = disturbed(seed);
        assert_eq!(ran, wanted, "seed {seed}");
    }
}
