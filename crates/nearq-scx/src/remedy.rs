//! What to do for a process whose memory is not at home: move the process to its memory, move the memory to the process, or leave both.
//!
//! Moving the process costs least: it loses only the contents of its caches. But this helps only if the node has room, because otherwise
//! another process would have to leave. Moving pages has a cost for each page, during which the process waits for the pages that it
//! touches. Leaving both costs a part of all the CPU time that the process has yet to use. That time is not known, but half of the
//! processes that have used a certain CPU time use as much again (Harchol-Balter and Downey, 1997). So the expected CPU time is the CPU
//! time that the process has used so far.

use std::fmt;
use std::time::Duration;

use crate::output::{bytes, time};

/// How much more CPU time a task takes for each 10 of distance if all its memory is away, in thousandths: Focht's figure for
/// a machine whose remote memory takes 1.6 times as long is 300 (numa_test on the AzusA, 2002).
const LOST_FOR_TEN: u64 = 500;
/// The least and the most CPU time that a process is expected to use.
const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_mins(10);
/// The part, in thousandths, by which the load of a node may exceed its CPUs, because measured loads vary by chance.
const TOLERANCE: u64 = 100;

/// How much of a node is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeUse {
    /// The operating system's number.
    pub(crate) node: u32,
    /// The CPUs that the processes at home on the node used in the last period, and the CPUs that it has; in thousandths.
    pub(crate) used: u64,
    pub(crate) capacity: u64,
    /// Tasks that run or wait there, in thousandths, smoothed.
    pub(crate) load: u64,
}

/// What is known of a process, its home and the node of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Situation {
    pub(crate) home: NodeUse,
    /// Where most of its memory is.
    pub(crate) there: NodeUse,
    /// The distance from its home to that node.
    pub(crate) distance: u32,
    /// Memory that is not at home, and which part of all that is, in thousandths.
    pub(crate) bytes: u64,
    pub(crate) part: u64,
    /// CPUs that it uses, in thousandths.
    pub(crate) uses: u64,
    /// CPU time that it has used so far.
    pub(crate) ran: Duration,
    /// Whether it has its home because another node was crowded: going back to its memory would restore the crowd.
    pub(crate) left_crowd: bool,
    /// Whether it may run on that node; whether its pages may be moved now.
    pub(crate) may_go: bool,
    pub(crate) may_move: bool,
    /// The time to move a mebibyte.
    pub(crate) for_mebibyte: Duration,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// From now on the process is at home where its memory is.
    Go,
    /// Its memory is moved to its home.
    MovePages,
    /// Nothing.
    Leave,
}

/// What is done, and why: its `Display` is the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) remedy: Remedy,
    situation: Situation,
    /// What moving and what staying away are expected to cost.
    moving: Duration,
    staying: Duration,
}

impl Remedy {
    /// Chooses the remedy.
    pub(crate) fn choose(situation: &Situation) -> Choice {
        let Situation { home, there, .. } = situation;
        let staying = staying(situation.ran, situation.distance, situation.part);
        let moving = moving(situation.bytes, situation.for_mebibyte);
        let has_room =
            there.has_room_for(situation.uses) || there.is_no_fuller_with(situation.uses, home);
        let remedy = if situation.may_go && has_room && !situation.left_crowd {
            Remedy::Go
        } else if situation.may_move && moving < staying {
            Remedy::MovePages
        } else {
            Remedy::Leave
        };
        Choice { remedy, situation: *situation, moving, staying }
    }
}

/// The cost of being away for a process that has run for `ran`, if `part` of it, in thousandths, is away at that distance.
pub(crate) fn staying(ran: Duration, distance: u32, part: u64) -> Duration {
    let expected = ran.clamp(LEAST, MOST).as_nanos() as u64;
    let steps = u64::from(distance.saturating_sub(10));
    let lost = LOST_FOR_TEN * steps / 10 * part / 1000;
    Duration::from_nanos(expected / 1000 * lost)
}

/// The cost of moving this many bytes.
pub(crate) fn moving(bytes: u64, for_mebibyte: Duration) -> Duration {
    let mebibytes = bytes.div_ceil(1 << 20).min(u64::from(u32::MAX)) as u32;
    for_mebibyte.saturating_mul(mebibytes)
}

impl NodeUse {
    fn has_room_for(&self, uses: u64) -> bool {
        self.used + uses <= self.capacity * (1000 + TOLERANCE) / 1000
    }

    /// Whether this node is no fuller than another node after a process that uses this much has moved here from that node.
    fn is_no_fuller_with(&self, uses: u64, other: &NodeUse) -> bool {
        let all = |node_use: &NodeUse| u128::from(node_use.load.max(node_use.used));
        let with = all(self) + u128::from(uses);
        with * u128::from(other.capacity) <= all(other) * u128::from(self.capacity)
    }
}

/// Thousandths as a number with one digit after the decimal point.
pub(crate) fn milli(value: u64) -> String {
    format!("{}.{}", value / 1000, value % 1000 / 100)
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Situation { home, there, left_crowd, may_go, may_move, bytes: away, .. } =
            self.situation;
        let moving =
            format!("moving {} would take {}", bytes(away), time(self.moving.as_nanos() as u64));
        let staying = format!("staying away would cost {}", time(self.staying.as_nanos() as u64));
        let full = if left_crowd {
            format!("it got its home, node {}, because another one was crowded", home.node)
        } else if may_go {
            format!(
                "node {} is full ({} of {} CPUs are used, {} at home)",
                there.node,
                milli(there.used),
                milli(there.capacity),
                milli(home.used)
            )
        } else {
            format!("it may not run on node {}", there.node)
        };
        match self.remedy {
            Remedy::Go => write!(
                f,
                "there is room for it on node {} ({} of {} CPUs are used, {} at home)",
                there.node,
                milli(there.used),
                milli(there.capacity),
                milli(home.used)
            ),
            Remedy::MovePages => write!(f, "{full}; {moving}, and {staying}"),
            Remedy::Leave if !may_move => {
                write!(f, "{full}, and its pages cannot be moved now")
            }
            Remedy::Leave => write!(f, "{full}; {moving}, but {staying} only"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes of four CPUs each; all memory of a process of one CPU is on node 1, and the process has run for ten seconds.
    fn situation() -> Situation {
        let node_use = |node| NodeUse { node, used: 1000, capacity: 4000, load: 1000 };
        Situation {
            home: node_use(0),
            there: node_use(1),
            distance: 20,
            bytes: 64 << 20,
            part: 1000,
            uses: 1000,
            ran: Duration::from_secs(10),
            left_crowd: false,
            may_go: true,
            may_move: true,
            for_mebibyte: Duration::from_millis(1),
        }
    }

    fn full(node_use: NodeUse) -> NodeUse {
        NodeUse { used: 4000, load: 6000, ..node_use }
    }

    fn chosen(situation: &Situation) -> (Remedy, String) {
        let choice = Remedy::choose(situation);
        (choice.remedy, choice.to_string())
    }

    #[test]
    fn a_process_moves_to_its_memory_if_that_node_has_free_cpus() {
        let (remedy, why) = chosen(&situation());
        assert_eq!(remedy, Remedy::Go);
        assert_eq!(why, "there is room for it on node 1 (1.0 of 4.0 CPUs are used, 1.0 at home)");
    }

    #[test]
    fn a_process_moves_if_the_target_is_no_fuller_than_its_home() {
        let both = situation();
        let both = Situation { home: full(both.home), there: full(both.there), ..both };
        let home = NodeUse { load: 7000, ..both.home };
        assert_eq!(chosen(&Situation { home, ..both }).0, Remedy::Go);
        // The process would make a crowd on that node, so its memory is moved.
        assert_eq!(chosen(&both).0, Remedy::MovePages);
    }

    #[test]
    fn a_process_that_left_a_crowd_does_not_return_for_its_memory() {
        let (remedy, why) = chosen(&Situation { left_crowd: true, ..situation() });
        assert_eq!(remedy, Remedy::MovePages);
        assert!(
            why.starts_with("it got its home, node 0, because another one was crowded; moving")
        );
    }

    #[test]
    fn pages_move_if_that_is_cheaper_than_staying_away() {
        let crowded = Situation { there: full(situation().there), ..situation() };
        let (remedy, why) = chosen(&crowded);
        assert_eq!(remedy, Remedy::MovePages);
        assert_eq!(
            why,
            "node 1 is full (4.0 of 4.0 CPUs are used, 1.0 at home); moving 64 MiB would take 64ms, and staying away would cost 5.0s"
        );
        // It has run ten times as long, with a hundred times the memory.
        let large = Situation { bytes: 6400 << 20, ..crowded };
        assert_eq!(chosen(&large).0, Remedy::Leave);
        assert_eq!(
            chosen(&Situation { ran: Duration::from_mins(1), ..large }).0,
            Remedy::MovePages
        );
        // Little of its memory is away, or the node is near.
        assert_eq!(chosen(&Situation { part: 10, bytes: 64 << 20, ..crowded }).0, Remedy::Leave);
        assert_eq!(chosen(&Situation { distance: 10, ..crowded }).0, Remedy::Leave);
        // Moving is slow.
        let slow = Duration::from_millis(100);
        let (remedy, why) = chosen(&Situation { for_mebibyte: slow, ..crowded });
        assert_eq!(remedy, Remedy::Leave);
        assert!(why.ends_with("would take 6.4s, but staying away would cost 5.0s only"), "{why}");
    }

    #[test]
    fn a_process_that_may_not_move_gets_its_pages_moved() {
        let bound = Situation { may_go: false, ..situation() };
        let (remedy, why) = chosen(&bound);
        assert_eq!(remedy, Remedy::MovePages);
        assert!(why.starts_with("it may not run on node 1; moving 64 MiB"), "{why}");
        let (remedy, why) = chosen(&Situation { may_move: false, ..bound });
        assert_eq!(remedy, Remedy::Leave);
        assert_eq!(why, "it may not run on node 1, and its pages cannot be moved now");
    }

    #[test]
    fn the_expected_time_is_bounded() {
        let young = Situation {
            there: full(situation().there),
            ran: Duration::from_millis(1),
            ..situation()
        };
        // Half a second is at stake, not half a millisecond.
        assert_eq!(Remedy::choose(&young).staying, Duration::from_millis(500));
        let old = Situation { ran: Duration::from_secs(1 << 30), ..young };
        assert_eq!(Remedy::choose(&old).staying, Duration::from_mins(5));
        let huge = Situation { bytes: u64::MAX, for_mebibyte: Duration::MAX, ..old };
        assert_eq!(Remedy::choose(&huge).remedy, Remedy::Leave);
    }
}
