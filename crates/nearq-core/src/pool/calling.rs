//! Which worker is called for work that waits at a pool: a sleeping worker of its own, a new one, or a helper.
//!
//! # Cores that are shared
//! If two CPUs share one core, each of them does some 60 % of the work while both are busy: that loses more than bringing an item's data to
//! another cache. So once a pool has as many workers awake as its pod has cores (less one for the pusher, which runs there too), a push
//! first calls a helper of a near pool that has a core to itself. That helper may find other work before it comes here; the pool's own
//! workers and the monitor handle what it left.
//!
//! # Workers that run short items
//! Waking a thread costs more than running many short items: on two CPUs, a second worker woken for them takes the CPU from the issuer. So
//! while a worker runs items that have taken less than some microseconds each, pushers wake no worker: it will be back at the inbox in a
//! moment. It calls another worker itself when what it sees waiting is worth it. If such a worker runs a long item after all, the monitor
//! notices that within a few milliseconds. A pusher pushes, then reads `short_runners`; a worker leaves `short_runners`, then reads the
//! inbox. All are `SeqCst`, so the last item is not forgotten.

use nearq_platform::{Atomic, Ordering, Platform};

use super::Pool;
use crate::pool::idle::Wakeup;

/// How many pools a pusher checks for a free core: each check costs a line that other CPUs write.
const POOLS_CHECKED: usize = 8;

impl<P: Platform> Pool<P> {
    /// Ensures that a worker comes for what is there.
    #[inline(always)]
    pub(crate) fn call_worker(&self) {
        self.call_worker_for::<false>();
    }

    /// As [`call_worker`](Self::call_worker); with `HOMED`, what is there has a home here, and helpers of other nodes are called only if
    /// they may take it.
    #[inline(always)]
    pub(super) fn call_worker_for<const HOMED: bool>(&self) {
        P::model_fence();
        if self.called.queued_for_place.load(Ordering::SeqCst)
            + self.called.short_runners.load(Ordering::SeqCst)
            != 0
        {
            // A place that becomes free is given to this pool, or a worker will check the inbox in a moment.
            self.services().alarm.arm();
            return;
        }
        self.call_idle_worker_for::<HOMED>();
    }

    /// As [`call_worker`](Self::call_worker), although a worker that runs short items may check the inbox.
    #[inline]
    pub(crate) fn call_idle_worker(&self) {
        self.call_idle_worker_for::<false>();
    }

    #[inline]
    fn call_idle_worker_for<const HOMED: bool>(&self) {
        if self.shares_cores() && self.cores_are_busy() && self.call_free_core::<HOMED>() {
            return;
        }
        match self.pop_to_wake() {
            Wakeup::Unneeded => {}
            Wakeup::Worker(worker) => self.wake(worker),
            Wakeup::NoneAsleep => self.no_worker_sleeps::<HOMED>(),
        }
    }

    /// Pops a worker to wake, if none is searching and one more may be awake.
    #[inline]
    pub(super) fn pop_to_wake(&self) -> Wakeup<'_, P> {
        self.idle.pop_to_wake(&self.services().workers, || self.is_full())
    }

    /// Every worker is busy, or there is none.
    fn no_worker_sleeps<const HOMED: bool>(&self) {
        self.serve();
        if self.concurrency.is_full() {
            // No CPU is free. A worker that becomes idle will check this pool; the monitor ensures that the item does not wait for long.
            self.services().alarm.arm();
        } else {
            self.find_hands::<HOMED>();
        }
    }

    /// CPUs are free, but no worker of this pool sleeps: starts another thread, or calls a helper.
    #[cold]
    fn find_hands<const HOMED: bool>(&self) {
        if self.wants_workers() && self.start_worker(false) {
            return;
        }
        // Helpers may find something nearer, or take one item and block in it; the monitor handles the rest.
        self.services().alarm.arm();
        if !self.call_helper(HOMED) {
            self.want_thread();
        }
    }

    /// Calls a worker of a near pool; if everything here is `homed`, only one that may take that. False if there is none.
    fn call_helper(&self, homed: bool) -> bool {
        if self.key.helping {
            let may_come =
                |other: &&Pool<P>| other.is_used() && (!homed || self.is_worth_calling(other));
            for sibling in self.siblings().filter(may_come) {
                if sibling.idle.has_searching() {
                    return true;
                }
                if let Wakeup::Worker(worker) = sibling.pop_to_wake() {
                    sibling.wake(worker);
                    return true;
                }
                if sibling.wants_workers() && sibling.start_worker(false) {
                    return true;
                }
            }
        }
        false
    }

    /// Wakes one more worker although others may be searching; true if there was one.
    pub(crate) fn wake_another(&self) -> bool {
        match self.idle.pop_another(&self.services().workers, false) {
            Wakeup::Worker(worker) => {
                self.wake(worker);
                true
            }
            _ => false,
        }
    }

    /// A place of the concurrency limit was taken for this pool: starts a worker with it. False if no worker needs it.
    pub(crate) fn start_with_place(&self) -> bool {
        if !self.has_waiting() || self.is_full() {
            return false;
        }
        match self.idle.pop_another(&self.services().workers, true) {
            Wakeup::Worker(worker) => {
                self.wake(worker);
                true
            }
            _ => {
                let started = self.wants_workers() && self.start_worker(true);
                if !started {
                    self.want_thread();
                }
                started
            }
        }
    }

    /// One more worker may be awake here, and places are free: wakes or starts one, or calls a helper. Returns whether it did.
    pub(crate) fn call_hand(&self) -> bool {
        self.clear_queued_for_place();
        if !self.is_full()
            && (self.wake_another() || self.wants_workers() && self.start_worker(false))
        {
            return true;
        }
        // Any worker may take an item that has no home.
        let called = self.call_helper(self.services().homes.are_used() && !self.has_homeless());
        if !called {
            self.want_thread();
        }
        called
    }

    /// True if the pool was not queued at its concurrency limit before this call.
    pub(crate) fn mark_queued_for_place(&self) -> bool {
        self.called.queued_for_place.swap(1, Ordering::SeqCst) == 0
    }

    /// Whether the pool is queued at its concurrency limit.
    pub(crate) fn is_queued_for_place(&self) -> bool {
        // Relaxed: a hint for a worker that decides whether its turn ends.
        self.called.queued_for_place.load(Ordering::Relaxed) != 0
    }

    /// It is not queued any more; pushers call for workers again.
    pub(crate) fn clear_queued_for_place(&self) {
        self.called.queued_for_place.store(0, Ordering::SeqCst);
        P::model_fence();
    }

    /// Whether a core of the pod has several CPUs, and other pods may help.
    #[inline]
    fn shares_cores(&self) -> bool {
        self.key.helping && self.cores < self.cpus
    }

    /// Whether one more worker would share a core with another one, or with the pusher.
    fn cores_are_busy(&self) -> bool {
        let outside = u32::from(P::slot().is_null());
        self.called.awake.load(Ordering::Relaxed) + outside >= self.cores
    }

    /// Calls a worker of a near pool that has a core to itself. False if there is no such worker, or none is needed.
    #[cold]
    fn call_free_core<const HOMED: bool>(&self) -> bool {
        if self.idle.has_searching() || self.concurrency.is_full() {
            return false;
        }
        let free = |pool: &&Pool<P>| {
            pool.called.awake.load(Ordering::Relaxed) < pool.cores
                && !pool.idle.has_searching()
                && pool.is_used()
        };
        // Using a core of another node is not worth it while one is left here.
        let near = |pool: &&Pool<P>| !HOMED || self.node.is_none() || pool.node == self.node;
        for sibling in self.siblings().take(POOLS_CHECKED).filter(near).filter(free) {
            let called = match sibling.pop_to_wake() {
                Wakeup::Worker(worker) => {
                    sibling.wake(worker);
                    true
                }
                Wakeup::NoneAsleep => sibling.wants_workers() && sibling.start_worker(false),
                Wakeup::Unneeded => false,
            };
            if called {
                self.services().alarm.arm();
                return true;
            }
        }
        false
    }
}
