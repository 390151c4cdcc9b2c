//! Soft affinity for tasks of which only the allowed CPUs can be set: decides which tasks are let out of a crowded home, and which come
//! back.
//!
//! A kernel keeps a task on the CPUs of its mask, and has no mask that only states a preference. So once per period `SoftAffinity` checks
//! the loads and changes masks: they are hard masks, each set for a while.
//!
//! ```text
//!            crowded at home, and elsewhere a CPU idles;
//!            or home is more crowded than elsewhere, by more than the threshold of that distance
//!     ┌────────┐ ─────────────────────────────────────────────────────────────────────► ┌───────┐
//!     │ home   │                                                                        │ out   │
//!     └────────┘ ◄───────────────────────────────────────────────────────────────────── └───────┘
//!            home has room, or would be no more crowded than where it is now
//! ```
//!
//! - **Work conservation.** A CPU that idles while a task waits elsewhere gets a task after at most one period, however far away that task
//!   is: distance only matters for the choice among idle CPUs. If no CPU idles, a task leaves only if that is worth the distance. A stray
//!   on a crowded node moves on to an idle CPU.
//! - **Return.** Tasks that are out are checked each period, before any task is let out, so a task that is let out never takes the place of
//!   a stray that could return. Strays that occupy each other's homes return together.
//! - **Strays before natives.** Strays on a crowded node move on before tasks that are at home there are let out, however long each has
//!   waited: so tasks stay at home as long as possible.
//! - **No swinging.** The effect of a decision is counted at once in the loads on which the next decision is based. A task that came home
//!   and soon had to leave again stays out twice as long each time.
//! - **Outgrown.** A task that wants more CPUs than its home has may also use as many other nodes as it fills.
//!
//! The demand of a task is the time that it ran and waited; the load of a node is the time that all tasks on its CPUs ran and waited,
//! whatever program they belong to.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{Nodes, Weights};

/// If a task has to leave again within this time after it came home, it came home too soon. Less than a second, so that within
/// a second of the end of a disturbance all tasks can be home, however often they came and went before.
const SOON: Duration = Duration::from_millis(400);
/// The most times that the stay outside is doubled.
const MOST_DOUBLED: u32 = 3;

/// The load of a node's CPUs in the last period, whatever tasks they ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeLoad {
    /// How many tasks ran or waited to run there, on average, in thousandths.
    pub runnable: u32,
    /// How many of its CPUs were idle, on average, in thousandths.
    pub idle: u32,
}

/// What a task did in the last period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The task.
    pub id: u64,
    /// How long it ran: the sum of its threads.
    pub ran: Duration,
    /// How long it waited for a CPU: the sum of its threads.
    pub waited: Duration,
    /// Where it last ran.
    pub node: usize,
}

/// A change of a task's mask that the caller must make. It is already counted as made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It may run only on the CPUs of these nodes.
    LetOut {
        /// The task.
        id: u64,
        /// Where it may run.
        to: Vec<usize>,
    },
    /// It may run only on the CPUs of its home.
    BringHome {
        /// The task.
        id: u64,
    },
}

/// Where a task is.
#[derive(Clone, Debug)]
struct Task {
    home: usize,
    /// Where it may run, while it is out.
    out: Option<Out>,
    /// When it came home, if it was out.
    came_home: Option<Duration>,
    /// How often in a row it soon had to leave again.
    swings: u32,
}

#[derive(Clone, Debug)]
struct Out {
    to: Vec<usize>,
    since: Duration,
}

/// Decides where tasks may run; see the top of the file.
///
/// ```
/// use core::time::Duration;
/// use nearq_home::{Action, SoftAffinity, NodeLoad, Nodes, Seen, Weights};
/// use nearq_topology::Topology;
///
/// let machine = Topology::from_synthetic("numa:2 core:1")?;
/// let mut affinity = SoftAffinity::new(Nodes::of(&machine, machine.online()), Weights::default());
/// affinity.add(7, 0);
/// affinity.add(8, 0);
/// // Two tasks share the one CPU of node 0, while node 1 idles.
/// let half = |id| Seen { id, ran: Duration::from_millis(10), waited: Duration::from_millis(10), node: 0 };
/// let loads = [NodeLoad { runnable: 2000, idle: 0 }, NodeLoad { runnable: 0, idle: 1000 }];
/// affinity.step(Duration::from_millis(0), &loads, &[]);
/// let actions = affinity.step(Duration::from_millis(20), &loads, &[half(7), half(8)]);
/// assert_eq!(actions, [Action::LetOut { id: 7, to: vec![1] }]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SoftAffinity {
    nodes: Nodes,
    weights: Weights,
    tasks: BTreeMap<u64, Task>,
    last: Option<Duration>,
    busy: bool,
}

impl SoftAffinity {
    /// Without tasks.
    pub fn new(nodes: Nodes, weights: Weights) -> Self {
        SoftAffinity { nodes, weights, tasks: BTreeMap::new(), last: None, busy: false }
    }

    /// The places where tasks can be at home.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Records that a task is at home on that node and runs there: it may run only on the home's CPUs. A task that was already recorded
    /// starts over.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn add(&mut self, id: u64, home: usize) {
        assert!(home < self.nodes.len());
        self.tasks.insert(id, Task { home, out: None, came_home: None, swings: 0 });
    }

    /// Removes a task that has ended or must not be kept at home any more. Its mask stays unchanged.
    pub fn remove(&mut self, id: u64) {
        self.tasks.remove(&id);
    }

    /// Where a task is at home.
    pub fn home(&self, id: u64) -> Option<usize> {
        self.tasks.get(&id).map(|task| task.home)
    }

    /// Where a task may run while it is out.
    pub fn out(&self, id: u64) -> Option<&[usize]> {
        self.tasks.get(&id)?.out.as_ref().map(|out| &*out.to)
    }

    /// How many tasks are out.
    pub fn count_out(&self) -> usize {
        self.tasks.values().filter(|task| task.out.is_some()).count()
    }

    /// How long until the next step.
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.weights.period_ms(self.busy).into())
    }

    /// Decides by what has happened since the last step. The first step has no earlier one and decides nothing. Tasks that are not in
    /// `seen` did nothing; unknown ones are ignored.
    ///
    /// # Panics
    /// If there is not one load for each node, or a task was seen on a node that does not exist.
    pub fn step(&mut self, now: Duration, loads: &[NodeLoad], seen: &[Seen]) -> Vec<Action> {
        assert!(loads.len() == self.nodes.len());
        let Some(last) = self.last.replace(now) else { return Vec::new() };
        let period = now.saturating_sub(last);
        if period.is_zero() || self.nodes.is_single() {
            return Vec::new();
        }
        let mut view = View {
            nodes: &self.nodes,
            weights: &self.weights,
            runnable: loads.iter().map(|load| load.runnable).collect(),
            idle: loads.iter().map(|load| load.idle).collect(),
        };
        let mut wanting: Vec<Wanting> = Vec::new();
        for task in seen.iter().filter(|task| self.tasks.contains_key(&task.id)) {
            assert!(task.node < self.nodes.len());
            wanting.push(Wanting::of(task, period));
        }
        let mut actions = Vec::new();
        view.bring_home(&mut self.tasks, now, &wanting, &mut actions);
        let crowded = view.let_out(&mut self.tasks, now, &mut wanting, &mut actions);
        self.busy = crowded;
        actions
    }
}

/// `part` as a fraction of `of`, in thousandths.
///
/// ```
/// use core::time::Duration;
/// assert_eq!(nearq_home::milli(Duration::from_millis(3), Duration::from_millis(2)), 1500);
/// ```
pub fn milli(part: Duration, of: Duration) -> u32 {
    u32::try_from(part.as_nanos() * 1000 / of.as_nanos().max(1)).unwrap_or(u32::MAX)
}

/// The demand of a task in the last period, in thousandths of a CPU.
struct Wanting {
    id: u64,
    demand: u32,
    /// The part of its demand during which it waited, in thousandths.
    waiting: u32,
    node: usize,
}

impl Wanting {
    fn of(seen: &Seen, period: Duration) -> Self {
        let wanted = seen.ran + seen.waited;
        // Measured as a part of the period: a task that slept for most of the period and waited for the rest is hardly crowded.
        let waiting = milli(seen.waited, period.max(wanted));
        Wanting { id: seen.id, demand: milli(wanted, period), waiting, node: seen.node }
    }
}

/// A task that is out and could come home if there were free capacity.
struct Stray {
    id: u64,
    at: usize,
    home: usize,
    demand: u32,
}

/// The loads of the nodes, with the effects of all decisions so far.
struct View<'a> {
    nodes: &'a Nodes,
    weights: &'a Weights,
    /// By node, in thousandths.
    runnable: Vec<u32>,
    idle: Vec<u32>,
}

impl View<'_> {
    fn bring_home(
        &mut self,
        tasks: &mut BTreeMap<u64, Task>,
        now: Duration,
        wanting: &[Wanting],
        actions: &mut Vec<Action>,
    ) {
        let mut strays: Vec<(Duration, u64)> = Vec::new();
        for (id, task) in tasks.iter() {
            if let Some(out) = &task.out {
                strays.push((out.since, *id));
            }
        }
        // The task that has been out longest comes first.
        strays.sort_unstable();
        let mut blocked: Vec<Stray> = Vec::new();
        let mut back: Vec<u64> = Vec::new();
        for (since, id) in strays {
            let task = &tasks[&id];
            let stay = Duration::from_millis(self.weights.stay_ms().into()) * (1 << task.swings);
            if now.saturating_sub(since) < stay {
                continue;
            }
            let (home, to) = (task.home, task.out.as_ref().map_or(&[][..], |out| &out.to));
            let wants = wanting.iter().find(|wanting| wanting.id == id);
            let demand = wants.map_or(0, |wants| wants.demand);
            match (wants, to) {
                // The task counts as being where it may run, wherever it was seen: it may have waited since it was let out.
                (Some(wants), [at]) => {
                    let waits = wants.waiting >= self.weights.waiting();
                    if self.may_return(home, *at, demand, waits) {
                        self.moves(*at, home, demand);
                        back.push(id);
                    } else {
                        blocked.push(Stray { id, at: *at, home, demand });
                    }
                }
                // The task wants no CPU time.
                (None, _) => back.push(id),
                // The task had outgrown its home.
                _ if self.fits_alone(home, demand) => back.push(id),
                _ => {}
            }
        }
        back.extend(self.exchange(blocked));
        for id in back {
            let task = tasks.get_mut(&id).expect("it is out");
            task.out = None;
            task.came_home = Some(now);
            actions.push(Action::BringHome { id });
        }
    }

    /// Finds the strays that return together: they find no free capacity at home because strays from elsewhere use it. In the argument and
    /// in the result, the strays that have been out longest come first.
    fn exchange(&mut self, mut strays: Vec<Stray>) -> Vec<u64> {
        let mut after: Vec<i64> = self.runnable.iter().map(|load| i64::from(*load)).collect();
        for stray in &strays {
            after[stray.at] -= i64::from(stray.demand);
            after[stray.home] += i64::from(stray.demand);
        }
        // A stray that does not fit stays where it is, and another stray may then find no capacity.
        while let Some(place) = strays.iter().rposition(|stray| !self.fits(stray, &after)) {
            let stray = strays.remove(place);
            after[stray.at] += i64::from(stray.demand);
            after[stray.home] -= i64::from(stray.demand);
        }
        for stray in &strays {
            self.moves(stray.at, stray.home, stray.demand);
        }
        strays.into_iter().map(|stray| stray.id).collect()
    }

    /// Whether a stray's home, with these loads, has free capacity, or is no more crowded than the place where the stray is now.
    fn fits(&self, stray: &Stray, after: &[i64]) -> bool {
        let capacity = self.nodes.get(stray.home).capacity;
        let runnable_limit = i64::from(self.weights.runnable_limit(capacity));
        let beyond = runnable_limit - i64::from(capacity);
        let as_crowded = i64::from(self.crowd(stray.at, 0)) * i64::from(capacity) / 1000;
        after[stray.home] <= runnable_limit.max(as_crowded + beyond)
    }

    /// Lets crowded tasks out. Returns whether any task is crowded at home.
    fn let_out(
        &mut self,
        tasks: &mut BTreeMap<u64, Task>,
        now: Duration,
        wanting: &mut [Wanting],
        actions: &mut Vec<Action>,
    ) -> bool {
        let mut crowded = false;
        // Strays come first; then the task that waited most; among equals, the task that was added first.
        wanting.sort_by_key(|wanting| {
            let at_home = tasks.get(&wanting.id).is_some_and(|task| task.out.is_none());
            (at_home, core::cmp::Reverse(wanting.waiting), wanting.id)
        });
        for wants in wanting.iter() {
            let task = tasks.get_mut(&wants.id).expect("it is known");
            if wants.waiting < self.weights.waiting() {
                continue;
            }
            crowded = true;
            let Some(to) = self.better_place(task, wants, now) else { continue };
            if let [to] = *to {
                self.moves(wants.node, to, wants.demand);
            }
            let again = task.came_home.is_some_and(|then| now.saturating_sub(then) < SOON);
            if task.out.is_none() {
                task.swings = if again { (task.swings + 1).min(MOST_DOUBLED) } else { 0 };
            }
            task.out = Some(Out { to: to.clone(), since: now });
            actions.push(Action::LetOut { id: wants.id, to });
        }
        crowded
    }

    /// Tasks per CPU, in thousandths, with `more` thousandths of a task added.
    fn crowd(&self, node: usize, more: u32) -> u32 {
        let tasks = u64::from(self.runnable[node]) + u64::from(more);
        let crowd = tasks * 1000 / u64::from(self.nodes.get(node).capacity);
        u32::try_from(crowd).unwrap_or(u32::MAX)
    }

    fn has_room(&self, node: usize, demand: u32) -> bool {
        let runnable_limit = self.weights.runnable_limit(self.nodes.get(node).capacity);
        self.runnable[node].saturating_add(demand) <= runnable_limit
    }

    /// Whether a node would have enough CPUs for a task if it had no other task.
    fn fits_alone(&self, node: usize, demand: u32) -> bool {
        demand <= self.nodes.get(node).capacity
    }

    fn is_crowded(&self, node: usize) -> bool {
        self.runnable[node] > self.weights.runnable_limit(self.nodes.get(node).capacity)
    }

    /// Whether a stray may come home: there is free capacity, or it would wait there no more than it does where it is.
    fn may_return(&self, home: usize, at: usize, demand: u32, waits: bool) -> bool {
        self.has_room(home, demand) || waits && self.crowd(home, demand) <= self.crowd(at, 0)
    }

    fn moves(&mut self, from: usize, to: usize, demand: u32) {
        self.runnable[from] = self.runnable[from].saturating_sub(demand);
        self.runnable[to] = self.runnable[to].saturating_add(demand);
        self.idle[to] = self.idle[to].saturating_sub(demand.min(1000));
    }

    /// A better place for a task that waits too much, if there is one.
    fn better_place(&self, task: &Task, wants: &Wanting, now: Duration) -> Option<Vec<usize>> {
        let home = task.home;
        let mut others: Vec<usize> = (0..self.nodes.len()).filter(|node| *node != home).collect();
        others.sort_by_key(|node| (self.nodes.distance(home, *node), self.crowd(*node, 0), *node));
        if !self.fits_alone(home, wants.demand) {
            let wide = self.wide_way_out(home, wants.demand, &others)?;
            let wider = task.out.as_ref().is_none_or(|out| out.to.len() < wide.len());
            return wider.then_some(wide);
        }
        let out = task.out.as_ref();
        if task.came_home == Some(now) {
            // The last decision has had no effect yet.
            return None;
        }
        let here = if out.is_some() { wants.node } else { home };
        if !self.is_crowded(here) {
            return None;
        }
        others.retain(|node| *node != here);
        // The nearest node to its home that has a CPU of which the task could use half.
        let half = (wants.demand.min(1000) / 2).max(1);
        let idles = |node: &usize| self.idle[*node] >= half && self.has_room(*node, wants.demand);
        if let Some(node) = others.iter().copied().find(idles) {
            return Some(vec![node]);
        }
        // A stray moves on only to a place where it need not wait, or home.
        if out.is_some() {
            return None;
        }
        let crowd = self.crowd(home, 0);
        let worth = others.into_iter().filter(|node| {
            let distance = self.nodes.distance(home, *node);
            self.weights.is_worth_leaving(crowd, self.crowd(*node, wants.demand), distance)
        });
        worth.min_by_key(|node| self.crowd(*node, wants.demand)).map(|node| vec![node])
    }

    /// The home and the other nodes that idle, nearest first, until they have capacity for the task.
    fn wide_way_out(&self, home: usize, demand: u32, others: &[usize]) -> Option<Vec<usize>> {
        let mut to = vec![home];
        let mut held = self.nodes.get(home).capacity;
        for &node in others.iter().filter(|node| self.idle[**node] >= 500) {
            if held >= demand {
                break;
            }
            to.push(node);
            held = held.saturating_add(self.idle[node]);
        }
        (to.len() > 1).then_some(to)
    }
}

#[cfg(test)]
mod tests;
