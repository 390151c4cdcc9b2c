//! Where `max_active` is counted: the domains of a queue, and how many items each of them may have active.
//!
//! As in the kernel, one number for the whole queue is counted in several places, so that the items of two nodes do not write the same
//! line:
//!
//! | queue | domains |
//! |---|---|
//! | unbound | one for each node, for the pods that lie inside it; one for the pods that do not ([`Domain::Across`]) |
//! | per-CPU | one for each CPU |
//! | ordered | one |
//!
//! A node gets its share of `max_active` by its CPUs, but not less than `min_active`: that many items that depend on each other can always
//! be active together. The shares are rounded up, and `Across` has the whole number for itself: over all domains a queue may have more than
//! `max_active` items active. No share is less than one; otherwise what was queued on a node that the queue has left since would wait for
//! ever.

use nearq_topology::CpuSet;

/// How many items a queue may have active by default, as in the kernel.
pub(crate) const DEFAULT_MAX_ACTIVE: usize = 1024;
/// The highest limit that can be set, as in the kernel.
pub(crate) const HIGHEST_MAX_ACTIVE: usize = 2048;
/// The default number of interdependent items that may be active together, as in the kernel.
pub(crate) const DEFAULT_MIN_ACTIVE: usize = 8;

/// A part of a queue whose active items are counted together against the limit.
///
/// As in the kernel, the limit of a queue is counted in several places, so that CPUs of two nodes do not write the same cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Domain {
    /// The pods of an unbound queue that lie inside one node, by the node's number.
    Node(usize),
    /// The pods of an unbound queue that do not lie inside one node.
    Across,
    /// One CPU of a per-CPU queue.
    Cpu(usize),
    /// The whole of an ordered queue.
    Whole,
}

impl Domain {
    /// Returns its kind in a word: `node`, `cpu`, `across` or `whole`.
    pub fn kind(self) -> &'static str {
        match self {
            Domain::Node(_) => "node",
            Domain::Across => "across",
            Domain::Cpu(_) => "cpu",
            Domain::Whole => "whole",
        }
    }

    /// Returns the number of the node or CPU; `None` if it is neither.
    pub fn number(self) -> Option<usize> {
        match self {
            Domain::Node(number) | Domain::Cpu(number) => Some(number),
            Domain::Across | Domain::Whole => None,
        }
    }

    /// The share of a queue's `max_active` that the domain gets. `here` of the queue's `all` CPUs belong to it.
    pub(crate) fn share(self, here: usize, all: usize, bounds: Bounds) -> usize {
        let Bounds { max_active, min_active } = bounds;
        match self {
            Domain::Across | Domain::Cpu(_) | Domain::Whole => max_active,
            Domain::Node(_) => {
                let part = (max_active * here).div_ceil(all.max(1));
                part.clamp(min_active.min(max_active), max_active).max(1)
            }
        }
    }
}

impl core::fmt::Display for Domain {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Domain::Node(node) => write!(f, "node {node}"),
            Domain::Across => f.write_str("across nodes"),
            Domain::Cpu(cpu) => write!(f, "CPU {cpu}"),
            Domain::Whole => f.write_str("whole queue"),
        }
    }
}

/// The settings of a queue's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) max_active: usize,
    pub(crate) min_active: usize,
}

impl Bounds {
    /// `max_active` as requested; `min_active` as requested or, by default, as the kernel chooses it.
    #[cfg(test)]
    pub(crate) fn new(max_active: usize, min_active: Option<usize>) -> Self {
        let min_active = min_active.unwrap_or(DEFAULT_MIN_ACTIVE).min(max_active);
        Bounds { max_active, min_active }
    }

    /// With another `max_active`. A lower one lowers `min_active` too; a higher one does not restore it.
    pub(crate) fn with_max_active(self, max_active: usize) -> Self {
        Bounds { max_active, min_active: self.min_active.min(max_active) }
    }
}

/// The state of a queue's limit in one of its domains; see [`QueueView::limits`](crate::inspect::QueueView::limits).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DomainLimit {
    /// The domain.
    pub domain: Domain,
    /// The queue's CPUs that belong to the domain; empty if the queue no longer uses it.
    pub cpus: CpuSet,
    /// How many items may be active at once, that is, wait for a worker or run.
    pub limit: usize,
    /// How many items are active. May be more than the limit for a while after the limit was lowered.
    pub active: usize,
    /// How many items the limit holds back.
    pub inactive: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(here: usize, all: usize, max_active: usize, min_active: usize) -> usize {
        Domain::Node(0).share(here, all, Bounds::new(max_active, Some(min_active)))
    }

    #[test]
    fn a_node_gets_its_part_rounded_up() {
        assert_eq!(share(4, 4, 1024, 8), 1024);
        assert_eq!(share(4, 8, 1024, 8), 512);
        assert_eq!(share(1, 3, 100, 8), 34);
        assert_eq!(share(2, 3, 100, 8), 67);
        // 2048 times 4096 CPUs does not overflow.
        assert_eq!(share(4096, 4096, 2048, 8), 2048);
    }

    #[test]
    fn never_less_than_min_active_nor_more_than_max_active_nor_nothing() {
        assert_eq!(share(1, 8, 16, 8), 8);
        assert_eq!(share(1, 8, 4, 8), 4);
        assert_eq!(share(0, 8, 16, 8), 8, "left by the mask");
        assert_eq!(share(0, 8, 16, 0), 1, "what is still queued there must run");
        assert_eq!(share(0, 0, 16, 0), 1);
        assert_eq!(Domain::Across.share(0, 8, Bounds::new(16, Some(0))), 16);
    }

    #[test]
    fn a_lower_limit_takes_the_least_along_and_a_higher_one_does_not_bring_it_back() {
        let bounds = Bounds::new(16, None);
        assert_eq!(bounds.min_active, 8);
        assert_eq!(Bounds::new(3, None).min_active, 3);
        let lower = bounds.with_max_active(2);
        assert_eq!(lower, Bounds { max_active: 2, min_active: 2 });
        assert_eq!(lower.with_max_active(16), Bounds { max_active: 16, min_active: 2 });
    }
}
