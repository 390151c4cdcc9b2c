//! The kernel's mutex over its optimistic spin queue: with a tail of four bytes, of two, and with the document's change to queues by group.
//!
//! After `kernel/locking/mutex.c` and `osq_lock.c` of Linux 6.6 (Peter Zijlstra, Waiman Long, Jason Low), and the document of 2024 with its
//! patches ("dynamic numa-aware osq lock", yongli-oc).
//!
//! # Protocol
//! The *owner* decides who has the mutex: the name of a writer, or 0. Any thread may take it when it is 0. A thread that does not get it queues
//! up; only the thread in front spins on the owner. It leaves the queue as soon as it has the mutex, so the next one is in front while the
//! mutex is held. The queue cannot break exclusion: it only says who spins.
//!
//! The queue is a tail and a record for each writer ([`Osq`]). The document's has one more field, *grouped* ([`Dynamic`]): while it is 0,
//! threads queue up in the one queue, and the thread in front counts how many are behind it; when the rule says so it sets the field, and
//! newcomers queue up by group. The thread in front of all groups waits until the one queue is empty.
//!
//! # Differences
//! A thread of the kernel leaves the queue when it should be scheduled away, or when the owner sleeps, and then sleeps itself. Here each
//! writer has a CPU, and no owner sleeps in its section; where writers share CPUs, they yield. The document keeps tail, *grouped* and an index
//! in one word of four bytes and accesses parts of it; here they are atomics of two bytes on one line. It stops all threads at a change
//! ([`Hq`](super::hq::Hq)).

use super::cohort::Cohort;
use super::list::Exclusive;
use super::roster::{ByCluster, Records, Roster};
use super::trigger::{ByDepth, HandOver, Trigger as _, note_number};
use nearq_platform::{Atomic as _, LockPlatform, Ordering};
use std::sync::Arc;

/// The document's `osq_node_max`.
const BATCH: u32 = 256;

/// Between two looks at the one queue, while it empties: in reads.
const PAUSE: u32 = 16;

/// Who spins on the owner.
pub(super) trait SpinQueue<P: LockPlatform>: Send + Sync + 'static {
    /// How a thread queued up.
    type Way;

    fn new(roster: &Arc<Roster>) -> Self;

    /// Queues up, and returns when the writer is in front.
    fn enter(&self, name: u32) -> Self::Way;

    /// Lets the next thread be in front.
    fn leave(&self, name: u32, way: Self::Way);
}

/// Owner and tail are on one line, as in the kernel.
pub(super) struct KernelMutex<P: LockPlatform, Q> {
    owner: P::AtomicU32,
    queue: Q,
    roster: Arc<Roster>,
}

impl<P: LockPlatform, Q: SpinQueue<P>> KernelMutex<P, Q> {
    fn take(&self, name: u32) -> Result<(), u32> {
        // Acquire: pairs with the release of the unlock. Relaxed: nothing is read on failure.
        self.owner.compare_exchange(0, name, Ordering::Acquire, Ordering::Relaxed).map(drop)
    }

    fn lock(&self, name: u32) {
        if self.take(name).is_ok() {
            return;
        }
        let way = self.queue.enter(name);
        // Relaxed: decided by the step.
        let mut owner = self.owner.load(Ordering::Relaxed);
        loop {
            if owner != 0 {
                owner = self.roster.await_change::<P>(&self.owner, owner);
                continue;
            }
            match self.take(name) {
                Ok(()) => break,
                Err(found) => owner = found,
            }
        }
        self.queue.leave(name, way);
    }
}

impl<P: LockPlatform, Q: SpinQueue<P>> Exclusive for KernelMutex<P, Q> {
    fn free(roster: &Arc<Roster>) -> Self {
        KernelMutex {
            owner: P::AtomicU32::new(0),
            queue: Q::new(roster),
            roster: Arc::clone(roster),
        }
    }

    #[inline]
    fn with<R>(&self, writer: usize, section: impl FnOnce() -> R) -> R {
        self.lock(writer as u32 + 1);
        let result = section();
        // Release: pairs with the acquire of `take`.
        self.owner.swap(0, Ordering::Release);
        result
    }
}

/// The end of the queue: the name of the last writer, 0 if the queue is empty.
pub(super) trait Tail: Send + Sync + 'static {
    fn empty() -> Self;
    /// Puts a name at the end, and returns the name that was there.
    fn push(&self, name: u32) -> u32;
    /// Empties the queue if this name is the last. Returns whether it was, and the last name otherwise.
    fn clear(&self, name: u32) -> Result<(), u32>;
}

/// Four bytes, as in the kernel.
pub(super) struct Tail4<P: LockPlatform>(P::AtomicU32);

impl<P: LockPlatform> Tail for Tail4<P> {
    fn empty() -> Self {
        Tail4(P::AtomicU32::new(0))
    }

    fn push(&self, name: u32) -> u32 {
        // Release: the record. Acquire: that of the thread before.
        self.0.swap(name, Ordering::AcqRel)
    }

    fn clear(&self, name: u32) -> Result<(), u32> {
        // Release: our turn is over. Acquire on failure: the record of the last thread.
        self.0.compare_exchange(name, 0, Ordering::Release, Ordering::Acquire).map(drop)
    }
}

/// Two bytes, as in the document; each step first reads the field beside them.
pub(super) struct Tail2<P: LockPlatform> {
    tail: P::AtomicU16,
    grouped: P::AtomicU16,
}

impl<P: LockPlatform> Tail2<P> {
    fn is_grouped(&self) -> bool {
        // Relaxed: where a thread queues up is no matter of order.
        self.grouped.load(Ordering::Relaxed) != 0
    }
}

impl<P: LockPlatform> Tail for Tail2<P> {
    fn empty() -> Self {
        Tail2 { tail: P::AtomicU16::new(0), grouped: P::AtomicU16::new(0) }
    }

    fn push(&self, name: u32) -> u32 {
        // It is never set here; the read is part of the comparison.
        core::hint::black_box(self.is_grouped());
        // Release and acquire: as above.
        u32::from(self.tail.swap(name as u16, Ordering::AcqRel))
    }

    fn clear(&self, name: u32) -> Result<(), u32> {
        core::hint::black_box(self.is_grouped());
        // Release and acquire: as above.
        let cleared =
            self.tail.compare_exchange(name as u16, 0, Ordering::Release, Ordering::Acquire);
        cleared.map(drop).map_err(u32::from)
    }
}

/// The optimistic spin queue.
pub(super) struct Osq<P: LockPlatform, T> {
    tail: T,
    records: Records<P>,
}

impl<P: LockPlatform, T: Tail> SpinQueue<P> for Osq<P, T> {
    type Way = ();

    fn new(roster: &Arc<Roster>) -> Self {
        Osq { tail: T::empty(), records: Records::new(roster) }
    }

    fn enter(&self, name: u32) {
        self.records.prepare(name);
        let before = self.tail.push(name);
        if before != 0 {
            self.records.wait_behind(name, before);
        }
    }

    fn leave(&self, name: u32, (): ()) {
        if self.tail.clear(name).is_err() {
            self.records.tell(self.records.next(name), 1);
        }
    }
}

/// The document's queue, which changes to queues by cluster when it is long.
pub(super) struct Dynamic<P: LockPlatform> {
    tail: Tail2<P>,
    records: Records<P>,
    by_group: Box<Cohort<P, ByCluster>>,
}

impl<P: LockPlatform> SpinQueue<P> for Dynamic<P> {
    /// What the thread was told in the one queue; `None` if it queued up by group.
    type Way = Option<u32>;

    fn new(roster: &Arc<Roster>) -> Self {
        let (records, by_group) = (Records::new(roster), Box::new(Cohort::new(roster, BATCH)));
        Dynamic { tail: Tail2::empty(), records, by_group }
    }

    fn enter(&self, name: u32) -> Option<u32> {
        if self.tail.is_grouped() {
            self.by_group.enter(name);
            // Relaxed: a matter of turns. Those who wait in the one queue go first.
            while self.tail.tail.load(Ordering::Relaxed) != 0 {
                P::pause(PAUSE);
                P::yield_now();
            }
            return None;
        }
        self.records.prepare(name);
        // While it counts, the document puts a name at the end by a compare-exchange. Relaxed: decided by the step.
        let mut before = self.tail.tail.load(Ordering::Relaxed);
        loop {
            let tail = &self.tail.tail;
            // Release: the record. Acquire: that of the thread before.
            match tail.compare_exchange(before, name as u16, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(found) => before = found,
            }
        }
        let before = u32::from(before);
        note_number(&self.records, name, before);
        Some(if before == 0 { 1 } else { self.records.wait_behind(name, before) })
    }

    fn leave(&self, name: u32, way: Option<u32>) {
        let Some(told) = way else {
            self.by_group.leave(name);
            return;
        };
        let Err(last) = self.tail.clear(name) else { return };
        if ByDepth::is_due(told) {
            // Relaxed: where a thread queues up is no matter of order.
            self.tail.grouped.store(1, Ordering::Relaxed);
        }
        let (records, groups) = (&self.records, &self.by_group.groups[..]);
        let next = records.next(name);
        let count = ByDepth::count(&HandOver { records, groups, name, told, next, last });
        self.records.tell(next, count);
    }
}
