//! A queued spinlock that changes between one queue and queues by group: the idea of the document of 2024, and of the HQ-spinlock.
//!
//! After the document ("dynamic numa-aware osq lock", yongli-oc, 2024) and the HQ-spinlock (Stepanov and others, linux-kernel, November 2025
//! to April 2026), whose rules for the change are in `trigger` and whose queues by group are those of `cohort`. The groups are a parameter:
//! the HQ-spinlock's authors compare sockets and last-level caches.
//!
//! # Protocol
//! The word is that of `qspinlock`, with one more bit, *grouped*. While it is clear, threads queue up in one queue; the thread in front counts,
//! and sets the bit when the rule says so. Newcomers find the bit and queue up by group. Threads that wait in the one queue stay there, and
//! the thread in front of all groups waits until it is empty. So no thread is stopped, and none changes its queue. The document stops all
//! threads instead, and the HQ-spinlock lets late threads change their queue: with either, a change takes longer.
//!
//! Invariant: the one queue is empty when a thread of a group takes the lock. While the bit is set nobody joins the one queue, pends, or takes
//! a free word, and only a thread of a group that has the lock clears the bit. So one thread in front takes the lock, as in `qspinlock`: no
//! other thread can set *locked* then, and a plain store is enough. The bit may be clear when a late thread is in front of the groups, which
//! saw it set before the last one cleared it: newcomers may take the word, too, and the thread takes it by a compare-exchange.
//!
//! *Grouped* is set by a plain store to single bits. It shares a byte with *pending*; a real word would need a byte of its own for it.
//!
//! The last thread of all groups clears the bit, if the rule turns back.

use super::cohort::Cohort;
use super::list::Exclusive;
use super::qspinlock::{GROUPED, LOCKED, TAIL, Word};
use super::roster::{Grouping, Records, Roster};
use super::trigger::{HandOver, Trigger, note_number};
use crate::harness::Host;
use core::marker::PhantomData;
use nearq_platform::{AtomicInt as _, LockPlatform, Ordering};
use std::sync::Arc;

/// Hand-overs within a group: the HQ-spinlock's `fairness_threshold`.
const BATCH: u32 = 1000;

pub(super) struct Hq<P: LockPlatform, G, T> {
    word: Word<P>,
    records: Records<P>,
    by_group: Box<Cohort<P, G>>,
    trigger: PhantomData<T>,
}

impl<P: Host, G: Grouping, T: Trigger> Hq<P, G, T> {
    fn lock(&self, name: u32) {
        let Err(seen) = self.word.take_free() else { return };
        if self.word.pend(&self.records.roster, seen) {
            return;
        }
        self.records.prepare(name);
        let Err(seen) = self.word.take_free() else { return };
        match self.word.join_ungrouped(name, seen) {
            Ok(before) => self.wait_in_one_queue(name, before),
            Err(_) => self.wait_by_group(name),
        }
    }

    fn wait_in_one_queue(&self, name: u32, before: u32) {
        if T::NUMBERS_THREADS {
            note_number(&self.records, name, before);
        }
        let told = if before == 0 { 1 } else { self.records.wait_behind(name, before) };
        let grouped = if T::is_due(told) { GROUPED } else { 0 };
        let last = loop {
            let seen = self.word.await_free(&self.records.roster);
            let is_last = seen >> TAIL == name;
            if !is_last {
                self.word.set(LOCKED | grouped);
                break seen >> TAIL;
            }
            // Leaves an empty queue behind, unless a newcomer joins it.
            let rest = seen & ((1 << TAIL) - 1);
            if self.word.step(seen, rest | LOCKED | grouped).is_ok() {
                return;
            }
        };
        let next = self.records.next(name);
        let (records, groups) = (&self.records, &self.by_group.groups[..]);
        let count = T::count(&HandOver { records, groups, name, told, next, last });
        self.records.tell(next, count);
    }

    fn wait_by_group(&self, name: u32) {
        self.by_group.enter(name);
        loop {
            let seen = self.word.await_free(&self.records.roster);
            if seen >> TAIL != 0 {
                self.records.roster.await_change::<P>(&self.word.0, seen);
            } else if seen & GROUPED != 0 {
                self.word.set(LOCKED);
                break;
            } else if self.word.step(seen, seen | LOCKED).is_ok() {
                break;
            }
        }
        if self.by_group.leave(name) && T::TURNS_BACK {
            // Relaxed: where newcomers queue up is no matter of order.
            self.word.0.fetch_and(!GROUPED, Ordering::Relaxed);
        }
    }
}

impl<P: Host, G: Grouping, T: Trigger> Exclusive for Hq<P, G, T> {
    fn free(roster: &Arc<Roster>) -> Self {
        let (records, by_group) = (Records::new(roster), Box::new(Cohort::new(roster, BATCH)));
        Hq { word: Word::free(), records, by_group, trigger: PhantomData }
    }

    #[inline]
    fn with<R>(&self, writer: usize, section: impl FnOnce() -> R) -> R {
        self.lock(writer as u32 + 1);
        let result = section();
        self.word.unlock();
        result
    }
}
