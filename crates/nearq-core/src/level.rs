//! How many workers of one nice level run at once, over all pools.
//!
//! Pools of different scopes share the machine: with a pool per pod and per scope there are more workers than CPUs.
//! A worker that is about to look for work takes a *place* of its level, and gives it back when it goes to sleep. There
//! are as many places as CPUs that the process may use, or as its quota pays for.
//!
//! A pool whose worker gets no place queues up; whoever gives a place back hands it to the pool that waited longest.
//! As long as pools wait, each worker gives its place back after a turn, so every pod with work gets its turn.
//!
//! # Protocol
//! * `running` counts places taken. It may exceed the limit: a worker that was blocked comes back without asking,
//!   and the monitor adds workers where nothing moves (`extra`). Workers above the limit give up their
//!   place at the end of a batch.
//! * Enqueue: the pool onto the queue (under the lock), `waiting` + 1, then one more try for a place. Release: `running`
//!   - 1, then a look at `waiting`. All `SeqCst`: one of the two sees the other (Dekker's pattern), so no pool waits
//!     while a place is free.
//!
//! The lock is taken by workers of this level (and the monitor) only.

use std::collections::VecDeque;
use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use crate::pad::Padded;
use crate::pool::Pool;

/// The places of one nice level.
pub(crate) struct Level<P: Platform> {
    pub(crate) nice: i32,
    running: Padded<P::AtomicU32>,
    limit: P::AtomicU32,
    /// Places beyond the limit, given by the monitor because nothing moved.
    extra: P::AtomicU32,
    /// Pools in `queue`.
    waiting: P::AtomicU32,
    queue: Mutex<VecDeque<Arc<Pool<P>>>, P>,
}

impl<P: Platform> Level<P> {
    pub(crate) fn new(nice: i32, limit: u32) -> Self {
        Level {
            nice,
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
    pub(crate) fn is_over(&self) -> bool {
        self.running.load(Ordering::Relaxed) > self.places()
    }

    /// Whether a pool waits for a place.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) != 0
    }

    /// Takes a place if one is free.
    ///
    /// Workers of the whole machine write this word whenever they wake up or go to sleep, so it is added to, which
    /// takes one transfer of its line, instead of compared, which most would lose. Who finds that it was one too many
    /// takes it back and looks again: until then it may have hidden a free place from others.
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

    /// The extra place was not needed after all.
    pub(crate) fn take_back_extra(&self) {
        let extra = self.extra.load(Ordering::Relaxed);
        if extra > 0 {
            // Where somebody else was faster, it has been taken back already.
            let _ =
                self.extra.compare_exchange(extra, extra - 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Takes a place whether or not one is free: for a worker that comes back from blocking.
    pub(crate) fn acquire_anyway(&self) {
        self.running.fetch_add(1, Ordering::SeqCst);
    }

    /// Adds a place beyond the limit, for a pool where nothing moves.
    pub(crate) fn add_extra(&self) {
        self.extra.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes a place for `pool`, or queues the pool up for one.
    pub(crate) fn acquire(&self, pool: &Arc<Pool<P>>) -> bool {
        if self.try_acquire() {
            return true;
        }
        self.enqueue(pool);
        let taken = self.try_acquire();
        if taken {
            // The pool is on the queue all the same, and pushers leave waking to the level. If places are free, somebody
            // must take it off.
            self.hand_out();
        }
        taken
    }

    /// Queues `pool` up for a place.
    pub(crate) fn enqueue(&self, pool: &Arc<Pool<P>>) {
        if pool.mark_queued_at_level() {
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
        // An extra place was for one emergency; the next one is for the monitor to see.
        self.take_back_extra();
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
                pool.clear_queued_at_level();
                pool.start_with_place()
            });
            if !taken {
                self.running.fetch_sub(1, Ordering::SeqCst);
                P::model_fence();
            }
        }
    }

    /// Nobody runs or waits for a place. The limit stays. In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        crate::fork::set(&*self.running, 0);
        crate::fork::set(&self.extra, 0);
        crate::fork::set(&self.waiting, 0);
        // SAFETY: this is the only thread, and it is not in the middle of `enqueue` or `hand_out`: no user's code runs there.
        unsafe { self.queue.renew(VecDeque::new()) };
    }

    /// The limit followed the machine.
    pub(crate) fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::SeqCst);
        self.hand_out();
    }
}

#[cfg(test)]
mod tests;
