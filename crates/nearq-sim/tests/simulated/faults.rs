//! Injected faults: each occurs about as often as requested, is the same for the same seed, and ends when stopped.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::Mutex;
use nearq_platform::{
    Atomic, LockPlatform, Ordering, Parker, Placement, RunState, ThreadSpec, Threads, Wait,
};
use nearq_sim::{
    AtomicU32, FaultCounts, Faults, Outcome, Sim, Simulation, Thread, TraceLevel, compute,
};
use nearq_topology::{CpuSet, Limits};

use crate::common::machine;

const MILLISECOND: Duration = Duration::from_millis(1);
const MICROSECOND: Duration = Duration::from_micros(1);

fn with(change: impl FnOnce(&mut Faults)) -> Faults {
    let mut faults = Faults::NONE;
    change(&mut faults);
    faults
}

fn run<R: 'static>(faults: Faults, seed: u64, main: impl FnOnce() -> R + 'static) -> Outcome<R> {
    Simulation::new(machine("l3:2 core:4"), seed).faults(faults).trace(TraceLevel::Events).run(main)
}

fn spawn(main: impl FnOnce() + Send + 'static) -> Option<<Sim as Threads>::JoinHandle> {
    Sim::spawn(ThreadSpec::default(), main).ok()
}

/// The number of lines of the trace that say so.
fn lines<R>(outcome: &Outcome<R>, text: &str) -> u64 {
    outcome.trace.iter().filter(|line| line.contains(text)).count() as u64
}

#[test]
fn one_spawn_in_four_is_refused() {
    let outcome = run(with(|faults| faults.spawn_refused_one_in = 4), 1, || {
        let mut refused = 0;
        for _ in 0..1_000 {
            match Sim::spawn(ThreadSpec::default(), || ()) {
                Ok(handle) => Sim::join(handle),
                Err(error) => {
                    assert_eq!(error.errno(), 11);
                    assert!(error.to_string().contains("thread"), "{error}");
                    assert!(error.remedy().contains("ulimit -u"), "{}", error.remedy());
                    refused += 1;
                }
            }
        }
        refused
    });
    let counted = outcome.faults.spawns_refused;
    assert!((200..300).contains(&counted), "{counted} of 1000");
    assert_eq!(lines(&outcome, "is refused a thread by a fault"), counted);
    assert_eq!(outcome.expect(), counted);
}

#[test]
fn one_wait_in_five_returns_spuriously_at_once_or_later() {
    let outcome = run(with(|faults| faults.spurious_wake_one_in = 5), 1, || {
        let word = AtomicU32::new(0);
        let (mut at_once, mut later) = (0, 0);
        for _ in 0..1_000 {
            let start = Sim::now();
            match Sim::wait(&word, 0, Some(start + 2 * MILLISECOND)) {
                Wait::Woken if Sim::now() - start < MICROSECOND => at_once += 1,
                Wait::Woken => later += 1,
                other => {
                    assert_eq!(other, Wait::TimedOut);
                    assert!(Sim::now() - start >= 2 * MILLISECOND);
                }
            }
        }
        (at_once, later)
    });
    let counted = outcome.faults.spurious_wakes;
    assert_eq!(lines(&outcome, "is woken for no reason"), counted);
    let (at_once, later) = outcome.expect();
    assert_eq!(at_once + later, counted);
    assert!((150..250).contains(&counted) && at_once > 50 && later > 50, "{at_once}, {later}");
}

#[test]
fn a_wait_without_deadline_may_return_spuriously() {
    let woken = (0..50)
        .filter(|seed| {
            let outcome = run(with(|faults| faults.spurious_wake_one_in = 2), *seed, || {
                Sim::wait(&AtomicU32::new(0), 0, None)
            });
            match outcome.result {
                Some(wait) => assert_eq!(wait, Wait::Woken),
                None => assert!(outcome.report().contains("deadlock"), "{}", outcome.report()),
            }
            outcome.result.is_some()
        })
        .count();
    assert!((10..40).contains(&woken), "{woken} of 50");
}

#[test]
fn one_timer_in_three_is_late_and_never_early() {
    let faults = with(|faults| {
        faults.late_timer_one_in = 3;
        faults.late_timer = 5 * MILLISECOND;
    });
    let outcome = run(faults, 1, || {
        let mut late = Vec::new();
        for _ in 0..600 {
            let due = Sim::now() + MILLISECOND;
            Sim::sleep(MILLISECOND);
            late.push((Sim::now() - due).as_micros());
        }
        late
    });
    let counted = outcome.faults.late_timers;
    assert_eq!(lines(&outcome, "has a late timer"), counted);
    let late = outcome.expect();
    assert!((150..250).contains(&counted), "{counted} of 600");
    let seen = late.iter().filter(|late| **late > 10).count() as u64;
    assert!(seen <= counted && seen > counted * 9 / 10, "{seen} seen, {counted} counted");
    assert!(late.iter().all(|late| *late < 5_020), "{:?}", late.iter().max());
    assert!(late.iter().any(|late| *late > 4_000), "{:?}", late.iter().max());
}

#[test]
fn a_lock_holder_can_be_preempted_and_others_use_its_cpu() {
    let faults = with(|faults| {
        faults.preempted_one_in = 100;
        faults.preemption = 3 * MILLISECOND;
    });
    let outcome = Simulation::new(machine("core:1"), 3).faults(faults).run(|| {
        let mutex = Arc::new(Mutex::<u64, Sim>::new_in(0));
        let me = Arc::new(Mutex::<Option<Thread>, Sim>::new_in(None));
        let (shared_mutex, holder_thread) = (Arc::clone(&mutex), Arc::clone(&me));
        let holder = spawn(move || {
            *holder_thread.lock() = Some(Sim::current_thread());
            for _ in 0..500 {
                let mut guard = shared_mutex.lock();
                *guard += 1;
                // A call inside the lock: the place where the thread may lose its CPU.
                let _ = Sim::now();
                drop(guard);
                Sim::sleep(20 * MICROSECOND);
            }
        })
        .expect("nothing is refused");
        let holder_thread = || me.lock().expect("it has begun");
        Sim::sleep(MILLISECOND);
        // This thread finds the lock held by a thread that could run but does not, although this CPU is free for it.
        let mut found = 0;
        for _ in 0..5_000 {
            let taken = mutex.try_lock().is_none();
            let there = Sim::run_state(holder_thread());
            if taken && there == Ok(RunState::Runnable) {
                found += 1;
            }
            Sim::sleep(10 * MICROSECOND);
            if there.is_err() {
                break;
            }
        }
        Sim::join(holder);
        (found, *mutex.lock())
    });
    let counted = outcome.faults.preemptions;
    assert!(outcome.accesses / 300 < counted && counted < outcome.accesses / 20, "{counted}");
    let (found, total) = outcome.expect();
    assert_eq!(total, 500);
    assert!(found > 20, "the lock was found held {found} times");
}

#[test]
fn cpus_go_offline_and_come_back() {
    let faults = with(|faults| faults.offline_every = 10 * MILLISECOND);
    let outcome = run(faults, 1, || {
        let threads: Vec<_> = (0..8)
            .map(|at| {
                let spec =
                    ThreadSpec { affinity: Some(CpuSet::single(at)), ..ThreadSpec::default() };
                let main = || (0..5_000).for_each(|_| compute(100 * MICROSECOND));
                Sim::spawn(spec, main).expect("nothing is refused")
            })
            .collect();
        let mut fewest = 8;
        for _ in 0..200 {
            Sim::sleep(MILLISECOND);
            fewest = fewest.min(Sim::machine().expect("readable").topology.online().len());
        }
        threads.into_iter().for_each(Sim::join);
        Sim::stop_faults();
        assert_eq!(Sim::machine().expect("readable").topology.online().len(), 8);
        fewest
    });
    let gone = outcome.faults.cpus_offline;
    // One CPU goes every 20 ms: 10 until it goes, 10 until it is back.
    let expected = outcome.end.as_nanos() / 20_000_000;
    assert!(gone.abs_diff(expected) <= expected / 4 + 1, "{gone}, {expected} expected");
    assert_eq!(lines(&outcome, "takes offline cpu"), gone);
    assert_eq!(lines(&outcome, "brings online cpu"), gone);
    assert_eq!(outcome.expect(), 7);
}

#[test]
fn limits_shrink_and_grow_again() {
    let faults = with(|faults| faults.limits_every = 10 * MILLISECOND);
    let outcome = run(faults, 2, || {
        let mut masks = 0;
        let mut quotas = 0;
        let mut wide = 0;
        for _ in 0..300 {
            compute(MILLISECOND);
            let limits = Sim::machine().expect("readable").limits;
            assert!(!limits.effective().is_empty());
            if limits.quota.is_some() {
                quotas += 1;
            } else if limits.effective().len() < 8 {
                masks += 1;
            } else {
                wide += 1;
            }
        }
        Sim::stop_faults();
        assert_eq!(Sim::machine().expect("readable").limits, Limits::unlimited(CpuSet::all(8)));
        (masks, quotas, wide)
    });
    let shrunk = outcome.faults.limits_shrunk;
    assert!((15..60).contains(&shrunk), "{shrunk}");
    let (masks, quotas, wide) = outcome.expect();
    assert!(masks > 20 && quotas > 20 && wide > 60, "{masks} masks, {quotas} quotas, {wide} wide");
}

#[test]
fn faults_return_to_the_limits_that_the_program_set() {
    let faults = with(|faults| faults.limits_every = 3 * MILLISECOND);
    run(faults, 5, || {
        compute(20 * MILLISECOND);
        let program_limits = Limits::unlimited("0-5".parse().expect("a list"));
        Sim::set_limits(program_limits);
        compute(50 * MILLISECOND);
        Sim::stop_faults();
        let limits = Sim::machine().expect("readable").limits;
        assert_eq!(limits.effective().to_list(), "0-5");
        assert_eq!(limits.quota, None);
    })
    .expect();
}

/// Threads that lock, park, sleep, spawn and spin.
fn program() -> u64 {
    let total = Arc::new(Mutex::<u64, Sim>::new_in(0));
    let parkers: Arc<Vec<Parker<Sim>>> = Arc::new((0..8).map(|_| Parker::new()).collect());
    let mut threads = Vec::new();
    for at in 0..8_usize {
        loop {
            let (total, parkers) = (Arc::clone(&total), Arc::clone(&parkers));
            let main = move || {
                for _ in 0..40_u64 {
                    *total.lock() += 1;
                    parkers[(at + 1) % 8].unpark();
                    parkers[at].park(Some(Sim::now() + 50 * MICROSECOND));
                    compute(20 * MICROSECOND);
                }
            };
            if let Some(handle) = spawn(main) {
                threads.push(handle);
                break;
            }
        }
    }
    threads.into_iter().for_each(Sim::join);
    *total.lock()
}

#[test]
fn the_same_seed_has_the_same_faults() {
    let mut all = Vec::new();
    for seed in 0..20 {
        let [first, second] = [(); 2].map(|()| run(Faults::ALL, seed, program));
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!((first.trace_hash, first.faults), (second.trace_hash, second.faults));
        all.push(first.faults);
        assert_eq!(first.expect(), 320, "seed {seed}");
    }
    let some = |count: fn(&FaultCounts) -> u64| all.iter().map(count).sum::<u64>() > 0;
    assert!(some(|c| c.spawns_refused) && some(|c| c.spurious_wakes) && some(|c| c.late_timers));
    assert!(some(|c| c.preemptions) && some(|c| c.cpus_offline) && some(|c| c.limits_shrunk));
    all.dedup();
    assert!(all.len() > 15, "other seeds have other faults");
}

#[test]
fn without_faults_nothing_goes_wrong() {
    let outcome = run(Faults::NONE, 1, program);
    assert_eq!(outcome.faults, FaultCounts::default());
    assert_eq!(outcome.expect(), 320);
    let stopped = run(Faults::ALL, 1, || {
        Sim::stop_faults();
        program()
    });
    let counted = stopped.faults;
    assert!(counted.preemptions + counted.spurious_wakes + counted.spawns_refused <= 1);
    assert_eq!(stopped.expect(), 320);
}

#[test]
fn recurring_faults_do_not_hide_a_deadlock() {
    let faults = with(|faults| {
        faults.offline_every = MILLISECOND;
        faults.limits_every = MILLISECOND;
    });
    let outcome = run(faults, 1, || {
        let word = AtomicU32::new(0);
        assert_eq!(word.load(Ordering::Relaxed), 0);
        Sim::wait(&word, 0, None)
    });
    assert_eq!(outcome.ending, nearq_sim::Ending::Deadlock);
}
