//! Keeps tasks at home: once per period it measures, lets `SoftAffinity` decide, changes the masks of threads, and updates accounts.
//!
//! A task begins on the CPUs of its home: its starter ensures that. From then on the rebalancer changes the masks of its threads, but only
//! of threads that still have the mask that the rebalancer expects: a thread with another mask has set it deliberately, and is left alone.
//! A thread that is started meanwhile inherits its creator's mask, so the list of threads is read until it contains no new thread.
//!
//! Measuring costs some 10 µs per thread. A period is long enough to keep this below 1 % of one CPU, but short enough for strays to
//! be home within a second.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use nearq_home::{
    Action, Evidence, HomeMigration, Load, NodeLoad, Nodes, Seen, SoftAffinity, Verdict,
    VerdictReason, Weights, milli,
};
use nearq_platform::{Linux, Threads as _};
use nearq_topology::CpuSet;

use crate::observe::{Observer, TaskUsage};
use crate::proc;

/// A period is at least this many times as long as a measurement takes.
const SHARE: u32 = 100;
/// The longest period, however much there is to measure: two periods, one to notice the free capacity at home and one of delay, take less
/// than a second.
const LONGEST: Duration = Duration::from_millis(400);
/// The number of steps whose costs are kept.
const COSTS: usize = 8;
/// How often a task's memory is measured, at most.
const MEMORY_PERIOD: Duration = Duration::from_millis(500);
/// Measuring the memory of tasks takes at most one part in this many of the time: one value if homes follow memory, and one if memory is
/// only measured for the accounts.
const MEMORY_SHARE: [u32; 2] = [100, 400];
/// A loop over threads ends after this many rounds: it would never end by itself for a task that starts threads faster than they can be
/// confined.
const MOST_ROUNDS: usize = 10;

/// A load of other programs is ignored up to one part in this many of a node's CPUs: a tick more or less on each CPU is no load.
const NO_LOAD: u32 = 4;

/// What is known about a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The index of its home.
    pub home: usize,
    /// The index of the node on which it was first seen.
    pub first: Option<usize>,
    /// The index of the node on which it was at the last measurement.
    pub last: Option<usize>,
    /// CPU time by index of the nodes, as far as it was measured.
    pub cpu_time: Vec<Duration>,
    /// How long it waited for a CPU.
    pub waited: Duration,
    /// Bytes by index of the nodes when its memory was last measured; empty if it never was.
    pub resident: Vec<u64>,
    /// How often it was on another node than at the measurement before.
    pub migrations: u32,
    /// How often it was let out.
    pub let_out: u32,
    /// How often it was brought home.
    pub brought_home: u32,
    /// How long it was away from home in total.
    pub out: Duration,
    /// Why its home is on its node, if homes follow memory and this home was considered.
    pub why: Option<VerdictReason>,
}

/// An action of the rebalancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A task may run on the CPUs of these nodes.
    LetOut {
        /// The task.
        id: u64,
        /// Indices of the nodes.
        to: Vec<usize>,
    },
    /// A task is at home again.
    BroughtHome {
        /// The task.
        id: u64,
    },
    /// A task has another home.
    Moved {
        /// The task.
        id: u64,
        /// The index of the new home.
        to: usize,
        /// Why the home has changed.
        why: VerdictReason,
    },
    /// A task has chosen its CPUs itself, and is left alone from now on.
    LeftAlone {
        /// The task.
        id: u64,
    },
}

/// Keeps tasks at home.
#[derive(Debug)]
pub struct Rebalancer {
    affinity: SoftAffinity,
    weights: Weights,
    observer: Observer,
    tasks: BTreeMap<u64, Task>,
    /// The tasks, by the processes with which they began.
    processes: BTreeSet<u32>,
    /// Thousandths of CPUs, by index of the nodes.
    cpus: Vec<u32>,
    /// By index of the nodes: the load there that belongs to no task of the rebalancer.
    others: Vec<u32>,
    loads: Vec<NodeLoad>,
    begin: Instant,
    /// CPU time that the last steps took, in turn.
    costs: [Duration; COSTS],
    steps: usize,
    /// The time until which no task's memory is measured.
    memory_at: Instant,
    follows: bool,
}

#[derive(Debug)]
struct Task {
    process: u32,
    account: Account,
    /// The mask of its threads, as the rebalancer knows it.
    mask: CpuSet,
    kept: bool,
    out_since: Option<Instant>,
    migration: HomeMigration,
    /// CPU time by node since its memory was last measured.
    recent: Vec<Duration>,
    memory_seen: Instant,
}

impl Rebalancer {
    /// A rebalancer without tasks.
    pub fn new(nodes: Nodes, weights: Weights) -> Self {
        let now = Instant::now();
        Rebalancer {
            cpus: nodes.iter().map(|node| 1000 * node.cpus.len() as u32).collect(),
            others: vec![0; nodes.len()],
            loads: vec![NodeLoad::default(); nodes.len()],
            observer: Observer::new(nodes.clone()),
            affinity: SoftAffinity::new(nodes, weights.clone()),
            weights,
            tasks: BTreeMap::new(),
            processes: BTreeSet::new(),
            begin: now,
            costs: [Duration::ZERO; COSTS],
            steps: 0,
            memory_at: now,
            follows: false,
        }
    }

    /// Makes homes follow the memory of their tasks from now on.
    #[must_use]
    pub fn following(mut self, follows: bool) -> Self {
        self.follows = follows;
        self
    }

    /// The existing nodes.
    pub fn nodes(&self) -> &Nodes {
        self.affinity.nodes()
    }

    /// Adds a task that has begun with this process, whose threads have the mask of its home. With `kept` false the task is only watched:
    /// its masks are not changed.
    ///
    /// # Panics
    /// If the node does not exist.
    pub fn add(&mut self, id: u64, process: u32, home: usize, kept: bool) {
        let now = Instant::now();
        let mask = self.nodes().get(home).cpus.clone();
        let cpu_time = vec![Duration::ZERO; self.nodes().len()];
        if kept {
            self.affinity.add(id, home);
        }
        let task = Task {
            process,
            account: Account { home, cpu_time: cpu_time.clone(), ..Account::default() },
            mask,
            kept,
            out_since: None,
            migration: HomeMigration::new(home, self.begin.elapsed()),
            recent: cpu_time,
            memory_seen: now,
        };
        self.tasks.insert(id, task);
        self.processes.insert(process);
    }

    /// Removes a task that has ended, or is no longer to be watched. Returns what was known about it.
    pub fn remove(&mut self, id: u64) -> Option<Account> {
        self.affinity.remove(id);
        let mut task = self.tasks.remove(&id)?;
        self.processes.remove(&task.process);
        task.come_home(Instant::now());
        Some(task.account)
    }

    /// What is known about a task.
    pub fn account(&self, id: u64) -> Option<&Account> {
        self.tasks.get(&id).map(|task| &task.account)
    }

    /// The tasks of the rebalancer.
    pub fn tasks(&self) -> impl Iterator<Item = (u64, &Account)> {
        self.tasks.iter().map(|(id, task)| (*id, &task.account))
    }

    /// The indices of the nodes on which a task may run while it is let out.
    pub fn out(&self, id: u64) -> Option<&[usize]> {
        self.affinity.out(id)
    }

    /// The load of each node, for [`nearq_home::pick`]; what other programs do counts if it is significant.
    pub fn loads(&self) -> Vec<Load> {
        let others = self.nodes().iter().zip(&self.others);
        let mut loads: Vec<Load> = others
            .map(|(node, others)| Load {
                homes: 0,
                others: others.saturating_sub(node.capacity / NO_LOAD),
            })
            .collect();
        for task in self.tasks.values() {
            loads[task.account.home].homes += 1000;
        }
        loads
    }

    /// What each node did in the last period.
    pub fn node_loads(&self) -> &[NodeLoad] {
        &self.loads
    }

    /// CPU time that a [`step`](Self::step) takes, without measuring memory: the least of the last few, because other
    /// programs can only make it more expensive.
    pub fn cost(&self) -> Duration {
        self.costs.iter().min().copied().unwrap_or_default()
    }

    /// How long until the next [`step`](Self::step); `None` if there is nothing to do.
    pub fn period(&self) -> Option<Duration> {
        let period = self.affinity.period().max((self.cost() * SHARE).min(LONGEST));
        (!self.nodes().is_single() && !self.tasks.is_empty()).then_some(period)
    }

    /// Measures, decides, and acts.
    pub fn step(&mut self) -> Vec<Event> {
        if self.nodes().is_single() {
            return Vec::new();
        }
        let begin = cpu_time();
        self.loads = self.observer.nodes_loads();
        let usage = self.measure();
        let seen: Vec<Seen> = usage
            .iter()
            .map(|(id, usage)| Seen {
                id: *id,
                ran: usage.ran_in_all(),
                waited: usage.waited,
                node: usage.node.unwrap_or(self.tasks[id].account.home),
            })
            .collect();
        let actions = self.affinity.step(self.begin.elapsed(), &self.loads, &seen);
        let mut events: Vec<Event> =
            actions.into_iter().filter_map(|action| self.act(action)).collect();
        self.costs[self.steps % COSTS] = cpu_time().saturating_sub(begin);
        self.steps += 1;
        self.check_memory(&usage, &mut events);
        events
    }

    /// Measures what each task did, and adds that to its account.
    fn measure(&mut self) -> BTreeMap<u64, TaskUsage> {
        let period = self.observer.period();
        let mut all = BTreeMap::new();
        // Thousandths of a CPU that the tasks used on each node, and that they waited for.
        let mut ran = vec![0_u32; self.nodes().len()];
        let mut waited = vec![0_u32; self.nodes().len()];
        for (id, task) in &mut self.tasks {
            let usage = self.observer.task(task.process, &self.processes);
            let account = &mut task.account;
            for (node, time) in usage.ran.iter().enumerate() {
                account.cpu_time[node] += *time;
                task.recent[node] += *time;
                ran[node] = ran[node].saturating_add(milli(*time, period));
            }
            account.waited += usage.waited;
            if let Some(node) = usage.node {
                waited[node] = waited[node].saturating_add(milli(usage.waited, period));
                account.first.get_or_insert(node);
                let before = account.last.replace(node);
                account.migrations += u32::from(before.is_some_and(|before| before != node));
            }
            all.insert(*id, usage);
        }
        for (node, load) in self.loads.iter_mut().enumerate() {
            // The measurements of tasks are finer than those of CPUs.
            let own_load = ran[node].saturating_add(waited[node]);
            let all_load = if self.observer.knows_waiting() {
                load.runnable
            } else {
                load.runnable.saturating_add(waited[node])
            };
            load.runnable = all_load.max(own_load);
            load.idle = load.idle.min(self.cpus[node].saturating_sub(ran[node]));
            // The load is smoothed, because a home is chosen for longer than a period.
            let others = load.runnable.saturating_sub(own_load);
            self.others[node] = u32::midpoint(self.others[node], others);
        }
        all
    }

    fn act(&mut self, action: Action) -> Option<Event> {
        let (id, to) = match action {
            Action::LetOut { id, to } => (id, Some(to)),
            Action::BringHome { id } => (id, None),
        };
        let home = self.tasks.get(&id)?.account.home;
        let mask = self.nodes().cpus_of(to.as_deref().unwrap_or(&[home]));
        let task = self.tasks.get_mut(&id)?;
        if !task.confine(&mask, &self.processes) {
            self.affinity.remove(id);
            task.kept = false;
            task.come_home(Instant::now());
            return Some(Event::LeftAlone { id });
        }
        Some(if let Some(to) = to {
            task.account.let_out += 1;
            task.out_since.get_or_insert_with(Instant::now);
            Event::LetOut { id, to }
        } else {
            task.account.brought_home += 1;
            task.come_home(Instant::now());
            Event::BroughtHome { id }
        })
    }

    /// Measures the memory of the tasks whose turn it is, and moves their homes if homes follow memory.
    fn check_memory(&mut self, usage: &BTreeMap<u64, TaskUsage>, events: &mut Vec<Event>) {
        let (begin, used) = (Instant::now(), cpu_time());
        if begin < self.memory_at {
            return;
        }
        // Includes tasks that are nearly due: after a measurement there is a pause in proportion to its cost.
        let due: Vec<u64> = self
            .tasks
            .iter()
            .filter(|(_, task)| begin.duration_since(task.memory_seen) >= MEMORY_PERIOD * 4 / 5)
            .map(|(id, _)| *id)
            .collect();
        if due.is_empty() {
            return;
        }
        let nodes = self.nodes().clone();
        let now = self.begin.elapsed();
        for id in due {
            let task = self.tasks.get_mut(&id).expect("the list was just made");
            task.memory_seen = begin;
            let processes = usage.get(&id).into_iter().flat_map(|usage| &usage.threads);
            let maps = processes.filter_map(|(process, _)| proc::resident(*process)).flatten();
            let mut resident = vec![0; nodes.len()];
            for (memory, bytes) in maps {
                // If the node has several caches, the memory counts for the home, if that is one of them.
                if let Some(at) = nodes.of_memory(memory, Some(task.account.home)) {
                    resident[at] += bytes;
                }
            }
            if resident.iter().all(|bytes| *bytes == 0) {
                continue;
            }
            task.account.resident.clone_from(&resident);
            let cpu_time = core::mem::replace(&mut task.recent, vec![Duration::ZERO; nodes.len()]);
            if self.follows && task.kept {
                let evidence = Evidence { pages: resident, cpu_time };
                match task.migration.consider(now, &evidence, &nodes, &self.weights) {
                    Verdict::Stay(why) => task.account.why = Some(why),
                    Verdict::Move { to, why } => {
                        task.account.home = to;
                        task.account.why = Some(why.clone());
                        task.come_home(begin);
                        self.affinity.add(id, to);
                        if task.confine(&nodes.get(to).cpus, &self.processes) {
                            events.push(Event::Moved { id, to, why });
                        } else {
                            self.affinity.remove(id);
                            task.kept = false;
                            events.push(Event::LeftAlone { id });
                        }
                    }
                }
            }
        }
        self.memory_at =
            begin + cpu_time().saturating_sub(used) * MEMORY_SHARE[usize::from(!self.follows)];
    }
}

impl Task {
    fn come_home(&mut self, now: Instant) {
        if let Some(since) = self.out_since.take() {
            self.account.out += now.duration_since(since);
        }
    }

    /// Restricts all its threads that have the known mask to these CPUs, except those of the tasks in `others`. Returns false if its first
    /// thread has another mask.
    fn confine(&mut self, cpus: &CpuSet, others: &BTreeSet<u32>) -> bool {
        let first = Linux::affinity_of(self.process);
        if first.is_ok_and(|mask| !is_same(&mask, &self.mask)) {
            return false;
        }
        let mut done = BTreeSet::new();
        for _ in 0..MOST_ROUNDS {
            let mut news = false;
            let processes = proc::tree(self.process, others);
            for thread in processes.into_iter().flat_map(|(_, threads)| threads) {
                if !done.insert(thread) {
                    continue;
                }
                news = true;
                let in_tree =
                    Linux::affinity_of(thread).is_ok_and(|mask| is_same(&mask, &self.mask));
                if in_tree {
                    // A thread that has ended meanwhile, or belongs to another user by now, is left alone.
                    let _ = Linux::set_affinity_of(thread, cpus);
                }
            }
            if !news {
                break;
            }
        }
        self.mask = cpus.clone();
        true
    }
}

/// The caller's CPU time is used, not elapsed time, because other threads may have used the CPU in the middle of a step.
fn cpu_time() -> Duration {
    Linux::cpu_time(Linux::current_thread()).unwrap_or_default()
}

/// Whether a thread's mask is the one that it was given, apart from CPUs that went offline meanwhile.
fn is_same(mask: &CpuSet, given: &CpuSet) -> bool {
    if mask == given {
        return true;
    }
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let Ok(online) = CpuSet::parse_list(online.trim()) else { return false };
    *mask == given.intersection(&online)
}

#[cfg(test)]
mod tests;
