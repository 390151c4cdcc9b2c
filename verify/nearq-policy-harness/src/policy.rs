//! The policy as compiled from C, for user space: each function of the header with Rust arguments.
//!
//! The header's functions stay within what they are given whatever numbers they get: indices are masked, and loops end at structures' sizes
//! or at numbers that [`describe`] has written. A wrong number gives a wrong answer and nothing worse. In the kernel, all CPUs may call at
//! the same time; here, `&mut self` allows only one caller at a time.

use nearq_scx_policy::layout::{
    self, HomeReason, NONE, Nq, Process, TakeWhich, Task, Weights, header,
};
use nearq_scx_policy::{TooLarge, describe};
use nearq_topology::{CpuSet, Topology};

// This code is generated.
#[allow(warnings, clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks)]
mod c {
    include!(concat!(env!("OUT_DIR"), "/functions.rs"));
}

/// An index of [`layout::EVENTS`], or [`layout::CROSSED`].
pub type Event = usize;

/// Where a CPU must try to take a task from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    /// The queue.
    pub llc: usize,
    /// Which task of the queue.
    pub which: TakeWhich,
    /// The event that is counted if the queue has such a task.
    pub event: Event,
}

/// The decisions of a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Whether the task must leave its CPU, or go home.
    pub yields: bool,
    /// The idle CPU to wake for the tasks that wait here, already claimed.
    pub wakes: Option<usize>,
}

/// The policy of one machine, with all that it has counted.
///
/// ```
/// use nearq_policy_harness::Policy;
/// use nearq_scx_policy::layout::{HomeReason, Task};
/// use nearq_topology::Topology;
///
/// let machine = Topology::from_synthetic("numa:2 core:2")?;
/// let mut policy = Policy::new(&machine, machine.online()).unwrap();
/// let mut task = Task::default();
/// policy.init_task(&mut task, 100);
/// Policy::allow(&mut task, machine.online());
/// let home = policy.pick(&mut task, None);
/// policy.set_home(&mut task, home, HomeReason::Exec);
/// assert_eq!((home, policy.state().on_node[0].homes), (0, 1));
/// # Ok::<(), nearq_topology::TopologyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Policy {
    nq: Box<Nq>,
}

/// The header's number for a CPU, node or queue that may not exist.
fn number(index: Option<usize>) -> u32 {
    index.map_or(NONE, |index| index as u32)
}

/// The number that may not exist, from the header's number.
fn index(number: u32) -> Option<usize> {
    (number != NONE).then_some(number as usize)
}

impl Policy {
    /// The policy of a machine on which no task runs and all CPUs count as busy.
    ///
    /// # Errors
    /// The machine is too large.
    pub fn new(machine: &Topology, online: &CpuSet) -> Result<Self, TooLarge> {
        Ok(Policy { nq: describe(machine, online)? })
    }

    /// The policy's whole state.
    pub fn state(&self) -> &Nq {
        &self.nq
    }

    /// The settings.
    pub fn weights_mut(&mut self) -> &mut Weights {
        &mut self.nq.weights
    }

    /// How often something happened, on all CPUs.
    pub fn counted(&self, event: Event) -> u64 {
        self.nq.on_cpu.iter().map(|cpu| cpu.events[event]).sum()
    }

    /// Sets where a task may run; its home may have to be picked again: see [`is_open`](Self::is_open).
    pub fn allow(task: &mut Task, cpus: &CpuSet) {
        task.allowed = [0; layout::WORDS];
        for cpu in cpus.iter().take_while(|cpu| *cpu < layout::CPUS) {
            task.allowed[cpu / 64] |= 1 << (cpu % 64);
        }
    }

    /// Whether a task may run on a CPU.
    pub fn may_run(task: &Task, cpu: usize) -> bool {
        task.allowed[cpu / 64 % layout::WORDS] & 1 << (cpu % 64) != 0
    }

    /// The node of a CPU.
    pub fn node_of(&self, cpu: usize) -> usize {
        self.nq.cpu[cpu].node as usize
    }

    /// The queue of a CPU.
    pub fn llc_of(&self, cpu: usize) -> usize {
        self.nq.cpu[cpu].llc as usize
    }

    /// A CPU has nothing to run.
    pub fn idle(&mut self, cpu: usize) {
        c::nq_idle(&mut self.nq, cpu as u32)
    }

    /// A CPU is no longer idle. Returns whether it was.
    pub fn busy(&mut self, cpu: usize) -> bool {
        c::nq_busy(&mut self.nq, cpu as u32)
    }

    /// A CPU comes or goes.
    pub fn online(&mut self, cpu: usize, online: bool) {
        c::nq_online(&mut self.nq, cpu as u32, online)
    }

    /// The least loaded node for a task: the nearest to `from` of those that are equal.
    pub fn pick(&mut self, task: &mut Task, from: Option<usize>) -> usize {
        c::nq_pick(&mut self.nq, task, number(from)) as usize
    }

    /// The home of a new thread of a process.
    pub fn pick_for_thread(&mut self, task: &mut Task, process: &mut Process) -> usize {
        c::nq_pick_for_thread(&mut self.nq, task, process) as usize
    }

    /// The index of the node with this number in the operating system.
    pub fn node_by_id(&mut self, id: u32) -> Option<usize> {
        index(c::nq_node_by_id(&mut self.nq, id))
    }

    /// Whether a task may use any online CPU of a node.
    pub fn is_open(&mut self, task: &mut Task, node: usize) -> bool {
        c::nq_is_open(&mut self.nq, task, node as u32)
    }

    /// Whether a task may run only on that node, although the machine has several.
    pub fn is_bound(&mut self, task: &mut Task, home: usize) -> bool {
        c::nq_is_bound(&mut self.nq, task, home as u32)
    }

    /// From now on this is a task's home.
    pub fn set_home(&mut self, task: &mut Task, home: usize, why: HomeReason) {
        c::nq_set_home(&mut self.nq, task, home as u32, why as u8)
    }

    /// The home that a task begins with because it was reported for the parent that forks the task's process; `said` is what is now
    /// reported for the parent.
    pub fn inherits(
        &mut self,
        task: &mut Task,
        parent: &mut Task,
        said: Option<usize>,
    ) -> Option<usize> {
        index(c::nq_inherits(&mut self.nq, task, parent, number(said)))
    }

    /// Marks the home that a task was given as inherited.
    pub fn inherited(task: &mut Task) {
        c::nq_inherited(task)
    }

    /// Whether a task keeps its home when it executes a new program.
    pub fn keeps_home(task: &mut Task) -> bool {
        c::nq_keeps_home(task)
    }

    /// A task is reported to be at home on the node that is already its home. Returns whether the report is new.
    pub fn told_to_stay(task: &mut Task) -> bool {
        c::nq_told_to_stay(task)
    }

    /// Nothing is reported for a task, or no longer.
    pub fn untold(task: &mut Task) {
        c::nq_untold(task)
    }

    /// A new task exists; a weight of 100 is that of nice 0.
    pub fn init_task(&mut self, task: &mut Task, weight: u32) {
        c::nq_init_task(&mut self.nq, task, weight)
    }

    /// A task has ended.
    pub fn exit_task(&mut self, task: &mut Task, now: u64) {
        c::nq_exit_task(&mut self.nq, task, now)
    }

    /// A task wants a CPU from now on.
    pub fn runnable(&mut self, task: &mut Task) {
        c::nq_runnable(&mut self.nq, task)
    }

    /// A task sleeps.
    pub fn quiescent(&mut self, task: &mut Task, now: u64) {
        c::nq_quiescent(&mut self.nq, task, now)
    }

    /// The CPU for a task that wakes up: the event says whether it was idle and is now claimed, and is
    /// [`WAITED`](nearq_scx_policy::layout::WAITED) if not. `waker` is the CPU of a task that has woken it and is about
    /// to sleep.
    pub fn select_cpu(
        &mut self,
        task: &mut Task,
        previous: usize,
        waker: Option<usize>,
    ) -> (usize, Event) {
        let (mut event, waker) = (0, waker.map_or(NONE, |cpu| cpu as u32));
        let previous = previous as u32;
        let cpu = c::nq_select_cpu(&mut self.nq, task, previous, waker, &mut event);
        (cpu as usize, event as usize)
    }

    /// The CPU that stands for the previous one if a program has named a CPU near which the task should wake up.
    pub fn wakes_near(&mut self, task: &mut Task, previous: usize, hinted: usize) -> usize {
        c::nq_wakes_near(&mut self.nq, task, previous as u32, hinted as u32) as usize
    }

    /// The queue in which a task waits from now on.
    pub fn enqueue(&mut self, task: &mut Task, cpu: usize, woken: bool, now: u64) -> usize {
        c::nq_enqueue(&mut self.nq, task, cpu as u32, woken, now) as usize
    }

    /// The task no longer waits.
    pub fn leave_queue(&mut self, task: &mut Task, now: u64) {
        c::nq_leave_queue(&mut self.nq, task, now)
    }

    /// The idle CPU to wake for a waiting task, already claimed.
    pub fn wake(&mut self, task: &mut Task, llc: usize, now: u64) -> Option<usize> {
        index(c::nq_wake(&mut self.nq, task, llc as u32, now))
    }

    /// Whether a task of a queue is the one that the CPU must take.
    pub fn fits(&mut self, task: &mut Task, cpu: usize, which: TakeWhich, now: u64) -> bool {
        c::nq_fits(&mut self.nq, task, cpu as u32, which, now)
    }

    /// A task has used a CPU up to now.
    pub fn charge(&mut self, task: &mut Task, cpu: usize, now: u64) {
        c::nq_charge(&mut self.nq, task, cpu as u32, now)
    }

    /// The CPU whose task must make way for one that came back and waits at home because no CPU there is idle.
    pub fn displaces(&mut self, task: &mut Task, llc: usize) -> Option<usize> {
        index(c::nq_displaces(&mut self.nq, task, llc as u32))
    }

    /// The task runs from now on. Returns the length of its slice.
    pub fn running(&mut self, task: &mut Task, cpu: usize, now: u64) -> u64 {
        c::nq_running(&mut self.nq, task, cpu as u32, now)
    }

    /// Whether a task that has just begun to wait for a CPU should interrupt the task that runs there.
    pub fn preempts(&mut self, task: &mut Task, cpu: usize, now: u64) -> bool {
        c::nq_preempts(&mut self.nq, task, cpu as u32, now)
    }

    /// From now on this is its weight.
    pub fn set_weight(task: &mut Task, weight: u32) {
        task.weight = weight.max(1);
    }

    /// Whether a task should leave its CPU although no other task wants that CPU.
    pub fn leaves(&mut self, task: &mut Task, cpu: usize) -> bool {
        c::nq_leaves(&mut self.nq, task, cpu as u32)
    }

    /// The task no longer runs.
    pub fn stopping(&mut self, task: &mut Task, cpu: usize, now: u64) {
        c::nq_stopping(&mut self.nq, task, cpu as u32, now)
    }

    /// A CPU begins to search for something to run.
    pub fn begin(&mut self, cpu: usize) {
        c::nq_begin(&mut self.nq, cpu as u32)
    }

    /// Where the CPU must look next; `stays` if the task that ran on it can go on.
    pub fn next(&mut self, cpu: usize, stays: bool, now: u64) -> Option<Take> {
        let which = c::nq_next(&mut self.nq, cpu as u32, stays, now);
        let found = &self.nq.on_cpu[cpu];
        (which != TakeWhich::Nothing).then_some(Take {
            llc: found.queue as usize,
            which,
            event: found.event as usize,
        })
    }

    /// Whether a CPU that has found nothing searches again at once, because that queue has fewer tasks than are counted.
    pub fn looks_again(&mut self, cpu: usize, llc: Option<usize>) -> bool {
        let llc = llc.map_or(NONE, |llc| llc as u32);
        c::nq_checks_again(&mut self.nq, cpu as u32, llc)
    }

    /// Whether anything waits that an idle CPU would take at once.
    pub fn anything(&mut self, cpu: usize, now: u64) -> bool {
        c::nq_has_work(&mut self.nq, cpu as u32, now)
    }

    /// A tick reports how far the first task of a queue is, if any waits there: its virtual time.
    pub fn advance(&mut self, llc: usize, first: Option<u64>, now: u64) {
        // Bindgen reads the macro, which is 64 ones, as -1.
        let first = first.unwrap_or(header::NQ_NOBODY as u64);
        c::nq_advance(&mut self.nq, llc as u32, first, now)
    }

    /// Called every few milliseconds on each CPU that runs a task.
    pub fn tick(&mut self, task: &mut Task, cpu: usize, now: u64) -> Tick {
        let yields = c::nq_tick(&mut self.nq, task, cpu as u32, now);
        Tick { yields, wakes: index(self.nq.on_cpu[cpu].wakes) }
    }

    /// Whether one place has so much more work than another that moving a task is worth it; both loads are in thousandths of tasks per CPU.
    pub fn is_out_of_balance(&mut self, there: u64, here: u64, distance: u32) -> bool {
        c::nq_out_of_balance(&mut self.nq, there, here, distance)
    }

    /// Another home for a task that has just executed its program and touched that many bytes, if its own home is crowded. The task is
    /// running, and is the only one of its process.
    pub fn reconsiders(&mut self, task: &mut Task, touched: u64) -> Option<usize> {
        index(c::nq_reconsiders(&mut self.nq, task, touched))
    }

    /// Counts an event on a CPU.
    pub fn count(&mut self, cpu: usize, event: Event) {
        c::nq_count(&mut self.nq, cpu as u32, event as u32)
    }
}
