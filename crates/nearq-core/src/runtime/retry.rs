//! Retrying after the system has refused the threads that are responsible for waiting work.
//!
//! Workers start work, and the monitor ensures that there are workers. If the monitor's own thread is refused, or the timer's, the runtime
//! may have no thread that would try again, and accepted work would wait until more is queued. So the attempt is left to the platform
//! (`Threads::retry_later`), and made by the next thread that waits for work: a thread that joins, flushes, waits for a scope or drops a
//! queue; the timer's thread; the monitor's; an idle worker, one of which is woken for this; a thread that repeatedly asks whether an item
//! is pending or finished; or a thread that polls a future of ours, which is pending. While an attempt is left, one idle worker does not
//! end, however long it has been idle: the one with the lowest number. If no worker is idle, the monitor is woken. So an attempt is made as
//! long as the runtime has any thread at all.
//!
//! An attempt tries once to start each of the two threads that is needed. `left` is set while an attempt is on the platform's list. The
//! thread that makes the attempt clears `left` first (CLEAR), and then checks which threads are needed (SEE). A thread that could not start
//! one of them (FAIL) adds an attempt if `left` is not set (ADD). CLEAR and ADD swap the same word, and each releases what was written
//! before and acquires what the other released: either ADD finds the mark cleared and adds an attempt, or CLEAR comes after ADD, and SEE
//! sees FAIL.

use std::sync::Arc;

use nearq_platform::{Atomic, Instant, Ordering, PAUSE, Platform};

use super::{Core, KnownQueue};
use crate::base::outcome::contain;
use crate::pool::worker::Worker;

impl<P: Platform, Q: KnownQueue> Core<P, Q> {
    /// The system has refused the thread of the monitor or of the timer.
    #[cold]
    pub(crate) fn retry_later(&self) {
        // ADD. Release: FAIL; pairs with CLEAR.
        if self.left.swap(1, Ordering::AcqRel) != 0 {
            return;
        }
        let own = Arc::downgrade(&self.shared());
        P::retry_later(Box::new(move || {
            // This may be the last reference to the runtime. Dropping it runs foreign code, which must not end the thread that tries.
            contain(|| {
                if let Some(inner) = own.upgrade() {
                    inner.retry();
                }
            });
        }));
        self.notify_sleeper();
    }

    /// A thread that already sleeps does not know of the attempt: a worker is woken, or else the monitor.
    fn notify_sleeper(&self) {
        match self.first_idle() {
            Some(worker) => worker.parker.unpark(),
            None => self.services.alarm.thread.wake(),
        }
    }

    /// The idle worker with the lowest number.
    fn first_idle(&self) -> Option<&Worker<P>> {
        self.services.workers.iter().find(|worker| worker.is_idle() && !worker.rescues())
    }

    /// Whether an idle worker must not end, because an attempt is left and it may be the last that would make it.
    pub(crate) fn is_last_to_retry(&self, worker: &Worker<P>) -> bool {
        P::has_retries() && self.first_idle().is_some_and(|first| core::ptr::eq(first, worker))
    }

    /// A worker that may have been woken for an attempt has something else to do from now on, or ends: another worker is woken instead.
    pub(crate) fn hand_retries_on(&self) {
        if P::has_retries() {
            self.notify_sleeper();
        }
    }

    /// Tries once more to start the threads that are needed. If one is refused again, that leaves another attempt.
    fn retry(&self) {
        // CLEAR. Acquire: pairs with each ADD before it.
        self.left.swap(0, Ordering::AcqRel);
        if self.is_stopping() {
            return;
        }
        // SEE.
        self.timer.retry();
        if self.pools_in_service().iter().any(|pool| pool.has_waiting()) {
            self.services.alarm.retry();
        }
    }
}

/// Makes the attempts that are left. Returns how long an idle thread sleeps: until `deadline`, or until it must try once more.
pub(crate) fn until_retry<P: Platform>(deadline: Option<Instant>) -> Option<Instant> {
    P::retry_now();
    if !P::has_retries() {
        return deadline;
    }
    let retry = P::now() + PAUSE;
    Some(deadline.map_or(retry, |deadline| deadline.min(retry)))
}
