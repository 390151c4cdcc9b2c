//! How [`O1`](super::O1) moves threads between CPUs and nodes.
//!
//! A CPU takes threads that wait for another one: in its node, or in the busiest node. What it found at its last look counts, too: a
//! queue must be long at two looks, and its own short at two looks, unless it is idle.

use nearq_topology::CpuSet;

use super::O1;
use crate::sched::Kernel;

/// How often an idle CPU looks at the other nodes, in nanoseconds; at its own it looks at every tick.
const IDLE_NODES: u64 = 5_000_000;
/// How often a busy CPU evens out its node, in nanoseconds.
const BUSY: u64 = 200_000_000;
/// How often it looks at the other nodes.
const BUSY_NODES: u64 = 2 * BUSY;
/// Load of another node from which threads are taken from it, in percent of the own node's (`NODE_THRESHOLD`).
const NODE_PERCENT: u64 = 125;
/// A node's load is this times its threads for each CPU.
const NODE_SCALE: u64 = 10;
/// A thread stays for this long after it ran, in nanoseconds, unless the other CPU is idle (`cache_decay_ticks`).
const HOT: u64 = 10_000_000;

/// What a CPU found when it last looked.
#[derive(Debug)]
pub(super) struct Loads {
    /// The length of each CPU's queue.
    cpus: Vec<u64>,
    /// The load of each node.
    nodes: Vec<u64>,
}

impl Loads {
    pub(super) fn new(cpus: usize, nodes: usize) -> Self {
        Loads { cpus: vec![0; cpus], nodes: vec![0; nodes] }
    }
}

/// The load of a node with these CPUs: its threads for each CPU, as `threads` counts them.
fn load(cpus: &CpuSet, threads: impl Fn(usize) -> usize) -> u64 {
    let all: usize = cpus.iter().map(threads).sum();
    NODE_SCALE * all as u64 / (cpus.len() as u64).max(1)
}

impl O1 {
    /// The CPU for a thread that replaces its program on a CPU: that one, if it has at most two threads, this one included.
    pub(super) fn least_loaded(&self, kernel: &Kernel<'_>, here: usize) -> Option<usize> {
        let runnable = |cpu: usize| self.queues[cpu].runnable() + usize::from(cpu == here);
        if runnable(here) <= 2 {
            return Some(here);
        }
        let online = |cpus: &CpuSet| cpus.intersection(kernel.online());
        let nodes = kernel.topology().nodes().iter().map(|node| online(&node.cpus));
        let node = nodes.filter(|cpus| !cpus.is_empty()).min_by_key(|cpus| load(cpus, runnable));
        node?.iter().min_by_key(|cpu| runnable(*cpu))
    }

    /// Every CPU whose turn it is balances.
    pub(super) fn balance_at_tick(&mut self, kernel: &mut Kernel<'_>, tick: u64) {
        let due = |every: u64| kernel.now() / every != kernel.now().saturating_sub(tick) / every;
        let [idle_nodes, busy, busy_nodes] = [IDLE_NODES, BUSY, BUSY_NODES].map(due);
        let cpus: Vec<usize> = kernel.online().iter().collect();
        for cpu in cpus {
            let idle = kernel.current(cpu).is_none();
            let (nodes_due, due) = if idle { (idle_nodes, true) } else { (busy_nodes, busy) };
            if nodes_due && let Some(mut from) = self.busiest_node(kernel, cpu) {
                from.insert(cpu);
                self.pull(kernel, cpu, idle, &from);
            }
            if due {
                let node = kernel.node_cpus(cpu).clone();
                self.pull(kernel, cpu, idle, &node);
            }
        }
    }

    /// The CPUs of the busiest node, if it has enough more load than the node of `cpu`.
    fn busiest_node(&mut self, kernel: &Kernel<'_>, cpu: usize) -> Option<CpuSet> {
        let own = kernel.hardware.node(cpu);
        let nodes = kernel.topology().nodes();
        let mut found = None;
        let mut now = vec![0; nodes.len()];
        // Threads of the own node count twice elsewhere.
        let load_of_own = |cpus: &CpuSet| load(cpus, |other| self.at_home(other, own));
        for (number, node) in nodes.iter().enumerate() {
            let mut load = load(&node.cpus, |cpu| self.queues[cpu].runnable());
            if number != own {
                load += load_of_own(&node.cpus);
            }
            now[number] = self.loads[cpu].nodes[number] / 2 + load;
        }
        let mut most = now.get(own).copied()?;
        for (number, load) in now.iter().enumerate().filter(|(number, _)| *number != own) {
            if *load > most && 100 * load > NODE_PERCENT * now[own] {
                (most, found) = (*load, Some(number));
            }
        }
        self.loads[cpu].nodes = now;
        found.map(|number| nodes[number].cpus.clone())
    }

    /// The threads of a CPU that are at home in a node.
    fn at_home(&self, cpu: usize, node: usize) -> usize {
        let homes = self.homes.as_ref();
        homes.map_or(0, |homes| {
            self.queues[cpu].members().filter(|slot| homes.of(*slot) == node).count()
        })
    }

    /// Takes threads for `cpu` that wait for one of the CPUs `from`. Only one if it is `idle`.
    pub(super) fn pull(&mut self, kernel: &mut Kernel<'_>, cpu: usize, idle: bool, from: &CpuSet) {
        let Some((busiest, mut count)) = self.busiest_queue(kernel, cpu, idle, from) else {
            return;
        };
        let node = kernel.hardware.node(cpu);
        for slot in self.queues[busiest].in_order_of_taking() {
            let thread = kernel.thread_in(slot);
            let hot = !idle && kernel.now().saturating_sub(self.entities[slot].stopped_at) <= HOT;
            if hot || !kernel.allowed(thread).contains(cpu) {
                continue;
            }
            if let Some(homes) = &self.homes {
                let there = kernel.hardware.node(busiest);
                if !homes.may_leave(slot, there, node, self.queues[busiest].members()) {
                    continue;
                }
            }
            self.remove(slot);
            self.entities[slot].waits_at_tail();
            self.add(slot, cpu);
            if idle {
                kernel.kick(cpu);
                return;
            }
            if self.is_better(kernel, slot, cpu) {
                kernel.preempt(cpu);
            }
            count -= 1;
            if count == 0 {
                return;
            }
        }
    }

    /// The CPU with the longest queue, and how many of its threads are to be taken.
    fn busiest_queue(
        &mut self,
        kernel: &Kernel<'_>,
        cpu: usize,
        idle: bool,
        from: &CpuSet,
    ) -> Option<(usize, u64)> {
        let own_node = kernel.hardware.node(cpu);
        let mut own = self.queues[cpu].runnable() as u64;
        if !idle {
            own = own.max(self.loads[cpu].cpus[cpu]);
        }
        let mut busiest = None;
        let mut most = 1;
        for other in from.iter().filter(|other| kernel.online().contains(*other)) {
            let mut now = self.queues[other].runnable() as u64;
            if kernel.hardware.node(other) != own_node {
                now += self.at_home(other, own_node) as u64;
            }
            let before = std::mem::replace(&mut self.loads[cpu].cpus[other], now);
            let load = if idle { now } else { now.min(before) };
            // A queue that is long only by threads at home in the node of `cpu` may have none that waits.
            let is_short = self.homes.is_some() && self.queues[other].runnable() as u64 <= own + 1;
            if load > most && other != cpu && !is_short {
                (busiest, most) = (Some(other), load);
            }
        }
        let busiest = busiest?;
        let count = most.saturating_sub(own) / 2;
        let uneven = idle || count >= most.div_ceil(4);
        let longer = self.queues[busiest].runnable() as u64 > own + 1;
        (uneven && longer).then_some((busiest, count.max(1)))
    }
}
