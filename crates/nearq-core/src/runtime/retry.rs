//! Trying again where the system has refused the threads that would look after work that waits.
//!
//! Work is started by workers, and the monitor sees to it that there are some. Where the monitor's own thread is refused, or the timer's,
//! the runtime may have no thread that would try again, and what was accepted would wait until more is queued. So the attempt is left to
//! the platform (`Platform::retry_later`), and made by whichever thread waits for work next: one that joins, flushes, waits for a scope
//! or drops a queue; the timer; a worker that has nothing to do, one of which is woken for it; also one that asks again and again
//! whether an item is pending or finished.
//!
//! An attempt is one try for each of the two threads, if they are needed. `left` says that one is on the platform's list. The thread that
//! makes the attempt clears it first (CLEAR) and then looks what is needed (SEE); a thread whose start has failed (FAIL) adds an attempt
//! if `left` is not set (ADD). CLEAR and ADD swap the same word, and each releases what was written before and acquires what the other
//! released: either ADD finds the mark cleared, or CLEAR takes ADD's mark away, and SEE sees FAIL.

use std::sync::{Arc, Weak};

use nearq_platform::{Atomic, Instant, Ordering, PAUSE, Platform};

use super::Inner;

impl<P: Platform> Inner<P> {
    /// The thread of the monitor or of the timer was refused although it is needed.
    #[cold]
    pub(crate) fn retry_later(&self) {
        // ADD. Release: FAIL; pairs with CLEAR.
        if self.left.swap(1, Ordering::AcqRel) != 0 {
            return;
        }
        // SAFETY: every Inner is in an Arc, made by `Runtime::start`, and the caller keeps it alive.
        let own = unsafe {
            Arc::increment_strong_count(self);
            Arc::from_raw(self)
        };
        let own: Weak<Self> = Arc::downgrade(&own);
        P::retry_later(Box::new(move || {
            if let Some(inner) = own.upgrade() {
                inner.retry();
            }
        }));
        // A worker that sleeps does not know that something is left.
        if let Some(worker) = self.table.iter().find(|worker| worker.is_idle() && !worker.rescues())
        {
            worker.parker.unpark();
        }
    }

    /// Tries once more to start what is needed. What is refused again leaves another attempt.
    fn retry(&self) {
        // CLEAR. Acquire: pairs with each ADD before it.
        self.left.swap(0, Ordering::AcqRel);
        if self.is_stopping() {
            return;
        }
        // SEE.
        self.timer.retry();
        if self.all_pools().iter().any(|pool| pool.has_waiting()) {
            self.monitor.arm();
        }
    }
}

/// Tries again what was refused; until when a worker with nothing to do sleeps: until `deadline`, or until it is to try once more.
pub(crate) fn until_retry<P: Platform>(deadline: Option<Instant>) -> Option<Instant> {
    P::retry_now();
    if !P::has_retries() {
        return deadline;
    }
    let retry = P::now() + PAUSE;
    Some(deadline.map_or(retry, |deadline| deadline.min(retry)))
}
