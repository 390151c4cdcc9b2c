//! The scheduler of Linux 2.6.0-test1: shares, wake-ups, placement at exec, and balancing between CPUs and nodes, without and with homes.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, LockPlatform, Ordering, Placement, SchedPolicy, Threads};
use nearq_sim::{AtomicU32, O1, Sim, Simulation, compute};
use nearq_topology::Topology;

use crate::common::{cpus, go_to, machine, spawn, spawn_on};

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Runs `main` under the scheduler, without or with homes.
fn under<R: 'static>(homes: bool, description: &str, main: impl FnOnce() -> R + 'static) -> R {
    let simulation = Simulation::new(machine(description), 1).jitter(false);
    let make = move |_: &Topology| if homes { O1::with_homes() } else { O1::new() };
    simulation.scheduler(make).run(main).expect()
}

/// A list that threads of the machine add to.
#[derive(Clone)]
struct List(Arc<Mutex<Vec<u64>, Sim>>);

impl List {
    fn new() -> Self {
        List(Arc::new(Mutex::new_in(Vec::new())))
    }

    fn add(&self, value: u64) {
        self.0.lock().push(value);
    }

    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.0.lock())
    }
}

fn may_run_everywhere() {
    let machine = Sim::machine().expect("it has one");
    let all = machine.topology.possible().clone();
    Sim::set_affinity(Sim::current_thread(), &all).expect("they exist");
}

#[test]
fn hogs_share_a_cpu_in_slices_of_a_tenth_of_a_second_and_nice_ones_get_less() {
    let run = |nice: i32| {
        under(false, "core:1", move || {
            let times = List::new();
            let ended: Vec<_> = [0, nice]
                .map(|nice| {
                    let times = times.clone();
                    spawn(move || {
                        let me = Sim::current_thread();
                        Sim::set_scheduling(me, SchedPolicy::Normal, nice, None).expect("allowed");
                        let end = Sim::now() + 4 * SECOND;
                        while Sim::now() < end {
                            compute(MILLISECOND);
                        }
                        let time = Sim::cpu_time(Sim::current_thread()).expect("it is alive");
                        times.add(time.as_millis() as u64);
                    })
                })
                .into();
            ended.into_iter().for_each(Sim::join);
            times.take()
        })
    };
    let equal = run(0);
    assert!(equal.iter().all(|time| (1_890..2_110).contains(time)), "{equal:?}");
    // Slices of 102 and of 10 ms.
    let unequal = run(19);
    let most = unequal.iter().max().expect("two hogs");
    assert!((3_400..3_800).contains(most), "{unequal:?}");
}

#[test]
fn a_woken_thread_waits_for_its_own_cpu_however_idle_the_others_are() {
    let (at, waited) = under(false, "core:4", || {
        go_to(3);
        let word = Arc::new(AtomicU32::new(0));
        let (shared, seen) = (Arc::clone(&word), List::new());
        let list = seen.clone();
        let sleeper = spawn_on("0", move || {
            // It has used its time, and has not slept enough to be worth more than the hog.
            compute(SECOND);
            Sim::wait(&shared, 0, None);
            list.add(Sim::current_cpu() as u64);
            list.add(Sim::now().as_nanos());
        });
        Sim::sleep(SECOND + MILLISECOND);
        let hog = spawn_on("0", || compute(SECOND));
        Sim::sleep(MILLISECOND);
        let woken = Sim::now().as_nanos();
        word.store(1, Ordering::Relaxed);
        Sim::wake(&raw const *word, 1);
        Sim::join(sleeper);
        Sim::join(hog);
        let seen = seen.take();
        (seen[0], seen[1] - woken)
    });
    assert_eq!(at, 0);
    assert!(waited > 10_000_000, "it waits for the end of the hog's slice: {waited} ns");
}

#[test]
fn a_thread_that_sleeps_much_interrupts_a_hog() {
    let waits = under(false, "core:2", || {
        let waits = List::new();
        let list = waits.clone();
        let hog = spawn_on("0", || compute(13 * SECOND));
        let sleeper = spawn_on("0", move || {
            Sim::sleep(12 * SECOND);
            for _ in 0..10 {
                let end = Sim::now() + 20 * MILLISECOND;
                Sim::sleep(20 * MILLISECOND);
                list.add(u64::try_from((Sim::now() - end).as_micros()).expect("short"));
            }
        });
        Sim::join(sleeper);
        Sim::join(hog);
        waits.take()
    });
    assert!(waits.iter().all(|wait| *wait < 100), "{waits:?} us");
}

#[test]
fn an_idle_cpu_takes_threads_of_its_node_at_once_and_of_others_soon() {
    let cpus_used = |description: &'static str, count: usize| {
        under(false, description, move || {
            let seen = List::new();
            let threads: Vec<_> = (0..count)
                .map(|_| {
                    let seen = seen.clone();
                    spawn(move || {
                        compute(100 * MILLISECOND);
                        seen.add(Sim::current_cpu() as u64);
                    })
                })
                .collect();
            threads.into_iter().for_each(Sim::join);
            let mut seen = seen.take();
            seen.sort_unstable();
            seen.dedup();
            seen.len()
        })
    };
    // All begin on the CPU of their creator.
    assert_eq!(cpus_used("core:4", 4), 4);
    assert_eq!(cpus_used("numa:2 core:2", 4), 4);
}

/// Forks `count` processes in turn, each of which replaces its program and then computes. Returns where each was afterwards.
fn after_exec(homes: bool, count: usize) -> Vec<u64> {
    under(homes, "numa:2 core:2", move || {
        go_to(0);
        let seen = List::new();
        let all: Vec<_> = (0..count)
            .map(|_| {
                let seen = seen.clone();
                Sim::fork("job", move || {
                    Sim::exec("job").expect("it has one thread");
                    seen.add(Sim::current_cpu() as u64);
                    compute(SECOND);
                })
                .expect("the simulator has room")
            })
            .collect();
        may_run_everywhere();
        all.into_iter().for_each(Sim::wait_process);
        seen.take()
    })
}

#[test]
fn a_program_stays_on_a_cpu_of_two_threads_and_leaves_a_fuller_one() {
    // The children are bound to the first CPU, as their creator was: the affinity is inherited.
    assert!(after_exec(false, 2).iter().all(|cpu| *cpu == 0));
    let spread = under(false, "numa:2 core:2", || {
        let seen = List::new();
        let all: Vec<_> = (0..8)
            .map(|_| {
                let seen = seen.clone();
                Sim::fork("job", move || {
                    Sim::exec("job").expect("it has one thread");
                    compute(SECOND);
                    seen.add(Sim::current_cpu() as u64);
                })
                .expect("the simulator has room")
            })
            .collect();
        all.into_iter().for_each(Sim::wait_process);
        seen.take()
    });
    for cpu in 0..4 {
        let here = spread.iter().filter(|at| **at == cpu).count();
        assert!((1..=4).contains(&here), "{spread:?}");
    }
}

#[test]
fn a_task_leaves_its_node_for_an_idle_one_only_without_homes() {
    // A task at home in node 1, to whose CPU a hog comes while node 0 is idle. The hog is a stray, which would have to leave first.
    let run = |homes| {
        under(homes, "numa:2 core:1", move || {
            go_to(0);
            let seen = List::new();
            let list = seen.clone();
            // Three threads on this CPU, so that the program leaves it.
            let crowd = [(); 2].map(|()| spawn_on("0", || compute(300 * MILLISECOND)));
            let task = Sim::fork("task", move || {
                may_run_everywhere();
                Sim::exec("task").expect("it has one thread");
                list.add(Sim::current_cpu() as u64);
                compute(2 * SECOND);
                list.add(Sim::current_cpu() as u64);
            })
            .expect("the simulator has room");
            crowd.into_iter().for_each(Sim::join);
            let hog = spawn_on("1", || compute(SECOND));
            Sim::wait_process(task);
            Sim::join(hog);
            seen.take()
        })
    };
    assert_eq!((run(false), run(true)), (vec![1, 0], vec![1, 1]));
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let run = || {
        Simulation::new(machine("numa:2 core:2"), 7).scheduler(|_| O1::with_homes()).run(|| {
            let threads: Vec<_> = (1..=12)
                .map(|count| {
                    spawn(move || {
                        for _ in 0..count {
                            compute(3 * MILLISECOND);
                            Sim::sleep(MILLISECOND);
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(Sim::join);
            Sim::now()
        })
    };
    let [one, other] = [run(), run()];
    assert_eq!(one.trace_hash, other.trace_hash);
    assert_eq!(one.expect(), other.expect());
}

#[test]
fn affinities_are_kept() {
    under(true, "numa:2 core:2", || {
        let threads: Vec<_> = (0..8_usize)
            .map(|at| {
                spawn_on(at % 4, move || {
                    for _ in 0..20 {
                        compute(7 * MILLISECOND);
                        assert_eq!(Sim::current_cpu(), at % 4);
                        Sim::sleep(MILLISECOND);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(Sim::join);
        let wide = spawn(|| {
            Sim::set_affinity(Sim::current_thread(), &cpus("2-3")).expect("they exist");
            assert!(Sim::current_cpu() >= 2);
        });
        Sim::join(wide);
    });
}
