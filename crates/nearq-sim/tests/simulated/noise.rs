//! Noise: timers' interrupts and slack, the work of ticks, and deep idle. All is off by default.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, LockPlatform, Threads};
use nearq_sim::{AtomicU32, Costs, Machine, Sim, compute};

use crate::common::{nanoseconds, run, spawn_on, took};

const MILLISECOND: Duration = Duration::from_millis(1);

/// Costs without anything that these tests do not ask for, and with these.
fn costs(given: &[(&str, u64)]) -> Costs {
    let mut costs = Costs::DEFAULT;
    (costs.idle_exit, costs.context_switch, costs.migration) = (0, 0, 0);
    (costs.system_call, costs.clock, costs.wake_up, costs.spawn) = (0, 0, 0, 0);
    for (name, value) in given {
        *costs.get_mut(name).expect("it is a cost") = *value;
    }
    costs
}

#[test]
fn nothing_is_on_unless_asked_for_and_what_a_machine_has_stays() {
    let names = ["timer_interrupt", "timer_slack", "tick", "deep_idle_exit", "deep_idle_after"];
    let plain = Machine::named("ryzen-3900x").expect("listed");
    assert_eq!(names.map(|name| plain.costs().get(name)), [Some(0); 5]);
    let mut given = *plain.costs();
    given.tick = 777;
    let noisy = plain.with_costs(given).with_noise();
    assert!(names.iter().all(|name| noisy.costs().get(name) > Some(0)));
    assert_eq!(noisy.costs().tick, 777);
    let source = noisy.sources().iter().find(|source| source.cost == "timer_slack");
    assert!(source.expect("all costs have one").text.contains("prctl"));
}

#[test]
fn a_timer_takes_an_interrupt_and_a_wake_up_from_what_its_cpu_does() {
    let time = |sleepers: usize, timer_interrupt: u64| {
        let costs = costs(&[("timer_interrupt", timer_interrupt), ("wake_up", 1_000)]);
        run("core:2", &costs, move || {
            let sleeping: Vec<_> = (0..sleepers)
                .map(|at| spawn_on("1", move || Sim::sleep(MILLISECOND * (at as u32 + 1))))
                .collect();
            let took = Arc::new(Mutex::<u64, Sim>::new_in(0));
            let shared = Arc::clone(&took);
            let worker = spawn_on("1", move || {
                let start = Sim::now();
                compute(10 * MILLISECOND);
                *shared.lock() = nanoseconds(Sim::now() - start);
            });
            sleeping.into_iter().for_each(Sim::join);
            Sim::join(worker);
            *took.lock()
        })
    };
    let without = time(5, 0);
    assert_eq!(time(5, 3_000) - without, 5 * (3_000 + 1_000));
}

#[test]
fn one_interrupt_ends_all_sleeps_whose_deadline_has_passed() {
    // Deadlines at 1.00, 1.02, ... 1.08 ms on one CPU.
    let ends = |timer_slack: u64, exact: bool| {
        let costs = costs(&[("timer_interrupt", 1), ("timer_slack", timer_slack)]);
        run("core:2", &costs, move || {
            let ends = Arc::new(Mutex::<Vec<u64>, Sim>::new_in(Vec::new()));
            let start = Sim::now();
            let threads: Vec<_> = (0..5)
                .map(|at| {
                    let ends = Arc::clone(&ends);
                    spawn_on("1", move || {
                        if exact {
                            Sim::wake_exactly();
                        }
                        let deadline = start + MILLISECOND + Duration::from_micros(20) * at;
                        Sim::sleep(deadline - Sim::now());
                        ends.lock().push(nanoseconds(Sim::now() - start) / 1_000);
                    })
                })
                .collect();
            threads.into_iter().for_each(Sim::join);
            std::mem::take(&mut *ends.lock())
        })
    };
    let near = |found: &[u64], expected: [u64; 5]| {
        let all = found.iter().zip(expected);
        assert!(all.into_iter().all(|(found, at)| (at..at + 3).contains(found)), "{found:?}");
    };
    near(&ends(0, false), [1_000, 1_020, 1_040, 1_060, 1_080]);
    // The first thread's slack ends at 1.05 ms, the fourth's at 1.11 ms.
    near(&ends(50_000, false), [1_050, 1_050, 1_050, 1_110, 1_110]);
    near(&ends(50_000, true), [1_000, 1_020, 1_040, 1_060, 1_080]);
}

#[test]
fn a_thread_that_is_woken_before_its_deadline_has_no_timer_left() {
    let costs = costs(&[("timer_interrupt", 100_000), ("timer_slack", 50_000)]);
    let later = run("core:2", &costs, || {
        let word = Arc::new(AtomicU32::new(0));
        let shared = Arc::clone(&word);
        let sleeper = spawn_on("1", move || {
            Sim::wait(&shared, 0, Some(Sim::now() + MILLISECOND));
            took(|| compute(5 * MILLISECOND))
                .checked_sub(5_000_000)
                .filter(|more| *more < 1_000)
                .expect("no interrupt comes");
        });
        compute(MILLISECOND / 2);
        Sim::wake(&raw const *word, 1);
        Sim::join(sleeper);
        took(|| compute(MILLISECOND))
    });
    assert_eq!(later, 1_000_000);
}

#[test]
fn a_tick_takes_time_from_each_busy_cpu() {
    let time = |tick: u64| {
        let costs = costs(&[("tick", tick)]);
        run("core:2", &costs, || took(|| compute(40 * MILLISECOND)))
    };
    // One tick every 4 ms.
    assert_eq!((time(0), time(2_000)), (40_000_000, 40_020_000));
}

#[test]
fn a_cpu_that_was_idle_for_long_takes_longer_to_leave_idle() {
    let late = |idle: Duration| {
        let deep = [("deep_idle_exit", 100_000), ("deep_idle_after", 600_000)];
        let costs = costs(&[deep[0], deep[1], ("idle_exit", 1_000)]);
        run("core:1", &costs, move || took(|| Sim::sleep(idle)) - nanoseconds(idle))
    };
    assert_eq!(late(Duration::from_micros(500)), 1_000);
    assert_eq!(late(Duration::from_micros(700)), 101_000);
}
