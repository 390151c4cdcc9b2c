//! What wakes the monitor's thread, and starts it. What it does when it is awake: `monitor`.
//!
//! # Arming
//! A thread that pushes an item and finds no worker to wake arms the monitor: `armed` from 0 to 1 wakes it. The monitor disarms
//! (0), looks once more over all pools, and sleeps if nothing waits. Push, then read `armed`; write `armed`, then look
//! for work: all `SeqCst`, one of the two sees the other.
//!
//! # Where no thread can be started
//! The machine may refuse the worker that should run an item, and then the monitor that should try again. No thread would be left
//! that knows of the item. So a thread that arms the monitor tries to start it for a while. Then it gives up with a warning, and leaves
//! further attempts to the threads that wait for work (`runtime/retry`).

use nearq_platform::{Atomic, Ordering, Platform, Refused};

use crate::base::forked;
use crate::base::service_thread::{ServiceThread, Start};

const DISARMED: u32 = 0;
const ARMED: u32 = 1;

/// What the monitor's thread is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// To sleep until it is armed.
    Sleep,
    /// To look what waits.
    Look,
    /// To end.
    End,
}

/// A runtime, as the alarm knows it.
pub(crate) trait Host<P: Platform>: Send + Sync {
    /// Starts the monitor's thread, which says [`ended`](ServiceThread::ended) when it ends.
    fn start_monitor(&self) -> Result<P::JoinHandle, Refused>;

    /// The system has refused the thread: it is to be tried again later.
    fn retry_later(&self);
}

/// Wakes the monitor of one runtime.
pub(crate) struct Alarm<P: Platform> {
    armed: P::AtomicU32,
    /// 1: cancelled items have piled up among those that some queue holds back.
    untidy: P::AtomicU32,
    host: *const dyn Host<P>,
    pub(crate) thread: ServiceThread<P>,
}

// SAFETY: `host` leads to the runtime, of which this is a part; all else is `Send` by itself.
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

    /// There is work that nobody could be woken for.
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
        if let Start::Refused(_) = self.thread.start(|| self.host().start_monitor()) {
            // The next push that finds nobody tries again.
            if self.is_disarmed_again() {
                self.host().retry_later();
            }
            if self.thread.is_refused_anew() {
                P::warn(
                    "no thread can be started to look after work that waits: limits on threads or memory? Work that finds no worker \
                     waits until a thread can be started: each push and each thread that waits for the work tries again. Raise the limit, \
                     or build queues that must make progress with rescuer(true), which reserves a thread",
                );
            }
        }
        self.thread.wake();
    }

    /// Takes the arming back; whether it was armed.
    fn is_disarmed_again(&self) -> bool {
        P::model_fence();
        self.armed.compare_exchange(ARMED, DISARMED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Has its thread started now, for a caller that will need it where none can be.
    pub(crate) fn reserve(&self) -> Result<(), Refused> {
        match self.thread.reserve(|| self.host().start_monitor()) {
            Start::Done | Start::Ended => Ok(()),
            Start::Refused(refusal) => {
                if self.is_disarmed_again() {
                    self.host().retry_later();
                }
                Err(refusal)
            }
        }
    }

    /// Nothing has waited for a while: disarms the monitor, so that it sleeps until it is armed again; unless something waits now. By its
    /// thread. `waits` reads the pools anew: a thread that pushed onto a pool that was made since has found the monitor armed.
    pub(crate) fn disarm(&self, waits: impl FnOnce() -> bool) {
        // SeqCst: see "Arming".
        let disarmed =
            self.armed.compare_exchange(ARMED, DISARMED, Ordering::SeqCst, Ordering::SeqCst);
        P::model_fence();
        if disarmed.is_ok() && waits() {
            self.arm();
        }
    }

    /// Many cancelled items are held back somewhere. A worker is asked already, and throws them away if it comes; if none comes, work
    /// waits, and the monitor is armed.
    pub(crate) fn ask_to_tidy(&self) {
        // Relaxed: it is seen by one of the next looks.
        self.untidy.store(1, Ordering::Relaxed);
    }

    /// Whether cancelled items have piled up somewhere since the last time. By the monitor's thread.
    pub(crate) fn take_untidy(&self) -> bool {
        let untidy = self.untidy.load(Ordering::Relaxed) != 0;
        if untidy {
            // Before the look: a request that comes later is for the next one.
            self.untidy.store(0, Ordering::Relaxed);
        }
        untidy
    }

    /// What the monitor's thread is to do next.
    pub(crate) fn task(&self) -> Task {
        if self.thread.is_stopped() {
            return Task::End;
        }
        match self.armed.load(Ordering::SeqCst) {
            DISARMED => Task::Sleep,
            _ => Task::Look,
        }
    }

    /// Ends the thread. Where there is none, nothing is left to do.
    pub(crate) fn stop(&self) {
        let _ = self.thread.stop();
    }

    /// Not started: its thread is the parent's. In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        self.thread.after_fork_in_child();
        forked::set(&self.armed, DISARMED);
        forked::set(&self.untidy, 0);
    }

    /// As if its thread were there, and armed: the caller.
    #[cfg(test)]
    pub(crate) fn arm_for_test(&self) {
        self.thread.do_without();
        self.armed.store(ARMED, Ordering::SeqCst);
    }
}
