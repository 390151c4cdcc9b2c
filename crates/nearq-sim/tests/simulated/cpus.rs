//! The simulated CPUs: how fast they work side by side, how much CPU time a quota leaves, and how they come and go.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::Mutex;
use nearq_platform::{LockPlatform, Placement, RunState, Threads};
use nearq_sim::{Costs, Sim, Simulation, Thread, compute};
use nearq_topology::{CpuSet, Limits, Quota, Topology};

use crate::common::{cpus, on, spawn, spawn_on};

const MILLISECOND: Duration = Duration::from_millis(1);
const MICROSECOND: Duration = Duration::from_micros(1);

// ---- SMT and capacity --------------------------------------------------------------------------------------------

#[test]
fn two_busy_cpus_of_a_core_each_run_at_their_share() {
    let (alone, shared) = on("core:2 pu:2", || {
        let took = |cpu: &'static str| {
            let start = Sim::now();
            Sim::join(spawn_on(cpu, || compute(62 * MILLISECOND)));
            Sim::now() - start
        };
        Sim::set_affinity(Sim::current_thread(), &cpus("3")).expect("the CPU exists");
        let alone = took("0");
        let busy = spawn_on("1", || compute(Duration::from_secs(1)));
        Sim::sleep(MILLISECOND);
        let shared = took("0");
        Sim::join(busy);
        (alone, shared)
    })
    .expect();
    let overhead = 30 * MICROSECOND;
    assert!((62 * MILLISECOND..62 * MILLISECOND + overhead).contains(&alone), "{alone:?}");
    // 62 / 0.62 = 100.
    assert!((100 * MILLISECOND..100 * MILLISECOND + overhead).contains(&shared), "{shared:?}");
}

#[test]
fn a_sibling_that_comes_and_goes_changes_the_speed_to_the_nanosecond() {
    let outcome = on("core:2 pu:2", || {
        Sim::set_affinity(Sim::current_thread(), &cpus("3")).expect("the CPU exists");
        let long = spawn_on("0", || {
            Sim::sleep(MILLISECOND);
            let start = Sim::now();
            compute(10 * MILLISECOND);
            Sim::warn(&(Sim::now() - start).as_nanos().to_string());
        });
        let short = spawn_on("1", || {
            Sim::sleep(5 * MILLISECOND);
            compute(MILLISECOND);
        });
        Sim::join(long);
        Sim::join(short);
    });
    let took: u64 = outcome.warnings[0].parse().expect("a number");
    // The sibling is busy from its wake-up to its end: leaving idle, switching (its CPU ran nothing else: no switch), the calls around its
    // work, and a millisecond's work at 62 %. In that time 38 % are lost.
    let c = Costs::DEFAULT;
    let busy_for = |calls: u64| 1_000_000 * 100 / 62 + 1 + c.idle_exit + calls;
    let lost = |busy: u64| 10_000_000 + busy * 38 / 100 + c.clock;
    let (least, most) = (lost(busy_for(0)), lost(busy_for(1_000)));
    assert!((least..=most).contains(&took), "{took} ns, {least} to {most} expected");
}

#[test]
fn a_busy_sibling_slows_a_computation_exactly() {
    // The sibling changes 999 times in the middle of one piece: the total loss is 38 % of its busy time.
    let lost = on("core:2 pu:2", || {
        Sim::set_affinity(Sim::current_thread(), &cpus("3")).expect("the CPU exists");
        let busy = Arc::new(Mutex::<u64, Sim>::new_in(0));
        let shared = Arc::clone(&busy);
        let beside = spawn_on("1", move || {
            for _ in 0..999 {
                Sim::sleep(50 * MICROSECOND);
                compute(10 * MICROSECOND);
            }
            let time = Sim::cpu_time(Sim::current_thread()).expect("alive");
            *shared.lock() = time.as_nanos() as u64;
        });
        let took = Arc::new(Mutex::<u64, Sim>::new_in(0));
        let shared = Arc::clone(&took);
        let long = spawn_on("0", move || {
            let start = Sim::now();
            compute(200 * MILLISECOND);
            *shared.lock() = (Sim::now() - start).as_nanos() as u64;
        });
        Sim::join(beside);
        Sim::join(long);
        // Leaving idle counts as busy time as well, each time.
        let busy = *busy.lock() + 999 * Costs::DEFAULT.idle_exit;
        (*took.lock() - 200_000_000, busy * 38 / 100)
    })
    .expect();
    // The edges of the first and the last of it, and a fraction of a nanosecond each time.
    assert!(lost.0.abs_diff(lost.1) < 3_000, "{} lost, {} expected", lost.0, lost.1);
}

#[test]
fn slow_cores_work_in_proportion_to_their_capacity() {
    let text = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/simulated/two-capacities.xml"
    ))
    .expect("it is beside this file");
    let machine = Topology::from_hwloc_xml(&text).expect("well formed");
    let (fast, slow) = Simulation::new(machine, 1)
        .jitter(false)
        .run(|| {
            let took = |cpu: &str| {
                Sim::set_affinity(Sim::current_thread(), &cpus(cpu)).expect("the CPU exists");
                let start = Sim::now();
                compute(MILLISECOND);
                (Sim::now() - start).as_nanos() as u64 - Costs::DEFAULT.clock
            };
            (took("0"), took("1"))
        })
        .expect();
    assert_eq!((fast, slow), (1_000_000, 1_000_000 * 1024 / 512));
}

// ---- the quota ---------------------------------------------------------------------------------------------------

fn quota(cpus: f64) -> Quota {
    Quota::new(cpus, "/sys/fs/cgroup/cpu.max")
}

#[test]
fn a_quota_of_half_of_four_cpus_gives_two_cpus_of_time() {
    let used = on("core:4", || {
        let mut limits = Limits::unlimited(CpuSet::all(4));
        limits.quota = Some(quota(2.0));
        Sim::set_limits(limits);
        assert_eq!(Sim::machine().expect("readable").limits.parallelism(), 2);
        let threads = Arc::new(Mutex::<Vec<Thread>, Sim>::new_in(Vec::new()));
        for _ in 0..6 {
            let shared = Arc::clone(&threads);
            spawn(move || {
                shared.lock().push(Sim::current_thread());
                compute(Duration::from_secs(10));
            });
        }
        Sim::sleep(Duration::from_secs(1));
        let threads = core::mem::take(&mut *threads.lock());
        let throttled =
            threads.iter().all(|thread| Sim::run_state(*thread) == Ok(RunState::Runnable));
        assert!(threads.len() == 6 && throttled);
        threads.into_iter().map(|thread| Sim::cpu_time(thread).expect("alive")).sum::<Duration>()
    })
    .expect();
    // Two CPUs for a second, plus the share of one more period.
    assert!(
        (Duration::from_millis(1_900)..Duration::from_millis(2_250)).contains(&used),
        "{used:?}"
    );
}

#[test]
fn a_quota_of_less_than_a_cpu_stretches_the_work() {
    let took = on("core:2", || {
        let mut limits = Limits::unlimited(CpuSet::all(2));
        limits.quota = Some(quota(0.25));
        Sim::set_limits(limits);
        let start = Sim::now();
        compute(Duration::from_millis(250));
        let limited = Sim::now() - start;
        Sim::set_limits(Limits::unlimited(CpuSet::all(2)));
        let start = Sim::now();
        compute(Duration::from_millis(250));
        (limited, Sim::now() - start)
    })
    .expect();
    assert!(
        (Duration::from_millis(890)..Duration::from_millis(1_110)).contains(&took.0),
        "{took:?}"
    );
    assert!(took.1 < Duration::from_millis(251), "lifted: {took:?}");
}

// ---- CPUs that come and go ---------------------------------------------------------------------------------------

#[test]
fn threads_leave_a_cpu_that_goes_offline() {
    on("core:4", || {
        let work = |millis: u32| move || compute(MILLISECOND * millis);
        let threads: Vec<_> = (0..8).map(|_| spawn_on("1,2", work(10))).collect();
        let pinned = spawn_on("2", || {
            compute(5 * MILLISECOND);
            assert_ne!(Sim::current_cpu(), 2);
            assert_eq!(
                Sim::affinity(Sim::current_thread()),
                Ok(cpus("0-1,3")),
                "a thread with no allowed CPU left may run on all"
            );
        });
        Sim::sleep(2 * MILLISECOND);
        Sim::set_online(2, false).expect("not the last one");
        let seen = Sim::machine().expect("readable");
        assert_eq!(seen.topology.online().to_list(), "0-1,3");
        assert_eq!(seen.limits.effective().to_list(), "0-1,3");
        assert_eq!(
            Sim::set_affinity(Sim::current_thread(), &cpus("2")).expect_err("gone").errno(),
            22
        );
        let start = Sim::now();
        threads.into_iter().for_each(Sim::join);
        Sim::join(pinned);
        let took = Sim::now() - start;
        assert!(
            took > Duration::from_millis(70),
            "all but one of the threads share one CPU: {took:?}"
        );
        Sim::set_online(2, true).expect("it is back");
        Sim::join(spawn_on("2", || assert_eq!(Sim::current_cpu(), 2)));
        assert_eq!(Sim::machine().expect("readable").limits.parallelism(), 4);
    })
    .expect();
}

#[test]
fn the_caller_leaves_an_offline_cpu_and_the_last_cpu_stays() {
    on("core:2", || {
        let here = Sim::current_cpu();
        Sim::set_online(here, false).expect("the other CPU stays online");
        assert_ne!(Sim::current_cpu(), here);
        let refused =
            Sim::set_online(Sim::current_cpu(), false).expect_err("the last CPU stays online");
        assert_eq!(refused.errno(), 16);
        assert_eq!(Sim::set_online(7, true).expect_err("there is none").errno(), 22);
        compute(MILLISECOND);
    })
    .expect();
}
