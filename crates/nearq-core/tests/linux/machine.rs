//! The machine changes while the runtime works: the runtime follows the affinity and the quota. Also, a process may exit at any time.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nearq_core::{AffinityScope, CpuSet, Runtime, Workqueue};
use nearq_platform::{Linux, LockPlatform, Placement};

use crate::common::{self, command, has_cpus, output_text, part, skipped, within};

/// The runtime follows changes within a second while there is work; another second is for a busy machine.
const FOLLOWED: Duration = Duration::from_secs(2);

/// Runs items until `holds` returns true; returns how long it took.
fn work_until(queue: &Workqueue, what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    within(FOLLOWED, what, || {
        queue.spawn(|| {}).join().unwrap();
        holds()
    })
}

fn set_mask(process: u32, cpus: &CpuSet) -> bool {
    let list = cpus.to_list();
    let outcome = Command::new("taskset").args(["-pc", &list, &process.to_string()]).output();
    outcome.is_ok_and(|output| output.status.success())
}

/// A line that the child prints, after those of its test harness.
fn read_from_child(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> String {
    loop {
        let line = lines.next().expect("the child prints a line").unwrap();
        if let Some((_, text)) = line.split_once("child: ") {
            return text.to_owned();
        }
    }
}

fn write_to_child(child: &mut Child, line: &str) {
    writeln!(child.stdin.as_mut().unwrap(), "{line}").unwrap();
}

/// How many reads the caller has made so far; `None` if the kernel does not count them.
fn reads() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("syscr: "))?.trim().parse().ok()
}

#[test]
fn checking_an_unchanged_machine_does_not_read_all_of_it() {
    let runtime = Runtime::builder().build().unwrap();
    runtime.refresh();
    let Some(before) = reads() else {
        let why = "the kernel counts no reads (/proc/thread-self/io)";
        return skipped(
            "what a check of the machine reads",
            why,
            "a kernel with CONFIG_TASK_IO_ACCOUNTING",
        );
    };
    let itself = reads().unwrap() - before;
    let checks = (0..10).map(|_| {
        let begin = reads().unwrap();
        runtime.refresh();
        reads().unwrap() - begin - itself
    });
    // Another program may bring a CPU up at any time.
    let fewest = checks.min().unwrap();
    let begin = reads().unwrap();
    drop(Linux::machine().unwrap());
    let whole = reads().unwrap() - begin - itself;
    println!("{fewest} reads instead of {whole}");
    let cpus = runtime.topology().online().len() as u64;
    assert!(fewest + 4 * cpus < whole, "{fewest} reads, of all files {whole}");
}

/// Prevents the process from opening any more files; returns the previous limit, so that it can be restored.
fn set_most_files(most: libc::rlim_t) -> libc::rlim_t {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is ours, and is written by the call only.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    let before = std::mem::replace(&mut limit.rlim_cur, most.min(limit.rlim_max));
    // SAFETY: the structure is ours, and only read by the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    before
}

#[test]
fn an_unreadable_machine_is_one_node_until_it_can_be_read() {
    if part().is_some() {
        return begin_without_files();
    }
    let output =
        command(an_unreadable_machine_is_one_node_until_it_can_be_read, "child").output().unwrap();
    let text = output_text(&output);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    // The monitor, too, may find that it cannot read states.
    let is_of_it = |line: &&str| line.starts_with("nearq: the machine could be read only in part");
    let lines: Vec<&str> = text.lines().filter(is_of_it).collect();
    assert_eq!(lines.len(), 1, "{text}");
    let parts = ["/sys/devices/system/cpu", "Too many open files (os error 24)", "one node"];
    assert!(parts.iter().all(|part| lines[0].contains(part)), "{text}");
}

/// The child.
fn begin_without_files() {
    let whole = Runtime::builder().build().unwrap();
    let most = set_most_files(3);
    let runtime = Runtime::builder().build().expect("its CPUs are known");
    let queue =
        runtime.workqueue_builder("blind").affinity_scope(AffinityScope::System).build().unwrap();
    let per_cpu = runtime.workqueue_builder("by CPU").per_cpu().build().unwrap();
    let topology = runtime.topology();
    assert!(!topology.is_whole());
    assert_eq!((topology.nodes().len(), topology.llcs().len(), queue.pods().len()), (1, 1, 1));
    assert_eq!(runtime.allowed_cpus(), whole.allowed_cpus());
    let work =
        || (0..100).for_each(|_| drop((queue.spawn(|| {}).join(), per_cpu.spawn(|| {}).join())));
    work();
    // The checks of both do not repeat the warning.
    for _ in 0..3 {
        runtime.refresh();
        assert!(!runtime.topology().is_whole());
        // What was read completely before stays as it is.
        whole.refresh();
        assert!(whole.topology().is_whole());
    }
    set_most_files(most);
    runtime.refresh();
    assert_eq!(runtime.topology(), whole.topology());
    work();
}

#[test]
fn a_shrinking_and_growing_affinity_is_followed() {
    if part().is_some() {
        return follow();
    }
    if !has_cpus("an affinity that changes", 2) {
        return;
    }
    let all = Runtime::builder().build().unwrap().allowed_cpus();
    let one = CpuSet::single(all.last().unwrap());
    let mut child = command(a_shrinking_and_growing_affinity_is_followed, "child")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = child.stdout.take().unwrap();
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut lines = BufReader::new(out).lines();
        for _ in 0..4 {
            sender.send(read_from_child(&mut lines)).unwrap();
        }
        // Reads the rest, so that the child does not write into a closed pipe.
        lines.for_each(drop);
    });
    let next = || receiver.recv_timeout(common::PATIENCE).expect("the child answers");
    assert_eq!(next(), all.to_list());
    if !set_mask(child.id(), &one) {
        skipped("an affinity that changes", "there is no taskset", "apt-get install util-linux");
        child.kill().unwrap();
        child.wait().unwrap();
        let _ = reader.join();
        return;
    }
    write_to_child(&mut child, &one.to_list());
    println!("shrunk: {}", next());
    assert!(set_mask(child.id(), &all));
    write_to_child(&mut child, &all.to_list());
    println!("grown: {}", next());
    write_to_child(&mut child, "end");
    assert_eq!(next(), "ended");
    assert!(child.wait().unwrap().success());
    reader.join().unwrap();
}

/// The child: follows its instructions, and prints how long it took.
fn follow() {
    let runtime = Runtime::builder().build().unwrap();
    let (queue, strict) = (
        runtime.workqueue_builder("follows").affinity_scope(AffinityScope::Cache).build().unwrap(),
        runtime
            .workqueue_builder("strict")
            .affinity_scope(AffinityScope::Cpu)
            .affinity_strict(true)
            .build()
            .unwrap(),
    );
    println!("child: {}", queue.effective_cpumask());
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        if line == "end" {
            break;
        }
        let wanted: CpuSet = line.parse().unwrap();
        // The monitor updates one queue after the other.
        let time = work_until(&queue, "the mask follows", || {
            queue.effective_cpumask() == wanted && strict.effective_cpumask() == wanted
        });
        assert_eq!(runtime.parallelism(), wanted.len());
        assert_eq!(strict.pods().len(), wanted.len());
        for _ in 0..20 {
            let cpu = strict.spawn(Linux::current_cpu).join().unwrap();
            assert!(wanted.contains(cpu), "an item ran on {cpu}");
        }
        println!("child: {time:?}");
    }
    println!("child: ended");
}

#[test]
fn a_change_of_the_machine_while_all_workers_are_busy_loses_nothing() {
    if part().is_none() {
        let output =
            command(a_change_of_the_machine_while_all_workers_are_busy_loses_nothing, "child")
                .output()
                .unwrap();
        assert!(output.status.success(), "{}", output_text(&output));
        return;
    }
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime
        .workqueue_builder("busy")
        .affinity_scope(AffinityScope::Cpu)
        .max_active(100)
        .build()
        .unwrap();
    let all = runtime.allowed_cpus();
    let _watchdog = common::watch(Some(&runtime));
    let mut handles = Vec::new();
    for round in 0..200_usize {
        handles.extend((0..50_usize).map(|number| queue.spawn(move || number)));
        // Restricts the process's first thread, as `taskset -p` does.
        let cpu = all.iter().nth(round % all.len()).unwrap();
        let mask = if round % 3 == 0 { all.clone() } else { CpuSet::single(cpu) };
        let _ = set_first(&mask);
        runtime.refresh();
        assert!(queue.effective_cpumask().is_subset(&all));
    }
    let sum: usize = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
    assert_eq!(sum, 200 * (0..50).sum::<usize>());
}

/// Restricts the process's first thread.
fn set_first(cpus: &CpuSet) -> bool {
    set_mask(std::process::id(), cpus)
}

/// A control group with a CPU quota, made by this test in the first hierarchy that can be written to.
struct Cgroup {
    path: PathBuf,
    quota: &'static str,
    procs: &'static str,
}

impl Cgroup {
    fn new() -> Option<Self> {
        let name = format!("nearq-test-quota-{}", std::process::id());
        for (root, quota) in
            [("/sys/fs/cgroup", "cpu.max"), ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us")]
        {
            let path = PathBuf::from(root).join(&name);
            if std::fs::create_dir(&path).is_err() {
                continue;
            }
            let cgroup = Cgroup { path, quota, procs: "cgroup.procs" };
            if cgroup.path.join(quota).exists() {
                return Some(cgroup);
            }
        }
        None
    }

    fn set(&self, quota: Option<u32>) -> bool {
        let text = match (self.quota, quota) {
            ("cpu.max", None) => "max 100000".to_owned(),
            ("cpu.max", Some(quota)) => format!("{quota} 100000"),
            (_, None) => "-1".to_owned(),
            (_, Some(quota)) => quota.to_string(),
        };
        std::fs::write(self.path.join(self.quota), text).is_ok()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let end = Instant::now() + Duration::from_secs(5);
        while std::fs::remove_dir(&self.path).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn setting_and_lifting_a_quota_is_followed() {
    if part().is_some() {
        let runtime = Runtime::builder().build().unwrap();
        let queue = runtime.workqueue_builder("quota").build().unwrap();
        println!("child: {}", runtime.parallelism());
        for line in std::io::stdin().lines() {
            let wanted: usize = line.unwrap().parse().unwrap();
            let time =
                work_until(&queue, "the quota is followed", || runtime.parallelism() == wanted);
            println!("child: {time:?}");
        }
        return;
    }
    let all = Runtime::builder().build().unwrap().parallelism();
    let Some(cgroup) = Cgroup::new().filter(|cgroup| cgroup.set(None)) else {
        let why = "there is no cgroup with a CPU controller that can be written to";
        return skipped("a quota that changes", why, "run the tests as root");
    };
    if !has_cpus("a quota that changes", 2) {
        return;
    }
    let mut child = command(setting_and_lifting_a_quota_is_followed, "child")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    read_from_child(&mut lines);
    if std::fs::write(cgroup.path.join(cgroup.procs), child.id().to_string()).is_err() {
        let why = "a process cannot be moved into a cgroup";
        skipped("a quota that changes", why, "run the tests as root");
        child.kill().unwrap();
        child.wait().unwrap();
        return;
    }
    // One and a half CPUs need two workers.
    for (quota, wanted) in [(Some(60_000), 1), (Some(150_000), 2), (Some(100_000), 1), (None, all)]
    {
        assert!(cgroup.set(quota));
        write_to_child(&mut child, &wanted.to_string());
        println!("{quota:?}: {wanted} at once after {}", read_from_child(&mut lines));
    }
    drop(child.stdin.take());
    lines.for_each(drop);
    assert!(child.wait().unwrap().success());
}

#[test]
fn exit_with_items_running_neither_crashes_nor_hangs() {
    if let Some(part) = part() {
        let queue = nearq_core::system::unbound();
        let runtime = Runtime::builder().build().unwrap();
        let other =
            runtime.workqueue_builder("own").affinity_scope(AffinityScope::Cpu).build().unwrap();
        let (sender, receiver) = mpsc::channel();
        for number in 0..200_u32 {
            let sender = sender.clone();
            let item = move || {
                let _ = sender.send(());
                if number % 10 == 0 {
                    // An exit that waited for this item would be noticed.
                    std::thread::sleep(2 * common::PATIENCE);
                }
                std::hint::black_box((0..10_000).sum::<u64>());
            };
            drop(if number % 2 == 0 { queue.spawn(item) } else { other.spawn(item) });
        }
        receiver.recv().unwrap();
        if part == "worker" {
            // The exit is called inside a worker, while other workers run.
            drop(queue.spawn(|| std::process::exit(7)));
            std::thread::sleep(2 * common::PATIENCE);
        }
        std::process::exit(7);
    }
    for round in 0..50 {
        let part = if round % 5 == 0 { "worker" } else { "main" };
        let mut child = command(exit_with_items_running_neither_crashes_nor_hangs, part)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > common::PATIENCE {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("round {round}: the process does not end");
            }
            std::thread::sleep(Duration::from_micros(500));
        };
        assert_eq!(status.code(), Some(7), "round {round}: {status}");
    }
}
