//! A condition variable: a count of notifications that waiters sleep on.
//!
//! # Protocol
//! Who waits reads the count while it holds the mutex, gives the mutex back, and sleeps as long as the count is the same. Who notifies
//! adds one and wakes. So a notification that comes after the mutex was given back is seen, asleep or not: falling asleep compares the
//! count. Who is awake already takes a notification without having been woken; then the wake-up is another's, who finds the count
//! changed too. So now and then one is woken for no reason, which is allowed, and none is forgotten. The count would
//! have to run over, 2^32 notifications, between the look and the sleep for one to be missed.
//!
//! Relaxed: the mutex orders what is written under it.

use core::sync::atomic::{AtomicU32, Ordering};

use nearq_lock::RawMutex;
use nearq_platform::{Instant, Linux, Platform, Wait};

use crate::process;

/// The condition variable.
pub(crate) struct RawCondvar {
    notifications: AtomicU32,
}

impl RawCondvar {
    pub(crate) const fn new() -> Self {
        RawCondvar { notifications: AtomicU32::new(0) }
    }

    /// Gives the mutex back, waits to be notified, and takes the mutex again. False if the deadline came first.
    pub(crate) fn wait(&self, mutex: &RawMutex, deadline: Option<Instant>) -> bool {
        let seen = self.notifications.load(Ordering::Relaxed);
        // SAFETY: the caller holds it.
        unsafe { mutex.unlock() };
        let outcome = Linux::wait(&self.notifications, seen, deadline);
        if process::is_ready() {
            mutex.lock();
        } else {
            mutex.lock_unqueued(None);
        }
        outcome != Wait::TimedOut || self.notifications.load(Ordering::Relaxed) != seen
    }

    pub(crate) fn notify_one(&self) {
        self.notifications.fetch_add(1, Ordering::Relaxed);
        Linux::wake(&raw const self.notifications, 1);
    }

    pub(crate) fn notify_all(&self) {
        self.notifications.fetch_add(1, Ordering::Relaxed);
        Linux::wake(&raw const self.notifications, usize::MAX);
    }
}
