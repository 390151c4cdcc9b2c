//! What is run: scenarios, sizes, disturbances, and where each task starts.

use super::scheduler::OF_2003;
use super::task::{ELEMENT, Until};
use crate::{Error, Machine};
use nearq_home::{Load, Nodes, pick};
use nearq_topology::CpuSet;
use std::time::Duration;

// What is run: the three scenarios as numbers, the same for the real machine and simulated ones.

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scenario {
    /// Tasks that walk over memory, and a storm of small processes after three seconds.
    NumaTest,
    /// CPU hogs pinned to one node come and go.
    Displace,
    /// More tasks at home on one node than it has CPUs; half of them end.
    Overload,
}

impl Scenario {
    pub(super) const ALL: [Scenario; 3] =
        [Scenario::NumaTest, Scenario::Displace, Scenario::Overload];

    pub(super) fn name(self) -> &'static str {
        match self {
            Scenario::NumaTest => "numa-test",
            Scenario::Displace => "displace",
            Scenario::Overload => "overload",
        }
    }

    /// What `--scenario` names; all of them unless it is given.
    pub(super) fn named(name: Option<&str>) -> Result<Vec<Self>, Error> {
        let Some(name) = name else { return Ok(Self::ALL.to_vec()) };
        let found = Self::ALL.into_iter().find(|scenario| scenario.name() == name);
        found.map(|scenario| vec![scenario]).ok_or_else(|| {
            Error::input(format!("--scenario {name:?}: give numa-test, displace or overload"))
        })
    }
}

/// A configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// The kernel alone.
    Without,
    /// Each task has a home, picked when it starts, and is kept there.
    Homes,
    /// The home follows the memory.
    Dynamic,
    /// The kernel's scheduler is the node affine one, which gives each task its home.
    Scheduler,
    /// The same, and what CPUs take from other nodes is by the rule of the document of 2003.
    Rule,
    /// The kernel's scheduler is that of the document's kernel, without its patch.
    Before,
    /// The same with its patch.
    After,
    /// Each task is pinned to a CPU, in turn over the nodes, and has its memory there.
    Oracle,
}

impl Row {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Row::Without => "without homes",
            Row::Homes => "homes",
            Row::Dynamic => "dynamic homes",
            Row::Scheduler => "home scheduler",
            Row::Rule => "2003's rule",
            Row::Before => "2.6.0-test1",
            Row::After => "2.6.0-test1, homes",
            Row::Oracle => "oracle",
        }
    }

    /// The kernel's scheduler.
    pub(super) fn scheduler(self) -> &'static str {
        match self {
            Row::Scheduler => "home",
            Row::Rule => "home, own_bonus=1000",
            Row::Before => "2.6.0-test1",
            Row::After => "2.6.0-test1 with homes",
            _ => "stock",
        }
    }

    /// The weight `own_bonus` of the node affine scheduler, if the kernel has that one.
    pub(super) fn own_bonus(self) -> Option<u64> {
        match self {
            Row::Scheduler => Some(0),
            Row::Rule => Some(OF_2003),
            _ => None,
        }
    }

    pub(super) fn is_kept(self) -> bool {
        matches!(self, Row::Homes | Row::Dynamic)
    }
}

/// The storm: groups of as many senders as receivers, where each sender sends `messages` messages to each receiver of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Storm {
    /// When it begins.
    pub(super) after: Duration,
    /// How long after that it begins again, and so on until all tasks have ended; once if not set.
    pub(super) every: Option<Duration>,
    pub(super) groups: usize,
    /// Senders of a group, and receivers.
    pub(super) pairs: usize,
    pub(super) messages: usize,
}

impl Storm {
    /// Bytes of a message.
    pub(super) const MESSAGE: usize = 100;

    pub(super) fn processes(&self) -> usize {
        self.groups * self.pairs * 2
    }

    /// When it begins for the time after that at `time`, if it does.
    pub(super) fn again(&self, time: Duration) -> Option<Duration> {
        Some(time + self.every?)
    }
}

/// Processes that compute, pinned to the CPUs of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hogs {
    pub(super) node: usize,
    pub(super) count: usize,
    pub(super) from: Duration,
    pub(super) to: Duration,
}

/// One run of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) scenario: Scenario,
    pub(super) tasks: usize,
    pub(super) elements: usize,
    /// How long each task works, by the task's number.
    pub(super) until: Vec<Until>,
    /// The node on which tasks start; they may run on all allowed CPUs once their memory is touched.
    pub(super) start_on: Option<usize>,
    pub(super) storm: Option<Storm>,
    pub(super) hogs: Option<Hogs>,
    /// The disturbance, and the end of the run.
    pub(super) disturbed: Option<[Duration; 2]>,
    pub(super) end: Option<Duration>,
}

/// The passes of the document, and those of a quick run: on the real machine, where each takes real time, and on a simulated one.
const PASSES: usize = 100;
const QUICK_PASSES: [usize; 2] = [3, 20];
/// The document's `PROBLEMSIZE`.
pub(super) const PROBLEM_SIZE: usize = 2_000_000;
/// The largest problem size in a quick run on the real machine, however large the caches are.
pub(super) const MOST_QUICK: usize = 3_000_000;
/// The document's hackbench.
const STORM: Storm =
    Storm { after: Duration::from_secs(3), every: None, groups: 20, pairs: 20, messages: 100 };
/// The storm of a quick run: earlier and smaller.
const QUICK_STORM: Storm =
    Storm { after: Duration::from_millis(200), every: None, groups: 10, pairs: 10, messages: 20 };
/// Bytes of a task of the two small scenarios.
const SMALL: usize = 8 << 20;
/// When hogs come and go, and the end; in full and for a quick run, in milliseconds.
const DISPLACE: [[u64; 3]; 2] = [[4_000, 10_000, 22_000], [500, 1_000, 2_700]];
/// When the home becomes overloaded, when half of the tasks leave, and the end.
const OVERLOAD: [[u64; 3]; 2] = [[1_000, 12_000, 22_000], [400, 1_000, 2_700]];
/// How long after the end of a disturbance all tasks must be home again.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// The common part of all plans for a machine.
#[derive(Clone, Debug)]
pub(super) struct Size {
    pub(super) quick: bool,
    pub(super) passes: usize,
    pub(super) elements: usize,
    /// What the size of the problem follows from, in words.
    pub(super) why: String,
    pub(super) nodes: Nodes,
    /// See [`Storm::every`].
    pub(super) storm_every: Option<Duration>,
}

impl Size {
    /// For a machine, with its free memory in bytes if that is known, and with at most that many tasks.
    pub(super) fn of(
        machine: &Machine,
        nodes: Nodes,
        quick: bool,
        given: (Option<usize>, Option<usize>),
        free: Option<u64>,
        most_tasks: usize,
    ) -> Self {
        let simulated = usize::from(machine.model().is_some());
        let passes = if quick { QUICK_PASSES[simulated] } else { PASSES };
        let passes = given.1.unwrap_or(passes);
        let share = share_of_cache(machine);
        let (mut elements, why) = match given.0 {
            Some(elements) => (elements, "as told"),
            None => usual_elements(share, quick, simulated != 0),
        };
        let mut why = why.to_owned();
        if let Some(free) = free {
            let most = (free as usize / 2 / most_tasks.max(1) / ELEMENT).max(1000);
            if elements > most {
                elements = most;
                why = format!("half of the free memory for {most_tasks} tasks");
            }
        }
        let times = (elements * ELEMENT) as f64 / share.max(1) as f64;
        why =
            format!("{why}; {times:.1} times a core's {} KiB of the last-level cache", share >> 10);
        Size { quick, passes, elements, why, nodes, storm_every: None }
    }

    /// Whether the tasks of numa-test do what the document's tasks did.
    pub(super) fn is_published(&self) -> bool {
        let as_told = self.elements == PROBLEM_SIZE && self.passes == PASSES;
        !self.quick && as_told && self.storm_every.is_none()
    }

    /// Tasks with these ends, without a disturbance.
    fn plan(&self, scenario: Scenario, until: Vec<Until>) -> Plan {
        let walks = scenario == Scenario::NumaTest;
        let elements = if walks { self.elements } else { SMALL / ELEMENT };
        let (start_on, storm, hogs, disturbed, end) = (None, None, None, None, None);
        let tasks = until.len();
        Plan { scenario, tasks, elements, until, start_on, storm, hogs, disturbed, end }
    }

    pub(super) fn numa_test(&self, tasks: usize) -> Plan {
        let storm = if self.quick { QUICK_STORM } else { STORM };
        let storm = Some(Storm { every: self.storm_every, ..storm });
        let until = vec![Until::Passes(self.passes); tasks];
        Plan { storm, ..self.plan(Scenario::NumaTest, until) }
    }

    /// `tasks` tasks, and two hogs for each CPU of the second node, or of the only one.
    pub(super) fn displace(&self, tasks: usize) -> Plan {
        let [from, to, end] = DISPLACE[usize::from(self.quick)].map(Duration::from_millis);
        let node = usize::from(!self.nodes.is_single());
        let count = 2 * self.nodes.get(node).cpus.len();
        let hogs = Some(Hogs { node, count, from, to });
        let until = vec![Until::Time(end.as_nanos() as u64); tasks];
        let plan = self.plan(Scenario::Displace, until);
        Plan { hogs, disturbed: Some([from, to]), end: Some(end), ..plan }
    }

    /// Twice as many tasks as the first node has CPUs; every other one leaves.
    pub(super) fn overload(&self) -> Plan {
        let [from, leave, end] = OVERLOAD[usize::from(self.quick)].map(Duration::from_millis);
        let until = |task: usize| {
            let end = if task.is_multiple_of(2) { end } else { leave };
            Until::Time(end.as_nanos() as u64)
        };
        let tasks = 2 * self.nodes.get(0).cpus.len();
        let plan = self.plan(Scenario::Overload, (0..tasks).map(until).collect());
        Plan { start_on: Some(0), disturbed: Some([from, leave]), end: Some(end), ..plan }
    }
}

/// Elements of a task, and why: more than a core's `share` of a cache holds.
pub(super) fn usual_elements(share: usize, quick: bool, simulated: bool) -> (usize, &'static str) {
    let least = if quick { PROBLEM_SIZE / 4 } else { PROBLEM_SIZE };
    let wanted = (4 * share).div_ceil(ELEMENT);
    if quick && !simulated && wanted > MOST_QUICK {
        (MOST_QUICK, "as large as it may be where it shall be quick")
    } else if wanted > least {
        (wanted, "as large as it must be")
    } else if quick {
        (least, "a quarter of the document's, as it shall be quick")
    } else {
        (least, "the document's")
    }
}

/// Bytes of the largest share of a last-level cache that a core has.
fn share_of_cache(machine: &Machine) -> usize {
    let topology = machine.topology();
    let share = |llc: &nearq_topology::Llc| {
        let size = llc.cache_index.and_then(|cache| topology.caches()[cache].size).unwrap_or(0);
        size as usize / llc.core_indices.len().max(1)
    };
    topology.llcs().iter().map(share).max().unwrap_or(0)
}

impl Plan {
    /// The scenario's name in the report.
    pub(super) fn title(&self) -> String {
        format!("{}, {} tasks", self.scenario.name(), self.tasks)
    }

    /// The virtual time at which the run counts as failed.
    pub(super) fn limit(&self) -> Duration {
        self.end.map_or(Duration::from_hours(4), |end| end + Duration::from_mins(10))
    }

    /// The tasks that work to the end.
    pub(super) fn stays(&self, task: usize) -> bool {
        let until = |until: &Until| match until {
            Until::Time(end) => *end,
            Until::Passes(_) => 0,
        };
        let last = self.until.iter().map(until).max();
        Some(until(&self.until[task])) == last
    }
}

// Where the tasks of a run start, by row: the masks and memory nodes that they are given.

/// A task's place at its start.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Start {
    /// The index of its home, if it has one.
    pub(super) home: Option<usize>,
    /// The CPUs on which it may run from the start; all CPUs if not set.
    pub(super) cpus: Option<CpuSet>,
    /// The CPUs on which it may run once its memory is touched, if these differ.
    pub(super) then: Option<CpuSet>,
    /// The index of the node that its memory must come from; the node where it runs if not set.
    pub(super) memory: Option<usize>,
}

/// Places for all tasks of a run.
pub(super) fn starts(plan: &Plan, row: Row, nodes: &Nodes) -> Vec<Start> {
    let mut loads = vec![Load::default(); nodes.len()];
    let on = |node: usize| nodes.get(node).cpus.clone();
    let of_task = |task: usize| match row {
        Row::Without | Row::Scheduler | Row::Rule | Row::Before | Row::After => Start {
            home: None,
            cpus: plan.start_on.map(on),
            then: plan.start_on.map(|_| nodes.cpus()),
            memory: None,
        },
        Row::Homes | Row::Dynamic => {
            let home = plan.start_on.unwrap_or_else(|| pick(nodes, &loads, None));
            loads[home].homes += 1000;
            Start { home: Some(home), cpus: Some(on(home)), then: None, memory: Some(home) }
        }
        Row::Oracle => {
            // In turn over the nodes, and on each node in turn over its CPUs.
            let node = task % nodes.len();
            let cpus = &nodes.get(node).cpus;
            let cpu = cpus.iter().nth(task / nodes.len() % cpus.len());
            let cpus = cpu.map(CpuSet::single);
            Start { home: None, cpus, then: None, memory: Some(node) }
        }
    };
    (0..plan.tasks).map(of_task).collect()
}

#[cfg(test)]
#[path = "tests/placing.rs"]
mod placing_tests;
