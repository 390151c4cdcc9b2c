//! Whether a home should move: it follows the task's memory and CPU time if these are mostly on another node and stay there.
//!
//! The 2003 document leaves the question to "some other scheme based on an RSS/node measure"; Focht's patch for 2.5.39 took the node with
//! most pages each time a CPU wanted to steal the task. Here pages count most and CPU time a little. Another node must be better by a
//! margin, twice in a row, and a home moves at most once per interval, because each move costs what the task had in its caches.

use core::fmt;
use core::time::Duration;

use crate::{Nodes, Weights};

/// What was learned about a task since it was last considered, by index of [`Nodes`]; nodes beyond the end have nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Pages, or samples of them.
    pub pages: Vec<u64>,
    /// CPU time.
    pub cpu_time: Vec<Duration>,
}

/// Decides over time where a task should be at home.
///
/// ```
/// use core::time::Duration;
/// use nearq_home::{Evidence, HomeMigration, Nodes, Verdict, Weights};
/// use nearq_topology::Topology;
///
/// let machine = Topology::from_synthetic("numa:2 core:2")?;
/// let (nodes, weights) = (Nodes::of(&machine, machine.online()), Weights::default());
/// let mut migration = HomeMigration::new(0, Duration::ZERO);
/// let elsewhere = Evidence { pages: vec![10, 90], cpu_time: Vec::new() };
/// let at = Duration::from_secs;
/// assert!(matches!(migration.consider(at(2), &elsewhere, &nodes, &weights), Verdict::Stay(_)));
/// let Verdict::Move { to, why } = migration.consider(at(3), &elsewhere, &nodes, &weights) else { panic!() };
/// assert_eq!((to, why.to_string().contains("90 % of its memory")), (1, true));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct HomeMigration {
    home: usize,
    moved: Duration,
    /// The node that was better when it was last considered.
    better: Option<usize>,
}

/// What must be done with a home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays.
    Stay(VerdictReason),
    /// The home is another node from now on.
    Move {
        /// The index of the new one.
        to: usize,
        /// Why.
        why: VerdictReason,
    },
}

/// Why a home is where it is; its `Display` is a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerdictReason {
    /// There is only one node.
    OneNode,
    /// There is no memory and no CPU time to judge by.
    Unknown {
        /// The home's number.
        home: usize,
    },
    /// No other node has more of the task.
    Best {
        /// The share at home.
        home: Share,
    },
    /// Another node has more, but not by the margin.
    NotWorthIt {
        /// The share at home.
        home: Share,
        /// The share on the other node.
        other: Share,
    },
    /// Another node has much more, for the first time.
    Once {
        /// The share at home.
        home: Share,
        /// The share on the other node.
        other: Share,
    },
    /// Another node has much more, but the last move was too recent.
    TooSoon {
        /// The share at home.
        home: Share,
        /// The share on the other node.
        other: Share,
        /// How much longer the home must stay.
        left: Duration,
    },
    /// Another node has much more for the second time in a row: the home moves.
    Better {
        /// The share at the old home.
        home: Share,
        /// The share on the other node.
        other: Share,
    },
}

/// The share of a task that is on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The node's number.
    pub node: usize,
    /// Thousandths of its memory; `None` if nothing is known about its memory.
    pub memory: Option<u32>,
    /// Thousandths of its CPU time; `None` if it had none.
    pub cpu_time: Option<u32>,
}

impl HomeMigration {
    /// For a task that has been at home on the node since `now`.
    pub fn new(home: usize, now: Duration) -> Self {
        HomeMigration { home, moved: now, better: None }
    }

    /// Where it is at home.
    pub fn home(&self) -> usize {
        self.home
    }

    /// Records that the task is at home on that node from now on, because its home was set.
    pub fn set(&mut self, home: usize, now: Duration) {
        *self = HomeMigration::new(home, now);
    }

    /// Considers the new evidence, and decides. A move counts as done when this returns it.
    pub fn consider(
        &mut self,
        now: Duration,
        evidence: &Evidence,
        nodes: &Nodes,
        weights: &Weights,
    ) -> Verdict {
        if nodes.is_single() {
            return Verdict::Stay(VerdictReason::OneNode);
        }
        let shares = Shares::of(evidence, nodes);
        let score = |index: usize| shares.score(index, weights);
        let home = shares.share(self.home);
        if shares.pages == 0 && shares.nanos == 0 {
            return Verdict::Stay(VerdictReason::Unknown { home: home.node });
        }
        // The first of the best nodes, or the home if it is one of them.
        let best = (0..nodes.len())
            .fold(self.home, |best, index| if score(index) > score(best) { index } else { best });
        let other = shares.share(best);
        let before = core::mem::take(&mut self.better);
        if best == self.home {
            return Verdict::Stay(VerdictReason::Best { home });
        }
        if score(best) < score(self.home) + u64::from(weights.move_margin()) {
            return Verdict::Stay(VerdictReason::NotWorthIt { home, other });
        }
        self.better = Some(best);
        if before != Some(best) {
            return Verdict::Stay(VerdictReason::Once { home, other });
        }
        let interval = Duration::from_millis(weights.move_interval_ms().into());
        let left = interval.saturating_sub(now.saturating_sub(self.moved));
        if !left.is_zero() {
            return Verdict::Stay(VerdictReason::TooSoon { home, other, left });
        }
        self.set(best, now);
        Verdict::Move { to: best, why: VerdictReason::Better { home, other } }
    }
}

/// The evidence, and its sums.
struct Shares<'a> {
    evidence: &'a Evidence,
    nodes: &'a Nodes,
    pages: u64,
    nanos: u128,
}

impl<'a> Shares<'a> {
    fn of(evidence: &'a Evidence, nodes: &'a Nodes) -> Self {
        let pages = evidence.pages.iter().take(nodes.len()).sum();
        let nanos = evidence.cpu_time.iter().take(nodes.len()).map(Duration::as_nanos).sum();
        Shares { evidence, nodes, pages, nanos }
    }

    fn share(&self, index: usize) -> Share {
        let milli = |part: u128, all: u128| (all > 0).then(|| (part * 1000 / all) as u32);
        let pages = self.evidence.pages.get(index).copied().unwrap_or_default();
        let time = self.evidence.cpu_time.get(index).copied().unwrap_or_default();
        Share {
            node: self.nodes.get(index).id,
            memory: milli(pages.into(), self.pages.into()),
            cpu_time: milli(time.as_nanos(), self.nanos),
        }
    }

    /// The value of a node for the task, in thousandths of the value of all its memory.
    fn score(&self, index: usize, weights: &Weights) -> u64 {
        let share = self.share(index);
        let time = u64::from(share.cpu_time.unwrap_or(0)) * u64::from(weights.move_time()) / 1000;
        u64::from(share.memory.unwrap_or(0)) + time
    }
}

impl VerdictReason {
    /// Whether the reason is that the home cannot be anywhere else.
    pub fn is_one_node(&self) -> bool {
        *self == VerdictReason::OneNode
    }
}

impl fmt::Display for Share {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |milli: u32| (milli + 5) / 10;
        match (self.memory, self.cpu_time) {
            (Some(memory), Some(time)) => write!(
                out,
                "{} % of its memory and {} % of its CPU time",
                percent(memory),
                percent(time)
            ),
            (Some(memory), None) => write!(out, "{} % of its memory", percent(memory)),
            (None, Some(time)) => write!(out, "{} % of its CPU time", percent(time)),
            (None, None) => write!(out, "nothing of it"),
        }?;
        write!(out, " on node {}", self.node)
    }
}

impl fmt::Display for VerdictReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VerdictReason::OneNode => {
                write!(
                    out,
                    "there is one node: everything is at home, and nothing has to be placed"
                )
            }
            VerdictReason::Unknown { home } => {
                write!(out, "stays on node {home}: it has no memory and no CPU time to judge by")
            }
            VerdictReason::Best { home } => {
                write!(out, "stays on node {}: {home}, no other has more", home.node)
            }
            VerdictReason::NotWorthIt { home, other } => {
                write!(
                    out,
                    "stays on node {}: {home}, {other}; the difference is too small for a move",
                    home.node
                )
            }
            VerdictReason::Once { home, other } => {
                write!(
                    out,
                    "stays on node {} until a second check finds the same: {home}, {other}",
                    home.node
                )
            }
            VerdictReason::TooSoon { home, other, left } => write!(
                out,
                "stays on node {} for {} ms more, after its last move: {home}, {other}",
                home.node,
                left.as_millis()
            ),
            VerdictReason::Better { home, other } => {
                write!(out, "moved from node {} to node {}: {home}, {other}", home.node, other.node)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_topology::Topology;
    use proptest::prelude::*;

    fn nodes() -> Nodes {
        let machine = Topology::from_synthetic("numa:3 core:2").unwrap();
        Nodes::of(&machine, machine.online())
    }

    fn evidence(pages: [u64; 3], millis: [u64; 3]) -> Evidence {
        Evidence { pages: pages.into(), cpu_time: millis.map(Duration::from_millis).into() }
    }

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_home_moves_to_its_memory_when_seen_there_twice() {
        let (nodes, weights) = (nodes(), Weights::default());
        let mut migration = HomeMigration::new(0, at(0));
        // The task always runs at home, but that does not keep the home there.
        let there = evidence([100, 0, 900], [1000, 0, 0]);
        let first = migration.consider(at(5000), &there, &nodes, &weights);
        assert!(matches!(first, Verdict::Stay(VerdictReason::Once { .. })), "{first:?}");
        let second = migration.consider(at(5100), &there, &nodes, &weights);
        assert!(matches!(second, Verdict::Move { to: 2, .. }), "{second:?}");
        assert_eq!(migration.home(), 2);
        let third = migration.consider(at(5200), &there, &nodes, &weights);
        assert!(matches!(third, Verdict::Stay(VerdictReason::Best { .. })), "{third:?}");
    }

    #[test]
    fn a_home_moves_once_an_interval_and_only_for_enough_gain() {
        let (nodes, weights) = (nodes(), Weights::default());
        let mut migration = HomeMigration::new(0, at(0));
        let little = evidence([400, 600, 0], [0, 0, 0]);
        for now in [2000, 3000, 4000] {
            let verdict = migration.consider(at(now), &little, &nodes, &weights);
            assert!(
                matches!(verdict, Verdict::Stay(VerdictReason::NotWorthIt { .. })),
                "{verdict:?}"
            );
        }
        let (second, first) = (evidence([0, 1, 0], [0; 3]), evidence([1, 0, 0], [0; 3]));
        let mut moves = Vec::new();
        for now in (5000..10_000).step_by(100) {
            let there = if migration.home() == 0 { &second } else { &first };
            if let Verdict::Move { .. } = migration.consider(at(now), there, &nodes, &weights) {
                moves.push(now);
            }
        }
        assert!(moves.len() >= 4 && moves.windows(2).all(|pair| pair[1] - pair[0] >= 1000));
    }

    #[test]
    fn without_memory_a_home_follows_the_cpu_time_if_worth_more() {
        let nodes = nodes();
        let mut weights = Weights::default();
        let time = evidence([0; 3], [100, 900, 0]);
        let mut migration = HomeMigration::new(0, at(0));
        for now in [2000, 3000] {
            let verdict = migration.consider(at(now), &time, &nodes, &weights);
            assert!(
                matches!(verdict, Verdict::Stay(VerdictReason::NotWorthIt { .. })),
                "{verdict:?}"
            );
        }
        weights.set("move_time", 1000).unwrap();
        migration.consider(at(4000), &time, &nodes, &weights);
        let verdict = migration.consider(at(5000), &time, &nodes, &weights);
        assert!(matches!(verdict, Verdict::Move { to: 1, .. }), "{verdict:?}");
        let nothing = migration.consider(at(9000), &Evidence::default(), &nodes, &weights);
        assert_eq!(nothing, Verdict::Stay(VerdictReason::Unknown { home: 1 }));
    }

    #[test]
    fn on_one_node_the_verdict_says_so() {
        let machine = Topology::from_synthetic("core:2").unwrap();
        let nodes = Nodes::of(&machine, machine.online());
        let mut migration = HomeMigration::new(0, at(0));
        let verdict =
            migration.consider(at(1), &evidence([1; 3], [1; 3]), &nodes, &Weights::default());
        let Verdict::Stay(why) = verdict else { panic!("{verdict:?}") };
        assert!(why.is_one_node() && why.to_string().contains("one node"), "{why}");
    }

    proptest! {
        /// With any evidence, the home is where the last verdict says, moves no more often than allowed, and never moves for less than the
        /// margin.
        #[test]
        fn a_home_never_moves_too_often_or_for_too_little(
            steps in prop::collection::vec((0_u64..500, [0_u64..100, 0..100, 0..100], [0_u64..100, 0..100, 0..100]), 1..60),
        ) {
            let (nodes, weights) = (nodes(), Weights::default());
            let mut migration = HomeMigration::new(1, at(0));
            let (mut now, mut last) = (0, 0);
            for (step, pages, millis) in steps {
                now += step;
                let home = migration.home();
                let seen = evidence(pages, millis);
                match migration.consider(at(now), &seen, &nodes, &weights) {
                    Verdict::Stay(_) => prop_assert_eq!(migration.home(), home),
                    Verdict::Move { to, .. } => {
                        prop_assert_eq!(migration.home(), to);
                        prop_assert!(to != home && now - last >= 1000);
                        let shares = Shares::of(&seen, &nodes);
                        prop_assert!(shares.score(to, &weights) >= shares.score(home, &weights) + 300);
                        last = now;
                    }
                }
            }
        }
    }
}
