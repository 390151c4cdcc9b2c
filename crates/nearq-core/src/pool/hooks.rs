//! Workers that run foreign code before they work: the start hook, and what another crate makes every worker call
//! (`default::attend_default`).
//!
//! A new worker counts as searching (`idle`) from its start on, so pushers leave their items to it and wake no other worker. A hook may
//! take long, or wait for an item of this very pool. So a worker that begins with foreign code does not count as searching, asleep or awake
//! until that code has returned. If it was started with a place of its concurrency limit, it gives the place back. Meanwhile pushers wake
//! or start other workers.
//!
//! # The race
//! A thread pushes while a worker goes into its hook. Pusher: write the inbox (PUSH), read the word of `idle` (LOOK). Worker: stop
//! searching (LEAVE), read the inbox (CHECK). All four are `SeqCst`. So either LEAVE comes before LOOK, and the pusher calls another
//! worker; or PUSH comes before CHECK, and the worker calls another one. It wakes one that sleeps. If none sleeps, it only arms the
//! monitor: most hooks return sooner than another thread could start, and that thread would go into its own hook first.
//!
//! After the hook, the worker first counts as searching again, and then looks for work like any worker that was woken.
//!
//! No other foreign code runs in a worker that searches: items, their destructors and the wakers that they call belong to its batch, and a
//! worker that ends is no longer counted when it runs its stop hook.
//!
//! # How many
//! While workers are in their hooks, the pool may have one thread more than `max_running` (`wants_workers`), and one more for each time
//! that the monitor raises it when the pool has started nothing for a while (`balance`). No more are started once one more worker is in its
//! hook than the pod has CPUs: if every hook takes long, more threads would not help. If no hook returns, the pool stands still, and a
//! stall report names the hooks.

use nearq_platform::{AtomicInt, Ordering, Platform};

use super::Pool;
use crate::pool::idle::Wakeup;
use crate::pool::worker::Worker;

impl<P: Platform> Pool<P> {
    /// The new worker, which is the caller and counts as searching, begins to run foreign code.
    pub(crate) fn enter_hook(&self, worker: &Worker<P>) {
        worker.enter_hook();
        // Relaxed: a bound, which need not be exact.
        self.hooked.fetch_add(1, Ordering::Relaxed);
        let granted = worker.take_grant();
        // LEAVE.
        self.idle.end_search();
        P::model_fence();
        if granted {
            self.concurrency.release();
        }
        // CHECK.
        if self.has_work() {
            self.services().alarm.arm();
            if let Wakeup::Worker(other) = self.pop_to_wake() {
                self.wake(other);
            }
        }
    }

    /// The foreign code has returned: the worker searches.
    pub(crate) fn leave_hook(&self, worker: &Worker<P>) {
        self.idle.begin_search();
        self.hooked.fetch_sub(1, Ordering::Relaxed);
        worker.leave_hook();
    }

    /// Whether the pool may have more threads while `hooked` of them are in their hooks.
    pub(super) fn may_start_beside_hooks(
        &self,
        hooked: u32,
        threads: u32,
        max_running: u32,
    ) -> bool {
        hooked <= self.cpus && threads <= max_running
    }
}
