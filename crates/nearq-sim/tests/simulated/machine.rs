//! The guarantees for a program on the simulated machine: time, CPUs, affinity, limits, waiting, endings.

use std::time::Duration;

use nearq_lock::Mutex;
use nearq_platform::{
    Atomic, Instant, LockPlatform, Ordering, Placement, RunState, SchedPolicy, ThreadSpec, Threads,
    Wait,
};
use nearq_sim::{
    Activity, AtomicU32, Costs, Ending, Outcome, Schedule, Sim, Simulation, Thread, compute,
};
use nearq_topology::{CpuSet, Limits};
use std::sync::Arc;

use crate::common::{machine, spawn, spawn_on};

/// Where a thread puts its name.
type ThreadCell = Mutex<Option<Thread>, Sim>;

const MILLISECOND: Duration = Duration::from_millis(1);

fn on<R: 'static>(description: &str, main: impl FnOnce() -> R + 'static) -> Outcome<R> {
    Simulation::new(machine(description), 1).run(main)
}

#[test]
fn as_many_busy_threads_as_cpus_take_as_long_as_one() {
    for cpus in [1_usize, 8, 64] {
        let end = on(&format!("core:{cpus}"), move || {
            let start = Sim::now();
            let threads: Vec<_> = (0..cpus).map(|_| spawn(|| compute(100 * MILLISECOND))).collect();
            threads.into_iter().for_each(Sim::join);
            Sim::now() - start
        })
        .expect();
        assert!((100 * MILLISECOND..102 * MILLISECOND).contains(&end), "{cpus} CPUs: {end:?}");
    }
}

#[test]
fn no_cpu_idles_while_work_waits() {
    // 12 pieces of work on 4 CPUs, of different lengths: 30 CPU milliseconds in all.
    let took = on("l3:2 core:2", || {
        let start = Sim::now();
        let threads: Vec<_> =
            (0..12_u32).map(|at| spawn(move || compute(MILLISECOND * (at % 4 + 1)))).collect();
        threads.into_iter().for_each(Sim::join);
        Sim::now() - start
    })
    .expect();
    assert!((Duration::from_micros(7500)..11 * MILLISECOND).contains(&took), "{took:?}");
}

#[test]
fn threads_of_one_cpu_share_it_by_weight() {
    let (light, heavy, state) = on("core:1", || {
        let cell = Arc::new([ThreadCell::new_in(None), ThreadCell::new_in(None)]);
        for (at, nice) in [5, 0].into_iter().enumerate() {
            let cell = Arc::clone(&cell);
            let spec = ThreadSpec { nice: Some(nice), ..ThreadSpec::default() };
            Sim::spawn(spec, move || {
                *cell[at].lock() = Some(Sim::current_thread());
                compute(Duration::from_secs(10));
            })
            .expect("a free slot");
        }
        Sim::set_scheduling(Sim::current_thread(), SchedPolicy::Normal, -20, None)
            .expect("the scheduling may be set");
        Sim::sleep(Duration::from_secs(4));
        let times = [0, 1].map(|at| {
            Sim::cpu_time(cell[at].lock().expect("has run")).expect("alive").as_secs_f64()
        });
        (times[0], times[1], Sim::run_state(cell[0].lock().expect("has run")))
    })
    .expect();
    assert!((3.9..4.01).contains(&(light + heavy)), "{light} + {heavy}");
    assert!((2.8..3.3).contains(&(heavy / light)), "{heavy} / {light}: 1024 / 335 is 3.06");
    assert_eq!(state, Ok(RunState::Runnable));
}

#[test]
fn a_heavier_thread_interrupts_when_it_wakes_up() {
    let latency = |nice: i32| {
        on("core:1", move || {
            let spec = ThreadSpec { nice: Some(nice), ..ThreadSpec::default() };
            spawn(|| compute(Duration::from_secs(1)));
            let sleeper = Sim::spawn(spec, || {
                let mut worst = Duration::ZERO;
                for _ in 0..20 {
                    let due = Sim::now() + 10 * MILLISECOND;
                    Sim::sleep(10 * MILLISECOND);
                    worst = worst.max(Sim::now() - due);
                }
                assert!(worst > Duration::ZERO);
                Sim::warn(&worst.as_micros().to_string());
            });
            Sim::join(sleeper.expect("a free slot"));
        })
        .warnings[0]
            .parse::<u64>()
            .expect("a number")
    };
    assert!(latency(-20) < 10, "{}", latency(-20));
    assert!(latency(0) < 7_000, "{}", latency(0));
    assert!(latency(0) > latency(-20));
}

#[test]
fn affinity_is_respected_from_the_first_instruction_and_after_changes() {
    let outcome = on("l3:2 core:4", || {
        let threads: Vec<_> = (0..16)
            .map(|_| {
                spawn_on("2,5", || {
                    for _ in 0..50 {
                        assert!([2, 5].contains(&Sim::current_cpu()));
                        compute(Duration::from_micros(200));
                    }
                    Sim::set_affinity(Sim::current_thread(), &CpuSet::single(7)).expect("allowed");
                    assert_eq!(Sim::current_cpu(), 7);
                    assert_eq!(Sim::affinity(Sim::current_thread()), Ok(CpuSet::single(7)));
                })
            })
            .collect();
        threads.into_iter().for_each(Sim::join);
        let me = Sim::current_thread();
        let refused = Sim::set_affinity(me, &CpuSet::single(99)).expect_err("there is no CPU 99");
        assert_eq!(refused.errno(), 22);
    });
    outcome.expect();
}

#[test]
fn a_thread_is_moved_while_it_computes() {
    on("core:4", || {
        let start = Sim::now();
        let busy = Arc::new(ThreadCell::new_in(None));
        let shared = Arc::clone(&busy);
        let handle = spawn_on("1", move || {
            *shared.lock() = Some(Sim::current_thread());
            compute(100 * MILLISECOND);
            assert_eq!(Sim::current_cpu(), 3);
        });
        Sim::sleep(MILLISECOND);
        Sim::set_affinity(busy.lock().expect("it runs"), &CpuSet::single(3)).expect("allowed");
        Sim::join(handle);
        let took = Sim::now() - start;
        assert!(took < 101 * MILLISECOND, "no work is lost or done twice: {took:?}");
    })
    .expect();
}

#[test]
fn limits_move_threads_and_are_reported() {
    on("core:4", || {
        assert_eq!(Sim::machine().expect("readable").limits.parallelism(), 4);
        let handle = spawn_on("1", || {
            compute(10 * MILLISECOND);
            assert_eq!(
                Sim::current_cpu(),
                3,
                "its own affinity has no CPU left: any that the limits allow"
            );
        });
        Sim::sleep(MILLISECOND);
        Sim::set_limits(Limits::unlimited(CpuSet::single(3)));
        assert_eq!(Sim::current_cpu(), 3, "the caller moves as well");
        assert_eq!(Sim::machine().expect("readable").limits.parallelism(), 1);
        Sim::join(handle);
    })
    .expect();
}

#[test]
fn waiting_ends_by_wake_change_or_deadline() {
    on("core:2", || {
        let word = Arc::new(AtomicU32::new(0));
        assert_eq!(Sim::wait(&word, 1, None), Wait::Changed);
        let deadline = Sim::now() + MILLISECOND;
        assert_eq!(Sim::wait(&word, 0, Some(deadline)), Wait::TimedOut);
        let late = Sim::now() - deadline;
        assert!(late < Duration::from_micros(10), "{late:?}");
        assert_eq!(Sim::wait(&word, 0, Some(Instant::from_nanos(0))), Wait::TimedOut);
        let shared = Arc::clone(&word);
        let waker = spawn(move || {
            Sim::sleep(MILLISECOND);
            assert_eq!(Sim::wake(&raw const *shared, 5), 1);
            assert_eq!(Sim::wake(&raw const *shared, 5), 0);
        });
        assert_eq!(Sim::wait(&word, 0, Some(Sim::now() + Duration::from_secs(1))), Wait::Woken);
        Sim::join(waker);
    })
    .expect();
}

#[test]
fn sleepers_are_woken_in_order_of_arrival() {
    let order = on("core:8", || {
        let word = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..6_u64)
            .map(|at| {
                let word = Arc::clone(&word);
                spawn(move || {
                    Sim::sleep(MILLISECOND * (6 - at) as u32);
                    Sim::wait(&word, 0, None);
                    Sim::warn(&at.to_string());
                })
            })
            .collect();
        Sim::sleep(10 * MILLISECOND);
        for _ in 0..6 {
            assert_eq!(Sim::wake(&raw const *word, 1), 1);
            Sim::sleep(MILLISECOND);
        }
        threads.into_iter().for_each(Sim::join);
    })
    .warnings;
    assert_eq!(order, ["5", "4", "3", "2", "1", "0"]);
}

#[test]
fn spinning_is_cheap_to_simulate_and_sees_the_change() {
    let outcome = on("numa:4 l3:4 core:24", || {
        let word = Arc::new(AtomicU32::new(0));
        let spinners: Vec<_> = (0..380)
            .map(|_| {
                let word = Arc::clone(&word);
                spawn(move || {
                    let start = Sim::now();
                    assert!(Sim::wait_until_changed(&word, 0, u32::MAX));
                    assert!(Sim::now() - start < 20 * MILLISECOND);
                    assert!(!Sim::wait_until_changed(&word, 1, 10));
                })
            })
            .collect();
        Sim::sleep(10 * MILLISECOND);
        word.store(1, Ordering::Relaxed);
        spinners.into_iter().for_each(Sim::join);
    });
    assert!(outcome.switches < 40_000, "{} switches", outcome.switches);
    outcome.expect();
}

#[test]
fn a_spinner_on_one_cpu_checks_once() {
    on("core:1", || {
        let word = AtomicU32::new(0);
        let start = Sim::now();
        assert!(!Sim::wait_until_changed(&word, 0, 1_000_000));
        assert!(Sim::now() - start < Duration::from_micros(1));
    })
    .expect();
}

#[test]
fn a_deadlock_report_names_the_waiting_threads() {
    let outcome = on("core:2", || {
        let word = Arc::new(AtomicU32::new(7));
        let shared = Arc::clone(&word);
        let spec = ThreadSpec { name: "stuck-for-ever-and-ever".into(), ..ThreadSpec::default() };
        let handle = Sim::spawn(spec, move || {
            Sim::wait(&shared, 7, None);
        });
        Sim::join(handle.expect("a free slot"));
    });
    assert_eq!((outcome.ending, outcome.result), (Ending::Deadlock, None));
    assert_eq!(outcome.unfinished.len(), 2);
    let joining = Activity::Joining { thread: 2, name: "stuck-for-ever-".into() };
    assert_eq!(outcome.unfinished[0].activity, joining);
    let report = outcome.report();
    assert!(
        report.contains("waits for the end of thread 2 \"stuck-for-ever-\" since "),
        "{report}"
    );
    assert!(outcome.unfinished[1].since.is_some_and(|since| since <= outcome.end));
    assert_eq!(outcome.unfinished[1].name, "stuck-for-ever-");
    assert!(matches!(outcome.unfinished[1].activity, Activity::Waiting { expected: 7, .. }));
    let outcome = on("core:2", || assert_eq!(Sim::wait(&AtomicU32::new(7), 7, None), Wait::Woken));
    let report = outcome.report();
    assert!(report.contains("deadlock at") && report.contains("thread 1 \"main\""), "{report}");
    assert!(report.contains("holds 7"), "{report}");
}

#[test]
fn a_program_that_does_not_end_is_stopped() {
    let outcome = Simulation::new(machine("core:2"), 0).time_limit(20 * MILLISECOND).run(|| {
        loop {
            Sim::sleep(MILLISECOND);
        }
    });
    let outcome: Outcome<()> = outcome;
    assert_eq!((outcome.ending, outcome.end.as_nanos()), (Ending::TimeLimit, 20_000_000));
    let outcome = Simulation::new(machine("core:2"), 0).time_limit(MILLISECOND).run(|| {
        let word = AtomicU32::new(0);
        while word.load(Ordering::Relaxed) == 0 {}
    });
    assert_eq!(outcome.ending, Ending::TimeLimit);
}

#[test]
fn panics_are_reported_and_other_threads_continue() {
    let outcome = on("core:2", || {
        let spec = ThreadSpec { name: "bad".into(), ..ThreadSpec::default() };
        let handle = Sim::spawn(spec, || std::panic::resume_unwind(Box::new("on purpose")));
        Sim::join(handle.expect("a free slot"));
        5
    });
    assert_eq!((outcome.ending, outcome.result), (Ending::Returned, Some(5)));
    assert_eq!(outcome.panics[0].to_string(), "thread 2 \"bad\" panicked: on purpose");
    let outcome: Outcome<()> =
        on("core:2", || std::panic::resume_unwind(Box::new(String::from("the main thread too"))));
    assert_eq!((outcome.ending, outcome.result), (Ending::Returned, None));
    assert_eq!(outcome.panics[0].message, "the main thread too");
}

#[test]
fn threads_that_are_left_over_are_reported_and_never_run_again() {
    struct Loud;
    impl Drop for Loud {
        fn drop(&mut self) {
            panic!("a thread that was left over was unwound");
        }
    }
    let outcome = on("core:2", || {
        let loud = Loud;
        spawn(move || {
            let _loud = loud;
            Sim::sleep(Duration::from_secs(5));
        });
        Sim::sleep(MILLISECOND);
    });
    assert_eq!(outcome.unfinished.len(), 1);
    assert_eq!(outcome.unfinished[0].activity, Activity::Sleeping);
    let text = outcome.unfinished[0].to_string();
    assert!(text.contains("sleeps since ") && text.contains(" ns, at most until 50"), "{text}");
}

#[test]
fn slots_settings_and_ids_belong_to_the_caller() {
    let outcome = Simulation::new(machine("core:2"), 0).setting("NEARQ_X", "1").run(|| {
        assert!(Sim::slot().is_null());
        let value = 5_u8;
        Sim::set_slot((&raw const value).cast());
        Sim::join(spawn(|| {
            assert!(Sim::slot().is_null());
            assert_eq!(Sim::thread_id(Sim::current_thread()), 2);
        }));
        assert_eq!(Sim::slot(), (&raw const value).cast());
        assert_eq!(Sim::setting("NEARQ_X").as_deref(), Some("1"));
        assert_eq!(Sim::setting("NEARQ_Y"), None);
        let gone = spawn(|| ());
        Sim::join(gone);
        assert_eq!(Sim::nice(Sim::current_thread()), Ok(0));
    });
    outcome.expect();
    assert!(Sim::slot().is_null(), "there is none outside a simulation");
}

#[test]
fn an_ended_thread_is_distinguished_from_one_that_reuses_its_slot() {
    on("core:2", || {
        let cell = Arc::new(ThreadCell::new_in(None));
        let shared = Arc::clone(&cell);
        Sim::join(spawn(move || *shared.lock() = Some(Sim::current_thread())));
        let second = spawn(|| Sim::sleep(MILLISECOND));
        let gone = cell.lock().expect("it ran");
        assert_eq!(Sim::run_state(gone), Ok(RunState::Ended));
        assert_eq!(
            Sim::set_scheduling(gone, SchedPolicy::Normal, 3, None).expect_err("it ended").errno(),
            3
        );
        Sim::join(second);
    })
    .expect();
}

#[test]
fn random_schedules_give_the_same_result_as_fair_ones() {
    for seed in 0..50 {
        let outcome =
            Simulation::new(machine("l3:2 core:2"), seed).schedule(Schedule::Random).run(|| {
                let count = Arc::new(AtomicU32::new(0));
                let threads: Vec<_> = (0..10)
                    .map(|_| {
                        let count = Arc::clone(&count);
                        spawn(move || {
                            for _ in 0..20 {
                                let seen = count.load(Ordering::Relaxed);
                                Sim::yield_now();
                                // Not atomic as a whole: the loss of increments shows that interleavings happen.
                                count.store(seen + 1, Ordering::Relaxed);
                            }
                        })
                    })
                    .collect();
                threads.into_iter().for_each(Sim::join);
                count.load(Ordering::Relaxed)
            });
        assert!(outcome.expect() < 200, "increments were lost");
    }
}

#[test]
fn costs_can_be_set() {
    let mut costs = Costs::DEFAULT;
    costs.clock = 1_000_000;
    let took = Simulation::new(machine("core:1"), 0).costs(costs).jitter(false).run(|| {
        let start = Sim::now();
        Sim::now() - start
    });
    assert_eq!(took.expect(), MILLISECOND);
}
