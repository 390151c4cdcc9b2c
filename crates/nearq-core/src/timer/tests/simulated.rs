//! The timer on simulated machines: many owners, and what can go wrong with threads and clocks.

use core::time::Duration;
use std::sync::Arc;

use nearq_platform::{Atomic, LockPlatform, Ordering, ThreadSpec, Threads};
use nearq_sim::{Faults, Outcome, Schedule, Sim, Simulation, compute};
use nearq_topology::Topology;

use super::super::{CROWD, Hold, Timer};
use super::{Owner, end};
use crate::layout::priority::Priority;

fn simulation(machine: &str, seed: u64) -> Simulation {
    Simulation::new(Topology::from_synthetic(machine).expect("well formed"), seed)
}

/// Pseudo-random numbers; Knuth's multiplicative generator (MMIX).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

const OWNERS: usize = 80;

/// Threads that arm, arm again and disarm nodes of their own for 100 ms; then everything that is armed is left to expire.
fn program(seed: u64, leave: bool) {
    let timer = Arc::new(Timer::<Sim>::new(None));
    let issuers: Vec<_> = (0..4)
        .map(|issuer| {
            let timer = Arc::clone(&timer);
            let shared = Arc::new(nearq_lock::Mutex::<_, Sim>::new_in(Vec::new()));
            let shared_clone = Arc::clone(&shared);
            let main = move || {
                let mut dice = Dice(seed * 4 + issuer);
                let owners: Vec<_> = (0..OWNERS).map(|_| Owner::new(&timer)).collect();
                for _ in 0..600 {
                    let owner = &owners[dice.below(OWNERS as u64) as usize];
                    match dice.below(5) {
                        0 => {
                            owner.disarm();
                        }
                        1 => Sim::sleep(Duration::from_nanos(dice.below(400_000))),
                        2 => compute(Duration::from_nanos(dice.below(2_000))),
                        _ => {
                            // Delays of every size up to a minute, most of them short.
                            let size = [1_000, 100_000, 10_000_000, 60_000_000_000]
                                [dice.below(4).min(dice.below(4)) as usize];
                            owner.arm_in(Duration::from_nanos(dice.below(size)));
                        }
                    }
                }
                *shared_clone.lock() = owners;
            };
            let handle = Sim::spawn(ThreadSpec::default(), main).expect("no fault is simulated");
            (handle, shared)
        })
        .collect();
    let mut owners = Vec::new();
    for (handle, shared) in issuers {
        Sim::join(handle);
        owners.append(&mut shared.lock());
    }
    if !leave {
        while owners.iter().any(|owner| owner.0.node.is_armed()) {
            Sim::sleep(Duration::from_secs(1));
        }
    }
    end(&timer);
    for owner in owners {
        owner.check();
        assert!(leave || owner.0.dropped.load(Ordering::Relaxed) == 0, "all deadlines expired");
    }
}

fn check<R>(outcome: &Outcome<R>, seed: u64) {
    assert!(
        outcome.result.is_some() && outcome.panics.is_empty() && outcome.warnings.is_empty(),
        "seed {seed}: {}, {:?}",
        outcome.report(),
        outcome.warnings
    );
}

#[test]
fn many_threads_arm_and_disarm_hundreds_of_timers() {
    for seed in 0..20 {
        check(&simulation("core:4", seed).run(move || program(seed, seed % 2 == 0)), seed);
    }
}

#[test]
fn no_deadline_is_lost_or_early_under_random_faults() {
    for seed in 0..20 {
        let schedule = [Schedule::Random, Schedule::Pct { depth: 3 }][seed as usize % 2];
        let run = simulation("core:3", seed).schedule(schedule);
        check(&run.run(move || program(seed, seed % 4 < 2)), seed);
    }
}

#[test]
fn late_clocks_preemption_and_spurious_wake_ups() {
    for seed in 0..20 {
        let mut faults = Faults::NONE;
        faults.late_timer_one_in = 3;
        faults.late_timer = Duration::from_millis(20);
        faults.spurious_wake_one_in = 5;
        faults.preempted_one_in = 200;
        faults.preemption = Duration::from_millis(3);
        let outcome = simulation("core:3", seed).faults(faults).run(move || program(seed, false));
        check(&outcome, seed);
        assert!(outcome.faults.late_timers > 0 && outcome.faults.spurious_wakes > 0);
    }
}

#[test]
fn a_timer_thread_that_is_refused_occasionally() {
    for seed in 0..40 {
        let mut faults = Faults::NONE;
        faults.spawn_refused_one_in = 2;
        let outcome = simulation("core:2", seed).faults(faults).run(|| {
            let timer = Arc::new(Timer::<Sim>::new(None));
            let owner = Owner::new(&timer);
            owner.arm_in(Duration::from_millis(1));
            owner.wait(1);
            end(&timer);
            owner.check();
        });
        check(&outcome, seed);
    }
}

#[test]
fn a_timer_thread_that_is_refused_for_long() {
    let mut faults = Faults::NONE;
    faults.spawn_refused_one_in = 1;
    let outcome = simulation("core:2", 1).faults(faults).run(|| {
        let timer = Arc::new(Timer::<Sim>::new(None));
        let owners = [Owner::new(&timer), Owner::new(&timer)];
        assert_eq!(owners[0].arm_in(Duration::from_millis(1)).hold, Hold::Taken);
        Sim::sleep(Duration::from_secs(1));
        assert_eq!(owners[0].expired(), 0, "there is no thread");
        timer.retry();
        Sim::stop_faults();
        timer.retry();
        owners[0].wait(1);
        owners[1].arm_in(Duration::from_millis(1));
        owners[1].wait(1);
        end(&timer);
        owners.iter().for_each(Owner::check);
    });
    assert_eq!(outcome.warnings.len(), 1, "warned once: {:?}", outcome.warnings);
    outcome.expect();
}

#[test]
fn the_end_without_a_timer_thread() {
    let mut faults = Faults::NONE;
    faults.spawn_refused_one_in = 1;
    let outcome = simulation("core:2", 1).faults(faults).run(|| {
        let timer = Arc::new(Timer::<Sim>::new(None));
        let owner = Owner::new(&timer);
        owner.arm_in(Duration::from_millis(1));
        end(&timer);
        assert_eq!((owner.released(), owner.0.dropped.load(Ordering::Relaxed)), (1, 1));
        assert_eq!(owner.arm_in(Duration::from_millis(1)).hold, Hold::Refused);
        owner.check();
    });
    outcome.expect();
}

#[test]
fn no_deadline_is_late_on_an_idle_machine() {
    let outcome = simulation("core:2", 3).run(|| {
        let timer = Arc::new(Timer::<Sim>::new(None));
        let begin = Sim::now();
        let mut dice = Dice(5);
        let owners: Vec<_> = (0..500)
            .map(|_| {
                let owner = Owner::new(&timer);
                let deadline = begin + Duration::from_nanos(3_000_000 + dice.below(1_000_000_000));
                owner.arm(deadline);
                (owner, deadline)
            })
            .collect();
        Sim::sleep(Duration::from_secs(2));
        end(&timer);
        owners
            .iter()
            .map(|(owner, deadline)| {
                owner.check();
                assert_eq!(owner.expired(), 1);
                owner.0.expired_at.load(Ordering::Relaxed) - deadline.as_nanos()
            })
            .max()
    });
    let latest = outcome.expect().expect("there are some");
    println!("{latest} ns late at most");
    assert!(latest < 100_000, "{latest} ns late");
}

#[test]
fn time_outs_for_many_requests_use_little_memory() {
    const ROUNDS: u32 = 20_000;
    let outcome = simulation("core:2", 3).run(|| {
        let timer = Arc::new(Timer::<Sim>::new(None));
        let mut owners = std::collections::VecDeque::new();
        let mut most = 0;
        let mut used = Duration::ZERO;
        for round in 0..ROUNDS {
            let owner = Owner::new(&timer);
            owner.arm_in(Duration::from_secs(30));
            compute(Duration::from_nanos(300));
            assert!(owner.disarm());
            owners.push_back(owner);
            if round % 16 == 0 {
                while owners.front().is_some_and(|owner| !owner.is_held()) {
                    owners.pop_front();
                }
                most = most.max(owners.len());
            }
            if round == ROUNDS - 1 {
                let thread = timer.shared.thread.thread().expect("it was started");
                used = Sim::cpu_time(thread).expect("alive");
            }
        }
        let took = Sim::now();
        end(&timer);
        owners.iter().for_each(Owner::check);
        (most, used, took)
    });
    let (most, used, took) = outcome.expect();
    println!("{most} held at once; the thread used {used:?} of {took:?}");
    assert!(most < 4 * CROWD as usize, "{most} nodes are held although most are no longer needed");
}

#[test]
fn a_distant_deadline_causes_no_wake_ups() {
    let outcome = simulation("core:2", 3).time_limit(Duration::from_secs(100_000)).run(|| {
        let timer = Arc::new(Timer::<Sim>::new(None));
        let owner = Owner::new(&timer);
        owner.arm_in(Duration::from_hours(24));
        Sim::sleep(Duration::from_secs(1));
        let before = Sim::switches();
        Sim::sleep(Duration::from_secs(86_300));
        let switches = Sim::switches() - before;
        owner.wait(1);
        end(&timer);
        owner.check();
        switches
    });
    assert_eq!(outcome.expect(), 1, "only the sleeper's own wake-up");
}

fn nice(nice: i32) -> Priority {
    Priority { nice, idle: false, slice: None }
}

#[test]
fn the_timer_thread_has_the_highest_priority_of_its_users() {
    let outcome = simulation("core:2", 3).run(|| {
        let timer = Arc::new(Timer::<Sim>::new(None));
        let owner = Owner::new(&timer);
        timer.serve(&nice(5));
        owner.arm_in(Duration::ZERO);
        owner.wait(1);
        let thread = timer.shared.thread.thread().expect("it runs");
        let has = || {
            Sim::sleep(Duration::from_millis(1));
            Sim::scheduling(thread).expect("alive")
        };
        let own_slice = has().slice;
        assert_eq!(has().nice, 0, "its priority is not lower");
        timer.serve(&nice(-10));
        assert_eq!(has().nice, -10);
        timer.serve(&nice(-5));
        assert_eq!(has().nice, -10);
        timer.serve(&nice(-20));
        assert_eq!((has().nice, has().slice), (-20, own_slice));
        timer.serve(&Priority { slice: Some(Duration::from_millis(1)), ..nice(5) });
        assert_eq!((has().nice, has().slice), (-20, Some(Duration::from_millis(1))));
        end(&timer);
        owner.check();
    });
    outcome.expect();
}

#[test]
fn a_period_is_kept_without_requests() {
    let outcome = simulation("core:2", 3).run(|| {
        let timer = Arc::new(Timer::<Sim>::new(None));
        let owner = Owner::new(&timer);
        owner.0.again.store(999, Ordering::Relaxed);
        owner.0.period.store(1_000_000, Ordering::Relaxed);
        let begin = Sim::now();
        owner.arm_in(Duration::ZERO);
        while owner.expired() < 1000 {
            owner.0.parker.park(None);
        }
        let took = Sim::now() - begin;
        end(&timer);
        owner.check();
        took
    });
    let took = outcome.expect();
    assert!(took >= Duration::from_millis(999) && took < Duration::from_millis(1100), "{took:?}");
}
