//! A thread of the runtime's own that is started on first use: the monitor's and the timer's. This file starts it, retries if the system
//! refuses it, ends it, and resets it in the child of a fork. The owner supplies the function that the thread runs.
//!
//! # The words
//! | `state` | meaning | changed by |
//! |---|---|---|
//! | `NOT_STARTED` | there is no thread | a thread that needs it: to `STARTING`; the thread that ends the runtime: to `ENDED` |
//! | `STARTING` | the thread that made this step is trying to start it | that thread: to `STARTED`, or back |
//! | `STARTED` | the thread exists, or did | never |
//! | `ENDED` | there is no thread, and there will be none | never |
//!
//! * **The end.** The thread that ends the runtime writes `stopped`, then reads `alive` and `state` ([`stop`](ServiceThread::stop)). A
//!   thread that starts the service thread writes `alive`, then reads `stopped`; if the start has failed, it writes `state`, then reads
//!   `stopped`. All accesses are `SeqCst`, so one of the two sees the other. So either the service thread is started and ends by itself, or
//!   exactly one of the two takes `state` to `ENDED`, and must do what the service thread would have done at its end.
//! * **A need that arises while a start fails.** The thread that has the need records it, then reads `state`; the thread whose start has
//!   failed writes `state`, and its caller then checks for needs. Both are `SeqCst` again.
//!
//! # If the system refuses it
//! A thread that needs the service thread retries for some 80 ms. Once that has failed, each start is a single try, so that later threads
//! need not wait each time.

use core::time::Duration;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, Instant, Ordering, OsError, Parker, Platform};

use crate::base::forked;

/// How often a start is tried before it is left to the next need.
const TRIES: u32 = 14;
/// The first of the pauses between them; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_micros(10);

const NOT_STARTED: u32 = 0;
const STARTING: u32 = 1;
const STARTED: u32 = 2;
const ENDED: u32 = 3;

/// The result of a start.
#[derive(Debug)]
#[must_use = "the caller may have to do what the thread would have done"]
pub(crate) enum Start {
    /// It exists, or another thread is starting it.
    Done,
    /// The system refuses it. The caller checks once more for what needs it.
    Refused(OsError),
    /// The runtime ends, and there will be no thread: the caller does what the thread would have done at its end.
    Ended,
}

/// See the head of the file.
pub(crate) struct ServiceThread<P: Platform> {
    parker: Parker<P>,
    state: P::AtomicU32,
    stopped: P::AtomicU32,
    /// Whether it exists, or is about to be started.
    alive: P::AtomicU32,
    /// Whether it could not be started last time.
    refused: P::AtomicU32,
    handle: Mutex<Option<P::JoinHandle>, P>,
    thread: Mutex<Option<P::Thread>, P>,
}

impl<P: Platform> ServiceThread<P> {
    pub(crate) fn new() -> Self {
        ServiceThread {
            parker: Parker::new(),
            state: P::AtomicU32::new(NOT_STARTED),
            stopped: P::AtomicU32::new(0),
            alive: P::AtomicU32::new(0),
            refused: P::AtomicU32::new(0),
            handle: Mutex::new_in(None),
            thread: Mutex::new_in(None),
        }
    }

    // ---- threads that need it ------------------------------------------------------------------------------

    /// Whether it has yet to be started; a quick check.
    #[inline]
    pub(crate) fn is_missing(&self) -> bool {
        // Relaxed: `start` checks again.
        self.state.load(Ordering::Relaxed) == NOT_STARTED
    }

    /// Starts the thread with `spawn`, unless another thread has. May wait, for the system and for locks.
    #[cold]
    pub(crate) fn start(&self, mut spawn: impl FnMut() -> Result<P::JoinHandle, OsError>) -> Start {
        P::model_fence();
        // SeqCst: see "A need that arises while a start fails".
        if self.state.load(Ordering::SeqCst) != NOT_STARTED || !self.step(NOT_STARTED, STARTING) {
            return Start::Done;
        }
        // Relaxed: only the number of tries depends on it.
        let mut left = if self.refused.load(Ordering::Relaxed) == 0 { TRIES } else { 1 };
        let mut pause = FIRST_PAUSE;
        let refusal = loop {
            // SeqCst: see "The end".
            self.alive.store(1, Ordering::SeqCst);
            if self.is_stopped() {
                break None;
            }
            match spawn() {
                Ok(handle) => {
                    *self.handle.lock() = Some(handle);
                    self.refused.store(0, Ordering::Relaxed);
                    self.state.store(STARTED, Ordering::Release);
                    return Start::Done;
                }
                Err(error) => {
                    left -= 1;
                    if left == 0 || self.is_stopped() {
                        break Some(error);
                    }
                }
            }
            P::sleep(pause);
            pause *= 2;
        };
        self.alive.store(0, Ordering::SeqCst);
        self.state.store(NOT_STARTED, Ordering::SeqCst);
        match refusal {
            Some(refusal) if !self.is_stopped() => Start::Refused(refusal),
            // It was stopped.
            _ if self.step(NOT_STARTED, ENDED) => Start::Ended,
            _ => Start::Done,
        }
    }

    /// Starts it now, for a caller that will need it at a time when no thread can be started. Waits for the outcome of a start by another
    /// thread.
    pub(crate) fn reserve(
        &self,
        mut spawn: impl FnMut() -> Result<P::JoinHandle, OsError>,
    ) -> Start {
        loop {
            let start = self.start(&mut spawn);
            // Acquire: what the thread that tried has done. That thread's start may be about to fail.
            let undecided = self.state.load(Ordering::Acquire) <= STARTING && !self.is_stopped();
            if !matches!(start, Start::Done) || !undecided {
                return start;
            }
            P::sleep(FIRST_PAUSE);
        }
    }

    /// Makes the next start a single try: for a thread that must not sleep for it.
    pub(crate) fn try_once(&self) {
        self.refused.store(1, Ordering::Relaxed);
    }

    /// Notes that the system refuses it. True if that was not known before: then the user must be warned.
    pub(crate) fn is_refused_anew(&self) -> bool {
        self.refused.swap(1, Ordering::Relaxed) == 0
    }

    /// Whether the system has refused it, and it does not exist yet.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed) != 0
    }

    /// Wakes it, if it exists; if it does not sleep, its next sleep ends at once.
    #[inline]
    pub(crate) fn wake(&self) {
        self.parker.unpark();
    }

    // ---- the thread itself ---------------------------------------------------------------------------------

    /// The service thread, which is the caller, begins.
    pub(crate) fn begun(&self) {
        *self.thread.lock() = Some(P::current_thread());
    }

    /// Sleeps until it is woken, or until that time.
    pub(crate) fn sleep(&self, until: Option<Instant>) {
        self.parker.park(until);
    }

    /// Whether it must end.
    pub(crate) fn is_stopped(&self) -> bool {
        P::model_fence();
        self.stopped.load(Ordering::SeqCst) != 0
    }

    /// The service thread ends, and there will be no other.
    pub(crate) fn ended(&self) {
        self.alive.store(0, Ordering::SeqCst);
    }

    // ---- the end -------------------------------------------------------------------------------------------

    /// Tells the service thread to end. [`Start::Ended`]: there was none and will be none, so the caller does what it would have done.
    pub(crate) fn stop(&self) -> Start {
        self.stopped.store(1, Ordering::SeqCst);
        P::model_fence();
        self.parker.unpark();
        if self.step(NOT_STARTED, ENDED) { Start::Ended } else { Start::Done }
    }

    /// Whether it exists, or is about to be started.
    pub(crate) fn is_alive(&self) -> bool {
        P::model_fence();
        self.alive.load(Ordering::SeqCst) != 0
    }

    /// Waits for its end.
    pub(crate) fn join(&self) {
        let handle = self.handle.lock().take();
        if let Some(handle) = handle {
            P::join(handle);
        }
    }

    /// The thread, once it has begun.
    pub(crate) fn thread(&self) -> Option<P::Thread> {
        *self.thread.lock()
    }

    /// Resets it to not started: the thread is the parent's. If it was stopped, it stays so, and the answer is true. In the child of a
    /// fork.
    pub(crate) fn after_fork_in_child(&self) -> bool {
        let stopped = self.stopped.load(Ordering::Relaxed) != 0;
        forked::set(&self.state, if stopped { ENDED } else { NOT_STARTED });
        forked::set(&self.alive, 0);
        forked::set(&self.refused, 0);
        // SAFETY: this is the only thread, and no user's code runs while it holds one of the two locks.
        unsafe { self.handle.renew(None) };
        // SAFETY: no other thread is in the child, and this one has no guard of `thread`: no user's code, which could fork, runs under
        // that lock.
        unsafe { self.thread.renew(None) };
        stopped
    }

    fn step(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Pretends that the thread exists and is not stopped: a test does by hand what it would do.
    #[cfg(test)]
    pub(crate) fn do_without(&self) {
        self.stopped.store(0, Ordering::SeqCst);
        self.state.store(STARTED, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
