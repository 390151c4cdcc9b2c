//! Whether a pool's workers can be started: if not, since when and by whose refusal; and when the queues' rescuers are called
//! (`run/rescue`).

use core::time::Duration;

use nearq_platform::{Atomic, Instant, Ordering, Platform};

use crate::base::forked;

/// A pool whose workers could not be started, and that has started no item for this long, calls the rescuers. As in the kernel.
pub(crate) const FIRST: Duration = Duration::from_millis(10);
/// It calls them again after this long.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);
/// The reason why a worker could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The runtime has as many threads as its own limit allows.
    Limit,
    /// The system refused the thread, the runtime has no number left for it, or the runtime is stopping.
    Otherwise,
}

/// Whether a pool's workers can be started. All accesses are relaxed: these are times, which need not be exact.
pub(crate) struct SpawnFailure<P: Platform> {
    /// When a worker was refused, if none has been started since; 0 if the last one was started.
    refused: P::AtomicU64,
    /// Whether the runtime's own limit refused it.
    limited: P::AtomicU32,
    /// Whether the pool waits for a thread that this limit refuses. `SeqCst`: see `runtime/limit`.
    in_line: P::AtomicU32,
    /// This field and those after it belong to the monitor. When something was last started, or was first seen to wait; 0 if nothing waits.
    since: P::AtomicU64,
    /// When rescuers were last called after that; 0 if they were not.
    called: P::AtomicU64,
    signature: P::AtomicU64,
}

impl<P: Platform> SpawnFailure<P> {
    pub(crate) fn new() -> Self {
        SpawnFailure {
            refused: P::AtomicU64::new(0),
            limited: P::AtomicU32::new(0),
            in_line: P::AtomicU32::new(0),
            since: P::AtomicU64::new(0),
            called: P::AtomicU64::new(0),
            signature: P::AtomicU64::new(0),
        }
    }

    /// A worker could not be started. Of several refusals in a row, the first one sets the time.
    #[cold]
    pub(crate) fn begin(&self, by: Denied) {
        forked::set(&self.limited, u32::from(by == Denied::Limit));
        let now = P::now().as_nanos().max(1);
        let _ = self.refused.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// A worker has been started.
    pub(crate) fn end(&self) {
        forked::set(&self.refused, 0);
    }

    /// Whether the runtime's own limit refused the last worker that was wanted.
    pub(crate) fn is_by_limit(&self) -> bool {
        self.lasts() && self.limited.load(Ordering::Relaxed) != 0
    }

    /// Whether the last worker that was wanted could not be started.
    pub(crate) fn lasts(&self) -> bool {
        self.refused.load(Ordering::Relaxed) != 0
    }

    /// Something waits, and the pool's workers have moved on as `signature` says. Returns whether rescuers must be called now. By the
    /// monitor.
    pub(crate) fn is_due(&self, signature: u64, now: Instant) -> bool {
        let now = now.as_nanos().max(1);
        let first = FIRST.as_nanos() as u64;
        let refused = self.refused.load(Ordering::Relaxed);
        let mut since = self.since.load(Ordering::Relaxed);
        if since == 0 {
            // Either what waits has waited since then, or the refusal is an old one and something else waits now.
            since = if now.saturating_sub(refused) < first { refused } else { now };
            self.called.store(0, Ordering::Relaxed);
        } else if signature != self.signature.load(Ordering::Relaxed) {
            since = now;
            self.called.store(0, Ordering::Relaxed);
        }
        self.since.store(since, Ordering::Relaxed);
        self.signature.store(signature, Ordering::Relaxed);
        let due = match self.called.load(Ordering::Relaxed) {
            0 => since.max(refused) + first,
            called => called + INTERVAL.as_nanos() as u64,
        };
        let is_due = now >= due;
        if is_due {
            self.called.store(now, Ordering::Relaxed);
        }
        is_due
    }

    /// Nothing waits, or a rescuer has run something: waiting times are measured from now on.
    pub(crate) fn begin_anew(&self) {
        forked::set(&self.since, 0);
    }

    /// Whether the pool is in the line now.
    pub(crate) fn is_in_line(&self) -> bool {
        self.in_line.load(Ordering::Relaxed) != 0
    }

    /// Marks the pool as being in the line for a thread. False if it is in the line already.
    pub(crate) fn enter_line(&self) -> bool {
        self.in_line.swap(1, Ordering::SeqCst) == 0
    }

    /// The pool is taken off the line; the caller checks the pool's work afterwards.
    pub(crate) fn leave_line(&self) {
        self.in_line.store(0, Ordering::SeqCst);
    }

    /// Resets it as if no thread had tried to start a worker. In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        forked::set(&self.refused, 0);
        forked::set(&self.in_line, 0);
        forked::set(&self.since, 0);
    }
}

#[cfg(test)]
mod tests;
