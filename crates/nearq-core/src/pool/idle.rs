//! Which workers of a pool are asleep, and whether one is already searching.
//!
//! # The word
//! `tag:28 | searching:12 | top:24`: a stack of idle workers (`top` is the index of the worker that came last, each worker's `next_idle`
//! names the one below; the tag changes with each push and pop, so that a compare-exchange cannot mistake a new stack for an old one), and
//! the number of workers that are *searching*: awake, without an item, about to look for one. Last in, first out: the worker that slept
//! least has the warmest cache, and the others can be culled.
//!
//! # Steps
//! * A **pusher** has pushed an item. If a worker is searching, that worker will find it. Otherwise the pusher pops a worker, counts it as
//!   searching, and wakes it: one at a time.
//! * A searching worker that **finds** items stops being one. If it was the last and there is more work, it wakes the next: so the number
//!   of workers grows while there is work.
//! * A searching worker that finds nothing **settles**: onto the stack, no longer searching, in one step. Then it checks the inbox once
//!   more, and if something is there it does what a pusher does.
//!
//! # The race
//! A push while the last worker settles. Push: write inbox (PUSH), read word (LOOK). Worker: write word (SETTLE), read inbox (CHECK). All
//! four are `SeqCst`. So in their total order either SETTLE comes before LOOK, and the pusher finds the worker on the stack, or PUSH comes
//! before CHECK, and the worker finds the item.
//!
//! # Culling
//! A worker that slept too long ends (`Worker::status` from `IDLE` to `DEAD`) but stays on the stack: a thread that pops it finds it dead
//! and goes on to the next. Its entry is used again after that. In a pool that is not used any more, no thread would pop it: the last
//! worker that ends takes all of them off (`bury_all`).

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use crate::pool::worker::{Worker, WorkerSlab};

const TOP: u64 = 0xff_ffff;
const NO_WORKER: u64 = TOP;
const ONE_SEARCHING: u64 = 1 << 24;
const SEARCHING: u64 = 0xfff << 24;
const ONE_TAG: u64 = 1 << 36;

/// Which workers sleep, and how many search.
pub(crate) struct Idle<P: Platform> {
    word: P::AtomicU64,
}

/// The result of trying to wake a worker.
pub(crate) enum Wakeup<'a, P: Platform> {
    /// A worker is searching already.
    Unneeded,
    /// This worker; it counts as searching. The caller unparks it.
    Worker(&'a Worker<P>),
    /// No worker sleeps.
    NoneAsleep,
}

impl<P: Platform> Idle<P> {
    pub(crate) fn new() -> Self {
        Idle { word: P::AtomicU64::new(NO_WORKER) }
    }

    /// Pops a worker to wake, unless one is searching, or `full` says that enough are awake. Comes after a push; see "The race".
    #[inline]
    pub(crate) fn pop_to_wake<'a>(
        &self,
        slab: &'a WorkerSlab<P>,
        full: impl FnOnce() -> bool,
    ) -> Wakeup<'a, P> {
        P::model_fence();
        let word = self.word.load(Ordering::SeqCst);
        if word & SEARCHING != 0 {
            return Wakeup::Unneeded;
        }
        if word & TOP == NO_WORKER || full() {
            return Wakeup::NoneAsleep;
        }
        self.pop_slow(slab, false, false)
    }

    /// Pops a worker to wake, although others may be searching; possibly with a place of its concurrency limit.
    pub(crate) fn pop_another<'a>(
        &self,
        slab: &'a WorkerSlab<P>,
        with_place: bool,
    ) -> Wakeup<'a, P> {
        self.pop_slow(slab, true, with_place)
    }

    // Kept out of line: what follows the check of the word costs a system call, and the pusher's path must stay short.
    #[cold]
    #[inline(never)]
    fn pop_slow<'a>(
        &self,
        slab: &'a WorkerSlab<P>,
        another: bool,
        with_place: bool,
    ) -> Wakeup<'a, P> {
        let mut word = self.word.load(Ordering::SeqCst);
        loop {
            if !another && word & SEARCHING != 0 {
                return Wakeup::Unneeded;
            }
            if word & TOP == NO_WORKER {
                return Wakeup::NoneAsleep;
            }
            let worker = slab.get((word & TOP) as u32);
            let below = u64::from(worker.next_idle.load(Ordering::Relaxed));
            let popped = (word & !TOP).wrapping_add(ONE_TAG).wrapping_add(ONE_SEARCHING) | below;
            match self.word.compare_exchange_weak(word, popped, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) if worker.claim_idle(with_place) => return Wakeup::Worker(worker),
                // The worker has died in its sleep. Its entry is free now; take the next one.
                Ok(_) => {
                    worker.bury();
                    self.word.fetch_sub(ONE_SEARCHING, Ordering::SeqCst);
                    word = self.word.load(Ordering::SeqCst);
                }
                Err(found) => word = found,
            }
        }
    }

    /// Takes the dead off the stack, for a pool whose workers have all ended and that no thread pushes to. If one sleeps there after all,
    /// it is returned: it counts as searching, and the caller unparks it.
    #[cold]
    pub(crate) fn bury_all<'a>(&self, slab: &'a WorkerSlab<P>) -> Option<&'a Worker<P>> {
        let mut word = self.word.load(Ordering::SeqCst);
        loop {
            if word & TOP == NO_WORKER {
                return None;
            }
            let worker = slab.get((word & TOP) as u32);
            let below = u64::from(worker.next_idle.load(Ordering::Relaxed));
            // Not counted as searching before it is known that there is one: a thread may be pushing at this moment.
            let popped = (word & !TOP).wrapping_add(ONE_TAG) | below;
            match self.word.compare_exchange_weak(word, popped, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) if worker.claim_idle(false) => {
                    self.begin_search();
                    return Some(worker);
                }
                Ok(_) => {
                    worker.bury();
                    word = self.word.load(Ordering::SeqCst);
                }
                Err(found) => word = found,
            }
        }
    }

    /// The caller, awake, begins to search.
    pub(crate) fn begin_search(&self) {
        self.word.fetch_add(ONE_SEARCHING, Ordering::SeqCst);
    }

    /// The caller ends its search. True if no worker searches now.
    pub(crate) fn end_search(&self) -> bool {
        let before = self.word.fetch_sub(ONE_SEARCHING, Ordering::SeqCst);
        before & SEARCHING == ONE_SEARCHING
    }

    /// The caller, searching, goes onto the stack. It must check the inbox afterwards.
    pub(crate) fn settle(&self, worker: &Worker<P>) {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            worker.next_idle.store((word & TOP) as u32, Ordering::Relaxed);
            let pushed = (word & !TOP).wrapping_add(ONE_TAG).wrapping_sub(ONE_SEARCHING)
                | u64::from(worker.index);
            match self.word.compare_exchange_weak(word, pushed, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        P::model_fence();
    }

    /// Resets it to no worker sleeping or searching: the threads are the parent's. In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        crate::base::forked::set(&self.word, NO_WORKER);
    }

    /// Whether a worker sleeps here (or died in its sleep).
    pub(crate) fn has_idle(&self) -> bool {
        self.word.load(Ordering::SeqCst) & TOP != NO_WORKER
    }

    /// Whether a worker searches.
    pub(crate) fn has_searching(&self) -> bool {
        self.word.load(Ordering::SeqCst) & SEARCHING != 0
    }
}

#[cfg(test)]
mod tests;
