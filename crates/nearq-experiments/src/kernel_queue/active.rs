//! How many items of a queue are active: on a list, or running. Each node has its share of `max_active`.
//!
//! A thread that queues an item counts it by compare-exchange, unless the number has reached its limit or others wait. A worker counts an
//! item down when it has ended, and then looks whether others wait. A thread that has put an item among those that wait tries to count once
//! more: all that were active may have ended before it was there. As in the kernel, number, lock and list of a node share a line.

use super::Work;
use super::spin_lock::SpinLock;
use nearq_platform::{Atomic as _, AtomicInt as _, Ordering};
use nearq_sim::AtomicU32;
use nearq_topology::{CpuSet, Topology};
use std::collections::VecDeque;
use std::sync::Arc;

/// No node's share is smaller, unless `max_active` is (`WQ_DFL_MIN_ACTIVE`).
const LEAST: usize = 8;

/// How a thread counts an active item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// By compare-exchange, which is repeated until it succeeds: as the kernel does.
    CompareExchange,
    /// By one addition, which is taken back beyond the limit: to see what the repeated steps cost.
    Addition,
}

/// The active items of the pools of a node.
#[repr(C, align(128))]
pub(super) struct Active {
    number: AtomicU32,
    /// How many wait.
    waiting: AtomicU32,
    most: u32,
    counting: Counting,
    /// Those that wait.
    inactive: SpinLock<VecDeque<Arc<Work>>>,
}

/// The shares of a queue.
pub(super) struct Shares {
    nodes: Vec<Arc<Active>>,
    /// Of the pools whose pods are on several nodes.
    several: Arc<Active>,
}

/// The shares of nodes of `most`, by how many of the usable CPUs they have.
pub(super) fn shares(
    topology: &Topology,
    usable: &CpuSet,
    (most, counting): (usize, Counting),
    cpus: usize,
) -> Shares {
    let share = |most: usize| Arc::new(Active::new(most, counting, cpus));
    let of_node = |node: &CpuSet| {
        let own = (node & usable).len();
        (most * own).div_ceil(usable.len().max(1)).clamp(LEAST.min(most), most)
    };
    let nodes = topology.nodes().iter().map(|node| share(of_node(&node.cpus))).collect();
    Shares { nodes, several: share(most) }
}

impl Shares {
    /// The share of the pool of a pod.
    pub(super) fn of(&self, topology: &Topology, pod: &CpuSet) -> &Arc<Active> {
        let node = topology.nodes().iter().position(|node| pod.is_subset(&node.cpus));
        node.map_or(&self.several, |node| &self.nodes[node])
    }

    /// Each once.
    pub(super) fn all(self) -> Vec<Arc<Active>> {
        self.nodes.into_iter().chain([self.several]).collect()
    }
}

impl Active {
    fn new(most: usize, counting: Counting, cpus: usize) -> Self {
        Self {
            number: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            most: u32::try_from(most).unwrap_or(u32::MAX),
            counting,
            inactive: SpinLock::new(VecDeque::new(), cpus),
        }
    }

    /// Counts one more, if the limit allows it.
    fn increment(&self) -> bool {
        if self.counting == Counting::Addition {
            let allowed = self.number.fetch_add(1, Ordering::Relaxed) < self.most;
            if !allowed {
                self.number.fetch_sub(1, Ordering::Relaxed);
            }
            return allowed;
        }
        // Relaxed: decided by the step below. All orderings here are those of the kernel; a simulated machine has one order of all accesses.
        let mut number = self.number.load(Ordering::Relaxed);
        while number < self.most {
            let next = number + 1;
            match self.number.compare_exchange(number, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(found) => number = found,
            }
        }
        false
    }

    /// Whether an item may go on its pool's list now; otherwise the item is kept here.
    pub(super) fn admits(&self, work: &Arc<Work>) -> bool {
        // Acquire, here and below: the list is behind its lock; this is only whether to look.
        if self.waiting.load(Ordering::Acquire) == 0 && self.increment() {
            return true;
        }
        self.inactive.hold(|list| {
            list.get().push_back(Arc::clone(work));
            self.waiting.fetch_add(1, Ordering::AcqRel);
            // The last one that was active may have ended before this one was on the list. Those that wait longer keep their places.
            if !self.increment() {
                return false;
            }
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            let mut list = list.get();
            list.pop_back();
            true
        })
    }

    /// An item has ended. Returns the item that may go on its pool's list in its place.
    pub(super) fn ended(&self) -> Option<Arc<Work>> {
        let before = self.number.fetch_sub(1, Ordering::AcqRel);
        if before > self.most || self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.inactive.hold(|list| {
            if list.get().is_empty() || !self.increment() {
                return None;
            }
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            list.get().pop_front()
        })
    }

    /// How many are active or wait.
    pub(super) fn left(&self) -> usize {
        let count = |of: &AtomicU32| of.load(Ordering::Acquire) as usize;
        count(&self.number) + count(&self.waiting)
    }
}
