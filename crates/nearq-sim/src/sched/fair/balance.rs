//! How [`Fair`] evens out the CPUs' queues.
//!
//! Scheduling domains are the last-level cache, the node and the machine, each divided into groups: CPUs, caches, nodes. A CPU pulls
//! threads that wait; a thread that is on a CPU is never moved.
//! - **A CPU that runs out of threads** searches from the smallest domain to the largest and takes the first thread it can. Reading another
//!   CPU's queue costs it a transfer of a line from there. It does not search a farther domain if its average idle time (in which the
//!   newest time has a weight of an eighth) is shorter than the search takes, and does not search at all if no CPU has a waiting thread.
//! - **At a tick** a CPU balances a domain at an interval of as many milliseconds as the domain has CPUs, and 16 times more rarely while it
//!   is busy. Idle CPUs take part while a thread waits anywhere. Beyond the last-level cache one CPU balances for its whole group: the
//!   first idle CPU, or else the first CPU.
//! - **Which group is busiest**: a group that has more threads than CPUs, if the CPU's own group has CPUs to spare; otherwise a group whose
//!   load (the sum of weights, per CPU) exceeds that of the CPU's own group by more than 17 % within a last-level cache, 25 % beyond.
//! - **Which threads move**: the threads whose turn comes last. A thread that ran within the last half millisecond is cache-hot and stays,
//!   unless the move is within its core or two tries at this domain have failed. A thread that is heavier than the imbalance stays; each
//!   failure halves the strictness.

use nearq_topology::CpuSet;

use super::Fair;
use crate::running::TICK;
use crate::sched::Kernel;

/// A thread is cache-hot for this many nanoseconds after it ran (`sched_migration_cost_ns`).
const HOT: u64 = 500_000;
/// Tries at a domain that may fail before cache-hot threads move (`cache_nice_tries`).
const NICE_TRIES: u32 = 1;
/// By how much the load must be uneven within a last-level cache, in percent (`imbalance_pct`).
const UNEVEN_NEAR: u64 = 117;
/// The same beyond it.
const UNEVEN_FAR: u64 = 125;
/// How much more rarely a busy CPU balances (`busy_factor`).
const BUSY_FACTOR: u64 = 16;
/// At most this many threads move at once (`sched_nr_migrate`).
const MOST_MOVES: usize = 32;
/// The average idle time of a CPU that was never idle, and the least bound for it, in nanoseconds.
const AVERAGE_IDLE: u64 = 2 * HOT;

/// A scheduling domain of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Domain {
    Llc,
    Node,
    Machine,
}

const DOMAINS: [Domain; 3] = [Domain::Llc, Domain::Node, Domain::Machine];

/// What a CPU knows about its balancing.
#[derive(Debug)]
pub(super) struct CpuBalance {
    idle_since: Option<u64>,
    average_idle: u64,
    /// How many tries have failed, for each domain.
    failed: [u32; 3],
}

impl Default for CpuBalance {
    fn default() -> Self {
        CpuBalance { idle_since: None, average_idle: AVERAGE_IDLE, failed: [0; 3] }
    }
}

impl CpuBalance {
    /// The CPU becomes idle, or stops being idle.
    pub(super) fn note_idle(&mut self, now: u64, idle: bool) {
        if idle {
            self.idle_since = Some(now);
        } else if let Some(since) = self.idle_since.take() {
            let average = self.average_idle.cast_signed();
            let new = average + (now.saturating_sub(since).cast_signed() - average) / 8;
            self.average_idle = new.cast_unsigned().min(AVERAGE_IDLE);
        }
    }
}

/// A group of CPUs, added up.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    cpus: u64,
    idle: u64,
    runnable: u64,
    load: u64,
}

impl Sum {
    fn load_each(self) -> u64 {
        self.load / self.cpus.max(1)
    }
}

/// How much load must move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    Threads(u64),
    Load(u64),
}

impl Fair {
    /// A CPU has run out of threads.
    pub(super) fn balance_new_idle(&mut self, kernel: &mut Kernel<'_>, cpu: usize) {
        let mut spent = 0;
        for domain in DOMAINS {
            if self.crowded == 0 {
                break;
            }
            let Some(scan) = Self::scan_cost(kernel, cpu, domain) else { continue };
            if self.balances[cpu].average_idle < spent + scan {
                break;
            }
            spent += scan;
            if self.pull(kernel, cpu, domain, true) > 0 {
                break;
            }
        }
        if spent > 0 {
            kernel.spend(cpu, spent);
        }
    }

    /// Every CPU whose balancing is due balances.
    pub(super) fn balance_at_tick(&mut self, kernel: &mut Kernel<'_>) {
        if self.crowded == 0 {
            return;
        }
        let cpus: Vec<usize> = kernel.online().iter().collect();
        for cpu in cpus {
            self.know(cpu);
            for domain in DOMAINS {
                let span = span(kernel, cpu, domain).len() as u64;
                let busy = kernel.current(cpu).is_some();
                let interval = span * 1_000_000 * if busy { BUSY_FACTOR } else { 1 };
                // Each CPU balances at its own time, so that the CPUs do not all act on the state of the same moment.
                let phase = kernel.now() + cpu as u64 * TICK;
                if phase / interval == (phase - TICK) / interval {
                    continue;
                }
                let Some(scan) = Self::scan_cost(kernel, cpu, domain) else { continue };
                if !balances_for_its_group(kernel, cpu, domain) {
                    continue;
                }
                kernel.spend(cpu, scan);
                let at = domain as usize;
                if self.pull(kernel, cpu, domain, false) > 0 {
                    self.balances[cpu].failed[at] = 0;
                    kernel.kick(cpu);
                }
                if self.crowded == 0 {
                    return;
                }
            }
        }
    }

    /// The cost for a CPU of reading the queues of a domain; `None` if the domain is no larger than the domain inside it.
    fn scan_cost(kernel: &Kernel<'_>, cpu: usize, domain: Domain) -> Option<u64> {
        let costs = kernel.costs();
        let llc = kernel.llc_cpus(cpu).len() as u64;
        let node = kernel.node_cpus(cpu).len() as u64;
        let (others, each) = match domain {
            Domain::Llc => (llc - 1, costs.same_llc),
            Domain::Node => (node.saturating_sub(llc), costs.other_llc),
            Domain::Machine => {
                ((kernel.online().len() as u64).saturating_sub(node), costs.other_package)
            }
        };
        (others > 0).then_some(others * each)
    }

    fn sum(&self, kernel: &Kernel<'_>, cpus: &CpuSet) -> Sum {
        let mut sum = Sum::default();
        for cpu in cpus.iter().filter(|cpu| kernel.online().contains(*cpu)) {
            sum.cpus += 1;
            if let Some(queue) = self.queues.get(cpu) {
                sum.runnable += queue.runnable() as u64;
                sum.load += queue.load(&self.entities);
                sum.idle += u64::from(queue.runnable() == 0);
            } else {
                sum.idle += 1;
            }
        }
        sum
    }

    /// Makes a CPU pull threads from the busiest queue of a domain. Returns how many.
    fn pull(
        &mut self,
        kernel: &mut Kernel<'_>,
        cpu: usize,
        domain: Domain,
        new_idle: bool,
    ) -> usize {
        let Some((group, amount)) = self.busiest_group(kernel, cpu, domain) else { return 0 };
        let amount = if new_idle { Amount::Threads(1) } else { amount };
        let mut pinned: Vec<usize> = Vec::new();
        // A queue whose threads may not run here is skipped.
        while let Some(from) = self.busiest_queue(&group, cpu, &pinned) {
            match self.move_threads(kernel, from, cpu, domain, amount) {
                Some(moved) => {
                    if moved == 0 && !new_idle {
                        self.balances[cpu].failed[domain as usize] += 1;
                    }
                    return moved;
                }
                None => pinned.push(from),
            }
        }
        0
    }

    /// The group of a domain that has too much load, and how much of it a CPU must take.
    fn busiest_group(
        &self,
        kernel: &Kernel<'_>,
        cpu: usize,
        domain: Domain,
    ) -> Option<(CpuSet, Amount)> {
        let topology = kernel.topology();
        let own_node = kernel.hardware.node(cpu);
        let (local, groups): (CpuSet, Vec<&CpuSet>) = match domain {
            Domain::Llc => {
                // The groups are single CPUs: the busiest queue is searched for among all of them.
                let local_sum = self.sum(kernel, &CpuSet::single(cpu));
                let busiest = self.busiest_queue(kernel.llc_cpus(cpu), cpu, &[])?;
                let busiest_load = self.queues[busiest].load(&self.entities);
                let amount = if local_sum.runnable == 0 {
                    Amount::Threads(1)
                } else if busiest_load * 100 > local_sum.load * UNEVEN_NEAR {
                    Amount::Load((busiest_load - local_sum.load) / 2)
                } else {
                    return None;
                };
                return Some((kernel.llc_cpus(cpu).clone(), amount));
            }
            Domain::Node => {
                let llcs = topology.llcs().iter().map(|llc| &llc.cpus);
                let of_node = |cpus: &&CpuSet| {
                    cpus.first().is_some_and(|first| kernel.hardware.node(first) == own_node)
                };
                (kernel.llc_cpus(cpu).clone(), llcs.filter(of_node).collect())
            }
            Domain::Machine => {
                let nodes = topology.nodes().iter().map(|node| &node.cpus);
                (kernel.node_cpus(cpu).clone(), nodes.collect())
            }
        };
        let local_sum = self.sum(kernel, &local);
        let (mut all, mut best): (Sum, Option<(Sum, &CpuSet)>) = (local_sum, None);
        for group in groups {
            if group.contains(cpu) {
                continue;
            }
            let sum = self.sum(kernel, group);
            all.cpus += sum.cpus;
            all.load += sum.load;
            let overloaded = sum.runnable > sum.cpus;
            if overloaded && best.is_none_or(|(best, _)| best.load_each() < sum.load_each()) {
                best = Some((sum, group));
            }
        }
        let (busiest, group) = best?;
        let amount = if local_sum.runnable < local_sum.cpus {
            let too_many = busiest.runnable - busiest.cpus;
            Amount::Threads((local_sum.idle.saturating_sub(busiest.idle) / 2).clamp(1, too_many))
        } else if busiest.load_each() * 100 > local_sum.load_each() * UNEVEN_FAR {
            let average = all.load_each();
            let excess_load = busiest.load_each().saturating_sub(average) * busiest.cpus;
            Amount::Load(
                excess_load.min(average.saturating_sub(local_sum.load_each()) * local_sum.cpus),
            )
        } else {
            return None;
        };
        Some((group.clone(), amount))
    }

    /// The CPU with the most load on which threads wait.
    fn busiest_queue(&self, group: &CpuSet, except: usize, pinned: &[usize]) -> Option<usize> {
        let crowded = group.iter().filter(|cpu| {
            *cpu != except
                && !pinned.contains(cpu)
                && self.queues.get(*cpu).is_some_and(|queue| !queue.no_thread_waits())
        });
        // The first of the CPUs with the same load.
        crowded.min_by_key(|cpu| (u64::MAX - self.queues[*cpu].load(&self.entities), *cpu))
    }

    /// Moves waiting threads from one CPU's queue to another's. Returns how many; `None` if no thread may run there.
    fn move_threads(
        &mut self,
        kernel: &Kernel<'_>,
        from: usize,
        to: usize,
        domain: Domain,
        amount: Amount,
    ) -> Option<usize> {
        let failed = self.balances[to].failed[domain as usize];
        let same_core = kernel.core_cpus(from).contains(to);
        let (mut threads, mut load) = match amount {
            Amount::Threads(threads) => (threads, u64::MAX),
            Amount::Load(load) => (u64::MAX, load),
        };
        let mut chosen: Vec<usize> = Vec::new();
        let mut any_may = false;
        // With only one thread left, there is nothing to even out.
        let most = MOST_MOVES.min(self.queues[from].runnable().saturating_sub(1).max(1));
        for slot in self.queues[from].waiting.values().rev().copied() {
            if chosen.len() >= most || threads == 0 || load == 0 {
                break;
            }
            if !kernel.allowed(kernel.thread_in(slot)).contains(to) {
                continue;
            }
            any_may = true;
            let entity = &self.entities[slot];
            let hot = entity.ran_at.is_some_and(|at| kernel.now().saturating_sub(at) < HOT);
            if hot && !same_core && failed <= NICE_TRIES {
                continue;
            }
            if load != u64::MAX && entity.weight >> failed.min(10) > load {
                continue;
            }
            threads = threads.saturating_sub(1);
            if load != u64::MAX {
                load = load.saturating_sub(entity.weight);
            }
            chosen.push(slot);
        }
        for slot in &chosen {
            self.count(kernel, from);
            self.depart(*slot);
            self.remove(*slot);
            self.count(kernel, to);
            self.arrive(*slot, to);
            self.add(*slot, to);
        }
        any_may.then_some(chosen.len())
    }
}

/// The CPUs of a domain.
fn span<'a>(kernel: &'a Kernel<'_>, cpu: usize, domain: Domain) -> &'a CpuSet {
    match domain {
        Domain::Llc => kernel.llc_cpus(cpu),
        Domain::Node => kernel.node_cpus(cpu),
        Domain::Machine => kernel.topology().possible(),
    }
}

/// Whether a CPU balances a domain for its group: the first idle one does, or otherwise the first.
fn balances_for_its_group(kernel: &Kernel<'_>, cpu: usize, domain: Domain) -> bool {
    let group = match domain {
        Domain::Llc => return true,
        Domain::Node => kernel.llc_cpus(cpu),
        Domain::Machine => kernel.node_cpus(cpu),
    };
    let online = || group.iter().filter(|cpu| kernel.online().contains(*cpu));
    let first = online().find(|cpu| kernel.idle().contains(*cpu)).or_else(|| online().next());
    first == Some(cpu)
}
