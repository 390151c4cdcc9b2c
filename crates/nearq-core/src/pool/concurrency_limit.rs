//! How many workers of one nice level run at once, over all pools.
//!
//! Pools of different scopes share the machine: with a pool per pod and per scope there are more workers than CPUs. A worker that is about
//! to look for work takes a *place* of its concurrency limit, and gives it back when it goes to sleep. There are as many places as CPUs
//! that the process may use, or as its quota pays for.
//!
//! A pool whose worker gets no place queues up; a thread that gives a place back hands it to the pool that has waited longest. While other
//! pools wait, each worker gives its place back after a turn, so every pod with work gets its turn.
//!
//! # Protocol
//! * `running` counts places taken. Some of those are held by workers that sleep inside their items. The monitor sees that, and adds as
//!   many places (`extra`); only the monitor changes that number (`balance`). A worker that comes back from a section that it declared to
//!   be blocking takes a place even if none is free. While more places are taken than there are, workers *leave* at the end of a batch, one
//!   for each excess place.
//! * Enqueue: put the pool onto the queue (under the lock), increment `waiting`, then try once more for a place. Release: decrement
//!   `running`, then read `waiting`. All are `SeqCst`: one of the two sees the other (Dekker's pattern), so no pool waits while a place is
//!   free.
//!
//! The lock is taken by workers of this concurrency limit (and the monitor) only.

use std::collections::VecDeque;
use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use crate::base::pad::Padded;
use crate::pool::Pool;

/// The places of one nice level.
pub(crate) struct ConcurrencyLimit<P: Platform> {
    pub(crate) nice: i32,
    /// Whether it is the limit of the idle class, which has a concurrency limit of its own.
    pub(crate) idle: bool,
    running: Padded<P::AtomicU32>,
    limit: P::AtomicU32,
    /// Places beyond the limit, for workers that sleep in their items. Written by the monitor only.
    extra: P::AtomicU32,
    /// Pools in `queue`.
    waiting: P::AtomicU32,
    queue: Mutex<VecDeque<Arc<Pool<P>>>, P>,
}

impl<P: Platform> ConcurrencyLimit<P> {
    pub(crate) fn new(nice: i32, idle: bool, limit: u32) -> Self {
        ConcurrencyLimit {
            nice,
            idle,
            running: Padded(P::AtomicU32::new(0)),
            limit: P::AtomicU32::new(limit),
            extra: P::AtomicU32::new(0),
            waiting: P::AtomicU32::new(0),
            queue: Mutex::new_in(VecDeque::new()),
        }
    }

    fn places(&self) -> u32 {
        self.limit.load(Ordering::Relaxed) + self.extra.load(Ordering::Relaxed)
    }

    /// Whether every place is taken.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.running.load(Ordering::SeqCst) >= self.places()
    }

    /// Whether more places are taken than there are.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.running.load(Ordering::Relaxed) > self.places()
    }

    /// Gives a place back if more are taken than there are. No pool can then wait for a place that is free.
    pub(crate) fn leave_if_over(&self) -> bool {
        let left = leave::<P>(&self.running, || self.places());
        if left {
            // The number of places may have grown meanwhile, and a pool may have queued up before that.
            self.grant_waiting();
        }
        left
    }

    /// Whether a pool waits for a place.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) != 0
    }

    /// Whether a pool other than this one waits for a place. The place of a worker of that pool would only go to another worker of it.
    pub(crate) fn has_waiting_besides(&self, pool: &Pool<P>) -> bool {
        let waiting = self.waiting.load(Ordering::SeqCst);
        waiting > 1 || waiting == 1 && !pool.is_queued_for_place()
    }

    /// Takes a place if one is free.
    ///
    /// Workers of the whole machine write this word whenever they wake up or go to sleep. So it is changed by an addition, which takes one
    /// transfer of its line, rather than by a compare-exchange, which most would lose. A worker that finds no free place takes its addition
    /// back and checks again: until then it may have hidden a free place from other workers.
    pub(crate) fn try_acquire(&self) -> bool {
        while self.running.load(Ordering::SeqCst) < self.places() {
            if self.running.fetch_add(1, Ordering::SeqCst) < self.places() {
                return true;
            }
            self.running.fetch_sub(1, Ordering::SeqCst);
            P::model_fence();
        }
        false
    }

    /// Takes a place whether or not one is free: for a worker that comes back from blocking.
    pub(crate) fn acquire_anyway(&self) {
        self.running.fetch_add(1, Ordering::SeqCst);
    }

    /// Places beyond the limit.
    pub(crate) fn extra(&self) -> u32 {
        self.extra.load(Ordering::Relaxed)
    }

    /// Sets how many places there are beyond the limit, and hands out what is free. By the monitor only.
    pub(crate) fn set_extra(&self, extra: u32) {
        self.extra.store(extra, Ordering::SeqCst);
        self.grant_waiting();
    }

    /// Places that are taken.
    pub(crate) fn taken(&self) -> u32 {
        self.running.load(Ordering::Relaxed)
    }

    /// Places, not counting the extra ones.
    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Takes a place for `pool`, or queues the pool up for one.
    pub(crate) fn acquire(&self, pool: &Arc<Pool<P>>) -> bool {
        if self.try_acquire() {
            return true;
        }
        self.enqueue(pool);
        let taken = self.try_acquire();
        if taken {
            // The pool is on the queue nevertheless, and pushers rely on the concurrency limit to wake a worker. If places are free, this
            // thread must take the pool off.
            self.hand_out();
        }
        taken
    }

    /// Queues `pool` up for a place.
    pub(crate) fn enqueue(&self, pool: &Arc<Pool<P>>) {
        if pool.mark_queued_for_place() {
            let mut queue = self.queue.lock();
            queue.push_back(Arc::clone(pool));
            self.waiting.fetch_add(1, Ordering::SeqCst);
            drop(queue);
            P::model_fence();
        }
    }

    /// Gives a place back, and hands it on if a pool waits.
    pub(crate) fn release(&self) {
        let running = self.running.fetch_sub(1, Ordering::SeqCst);
        debug_assert_ne!(running, 0, "a place was given back twice");
        self.grant_waiting();
    }

    /// A place may be free: hands it on if a pool waits.
    fn grant_waiting(&self) {
        P::model_fence();
        if self.waiting.load(Ordering::SeqCst) != 0 {
            self.hand_out();
        }
    }

    /// Hands free places to waiting pools.
    #[cold]
    pub(crate) fn hand_out(&self) {
        while self.waiting.load(Ordering::SeqCst) != 0 && self.try_acquire() {
            let pool = {
                let mut queue = self.queue.lock();
                let pool = queue.pop_front();
                if pool.is_some() {
                    self.waiting.fetch_sub(1, Ordering::SeqCst);
                }
                pool
            };
            let taken = pool.is_some_and(|pool| {
                pool.clear_queued_for_place();
                pool.start_with_place()
            });
            if !taken {
                self.running.fetch_sub(1, Ordering::SeqCst);
                P::model_fence();
            }
        }
    }

    /// Resets it so that no worker holds a place and no pool waits for one. The limit stays. In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        crate::base::forked::set(&*self.running, 0);
        crate::base::forked::set(&self.extra, 0);
        crate::base::forked::set(&self.waiting, 0);
        // SAFETY: this is the only thread, and it is not in the middle of `enqueue` or `hand_out`: no user's code runs there.
        unsafe { self.queue.renew(VecDeque::new()) };
    }

    /// Sets the limit, after the machine has changed.
    pub(crate) fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::SeqCst);
        self.hand_out();
    }
}

/// Decrements a count, if it is more than `may` allows. SeqCst: Dekker's pattern with a thread that writes what waits, then reads this
/// count.
pub(crate) fn leave<P: Platform>(count: &P::AtomicU32, may: impl Fn() -> u32) -> bool {
    let mut seen = count.load(Ordering::Relaxed);
    while seen > may() {
        match count.compare_exchange(seen, seen - 1, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(found) => seen = found,
        }
    }
    false
}

#[cfg(test)]
mod tests;
