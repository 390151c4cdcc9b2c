//! Starts the monitor's thread and wakes it. For what that thread does when it is awake, see `monitor`.
//!
//! # Arming
//! A thread that pushes an item and finds no worker to wake arms the monitor: changing `armed` from 0 to 1 wakes it. The monitor disarms
//! (0), checks all pools once more, and sleeps if nothing waits. The pusher pushes, then reads `armed`; the monitor writes `armed`, then
//! checks for work. All are `SeqCst`, so one of the two sees the other.
//!
//! # If no thread can be started
//! The machine may refuse the worker that should run an item, and then the monitor that should try again. Then no thread would be left that
//! would start the item. So a thread that arms the monitor tries to start it for a while. Then it gives up with a warning, and leaves
//! further attempts to the threads that wait for work (`runtime/retry`).

use nearq_platform::{Atomic, Ordering, OsError, Platform};

use crate::base::forked;
use crate::base::service_thread::{ServiceThread, Start};

const DISARMED: u32 = 0;
const ARMED: u32 = 1;

/// What the monitor's thread must do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Sleep until it is armed.
    Sleep,
    /// Check what waits.
    Check,
    /// End.
    End,
}

/// A runtime, as the alarm knows it.
pub(crate) trait Host<P: Platform>: Send + Sync {
    /// Starts the monitor's thread, which calls [`ended`](ServiceThread::ended) when it ends.
    fn start_monitor(&self) -> Result<P::JoinHandle, OsError>;

    /// The system has refused the thread: the start must be retried later.
    fn retry_later(&self);
}

/// Wakes the monitor of one runtime.
pub(crate) struct Alarm<P: Platform> {
    armed: P::AtomicU32,
    /// 1 if many cancelled items are among those that a queue holds back.
    untidy: P::AtomicU32,
    host: *const dyn Host<P>,
    pub(crate) thread: ServiceThread<P>,
}

// SAFETY: `host` points to the runtime, of which this is a part; all else is `Send` by itself.
unsafe impl<P: Platform> Send for Alarm<P> {}
// SAFETY: a shared alarm gives `&dyn Host`, and a `Host` is `Sync`; all else is so by itself.
unsafe impl<P: Platform> Sync for Alarm<P> {}

impl<P: Platform> Alarm<P> {
    /// The alarm of that runtime, which it is a part of.
    pub(crate) fn new(host: *const dyn Host<P>) -> Self {
        Alarm {
            armed: P::AtomicU32::new(DISARMED),
            untidy: P::AtomicU32::new(0),
            host,
            thread: ServiceThread::new(),
        }
    }

    fn host(&self) -> &dyn Host<P> {
        // SAFETY: the alarm is a part of it.
        unsafe { &*self.host }
    }

    /// There is work for which no thread could be woken.
    #[inline]
    pub(crate) fn arm(&self) {
        P::model_fence();
        if self.armed.load(Ordering::SeqCst) == DISARMED {
            self.arm_slow();
        }
    }

    /// As [`arm`](Self::arm), with a single try to start the thread, for a thread that must not sleep for that.
    #[cold]
    pub(crate) fn retry(&self) {
        if !self.thread.is_alive() {
            self.thread.try_once();
        }
        self.arm();
    }

    #[cold]
    fn arm_slow(&self) {
        let armed =
            self.armed.compare_exchange(DISARMED, ARMED, Ordering::SeqCst, Ordering::SeqCst);
        if armed.is_err() {
            return;
        }
        let start = self.thread.start(|| self.host().start_monitor());
        if self.settle(start).is_err() && self.thread.is_refused_anew() {
            P::warn(
                "no thread can be started to monitor waiting work; a limit on threads or memory may be reached. Work that finds no worker waits \
             until a thread can be started: each push and each thread that waits for the work tries again. Raise the limit, or build \
             queues that must make progress with rescuer(), which reserves a thread",
            );
        }
        self.thread.wake();
    }

    /// Does what remains to be done after a start. If it was refused, the monitor is disarmed, so that the next push that finds no worker
    /// tries again.
    fn settle(&self, start: Start) -> Result<(), OsError> {
        let Start::Refused(refusal) = start else { return Ok(()) };
        P::model_fence();
        if self.was_armed() {
            self.host().retry_later();
        }
        Err(refusal)
    }

    /// Disarms the monitor; returns whether it was armed.
    fn was_armed(&self) -> bool {
        // SeqCst: see "Arming".
        self.armed.compare_exchange(ARMED, DISARMED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Starts its thread now, for a caller that will need it at a time when no thread can be started.
    pub(crate) fn reserve(&self) -> Result<(), OsError> {
        self.settle(self.thread.reserve(|| self.host().start_monitor()))
    }

    /// Nothing has waited for a while: disarms the monitor, so that it sleeps until it is armed again, unless something waits now. By its
    /// thread. `waits` reads the list of pools again: a thread that pushed onto a pool that was made since has found the monitor armed.
    pub(crate) fn disarm(&self, waits: impl FnOnce() -> bool) {
        let disarmed = self.was_armed();
        P::model_fence();
        if disarmed && waits() {
            self.arm();
        }
    }

    /// A queue has many cancelled items among those that it holds back. A worker has already been asked to throw them away; if no worker
    /// does, work waits, and the monitor is armed.
    pub(crate) fn ask_to_tidy(&self) {
        // Relaxed: one of the next checks sees it.
        self.untidy.store(1, Ordering::Relaxed);
    }

    /// Whether many cancelled items have been reported since the last call. By the monitor's thread.
    pub(crate) fn take_untidy(&self) -> bool {
        let untidy = self.untidy.load(Ordering::Relaxed) != 0;
        if untidy {
            // Before the check: a request that comes later is for the next one.
            self.untidy.store(0, Ordering::Relaxed);
        }
        untidy
    }

    /// What the monitor's thread must do next.
    pub(crate) fn task(&self) -> Task {
        if self.thread.is_stopped() {
            return Task::End;
        }
        match self.armed.load(Ordering::SeqCst) {
            DISARMED => Task::Sleep,
            _ => Task::Check,
        }
    }

    /// Ends the thread. If there is none, nothing remains to be done.
    pub(crate) fn stop(&self) {
        let _ = self.thread.stop();
    }

    /// Resets it to not started: its thread is the parent's. In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        self.thread.after_fork_in_child();
        forked::set(&self.armed, DISARMED);
        forked::set(&self.untidy, 0);
    }

    /// Pretends that its thread exists and is armed: the caller acts as that thread.
    #[cfg(test)]
    pub(crate) fn arm_for_test(&self) {
        self.thread.do_without();
        self.armed.store(ARMED, Ordering::SeqCst);
    }
}
