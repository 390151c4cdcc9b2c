//! The scheduler of Linux 2.6.0-test1 (July 2003), called O(1): [`O1`] says what was modelled.
//!
//! [`queue`] has the threads of one CPU and their priorities, [`balance`] moves threads between CPUs and nodes, and [`homes`] is the
//! extension of the document of 2003; this file has the hooks that the engine calls.

mod balance;
mod homes;
mod queue;

use self::balance::Loads;
use self::homes::Homes;
use self::queue::{Entity, Queue};
use super::{Kernel, Reason, Scheduler};
use crate::running::TICK;
use crate::thread::Thread;

/// The scheduler of Linux 2.6.0-test1, alone or with the home nodes of the document of 2003 (E. Focht, "node affine NUMA scheduler
/// extension").
///
/// It is modelled on `kernel/sched.c` of that time and on the document; it copies no code.
/// - **On one CPU** there are two arrays of lists by priority, `active` and `expired`. The first thread of the best priority runs until its
///   time slice of 10 to 200 ms (102 ms at nice 0) is over, and then goes to `expired`; when `active` is empty, the two change places. A
///   thread's priority is its nice value, better or worse by up to 5 by how much of the last 10 s it slept. A thread that is at least 2
///   better counts as interactive: it goes back to `active` instead, unless others have waited in `expired` for long.
/// - **A woken thread** goes to its previous CPU, however many threads wait there and however idle the other CPUs are, and interrupts a
///   thread of worse priority, or of the same and a shorter rest of its slice.
/// - **A new thread** starts on its creator's CPU, before its creator, with half of the creator's time slice.
/// - **A thread that replaces its program** stays if its CPU has at most two threads, and otherwise goes to the least loaded CPU of the
///   least loaded node.
/// - **A CPU that runs out of threads** takes one that waits in its node, from a CPU that has at least two threads; so does an idle CPU at
///   every tick, and every 5 ms also from the busiest node. A busy CPU evens out its node every 200 ms, and takes from the busiest node
///   every 400 ms, where that has more than 125 % of its own node's load; the load of a node is that of now and half of that of the last
///   look. It takes half of the difference if that is at least a quarter, but no thread that ran within the last 10 ms.
///
/// With [`homes`](Self::with_homes), a thread gets the node as its home to which it is moved when it replaces its program, and children
/// inherit it. Seen from a CPU that looks for threads, threads of its own node count twice in other nodes' loads. It takes from another
/// node the threads that are at home in its own node; others only if all threads of the queue are at home there, or if they are themselves
/// not at home.
///
/// What differs from that kernel: a tick is 4 ms here and was 1 ms on Itanium, so an idle CPU looks for threads a quarter as often; a
/// balancing CPU takes no time for it; there are no real-time threads; wake-ups are never synchronous, as those of sockets were not; what a
/// thread leaves of its first slice is not given back to its creator.
#[derive(Debug)]
pub struct O1 {
    /// By slot.
    entities: Vec<Entity>,
    /// By CPU.
    queues: Vec<Queue>,
    /// By CPU: what it remembers of other CPUs and nodes.
    loads: Vec<Loads>,
    homes: Option<Homes>,
}

impl O1 {
    /// The scheduler without homes, as it was in Linux.
    pub fn new() -> Self {
        O1 { entities: Vec::new(), queues: Vec::new(), loads: Vec::new(), homes: None }
    }

    /// The scheduler with the document's home nodes.
    pub fn with_homes() -> Self {
        O1 { homes: Some(Homes::default()), ..Self::new() }
    }

    /// Makes space for all CPUs of the machine.
    fn know(&mut self, kernel: &Kernel<'_>) {
        let cpus = kernel.cpus.len();
        if self.queues.len() < cpus {
            self.queues.resize_with(cpus, Queue::default);
            let nodes = kernel.topology().nodes().len().max(1);
            self.loads.resize_with(cpus, || Loads::new(cpus, nodes));
        }
    }

    /// Adds a thread that waits for a CPU.
    fn add(&mut self, slot: usize, cpu: usize) {
        self.queues[cpu].add(&mut self.entities, slot);
        self.entities[slot].cpu = cpu;
    }

    /// Takes a thread that waits out of its queue.
    fn remove(&mut self, slot: usize) {
        let cpu = self.entities[slot].cpu;
        self.queues[cpu].remove(&mut self.entities[slot]);
    }

    /// A new thread goes before its creator, which leaves its CPU for that: the new one may replace its program soon.
    fn goes_before_its_creator(&mut self, kernel: &mut Kernel<'_>, slot: usize, cpu: usize) {
        if let (Some(creator), Some(key)) = (self.queues[cpu].current, self.entities[slot].key) {
            self.entities[creator].waits_behind(key);
            kernel.preempt(cpu);
        }
    }

    /// Whether a thread interrupts the one that a CPU runs: with a better priority, or with as good a one and a longer slice.
    fn is_better(&mut self, kernel: &Kernel<'_>, slot: usize, cpu: usize) -> bool {
        let Some(current) = self.queues[cpu].current else { return false };
        self.entities[current].count(kernel.now());
        let key = |slot: usize| {
            let entity = &self.entities[slot];
            (entity.priority(), std::cmp::Reverse(entity.slice))
        };
        key(slot) < key(current)
    }
}

impl Default for O1 {
    fn default() -> Self {
        Self::new()
    }
}

impl Scheduler for O1 {
    fn name(&self) -> &'static str {
        if self.homes.is_some() { "2.6.0-test1 with homes" } else { "2.6.0-test1" }
    }

    fn select_cpu(&mut self, kernel: &mut Kernel<'_>, thread: Thread, reason: Reason) -> usize {
        self.know(kernel);
        let (allowed, previous) = (kernel.allowed(thread), kernel.previous_cpu(thread));
        let stays = if allowed.contains(previous) { Some(previous) } else { allowed.first() };
        let stays = stays.expect("a thread may run somewhere");
        if reason != Reason::Exec {
            return stays;
        }
        let best = self.least_loaded(kernel, previous).filter(|cpu| allowed.contains(*cpu));
        let cpu = best.unwrap_or(stays);
        if let Some(homes) = self.homes.as_mut().filter(|_| cpu != previous) {
            homes.set(thread.slot, kernel.hardware.node(cpu));
        }
        cpu
    }

    fn enqueue(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize, reason: Reason) {
        self.know(kernel);
        let entity = &mut self.entities[thread.slot];
        match reason {
            // It waits where it was: at the head of its list, or at the end of one if its slice is over.
            Reason::Preempted => {}
            Reason::Woken => entity.wake(kernel.now()),
            Reason::New => entity.waits_at_head(),
            _ => entity.waits_at_tail(),
        }
        self.add(thread.slot, cpu);
        if reason == Reason::New {
            self.goes_before_its_creator(kernel, thread.slot, cpu);
        }
    }

    fn dequeue(&mut self, _: &mut Kernel<'_>, thread: Thread) {
        self.remove(thread.slot);
    }

    fn dispatch(&mut self, kernel: &mut Kernel<'_>, cpu: usize) -> Option<Thread> {
        self.know(kernel);
        let slot = self.queues[cpu].first()?;
        self.remove(slot);
        Some(kernel.thread_in(slot))
    }

    fn preempts(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> bool {
        self.is_better(kernel, thread.slot, cpu)
    }

    fn running(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> u64 {
        self.queues[cpu].current = Some(thread.slot);
        let entity = &mut self.entities[thread.slot];
        entity.counted_to = kernel.now();
        entity.cpu = cpu;
        entity.slice
    }

    fn stopping(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize, _: bool) {
        let entity = &mut self.entities[thread.slot];
        entity.count(kernel.now());
        entity.stopped_at = kernel.now();
        self.queues[cpu].current = None;
    }

    fn slice_over(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> Option<u64> {
        let queue = &mut self.queues[cpu];
        let starving = queue.expired_starve(kernel.now());
        let entity = &mut self.entities[thread.slot];
        entity.count(kernel.now());
        if entity.slice > 0 {
            return Some(entity.slice);
        }
        entity.refill(starving);
        if queue.is_empty() {
            // The arrays change places at once.
            entity.waits_at_head();
            queue.ran_out();
            return Some(entity.slice);
        }
        queue.note_expiry(kernel.now());
        None
    }

    fn yield_now(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> bool {
        // A thread that yields goes to the end of `expired`.
        let entity = &mut self.entities[thread.slot];
        entity.count(kernel.now());
        if self.queues[cpu].is_empty() {
            return false;
        }
        entity.waits_in_expired();
        true
    }

    fn tick(&mut self, kernel: &mut Kernel<'_>) {
        self.know(kernel);
        self.balance_at_tick(kernel, TICK);
    }

    fn balance(&mut self, kernel: &mut Kernel<'_>, cpu: usize) {
        self.know(kernel);
        self.queues[cpu].ran_out();
        let node = kernel.node_cpus(cpu).clone();
        self.pull(kernel, cpu, true, &node);
    }

    fn set_weight(&mut self, kernel: &mut Kernel<'_>, thread: Thread) {
        let slot = thread.slot;
        let nice = crate::costs::nice(kernel.weight(thread));
        let waits = self.entities[slot].key.is_some();
        let cpu = self.entities[slot].cpu;
        let expired = waits && self.queues[cpu].has_expired(&self.entities[slot]);
        if waits {
            self.remove(slot);
        }
        self.entities[slot].set_nice(nice);
        if waits {
            let entity = &mut self.entities[slot];
            if expired {
                entity.waits_in_expired()
            } else {
                entity.waits_at_tail()
            }
            self.add(slot, cpu);
        }
    }

    fn init_thread(&mut self, kernel: &mut Kernel<'_>, thread: Thread) {
        self.know(kernel);
        if self.entities.len() <= thread.slot {
            self.entities.resize_with(thread.slot + 1, Entity::default);
        }
        let cpu = kernel.previous_cpu(thread);
        let nice = crate::costs::nice(kernel.weight(thread));
        let creator = self.queues[cpu].current;
        self.entities[thread.slot] = match creator {
            Some(creator) => self.entities[creator].split(kernel.now()),
            None => Entity::default(),
        };
        let entity = &mut self.entities[thread.slot];
        (entity.cpu, entity.stopped_at) = (cpu, kernel.now());
        entity.set_nice(nice);
        if let Some(homes) = &mut self.homes {
            homes.inherit(thread.slot, creator, kernel.hardware.node(cpu));
        }
    }
}
