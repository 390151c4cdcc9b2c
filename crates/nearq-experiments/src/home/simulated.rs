//! Runs on a simulated machine: tasks, the storm, and soft affinity.

use super::Ran;
use super::plan::{Plan, Row, Start, Storm, starts};
use super::scheduler;
use super::task::{ELEMENT, Memory, TaskReport, work};
use crate::harness::{failed, simulate};
use crate::{Error, Machine};
use nearq_home::{
    Action, Evidence, HomeMigration, NodeLoad, Nodes, Seen, SoftAffinity, Verdict, Weights, milli,
};
use nearq_platform::{
    Atomic as _, AtomicInt as _, Instant, LockPlatform as _, MemoryPolicy, Ordering,
    Placement as _, Threads as _,
};
use nearq_sim::{AtomicU32, CpuStatistics, Process, Sim, Thread, ThreadStatistics};
use nearq_topology::CpuSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

// A run on the simulated machine: the tasks are simulated processes, and their accesses to memory are declared.
//
// The first thread starts everything and waits for it, as the script of numa_test does: the tasks, the thread that watches them
// (`watch`), and what disturbs them. What the tasks report goes into a list that no thread holds while calling the platform.

/// Runs a plan for a row with a seed; also the hash of what happened.
pub(super) fn run(
    machine: &Machine,
    nodes: &Nodes,
    plan: &Plan,
    row: Row,
    seed: u64,
) -> Result<(Ran, u64), Error> {
    let (plan, nodes) = (Arc::new(plan.clone()), Arc::new(nodes.clone()));
    let limit = plan.limit();
    let call = machine.model().map_or(0, |model| model.costs().system_call);
    let call = Duration::from_nanos(call);
    let machine = scheduler::simulated(machine, row).map_err(Error::input)?;
    let ended = simulate(&machine, seed, limit, move || whole_run(&plan, row, &nodes, call))?;
    Ok((ended.result?, ended.trace_hash))
}

/// How often hogs check the time.
const HOG: Duration = Duration::from_millis(1);

/// What the tasks have reported so far, by number.
type List = Arc<Mutex<Vec<Option<TaskReport>>>>;

/// Whether all tasks have reported.
fn is_complete(list: &List) -> bool {
    list.lock().expect("no thread panics while holding it").iter().all(Option::is_some)
}

fn whole_run(plan: &Arc<Plan>, row: Row, nodes: &Arc<Nodes>, call: Duration) -> Result<Ran, Error> {
    let origin = Sim::now();
    let list: List = Arc::new(Mutex::new(vec![None; plan.tasks]));
    let mut tasks = Vec::with_capacity(plan.tasks);
    let mut homed = Vec::new();
    for (number, start) in starts(plan, row, nodes).into_iter().enumerate() {
        let home = start.home;
        let (plan, nodes, list) = (Arc::clone(plan), Arc::clone(nodes), Arc::clone(&list));
        let process = fork("task", move || task(&plan, number, &start, &nodes, origin, &list))?;
        if let (true, Some(home), Some(thread)) = (row.is_kept(), home, Sim::first_thread(process))
        {
            homed.push((thread, home));
        }
        tasks.push(process);
    }
    let mut others = Vec::new();
    if row.is_kept() {
        let nodes = Nodes::clone(nodes);
        let moves = row == Row::Dynamic;
        others.push(fork("keeper", move || keep(nodes, &homed, moves))?);
    }
    if let Some(storm) = plan.storm {
        let list = Arc::clone(&list);
        others.push(fork("hackbench", move || {
            let mut next = Some(storm.after);
            while let Some(begin) = next {
                sleep_until(origin, begin);
                if storm.every.is_some() && is_complete(&list) {
                    break;
                }
                hackbench(storm, call);
                next = storm.again(begin);
            }
        })?);
    }
    if let Some(hogs) = plan.hogs {
        let cpus = nodes.get(hogs.node).cpus.clone();
        for _ in 0..hogs.count {
            let cpus = cpus.clone();
            others.push(fork("hog", move || {
                go_to(&cpus);
                sleep_until(origin, hogs.from);
                while Sim::now() - origin < hogs.to {
                    Sim::charge(HOG);
                }
            })?);
        }
    }
    tasks.into_iter().for_each(Sim::wait_process);
    let elapsed = Sim::now() - origin;
    others.into_iter().for_each(Sim::wait_process);
    let reports: Option<Vec<TaskReport>> =
        std::mem::take(&mut *list.lock().expect("no thread panics while holding it"))
            .into_iter()
            .collect();
    let tasks = reports.ok_or_else(|| Error::run("a simulated task ended without its account"))?;
    Ok(Ran { elapsed, tasks })
}

fn fork(name: &str, main: impl FnOnce() + Send + 'static) -> Result<Process, Error> {
    Sim::fork(name, main).map_err(failed)
}

fn sleep_until(origin: Instant, time: Duration) {
    let left = time.saturating_sub(Sim::now() - origin);
    if !left.is_zero() {
        Sim::sleep(left);
    }
}

/// Restricts the caller to CPUs. They are CPUs of the machine, so the call cannot be refused.
fn go_to(cpus: &CpuSet) {
    Sim::set_affinity(Sim::current_thread(), cpus).expect("the CPUs are the machine's");
}

// ---- tasks ---------------------------------------------------------------------------------------------

/// The body of a task's process.
fn task(plan: &Plan, number: usize, start: &Start, nodes: &Nodes, origin: Instant, list: &List) {
    if let Some(cpus) = &start.cpus {
        go_to(cpus);
    }
    // A node with CPUs may have no memory.
    let refused = start.memory.and_then(|node| {
        let policy = MemoryPolicy::Preferred(nodes.get(node).memory);
        Sim::set_memory_policy(&policy).err()
    });
    Sim::exec("randupdt").expect("a new process has one thread");
    let mut memory = Declared::new(plan.elements, nodes, origin);
    let settled = || {
        if let Some(cpus) = &start.then {
            go_to(cpus);
        }
    };
    let report = work(&mut memory, nodes.len(), plan.elements, plan.until[number], settled);
    let report = TaskReport { refused: refused.map(|refused| refused.to_string()), ..report };
    list.lock().expect("no thread panics while holding it")[number] = Some(report);
}

/// The memory of a simulated task: addresses that are never accessed, and declared accesses.
struct Declared<'n> {
    reserved: Reserved,
    elements: usize,
    nodes: &'n Nodes,
    origin: Instant,
}

impl<'n> Declared<'n> {
    fn new(elements: usize, nodes: &'n Nodes, origin: Instant) -> Self {
        Declared { reserved: Reserved::new(elements * ELEMENT), elements, nodes, origin }
    }

    /// `a`, `b` and `ix`.
    fn parts(&mut self) -> [&mut [u8]; 3] {
        let doubles = self.elements * 8;
        let (a, rest) = self.reserved.bytes().split_at_mut(doubles);
        let (b, ix) = rest.split_at_mut(doubles);
        [a, b, ix]
    }
}

impl Memory for Declared<'_> {
    fn touch(&mut self) {
        self.parts().into_iter().for_each(Sim::write);
    }

    fn update(&mut self, from: usize, to: usize) {
        let count = to - from;
        let [a, b, ix] = self.parts();
        Sim::sweep(ix, count * 4);
        Sim::sweep(b, count * 8);
        Sim::scatter(a, count);
    }

    fn copy(&mut self) {
        let [a, b, _] = self.parts();
        Sim::sweep(a, a.len());
        Sim::sweep_mut(b, b.len());
    }

    fn pages(&self) -> Vec<u64> {
        pages(Sim::current_thread(), self.nodes).unwrap_or_default()
    }

    fn now(&self) -> Duration {
        Sim::now() - self.origin
    }

    fn cpu_time(&self) -> Duration {
        Sim::cpu_time(Sim::current_thread()).unwrap_or_default()
    }

    fn node(&self) -> usize {
        self.nodes.of_cpu(Sim::current_cpu()).unwrap_or(0)
    }

    fn user_and_system(&self) -> (Duration, Duration) {
        let counted = Sim::thread_statistics(Sim::current_thread()).expect("the caller is alive");
        (counted.ran.saturating_sub(counted.in_kernel), counted.in_kernel)
    }
}

/// Addresses: pages that read as zero, none of which is ever touched, so that gigabytes of simulated memory cost nothing.
struct Reserved {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping is the value's own, as a box's memory is.
unsafe impl Send for Reserved {}

impl Reserved {
    /// # Panics
    /// If there is no space in the address space.
    fn new(bytes: usize) -> Self {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new mapping, of no file, at an address of the kernel's choice.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes.max(1), protection, flags, -1, 0) };
        assert!(start != libc::MAP_FAILED, "no room for {bytes} bytes of simulated memory");
        Reserved { start: start.cast(), bytes }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is that long, readable and writable, initialised as zeros, and borrowed as the value is.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: the mapping is the value's own, and no reference to it is left. The result is of no use.
        unsafe { libc::munmap(self.start.cast(), self.bytes.max(1)) };
    }
}

// The storm on a simulated machine: hackbench, of simulated processes.
//
// In each group every sender sends `messages` messages of 100 bytes to every receiver, in turn, each by a system call; a receiver takes all
// messages for it and sleeps if there are none. A message costs a system call on each side and the transfers of its socket's line between
// the two; the system call includes copying 100 bytes.

/// Messages that fit into a socket: `net.core.wmem_default`, 212,992 bytes, divided by the 768 that the kernel counts for a small message.
const ROOM: u32 = 277;

/// A socket: how many messages are in it. A process that finds it full or empty waits on that number.
struct Socket(AtomicU32);

impl Socket {
    /// Puts a message in; waits while the socket is full.
    fn send(&self) {
        loop {
            // Relaxed, here and below: the number is all that is shared.
            let before = self.0.load(Ordering::Relaxed);
            if before < ROOM {
                break;
            }
            Sim::wait(&self.0, before, None);
        }
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            Sim::wake(&raw const self.0, usize::MAX);
        }
    }

    /// Takes all messages out, at least one. Returns how many.
    fn receive(&self) -> u32 {
        loop {
            let taken = self.0.swap(0, Ordering::Relaxed);
            if taken >= ROOM {
                Sim::wake(&raw const self.0, usize::MAX);
            }
            if taken > 0 {
                return taken;
            }
            Sim::wait(&self.0, 0, None);
        }
    }
}

/// Runs the whole scenario in the parent process of all others; a system call takes `call`.
fn hackbench(storm: Storm, call: Duration) {
    let mut children = Vec::with_capacity(storm.processes());
    for _ in 0..storm.groups {
        let sockets: Arc<[Socket]> = (0..storm.pairs).map(|_| Socket(AtomicU32::new(0))).collect();
        for receiver in 0..storm.pairs {
            let sockets = Arc::clone(&sockets);
            children.push(Sim::fork("receiver", move || {
                let mut left = storm.pairs * storm.messages;
                while left > 0 {
                    let taken = sockets[receiver].receive();
                    Sim::charge(call * taken);
                    left -= taken as usize;
                }
            }));
        }
        for _ in 0..storm.pairs {
            let sockets = Arc::clone(&sockets);
            children.push(Sim::fork("sender", move || {
                for _ in 0..storm.messages {
                    for socket in &*sockets {
                        Sim::charge(call);
                        socket.send();
                    }
                }
            }));
        }
    }
    // Nothing limits the number of simulated processes, so that none is refused.
    children.into_iter().flatten().for_each(Sim::wait_process);
}

// The thread that watches over the tasks of a simulated run: reads what the simulated kernel counts, asks `SoftAffinity`, sets
// affinities.
//
// It is an ordinary process of the machine that sleeps from period to period, pays for its system calls, and is late if the CPUs are
// crowded, as on a real machine.

/// A task that is watched.
struct Watched {
    thread: Thread,
    before: ThreadStatistics,
    migration: HomeMigration,
    /// CPU time by node since the home was last considered.
    cpu_time: Vec<Duration>,
}

/// Keeps tasks at home until all have ended; if homes move, they move to where the memory is.
pub(super) fn keep(nodes: Nodes, tasks: &[(Thread, usize)], moves: bool) {
    let weights = Weights::default();
    let mut affinity = SoftAffinity::new(nodes.clone(), weights.clone());
    let start = Sim::now();
    let mut watched: Vec<Watched> = Vec::new();
    for (thread, home) in tasks {
        let Ok(before) = Sim::thread_statistics(*thread) else { continue };
        affinity.add(thread.number(), *home);
        let migration = HomeMigration::new(*home, Duration::ZERO);
        let cpu_time = vec![Duration::ZERO; nodes.len()];
        watched.push(Watched { thread: *thread, before, migration, cpu_time });
    }
    let mut cpus = Sim::cpu_statistics();
    let mut then = Sim::now();
    let mut considered = Duration::ZERO;
    affinity.step(then - start, &vec![NodeLoad::default(); nodes.len()], &[]);
    while !watched.is_empty() {
        Sim::sleep(affinity.period());
        let mut seen = Vec::with_capacity(watched.len());
        watched.retain_mut(|task| {
            let now = Sim::thread_statistics(task.thread);
            match now {
                Ok(now) => seen.push(task.sample(now, &nodes)),
                Err(_) => affinity.remove(task.thread.number()),
            }
            now.is_ok()
        });
        let (before, now) = (std::mem::replace(&mut cpus, Sim::cpu_statistics()), Sim::now());
        let loads = node_loads(&nodes, &before, &cpus, now - then);
        then = now;
        for action in affinity.step(now - start, &loads, &seen) {
            act(&action, &affinity, &watched);
        }
        let interval = Duration::from_millis(weights.move_interval_ms().into());
        if moves && now - start >= considered + interval {
            considered = now - start;
            for task in &mut watched {
                task.consider(considered, &mut affinity, &weights);
            }
        }
    }
}

impl Watched {
    fn sample(&mut self, now: ThreadStatistics, nodes: &Nodes) -> Seen {
        let before = std::mem::replace(&mut self.before, now);
        let node = nodes.of_cpu(now.cpu).unwrap_or(0);
        let ran = now.ran.saturating_sub(before.ran);
        let waited = now.waited.saturating_sub(before.waited);
        self.cpu_time[node] += ran;
        Seen { id: self.thread.number(), ran, waited, node }
    }

    /// Moves the home to where the memory is, if that is worth it.
    fn consider(&mut self, now: Duration, affinity: &mut SoftAffinity, weights: &Weights) {
        let nodes = affinity.nodes().clone();
        let Some(pages) = pages(self.thread, &nodes) else { return };
        let nothing = vec![Duration::ZERO; nodes.len()];
        let cpu_time = std::mem::replace(&mut self.cpu_time, nothing);
        let evidence = Evidence { pages, cpu_time };
        if let Verdict::Move { to, .. } = self.migration.consider(now, &evidence, &nodes, weights) {
            affinity.add(self.thread.number(), to);
            restrict(self.thread, &[to], &nodes);
        }
    }
}

/// Does what `SoftAffinity` says.
fn act(action: &Action, affinity: &SoftAffinity, watched: &[Watched]) {
    let (id, to) = match action {
        Action::LetOut { id, to } => (*id, to.clone()),
        Action::BringHome { id } => (*id, affinity.home(*id).into_iter().collect()),
    };
    if let Some(task) = watched.iter().find(|task| task.thread.number() == id) {
        restrict(task.thread, &to, affinity.nodes());
    }
}

/// A thread that has ended in the meantime needs no affinity.
fn restrict(thread: Thread, to: &[usize], nodes: &Nodes) {
    let _ = Sim::set_affinity(thread, &nodes.cpus_of(to));
}

/// The pages of a thread's process, by index of node.
pub(super) fn pages(thread: Thread, nodes: &Nodes) -> Option<Vec<u64>> {
    let resident = Sim::process(thread).ok()?.resident;
    let of = |node: &nearq_home::Node| resident.get(node.memory).copied().unwrap_or(0) as u64;
    Some(nodes.iter().map(of).collect())
}

/// The load of the nodes' CPUs in a period.
fn node_loads(
    nodes: &Nodes,
    before: &[CpuStatistics],
    after: &[CpuStatistics],
    period: Duration,
) -> Vec<NodeLoad> {
    let of = |node: &nearq_home::Node| {
        let (mut runnable, mut idle) = (Duration::ZERO, Duration::ZERO);
        for cpu in &node.cpus {
            let ran = after[cpu].ran.saturating_sub(before[cpu].ran);
            runnable += ran + after[cpu].waited.saturating_sub(before[cpu].waited);
            idle += period.saturating_sub(ran);
        }
        NodeLoad { runnable: milli(runnable, period), idle: milli(idle, period) }
    };
    nodes.iter().map(of).collect()
}
