//! A task that walks over memory at random, and its own account of where it ran.

use serde::{Deserialize, Serialize};
use std::time::Duration;

// The task of numa_test: `a[ix[i]] += b[i]` over random places, then `b[k] = a[k]`, again and again.
//
// Rewritten from what is known about `randupdt` (E. Focht, 2001): one allocation of 20 bytes for each element, two arrays of
// doubles and one of indices; in each pass every element of `b` is added to a random element of `a`, and then `b` becomes a copy
// of `a`. The task reads its clocks every 20,000 updates, and checks where its memory is each second.

/// Bytes of an element: two doubles and an index.
pub(super) const ELEMENT: usize = 20;
/// Updates between two readings.
const UPDATES: usize = 20_000;
/// How often it checks where its memory is.
const PERIOD: Duration = Duration::from_secs(1);

/// How long a task works.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Until {
    /// For that many passes.
    Passes(usize),
    /// Until that many nanoseconds after the run began.
    Time(u64),
}

/// What a task works on, and where.
pub(super) trait Memory {
    /// Touches all memory for the first time: `a` is zero, `b` counts, `ix` is random.
    fn touch(&mut self);
    /// Updates by the elements from `from` to below `to`.
    fn update(&mut self, from: usize, to: usize);
    /// `b` becomes a copy of `a`.
    fn copy(&mut self);
    /// Pages by node.
    fn pages(&self) -> Vec<u64>;
    /// The time of the run.
    fn now(&self) -> Duration;
    /// CPU time that the task has used.
    fn cpu_time(&self) -> Duration;
    /// The node that it is on.
    fn node(&self) -> usize;
    /// CPU time in user mode, and in the kernel.
    fn user_and_system(&self) -> (Duration, Duration);
}

/// Works; `settled` is called when the memory is touched.
pub(super) fn work(
    memory: &mut impl Memory,
    nodes: usize,
    elements: usize,
    until: Until,
    settled: impl FnOnce(),
) -> TaskReport {
    let mut account = Account::open(nodes, memory.node(), memory.cpu_time());
    memory.touch();
    account.record(memory.now(), memory.cpu_time(), memory.node());
    account.settle(&memory.pages());
    let mut recorded = memory.now();
    settled();
    let mut passes = 0;
    let over = |passes: usize, now: Duration| match until {
        Until::Passes(all) => passes >= all,
        Until::Time(end) => now.as_nanos() >= u128::from(end),
    };
    'passes: while !over(passes, memory.now()) {
        let mut at = 0;
        while at < elements {
            let end = elements.min(at + UPDATES);
            memory.update(at, end);
            at = end;
            let now = memory.now();
            account.record(now, memory.cpu_time(), memory.node());
            if matches!(until, Until::Time(_)) && over(passes, now) {
                break 'passes;
            }
            if now.saturating_sub(recorded) >= PERIOD {
                recorded = now;
                account.settle(&memory.pages());
            }
        }
        memory.copy();
        account.record(memory.now(), memory.cpu_time(), memory.node());
        passes += 1;
    }
    let (user, system) = memory.user_and_system();
    account.close(user, system, memory.pages())
}

// A task's own account of where it ran: from time to time it reads the clocks and its node, and charges the CPU time since the
// last reading to that node.
//
// A task is *at home* on the node that has most of its memory. The memory may be moved, so this node is determined when the memory has been
// touched, and each second from then on. The task is *displaced* from the first reading that finds it on another node to the first reading
// that finds it at home again, because it has come back or its memory has followed.

/// Times are charged to slots of the run of this length.
pub(super) const SLOT: Duration = Duration::from_millis(100);

/// What a task reports at the end. Nodes are indices; times are nanoseconds, those of the clock since the run began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct TaskReport {
    /// The node on which it started.
    pub(super) first: usize,
    /// The node that had most of its memory when that was last checked.
    pub(super) home: usize,
    /// CPU time by node.
    pub(super) by_node: Vec<u64>,
    /// Pages by node, in the end.
    pub(super) memory: Vec<u64>,
    /// How often it was on a different node than at the reading before.
    pub(super) crossings: u64,
    /// How long it was displaced each time, until it was back.
    pub(super) returns: Vec<u64>,
    /// Whether it was displaced in the end.
    pub(super) stray: bool,
    /// CPU time at home and away by slot of the run, since its memory was touched.
    pub(super) slots: Vec<[u64; 2]>,
    /// CPU time in user mode, and in the kernel.
    pub(super) user: u64,
    /// See `user`.
    pub(super) system: u64,
    /// Why the kernel refused the memory policy, if it did.
    pub(super) refused: Option<String>,
}

impl TaskReport {
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
    report: TaskReport,
    node: usize,
    cpu_time: Duration,
    settled: bool,
    away_since: Option<Duration>,
}

impl Account {
    /// The account of a task that has used that much CPU time and is now on node `node` of `nodes`.
    pub(super) fn open(nodes: usize, node: usize, cpu_time: Duration) -> Self {
        let by_node = vec![0; nodes];
        let report = TaskReport { first: node, home: node, by_node, ..TaskReport::default() };
        Account { report, node, cpu_time, settled: false, away_since: None }
    }

    /// Records that its memory is touched, with that many pages on each node: its home is the node with most pages, and stays where it was
    /// if that node has as many.
    pub(super) fn settle(&mut self, pages: &[u64]) {
        let of_home = if self.settled { pages.get(self.report.home) } else { None };
        let most = pages.iter().copied().max().unwrap_or(0);
        if most > of_home.copied().unwrap_or(0)
            && let Some(home) = pages.iter().position(|count| *count == most)
        {
            self.report.home = home;
        }
        self.settled = true;
    }

    /// A reading: at that time of the run, with that much CPU time used, on that node.
    pub(super) fn record(&mut self, now: Duration, cpu_time: Duration, node: usize) {
        let used = cpu_time.saturating_sub(self.cpu_time).as_nanos() as u64;
        self.cpu_time = self.cpu_time.max(cpu_time);
        self.report.by_node[node] += used;
        if node != self.node {
            self.report.crossings += 1;
            self.node = node;
        }
        if !self.settled {
            return;
        }
        let away = node != self.report.home;
        let slot = (now.as_nanos() / SLOT.as_nanos()) as usize;
        if self.report.slots.len() <= slot {
            self.report.slots.resize(slot + 1, [0; 2]);
        }
        self.report.slots[slot][usize::from(away)] += used;
        match self.away_since {
            None if away => self.away_since = Some(now),
            Some(since) if !away => {
                self.report.returns.push(now.saturating_sub(since).as_nanos() as u64);
                self.away_since = None;
            }
            _ => {}
        }
    }

    /// The end: with what the system says about its times and its memory.
    pub(super) fn close(
        mut self,
        user: Duration,
        system: Duration,
        memory: Vec<u64>,
    ) -> TaskReport {
        self.report.user = user.as_nanos() as u64;
        self.report.system = system.as_nanos() as u64;
        self.report.memory = memory;
        self.report.stray = self.away_since.is_some();
        self.report
    }
}

#[cfg(test)]
#[path = "tests/account.rs"]
mod account_tests;
