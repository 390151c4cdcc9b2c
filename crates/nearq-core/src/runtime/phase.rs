//! The phase of a runtime: whether it is frozen (`freeze`), and how far its end has got (`shutdown`). Read when items are queued and
//! threads are started.

use nearq_platform::{Atomic, Ordering, Platform};

use super::{Core, KnownQueue};

/// Whether a runtime is frozen.
pub(crate) struct Freezer<P: Platform> {
    frozen: P::AtomicU32,
}

impl<P: Platform> Freezer<P> {
    pub(crate) fn new() -> Self {
        Freezer { frozen: P::AtomicU32::new(0) }
    }

    /// Freezes or thaws; the caller makes every queue follow afterwards.
    pub(crate) fn change(&self, frozen: bool) {
        // Relaxed: the caller takes the list's lock, then the lock of each queue's configuration. A thread that takes one of these locks
        // later sees the word.
        self.frozen.store(u32::from(frozen), Ordering::Relaxed);
    }

    /// Whether the freezable queues start nothing.
    pub(crate) fn is_frozen(&self) -> bool {
        // Relaxed: a thread that sets limits holds the lock of the queue's configuration, and has held the list's lock before; see
        // `change`.
        self.frozen.load(Ordering::Relaxed) != 0
    }
}

/// How far a runtime's end has got; no step is ever taken back.
pub(crate) struct Shutdown<P: Platform> {
    /// Nothing new is accepted.
    pub(crate) shut: P::AtomicU32,
    /// A caller has waited long enough.
    pub(crate) gave_up: P::AtomicU32,
    /// The last thread has ended.
    pub(crate) ended: P::AtomicU32,
}

impl<P: Platform> Shutdown<P> {
    pub(crate) fn new() -> Self {
        Shutdown {
            shut: P::AtomicU32::new(0),
            gave_up: P::AtomicU32::new(0),
            ended: P::AtomicU32::new(0),
        }
    }
}

impl<P: Platform, Q: KnownQueue> Core<P, Q> {
    /// Whether the runtime is being shut down.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        // SeqCst: after a thread was counted; see `start_thread`.
        self.stopping.load(Ordering::SeqCst) != 0
    }

    /// Whether nothing new is accepted.
    pub(crate) fn is_shut(&self) -> bool {
        // SeqCst: see "The races" at `shutdown`.
        self.shutdown.shut.load(Ordering::SeqCst) != 0
    }

    /// Whether dropping a queue must not wait, because a caller has waited long enough.
    pub(crate) fn has_given_up(&self) -> bool {
        self.shutdown.gave_up.load(Ordering::Acquire) != 0
    }

    /// Whether every thread has ended, and none will ever be started.
    pub(crate) fn has_ended(&self) -> bool {
        // Acquire: what the threads did.
        self.shutdown.ended.load(Ordering::Acquire) != 0
    }
}
