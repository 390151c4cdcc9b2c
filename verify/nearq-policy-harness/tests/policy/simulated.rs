//! The policy as the scheduler of simulated machines: programs that fork, sleep, pin themselves and lose CPUs end in time.

use std::sync::Arc;
use std::time::Duration;

use nearq_platform::{
    Atomic as _, AtomicInt as _, LockPlatform as _, Ordering, Placement as _, ThreadSpec,
    Threads as _,
};
use nearq_policy_harness::Home;
use nearq_sim::{AtomicU32, AtomicU64, JoinHandle, Sim, Simulation};
use nearq_topology::Topology;

const MS: Duration = Duration::from_millis(1);

/// Runs a program under the policy, with a limit of ten seconds.
fn on<R: 'static>(machine: &str, seed: u64, program: impl FnOnce() -> R + 'static) -> R {
    let machine = Topology::from_synthetic(machine).unwrap();
    let simulation = Simulation::new(machine, seed).time_limit(10_000 * MS);
    simulation.scheduler(|machine| Home::new(machine).unwrap()).run(program).expect()
}

fn spawn(main: impl FnOnce() + Send + 'static) -> JoinHandle {
    Sim::spawn(ThreadSpec::default(), main).unwrap()
}

fn go_to(cpus: &str) {
    Sim::set_affinity(Sim::current_thread(), &cpus.parse().unwrap()).unwrap();
}

fn milliseconds() -> u64 {
    Sim::now().as_nanos() / 1_000_000
}

#[test]
fn forked_processes_are_at_home_on_all_nodes_and_all_cpus_work() {
    let (elapsed, nodes) = on("numa:4 core:2", 1, || {
        let counts: Arc<[AtomicU64; 4]> = Arc::new([(); 4].map(|()| AtomicU64::new(0)));
        let children: Vec<_> = (0..8)
            .map(|_| {
                let counts = Arc::clone(&counts);
                Sim::fork("child", move || {
                    Sim::exec("program").unwrap();
                    Sim::charge(200 * MS);
                    counts[Sim::current_cpu() / 2].fetch_add(1, Ordering::Relaxed);
                })
                .unwrap()
            })
            .collect();
        children.into_iter().for_each(Sim::wait_process);
        let nodes: Vec<u64> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        (milliseconds(), nodes)
    });
    assert_eq!(nodes, [2; 4]);
    assert!((200..240).contains(&elapsed), "{elapsed} ms");
}

#[test]
fn a_node_that_is_crowded_is_helped_and_its_tasks_come_home() {
    // Four tasks begin on one node of two CPUs. The other node helps within milliseconds. When two of them have ended, the other two are at
    // home.
    let (late, ends) = on("numa:2 core:2", 2, || {
        let at_home = Arc::new(AtomicU64::new(0));
        let (short, long) = (50 * MS, 200 * MS);
        let tasks: Vec<_> = [short, long, short, long]
            .into_iter()
            .map(|work| {
                let at_home = Arc::clone(&at_home);
                Sim::fork("task", move || {
                    go_to("0-1");
                    Sim::exec("program").unwrap();
                    go_to("0-3");
                    Sim::charge(work);
                    at_home.fetch_add(u64::from(Sim::current_cpu() < 2), Ordering::Relaxed);
                    if work == short {
                        at_home.store(0, Ordering::Relaxed);
                    }
                })
                .unwrap()
            })
            .collect();
        tasks.into_iter().for_each(Sim::wait_process);
        (at_home.load(Ordering::Relaxed), milliseconds())
    });
    assert_eq!(late, 2, "both are home at their end");
    assert!((200..230).contains(&ends), "{ends} ms: there are as many CPUs as tasks");
}

#[test]
fn nice_is_honoured_by_two_that_share_a_cpu() {
    let share = |nice| {
        on("core:1", 3, move || {
            let ran = Arc::new(AtomicU64::new(0));
            let theirs = Arc::clone(&ran);
            let _endless =
                Sim::spawn(ThreadSpec { nice: Some(nice), ..ThreadSpec::default() }, move || {
                    loop {
                        Sim::charge(MS);
                        theirs.fetch_add(1, Ordering::Relaxed);
                    }
                });
            let _other = spawn(|| Sim::charge(100_000 * MS));
            Sim::sleep(5_000 * MS);
            ran.load(Ordering::Relaxed) as f64 / 5_000.0
        })
    };
    let even = share(0);
    assert!((0.47..0.53).contains(&even), "{even}");
    // 335 against 1024.
    let less = share(5);
    assert!((0.21..0.29).contains(&less), "{less}");
    // 15 against 1024, but no thread is behind by more than the limit.
    let least = share(19);
    assert!((0.005..0.08).contains(&least), "{least}");
}

#[test]
fn a_task_that_is_pinned_to_a_crowded_cpu_gets_its_turn() {
    let waited = on("numa:2 core:2", 4, || {
        let endless: Vec<_> = (0..12).map(|_| spawn(|| Sim::charge(100_000 * MS))).collect();
        Sim::sleep(20 * MS);
        let start = milliseconds();
        Sim::join(spawn(|| {
            go_to("3");
            Sim::charge(10 * MS);
        }));
        drop(endless);
        milliseconds() - start
    });
    assert!(waited < 400, "{waited} ms");
}

#[test]
fn threads_that_wake_each_other_and_cpus_that_come_and_go() {
    for seed in 0..8 {
        on("numa:2 l3:2 core:2 pu:2", seed, move || {
            let word = Arc::new(AtomicU32::new(0));
            let threads: Vec<_> = (0..24)
                .map(|number| {
                    let word = Arc::clone(&word);
                    spawn(move || {
                        for round in 0..40 {
                            Sim::charge(MS * (number % 5) / 3);
                            if number % 3 == 0 {
                                Sim::sleep(MS * (round % 4));
                            }
                            let before = word.fetch_add(1, Ordering::Relaxed);
                            Sim::wake(&raw const *word, 2);
                            Sim::wait(&*word, before + 1, Some(Sim::now() + 2 * MS));
                        }
                    })
                })
                .collect();
            let hotplug = spawn(move || {
                for round in 0..20_usize {
                    let cpu = (seed as usize + round * 5) % 16;
                    Sim::set_online(cpu, false).expect("another one is online");
                    Sim::sleep(3 * MS);
                    Sim::set_online(cpu, true).expect("another one is online");
                }
            });
            threads.into_iter().for_each(Sim::join);
            Sim::join(hotplug);
        });
    }
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let run = || {
        on("numa:2 l3:2 core:2", 7, || {
            let threads: Vec<_> =
                (1..30).map(|number| spawn(move || Sim::charge(MS * number))).collect();
            threads.into_iter().for_each(Sim::join);
            Sim::now().as_nanos()
        })
    };
    assert_eq!(run(), run());
}
