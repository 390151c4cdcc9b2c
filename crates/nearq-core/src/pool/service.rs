//! Whether the monitor checks a pool.
//!
//! A runtime keeps all its pools (`runtime/pools`), of which there may be thousands that no queue uses. Once there are many, those without
//! users, threads and work are taken off the list that the monitor checks.
//!
//! A push by an issuer that read an old table may still come to such a pool. The thread that takes the pool off the list marks that (OUT),
//! then reads the pool's inbox (LOOK). The pusher writes the inbox (PUSH), finds that the pool has no thread, then reads whether it is on
//! the list (ASK). All are `SeqCst`: one of the two sees the other, and the pusher puts the pool back. A queue that begins to use the pool
//! counts itself, then reads that mark; the other thread reads the count after OUT.

use nearq_platform::{Atomic, Ordering, Platform};

use super::{IN_SERVICE, Pool};

/// The monitor does not check the pool.
const OUT: u32 = 1;

impl<P: Platform> Pool<P> {
    /// Ensures that the monitor checks the pool, which has something, or a user.
    pub(super) fn serve(&self) {
        // ASK.
        P::model_fence();
        if self.service.load(Ordering::SeqCst) == OUT {
            self.services().host().put_into_service(self);
        }
    }

    /// Takes the pool off the list, if nothing is here; returns whether it did. By the thread that has the lock of the list.
    pub(crate) fn leave_service(&self) -> bool {
        // OUT.
        self.service.store(OUT, Ordering::SeqCst);
        P::model_fence();
        // LOOK.
        let unused = !self.is_used()
            && self.workers.load(Ordering::SeqCst) == 0
            && self.called.queued_for_place.load(Ordering::SeqCst) == 0
            && !self.has_waiting();
        if !unused {
            self.service.store(IN_SERVICE, Ordering::SeqCst);
        }
        unused
    }

    /// The pool goes back onto the list, unless it is there. By the thread that has the lock of the list.
    pub(crate) fn enter_service(&self) -> bool {
        self.service.swap(IN_SERVICE, Ordering::SeqCst) == OUT
    }
}
