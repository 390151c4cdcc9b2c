//! A task's own account of where it ran: it looks now and then at the clocks and at its node, and charges the CPU time since the
//! last look to that node.
//!
//! A task is *at home* on the node that has most of its memory, which may be moved: that is looked at when it has been touched, and each second
//! from then on. It is *displaced* from the first look that finds it elsewhere to the first one that finds it back, or its memory where it is.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Times are charged to slots of the run of this length.
pub(super) const SLOT: Duration = Duration::from_millis(100);

/// What a task has to say in the end. Nodes are indices; times are nanoseconds, those of the clock since the run began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Told {
    /// The node on which it started.
    pub(super) first: usize,
    /// The node that had most of its memory when that was looked at last.
    pub(super) home: usize,
    /// CPU time by node.
    pub(super) by_node: Vec<u64>,
    /// Pages by node, in the end.
    pub(super) memory: Vec<u64>,
    /// How often it was on another node than at the look before.
    pub(super) crossings: u64,
    /// How long it was displaced each time, until it was back.
    pub(super) returns: Vec<u64>,
    /// Whether it was displaced in the end.
    pub(super) stray: bool,
    /// CPU time at home and away by slot of the run, since its memory was touched.
    pub(super) slots: Vec<[u64; 2]>,
    /// CPU time in user mode, and in the kernel where that is told apart.
    pub(super) user: u64,
    /// See `user`.
    pub(super) system: Option<u64>,
    /// Why the kernel refused the memory policy, if it did.
    pub(super) refused: Option<String>,
}

impl Told {
    /// All CPU time that it accounts for.
    pub(super) fn cpu_time(&self) -> u64 {
        self.by_node.iter().sum()
    }

    /// The node on which it had most CPU time; the first of several.
    pub(super) fn most(&self) -> usize {
        let most = self.by_node.iter().copied().max().unwrap_or(0);
        self.by_node.iter().position(|time| *time == most).unwrap_or(0)
    }

    /// CPU time at home and away within a part of the run, by whole slots.
    pub(super) fn within(&self, from: Duration, to: Duration) -> [u64; 2] {
        let slot = |time: Duration| (time.as_nanos() / SLOT.as_nanos()) as usize;
        let end = slot(to).min(self.slots.len());
        let mut sum = [0; 2];
        for [home, away] in &self.slots[slot(from).min(end)..end] {
            sum[0] += home;
            sum[1] += away;
        }
        sum
    }
}

/// The account while the task runs.
#[derive(Debug)]
pub(super) struct Account {
    told: Told,
    node: usize,
    cpu_time: Duration,
    settled: bool,
    away_since: Option<Duration>,
}

impl Account {
    /// Of a task that has used so much CPU time and is on a node now, one of `nodes`.
    pub(super) fn open(nodes: usize, node: usize, cpu_time: Duration) -> Self {
        let by_node = vec![0; nodes];
        let told = Told { first: node, home: node, by_node, ..Told::default() };
        Account { told, node, cpu_time, settled: false, away_since: None }
    }

    /// Its memory is touched, so many pages on each node: its home is where most are, and where it was if that has as many.
    pub(super) fn settle(&mut self, pages: &[u64]) {
        let of_home = if self.settled { pages.get(self.told.home) } else { None };
        let most = pages.iter().copied().max().unwrap_or(0);
        if most > of_home.copied().unwrap_or(0)
            && let Some(home) = pages.iter().position(|count| *count == most)
        {
            self.told.home = home;
        }
        self.settled = true;
    }

    /// A look: at the time of the run, with so much CPU time used, on a node.
    pub(super) fn look(&mut self, now: Duration, cpu_time: Duration, node: usize) {
        let used = cpu_time.saturating_sub(self.cpu_time).as_nanos() as u64;
        self.cpu_time = self.cpu_time.max(cpu_time);
        self.told.by_node[node] += used;
        if node != self.node {
            self.told.crossings += 1;
            self.node = node;
        }
        if !self.settled {
            return;
        }
        let away = node != self.told.home;
        let slot = (now.as_nanos() / SLOT.as_nanos()) as usize;
        if self.told.slots.len() <= slot {
            self.told.slots.resize(slot + 1, [0; 2]);
        }
        self.told.slots[slot][usize::from(away)] += used;
        match self.away_since {
            None if away => self.away_since = Some(now),
            Some(since) if !away => {
                self.told.returns.push(now.saturating_sub(since).as_nanos() as u64);
                self.away_since = None;
            }
            _ => {}
        }
    }

    /// The end: with what the system says of its times and its memory.
    pub(super) fn close(
        mut self,
        user: Duration,
        system: Option<Duration>,
        memory: Vec<u64>,
    ) -> Told {
        self.told.user = user.as_nanos() as u64;
        self.told.system = system.map(|system| system.as_nanos() as u64);
        self.told.memory = memory;
        self.told.stray = self.away_since.is_some();
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn who_is_away_is_home_again_when_its_memory_has_come() {
        let mut account = Account::open(2, 0, Duration::ZERO);
        account.settle(&[10, 2]);
        account.look(50 * MS, 50 * MS, 1);
        account.settle(&[6, 6]);
        account.look(60 * MS, 60 * MS, 1);
        account.settle(&[5, 7]);
        account.look(100 * MS, 100 * MS, 1);
        account.settle(&[0, 0]);
        let told = account.close(100 * MS, None, vec![0, 12]);
        assert_eq!((told.home, told.stray, told.crossings), (1, false, 1));
        assert_eq!(told.returns, [50_000_000]);
        assert_eq!(told.slots, [[0, 60_000_000], [40_000_000, 0]]);
    }

    #[test]
    fn time_is_charged_to_the_node_of_the_look_and_to_its_slot() {
        let mut account = Account::open(3, 1, 5 * MS);
        account.look(10 * MS, 8 * MS, 1);
        account.settle(&[10, 20, 20]);
        for (at, cpu, node) in
            [(50, 40, 1), (120, 60, 2), (180, 70, 0), (350, 100, 1), (390, 110, 2)]
        {
            account.look(at * MS, cpu * MS, node);
        }
        let told = account.close(100 * MS, None, vec![0, 1, 2]);
        let ms = |time: u64| time / 1_000_000;
        assert_eq!(told.by_node.iter().copied().map(ms).collect::<Vec<_>>(), [10, 65, 30]);
        assert_eq!((told.first, told.home, told.most(), told.crossings), (1, 1, 1, 4));
        assert_eq!(told.returns.iter().copied().map(ms).collect::<Vec<_>>(), [230]);
        assert!(told.stray);
        let within = |from, to| told.within(from * MS, to * MS).map(ms);
        assert_eq!(within(0, 100), [32, 0], "what came before it was settled is left out");
        assert_eq!(within(100, 200), [0, 30]);
        assert_eq!(within(0, 10_000), [62, 40]);
        assert_eq!(within(9_000, 10_000), [0, 0]);
        assert_eq!(ms(told.cpu_time()), 105);
    }
}
