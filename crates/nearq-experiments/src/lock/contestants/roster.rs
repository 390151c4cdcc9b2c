//! What the kernel's locks have in common: a record for each waiting writer, on a line of its own, and how writers wait on it.
//!
//! In the kernel a thread cannot be preempted while it waits for such a lock, so each CPU needs one record. Here a writer is pinned and has
//! one turn at a time, so each writer needs one record in each lock.
//!
//! # Protocol of a record
//! A writer writes `told` and `next` before it puts its name into a tail by a release step. From then on the thread before it
//! writes `told` once, and the thread behind it writes `next` once. Both are release stores, which pair with the acquire loads here. What a
//! lock protects is ordered by the lock's own word; these orderings publish the records alone.

use nearq_platform::{Atomic as _, LockPlatform, Ordering};
use nearq_topology::Topology;
use std::sync::Arc;

/// The threshold of the document, `osq_lock_depth`: more waiting threads than this count as contention.
pub(in super::super) const DEPTH: usize = 8;
/// For how many reads a thread spins before it lets others run, if each writer has a CPU of its own: for longer than most waits last.
const SPIN: u32 = 20_000;
/// The same if writers share CPUs: the thread that all wait for may have none.
const SPIN_SHARED: u32 = 100;

/// Where a writer runs: its groups of CPUs, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Site {
    l3: usize,
    node: usize,
    package: usize,
    cluster: usize,
}

impl Site {
    /// The place of a CPU. Groups that are not known count as one.
    pub(in super::super) fn of(topology: &Topology, cpu: usize) -> Self {
        // The document's cluster: half a node's share of the CPUs, rounded down to a power of two, by the CPU's number.
        let share = topology.possible().len() / (2 * topology.nodes().len().max(1));
        Site {
            l3: topology.llc_index(cpu).unwrap_or(0),
            node: topology.node_index(cpu).unwrap_or(0),
            package: topology.package_index(cpu).unwrap_or(0),
            cluster: cpu >> share.max(1).ilog2(),
        }
    }
}

/// The groups of CPUs that a lock tells apart.
pub(super) trait Grouping: Send + Sync + 'static {
    fn index(place: Site) -> usize;
}

macro_rules! groupings {
    ($($(#[$doc:meta])* $name:ident: $field:ident,)*) => {
        $(
            $(#[$doc])*
            pub(super) struct $name;

            impl Grouping for $name {
                fn index(place: Site) -> usize {
                    place.$field
                }
            }
        )*
    };
}

groupings! {
    /// CPUs that share a last-level cache.
    ByL3: l3,
    /// CPUs of a NUMA node.
    ByNode: node,
    /// CPUs of a socket.
    ByPackage: package,
    /// The document's clusters of CPUs.
    ByCluster: cluster,
}

/// The writers of a run.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    places: Vec<Site>,
    /// How many reads a thread spins before it lets others run.
    reads: u32,
    /// The threshold of the locks that measure how long their queue is.
    pub(super) depth: u32,
}

impl Roster {
    /// Writers that take these places in turn.
    pub(in super::super) fn new(writers: usize, places: &[Site], depth: usize) -> Arc<Self> {
        let reads = if writers <= places.len() { SPIN } else { SPIN_SHARED };
        let place = |writer| places.get(writer % places.len().max(1)).copied().unwrap_or_default();
        Arc::new(Roster { places: (0..writers).map(place).collect(), reads, depth: depth as u32 })
    }

    /// A roster in which the writers are the CPUs with numbers below `cpus`, each with itself to run on; it knows no groups.
    pub(crate) fn of_cpus(cpus: usize) -> Arc<Self> {
        Self::new(cpus, &vec![Site::default(); cpus], DEPTH)
    }

    /// The group of each writer. Groups without a writer are left out: the numbers have no gaps.
    pub(super) fn groups<G: Grouping>(&self) -> Vec<usize> {
        let mut known: Vec<usize> = self.places.iter().copied().map(G::index).collect();
        known.sort_unstable();
        known.dedup();
        let number = |&place: &Site| known.partition_point(|&group| group < G::index(place));
        self.places.iter().map(number).collect()
    }

    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    /// Spins until the word differs from `value`, and returns what it is then.
    pub(super) fn await_change<P: LockPlatform>(&self, word: &P::AtomicU32, value: u32) -> u32 {
        while !P::wait_until_changed(word, value, self.reads) {
            P::yield_now();
        }
        // Acquire: pairs with the release of the thread that changed it.
        word.load(Ordering::Acquire)
    }
}

/// The record of a writer in a lock, on a line of its own.
#[repr(align(128))]
pub(super) struct Record<P: LockPlatform> {
    /// What the thread before this one says: 0 until then.
    pub(super) told: P::AtomicU32,
    /// The writer behind this one, by its name; 0 if there is none yet.
    pub(super) next: P::AtomicU32,
    /// The group that the lock prefers while this writer is in front (`cna`).
    pub(super) group: P::AtomicU32,
    /// How many threads had queued up when this one did (`trigger`).
    pub(super) serial: P::AtomicU32,
    /// Since when others are set aside (`cna`), in nanoseconds.
    pub(super) since: P::AtomicU64,
    /// The state of the writer's own random numbers (`cna`).
    pub(super) random: P::AtomicU32,
}

/// The records of a lock's writers. A writer is named by its number plus one; 0 is none.
pub(super) struct Records<P: LockPlatform> {
    records: Box<[Record<P>]>,
    pub(super) roster: Arc<Roster>,
}

impl<P: LockPlatform> Records<P> {
    pub(super) fn new(roster: &Arc<Roster>) -> Self {
        let record = |writer: usize| Record {
            told: P::AtomicU32::new(0),
            next: P::AtomicU32::new(0),
            group: P::AtomicU32::new(0),
            serial: P::AtomicU32::new(0),
            since: P::AtomicU64::new(0),
            random: P::AtomicU32::new(writer as u32 * 0x9e37 + 1),
        };
        Records { records: (0..roster.count()).map(record).collect(), roster: Arc::clone(roster) }
    }

    /// The record of the writer with that name.
    #[inline]
    pub(super) fn at(&self, name: u32) -> &Record<P> {
        &self.records[name as usize - 1]
    }

    /// Makes a record ready to be queued up.
    pub(super) fn prepare(&self, name: u32) {
        let record = self.at(name);
        // Relaxed, both: published by the step that puts the name into a tail.
        record.told.store(0, Ordering::Relaxed);
        record.next.store(0, Ordering::Relaxed);
    }

    /// Queues up behind `before`, and waits until that thread says something.
    pub(super) fn wait_behind(&self, name: u32, before: u32) -> u32 {
        // Release: pairs with the acquire of `next`.
        self.at(before).next.store(name, Ordering::Release);
        self.roster.await_change::<P>(&self.at(name).told, 0)
    }

    /// The thread behind this one, which is in the queue and may not have said so yet.
    pub(super) fn next(&self, name: u32) -> u32 {
        let next = &self.at(name).next;
        // Acquire: the record of the next thread.
        match next.load(Ordering::Acquire) {
            0 => self.roster.await_change::<P>(next, 0),
            known => known,
        }
    }

    /// Tells a thread that waits.
    pub(super) fn tell(&self, name: u32, what: u32) {
        // Release: pairs with the acquire at the end of `wait_behind`.
        self.at(name).told.store(what, Ordering::Release);
    }
}
