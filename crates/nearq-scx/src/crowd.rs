//! Who had better be at home on another node, as his own has had more tasks than CPUs for a while, and another one fewer.
//!
//! Homes are picked when programs begin, by the loads of that moment; then some end, and others go on. Of the tasks of a crowded node
//! one is always away, and that never ends by itself: the memory of all of them is at home, so none follows its memory. Therefore one of
//! them gets another home and its memory comes with it, if that costs much less than to stay. Where all nodes are full nobody goes:
//! what he gained another one would lose.
//!
//! Loads are chance in part: only what was so at both of the last looks counts.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use nearq_scx_policy::layout::{NODES, Nq, UNIT};

use crate::output::{bytes, time};
use crate::remedy::milli;

/// So many.
pub(crate) const LOOKS: usize = 2;
/// What staying costs is a guess thrice: that it will use as much CPU time again, that others crowd it as long as that, and that it waits for
/// memory all the time. So only this part of it counts.
const DOUBT: u32 = 8;
/// Who was away for less of its CPU time stays, in thousandths.
const LEAST_AWAY: u64 = 100;

/// How much of its CPU time a process was away from home between the last looks, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Away([Option<u64>; LOOKS]);

impl Away {
    /// None if it did next to nothing.
    pub(crate) fn look(&mut self, part: Option<u64>) {
        self.0.rotate_left(1);
        self.0[LOOKS - 1] = part;
    }

    /// The mean of them, as those of a crowd are away in turn; none if it rested, or was at home but for a little.
    pub(crate) fn for_long(&self) -> Option<u64> {
        let sum = self.0.into_iter().sum::<Option<u64>>()?;
        Some(sum / LOOKS as u64).filter(|mean| *mean >= LEAST_AWAY)
    }
}

/// CPUs that the tasks want which are at home on a node, and that it has, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    demand: u64,
    capacity: u64,
}

/// What the nodes had to do at the last looks, by the policy's index of nodes.
#[derive(Debug, Default)]
pub(crate) struct Crowds {
    seen: VecDeque<[Work; NODES]>,
}

impl Crowds {
    pub(crate) fn look(&mut self, nq: &Nq) {
        let work = |node: usize| {
            let on = &nq.on_node[node];
            let capacity = u64::from(on.capacity) * 1000 / u64::from(UNIT);
            Work { demand: on.demand.into(), capacity }
        };
        if self.seen.len() == LOOKS {
            self.seen.pop_front();
        }
        self.seen.push_back(std::array::from_fn(work));
    }

    /// The least of something at the last looks; nothing is known before there were enough.
    fn least(&self, node: usize, of: impl Fn(&Work) -> u64) -> u64 {
        let enough = self.seen.len() == LOOKS;
        let all = self.seen.iter().filter_map(|nodes| nodes.get(node));
        all.map(of).min().filter(|_| enough).unwrap_or(0)
    }

    /// Where a process had better be at home that uses so much of CPUs, and by how much fewer tasks would be away then: the
    /// nearest of the best nodes. None if it would be no better than half of what it uses.
    pub(crate) fn better(
        &self,
        nq: &Nq,
        home: usize,
        uses: u64,
        may_run: impl Fn(usize) -> bool,
    ) -> Option<Better> {
        let excess = self.least(home, |work| work.demand.saturating_sub(work.capacity));
        let near = nq.node.get(home)?.near.iter().take((nq.nodes as usize).min(NODES)).skip(1);
        let mut best: Option<Better> = None;
        for to in near.map(|node| *node as usize).filter(|node| may_run(*node)) {
            let room = self.least(to, |work| work.capacity.saturating_sub(work.demand));
            let helps = excess.min(uses).saturating_sub(uses.saturating_sub(room));
            if 2 * helps >= uses.max(1) && best.is_none_or(|best| helps > best.helps) {
                let last = |node: usize| self.seen.back().map_or(0, |nodes| nodes[node].demand);
                let capacity = |node: usize| self.least(node, |work| work.capacity);
                best = Some(Better {
                    to,
                    helps,
                    home: [last(home), capacity(home)],
                    there: [last(to), capacity(to)],
                });
            }
        }
        best
    }

    /// A process has gone: as if it had been there at all looks, so that not all go at once.
    pub(crate) fn goes(&mut self, from: usize, to: usize, uses: u64) {
        for nodes in &mut self.seen {
            nodes[from].demand = nodes[from].demand.saturating_sub(uses);
            nodes[to].demand += uses;
        }
    }
}

/// A better home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Better {
    /// The policy's index of the node.
    pub(crate) to: usize,
    /// By how much fewer tasks are away then, in thousandths.
    helps: u64,
    /// Tasks and CPUs of both nodes.
    home: [u64; 2],
    there: [u64; 2],
}

/// A process that had better be at home elsewhere: its `Display` says why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    pub(crate) pid: u32,
    pub(crate) better: Better,
    /// The operating system's numbers of the nodes.
    pub(crate) home: u32,
    pub(crate) there: u32,
    /// CPUs that it uses, and how much of that is away, in thousandths.
    pub(crate) uses: u64,
    pub(crate) away: u64,
    /// Memory that is not there.
    pub(crate) bytes: u64,
    /// What moving it costs, and what being away does.
    pub(crate) moving: Duration,
    pub(crate) staying: Duration,
}

impl Relocation {
    /// What is gained for certain; nothing where moving costs more.
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
            write!(f, "has its home on node {there} now, and its memory comes with it")?;
        }
        write!(
            f,
            ": it was away for {} % of its time; node {home} has {} tasks for {} CPUs, node {there} {} for {}; moving {} would take {}, and staying costs {}",
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

    fn looked(demands: &[u32]) -> (Crowds, Box<Nq>) {
        let nq = machine(demands);
        let mut crowds = Crowds::default();
        for _ in 0..LOOKS {
            crowds.look(&nq);
        }
        (crowds, nq)
    }

    fn to(demands: &[u32], uses: u64) -> Option<usize> {
        let (crowds, nq) = looked(demands);
        crowds.better(&nq, 0, uses, |_| true).map(|better| better.to)
    }

    #[test]
    fn one_of_a_crowded_node_goes_where_there_is_room() {
        assert_eq!(to(&[3000, 1000], 1000), Some(1));
        // No room, no crowd, or next to none.
        assert_eq!(to(&[3000, 2000], 1000), None);
        assert_eq!(to(&[2000, 0], 1000), None);
        assert_eq!(to(&[2300, 0], 1000), None);
        // A little is missing: it helps all the same.
        assert_eq!(to(&[3000, 1300], 1000), Some(1));
        assert_eq!(to(&[3000, 1600], 1000), None);
        // One that uses both CPUs needs both there.
        assert_eq!(to(&[4000, 100], 2000), Some(1));
        assert_eq!(to(&[4000, 1100], 2000), None);
    }

    #[test]
    fn the_nearest_of_those_that_help_as_much_and_one_that_it_may_use() {
        assert_eq!(to(&[3000, 2000, 1000, 0], 1000), Some(2));
        assert_eq!(to(&[3000, 1400, 1000, 0], 1000), Some(2));
        let (crowds, nq) = looked(&[3000, 1000, 0, 0]);
        assert_eq!(crowds.better(&nq, 0, 1000, |node| node > 1).unwrap().to, 2);
        assert_eq!(crowds.better(&nq, 0, 1000, |_| false), None);
        assert_eq!(crowds.better(&nq, 0, 0, |_| true).map(|better| better.helps), None);
    }

    #[test]
    fn what_was_not_so_at_every_look_does_not_count() {
        let (mut crowds, nq) = looked(&[3000, 1000]);
        crowds.look(&machine(&[2000, 1000]));
        for _ in 1..LOOKS {
            crowds.look(&nq);
            assert_eq!(crowds.better(&nq, 0, 1000, |_| true), None);
        }
        crowds.look(&nq);
        assert!(crowds.better(&nq, 0, 1000, |_| true).is_some());
        // Who goes takes the room.
        crowds.goes(0, 1, 1000);
        assert_eq!(crowds.better(&nq, 0, 1000, |_| true), None);
        let mut fresh = Crowds::default();
        fresh.look(&nq);
        assert_eq!(fresh.better(&nq, 0, 1000, |_| true), None);
    }

    #[test]
    fn away_is_who_was_between_all_looks_in_the_mean() {
        let mut away = Away::default();
        away.look(Some(900));
        assert_eq!(away.for_long(), None, "only one look yet");
        away.look(Some(0));
        assert_eq!(away.for_long(), Some(450));
        away.look(Some(199));
        assert_eq!(away.for_long(), None, "too little");
        away.look(None);
        away.look(Some(1000));
        assert_eq!(away.for_long(), None, "it rested");
    }

    #[test]
    fn it_says_why() {
        let (crowds, nq) = looked(&[3000, 1000]);
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
            "has its home on node 2 now, and its memory comes with it: it was away for 33 % of its time; \
             node 0 has 3.0 tasks for 2.0 CPUs, node 2 1.0 for 2.0; moving 8 MiB would take 12ms, and staying costs 500ms"
        );
        // What is not much is not worth it.
        let heavy = Relocation { moving: Duration::from_millis(70), ..one };
        assert!(heavy.to_string().starts_with("stays on node 0, which is crowded: it was away"));
    }
}
