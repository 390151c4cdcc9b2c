//! Changes the machine and checks whether the runtime follows: for a virtual machine, as root.
//!
//! While two threads keep a queue of scope `cache` busy, it takes a CPU offline and online, shrinks and grows the process's
//! affinity, and (where cgroup v2 can be mounted) its quota and cpuset. After each change the queue's effective mask and the
//! number of workers that may run must follow, and no item may be lost.
//!
//! `follow [DIR]`: DIR is where cgroup v2 is or can be mounted; `/tmp/cgroup` if not given. Changes that cannot be tried are reported.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a Linux program")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nearq::{AffinityScope, CpuSet, Runtime, Work, Workqueue};
use nearq_platform::{Linux, Placement, Threads};

/// The runtime checks once a second; a loaded host that emulates a machine takes longer.
const WITHIN: Duration = Duration::from_secs(15);

struct Load {
    stop: Arc<AtomicBool>,
    queued: Arc<AtomicU64>,
    ran: Arc<AtomicU64>,
    issuers: Vec<std::thread::JoinHandle<()>>,
}

/// Keeps `queue` busy with short items.
fn load(queue: &Arc<Workqueue>) -> Load {
    let stop = Arc::new(AtomicBool::new(false));
    let (queued, ran) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let issuers = (0..2)
        .map(|_| {
            let (queue, stop) = (Arc::clone(queue), Arc::clone(&stop));
            let (queued, ran) = (Arc::clone(&queued), Arc::clone(&ran));
            std::thread::spawn(move || {
                let works: Vec<_> = (0..16)
                    .map(|_| {
                        let ran = Arc::clone(&ran);
                        Work::new(move |_: &Work| {
                            for _ in 0..2000 {
                                std::hint::spin_loop();
                            }
                            ran.fetch_add(1, Ordering::Relaxed);
                        })
                    })
                    .collect();
                while !stop.load(Ordering::Relaxed) {
                    let count = works.iter().filter(|work| queue.queue(work)).count();
                    queued.fetch_add(count as u64, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(1));
                }
            })
        })
        .collect();
    Load { stop, queued, ran, issuers }
}

struct Trial {
    runtime: &'static Runtime,
    queue: Arc<Workqueue>,
    failed: bool,
}

impl Trial {
    /// Waits until the runtime reports that it may use `cpus` and run `parallel` workers.
    fn expect(&mut self, what: &str, cpus: &CpuSet, parallel: usize) {
        let begin = Instant::now();
        loop {
            let (mask, workers) = (self.queue.effective_cpumask(), self.runtime.parallelism());
            if mask == *cpus && workers == parallel {
                println!("ok: {what}: CPUs {mask}, {workers} workers, after {:?}", begin.elapsed());
                return;
            }
            if begin.elapsed() > WITHIN {
                println!(
                    "FAILED: {what}: CPUs {mask}, {workers} workers; {cpus} and {parallel} wanted"
                );
                if let Ok(machine) = Linux::machine() {
                    println!("  the machine says:\n  {}", machine.limits.explain().join("\n  "));
                }
                println!("  workers: {:?}", self.runtime.workers());
                self.failed = true;
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn main() -> ExitCode {
    let runtime = Runtime::global();
    let queue =
        Workqueue::builder("follow").affinity_scope(AffinityScope::Cache).build().expect("a queue");
    let queue = Arc::new(queue);
    let all = runtime.allowed_cpus();
    println!("CPUs {all}, {} workers, pods {:?}", runtime.parallelism(), queue.pods());
    let load = load(&queue);
    let mut trial = Trial { runtime, queue: Arc::clone(&queue), failed: false };

    affinity(&mut trial, &all);
    if let Err(why) = offline(&mut trial, &all) {
        println!("skipped: a CPU off and on: {why}");
    }
    let root = std::env::args().nth(1).map_or_else(|| PathBuf::from("/tmp/cgroup"), PathBuf::from);
    if let Err(why) = cgroup(&mut trial, &all, &root) {
        println!("skipped: cgroup v2: {why}");
    }

    load.stop.store(true, Ordering::Relaxed);
    for issuer in load.issuers {
        issuer.join().expect("an issuer");
    }
    let failed = trial.failed;
    drop(trial);
    drop(queue);
    let (queued, ran) = (load.queued.load(Ordering::Relaxed), load.ran.load(Ordering::Relaxed));
    println!("{}: {queued} queued, {ran} ran", if queued == ran { "ok" } else { "FAILED" });
    if failed || queued != ran { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Does what `taskset -p` does to this process.
fn affinity(trial: &mut Trial, all: &CpuSet) {
    let me = Linux::current_thread();
    let one = CpuSet::single(all.first().expect("a CPU"));
    Linux::set_affinity(me, &one).expect("one of the CPUs that it has");
    trial.expect("affinity shrunk", &one, 1);
    Linux::set_affinity(me, all).expect("the CPUs that it had");
    trial.expect("affinity grown", all, all.len());
}

fn offline(trial: &mut Trial, all: &CpuSet) -> Result<(), String> {
    let cpu = all.last().filter(|cpu| *cpu > 0).ok_or("there is one CPU only")?;
    let switch = PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/online"));
    write(&switch, "0")?;
    let rest = all.difference(&CpuSet::single(cpu));
    trial.expect("a CPU off", &rest, rest.len());
    write(&switch, "1")?;
    // The kernel restores a mask that it had cut only for a process that set it explicitly.
    Linux::set_affinity(Linux::current_thread(), all).map_err(|refused| refused.to_string())?;
    trial.expect("the CPU on again", all, all.len());
    Ok(())
}

fn cgroup(trial: &mut Trial, all: &CpuSet, root: &Path) -> Result<(), String> {
    if !root.join("cgroup.procs").exists() {
        fs::create_dir_all(root).map_err(|error| error.to_string())?;
        let mounted = Command::new("mount").args(["-t", "cgroup2", "none"]).arg(root).status();
        if !mounted.is_ok_and(|status| status.success()) {
            return Err(format!("it cannot be mounted at {}", root.display()));
        }
    }
    write(&root.join("cgroup.subtree_control"), "+cpu")?;
    let group = root.join("follow");
    fs::create_dir_all(&group).map_err(|error| error.to_string())?;
    write(&group.join("cgroup.procs"), &std::process::id().to_string())?;
    if all.len() > 1 {
        write(&group.join("cpu.max"), "150000 100000")?;
        trial.expect("a quota of 1.5 CPUs", all, 2.min(all.len()));
    }
    write(&group.join("cpu.max"), "50000 100000")?;
    trial.expect("a quota of half a CPU", all, 1);
    write(&group.join("cpu.max"), "max 100000")?;
    trial.expect("no quota", all, all.len());
    if write(&root.join("cgroup.subtree_control"), "+cpuset").is_ok() && all.len() > 1 {
        let part: CpuSet = all.iter().take(all.len() / 2).collect();
        write(&group.join("cpuset.cpus"), &part.to_list())?;
        trial.expect("a cpuset of half the CPUs", &part, part.len());
        write(&group.join("cpuset.cpus"), &all.to_list())?;
        trial.expect("a cpuset of all CPUs", all, all.len());
    } else {
        println!("skipped: cpuset: no such controller");
    }
    Ok(())
}
