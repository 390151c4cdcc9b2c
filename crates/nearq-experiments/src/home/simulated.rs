//! A run on the simulated machine: the tasks are simulated processes, and what they do to their memory is declared.
//!
//! The first thread starts everything and waits for it, as the script of numa_test does: the tasks, whoever watches over them
//! (`watch`), and what disturbs them. What the tasks tell goes into a list that nobody holds while calling the platform.

use super::account::Told;
use super::placing::{Start, starts};
use super::plan::{Plan, Row};
use super::scheduler::under_home;
use super::task::{ELEMENT, Memory, work};
use super::{Ran, storm, watch};
use crate::harness::simulate;
use crate::{Error, Machine};
use nearq_home::Nodes;
use nearq_platform::{Instant, MemoryPolicy, Platform as _};
use nearq_sim::{Process, Sim};
use nearq_topology::CpuSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Runs a plan for a row with a seed.
pub(super) fn run(
    machine: &Machine,
    nodes: &Nodes,
    plan: &Plan,
    row: Row,
    seed: u64,
) -> Result<Ran, Error> {
    let (plan, nodes) = (Arc::new(plan.clone()), Arc::new(nodes.clone()));
    let limit = plan.limit();
    let call = machine.model().map_or(0, |model| model.costs().system_call);
    let call = Duration::from_nanos(call);
    let under_home = match row {
        Row::Scheduler => Some(under_home(machine).map_err(Error::input)?),
        _ => None,
    };
    let machine = under_home.as_ref().unwrap_or(machine);
    simulate(machine, seed, limit, move || whole_run(&plan, row, &nodes, call))?.result
}

/// Hogs look at the time so often.
const HOG: Duration = Duration::from_millis(1);

/// What the tasks have told so far, by number.
type List = Arc<Mutex<Vec<Option<Told>>>>;

fn whole_run(plan: &Arc<Plan>, row: Row, nodes: &Arc<Nodes>, call: Duration) -> Result<Ran, Error> {
    let origin = Sim::now();
    let list: List = Arc::new(Mutex::new(vec![None; plan.tasks]));
    let mut tasks = Vec::with_capacity(plan.tasks);
    let mut kept = Vec::new();
    for (number, start) in starts(plan, row, nodes).into_iter().enumerate() {
        let home = start.home;
        let (plan, nodes, list) = (Arc::clone(plan), Arc::clone(nodes), Arc::clone(&list));
        let process = fork("task", move || task(&plan, number, &start, &nodes, origin, &list))?;
        if let (true, Some(home), Some(thread)) = (row.is_kept(), home, Sim::first_thread(process))
        {
            kept.push((thread, home));
        }
        tasks.push(process);
    }
    let mut others = Vec::new();
    if row.is_kept() {
        let nodes = Nodes::clone(nodes);
        let moves = row == Row::Dynamic;
        others.push(fork("keeper", move || watch::keep(nodes, &kept, moves))?);
    }
    if let Some(storm) = plan.storm {
        others.push(fork("hackbench", move || {
            sleep_until(origin, storm.after);
            storm::run(storm, call);
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
    let told: Option<Vec<Told>> =
        std::mem::take(&mut *list.lock().expect("nobody panics while holding it"))
            .into_iter()
            .collect();
    let tasks = told.ok_or_else(|| Error::run("a simulated task ended without its account"))?;
    Ok(Ran { elapsed, tasks })
}

fn fork(name: &str, main: impl FnOnce() + Send + 'static) -> Result<Process, Error> {
    Sim::fork(name, main).map_err(|refused| Error::run(refused.to_string()))
}

fn sleep_until(origin: Instant, time: Duration) {
    let left = time.saturating_sub(Sim::now() - origin);
    if !left.is_zero() {
        Sim::sleep(left);
    }
}

/// Restricts the caller to CPUs. They are the machine's, so it cannot be refused.
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
    let told = work(&mut memory, nodes.len(), plan.elements, plan.until[number], settled);
    let told = Told { refused: refused.map(|refused| refused.to_string()), ..told };
    list.lock().expect("nobody panics while holding it")[number] = Some(told);
}

/// The memory of a simulated task: addresses that nobody looks into, and accesses that are declared.
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
        watch::pages(Sim::current_thread(), self.nodes).unwrap_or_default()
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

    /// The simulated kernel does not tell them apart.
    fn user_and_system(&self) -> (Duration, Option<Duration>) {
        (self.cpu_time(), None)
    }
}

/// Addresses: pages that read as zero, of which none is ever touched, so that gigabytes of simulated memory cost nothing.
struct Reserved {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping is the value's own, as a box's memory is.
unsafe impl Send for Reserved {}

impl Reserved {
    /// # Panics
    /// If there is no room among the addresses.
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
        // SAFETY: the mapping is the value's own, and nothing borrows it any more. The result says nothing of use.
        unsafe { libc::munmap(self.start.cast(), self.bytes.max(1)) };
    }
}
