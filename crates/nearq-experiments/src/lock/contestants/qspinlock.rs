//! The kernel's queued spinlock: a word, a pending bit, and an MCS queue with a record for each CPU.
//!
//! After `kernel/locking/qspinlock.c` of Linux 6.6 (Waiman Long, Peter Zijlstra) and Mellor-Crummey and Scott, "Algorithms for Scalable
//! Synchronization on Shared-Memory Multiprocessors", ACM Transactions on Computer Systems 9 (1), 1991.
//!
//! # Protocol
//! The word has the bits *locked* and *pending*, and the name of the last writer in the queue. A thread that finds it 0 takes it. A thread that
//! finds nothing but *locked* sets *pending*, and takes the lock when it is given back. All others queue up. The thread in front waits until
//! neither bit is set, sets *locked*, and tells the thread behind it that it is in front now.
//!
//! Invariants:
//! 1. *Locked* is set by one thread at a time: by a step from 0; by the thread that set *pending*, once *locked* is clear; or by the thread
//!    in front, once both are clear. While a writer is queued the word is not 0, and while *pending* is set the thread in front waits.
//! 2. A thread that finds more than *locked* when it sets *pending* clears the bit again, unless it was set before.
//!
//! # Differences
//! The kernel changes the bytes of the word one by one, with plain stores and an exchange of the tail alone. So do simulated threads
//! ([`Host::store_part`]). Accesses of several sizes to one atomic are not defined in Rust: on Linux each step is one on the whole word, and
//! is repeated if it fails because another thread changed another part.

use super::list::Exclusive;
use super::roster::{Records, Roster};
use crate::harness::Host;
use core::marker::PhantomData;
use nearq_platform::{Atomic as _, AtomicInt as _, LockPlatform, Ordering};
use std::sync::Arc;

pub(super) const LOCKED: u32 = 1;
pub(super) const PENDING: u32 = 1 << 8;
/// The writers queue up by group (`hq`).
pub(super) const GROUPED: u32 = 1 << 9;
/// The first bit of the last writer's name.
pub(super) const TAIL: u32 = 16;
/// For how many reads a newcomer waits until the thread that pends has become the holder, as in the kernel.
const PENDING_READS: u32 = 512;

/// The bits *locked* and *pending*, each in a byte of its own as in the kernel; without `GROUPED`, which shares the second byte.
const LOW: u32 = LOCKED | PENDING;
/// The part with the last writer's name.
const NAMES: u32 = !0 << TAIL;

/// The word of a lock.
pub(super) struct Word<P: LockPlatform>(pub(super) P::AtomicU32);

impl<P: Host> Word<P> {
    pub(super) fn free() -> Self {
        Word(P::AtomicU32::new(0))
    }

    /// Takes the lock if nobody has it, pends or waits. Returns what the word is otherwise.
    #[inline]
    pub(super) fn take_free(&self) -> Result<(), u32> {
        // Acquire: pairs with the release of `unlock`. Relaxed: nothing is read on failure.
        self.0.compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed).map(drop)
    }

    /// Takes the lock as the thread that pends, if nobody else pends or waits; `seen` is what the word was.
    pub(super) fn pend(&self, roster: &Roster, mut seen: u32) -> bool {
        if seen == PENDING {
            P::wait_until_changed(&self.0, PENDING, PENDING_READS);
            // Relaxed: decided by the step below.
            seen = self.0.load(Ordering::Relaxed);
        }
        if seen & !LOCKED != 0 {
            return false;
        }
        // Acquire: pairs with the release of `unlock`, if the lock is free by now.
        let mut found = self.0.fetch_or(PENDING, Ordering::Acquire);
        if found & !LOCKED != 0 {
            if found & PENDING == 0 {
                P::store_part(&self.0, PENDING, 0);
            }
            return false;
        }
        found |= PENDING;
        while found & LOCKED != 0 {
            found = roster.await_change::<P>(&self.0, found);
        }
        // `found` was read by an acquire, which pairs with the release of `unlock`. Nobody else sets either bit now.
        P::store_part(&self.0, LOW, LOCKED);
        true
    }

    /// Waits until nobody has the lock or pends.
    pub(super) fn await_free(&self, roster: &Roster) -> u32 {
        // Acquire: pairs with the release of `unlock`.
        let mut found = self.0.load(Ordering::Acquire);
        while found & (LOCKED | PENDING) != 0 {
            found = roster.await_change::<P>(&self.0, found);
        }
        found
    }

    /// Changes the word if it is `from`.
    pub(super) fn step(&self, from: u32, to: u32) -> Result<(), u32> {
        // Acquire: of the lock. Release: of records. Relaxed: nothing is read on failure.
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).map(drop)
    }

    /// Sets these bits of the low part. The caller is in front and has seen both *locked* and *pending* clear, by an acquire load, which
    /// pairs with the release of `unlock`.
    pub(super) fn set(&self, bits: u32) {
        P::store_part(&self.0, bits, bits);
    }

    /// Puts a writer at the end of the queue. Returns the writer that was there.
    fn join(&self, name: u32) -> u32 {
        // Release: of the writer's record. Acquire: of the record of the writer before it.
        P::exchange_part(&self.0, NAMES, name << TAIL) >> TAIL
    }

    /// As [`join`](Self::join), unless writers queue up by group: then the word, unchanged.
    pub(super) fn join_ungrouped(&self, name: u32, mut seen: u32) -> Result<u32, u32> {
        loop {
            if seen & GROUPED != 0 {
                return Err(seen);
            }
            match self.step(seen, seen & ((1 << TAIL) - 1) | name << TAIL) {
                Ok(()) => return Ok(seen >> TAIL),
                Err(found) => seen = found,
            }
        }
    }

    pub(super) fn unlock(&self) {
        // Release: pairs with the acquires of the next holder.
        P::store_part(&self.0, LOCKED, 0);
    }
}

/// In which order the queue moves.
pub(crate) trait Order<P: Host>: Send + Sync + 'static {
    /// The writer is about to queue up.
    fn prepare(_: &Queue<P>, _: u32) {}

    /// The writer is in front, and the lock may be held.
    fn while_busy(_: &Queue<P>, _: u32) {}

    /// The writer in front was the last one when the word was `seen`: takes the lock and leaves nobody waiting. Returns whether it did.
    fn take_last(queue: &Queue<P>, _: u32, seen: u32) -> bool {
        queue.word.step(seen, LOCKED).is_ok()
    }

    /// The writer has the lock, and `next` is behind it: says which one is in front now.
    fn hand_over(queue: &Queue<P>, _: u32, next: u32) {
        queue.records.tell(next, 1);
    }
}

/// First come, first served.
pub(crate) struct Fifo;

impl<P: Host> Order<P> for Fifo {}

pub(crate) struct Queue<P: LockPlatform> {
    pub(super) word: Word<P>,
    pub(super) records: Records<P>,
    /// The group of each writer, if the order asks for it.
    pub(super) groups: Vec<usize>,
}

/// The lock, with the order of its queue.
pub(crate) struct QSpinLock<P: LockPlatform, O = Fifo> {
    queue: Queue<P>,
    order: PhantomData<O>,
}

impl<P: Host, O: Order<P>> QSpinLock<P, O> {
    fn lock(&self, name: u32) {
        let Queue { word, records, .. } = &self.queue;
        let Err(seen) = word.take_free() else { return };
        if word.pend(&records.roster, seen) {
            return;
        }
        records.prepare(name);
        O::prepare(&self.queue, name);
        if word.take_free().is_ok() {
            return;
        }
        let before = word.join(name);
        if before != 0 {
            records.wait_behind(name, before);
        }
        O::while_busy(&self.queue, name);
        let seen = word.await_free(&records.roster);
        if seen >> TAIL == name && O::take_last(&self.queue, name, seen) {
            return;
        }
        word.set(LOCKED);
        O::hand_over(&self.queue, name, records.next(name));
    }
}

impl<P: Host, O: Order<P>> Exclusive for QSpinLock<P, O> {
    fn free(roster: &Arc<Roster>) -> Self {
        let groups = roster.groups::<super::roster::ByNode>();
        let queue = Queue { word: Word::free(), records: Records::new(roster), groups };
        QSpinLock { queue, order: PhantomData }
    }

    #[inline]
    fn with<R>(&self, writer: usize, section: impl FnOnce() -> R) -> R {
        self.lock(writer as u32 + 1);
        let result = section();
        self.queue.word.unlock();
        result
    }
}
