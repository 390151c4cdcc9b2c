//! The steps of a thread that executes an item, and of a thread that admits an item that was held back. They are described in `item`.

use core::ptr::NonNull;

use nearq_platform::{Atomic, Ordering, Platform};

use super::account::Account;
use super::owned::{Abandoned, Pending, Running};
use super::{
    ARRIVED, Activated, DEFERRED, ENDED, Executed, Finished, INACTIVE, Item, ItemVtable, LOCKED,
    PENDING, PROXIED, RUNNING, STALE, Started, WAITED, is_abandoned,
};

impl<P: Platform> Item<P> {
    #[inline]
    fn try_start(&self, word: u64) -> bool {
        let account = self.account.load(Ordering::Relaxed);
        // Before the next queuer can own PENDING.
        self.account.store(core::ptr::null_mut(), Ordering::Relaxed);
        debug_assert_eq!(word & (PENDING | RUNNING), PENDING);
        // Acquire: pairs with every `claim` before it. Release: keeps the fields' reads above it. SeqCst: if a thread sees the item not
        // pending and then writes something, this execution either sees nothing of that, or sees all that the thread does.
        let started = self.state.compare_exchange(
            word,
            word ^ (PENDING | RUNNING),
            Ordering::SeqCst,
            Ordering::Relaxed,
        );
        if started.is_err() {
            self.account.store(account, Ordering::Release);
        }
        started.is_ok()
    }

    /// The caller has the node of a cancelled queueing: the node can be queued again. Returns whether the item must be freed; nothing if
    /// the word has changed by now.
    fn throw_away(&self, word: u64) -> Option<bool> {
        self.forget_account();
        self.change(word, word & !STALE).then_some(is_abandoned(word & !STALE))
    }

    /// The function has returned. The item must not be touched afterwards, unless the answer says so.
    #[inline]
    pub(crate) fn finish(&self) -> Finished {
        let word = self.state.load(Ordering::Relaxed);
        if word & DEFERRED != 0 {
            return Finished::Deferred;
        }
        // Release: the next execution, or the free, sees what this one did. Acquire: for the thread that frees.
        if word & (LOCKED | WAITED | STALE) == 0 && self.change(word, word & !RUNNING) {
            return if is_abandoned(word & !RUNNING) { Finished::Free } else { Finished::Done };
        }
        self.finish_slow()
    }

    /// As [`finish`](Self::finish), and frees the item if nothing holds it any more. True for `Deferred`.
    ///
    /// # Safety
    /// The caller has the item's `RUNNING`.
    #[inline]
    pub(crate) unsafe fn end(item: NonNull<Self>) -> bool {
        // SAFETY: RUNNING keeps it alive.
        match unsafe { item.as_ref() }.finish() {
            Finished::Done => {}
            Finished::Deferred => return true,
            // SAFETY: the answer says so.
            over => unsafe { Item::free_if_over(over, item) },
        }
        false
    }

    #[cold]
    fn finish_slow(&self) -> Finished {
        loop {
            let word = self.state.load(Ordering::Acquire);
            if word & LOCKED != 0 {
                if self.change(word, word | ENDED) {
                    return Finished::Done;
                }
            } else if word & WAITED != 0 {
                if self.change(word, word | LOCKED | ENDED) {
                    return self.guard().unlock_by_worker();
                }
            } else if word & DEFERRED != 0 {
                return Finished::Deferred;
            } else if self.is_to_be_emptied(word & !RUNNING) {
                // SAFETY: no handle is left, and RUNNING, the last thing that could have it executed, is ours; EMPTY is not set.
                unsafe { self.empty_contained() };
            } else if self.change(word, word & !RUNNING) {
                let free = is_abandoned(word & !RUNNING);
                return if free { Finished::Free } else { Finished::Done };
            }
        }
    }

    /// As [`finish`](Self::finish), after that said `Deferred`. `Deferred` once more if the caller must push the item onto the pool of
    /// `served`, where it was queued. The caller has not counted the execution as completed yet, so `served` is alive; another account may
    /// be gone as soon as a thread cancels the item, so that case takes the lock.
    #[inline]
    fn finish_queued(&self, served: *const Account<P>) -> Finished {
        loop {
            let word = self.state.load(Ordering::Acquire);
            if word & (LOCKED | WAITED | PROXIED | DEFERRED) == DEFERRED {
                if self.change(word, word & !(RUNNING | DEFERRED)) {
                    // Not earlier: until then it may be cancelled and queued elsewhere while the word is unchanged. Now the node is ours,
                    // so its account stays.
                    let own = core::ptr::eq(self.account(), served);
                    return if own { Finished::Deferred } else { self.pass_on() };
                }
            } else if word & LOCKED != 0 {
                if self.change(word, word | ENDED) {
                    return Finished::Done;
                }
            } else if self.change(word, word | LOCKED | ENDED) {
                return self.guard().unlock_by_worker();
            }
        }
    }

    /// Pushes a node to where it was queued. The node is on no list, and may have been cancelled. The caller has the node.
    #[cold]
    fn pass_on(&self) -> Finished {
        loop {
            let word = self.state.load(Ordering::Acquire);
            if word & STALE != 0 {
                if let Some(free) = self.throw_away(word) {
                    return if free { Finished::Free } else { Finished::Done };
                }
            } else if word & LOCKED != 0 {
                if self.change(word, word | ARRIVED) {
                    return Finished::Done;
                }
            } else if self.change(word, word | LOCKED | ARRIVED) {
                return self.guard().unlock_by_worker();
            }
        }
    }
}

impl<P: Platform> Pending<P> {
    /// Changes `PENDING` to `RUNNING`, in one step. The caller took the node off a list.
    #[inline]
    pub(crate) fn start(self) -> Started<P> {
        let word = self.state.load(Ordering::Relaxed);
        if word & (LOCKED | STALE | PROXIED) == 0 && self.try_start(word) {
            // SAFETY: RUNNING was set.
            return Started::Yes(unsafe { Running::from_raw(self.into_raw()) });
        }
        self.start_slow()
    }

    /// As [`start`](Self::start), for an item that is on no list and that nothing cancels here: a task that the calling thread ends itself.
    /// It waits while another thread holds the item's lock, for example a thread that checks whether it must wait for the task. The node
    /// cannot be left to that holder, which would send it to the queue that has refused it.
    pub(crate) fn start_here(self) -> Running<P> {
        let mut attempt = 0;
        loop {
            let word = self.state.load(Ordering::Relaxed);
            debug_assert_eq!(word & (STALE | PROXIED), 0, "its node is its own");
            if word & LOCKED == 0 && self.try_start(word) {
                // SAFETY: RUNNING was set.
                return unsafe { Running::from_raw(self.into_raw()) };
            }
            crate::base::pause::for_holder::<P>(&mut attempt);
        }
    }

    #[cold]
    fn start_slow(self) -> Started<P> {
        loop {
            let word = self.state.load(Ordering::Acquire);
            if word & STALE != 0 {
                if let Some(free) = self.throw_away(word) {
                    return if free {
                        // SAFETY: the word says so.
                        Started::Free(unsafe { Abandoned::new(self.into_raw()) })
                    } else {
                        Started::Cancelled
                    };
                }
            } else if word & PROXIED != 0 {
                return Started::Proxy(self);
            } else if word & LOCKED != 0 {
                if self.change(word, word | ARRIVED) {
                    return Started::Left;
                }
            } else if self.try_start(word) {
                // SAFETY: RUNNING was set.
                return Started::Yes(unsafe { Running::from_raw(self.into_raw()) });
            }
        }
    }

    /// The limit admits an item that was held back. The caller has taken it off the list of held-back items, and has taken a place for it.
    pub(crate) fn activate(self) -> Activated<P> {
        loop {
            let word = self.state.load(Ordering::Acquire);
            if word & STALE != 0 {
                if let Some(free) = self.throw_away(word) {
                    return if free {
                        // SAFETY: the word says so.
                        Activated::Free(unsafe { Abandoned::new(self.into_raw()) })
                    } else {
                        Activated::Cancelled
                    };
                }
            } else if word & LOCKED != 0 {
                if self.change(word, word | ARRIVED) {
                    return Activated::Locked(self);
                }
            } else if self.change(word, word & !INACTIVE) {
                return Activated::Yes(self);
            }
        }
    }
}

/// What remains to be done after an execution.
pub(crate) struct Ended<P: Platform> {
    /// The function panicked; the panic has been dealt with.
    pub(crate) panicked: bool,
    /// The item was queued meanwhile, and the caller still has its `RUNNING`.
    pub(crate) deferred: Option<Running<P>>,
}

impl<P: Platform> Running<P> {
    /// Runs the item's function, by its table, and ends the execution. The item may be gone afterwards.
    #[inline(always)]
    pub(crate) fn execute(self, table: &'static ItemVtable<P>) -> Ended<P> {
        debug_assert!(core::ptr::eq(self.table(), table));
        let item = self.into_raw();
        // SAFETY: its RUNNING is ours, and the table is its own.
        let Executed { panicked, deferred } = unsafe { (table.execute)(item) };
        // SAFETY: the answer says so.
        Ended { panicked, deferred: deferred.then(|| unsafe { Running::from_raw(item) }) }
    }

    /// As [`Item::finish`], after the function of the item's table has said `deferred`. Returns the node if the caller must push it onto
    /// the pool of `served`. The caller has not counted the execution yet.
    #[inline]
    pub(crate) fn finish_deferred(self, served: *const Account<P>) -> Option<Pending<P>> {
        let item = self.into_raw();
        // SAFETY: RUNNING keeps it alive.
        match unsafe { item.as_ref() }.finish_queued(served) {
            // SAFETY: DEFERRED was cleared, so the node is the caller's.
            Finished::Deferred => Some(unsafe { Pending::from_raw(item) }),
            over => {
                // SAFETY: the answer says so.
                unsafe { Item::free_if_over(over, item) };
                None
            }
        }
    }
}
