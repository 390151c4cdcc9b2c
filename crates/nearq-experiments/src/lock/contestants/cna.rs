//! CNA, the compact NUMA-aware lock: the queued spinlock with a second queue for the threads of other nodes.
//!
//! After Dice and Kogan, "Compact NUMA-aware Locks", EuroSys 2019 (arXiv 1810.05600), and version 15 of the kernel's patch series
//! "Add NUMA-awareness to qspinlock" (Alex Kogan, 2021): the time after which the other nodes have their turn, and the share of hand-overs
//! at which the queue is looked at, are those of the patches.
//!
//! # Protocol
//! What the thread in front is told is 1, or 2 plus the name of the last writer that is *set aside*. Writers that are set aside form a ring by
//! `next`: the last one names the first. Only the thread in front changes the ring. While the lock is held, the thread in front sets the
//! thread behind it aside if that is of another node and somebody is behind it. The next thread in front inherits the ring, the preferred
//! node and the time at which the first thread was set aside. The ring goes to the head of the queue when it is older than the threshold, or
//! when nobody else waits.
//!
//! Invariants:
//! 1. A writer is in the queue or in the ring, never in both: it is linked into the ring after it was unlinked from the queue.
//! 2. The last writer of the queue is never set aside: a newcomer may be about to write its `next`.

use super::qspinlock::{LOCKED, Order, Queue, TAIL};
use crate::harness::Host;
use nearq_platform::{Atomic as _, Ordering};

/// For how long threads are set aside: 1 ms.
const THRESHOLD_NS: u64 = 1_000_000;
/// As long as nobody is set aside, the queue is looked at once in this many hand-overs: a power of two.
const LOOK_ONCE_IN: u32 = 128;
/// `told` is at least this if writers are set aside.
const ASIDE: u32 = 2;
/// In place of a time: the ring goes to the head of the queue.
const FLUSH: u64 = 1;

pub(super) struct Cna;

/// The name of the last writer that is set aside.
fn last_aside(told: u32) -> Option<u32> {
    told.checked_sub(ASIDE)
}

// Relaxed, everywhere below unless it says otherwise: the fields of the thread in front, and those of the writers that it reaches by `next`,
// which acquires; `Records::tell` releases them to the next thread in front.

impl<P: Host> Order<P> for Cna {
    fn prepare(queue: &Queue<P>, name: u32) {
        let record = queue.records.at(name);
        record.group.store(queue.groups[name as usize - 1] as u32, Ordering::Relaxed);
        record.since.store(0, Ordering::Relaxed);
    }

    fn while_busy(queue: &Queue<P>, name: u32) {
        let record = queue.records.at(name);
        if record.told.load(Ordering::Relaxed) < ASIDE && !is_time_to_look::<P>(queue, name) {
            return;
        }
        let since = record.since.load(Ordering::Relaxed);
        if since != 0 && P::now().as_nanos() > since + THRESHOLD_NS {
            record.since.store(FLUSH, Ordering::Relaxed);
            return;
        }
        while queue.word.0.load(Ordering::Relaxed) & LOCKED != 0 && !is_ordered(queue, name) {
            P::pause(1);
        }
    }

    fn take_last(queue: &Queue<P>, name: u32, seen: u32) -> bool {
        let records = &queue.records;
        let Some(last) = last_aside(records.at(name).told.load(Ordering::Relaxed)) else {
            return queue.word.step(seen, LOCKED).is_ok();
        };
        let first = records.at(last).next.load(Ordering::Relaxed);
        // Opened before a newcomer can come behind the last one.
        records.at(last).next.store(0, Ordering::Relaxed);
        if queue.word.step(seen, last << TAIL | LOCKED).is_err() {
            records.at(last).next.store(first, Ordering::Relaxed);
            return false;
        }
        records.tell(first, 1);
        true
    }

    fn hand_over(queue: &Queue<P>, name: u32, next: u32) {
        let records = &queue.records;
        let record = records.at(name);
        let told = record.told.load(Ordering::Relaxed);
        let Some(last) = last_aside(told) else { return records.tell(next, 1) };
        let since = record.since.load(Ordering::Relaxed);
        if since == FLUSH {
            let first = records.at(last).next.load(Ordering::Relaxed);
            // Release: pairs with the acquire of `next`.
            records.at(last).next.store(next, Ordering::Release);
            return records.tell(first, 1);
        }
        let (heir, group) = (records.at(next), record.group.load(Ordering::Relaxed));
        heir.group.store(group, Ordering::Relaxed);
        heir.since.store(since, Ordering::Relaxed);
        records.tell(next, told);
    }
}

/// The thread behind the writer in front is of the preferred node. Otherwise it is set aside, if it can be.
fn is_ordered<P: Host>(queue: &Queue<P>, name: u32) -> bool {
    let records = &queue.records;
    let record = records.at(name);
    // Acquire, both: the records behind.
    let next = record.next.load(Ordering::Acquire);
    if next == 0 {
        return false;
    }
    let of = records.at(next);
    if of.group.load(Ordering::Relaxed) == record.group.load(Ordering::Relaxed) {
        return true;
    }
    let behind = of.next.load(Ordering::Acquire);
    if behind != 0 {
        record.next.store(behind, Ordering::Relaxed);
        match last_aside(record.told.load(Ordering::Relaxed)) {
            None => {
                of.next.store(next, Ordering::Relaxed);
                record.since.store(P::now().as_nanos().max(FLUSH + 1), Ordering::Relaxed);
            }
            Some(last) => {
                let last = &records.at(last).next;
                of.next.store(last.load(Ordering::Relaxed), Ordering::Relaxed);
                last.store(next, Ordering::Relaxed);
            }
        }
        record.told.store(ASIDE + next, Ordering::Relaxed);
    }
    false
}

fn is_time_to_look<P: Host>(queue: &Queue<P>, name: u32) -> bool {
    let state = &queue.records.at(name).random;
    // xorshift32 (Marsaglia, 2003); never 0.
    let mut random = state.load(Ordering::Relaxed);
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    state.store(random, Ordering::Relaxed);
    random % LOOK_ONCE_IN == 0
}
