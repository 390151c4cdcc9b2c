//! A queue's end: the threads that may still touch it, and when nobody does any more.
//!
//! A thread that has a handle, or whose item is counted, keeps the queue. Threads that have neither come in by the gate (`gate`).

use std::sync::Arc;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use super::Queue;
use crate::item::{Item, Started};
use crate::limit::admission::Admission;

impl<P: Platform> Queue<P> {
    /// One owner more. The caller is one.
    pub(crate) fn add_owner(&self) {
        // As `Arc`: leaked owners must not wrap the count. Each of half the range would have to be leaked at this very moment to pass the
        // rest.
        if self.owners.fetch_add(1, Ordering::Relaxed) > u32::MAX / 2 {
            std::process::abort();
        }
    }

    /// One owner more, unless there is none any more. By a thread that has a reference.
    pub(crate) fn try_add_owner(&self) -> bool {
        // Relaxed: what the owner does then is ordered by what it does; the end comes after it gives its ownership back.
        let mut owners = self.owners.load(Ordering::Relaxed);
        while owners != 0 {
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

    /// One owner less; true if that was the last, which ends the queue.
    pub(crate) fn drop_owner(&self) -> bool {
        // AcqRel: what every owner did comes before the end.
        self.owners.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Runs `f`, unless the queue is being dropped; whether it ran. By a thread that has a reference and no handle.
    pub(crate) fn pass(self: &Arc<Self>, f: impl FnOnce()) -> bool {
        let passed = self.gate.pass(f);
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
            && !self.inner().services.workers.iter().any(|worker| {
                let account = worker.account();
                // The pointer is compared, not followed: it may be another queue's.
                self.links().any(|own| core::ptr::eq(own.account(), account))
            })
    }

    /// Carries out the queue's activation items that still wait for a worker. By a thread that waits for the queue's end: all workers may be inside
    /// items, and no other one may be allowed.
    pub(crate) fn carry_out_kickers(&self) {
        let is_own = |item: &Item<P>| self.domains().any(|domain| domain.activation_item.is(item));
        for link in self.links() {
            while let Some(item) = link.pool.take_one(is_own) {
                if let Started::Yes(item) = item.start() {
                    crate::limit::activation_item::carry_out(&link.pool, item);
                }
            }
        }
    }

    /// Whether nobody touches the queue any more.
    fn is_unused(&self) -> bool {
        // After a shutdown only an activation item may be left, which nobody will run.
        let is_left = || self.is_left() || self.inner().has_ended();
        // First the gate: a thread that has passed it has counted its item then. Once more afterwards: a visit may make the queue empty, and
        // then send an activation item.
        self.gate.is_quiet() && is_left() && self.gate.is_quiet() && is_left()
    }

    /// Closes the queue if nobody touches it any more; then nobody will. By a thread that took the last handle.
    pub(crate) fn close_if_unused(&self) -> bool {
        let mut config = self.config.lock();
        // With the lock, so that who follows a change of the runtime has sent its activation item before, or leaves the queue alone.
        config.closed = self.is_unused();
        config.closed
    }
}

impl<P: Platform> Drop for Queue<P> {
    fn drop(&mut self) {
        // Before anything goes: the thread that has the list's lock may look at every queue on it.
        self.inner().remove_queue(self);
        if let Some(rescuer) = &self.rescuer {
            // It may be the caller. Where somebody had a handle to the last, he has ended it before and waited for it.
            rescuer.end(false);
        }
        self.domains().for_each(Admission::throw_away);
        Self::leave_pools(self.table.load(Ordering::Acquire));
    }
}
