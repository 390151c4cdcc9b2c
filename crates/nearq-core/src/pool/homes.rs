//! Helpers from other nodes for items with homes: which worker takes what, and when they are called.
//!
//! A pool counts the items with a home that wait at it, batches included (`homed`). While there are none, or if the helper is of the same
//! node, nothing here applies; and if the runtime has no homes, the count is not read. Otherwise a helper takes, from the nearest pool that
//! has some:
//! 1. items whose home is its own node;
//! 2. items without a home, and strays, whose home is neither its node nor the pool's: the queue's mask excluded their home, a call named the
//!    pool's node, or their home has moved since;
//! 3. items whose home is the pool's node, if so many more wait for each CPU there than at its own pool that it is worth the distance
//!    (`Weights::may_take`), or if some have waited for long: then the pool is *open*.
//!
//! It checks only the first [`NODES_CHECKED`] items of the list. What it takes out of another worker's batch and may not keep goes to the
//! front of the list.
//!
//! # What is counted
//! `homed` is a hint: incremented before an item is pushed, decremented when it starts or is cancelled, never below zero. Errors (a
//! cancelled item that was queued again by another node) are corrected by the monitor when nothing waits.
//!
//! # Work conservation
//! While items with homes wait, the monitor notes how many there are and how many the pool has taken so far. If the pool has not taken that
//! many [`LONG`] later, some have waited for that long, and the pool is open until the next such note. The pool calls helpers as before,
//! but not those that would find nothing they may take: they would wake each other up for nothing.

use core::time::Duration;

use nearq_home::Belongs;
use nearq_platform::{Atomic, AtomicInt, Instant, Ordering, Platform};

use super::Pool;
use crate::item::Item;
use crate::item::list::List;
use crate::item::owned::Pending;
use crate::pool::worker::Worker;

/// Items at the front of a list from which a helper chooses. More would keep the lock for too long: each is a cache line of another node.
const NODES_CHECKED: usize = 64;
/// Any worker may take items that have waited this long; as the monitor's patience in `balance`.
const LONG: Duration = Duration::from_millis(10);

/// What the monitor remembers of a pool at which items with homes wait.
#[derive(Debug)]
pub(crate) struct Noted {
    at: Instant,
    taken: u64,
    waiting: usize,
    count: u32,
}

impl<P: Platform> Pool<P> {
    /// The node on which what belongs to the pool should lie; none if it does not matter.
    pub(crate) fn near_node(&self) -> Option<u32> {
        self.node.filter(|_| self.services().homes.has_several())
    }

    /// As [`push`](Self::push), of an item with a home.
    #[cold]
    #[inline(never)]
    pub(crate) fn push_homed(&self, item: Pending<P>) {
        // Before the push: a thread that finds the item finds the pool guarded. Relaxed: the push releases the count to the thread that
        // takes the item.
        self.homed.count.fetch_add(1, Ordering::Relaxed);
        self.arrivals.inbox.push(item);
        self.call_worker_for::<true>();
    }

    /// An item with a home does not wait here any more.
    pub(crate) fn homed_left(&self) {
        let count = &self.homed.count;
        let mut known = count.load(Ordering::Relaxed);
        while known != 0 {
            match count.compare_exchange_weak(
                known,
                known - 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(found) => known = found,
            }
        }
    }

    /// Whether its items are kept from workers of `helper` unless their home is there.
    fn is_guarded_from(&self, helper: &Pool<P>) -> bool {
        self.node.is_some()
            && self.node != helper.node
            // Relaxed: another push may make the answer outdated anyway. See `push_homed`.
            && self.homed.count.load(Ordering::Relaxed) != 0
    }

    /// Whether workers of `helper`, of another node, may take what is at home here.
    pub(super) fn lets_in(&self, helper: &Pool<P>) -> bool {
        let (Some(home), Some(node)) = (self.node, helper.node) else { return true };
        if self.homed.open.load(Ordering::Relaxed) != 0 {
            return true;
        }
        let imbalance = self.waiting_milli().saturating_sub(helper.waiting_milli());
        self.services().homes.map.may_take(node, home, imbalance)
    }

    /// The least number of items that wait, in thousandths for each CPU; less those for which a worker of its own is about to come.
    fn waiting_milli(&self) -> u32 {
        let waiting = self.homed.count.load(Ordering::Relaxed).max(self.listed());
        let room = self.max_running().saturating_sub(self.called.awake.load(Ordering::Relaxed));
        waiting.saturating_sub(room).saturating_mul(1000) / self.cpus
    }

    /// Whether a worker of `helper` that is called for items at home here would find something that it may take.
    pub(super) fn is_worth_calling(&self, helper: &Pool<P>) -> bool {
        !self.services().homes.are_used() || !self.is_guarded_from(helper) || self.lets_in(helper)
    }

    /// As [`take_from_siblings`](Self::take_from_siblings), if items have homes.
    pub(super) fn take_by_homes(&self, worker: &Worker<P>, limit: usize) -> usize {
        for belongs in [Belongs::Here, Belongs::Nowhere, Belongs::Elsewhere] {
            for sibling in self.siblings() {
                let guarded = sibling.is_guarded_from(self);
                let moved = match belongs {
                    Belongs::Nowhere if !guarded => sibling.take_for_sibling(worker, limit),
                    _ if !guarded => 0,
                    Belongs::Elsewhere if !sibling.lets_in(self) => 0,
                    _ => sibling.take_belonging(worker, limit, belongs, self.node),
                };
                if moved != 0 {
                    return moved;
                }
            }
        }
        0
    }

    /// Moves waiting items that belong to a helper's node in that way into its worker's empty batch.
    fn take_belonging(
        &self,
        worker: &Worker<P>,
        limit: usize,
        belongs: Belongs,
        helper: Option<u32>,
    ) -> usize {
        if self.idle.has_searching() || !self.has_work() && !self.has_loaded() {
            return 0;
        }
        let wanted = |item: &Item<P>| {
            let is = match item.origin().home() {
                None => Belongs::Nowhere,
                home if home == helper => Belongs::Here,
                home if home == self.node => Belongs::Elsewhere,
                Some(_) => Belongs::Nowhere,
            };
            is == belongs
        };
        let listed = &*self.listed;
        let mut ready = listed.ready.lock();
        if self.has_loaded() {
            self.unload(&mut ready);
        }
        self.gather(&mut ready);
        let share = ready.len().div_ceil(self.cpus as usize);
        let mut chosen = ready.extract(wanted, share.min(limit).max(1), NODES_CHECKED);
        let moved = worker.fill(&mut chosen, limit.max(1));
        // SeqCst, as in `take`: a thread that puts items on the list reads `idle` afterwards; a worker that settles there reads the length
        // afterwards.
        listed.len.store(ready.len() as u32, Ordering::SeqCst);
        listed.taken.store(listed.taken.load(Ordering::Relaxed) + moved as u64, Ordering::Relaxed);
        moved
    }

    /// Takes the younger halves of the workers' batches back, to the front of the list.
    fn unload(&self, ready: &mut List<P>) {
        for other in self.entries().filter(|other| other.batch.len() != 0) {
            let mut items = List::new();
            other.steal(self, &mut items);
            items.append(ready);
            core::mem::swap(&mut items, ready);
        }
    }

    /// Whether the pool needs helpers from `helper`, of another node. If only items at home here wait, the monitor calls them.
    pub(super) fn needs_help_of(&self, helper: &Pool<P>) -> bool {
        !self.is_guarded_from(helper) || self.homed.open.load(Ordering::Relaxed) != 0
    }

    /// Opens the pool if items with homes have waited for long, and closes it again. By the monitor.
    pub(crate) fn update_homed(&self, noted: &mut Option<Noted>, waits: bool, now: Instant) {
        // Relaxed: a thread that has seen an item wait sees that it was counted; see `push_homed`.
        if self.homed.count.load(Ordering::Relaxed) == 0 {
            *noted = None;
            crate::base::forked::set(&self.homed.open, 0);
            return;
        }
        if !waits {
            crate::base::forked::set(&self.homed.open, 0);
            self.put_right(noted, now);
            return;
        }
        let taken = self.listed.taken.load(Ordering::Relaxed);
        // Each time: a thread that calls helpers reads the list, not the inbox.
        let waiting = self.count_waiting();
        if noted.as_ref().is_some_and(|noted| now - noted.at < LONG) {
            return;
        }
        let open = noted
            .as_ref()
            .is_some_and(|noted| taken.wrapping_sub(noted.taken) < noted.waiting as u64);
        crate::base::forked::set(&self.homed.open, u32::from(open));
        let count = self.homed.count.load(Ordering::Relaxed);
        *noted = Some(Noted { at: now, taken, waiting, count });
    }

    /// Nothing waits, but the count is not zero. If that is so at two checks, with the same number, it is wrong: a pusher counts only a few
    /// instructions before its push.
    fn put_right(&self, noted: &mut Option<Noted>, now: Instant) {
        // Relaxed: nothing is published with the number.
        let count = self.homed.count.load(Ordering::Relaxed);
        match noted.take() {
            Some(before) if before.waiting == 0 && before.count == count => {
                let order = Ordering::Relaxed;
                // Fails if the count changes: then it is not wrong yet.
                let _ = self.homed.count.compare_exchange(count, 0, order, order);
            }
            _ => *noted = Some(Noted { at: now, taken: 0, waiting: 0, count }),
        }
    }

    /// Calls a worker for what already waits on the list.
    pub(super) fn call_again(&self) {
        if self.homed.count.load(Ordering::Relaxed) == 0 || self.has_homeless() {
            self.call_worker();
        } else {
            self.call_worker_for::<true>();
        }
    }

    /// Whether an item without a home waits on the list. By the monitor, after it has counted what waits.
    pub(super) fn has_homeless(&self) -> bool {
        self.listed() > self.homed.count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
