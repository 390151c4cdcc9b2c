//! A queue's end: the threads that may still touch it, and when none does any more.
//!
//! A thread that has a handle, or whose item is counted, keeps the queue alive. Threads that have neither enter through the rundown
//! reference (`rundown_ref`).

use std::sync::Arc;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use super::Queue;
use crate::item::{Item, Started};
use crate::limit::node_active::NodeActive;
use crate::pool::worker::Worker;

impl<P: Platform> Queue<P> {
    /// Adds an owner. The caller is one.
    pub(crate) fn add_owner(&self) {
        // As in `Arc`: leaked owners must not wrap the count. To pass the other half of the range, that many threads would have to leak an
        // owner at this very moment.
        if self.owners.fetch_add(1, Ordering::Relaxed) > u32::MAX / 2 {
            std::process::abort();
        }
    }

    /// Adds an owner, unless there is none any more. By a thread that has a reference.
    pub(crate) fn try_add_owner(&self) -> bool {
        // Relaxed: the end is ordered after the owner's actions when the owner gives its ownership back.
        let mut owners = self.owners.load(Ordering::Relaxed);
        while owners != 0 {
            // As in `add_owner`.
            if owners > u32::MAX / 2 {
                std::process::abort();
            }
            match self.owners.compare_exchange_weak(
                owners,
                owners + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(found) => owners = found,
            }
        }
        false
    }

    /// Removes an owner; true if it was the last, which ends the queue.
    pub(crate) fn drop_owner(&self) -> bool {
        // AcqRel: what every owner did comes before the end.
        self.owners.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Runs `f`, unless the queue is being dropped; returns whether it ran. By a thread that has a reference and no handle.
    pub(crate) fn pass(self: &Arc<Self>, f: impl FnOnce()) -> bool {
        let passed = self.rundown.pass(f);
        if passed.orphaned {
            self.inner().reap_orphans_now();
        }
        passed.open
    }

    /// Whether no worker touches the queue any more: it is empty, and none serves it.
    pub(crate) fn is_left(&self) -> bool {
        // See `activation_item::carry_out`.
        P::fence(Ordering::SeqCst);
        self.is_empty()
            && !self.domains().any(|domain| domain.activation_item.is_active())
            && !self.is_served()
    }

    /// Whether a worker serves one of its pwqs, retired ones included.
    fn is_served(&self) -> bool {
        // The workers first, and the pwqs once: a queue whose attributes have often changed has many thousands of pwqs.
        let accounts = self.inner().services.workers.iter().map(Worker::account);
        let served: Vec<_> = accounts.filter(|account| !account.is_null()).collect();
        // The pointers are compared, not followed: they may be another queue's.
        !served.is_empty() && self.pwqs().any(|own| served.contains(&own.account()))
    }

    /// Executes the queue's activation items that still wait for a worker. By a thread that waits for the queue's end: all workers may be
    /// inside items, and no further worker may be allowed.
    pub(crate) fn carry_out_activations(&self) {
        let is_own = |item: &Item<P>| self.domains().any(|domain| domain.activation_item.is(item));
        for pwq in self.pwqs() {
            while let Some(item) = pwq.pool.take_one(is_own) {
                if let Started::Yes(item) = item.start() {
                    crate::limit::activation_item::carry_out(&pwq.pool, item);
                }
            }
        }
    }

    /// Whether no thread touches the queue any more.
    fn is_unused(&self) -> bool {
        // After a shutdown only an activation item may be left, which no worker will run.
        let is_left = || self.is_left() || self.inner().has_ended();
        // The rundown reference first: a thread that has passed it has counted its item by then. It is checked once more afterwards: a
        // visit may make the queue empty, and then send an activation item.
        self.rundown.is_quiet() && is_left() && self.rundown.is_quiet() && is_left()
    }

    /// Whether the queue is closed for good.
    pub(crate) fn has_ended(&self) -> bool {
        self.config.lock().closed
    }

    /// Closes the queue if no thread touches it any more; then none ever will. By a thread that took the last handle.
    pub(crate) fn close_if_unused(&self) -> bool {
        let mut config = self.config.lock();
        // With the lock, so that a thread that follows a change of the runtime has either sent its activation item before, or leaves the
        // queue alone.
        config.closed = self.is_unused();
        config.closed
    }
}

impl<P: Platform> Drop for Queue<P> {
    fn drop(&mut self) {
        // Before anything is freed: the thread that has the list's lock may read every queue on it.
        self.inner().remove_queue(self);
        if let Some(rescuer) = &self.rescuer {
            // The rescuer's thread may be the caller. If the queue had a handle until now, the thread that dropped it has already ended the
            // rescuer and waited for it.
            rescuer.end(false);
        }
        self.free_thieves();
        self.domains().for_each(NodeActive::throw_away);
        Self::leave_pools(self.cpu_map.load(Ordering::Acquire));
    }
}
