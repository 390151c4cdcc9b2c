//! Pools on this machine: where their threads run, calls of all kinds, and their end.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "it runs on Linux only")]

#[path = "../../../crates/nearq-topology/tests/skipped/mod.rs"]
mod skipped;
mod waiting;

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use nearq_platform::{Linux, LockPlatform, Placement, Threads};
use nearq_rayon::{AffinityScope, CpuSet, Error, Pools};
use rayon::prelude::*;
use waiting::{my_mask, wait_until};

/// A pool for each CPU; two at least, or the test is skipped.
fn pools_of_cpus(test: &str) -> Option<Pools> {
    let pools = Pools::new(AffinityScope::Cpu).unwrap();
    if pools.len() > 1 {
        return Some(pools);
    }
    skipped::skipped(test, "the process may use one CPU", "two CPUs");
    None
}

fn panic_text(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).unwrap_err();
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast_ref::<&str>().unwrap()).to_owned(),
    }
}

#[test]
fn threads_of_a_pool_run_on_the_cpus_of_its_pod() {
    for scope in AffinityScope::ALL {
        let pools = Pools::builder().scope(*scope).threads(3).build().unwrap();
        let allowed = Linux::machine().unwrap().limits.housekeeping();
        let mut seen = CpuSet::new();
        for pod in pools.pods() {
            let masks = pod.run(|| rayon::broadcast(|_| (my_mask(), Linux::current_cpu())));
            assert_eq!(masks.len(), 3);
            for (mask, cpu) in masks {
                assert_eq!(mask, pod.cpus().intersection(&allowed), "{scope} {pod:?}");
                assert_eq!(mask, pod.mask());
                assert!(mask.contains(cpu));
            }
            assert!(!seen.intersects(pod.cpus()), "pods do not overlap");
            seen = seen.union(pod.cpus());
        }
        assert!(allowed.is_subset(&seen), "{scope}: {pools:?}");
    }
}

#[test]
fn by_default_a_pool_has_a_thread_for_each_cpu() {
    let pools = Pools::new(AffinityScope::System).unwrap();
    let threads = Linux::machine().unwrap().limits.parallelism();
    let pod = pools.get(0).unwrap();
    assert_eq!((pools.len(), pod.threads(), pod.node()), (1, threads, None));
    assert_eq!(pod.run(rayon::current_num_threads), threads);
}

#[test]
fn a_closure_runs_in_the_pod_of_its_caller() {
    let Some(pools) = pools_of_cpus("a closure runs in the pod of its caller") else { return };
    for pod in pools.pods() {
        Linux::set_affinity(Linux::current_thread(), &pod.mask()).unwrap();
        assert_eq!(pools.here(my_mask), pod.mask());
    }
}

#[test]
fn pods_of_a_node_are_those_that_say_so() {
    let pools = Pools::new(AffinityScope::Cpu).unwrap();
    let nodes: BTreeSet<_> = pools.pods().filter_map(|pod| pod.node()).collect();
    let found: usize = nodes.iter().map(|node| pools.of_node(*node).count()).sum();
    assert_eq!(found, pools.pods().filter(|pod| pod.node().is_some()).count());
    assert_eq!(pools.of_node(usize::MAX).count(), 0);
}

#[test]
fn iterators_scopes_and_results_are_rayons() {
    let pools = Pools::new(AffinityScope::Cache).unwrap();
    let numbers: Vec<u64> = (1..=10_000).collect();
    let mut doubled = vec![0; numbers.len()];
    let sum: u64 = pools.in_pod(0, || {
        doubled.par_iter_mut().zip(&numbers).for_each(|(to, from)| *to = 2 * from);
        numbers.par_iter().sum()
    });
    assert_eq!((sum, doubled[9_999]), (50_005_000, 20_000));
    let count = AtomicUsize::new(0);
    pools.here(|| {
        rayon::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|_| _ = count.fetch_add(1, Ordering::Relaxed));
            }
        });
    });
    assert_eq!(count.into_inner(), 100);
}

/// Whether all pods run the closure at once: each waits for the others.
fn each_meets(pools: &Pools) -> Vec<CpuSet> {
    let arrived = AtomicUsize::new(0);
    pools.each(|_| {
        arrived.fetch_add(1, Ordering::Relaxed);
        wait_until("the other pods", || arrived.load(Ordering::Relaxed) == pools.len());
        my_mask()
    })
}

#[test]
fn each_runs_in_all_pods_at_once_and_returns_results_in_order() {
    let Some(pools) = pools_of_cpus("each runs in all pods at once") else { return };
    let masks: Vec<CpuSet> = pools.pods().map(|pod| pod.mask()).collect();
    assert_eq!(each_meets(&pools), masks);
    let last = pools.len() - 1;
    assert_eq!(pools.in_pod(last, || each_meets(&pools)), masks, "from within a pod");
}

#[test]
fn a_panic_reaches_the_caller_after_all_pods_have_ended() {
    let Some(pools) = pools_of_cpus("a panic reaches the caller") else { return };
    let ended = AtomicUsize::new(0);
    let text = panic_text(|| {
        pools.each(|pod| {
            if pod.index() == 0 {
                panic!("in pod {}", pod.index());
            }
            sleep(Duration::from_millis(20));
            ended.fetch_add(1, Ordering::Relaxed);
        });
    });
    assert_eq!((text.as_str(), ended.into_inner()), ("in pod 0", pools.len() - 1));
    assert_eq!(panic_text(|| pools.in_pod(1, || panic!("alone"))), "alone");
    assert_eq!(pools.in_pod(1, || 7), 7, "the pool goes on");
}

#[test]
fn a_closure_in_one_pod_calls_another() {
    let Some(pools) = pools_of_cpus("a closure in one pod calls another") else { return };
    let mask = |pod| pools.get(pod).unwrap().mask();
    let found = pools.in_pod(0, || {
        let there = pools.in_pod(1, || (my_mask(), pools.in_pod(0, my_mask)));
        (my_mask(), there, pools.in_pod(0, my_mask))
    });
    assert_eq!(found, (mask(0), (mask(1), mask(0)), mask(0)));
}

#[test]
fn an_index_that_no_pod_has_is_named_with_those_allowed() {
    let pools = Pools::new(AffinityScope::System).unwrap();
    assert!(pools.get(1).is_none());
    assert_eq!(
        panic_text(|| pools.in_pod(1, || ())),
        "there is no pod 1: the pods of scope system have the indices 0 to 0"
    );
}

#[test]
fn numbers_of_threads_that_no_pool_can_have_are_refused() {
    for given in [0, 100_000] {
        let error = Pools::builder().threads(given).build().unwrap_err();
        assert!(matches!(error, Error::Threads { .. }));
        let most = rayon::max_num_threads();
        assert_eq!(
            error.to_string(),
            format!(
                "{given} threads in a pool: give 1 to {most}, or none for one on each CPU of the pod"
            )
        );
    }
}

#[test]
fn a_refused_thread_is_named_with_what_may_help() {
    let error = Pools::builder().name("refused").stack_size(1 << 60).build().unwrap_err();
    assert!(matches!(error, Error::Refused { .. }));
    let text = error.to_string();
    assert!(text.starts_with("could not start the thread \"refused-0/0\": "), "{text}");
    assert!(text.ends_with("; or ask for fewer threads, or for smaller stacks"), "{text}");
}

/// How many threads of this process have names that begin with this.
fn threads_named(prefix: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with(prefix)).count()
}

#[test]
fn dropped_pools_end_their_threads_after_what_was_spawned() {
    static RAN: Mutex<bool> = Mutex::new(false);
    let pools = Pools::builder().name("dropped").threads(3).build().unwrap();
    // The last one follows the masks.
    let expected = 3 * pools.len() + 1;
    wait_until("the threads start", || threads_named("dropped-") == expected);
    pools.in_pod(0, || {
        rayon::spawn(|| {
            sleep(Duration::from_millis(20));
            *RAN.lock().unwrap() = true;
        });
    });
    drop(pools);
    wait_until("the threads end", || threads_named("dropped-") == 0);
    assert!(*RAN.lock().unwrap());
}

/// Runs this test again, as a program with that scope in its environment, and returns what that writes.
fn with_scope(scope: &str) -> String {
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", "the_shared_pools_have_the_scope_of_the_environment", "--nocapture"]);
    let output = test.env("NEARQ_RAYON_SCOPE", scope).env("IN_CHILD", "1").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn the_shared_pools_have_the_scope_of_the_environment() {
    if std::env::var_os("IN_CHILD").is_some() {
        assert_eq!(nearq_rayon::in_pod(0, || 6) + nearq_rayon::here(|| 1), 7);
        println!("the scope is {}", Pools::global().scope());
        return;
    }
    for (set, scope) in [("numa", "numa"), ("cpu", "cpu"), ("", "cache")] {
        let text = with_scope(set);
        assert!(text.contains(&format!("the scope is {scope}\n")), "{text}");
        assert!(!text.contains("nearq: "), "{text}");
    }
    let text = with_scope("llc");
    assert!(text.contains("the scope is cache\n"), "{text}");
    let warning = "nearq: NEARQ_RAYON_SCOPE is `llc`; it must be one of \
                   cpu, smt, cache_shard, cache, numa, system. It is cache now.";
    assert!(text.contains(warning), "{text}");
}
