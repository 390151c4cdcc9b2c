//! What a scheduler sees of the machine, and the few things that it may order.

use std::fmt;

use nearq_topology::{CpuSet, Topology};

use crate::costs::Costs;
use crate::cpu::Cpu;
use crate::hardware::Hardware;
use crate::thread::{State, Thread, Threads};

/// What a scheduler has ordered during a hook.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    /// CPUs, and whether the thread on the CPU loses it.
    pub(crate) kicks: Vec<(usize, bool)>,
    /// CPUs, and the time that they spend.
    pub(crate) spent: Vec<(usize, u64)>,
}

/// The machine as a [`Scheduler`](super::Scheduler) sees it.
pub struct Kernel<'a> {
    pub(crate) now: u64,
    pub(crate) hardware: &'a Hardware,
    pub(crate) costs: &'a Costs,
    pub(crate) threads: &'a Threads,
    pub(crate) cpus: &'a [Cpu],
    pub(crate) idle: &'a CpuSet,
    pub(crate) online: &'a CpuSet,
    pub(crate) orders: &'a mut Orders,
}

impl Kernel<'_> {
    /// The time, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The machine's shape.
    pub fn topology(&self) -> &Topology {
        self.hardware.topology()
    }

    /// What things cost.
    pub fn costs(&self) -> &Costs {
        self.costs
    }

    /// The CPUs that have no thread, are online, and are not throttled by the quota.
    pub fn idle(&self) -> &CpuSet {
        self.idle
    }

    /// The CPUs that are online.
    pub fn online(&self) -> &CpuSet {
        self.online
    }

    /// The thread on a CPU.
    pub fn current(&self, cpu: usize) -> Option<Thread> {
        let slot = self.cpus.get(cpu)?.current?;
        Some(Thread { slot, id: self.threads.at(slot).id })
    }

    /// The living thread in a slot.
    pub(crate) fn thread_in(&self, slot: usize) -> Thread {
        Thread { slot, id: self.threads.at(slot).id }
    }

    /// A thread's priority, under a schedule that has them.
    pub(crate) fn priority(&self, thread: Thread) -> u64 {
        self.threads.at(thread.slot).priority
    }

    /// A thread's weight: 1024 at nice 0.
    ///
    /// # Panics
    /// If the thread has ended, as in the other functions that take one.
    pub fn weight(&self, thread: Thread) -> u64 {
        self.threads.at(thread.slot).weight
    }

    /// The slice that a thread asks for, in nanoseconds.
    pub fn slice(&self, thread: Thread) -> u64 {
        self.threads.at(thread.slot).slice
    }

    /// The CPUs on which a thread may run: within its affinity and the limits, and online.
    pub fn allowed(&self, thread: Thread) -> &CpuSet {
        &self.threads.at(thread.slot).allowed
    }

    /// The CPU that a thread is on or was on last, or the CPU that [`Sim::set_wake_cpu`](crate::Sim::set_wake_cpu) put in its place; for a
    /// new thread, its creator's CPU.
    pub fn previous_cpu(&self, thread: Thread) -> usize {
        self.threads.at(thread.slot).previous_cpu()
    }

    /// The CPU time of a thread up to when it last got or lost a CPU, in nanoseconds.
    pub fn cpu_time(&self, thread: Thread) -> u64 {
        self.threads.at(thread.slot).cpu_time
    }

    /// A thread's name.
    pub fn thread_name(&self, thread: Thread) -> &str {
        &self.threads.at(thread.slot).name
    }

    /// The number of the process that a thread belongs to. The first thread of a forked process has the new number from the beginning.
    pub fn process(&self, thread: Thread) -> u64 {
        self.threads.at(thread.slot).process
    }

    /// Whether a thread waits for a CPU.
    pub fn is_waiting(&self, thread: Thread) -> bool {
        self.threads.find(thread).is_some_and(|entry| entry.state == State::Ready)
    }

    /// The CPUs under the same last-level cache, the CPU itself included.
    pub fn llc_cpus(&self, cpu: usize) -> &CpuSet {
        self.hardware.llc_cpus(cpu)
    }

    /// The CPUs of the same node, the CPU itself included.
    pub fn node_cpus(&self, cpu: usize) -> &CpuSet {
        self.hardware.node_cpus(cpu)
    }

    /// The CPUs of the same core, the CPU itself included.
    pub fn core_cpus(&self, cpu: usize) -> &CpuSet {
        self.hardware.core_cpus(cpu)
    }

    /// Makes an idle CPU ask for a thread, as soon as the hook is over. Has no effect on a CPU that is not idle.
    pub fn kick(&mut self, cpu: usize) {
        self.orders.kicks.push((cpu, false));
    }

    /// Makes a CPU ask for a thread, as soon as the hook is over; the thread that is on it is enqueued first.
    pub fn preempt(&mut self, cpu: usize) {
        self.orders.kicks.push((cpu, true));
    }

    /// Lets time pass on a CPU, for what the scheduler does there: the thread on it goes on that much later.
    pub fn spend(&mut self, cpu: usize, nanoseconds: u64) {
        self.orders.spent.push((cpu, nanoseconds));
    }
}

impl fmt::Debug for Kernel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("now", &self.now)
            .field("idle", &self.idle)
            .field("online", &self.online)
            .finish_non_exhaustive()
    }
}
