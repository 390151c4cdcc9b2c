//! A pool's threads: when another one is started, the entries that they use, and when they end.
//!
//! # Pools that are not used
//! A queue uses the pools of the layout in effect. When its attributes change, or the queue ends, pools may be left that no queue uses:
//! nothing is pushed to them any more, except by a push that was under way. Their workers sleep for [`UNUSED`] at most, then end; they are
//! not called to help other pools. A pool that is used again, by a queue of the same attributes, starts its workers again.
//!
//! The last user decrements the count (DROP), then gives each worker of the pool a permit (TELL). A worker that is about to sleep reads the
//! count (LOOK), then takes a permit or parks (PARK). If LOOK comes before DROP, it comes before TELL too: the worker finds the permit, and
//! checks again. The parker makes what was written before the permit visible to the worker that takes it.
//!
//! # Entries
//! A worker's entry in the runtime's slab belongs to the pool while the worker has a thread, and afterwards until another pool takes it. A
//! pool takes the free entries of its own first, then those of pools that no queue uses, and makes a new one last. So there are as many
//! entries as there were threads at one time, however many pools there have been.
//!
//! Entries stay on the lists of all pools that have used them, because other threads may be walking such a list. A thread that walks skips
//! those that belong to another pool now. The entry may pass to another pool right afterwards. What is done to it then must not matter, or
//! must be checked once more: only those items are taken from its batch that were seen before the entry was seen to be the pool's
//! (`Batch::steal`).

use core::time::Duration;
use std::sync::Arc;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use super::Pool;
use super::spawn_failure::Denied;
use crate::pool::worker::Worker;

/// How long a worker of a pool that no queue uses sleeps before it ends. Not zero, so that a queue that is made again at once still finds
/// it.
const UNUSED: Duration = Duration::from_millis(100);

impl<P: Platform> Pool<P> {
    /// Adds one reference.
    pub(crate) fn shared(&self) -> Arc<Self> {
        // SAFETY: `Core::make_pool` has made it so, and the caller keeps it alive.
        unsafe { crate::base::shared::share(self) }
    }

    /// One more queue uses the pool, or one fewer.
    pub(crate) fn change_users(&self, more: bool) {
        if more {
            // SeqCst: Dekker's pattern with `leave_service`; see `service`.
            self.users.fetch_add(1, Ordering::SeqCst);
            self.serve();
        // DROP. Relaxed: the permit publishes it.
        } else if self.users.fetch_sub(1, Ordering::Relaxed) == 1 {
            // Relaxed: a hint (`free_entry`).
            crate::base::forked::set(&self.services().has_unused, 1);
            // TELL.
            self.entries().for_each(|worker| worker.parker.unpark());
            self.bury();
        }
    }

    /// Whether a queue uses the pool.
    pub(crate) fn is_used(&self) -> bool {
        // LOOK. SeqCst: Dekker's pattern with `change_users`; see `service`.
        self.users.load(Ordering::SeqCst) != 0
    }

    /// How long a worker sleeps before it ends; `timeout` if the pool is used.
    pub(crate) fn patience(&self, timeout: Duration) -> Duration {
        if self.is_used() { timeout } else { timeout.min(UNUSED) }
    }

    /// Whether there may be more threads.
    pub(super) fn wants_workers(&self) -> bool {
        let threads = self.workers.load(Ordering::Relaxed);
        let max_running = self.max_running() + self.away.load(Ordering::Relaxed);
        match self.hooked.load(Ordering::Relaxed) {
            0 => threads < max_running,
            hooked => self.may_start_beside_hooks(hooked, threads, max_running),
        }
    }

    /// Called by a worker that begins a batch: ensures that one more worker exists, until there are as many as may be awake.
    #[inline]
    pub(crate) fn keep_spare(&self) {
        if self.wants_workers()
            && !self.idle.has_idle()
            && !self.idle.has_searching()
            // A worker that is in its hook will be available soon.
            && self.hooked.load(Ordering::Relaxed) == 0
        {
            self.start_worker(false);
        }
    }

    /// Starts a thread, which searches (with a place of the concurrency limit, if `with_place`). False if it could not be started.
    #[cold]
    pub(crate) fn start_worker(&self, with_place: bool) -> bool {
        let services = self.services();
        if services.rescuers_missing.load(Ordering::Relaxed) != 0 {
            // The first thread that is started in the child of a fork: the monitor starts the rescuers as well.
            services.alarm.arm();
        }
        let Some(worker) = self.free_entry() else {
            self.spawn_failure.begin(Denied::Otherwise);
            services.alarm.arm();
            return false;
        };
        if with_place {
            worker.grant();
        }
        // Relaxed: only a bound (`wants_workers`). A thread that needs a worker and reads too high a count arms the monitor, which tries
        // again.
        self.workers.fetch_add(1, Ordering::Relaxed);
        self.idle.begin_search();
        let started = services.host().start_thread(self, worker);
        match started {
            Ok(()) => self.spawn_failure.end(),
            Err(denied) => {
                self.idle.end_search();
                self.workers.fetch_sub(1, Ordering::Relaxed);
                worker.not_started();
                self.spawn_failure.begin(denied);
                services.alarm.arm();
            }
        }
        started.is_ok()
    }

    /// Whether something waits for which another thread may be started.
    pub(crate) fn needs_thread(&self) -> bool {
        self.has_waiting() && self.wants_workers()
    }

    /// A thread that the pool needs was refused, and no other worker could be called: if the runtime's limit refused it, another pool gives
    /// one up.
    pub(super) fn want_thread(&self) {
        if self.spawn_failure.is_by_limit() && self.wants_workers() {
            self.services().host().want_thread(self);
        }
    }

    /// As `want_thread`, after that has had no effect for long. By the monitor.
    pub(crate) fn want_thread_badly(&self) {
        if self.spawn_failure.is_by_limit() && self.needs_thread() {
            self.services().host().want_thread_badly(self);
        }
    }

    /// The thread of an entry has ended, or is about to end, and is not counted any more.
    pub(crate) fn worker_ended(&self) {
        // Relaxed: a thread that finds the worker retired sees this count nevertheless, because the status is changed afterwards
        // (`Worker::retire`).
        self.workers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Frees the entries of ended workers, if no queue uses the pool and no worker is left.
    pub(crate) fn bury(&self) {
        // Relaxed: if the last queue and the last worker leave at once, both may overlook that, and the entries stay the pool's own.
        if self.workers.load(Ordering::Relaxed) == 0 && !self.is_used() {
            if let Some(worker) = self.idle.bury_all(&self.services().workers) {
                worker.parker.unpark();
            }
        }
    }

    /// A thread belongs to the pool.
    pub(crate) fn count_worker(&self) {
        // Relaxed: only a bound (`wants_workers`), as the count in `start_worker`.
        self.workers.fetch_add(1, Ordering::Relaxed);
    }

    fn free_entry(&self) -> Option<&Worker<P>> {
        let services = self.services();
        if let Some(worker) = self.entries().find(|worker| worker.claim_free()) {
            // Another pool may have had the entry for a while since it was checked.
            worker.set_pool(self);
            return Some(worker);
        }
        // Relaxed: an entry that is overlooked is found the next time.
        let worker = match services.has_unused.load(Ordering::Relaxed) {
            0 => None,
            _ => services.workers.iter().find(|worker| {
                !worker.rescues() && !worker.pool().is_used() && worker.claim_free()
            }),
        };
        let worker = match worker {
            Some(worker) => worker,
            None => services.workers.add(|index| Worker::new(index, self))?,
        };
        worker.set_pool(self);
        self.members.add(worker);
        Some(worker)
    }

    /// An entry that has no thread.
    #[cfg(test)]
    pub(crate) fn entry_for_test(&self) -> &Worker<P> {
        self.free_entry().expect("there is room")
    }

    /// Every entry that the pool uses, or used last.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Worker<P>> {
        self.members.iter().filter(|worker| core::ptr::eq(worker.pool(), self))
    }
}
