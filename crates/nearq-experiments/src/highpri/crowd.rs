//! The threads that compete for the CPU, and the limits that they reach.

use crate::Error;
use crate::harness::Host;
use nearq_platform::{Atomic as _, AtomicInt as _, Ordering, ThreadSpec};
use nearq_topology::CpuSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

// The load of the document: thousands of ordinary threads on one CPU, each of which sleeps a millisecond, again and again.
//
// Each sleep ends by a timer, a wake-up and a switch, some microseconds together: some hundred such threads are enough to
// saturate the CPU.
//
// Threads begin and end while the CPU is idle: on a saturated CPU each start and each end would take as long as a turn of all of them, and
// starts and ends take the lock of the process's memory, for which the other threads would queue up. So the threads wait at a gate until
// all are there, and after their last sleep they wait until they are released, some at a time.

/// How long a simulated thread of the crowd computes between two sleeps, besides the time of the simulated kernel for the timer, the
/// wake-up and the switch: this is a stated round input, not a measurement. On Linux the thread does nothing, which takes some 10 ns.
pub(crate) const CROWD_WORK: Duration = Duration::from_micros(1);

/// How long each of them sleeps.
pub(crate) const SLEEP: Duration = Duration::from_millis(1);
/// The size of a thread's stack, which is small: space for a call and for the platform's code at a thread's start.
const STACK: usize = 64 << 10;
/// How often to check whether all are at the gate.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);
/// How many are released at once.
const TOGETHER: usize = 16;

/// Not all threads are at the gate yet.
const CLOSED: u32 = 0;
/// The threads sleep in their loops.
const OPEN: u32 = 1;
/// The threads must come back to the gate.
const BACK: u32 = 2;
/// The threads are released as they are woken.
const OVER: u32 = 3;

struct Shared<P: Host> {
    gate: P::AtomicU32,
    /// Threads at the gate.
    there: P::AtomicU32,
    sleeps: P::AtomicU64,
}

/// The threads. Dropping this ends them, and waits for that.
pub(crate) struct Crowd<P: Host> {
    shared: Arc<Shared<P>>,
    threads: Vec<P::JoinHandle>,
}

impl<P: Host> Crowd<P> {
    /// Starts that many threads on that CPU. An error says how many could be started, and which limit was reached; the started threads have
    /// ended by then.
    pub(crate) fn start(threads: usize, cpu: usize) -> Result<Self, Error> {
        let shared = Shared::<P> {
            gate: P::AtomicU32::new(CLOSED),
            there: P::AtomicU32::new(0),
            sleeps: P::AtomicU64::new(0),
        };
        let mut crowd = Self { shared: Arc::new(shared), threads: Vec::new() };
        for number in 0..threads {
            let shared = Arc::clone(&crowd.shared);
            let spec = ThreadSpec {
                name: format!("crowd/{number}"),
                stack_size: Some(STACK),
                affinity: Some(CpuSet::single(cpu)),
                ..ThreadSpec::default()
            };
            match P::spawn(spec, move || shared.live()) {
                Ok(thread) => crowd.threads.push(thread),
                Err(refused) => {
                    // This is done before the threads end, because they count towards the limit that is reached.
                    let reached = reached();
                    drop(crowd);
                    let reached =
                        if reached.is_empty() { refused.to_string() } else { reached.join(", ") };
                    return Err(Error::run(format!(
                        "--threads {threads}: only {number} could be started: {reached}; give at most {number}, or raise the limit"
                    )));
                }
            }
        }
        crowd.shared.await_all(threads);
        crowd.shared.open(OPEN, usize::MAX);
        Ok(crowd)
    }

    /// How often the threads have slept and woken so far, all together.
    pub(crate) fn sleeps(&self) -> u64 {
        self.shared.sleeps.load(Ordering::Relaxed)
    }
}

impl<P: Host> Shared<P> {
    /// The body of one of the threads.
    fn live(&self) {
        self.wait(CLOSED);
        self.sleep_again_and_again();
        self.wait(BACK);
    }

    /// Waits at the gate while the gate has that value.
    fn wait(&self, gate: u32) {
        self.there.fetch_add(1, Ordering::Relaxed);
        // Relaxed here and below: the gate only determines when the threads go on.
        while self.gate.load(Ordering::Relaxed) == gate {
            P::wait(&self.gate, gate, None);
        }
        self.there.fetch_sub(1, Ordering::Relaxed);
    }

    fn sleep_again_and_again(&self) {
        /// Sleeps that are counted at once: the cost of the counter must not matter for the threads.
        const COUNTED: u64 = 16;
        let mut sleeps = 0;
        while self.gate.load(Ordering::Relaxed) == OPEN {
            P::sleep(SLEEP);
            P::crowd_work();
            sleeps += 1;
            if sleeps % COUNTED == 0 {
                self.sleeps.fetch_add(COUNTED, Ordering::Relaxed);
            }
        }
    }

    fn open(&self, gate: u32, count: usize) {
        self.gate.store(gate, Ordering::Relaxed);
        P::wake(&raw const self.gate, count);
    }

    /// Waits until all of them are at the gate.
    fn await_all(&self, threads: usize) {
        while (self.there.load(Ordering::Relaxed) as usize) < threads {
            P::sleep(CHECK_INTERVAL);
        }
    }
}

impl<P: Host> Drop for Crowd<P> {
    fn drop(&mut self) {
        // If not all threads could be started, the gate was never opened, and the started threads are at it already.
        if self.shared.gate.load(Ordering::Relaxed) == OPEN {
            self.shared.gate.store(BACK, Ordering::Relaxed);
        }
        self.shared.await_all(self.threads.len());
        self.shared.gate.store(OVER, Ordering::Relaxed);
        let mut left = self.threads.len();
        while left > 0 {
            let before = left;
            self.shared.open(OVER, TOGETHER);
            left = left.saturating_sub(TOGETHER);
            // Waits until these threads are gone, so that they do not meet the next ones.
            while self.shared.there.load(Ordering::Relaxed) as usize > left && before > left {
                P::sleep(Duration::from_micros(100));
            }
        }
        self.threads.drain(..).for_each(P::join);
    }
}

// Which limit keeps a process from having more threads: the kernel's answer is the same number for most of them.

/// A limit, how much of it is used, and where it is set.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Limit {
    what: &'static str,
    used: u64,
    most: u64,
}

/// Mappings that a thread takes: its stack, the standard library's stack for signals, and a guard page below each.
const MAPPINGS: u64 = 4;
/// Address space that a thread takes, in KiB, and what the C library sets aside for threads that allocate.
const THREAD_KIB: u64 = 96;
const ARENAS_KIB: u64 = 1 << 20;

/// If no more than this is left of a limit, it counts as reached: a thread takes several mappings, and other programs start and end
/// threads.
const MARGIN: u64 = 16;

/// The limits that are reached now, in words; empty if none of the known limits is reached.
pub(crate) fn reached() -> Vec<String> {
    limits(Path::new("/")).iter().filter(|limit| limit.is_reached()).map(Limit::describe).collect()
}

/// How many threads there is memory for, by the limit that allows the fewest, and which limit that is. This must be known in
/// advance: a thread that lacks memory at its start ends the process. None if neither limit can be read.
pub(crate) fn thread_capacity() -> Option<(usize, String)> {
    thread_capacity_in(&limits(Path::new("/")))
}

/// Refuses an option that asks for more threads than there is memory for.
pub(crate) fn check_capacity(option: &str, threads: usize) -> Result<(), Error> {
    match thread_capacity() {
        Some((capacity, limit)) if threads > capacity => Err(Error::input(format!(
            "{option} {threads}: there is room for only {capacity} threads: {limit}; give at most {capacity}, or raise the limit"
        ))),
        _ => Ok(()),
    }
}

fn thread_capacity_in(limits: &[Limit]) -> Option<(usize, String)> {
    let capacities = limits.iter().filter_map(|limit| {
        let left = limit.most.saturating_sub(limit.used);
        let threads = match limit.what {
            MAPS => left.saturating_sub(MARGIN * MAPPINGS) / MAPPINGS,
            SPACE => left.saturating_sub(ARENAS_KIB) / THREAD_KIB,
            _ => return None,
        };
        let text = format!("{} is {}, of which {} are used", limit.what, limit.most, limit.used);
        Some((usize::try_from(threads).unwrap_or(usize::MAX), text))
    });
    capacities.min_by_key(|(threads, _)| *threads)
}

const MAPS: &str = "the number of memory mappings (vm.max_map_count)";
const SPACE: &str = "the address space in KiB (RLIMIT_AS, ulimit -v)";

impl Limit {
    fn is_reached(&self) -> bool {
        self.used + MARGIN >= self.most
    }

    fn describe(&self) -> String {
        format!("{} is reached ({} of {})", self.what, self.used, self.most)
    }
}

fn limits(root: &Path) -> Vec<Limit> {
    let text = |path: &str| fs::read_to_string(root.join(path)).ok();
    let number = |path: &str| text(path)?.trim().parse::<u64>().ok();
    let mut limits = Vec::new();
    let mut add = |what, used: Option<u64>, most: Option<u64>| {
        if let (Some(used), Some(most)) = (used, most) {
            limits.push(Limit { what, used, most });
        }
    };
    let all = text("proc/loadavg").and_then(|text| threads_of_all(&text));
    add(
        "the kernel's number of threads (kernel.threads-max)",
        all,
        number("proc/sys/kernel/threads-max"),
    );
    add("the kernel's last thread id (kernel.pid_max)", all, number("proc/sys/kernel/pid_max"));
    let maps = text("proc/self/maps").map(|text| text.lines().count() as u64);
    add(MAPS, maps, number("proc/sys/vm/max_map_count"));
    let limit = |name: &str| text("proc/self/limits").and_then(|text| soft_limit(&text, name));
    let size = text("proc/self/status").and_then(|text| field(&text, "VmSize:"));
    // What a thread's stack takes with what surrounds it, in KiB.
    const STACK_KIB: u64 = 256;
    add(
        SPACE,
        size.map(|size| size + STACK_KIB),
        limit("Max address space").map(|bytes| bytes / 1024),
    );
    add(
        "the user's number of threads (RLIMIT_NPROC, ulimit -u)",
        text("proc/self/status").and_then(|text| threads_of_user(root, field(&text, "Uid:")?)),
        limit("Max processes"),
    );
    for folder in pids_folders(&text("proc/self/cgroup").unwrap_or_default()) {
        add(
            "the control group's number of threads (pids.max)",
            number(&format!("{folder}/pids.current")),
            number(&format!("{folder}/pids.max")),
        );
    }
    limits
}

/// `0.1 0.2 0.3 2/345 6789`: 345 threads.
fn threads_of_all(loadavg: &str) -> Option<u64> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// The soft limit of a line of `/proc/self/limits`; none if it is unlimited.
fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The first number of a line of `/proc/PID/status`.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Threads of all visible processes of a user.
fn threads_of_user(root: &Path, user: u64) -> Option<u64> {
    let processes = fs::read_dir(root.join("proc")).ok()?;
    let threads = processes.flatten().filter_map(|process| {
        let status = fs::read_to_string(process.path().join("status")).ok()?;
        if field(&status, "Uid:")? == user { field(&status, "Threads:") } else { None }
    });
    Some(threads.sum())
}

/// The folders of the group and of all its parents that may set a limit: of version 1 and of version 2.
fn pids_folders(cgroup: &str) -> Vec<String> {
    let mut folders = Vec::new();
    for line in cgroup.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let top = match controllers {
            "" => "sys/fs/cgroup",
            list if list.split(',').any(|one| one == "pids") => "sys/fs/cgroup/pids",
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        folders.push(format!("{top}{path}"));
        while let Some((above, _)) = path.rsplit_once('/') {
            path = above;
            folders.push(format!("{top}{path}"));
        }
    }
    folders
}

#[cfg(test)]
#[path = "tests/crowd.rs"]
mod crowd_tests;

#[cfg(test)]
#[path = "tests/limits.rs"]
mod limits_tests;
