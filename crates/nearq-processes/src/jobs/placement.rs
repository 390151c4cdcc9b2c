//! Where a job is at home, and what its home sets for it.
//!
//! With a soft home, a job runs on the CPUs of its home and its memory comes from there first. The [`Rebalancer`] lets the job out when the
//! home is crowded while CPUs idle elsewhere, and brings it back. With a strict home, a job has only the CPUs and the memory of its home,
//! for its whole life. With one node, nothing is set, nothing is checked, and jobs have no account of their homes. With one of several
//! nodes, jobs have the CPUs and the memory of that node, and there is nothing to check.
//!
//! If the node affine scheduler of the whole machine is loaded, each job's home is reported to it, and the job's children inherit the
//! home there. The scheduler itself forgets processes that end.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::thread;
use std::time::{Duration, Instant};

use nearq_home::{Nodes, Weights, pick};
use nearq_platform::{Linux, MemoryPolicy, OsError, Spawned};
use nearq_topology::CpuSet;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::tree::{State, Table};
use crate::{Account, Event, Rebalancer};

/// How long the loads are measured before the first job: the load of other programs counts too. The kernel reports ticks of 10 ms.
const FIRST_LOOK: Duration = Duration::from_millis(40);

/// Which homes jobs get.
#[derive(Clone, Debug)]
pub struct Homes {
    /// The existing nodes.
    pub nodes: Nodes,
    /// The index of the home of all jobs; `None` gives each job the one with the least load.
    pub fixed: Option<usize>,
    /// Whether jobs are bound to their home.
    pub strict: bool,
    /// How reluctantly jobs are let out.
    pub weights: Weights,
    /// What the slots have for themselves, in turn; empty if they are all the same.
    pub slots: Vec<Slot>,
}

/// What the jobs in one slot have for themselves, such as a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The index of their home; `None` if it is chosen as for all jobs.
    pub home: Option<usize>,
    /// Variables of their environment, with their values.
    pub variables: Vec<(OsString, OsString)>,
}

impl Homes {
    /// The home of the jobs in a slot, which is a number from 1, if it is not chosen by load.
    pub(crate) fn assigned(&self, slot: usize) -> Option<usize> {
        assigned(&self.slots, self.fixed, slot)
    }
}

fn assigned(slots: &[Slot], fixed: Option<usize>, slot: usize) -> Option<usize> {
    let own = slot.saturating_sub(1).checked_rem(slots.len()).and_then(|at| slots[at].home);
    own.or(fixed)
}

/// Assigns homes to jobs, and keeps the jobs at home.
#[derive(Debug)]
pub(crate) struct Placement {
    nodes: Nodes,
    fixed: Option<usize>,
    slots: Vec<Slot>,
    strict: bool,
    policies: Vec<MemoryPolicy>,
    /// Set if jobs have homes.
    rebalancer: Option<Rebalancer>,
    /// Shows other programs the home of each process; `None` if no job has a home, or the system refuses a table.
    table: Option<Table>,
    /// The first processes of jobs.
    processes: BTreeMap<u64, u32>,
    next_check: Option<Instant>,
    /// Jobs that chose their CPUs themselves.
    left_alone: BTreeSet<u64>,
    /// Whether CPUs are still requested; the next field says the same of memory. What was refused once is not requested again.
    asks_affinity: bool,
    asks_policy: bool,
    refused: Option<String>,
}

impl Placement {
    pub(crate) fn new(homes: Homes) -> Self {
        let policy = |memory: usize| {
            if homes.strict {
                MemoryPolicy::Bind(vec![memory])
            } else {
                MemoryPolicy::Preferred(memory)
            }
        };
        let placed = !homes.nodes.is_all();
        let rebalancer = placed.then(|| {
            let mut rebalancer = Rebalancer::new(homes.nodes.clone(), homes.weights);
            if homes.fixed.is_none() && !homes.nodes.is_single() {
                thread::sleep(FIRST_LOOK);
                rebalancer.step();
            }
            rebalancer
        });
        let table = placed.then(|| Table::create(&homes.nodes, &homes.nodes.cpus(), true).ok());
        Self {
            table: table.flatten(),
            processes: BTreeMap::new(),
            policies: homes.nodes.iter().map(|node| policy(node.memory)).collect(),
            nodes: homes.nodes,
            fixed: homes.fixed,
            slots: homes.slots,
            strict: homes.strict,
            rebalancer,
            next_check: None,
            left_alone: BTreeSet::new(),
            asks_affinity: placed,
            asks_policy: placed,
            refused: None,
        }
    }

    pub(crate) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// The home of the next job, in that slot.
    pub(crate) fn choose(&self, slot: usize) -> usize {
        let least_loaded = |rebalancer: &Rebalancer| {
            let from = self.nodes.of_cpu(rustix::thread::sched_getcpu());
            pick(&self.nodes, &rebalancer.loads(), from)
        };
        let assigned = assigned(&self.slots, self.fixed, slot);
        assigned.or_else(|| self.rebalancer.as_ref().map(least_loaded)).unwrap_or(0)
    }

    /// The CPUs of a job at that home, if they must be set.
    pub(crate) fn cpus(&self, home: usize) -> Option<&CpuSet> {
        self.asks_affinity.then(|| &self.nodes.get(home).cpus)
    }

    /// The memory of a job at that home, if it must be set.
    pub(crate) fn memory(&self, home: usize) -> Option<&MemoryPolicy> {
        self.asks_policy.then(|| &self.policies[home])
    }

    /// A job has started at that home. Returns what was refused, if that is new.
    pub(crate) fn started(&mut self, job: u64, home: usize, spawned: &Spawned) -> Option<String> {
        let mut news = None;
        let mut note = |refused: &Option<OsError>, asks: &mut bool, without: &str| {
            if let Some(refused) = refused {
                *asks = false;
                news = Some(format!("{refused}; jobs run without {without}"));
            }
        };
        note(&spawned.affinity_refused, &mut self.asks_affinity, "the CPUs of a home");
        note(&spawned.memory_refused, &mut self.asks_policy, "memory from their home");
        let kept = !self.strict && self.asks_affinity;
        if let Some(rebalancer) = &mut self.rebalancer {
            rebalancer.add(job, spawned.pid, home, kept);
            send_home_hint(spawned.pid, Some(self.nodes.get(home).memory));
            self.processes.insert(job, spawned.pid);
            if let Some(table) = &self.table {
                table.claim_for(spawned.pid, home);
            }
            if self.next_check.is_none() {
                self.next_check = rebalancer.period().map(|period| Instant::now() + period);
            }
        }
        if news.is_some() {
            self.refused.clone_from(&news);
        }
        news
    }

    /// A job has ended. Returns what is known about its nodes, if there are several.
    pub(crate) fn ended(&mut self, job: u64) -> Option<(Account, bool)> {
        if let (Some(process), Some(table)) = (self.processes.remove(&job), &self.table) {
            table.release(process);
        }
        let account = self.rebalancer.as_mut()?.remove(job)?;
        Some((account, self.left_alone.remove(&job)))
    }

    /// When homes must be checked next; `None` if there is one node, or nothing runs.
    pub(crate) fn next_check(&self) -> Option<Instant> {
        self.next_check
    }

    /// Checks homes, if it is time.
    pub(crate) fn check(&mut self) {
        let Some(rebalancer) = self.rebalancer.as_mut() else { return };
        if self.next_check.is_none_or(|at| Instant::now() < at) {
            return;
        }
        for event in rebalancer.step() {
            // `None`, because the scheduler has its information already.
            let (id, state, hint) = match event {
                Event::LetOut { id, .. } => (id, State::Out, None),
                Event::BroughtHome { id } => (id, State::Home, None),
                Event::Moved { id, to, .. } => {
                    (id, State::Home, Some(Some(self.nodes.get(to).memory)))
                }
                Event::LeftAlone { id } => {
                    self.left_alone.insert(id);
                    (id, State::Own, Some(None))
                }
            };
            if let (Some(process), Some(node)) = (self.processes.get(&id), hint) {
                send_home_hint(*process, node);
            }
            if let (Some(process), Some(table)) = (self.processes.get(&id), &self.table) {
                table.note(*process, state);
            }
        }
        self.next_check = rebalancer.period().map(|period| Instant::now() + period);
    }

    pub(crate) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}

/// Reports to the scheduler where a job is at home, or that it has no home. The process is a child that has not been waited for, so the
/// number is still its own.
fn send_home_hint(job: u32, node: Option<usize>) {
    let received = Linux::set_home_hint_of(job, node);
    // The scheduler's kernel part forgets processes that end later; nothing would forget one that had already ended.
    if received && node.is_some() && has_ended(job) {
        Linux::set_home_hint_of(job, None);
    }
}

/// Whether a child has ended; its end can still be waited for.
fn has_ended(child: u32) -> bool {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Pid::from_raw(child.cast_signed())
        .is_some_and(|child| !matches!(waitid(WaitId::Pid(child), how), Ok(None)))
}
