//! What wakes the monitor's thread, and how that thread is started and ended. What it does when it is awake: `monitor`.
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

use core::time::Duration;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, Instant, Ordering, Parker, Platform, Refused};

use crate::base::forked;

/// How often its thread is tried to be started before it is left to the next push: some 80 ms with the pauses.
const TRIES: u32 = 14;
/// The first of the pauses between them; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_micros(10);

const DISARMED: u32 = 0;
const ARMED: u32 = 1;
const STOPPED: u32 = 2;

const NOT_STARTED: u32 = 0;
const STARTING: u32 = 1;
const STARTED: u32 = 2;

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
    /// Starts the monitor's thread, which says [`ended`](Alarm::ended) when it ends.
    fn start_monitor(&self) -> Result<P::JoinHandle, Refused>;

    /// The system has refused the thread: it is to be tried again later.
    fn retry_later(&self);
}

/// Wakes the monitor of one runtime.
pub(crate) struct Alarm<P: Platform> {
    armed: P::AtomicU32,
    parker: Parker<P>,
    /// 1: cancelled items have piled up among those that some queue holds back.
    untidy: P::AtomicU32,
    host: *const dyn Host<P>,
    started: P::AtomicU32,
    /// Whether its thread is there, or about to be started.
    alive: P::AtomicU32,
    /// Whether its thread could not be started last time.
    refused: P::AtomicU32,
    handle: Mutex<Option<P::JoinHandle>, P>,
    thread: Mutex<Option<P::Thread>, P>,
}

// SAFETY: `host` leads to the runtime, of which this is a part; all else is `Send` by itself.
unsafe impl<P: Platform> Send for Alarm<P> {}
// SAFETY: as above; `Host` is `Sync`, and all else is so by itself.
unsafe impl<P: Platform> Sync for Alarm<P> {}

impl<P: Platform> Alarm<P> {
    /// The alarm of that runtime, which it is a part of.
    pub(crate) fn new(host: *const dyn Host<P>) -> Self {
        Alarm {
            armed: P::AtomicU32::new(DISARMED),
            parker: Parker::new(),
            untidy: P::AtomicU32::new(0),
            host,
            started: P::AtomicU32::new(NOT_STARTED),
            alive: P::AtomicU32::new(0),
            refused: P::AtomicU32::new(0),
            handle: Mutex::new_in(None),
            thread: Mutex::new_in(None),
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
        if !self.is_alive() {
            // Relaxed: only the number of tries depends on it.
            self.refused.store(1, Ordering::Relaxed);
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
        if self.begin_start()
            && self.start().is_err()
            && self.refused.swap(1, Ordering::Relaxed) == 0
        {
            P::warn(
                "no thread can be started to look after work that waits: limits on threads or memory? Work that finds no worker waits \
                 until a thread can be started: each push and each thread that waits for the work tries again. Raise the limit, or \
                 build queues that must make progress with rescuer(true), which reserves a thread",
            );
        }
        self.parker.unpark();
    }

    /// Has its thread started now, for who will need it where none can be.
    pub(crate) fn reserve(&self) -> Result<(), Refused> {
        loop {
            if self.begin_start() {
                return self.start();
            }
            // Somebody else may be about to fail.
            let starting = self.started.load(Ordering::Acquire) == STARTING;
            if !starting || self.armed.load(Ordering::SeqCst) == STOPPED {
                return Ok(());
            }
            P::sleep(FIRST_PAUSE);
        }
    }

    /// Whether the caller starts the thread.
    fn begin_start(&self) -> bool {
        P::model_fence();
        // SeqCst: Dekker's pattern with a start that fails, which writes `started`, then looks whether the monitor is armed.
        self.started.load(Ordering::SeqCst) == NOT_STARTED
            && self
                .started
                .compare_exchange(NOT_STARTED, STARTING, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
    }

    fn start(&self) -> Result<(), Refused> {
        // After it has been in vain for long enough, one try for each push, so that pushers need not wait each time.
        let tries = if self.refused.load(Ordering::Relaxed) == 0 { TRIES } else { 1 };
        let mut pause = FIRST_PAUSE;
        let mut refusal = Ok(());
        for left in (0..tries).rev() {
            // Who stops the monitor writes `armed`, then reads `alive`.
            self.alive.store(1, Ordering::SeqCst);
            P::model_fence();
            if self.armed.load(Ordering::SeqCst) == STOPPED {
                break;
            }
            match self.host().start_monitor() {
                Ok(handle) => {
                    *self.handle.lock() = Some(handle);
                    self.refused.store(0, Ordering::Relaxed);
                    self.started.store(STARTED, Ordering::Release);
                    return Ok(());
                }
                Err(error) => refusal = Err(error),
            }
            if left == 0 || self.armed.load(Ordering::SeqCst) == STOPPED {
                break;
            }
            P::sleep(pause);
            pause *= 2;
        }
        self.alive.store(0, Ordering::SeqCst);
        if self.armed.load(Ordering::SeqCst) == STOPPED {
            return Ok(());
        }
        self.started.store(NOT_STARTED, Ordering::SeqCst);
        P::model_fence();
        // Not over `STOPPED`. The next push that finds nobody tries again.
        let was_armed =
            self.armed.compare_exchange(ARMED, DISARMED, Ordering::SeqCst, Ordering::SeqCst);
        if was_armed.is_ok() {
            self.host().retry_later();
        }
        refusal
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

    /// The monitor's thread, which is the caller, begins.
    pub(crate) fn begun(&self) {
        *self.thread.lock() = Some(P::current_thread());
    }

    /// The monitor's thread ends, and there will be no other one.
    pub(crate) fn ended(&self) {
        self.alive.store(0, Ordering::SeqCst);
    }

    /// What the monitor's thread is to do next.
    pub(crate) fn task(&self) -> Task {
        match self.armed.load(Ordering::SeqCst) {
            STOPPED => Task::End,
            DISARMED => Task::Sleep,
            _ => Task::Look,
        }
    }

    /// Sleeps until it is woken, or that time has come. By the monitor's thread.
    pub(crate) fn sleep(&self, until: Option<Instant>) {
        self.parker.park(until);
    }

    /// Wakes its thread, if there is one, so that it sees what is left to try.
    pub(crate) fn wake(&self) {
        self.parker.unpark();
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.armed.store(STOPPED, Ordering::SeqCst);
        self.parker.unpark();
    }

    /// Its thread, once that has begun.
    pub(crate) fn thread(&self) -> Option<P::Thread> {
        *self.thread.lock()
    }

    /// Whether its thread is there, or about to be started.
    pub(crate) fn is_alive(&self) -> bool {
        P::model_fence();
        self.alive.load(Ordering::SeqCst) != 0
    }

    /// Waits for the thread's end.
    pub(crate) fn join(&self) {
        let handle = self.handle.lock().take();
        if let Some(handle) = handle {
            P::join(handle);
        }
    }

    /// Not started: its thread is the parent's. In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        if self.armed.load(Ordering::Relaxed) != STOPPED {
            forked::set(&self.armed, DISARMED);
        }
        forked::set(&self.started, NOT_STARTED);
        forked::set(&self.alive, 0);
        forked::set(&self.refused, 0);
        forked::set(&self.untidy, 0);
        // SAFETY: this is the only thread, and no user's code runs while it holds one of the two locks.
        unsafe { self.handle.renew(None) };
        // SAFETY: as above.
        unsafe { self.thread.renew(None) };
    }

    /// As if its thread were there, and armed: the caller.
    #[cfg(test)]
    pub(crate) fn arm_for_test(&self) {
        self.started.store(STARTED, Ordering::SeqCst);
        self.armed.store(ARMED, Ordering::SeqCst);
    }
}
