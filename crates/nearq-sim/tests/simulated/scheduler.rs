//! The simulated kernel's scheduler: shares, placement, balancing, and custom schedulers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use nearq_lock::Mutex;
use nearq_platform::{
    Atomic, AtomicInt, LockPlatform, Ordering, Placement, SchedPolicy, Scheduling, ThreadSpec,
    Threads,
};
use nearq_sim::{
    AtomicU32, AtomicU64, Costs, Fair, Kernel, Reason, Scheduler, Sim, Simulation, Thread, compute,
};
use nearq_topology::{CpuSet, Topology};

use crate::common::{cpus, machine, on, spawn, spawn_on};

const MILLISECOND: Duration = Duration::from_millis(1);
const MICROSECOND: Duration = Duration::from_micros(1);

// ---- placement and balancing -------------------------------------------------------------------------------------

#[test]
fn new_threads_spread_over_nodes_and_caches() {
    let seen = on("numa:2 l3:2 core:4 pu:2", || {
        let seen = Arc::new(Mutex::<Vec<usize>, Sim>::new_in(Vec::new()));
        let threads: Vec<_> = (0..15)
            .map(|_| {
                let seen = Arc::clone(&seen);
                spawn(move || {
                    compute(MILLISECOND);
                    let cpu = Sim::current_cpu();
                    seen.lock().push(cpu);
                })
            })
            .collect();
        compute(10 * MILLISECOND);
        threads.into_iter().for_each(Sim::join);
        core::mem::take(&mut *seen.lock())
    })
    .expect();
    let topology = machine("numa:2 l3:2 core:4 pu:2");
    for llc in topology.llcs() {
        let here = seen.iter().filter(|cpu| llc.cpus.contains(**cpu)).count();
        assert!((3..=4).contains(&here), "{here} of 15 threads under one of 4 caches: {seen:?}");
    }
    let mut cores: Vec<_> = seen.iter().map(|cpu| topology.core_index(*cpu)).collect();
    cores.sort_unstable();
    cores.dedup();
    assert_eq!(cores.len(), 15, "a core each, beside the creator's: {seen:?}");
}

#[test]
fn a_woken_thread_stays_in_its_node_even_if_another_is_idle() {
    // Node 0 is CPUs 0-3, full; the sleeper's CPU is 0.
    let (early, late) = on("numa:2 core:4", || {
        Sim::set_affinity(Sim::current_thread(), &cpus("7")).expect("the CPU exists");
        let word = Arc::new(AtomicU32::new(0));
        let woken_at = Arc::new(AtomicU64::new(0));
        let (shared, at) = (Arc::clone(&word), Arc::clone(&woken_at));
        let sleeper = spawn_on("0", move || {
            Sim::set_affinity(Sim::current_thread(), &cpus("0-7")).expect("allowed");
            Sim::wait(&shared, 0, None);
            at.store(Sim::now().as_nanos(), Ordering::Relaxed);
            Sim::warn(&Sim::current_cpu().to_string());
        });
        Sim::sleep(MILLISECOND);
        let busy: Vec<_> = ["0", "1", "2", "3"]
            .map(|cpu| spawn_on(cpu, || compute(Duration::from_millis(100))))
            .into();
        Sim::sleep(Duration::from_micros(4_500));
        let start = Sim::now().as_nanos();
        Sim::wake(&raw const *word, 1);
        // This thread stays busy: otherwise its CPU would pull the other thread as soon as it has nothing else to do.
        compute(500 * MICROSECOND);
        let early = woken_at.load(Ordering::Relaxed);
        Sim::join(sleeper);
        busy.into_iter().for_each(Sim::join);
        (early, woken_at.load(Ordering::Relaxed) - start)
    })
    .expect();
    assert_eq!(early, 0, "work conservation is lost: it waits at its CPU while a node is idle");
    // The thread runs again when the idle node's balancing finds it (every 8 ms here), or when its turn on its CPU comes.
    assert!((500_000..13_000_000).contains(&late), "{late} ns");
}

/// A thread that sleeps on CPU 0 of `l3:2 core:3` and is given another CPU as a hint. Returns what the kernel says about it, and
/// where it wakes up.
fn woken_near(hint: Option<usize>, busy: &'static str) -> (usize, usize, usize) {
    let (cpu, asked) = on("l3:2 core:3", move || {
        Sim::set_affinity(Sim::current_thread(), &cpus("5")).expect("the CPU exists");
        let word = Arc::new(AtomicU32::new(0));
        let (shared, at) = (Arc::clone(&word), Arc::new(AtomicU64::new(0)));
        let stored = Arc::clone(&at);
        let sleeper = spawn_on("0", move || {
            Sim::set_affinity(Sim::current_thread(), &cpus("0-5")).expect("allowed");
            stored.store(Sim::current_thread().slot() as u64, Ordering::Relaxed);
            while shared.load(Ordering::Relaxed) == 0 {
                Sim::wait(&shared, 0, None);
            }
            stored.store(Sim::current_cpu() as u64, Ordering::Relaxed);
            Sim::wait(&shared, 1, None);
        });
        let thread = sleeper.thread();
        for cpu in busy.split_terminator(',') {
            let _runs_on = spawn_on(cpu, || compute(Duration::from_secs(1)));
        }
        Sim::sleep(MILLISECOND);
        let before = Sim::wake_cpu(thread).expect("it is alive");
        if let Some(cpu) = hint {
            Sim::set_wake_cpu(thread, cpu).expect("it is alive");
        }
        let hinted = Sim::wake_cpu(thread).expect("it is alive");
        word.store(1, Ordering::Relaxed);
        Sim::wake(&raw const *word, 1);
        Sim::sleep(100 * MICROSECOND);
        (at.load(Ordering::Relaxed) as usize, (before, hinted))
    })
    .expect();
    (asked.0, asked.1, cpu)
}

#[test]
fn a_thread_wakes_up_near_its_hinted_cpu() {
    assert_eq!(woken_near(None, ""), (0, 0, 0), "its own CPU");
    assert_eq!(woken_near(Some(3), ""), (0, 3, 3), "the hinted CPU");
    assert_eq!(woken_near(Some(3), "3"), (0, 3, 4), "an idle one under the same cache");
    assert_eq!(woken_near(None, "0"), (0, 0, 1), "as without a hint");
}

#[test]
fn a_hint_counts_once_and_must_be_valid() {
    on("core:4", || {
        let word = Arc::new(AtomicU32::new(0));
        let shared = Arc::clone(&word);
        let sleeper = spawn_on("1", move || {
            Sim::set_affinity(Sim::current_thread(), &cpus("0-3")).expect("allowed");
            for round in 0..3 {
                while shared.load(Ordering::Relaxed) == round {
                    Sim::wait(&shared, round, None);
                }
            }
        });
        let thread = sleeper.thread();
        Sim::sleep(MILLISECOND);
        let wake = |round| {
            word.store(round, Ordering::Relaxed);
            Sim::wake(&raw const *word, 1);
            Sim::sleep(MILLISECOND);
        };
        // It may not run on the CPU of the hint: it runs where it may, and the hint is used up.
        Sim::set_affinity(thread, &cpus("0-1")).expect("it is alive");
        Sim::set_wake_cpu(thread, 3).expect("the machine has the CPU");
        wake(1);
        assert!(Sim::wake_cpu(thread).expect("it is alive") < 2);
        assert!(Sim::set_wake_cpu(thread, 4).unwrap_err().to_string().contains("CPU 4"));
        wake(2);
        wake(3);
        Sim::join(sleeper);
        assert!(Sim::set_wake_cpu(thread, 1).is_err() && Sim::wake_cpu(thread).is_err());
    })
    .expect();
}

#[test]
fn a_woken_thread_prefers_an_idle_core_of_its_cache_then_of_its_node() {
    // Node 0: caches 0-3 and 4-7, two cores of two CPUs each.
    let woken_by = |within_cache: bool, busy: &'static [&'static str]| {
        let simulation = Simulation::new(machine("numa:2 l3:2 core:2 pu:2"), 1).jitter(false);
        let fair = move |_: &Topology| Fair::new().waking_within_cache(within_cache);
        simulation
            .scheduler(fair)
            .run(move || {
                Sim::set_affinity(Sim::current_thread(), &cpus("15")).expect("the CPU exists");
                let word = Arc::new(AtomicU32::new(0));
                let shared = Arc::clone(&word);
                let sleeper = spawn_on("0", move || {
                    Sim::set_affinity(Sim::current_thread(), &cpus("0-15")).expect("allowed");
                    Sim::wait(&shared, 0, None);
                    Sim::warn(&Sim::current_cpu().to_string());
                });
                Sim::sleep(MILLISECOND);
                let busy: Vec<_> =
                    busy.iter().map(|cpu| spawn_on(cpu, || compute(MILLISECOND))).collect();
                Sim::sleep(100 * MICROSECOND);
                Sim::wake(&raw const *word, 1);
                compute(MILLISECOND);
                Sim::join(sleeper);
                busy.into_iter().for_each(Sim::join);
            })
            .warnings[0]
            .clone()
    };
    let woken_on = |busy| woken_by(false, busy);
    assert_eq!(woken_on(&[]), "0", "where it was");
    assert_eq!(woken_on(&["0"]), "2", "a core of its own under the same cache");
    assert_eq!(woken_on(&["0", "2"]), "1", "a sibling under the same cache before another cache");
    assert_eq!(woken_on(&["0", "1", "2", "3"]), "4", "another cache of the node");
    assert_eq!(woken_on(&["0", "1", "2", "3", "4", "6"]), "5");
    assert_eq!(woken_by(true, &["0", "2"]), "1");
    assert_eq!(
        woken_by(true, &["0", "1", "2", "3"]),
        "0",
        "it waits: another cache is out of reach"
    );
}

#[test]
fn a_briefly_idle_cpu_does_not_search_far() {
    // Node 1 has one thread too many, and its threads may also run on CPU 0: only this CPU can help. Reading all queues takes CPU 0 (256 -
    // 32) * 200 ns. As an idle CPU it also balances at a tick every 256 ms, so that does not count.
    let helped = |pause: Duration| {
        on("numa:8 core:32", move || {
            Sim::set_affinity(Sim::current_thread(), &cpus("255")).expect("the CPU exists");
            let seen = Arc::new(AtomicU32::new(0));
            spawn_on("0", move || {
                loop {
                    compute(20 * MICROSECOND);
                    Sim::sleep(pause);
                }
            });
            // At first a CPU is assumed to be idle for long: the average needs some pauses to fall.
            Sim::sleep(5 * MILLISECOND);
            for at in 0..36 {
                let seen = Arc::clone(&seen);
                spawn_on("32-63", move || {
                    if at > 0 {
                        Sim::set_affinity(Sim::current_thread(), &cpus("0,32-63"))
                            .expect("allowed");
                    }
                    for _ in 0..10_000 {
                        compute(100 * MICROSECOND);
                        if Sim::current_cpu() == 0 {
                            seen.store(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            Sim::sleep(100 * MILLISECOND);
            seen.load(Ordering::Relaxed)
        })
        .expect()
    };
    assert_eq!(helped(300 * MICROSECOND), 1, "it has enough idle time");
    assert_eq!(helped(5 * MICROSECOND), 0, "it has too little idle time");
}

#[test]
fn a_thread_that_has_just_run_stays_where_its_cache_is_for_a_while() {
    // Two threads take turns on CPU 0, of the given length; CPU 1 is idle and balances at every tick.
    let first_elsewhere = |turn: Duration| {
        let at = on("core:2", move || {
            let first = Arc::new(AtomicU64::new(0));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let first = Arc::clone(&first);
                    spawn_on("0", move || {
                        Sim::sleep(10 * MILLISECOND);
                        Sim::set_affinity(Sim::current_thread(), &cpus("0-1")).expect("allowed");
                        for _ in 0..200 {
                            compute(turn);
                            if Sim::current_cpu() == 1 && first.load(Ordering::Relaxed) == 0 {
                                first.store(Sim::now().as_nanos(), Ordering::Relaxed);
                            }
                            Sim::yield_now();
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(Sim::join);
            first.load(Ordering::Relaxed)
        });
        at.expect()
    };
    // The threads begin at 10 ms, the second at its first turn. Ticks are at 12, 16 and 20 ms. A thread that waits for 2.5 ms each time may
    // move from 12.5 ms on and is cold at 16, when the first has run since 15; this is visible when its turn there is over. A thread that
    // waits for 0.2 ms is hot at 12 and 16, and moves at the third tick.
    let cold = first_elsewhere(2_500 * MICROSECOND);
    assert!((18_500_000..18_600_000).contains(&cold), "{cold} ns");
    let hot = first_elsewhere(200 * MICROSECOND);
    assert!((20_000_000..21_000_000).contains(&hot), "{hot} ns");
}

#[test]
fn migrating_costs_the_sum_of_its_parts() {
    let took = on("core:2", || {
        let there = 1 - Sim::current_cpu();
        let start = Sim::now();
        Sim::set_affinity(Sim::current_thread(), &CpuSet::single(there)).expect("the CPU exists");
        Sim::now() - start
    })
    .expect();
    let c = Costs::DEFAULT;
    let parts = c.system_call + c.idle_exit + c.context_switch + c.migration + c.clock;
    assert_eq!(took.as_nanos() as u64, parts);
}

#[test]
fn an_idle_node_pulls_waiting_threads_within_its_interval() {
    // Twelve threads are born on one node of six CPUs; then they may run anywhere.
    let spread = on("numa:2 core:6", || {
        Sim::set_affinity(Sim::current_thread(), &cpus("0")).expect("the CPU exists");
        let seen = Arc::new((0..12).map(|_| AtomicU64::new(99)).collect::<Vec<_>>());
        let threads: Vec<_> = (0..12)
            .map(|at| {
                let seen = Arc::clone(&seen);
                spawn_on("0-5", move || {
                    Sim::set_affinity(Sim::current_thread(), &cpus("0-11")).expect("allowed");
                    for _ in 0..600 {
                        compute(100 * MICROSECOND);
                        seen[at].store(Sim::current_cpu() as u64, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let mut spread = Vec::new();
        for _ in 0..4 {
            Sim::sleep(10 * MILLISECOND);
            let far = seen.iter().filter(|cpu| cpu.load(Ordering::Relaxed) >= 6).count();
            spread.push(far);
        }
        threads.into_iter().for_each(Sim::join);
        spread
    })
    .expect();
    assert!(spread[0] < 6, "not at once: {spread:?}");
    assert!(spread[3] >= 5, "found again: {spread:?}");
}

#[test]
fn three_threads_on_two_cpus_take_turns() {
    // Balancing moves the odd thread to and fro, so that no thread has a CPU to itself permanently.
    let times = on("core:2", || {
        let times = Arc::new(Mutex::<Vec<u64>, Sim>::new_in(Vec::new()));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let times = Arc::clone(&times);
                spawn(move || {
                    let start = Sim::now();
                    compute(Duration::from_secs(2));
                    times.lock().push((Sim::now() - start).as_nanos() as u64 / 1_000_000);
                })
            })
            .collect();
        threads.into_iter().for_each(Sim::join);
        core::mem::take(&mut *times.lock())
    })
    .expect();
    // Six seconds of work on two CPUs: three seconds each if all is fair, two and four if nothing moves.
    assert!(times.iter().all(|time| (2_300..3_500).contains(time)), "{times:?}");
}

#[test]
fn threads_are_balanced_by_weight_too() {
    // One CPU has a thread of nice -10 (9548) and one of nice 0, and the other CPU has two of nice 0: in time the heavy thread has a CPU
    // more or less to itself.
    let share = on("core:2", || {
        let heavy = spawn(|| {
            Sim::set_scheduling(Sim::current_thread(), SchedPolicy::Normal, -10, None)
                .expect("the scheduling may be set");
            compute(Duration::from_secs(2));
        });
        let light: Vec<_> = (0..3).map(|_| spawn(|| compute(Duration::from_secs(2)))).collect();
        let start = Sim::now();
        Sim::join(heavy);
        let took = Sim::now() - start;
        light.into_iter().for_each(Sim::join);
        took
    })
    .expect();
    assert!(share < Duration::from_millis(2_250), "{share:?}");
}

/// Four threads compute without end on one CPU, as `crowd` says; beside them one of `scheduling` sleeps for a millisecond again and
/// again, and computes for `busy`. Returns by how much the 95th percentile and the median of 200 of its sleeps were too long.
fn lateness(crowd: Scheduling, scheduling: Scheduling, busy: Duration) -> (Duration, Duration) {
    let outcome = on("core:1", move || {
        let stop = Arc::new(AtomicU32::new(0));
        let hogs: Vec<_> = (0..4)
            .map(|_| {
                let stop = Arc::clone(&stop);
                let main = move || {
                    while stop.load(Ordering::Relaxed) == 0 {
                        compute(100 * MICROSECOND);
                    }
                };
                let spec = ThreadSpec { scheduling: Some(crowd), ..ThreadSpec::default() };
                Sim::spawn(spec, main).expect("a free slot")
            })
            .collect();
        let (late, recorded) = {
            let late = Arc::new(Mutex::<Vec<Duration>, Sim>::new_in(Vec::new()));
            (Arc::clone(&late), late)
        };
        let main = move || {
            for _ in 0..200 {
                let due = Sim::now() + MILLISECOND;
                Sim::sleep(MILLISECOND);
                late.lock().push(Sim::now() - due);
                compute(busy);
            }
        };
        let spec = ThreadSpec { scheduling: Some(scheduling), ..ThreadSpec::default() };
        Sim::join(Sim::spawn(spec, main).expect("a free slot"));
        stop.store(1, Ordering::Relaxed);
        hogs.into_iter().for_each(Sim::join);
        let mut late = core::mem::take(&mut *recorded.lock());
        late.sort_unstable();
        (late[late.len() * 19 / 20], late[late.len() / 2])
    });
    outcome.expect()
}

fn scheduling(policy: SchedPolicy, nice: i32, slice: Option<Duration>) -> Scheduling {
    Scheduling { policy, nice, slice }
}

#[test]
fn a_short_slice_or_a_low_nice_value_gives_low_wake_up_latency() {
    let late = |nice, slice| {
        let normal = |nice, slice| scheduling(SchedPolicy::Normal, nice, slice);
        lateness(normal(0, None), normal(nice, slice), 200 * MICROSECOND)
    };
    let usual = late(0, None);
    assert!(usual.0 > MILLISECOND, "it waits for running threads at times: {usual:?}");
    let short = late(0, Some(100 * MICROSECOND));
    assert!(short.0 < 50 * MICROSECOND, "with a short slice its deadline is the first: {short:?}");
    let long = late(0, Some(20 * MILLISECOND));
    assert!(long.1 > 100 * usual.1, "with a long one the last: {long:?}");
    let favoured = late(-20, None);
    assert!(favoured.0 < 200 * MICROSECOND, "the same by weight: {favoured:?}");
}

#[test]
fn the_idle_class_yields_at_once_and_never_preempts() {
    let idle = scheduling(SchedPolicy::Idle, 0, None);
    let least = scheduling(SchedPolicy::Normal, 19, None);
    let late = lateness(idle, least, 10 * MICROSECOND);
    assert!(late.0 < 50 * MICROSECOND, "beside the idle class the least favoured: {late:?}");
    let late = lateness(least, idle, 10 * MICROSECOND);
    assert!(late.1 > MILLISECOND, "the idle class waits even for the least favoured: {late:?}");
}

#[test]
fn a_cpu_that_runs_only_the_idle_class_counts_as_idle_for_others() {
    let (same, other) = on("core:2", || {
        let idle = Some(scheduling(SchedPolicy::Idle, 0, None));
        let stop = Arc::new(AtomicU32::new(0));
        let spin = |cpu, scheduling| {
            let (stop, affinity) = (Arc::clone(&stop), Some(CpuSet::single(cpu)));
            let main = move || {
                while stop.load(Ordering::Relaxed) == 0 {
                    compute(100 * MICROSECOND);
                }
            };
            let spec = ThreadSpec { scheduling, affinity, ..ThreadSpec::default() };
            Sim::spawn(spec, main).expect("a free slot")
        };
        // Where a thread of each class wakes up after sleeping on CPU 0, on which an ordinary thread computes.
        let wakes = |scheduling| {
            let seen = Arc::new(AtomicU32::new(0));
            let recorded = Arc::clone(&seen);
            let main = move || {
                Sim::set_affinity(Sim::current_thread(), &CpuSet::single(0))
                    .expect("the CPU exists");
                Sim::set_affinity(Sim::current_thread(), &CpuSet::all(2)).expect("there are two");
                Sim::sleep(5 * MILLISECOND);
                recorded.store(Sim::current_cpu() as u32, Ordering::Relaxed);
            };
            let handle = Sim::spawn(ThreadSpec { scheduling, ..ThreadSpec::default() }, main);
            Sim::join(handle.expect("a free slot"));
            seen.load(Ordering::Relaxed)
        };
        let hogs = [spin(0, None), spin(1, idle)];
        let seen = (wakes(idle), wakes(None));
        stop.store(1, Ordering::Relaxed);
        hogs.into_iter().for_each(Sim::join);
        seen
    })
    .expect();
    assert_eq!(same, 0, "a thread of the idle class waits where it was");
    assert_eq!(other, 1, "an ordinary thread moves to the CPU of the idle class");
}

#[test]
fn an_idle_machine_has_no_ticks() {
    let outcome = Simulation::new(machine("core:4"), 0)
        .time_limit(Duration::from_hours(280))
        .run(|| Sim::sleep(Duration::from_hours(250)));
    // At 250 ticks a second this would be millions of events.
    assert!(outcome.events < 100, "{} events", outcome.events);
    outcome.expect();
}

// ---- a scheduler of one's own ------------------------------------------------------------------------------------

/// One queue for all CPUs, first come, first served; a slice of a millisecond.
#[derive(Debug, Default)]
struct Fifo {
    waiting: VecDeque<Thread>,
}

impl Scheduler for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }
    fn select_cpu(&mut self, kernel: &mut Kernel<'_>, thread: Thread, _reason: Reason) -> usize {
        let allowed = kernel.allowed(thread);
        kernel.idle().intersection(allowed).first().or(allowed.first()).expect("somewhere")
    }
    fn enqueue(&mut self, kernel: &mut Kernel<'_>, thread: Thread, _: usize, _: Reason) {
        self.waiting.push_back(thread);
        if let Some(idle) = kernel.idle().intersection(kernel.allowed(thread)).first() {
            kernel.kick(idle);
        }
    }
    fn dequeue(&mut self, _: &mut Kernel<'_>, thread: Thread) {
        self.waiting.retain(|other| *other != thread);
    }
    fn dispatch(&mut self, kernel: &mut Kernel<'_>, cpu: usize) -> Option<Thread> {
        let at = self.waiting.iter().position(|thread| kernel.allowed(*thread).contains(cpu))?;
        self.waiting.remove(at)
    }
    fn preempts(&mut self, _: &mut Kernel<'_>, _: Thread, _: usize) -> bool {
        false
    }
    fn running(&mut self, _: &mut Kernel<'_>, _: Thread, _: usize) -> u64 {
        1_000_000
    }
    fn stopping(&mut self, _: &mut Kernel<'_>, _: Thread, _: usize, _: bool) {}
}

#[test]
fn a_custom_scheduler_runs_a_program() {
    let run = |seed| {
        Simulation::new(machine("numa:2 core:4"), seed).scheduler(|_| Fifo::default()).run(|| {
            let start = Sim::now();
            let total = Arc::new(Mutex::<u64, Sim>::new_in(0));
            let threads: Vec<_> = (0..40)
                .map(|at| {
                    let total = Arc::clone(&total);
                    spawn(move || {
                        for _ in 0..10 {
                            compute(500 * MICROSECOND);
                            *total.lock() += at;
                            Sim::sleep(10 * MICROSECOND);
                        }
                    })
                })
                .collect();
            Sim::set_affinity(Sim::current_thread(), &cpus("5")).expect("allowed");
            threads.into_iter().for_each(Sim::join);
            (*total.lock(), Sim::now() - start)
        })
    };
    let (first, second) = (run(3), run(3));
    assert_eq!(first.trace_hash, second.trace_hash);
    let (total, took) = first.expect();
    assert_eq!(total, 10 * (0..40).sum::<u64>());
    // 200 ms of work on 8 CPUs, and one queue leaves none of them idle.
    assert!((25 * MILLISECOND..29 * MILLISECOND).contains(&took), "{took:?}");
}

/// Lets the threads of one name run on one node, whatever else runs there: the node is their home.
#[derive(Debug, Default)]
struct Homes(Fifo);

impl Scheduler for Homes {
    fn name(&self) -> &'static str {
        "homes"
    }
    fn select_cpu(&mut self, kernel: &mut Kernel<'_>, thread: Thread, reason: Reason) -> usize {
        let home = usize::from(kernel.thread_name(thread).ends_with('1'));
        let cpus = kernel.topology().nodes()[home].cpus.intersection(kernel.allowed(thread));
        let idle = cpus.intersection(kernel.idle()).first();
        idle.or(cpus.first()).unwrap_or_else(|| self.0.select_cpu(kernel, thread, reason))
    }
    fn enqueue(&mut self, _: &mut Kernel<'_>, thread: Thread, _: usize, _: Reason) {
        self.0.waiting.push_back(thread);
    }
    fn dequeue(&mut self, kernel: &mut Kernel<'_>, thread: Thread) {
        self.0.dequeue(kernel, thread);
    }
    fn dispatch(&mut self, kernel: &mut Kernel<'_>, cpu: usize) -> Option<Thread> {
        let node = kernel.topology().node_index(cpu)?;
        let fits = |thread: &Thread| {
            usize::from(kernel.thread_name(*thread).ends_with('1')) == node
                && kernel.allowed(*thread).contains(cpu)
        };
        let at = self.0.waiting.iter().position(fits)?;
        self.0.waiting.remove(at)
    }
    fn preempts(&mut self, _: &mut Kernel<'_>, _: Thread, _: usize) -> bool {
        false
    }
    fn running(&mut self, _: &mut Kernel<'_>, _: Thread, _: usize) -> u64 {
        3_000_000
    }
    fn stopping(&mut self, _: &mut Kernel<'_>, _: Thread, _: usize, _: bool) {}
}

#[test]
fn a_scheduler_can_give_threads_a_home() {
    let homes = |_: &Topology| Homes::default();
    let outcome = Simulation::new(machine("numa:2 core:4"), 1).scheduler(homes).run(|| {
        let strays = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..24)
            .map(|at: usize| {
                let strays = Arc::clone(&strays);
                let spec = ThreadSpec { name: format!("home-{}", at % 2), ..ThreadSpec::default() };
                let main = move || {
                    for _ in 0..20 {
                        compute(300 * MICROSECOND);
                        if Sim::current_cpu() / 4 != at % 2 {
                            strays.fetch_add(1, Ordering::Relaxed);
                        }
                        Sim::sleep(50 * MICROSECOND);
                    }
                };
                Sim::spawn(spec, main).expect("a free slot")
            })
            .collect();
        threads.into_iter().for_each(Sim::join);
        strays.load(Ordering::Relaxed)
    });
    assert_eq!(outcome.expect(), 0);
}
