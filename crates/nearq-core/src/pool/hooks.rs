//! Workers that run foreign code before they work: the start hook, and what the thread must have set up for others.
//!
//! A new worker counts as searching (`idle`) from its start on, so pushers leave to it what they push. A hook may take long, or wait
//! for an item of this very pool. So a worker that begins with foreign code counts as nothing until that has returned: it does not
//! search, does not sleep, and is not awake. A place of the level that came along goes back. Meanwhile pushers wake others, or start them.
//!
//! # The race
//! A push while the worker goes into its hook. Push: write inbox (PUSH), read the word of `idle` (LOOK). Worker: no longer searching
//! (LEAVE), read inbox (CHECK). All four are `SeqCst`. So either LEAVE comes before LOOK: then the pusher calls somebody else. Or PUSH
//! comes before CHECK: then the worker calls somebody else. It calls one that sleeps. Where none does, it only arms the monitor: most
//! hooks return sooner than another thread could start, and the next of those would do the same.
//! On the way back it counts as searching first, and then looks for work as any worker that was woken.
//! No other foreign code runs in a worker that searches: items, their destructors and the wakers that they call belong to its batch, and a
//! worker that ends is off the count before its stop hook.
//!
//! # How many
//! While workers are in their hooks there may be one thread more than hands (`wants_workers`), and one more for each hand that the
//! monitor gives where nothing has been started for a while (`balance`). That ends where one more is in there than the pod has CPUs: where
//! each hook takes long, more threads would not help. Where none returns, the pool stands still, and a stall names them.

use nearq_platform::{AtomicInt, Ordering, Platform};

use super::Pool;
use crate::idle::Wakeup;
use crate::worker::Worker;

impl<P: Platform> Pool<P> {
    /// The new worker, which is the caller and counts as searching, begins with foreign code.
    pub(crate) fn enter_hook(&self, worker: &Worker<P>) {
        worker.enter_hook();
        // Relaxed: a bound, which need not be exact.
        self.hooked.fetch_add(1, Ordering::Relaxed);
        let granted = worker.take_grant();
        // LEAVE.
        self.idle.end_search();
        P::model_fence();
        if granted {
            self.level.release();
        }
        // CHECK.
        if self.has_work() {
            self.runtime().monitor.arm();
            if let Wakeup::Worker(other) = self.pop_to_wake() {
                other.parker.unpark();
            }
        }
    }

    /// The foreign code has returned: the worker searches.
    pub(crate) fn leave_hook(&self, worker: &Worker<P>) {
        self.idle.begin_search();
        self.hooked.fetch_sub(1, Ordering::Relaxed);
        worker.leave_hook();
    }

    /// Whether there may be more threads, where so many are in their hooks.
    pub(super) fn may_start_beside_hooks(&self, hooked: u32, threads: u32, hands: u32) -> bool {
        hooked <= self.cpus && threads <= hands
    }
}
