//! Finds processes that should get a home on another node, because their own node has had more tasks than CPUs for half a minute, and
//! another node fewer.
//!
//! Homes are picked when programs begin, by the loads of that moment. Later some programs end, and others go on. One of the tasks of a
//! crowded node is always away, and this never ends by itself: the memory of all of them is at home, so no task follows its memory.
//! Therefore one of the processes gets another home, together with its memory, if that costs much less than staying. If all nodes are full,
//! no process moves, because another one would lose what it gains.
//!
//! Moving delays the process, and other processes too if no CPU is free, and most crowds are over soon. So nothing is done before a crowd
//! has lasted for some time. Because loads vary by chance, means of some ten samples are compared.

use std::fmt;
use std::time::Duration;

use nearq_scx_policy::layout::{NODES, Nq, UNIT};

use crate::output::{bytes, time};
use crate::remedy::milli;

/// The number of samples after which a crowd has lasted long enough.
pub(crate) const LASTING_SAMPLES: u32 = 30;
/// The cost of staying rests on three guesses: that the process will use as much CPU time again, that the crowd lasts for that time, and
/// that the process always waits for memory. So the cost is divided by this number.
const DOUBT: u32 = 8;
/// A process that was away for less of its CPU time, in thousandths, stays.
const LEAST_AWAY: u64 = 100;

/// A mean in which each sample counts for an eighth, and which begins with the first sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mean {
    samples: u32,
    /// In thousandths of the samples' unit.
    fine: u64,
}

impl Mean {
    fn add(&mut self, value: u64) {
        self.fine =
            if self.samples == 0 { value * 1000 } else { (7 * self.fine + value * 1000) / 8 };
        self.samples = self.samples.saturating_add(1);
    }

    fn value(&self) -> u64 {
        (self.fine + 500) / 1000
    }
}

/// How much of its CPU time a process was away from home, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Away(Mean);

impl Away {
    /// `part` is `None` if the process did almost nothing: then the process does not belong to a crowd.
    pub(crate) fn add(&mut self, part: Option<u64>) {
        match part {
            Some(part) => self.0.add(part),
            None => self.0 = Mean::default(),
        }
    }

    /// The mean is used because the processes of a crowd take turns being away. `None` if the process has not been on the node for long, or
    /// is almost always at home.
    pub(crate) fn for_long(&self) -> Option<u64> {
        let long = self.0.samples >= LASTING_SAMPLES;
        Some(self.0.value()).filter(|mean| long && *mean >= LEAST_AWAY)
    }
}

/// What is known of a node; tasks and CPUs in thousandths.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Tasks that are at home on the node and want a CPU.
    demand: Mean,
    capacity: u64,
    /// The number of samples in a row in which the node had more such tasks than CPUs.
    crowded: u32,
}

impl Node {
    fn excess(&self) -> u64 {
        self.demand.value().saturating_sub(self.capacity)
    }

    fn spare(&self) -> u64 {
        self.capacity.saturating_sub(self.demand.value())
    }
}

/// The demand on the nodes, by the policy's index.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crowds([Node; NODES]);

impl Crowds {
    pub(crate) fn sample(&mut self, nq: &Nq) {
        for (node, on) in self.0.iter_mut().zip(&nq.on_node) {
            node.capacity = u64::from(on.capacity) * 1000 / u64::from(UNIT);
            node.demand.add(on.demand.into());
            node.crowded = if node.excess() > 0 { node.crowded.saturating_add(1) } else { 0 };
        }
    }

    /// The better home for a process that uses this much CPU time, and by how much fewer tasks would be away then: the nearest of the best
    /// nodes. `None` if the gain is less than half of what the process uses, or if its home has not been crowded for long.
    pub(crate) fn better(
        &self,
        nq: &Nq,
        home: usize,
        uses: u64,
        may_run: impl Fn(usize) -> bool,
    ) -> Option<BetterHome> {
        let home_node = self.0.get(home).filter(|node| node.crowded >= LASTING_SAMPLES)?;
        let near = nq.node.get(home)?.near.iter().take((nq.nodes as usize).min(NODES)).skip(1);
        let mut best: Option<BetterHome> = None;
        for to in near.map(|node| *node as usize).filter(|node| may_run(*node)) {
            let node = self.0.get(to)?;
            let helps =
                home_node.excess().min(uses).saturating_sub(uses.saturating_sub(node.spare()));
            if 2 * helps >= uses.max(1) && best.is_none_or(|best| helps > best.helps) {
                let of = |node: &Node| [node.demand.value(), node.capacity];
                best = Some(BetterHome { to, helps, home: of(home_node), there: of(node) });
            }
        }
        best
    }

    /// Records that a process has moved. It counts as if it had been at its new home for long, so that not all processes move at once.
    pub(crate) fn goes(&mut self, from: usize, to: usize, uses: u64) {
        let [from, to] = [from, to].map(|node| node.min(NODES - 1));
        self.0[from].demand.fine = self.0[from].demand.fine.saturating_sub(uses * 1000);
        self.0[to].demand.fine += uses * 1000;
    }
}

/// A better home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BetterHome {
    /// The policy's index of the node.
    pub(crate) to: usize,
    /// By how much fewer tasks are away then, in thousandths.
    helps: u64,
    /// Tasks and CPUs of both nodes.
    home: [u64; 2],
    there: [u64; 2],
}

/// A process that should get another home: its `Display` says why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    pub(crate) pid: u32,
    pub(crate) better: BetterHome,
    /// The operating system's numbers of the nodes.
    pub(crate) home: u32,
    pub(crate) there: u32,
    /// CPUs that it uses, and how much of that is away, in thousandths.
    pub(crate) uses: u64,
    pub(crate) away: u64,
    /// Memory that is not on the better node.
    pub(crate) bytes: u64,
    /// The costs of moving it, and of staying.
    pub(crate) moving: Duration,
    pub(crate) staying: Duration,
}

impl Relocation {
    /// The gain that is certain; zero if moving costs more.
    pub(crate) fn gain(&self) -> Duration {
        (self.staying / DOUBT).saturating_sub(self.moving)
    }
}

impl fmt::Display for Relocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Relocation { better, home, there, .. } = self;
        if self.gain().is_zero() {
            write!(f, "stays on node {home}, which is crowded")?;
        } else {
            write!(f, "now has its home on node {there}, and its memory moves with it")?;
        }
        write!(
            f,
            ": it was away for {} % of its time; node {home} has {} tasks for {} CPUs, node {there} {} for {}; moving {} would take {}, and staying would cost {}",
            self.away / 10,
            milli(better.home[0]),
            milli(better.home[1]),
            milli(better.there[0]),
            milli(better.there[1]),
            bytes(self.bytes),
            time(self.moving.as_nanos() as u64),
            time(self.staying.as_nanos() as u64)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_topology::Topology;

    /// Nodes of two CPUs each, in a row, 10 further from one to the next.
    fn machine(demands: &[u32]) -> Box<Nq> {
        let nodes = demands.len();
        let far = |from: usize, to: usize| 10 + 10 * from.abs_diff(to) as u32;
        let rows: Vec<Vec<u32>> =
            (0..nodes).map(|from| (0..nodes).map(|to| far(from, to)).collect()).collect();
        let machine = Topology::from_synthetic(&format!("numa:{nodes} core:2")).unwrap();
        let machine = machine.with_distances(&rows).unwrap();
        let mut nq = nearq_scx_policy::describe(&machine, machine.online()).unwrap();
        for (on, demand) in nq.on_node.iter_mut().zip(demands) {
            on.demand = *demand;
        }
        nq
    }

    fn sampled(demands: &[u32]) -> (Crowds, Box<Nq>) {
        let nq = machine(demands);
        let mut crowds = Crowds::default();
        for _ in 0..LASTING_SAMPLES {
            crowds.sample(&nq);
        }
        (crowds, nq)
    }

    fn to(demands: &[u32], uses: u64) -> Option<usize> {
        let (crowds, nq) = sampled(demands);
        crowds.better(&nq, 0, uses, |_| true).map(|better| better.to)
    }

    #[test]
    fn a_process_of_a_crowded_node_moves_to_a_node_with_free_cpus() {
        assert_eq!(to(&[3000, 1000], 1000), Some(1));
        // No room; no crowd; or almost no crowd.
        assert_eq!(to(&[3000, 2000], 1000), None);
        assert_eq!(to(&[2000, 0], 1000), None);
        assert_eq!(to(&[2300, 0], 1000), None);
        // A little room is missing, but moving still helps.
        assert_eq!(to(&[3000, 1300], 1000), Some(1));
        assert_eq!(to(&[3000, 1600], 1000), None);
        // A process that uses both CPUs needs two CPUs on the other node.
        assert_eq!(to(&[4000, 100], 2000), Some(1));
        assert_eq!(to(&[4000, 1100], 2000), None);
    }

    #[test]
    fn among_equally_good_nodes_the_nearest_allowed_one_is_chosen() {
        assert_eq!(to(&[3000, 2000, 1000, 0], 1000), Some(2));
        assert_eq!(to(&[3000, 1400, 1000, 0], 1000), Some(2));
        let (crowds, nq) = sampled(&[3000, 1000, 0, 0]);
        assert_eq!(crowds.better(&nq, 0, 1000, |node| node > 1).unwrap().to, 2);
        assert_eq!(crowds.better(&nq, 0, 1000, |_| false), None);
        assert_eq!(crowds.better(&nq, 0, 0, |_| true).map(|better| better.helps), None);
    }

    #[test]
    fn only_lasting_crowds_count_and_a_brief_pause_does_not_end_one() {
        let nq = machine(&[3000, 1000]);
        let better = |crowds: &Crowds| crowds.better(&nq, 0, 1000, |_| true);
        let mut crowds = Crowds::default();
        for sample in 0..LASTING_SAMPLES {
            assert_eq!(better(&crowds), None, "after {sample}");
            crowds.sample(&nq);
        }
        assert!(better(&crowds).is_some());
        crowds.sample(&machine(&[2000, 1000]));
        assert!(better(&crowds).is_some(), "one sample does not end the crowd");
        // A process that moves takes the room.
        let mut other = crowds;
        other.goes(0, 1, 1000);
        assert_eq!(better(&other), None);
        // The crowd is over, and begins again.
        for _ in 0..30 {
            crowds.sample(&machine(&[1000, 1000]));
        }
        crowds.sample(&nq);
        assert_eq!(better(&crowds), None);
    }

    #[test]
    fn a_process_is_away_if_its_mean_over_time_is_high() {
        let mut away = Away::default();
        for sample in 0..LASTING_SAMPLES {
            assert_eq!(away.for_long(), None, "after {sample}");
            away.add(Some(if sample % 2 == 0 { 900 } else { 0 }));
        }
        assert!(away.for_long().is_some_and(|mean| (350..550).contains(&mean)), "{away:?}");
        for _ in 0..20 {
            away.add(Some(50));
        }
        assert_eq!(away.for_long(), None, "too little");
        away.add(None);
        away.add(Some(1000));
        assert_eq!(away.for_long(), None, "the process rested");
    }

    #[test]
    fn a_relocation_gives_its_reason() {
        let (crowds, nq) = sampled(&[3000, 1000]);
        let one = Relocation {
            pid: 7,
            better: crowds.better(&nq, 0, 1000, |_| true).unwrap(),
            home: 0,
            there: 2,
            uses: 1000,
            away: 330,
            bytes: 8 << 20,
            moving: Duration::from_millis(12),
            staying: Duration::from_millis(500),
        };
        assert_eq!(
            one.to_string(),
            "now has its home on node 2, and its memory moves with it: it was away for 33 % of its time; \
             node 0 has 3.0 tasks for 2.0 CPUs, node 2 1.0 for 2.0; moving 8 MiB would take 12ms, and staying would cost 500ms"
        );
        // A small gain is not worth a move.
        let heavy = Relocation { moving: Duration::from_millis(70), ..one };
        assert!(heavy.to_string().starts_with("stays on node 0, which is crowded: it was away"));
    }
}
