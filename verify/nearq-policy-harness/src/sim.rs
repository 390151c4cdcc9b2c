//! The policy as the scheduler of the simulated machine: [`Home`] does what the BPF program does in the kernel.
//!
//! There is one queue for each last-level cache, ordered by virtual time, and one for each CPU with the threads for which the CPU was
//! claimed: the kernel's local queue. The policy makes all decisions. As in the kernel, a CPU whose thread's slice is over first searches
//! for another one, and only then is its own thread enqueued.
//!
//! Invariant: a thread that waits is in exactly one queue, of a cache or of a CPU. The policy counts a thread in a cache's queue there.

use std::collections::{BTreeMap, VecDeque};

use nearq_sim::{Kernel, Reason, Scheduler, Thread};
use nearq_topology::Topology;

use crate::policy::{Policy, Take};
use nearq_scx_policy::TooLarge;
use nearq_scx_policy::layout::{HomeReason, PREEMPTED, Process, TakeWhich, Task, UNIT, WAITED};

/// The weight of nice 0 here and for the policy.
const NICE_0: [u64; 2] = [UNIT as u64, 100];

/// How many threads at the end of a queue are checked for one that has waited long.
const CHECKED_TASKS: usize = 32;

/// The node affine scheduler, for [`Simulation::scheduler`](nearq_sim::Simulation::scheduler).
///
/// ```
/// use nearq_platform::{LockPlatform as _, ThreadSpec, Threads as _};
/// use nearq_policy_harness::Home;
/// use nearq_sim::{Sim, Simulation};
/// use nearq_topology::Topology;
/// use std::time::Duration;
///
/// let machine = Topology::from_synthetic("numa:2 core:2")?;
/// let outcome = Simulation::new(machine, 1).scheduler(|machine| Home::new(machine).unwrap()).run(|| {
///     let work = || Sim::charge(Duration::from_millis(10));
///     let threads = [(); 4].map(|()| Sim::spawn(ThreadSpec::default(), work).unwrap());
///     threads.into_iter().for_each(Sim::join);
///     Sim::now().as_nanos() / 1_000_000
/// });
/// assert_eq!(outcome.expect(), 10, "each has a CPU of its own");
/// # Ok::<(), nearq_topology::TopologyError>(())
/// ```
#[derive(Debug)]
pub struct Home {
    policy: Policy,
    /// The threads, by slot.
    entries: Vec<Entry>,
    /// For each cache, the slots of its queue by virtual time; slots of equal time are in order of arrival.
    queues: Vec<BTreeMap<(u64, u64), usize>>,
    /// The CPUs, by number.
    cpus: Vec<Cpu>,
    processes: BTreeMap<u64, Process>,
    came: u64,
    begun: bool,
}

/// What is known about a CPU besides what the policy knows.
#[derive(Debug, Default)]
struct Cpu {
    /// Slots of the threads that it runs next.
    next: VecDeque<usize>,
    /// Whether it has reported that it is idle, and checks the queues once more.
    looks_again: bool,
}

/// Where a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsOn {
    Queue(usize, (u64, u64)),
    Cpu(usize),
}

/// A thread.
#[derive(Debug)]
struct Entry {
    task: Task,
    thread: Thread,
    process: u64,
    waits: Option<WaitsOn>,
    /// The idle CPU that `select_cpu` has claimed for it.
    claimed: Option<usize>,
    /// Whether it has woken up and found no idle CPU.
    interrupts: bool,
}

impl Home {
    /// A scheduler for this machine.
    ///
    /// # Errors
    /// The machine is too large.
    pub fn new(machine: &Topology) -> Result<Self, TooLarge> {
        let policy = Policy::new(machine, machine.online())?;
        let queues = vec![BTreeMap::new(); policy.state().llcs as usize];
        let cpus = (0..policy.state().cpus).map(|_| Cpu::default()).collect();
        let (entries, processes) = (Vec::new(), BTreeMap::new());
        Ok(Home { policy, entries, queues, cpus, processes, came: 0, begun: false })
    }

    /// The weights, which can be set.
    pub fn weights_mut(&mut self) -> &mut nearq_scx_policy::layout::Weights {
        self.policy.weights_mut()
    }

    /// From now on this is a thread's home, where the thread counts as one of its process.
    fn give_home(&mut self, thread: Thread, home: usize, why: HomeReason, on: usize) {
        let entry = &mut self.entries[thread.slot()];
        let process = self.processes.entry(entry.process).or_default();
        if entry.task.homed != 0 {
            process.at_home[entry.task.home as usize] -= 1;
        }
        process.at_home[home] += 1;
        self.policy.set_home(&mut entry.task, home, why);
        if let Some(event) = why.event() {
            self.policy.count(on, event);
        }
    }

    /// A thread now belongs to a process; it has no home there yet.
    fn join(&mut self, slot: usize, process: u64) {
        self.entries[slot].process = process;
        self.processes.entry(process).or_default().threads += 1;
    }

    /// A thread leaves its process.
    fn leave(&mut self, slot: usize) {
        let entry = &self.entries[slot];
        let Some(process) = self.processes.get_mut(&entry.process) else { return };
        process.threads -= 1;
        if entry.task.homed != 0 {
            process.at_home[entry.task.home as usize] -= 1;
        }
        if process.threads == 0 {
            self.processes.remove(&self.entries[slot].process);
        }
    }

    /// Gives a new thread, which was created on a CPU, its home. The first thread of a process gets a home of its own.
    fn begin(&mut self, thread: Thread, cpu: usize) {
        let entry = &mut self.entries[thread.slot()];
        let process = self.processes.entry(entry.process).or_default();
        let (home, why) = if process.threads == 1 {
            let home = self.policy.pick(&mut entry.task, Some(self.policy.node_of(cpu)));
            process.home = home as u32;
            (home, HomeReason::Fork)
        } else {
            (self.policy.pick_for_thread(&mut entry.task, process), HomeReason::Thread)
        };
        self.give_home(thread, home, why, cpu);
    }

    /// Puts a thread into the queue where it must wait.
    fn wait(&mut self, slot: usize, on: WaitsOn) {
        self.entries[slot].waits = Some(on);
        match on {
            WaitsOn::Queue(llc, key) => {
                self.queues[llc].insert(key, slot);
            }
            WaitsOn::Cpu(cpu) => self.cpus[cpu].next.push_back(slot),
        }
    }

    /// Takes a thread out of the queue where it waits.
    fn wait_no_more(&mut self, slot: usize) {
        match self.entries[slot].waits.take() {
            Some(WaitsOn::Queue(llc, key)) => {
                self.queues[llc].remove(&key);
            }
            Some(WaitsOn::Cpu(cpu)) => self.cpus[cpu].next.retain(|other| *other != slot),
            None => {}
        }
    }

    /// The thread that a CPU takes from a queue, if there is one. `stays` is the slot of the thread that can go on there.
    fn taken(&mut self, take: Take, cpu: usize, now: u64) -> Option<usize> {
        let (policy, entries) = (&mut self.policy, &mut self.entries);
        let queue = self.queues[take.llc].values().copied();
        let mut fits = |slot: &usize| policy.fits(&mut entries[*slot].task, cpu, take.which, now);
        match take.which {
            TakeWhich::Old => queue.rev().take(CHECKED_TASKS).find(&mut fits),
            TakeWhich::First => queue.into_iter().find(&mut fits),
            _ => queue.take(CHECKED_TASKS).find(&mut fits),
        }
    }

    /// Finds a thread for a CPU, as the policy says. The thread is then out of its queue, but still counted there.
    fn look(&mut self, cpu: usize, stays: Option<usize>, now: u64) -> Option<usize> {
        self.policy.begin(cpu);
        while let Some(take) = self.policy.next(cpu, stays.is_some(), now) {
            if let Some(slot) = self.taken(take, cpu, now) {
                self.policy.count(cpu, take.event);
                self.wait_no_more(slot);
                return Some(slot);
            }
        }
        None
    }

    /// A thread on a CPU may have to leave for another one, which then is the CPU's next.
    fn makes_room(&mut self, slot: usize, cpu: usize, now: u64) -> bool {
        // The running thread's time must be up to date, because others are compared with it; a thread that was stopped has already been
        // charged.
        let task = &mut self.entries[slot].task;
        if task.running != 0 {
            self.policy.charge(task, cpu, now);
        }
        if self.cpus[cpu].next.is_empty()
            && let Some(next) = self.look(cpu, Some(slot), now)
        {
            self.wait(next, WaitsOn::Cpu(cpu));
        }
        !self.cpus[cpu].next.is_empty()
    }

    /// A thread waits in the queue of a cache, and an idle CPU is woken for it.
    fn enqueue_by_cache(&mut self, kernel: &mut Kernel<'_>, slot: usize, cpu: usize, woken: bool) {
        let (now, key) = (kernel.now(), self.came);
        self.came += 1;
        let task = &mut self.entries[slot].task;
        let llc = self.policy.enqueue(task, cpu, woken, now);
        let key = (task.vtime, key);
        self.wait(slot, WaitsOn::Queue(llc, key));
        let task = &mut self.entries[slot].task;
        if let Some(idle) = self.policy.wake(task, llc, now) {
            kernel.kick(idle);
        } else if let Some(stray) = self.policy.displaces(task, llc) {
            kernel.preempt(stray);
        } else {
            self.entries[slot].interrupts = woken;
        }
    }

    /// Where a thread may run has changed, or is set for the first time.
    fn allow(&mut self, kernel: &Kernel<'_>, thread: Thread) {
        let task = &mut self.entries[thread.slot()].task;
        Policy::allow(task, kernel.allowed(thread));
        if task.homed != 0 && !self.policy.is_open(task, task.home as usize) {
            let home = self.policy.pick(task, Some(task.home as usize));
            if home != task.home as usize {
                let cpu = kernel.previous_cpu(thread);
                self.give_home(thread, home, HomeReason::Affinity, cpu);
            }
        }
    }
}

impl Scheduler for Home {
    fn name(&self) -> &'static str {
        "home"
    }

    fn select_cpu(&mut self, kernel: &mut Kernel<'_>, thread: Thread, reason: Reason) -> usize {
        let (slot, previous) = (thread.slot(), kernel.previous_cpu(thread));
        let node = self.policy.node_of(previous);
        if reason == Reason::Exec {
            let entry = &mut self.entries[slot];
            let home = self.policy.pick(&mut entry.task, Some(node));
            let process = self.processes.entry(entry.process).or_default();
            process.home = home as u32;
            self.give_home(thread, home, HomeReason::Exec, previous);
        }
        if reason == Reason::New {
            self.begin(thread, previous);
        }
        let entry = &mut self.entries[slot];
        let allowed = kernel.allowed(thread);
        let mut chosen = previous;
        // As in the kernel: `select_cpu` is not called for a thread that executes a new program; the thread goes home from its current CPU.
        if !matches!(reason, Reason::Moved | Reason::Exec) {
            let (cpu, event) = self.policy.select_cpu(&mut entry.task, previous, None);
            entry.claimed = (event != WAITED).then_some(cpu);
            chosen = cpu;
            self.policy.count(cpu, event);
        }
        if allowed.contains(chosen) {
            return chosen;
        }
        // This CPU only determines near which place the thread waits; the policy decides where exactly.
        let at_home = allowed.iter().find(|cpu| self.policy.node_of(*cpu) == node);
        at_home.or(allowed.first()).expect("a thread may run somewhere")
    }

    fn enqueue(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize, reason: Reason) {
        let (slot, now) = (thread.slot(), kernel.now());
        let entry = &mut self.entries[slot];
        self.policy.runnable(&mut entry.task);
        if let Some(claimed) = entry.claimed.take() {
            debug_assert_eq!(claimed, cpu, "the CPU is the one that was chosen");
            self.wait(slot, WaitsOn::Cpu(cpu));
            return;
        }
        if matches!(reason, Reason::Preempted | Reason::Exec) {
            // No other thread wants the CPU, and this one is at home or has no better place.
            if !self.makes_room(slot, cpu, now) {
                let (node, task) = (self.policy.node_of(cpu), &mut self.entries[slot].task);
                let stays = reason == Reason::Preempted && !self.policy.leaves(task, cpu);
                if task.home as usize == node || stays {
                    self.wait(slot, WaitsOn::Cpu(cpu));
                    return;
                }
            }
        }
        let woken = matches!(reason, Reason::Woken | Reason::New);
        self.enqueue_by_cache(kernel, slot, cpu, woken);
    }

    fn dequeue(&mut self, kernel: &mut Kernel<'_>, thread: Thread) {
        self.wait_no_more(thread.slot());
        self.policy.leave_queue(&mut self.entries[thread.slot()].task, kernel.now());
    }

    fn dispatch(&mut self, kernel: &mut Kernel<'_>, cpu: usize) -> Option<Thread> {
        let again = std::mem::take(&mut self.cpus[cpu].looks_again);
        let slot = match self.cpus[cpu].next.front() {
            Some(slot) => {
                let slot = *slot;
                self.wait_no_more(slot);
                slot
            }
            None if again && !self.policy.anything(cpu, kernel.now()) => return None,
            None => self.look(cpu, None, kernel.now())?,
        };
        Some(self.entries[slot].thread)
    }

    fn preempts(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> bool {
        let entry = &mut self.entries[thread.slot()];
        let interrupts = std::mem::take(&mut entry.interrupts)
            && self.policy.preempts(&mut entry.task, cpu, kernel.now());
        if interrupts {
            self.policy.count(cpu, PREEMPTED);
        }
        interrupts
    }

    fn running(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> u64 {
        let slot = thread.slot();
        self.policy.running(&mut self.entries[slot].task, cpu, kernel.now()).max(1)
    }

    fn stopping(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize, runnable: bool) {
        let task = &mut self.entries[thread.slot()].task;
        self.policy.stopping(task, cpu, kernel.now());
        if !runnable {
            self.policy.quiescent(task, kernel.now());
        }
    }

    fn slice_over(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> Option<u64> {
        let makes_room = self.makes_room(thread.slot(), cpu, kernel.now());
        (!makes_room).then_some(self.policy.state().weights.slice)
    }

    fn tick(&mut self, kernel: &mut Kernel<'_>) {
        let now = kernel.now();
        for cpu in 0..self.cpus.len() {
            let Some(thread) = kernel.current(cpu) else { continue };
            let llc = self.policy.llc_of(cpu);
            let first = self.queues[llc].first_key_value().map(|((vtime, _), _)| *vtime);
            self.policy.advance(llc, first, now);
            let tick = self.policy.tick(&mut self.entries[thread.slot()].task, cpu, now);
            if tick.yields {
                kernel.preempt(cpu);
            }
            if let Some(idle) = tick.wakes {
                kernel.kick(idle);
            }
        }
    }

    fn balance(&mut self, _: &mut Kernel<'_>, cpu: usize) {
        self.policy.idle(cpu);
        self.cpus[cpu].looks_again = true;
    }

    fn update_idle(&mut self, _: &mut Kernel<'_>, cpu: usize, idle: bool) {
        if idle {
            self.policy.idle(cpu);
        } else {
            self.policy.busy(cpu);
        }
    }

    fn set_weight(&mut self, kernel: &mut Kernel<'_>, thread: Thread) {
        let weight = weight(kernel, thread);
        Policy::set_weight(&mut self.entries[thread.slot()].task, weight);
    }

    fn set_cpumask(&mut self, kernel: &mut Kernel<'_>, thread: Thread) {
        self.allow(kernel, thread);
    }

    fn cpu_online(&mut self, _: &mut Kernel<'_>, cpu: usize) {
        self.policy.online(cpu, true);
    }

    fn cpu_offline(&mut self, _: &mut Kernel<'_>, cpu: usize) {
        self.policy.online(cpu, false);
    }

    fn init_thread(&mut self, kernel: &mut Kernel<'_>, thread: Thread) {
        if !std::mem::replace(&mut self.begun, true) {
            kernel.idle().iter().for_each(|cpu| self.policy.idle(cpu));
        }
        let (slot, process) = (thread.slot(), kernel.process(thread));
        let mut entry = Entry {
            task: Task::default(),
            thread,
            process,
            waits: None,
            claimed: None,
            interrupts: false,
        };
        self.policy.init_task(&mut entry.task, weight(kernel, thread));
        // Slots are assigned in turn: this one is new, or belonged to a thread that has ended.
        if slot == self.entries.len() {
            self.entries.push(entry);
        } else {
            self.entries[slot] = entry;
        }
        self.join(slot, process);
        self.allow(kernel, thread);
    }

    fn exit_thread(&mut self, kernel: &mut Kernel<'_>, thread: Thread) {
        let slot = thread.slot();
        self.leave(slot);
        self.policy.exit_task(&mut self.entries[slot].task, kernel.now());
    }
}

/// A thread's weight in the policy's units.
fn weight(kernel: &Kernel<'_>, thread: Thread) -> u32 {
    let [here, there] = NICE_0;
    ((kernel.weight(thread) * there / here) as u32).max(1)
}
