//! What all handles of a home share: its node, the reason for it, and what a dynamic home follows.
//!
//! # What is counted
//! `handles` counts [`Home`](super::Home)s; its memory is counted by the `Arc`. From the first handle to the last one, the home counts on
//! its node (`Change::counted`, under `change`). A queue keeps the memory of every home that it has had, without a handle: a thread that
//! reads an old one a moment too late still finds it.
//!
//! `node` is a single word: a thread that reads it while it is changed gets either the old or the new one.

use core::ops::Range;
use std::sync::Arc;

use nearq_home::{HomeMigration, Nodes};
use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, Instant, Ordering, Platform};

use super::registry::Homes;

/// Not chosen yet.
const UNDECIDED: u32 = u32::MAX;

/// A home.
pub(crate) struct Inside<P: Platform> {
    pub(crate) homes: Arc<Homes<P>>,
    node: P::AtomicU32,
    handles: P::AtomicU32,
    /// 1 if the home is dynamic.
    follows: P::AtomicU32,
    /// CPU time of its items since it was last judged, in nanoseconds, by the node's number; counted while it is dynamic.
    cpu_time: Box<[P::AtomicU64]>,
    pub(super) change: Mutex<Change, P>,
    /// Memory that belongs to it, with the number under which it was registered.
    pub(super) ranges: Mutex<Ranges, P>,
}

/// See `Inside::change`.
pub(super) struct Change {
    /// The node on which it counts.
    counted: Option<u32>,
    /// The reason for its node, in words.
    pub(super) why: String,
    /// Decides how it moves, with the home's index among the nodes at that time.
    pub(super) migration: Option<HomeMigration>,
}

/// Memory that belongs to a home.
#[derive(Default)]
pub(super) struct Ranges {
    next: u64,
    pub(super) list: Vec<(u64, Range<usize>)>,
}

impl Ranges {
    pub(super) fn add(&mut self, range: Range<usize>) -> u64 {
        self.next += 1;
        self.list.push((self.next, range));
        self.next
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.list.retain(|(other, _)| *other != number);
    }
}

impl<P: Platform> Inside<P> {
    /// A home without a handle; `node` is none if it is chosen later.
    pub(super) fn new(homes: &Arc<Homes<P>>, node: Option<u32>, why: String) -> Arc<Self> {
        let made = Arc::new(Inside {
            homes: Arc::clone(homes),
            node: P::AtomicU32::new(node.unwrap_or(UNDECIDED)),
            handles: P::AtomicU32::new(0),
            follows: P::AtomicU32::new(0),
            cpu_time: (0..homes.map.nodes()).map(|_| P::AtomicU64::new(0)).collect(),
            change: Mutex::new_in(Change { counted: None, why, migration: None }),
            ranges: Mutex::new_in(Ranges::default()),
        });
        homes.add(&made);
        made
    }

    /// The number of its node, if that has been chosen.
    #[inline]
    pub(crate) fn known_node(&self) -> Option<u32> {
        Some(self.node.load(Ordering::Relaxed)).filter(|node| *node != UNDECIDED)
    }

    /// The number of its node, chosen now if it has none.
    #[inline]
    pub(crate) fn node(&self) -> u32 {
        self.known_node().unwrap_or_else(|| self.decide())
    }

    #[cold]
    fn decide(&self) -> u32 {
        let nodes = self.homes.nodes();
        let (index, why) = self.homes.pick(&nodes, P::current_cpu());
        let mut change = self.change.lock();
        if let Some(node) = self.known_node() {
            return node;
        }
        let node = nodes.get(index).id as u32;
        change.why = why;
        self.put(&mut change, node);
        node
    }

    /// Puts it on that node, with the reason. Under `change`.
    pub(super) fn put(&self, change: &mut Change, node: u32) {
        self.node.store(node, Ordering::Relaxed);
        self.count(change);
    }

    /// Brings the count of homes into agreement with the handles and the node.
    fn count(&self, change: &mut Change) {
        let wanted = self.known_node().filter(|_| self.is_held());
        if change.counted == wanted {
            return;
        }
        if let Some(node) = change.counted {
            self.homes.uncount(node);
        }
        if let Some(node) = wanted {
            self.homes.count(node);
        }
        change.counted = wanted;
    }

    /// Whether it has a handle.
    pub(crate) fn is_held(&self) -> bool {
        // Relaxed: a holder of the lock sees the handles of all that held it before (`hold`). For other threads the answer may be outdated.
        self.handles.load(Ordering::Relaxed) != 0
    }

    /// Adds a handle.
    pub(super) fn hold(&self) {
        // Relaxed: the lock orders its holders, so each sees the handles of all that held the lock before. A thread that has made the first
        // handle or dropped the last, and has not held the lock yet, will take the lock later and count again.
        match self.handles.fetch_add(1, Ordering::Relaxed) {
            0 => self.count(&mut self.change.lock()),
            // As in `Arc`: leaked handles must not wrap the count.
            before if before > u32::MAX / 2 => std::process::abort(),
            _ => {}
        }
    }

    /// Removes a handle.
    pub(super) fn let_go(&self) {
        // Relaxed: the lock orders its holders, and the thread that drops the last handle takes it and counts again. No memory is freed
        // on the strength of this count.
        if self.handles.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.count(&mut self.change.lock());
        }
    }

    // ---- what a dynamic home follows ---------------------------------------------------------------------

    /// Whether it is dynamic.
    #[inline]
    pub(crate) fn follows(&self) -> bool {
        self.follows.load(Ordering::Relaxed) != 0
    }

    pub(super) fn set_follows(&self, follows: bool, nodes: &Nodes, now: Instant) {
        let mut change = self.change.lock();
        self.follows.store(u32::from(follows), Ordering::Relaxed);
        let known = self.known_node().filter(|_| follows).and_then(|node| index_of(nodes, node));
        change.migration = known.map(|index| HomeMigration::new(index, since_start(now)));
    }

    /// An item of this home ran for this long on a node.
    pub(crate) fn count_cpu_time(&self, node: u32, nanos: u64) {
        if let Some(counter) = self.cpu_time.get(node as usize) {
            counter.fetch_add(nanos, Ordering::Relaxed);
        }
    }

    /// The time counted for a node since the last call.
    pub(super) fn take_cpu_time(&self, node: usize) -> u64 {
        self.cpu_time.get(node).map_or(0, |counter| counter.swap(0, Ordering::Relaxed))
    }

    // ---- forks -------------------------------------------------------------------------------------------

    /// In the child of a fork. Forgets what a vanished thread was changing, because the change may be half done.
    pub(super) fn after_fork_in_child(&self) {
        if self.change.is_locked() {
            let why = "it was being changed when the process was forked".to_owned();
            // SAFETY: this is the only thread, and it is not in the middle of a change: no user's code runs there.
            unsafe {
                self.change.renew(Change { counted: self.known_node(), why, migration: None })
            };
        }
        if self.ranges.is_locked() {
            // SAFETY: this is the only thread, and has no guard of `ranges`: no user's code, which could fork, runs under that lock.
            unsafe { self.ranges.renew(Ranges::default()) };
        }
    }
}

/// The index of a node, if it can be a home now.
pub(super) fn index_of(nodes: &Nodes, node: u32) -> Option<usize> {
    nodes.iter().position(|known| known.id == node as usize)
}

/// The time in the form that `HomeMigration` needs.
pub(super) fn since_start(now: Instant) -> core::time::Duration {
    core::time::Duration::from_nanos(now.as_nanos())
}
