//! The threads of pools follow the CPUs that the process may use.
//!
//! A program of its own: the mask of the process is that of its main thread.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "it runs on Linux only")]

#[path = "../../../crates/nearq-topology/tests/skipped/mod.rs"]
mod skipped;
mod waiting;

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use nearq_platform::{Linux, Placement, Threads};
use nearq_rayon::{AffinityScope, CpuSet, Pools};
use waiting::{my_mask, wait_until};

/// As `taskset -p` on the process. The caller is its main thread.
fn restrict_process(cpus: &CpuSet) {
    Linux::set_affinity(Linux::current_thread(), cpus).unwrap();
}

/// Waits until the threads of each pool have that mask.
fn await_masks(pools: &Pools, expected: impl Fn(usize) -> CpuSet + Sync) {
    pools.each(|pod| {
        let mask = expected(pod.index());
        rayon::broadcast(|_| wait_until("the mask of a thread", || my_mask() == mask));
        assert_eq!(pod.mask(), mask);
    });
}

/// The numbers of the threads of this process, with their names.
fn tasks() -> Vec<(i32, String)> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let named = tasks.filter_map(|task| {
        let task = task.ok()?;
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        Some((task.file_name().to_str()?.parse().ok()?, name.trim_end().to_owned()))
    });
    named.collect()
}

/// How often the threads that follow the masks have gone to sleep.
fn sleeps() -> u64 {
    let followers = tasks().into_iter().filter(|(_, name)| name.ends_with("-masks"));
    let sleeps = followers.map(|(task, _)| -> u64 {
        let status = fs::read_to_string(format!("/proc/self/task/{task}/status")).unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    });
    sleeps.sum()
}

/// As `taskset -ap` does with the threads of one pool.
fn restrict_threads(named: &str, cpus: &CpuSet) {
    // SAFETY: all bits of it may be zero.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus {
        // SAFETY: it writes into the set, and the CPU is one of its 1024.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    let threads = tasks().into_iter().filter(|(_, name)| name.starts_with(named));
    let mut count = 0;
    for (task, _) in threads {
        // SAFETY: the set is a place of ours, of that size.
        let refused = unsafe { libc::sched_setaffinity(task, size_of_val(&set), &raw const set) };
        assert_eq!(refused, 0);
        count += 1;
    }
    assert!(count > 0, "there is no thread {named}");
}

fn main() {
    let all = Linux::machine().unwrap().limits.housekeeping();
    let first = CpuSet::single(all.first().unwrap());
    if all.len() < 2 || all.last() >= Some(1024) {
        skipped::skipped("threads of pools follow masks", "it takes two CPUs below 1024", "those");
        return;
    }
    let pools = Pools::builder().scope(AffinityScope::Cpu).threads(2).build().unwrap();
    let own = |pod: usize| CpuSet::single(all.iter().nth(pod).unwrap());
    await_masks(&pools, own);

    // While no closure runs: pods without a CPU run elsewhere until they have one again.
    restrict_process(&first);
    await_masks(&pools, |_| first.clone());
    restrict_process(&all);
    await_masks(&pools, own);

    // While closures run.
    let begun = AtomicUsize::new(0);
    for (mask, expected) in [(&first, first.clone()), (&all, own(1))] {
        begun.store(0, Ordering::Relaxed);
        scope(|scope| {
            let call = scope.spawn(|| {
                pools.in_pod(1, || {
                    begun.store(1, Ordering::Relaxed);
                    wait_until("the mask", || my_mask() == expected);
                });
            });
            wait_until("the closure begins", || begun.load(Ordering::Relaxed) == 1);
            let before = sleeps();
            wait_until("looks after the first one", || sleeps() >= before + 3);
            restrict_process(mask);
            call.join().unwrap();
        });
    }

    // All threads are let out of their pods, and the mask of the process stays: they go back.
    restrict_threads("rayon-1/", &all);
    await_masks(&pools, own);

    // A thread that is restricted within its pod stays so.
    let whole =
        Pools::builder().scope(AffinityScope::System).name("whole").threads(2).build().unwrap();
    await_masks(&whole, |_| all.clone());
    restrict_threads("whole-0/1", &first);
    whole.in_pod(0, || {
        let before = sleeps();
        wait_until("two looks", || sleeps() >= before + 3);
        let mut masks = rayon::broadcast(|_| my_mask());
        masks.sort_by_key(CpuSet::len);
        assert_eq!(masks, [first.clone(), all.clone()]);
    });

    // While no closure runs nothing looks.
    wait_until("the threads that follow the masks sleep", || {
        let before = sleeps();
        sleep(Duration::from_millis(2500));
        sleeps() == before
    });
}
