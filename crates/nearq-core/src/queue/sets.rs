//! A queue's sets of pwqs, and what it has for the threads that wait for it. For their use, see `flush`.

use nearq_platform::{Atomic, Ordering, Platform};

use super::Queue;
use crate::base::wait_queue::{Notification, WaitQueue};
use crate::limit::pool_workqueue::{DRAINING, PoolWorkqueue};

/// The most sets of pwqs.
pub(crate) const SETS: usize = 8;

/// What a queue has for its waiters.
pub(crate) struct Flushing<P: Platform> {
    pub(crate) waiters: WaitQueue<P>,
    /// Rounds that led issuers to another set.
    pub(crate) rounds: P::AtomicU64,
    /// How often each set came into use.
    pub(crate) generations: [P::AtomicU64; SETS],
    /// Whether there was a warning that the queue refuses items.
    pub(crate) warned: P::AtomicU32,
}

/// Which sets issuers use; part of what the configuration's lock protects.
pub(crate) struct Sets {
    /// The set in use.
    pub(crate) current: usize,
    /// The number of sets.
    pub(crate) made: usize,
    /// The number of drainers; a shutdown is one.
    pub(crate) drainers: u32,
    /// Whether a shutdown is among them.
    pub(crate) shut: bool,
}

impl Sets {
    pub(crate) fn new() -> Self {
        Sets { current: 0, made: 1, drainers: 0, shut: false }
    }

    /// The reasons for which the pwqs of the set in use are watched.
    pub(crate) fn watched(&self) -> u32 {
        if self.drainers == 0 { 0 } else { DRAINING }
    }

    /// Resets it to no drainers, unless the runtime is shut: they are the parent's. In the child of a fork.
    pub(crate) fn after_fork_in_child(&mut self, shut: bool) {
        self.shut = shut;
        self.drainers = u32::from(shut);
    }

    /// The number of sets.
    pub(crate) fn made(&self) -> usize {
        self.made
    }

    /// The number of drainers.
    pub(crate) fn drainers(&self) -> u32 {
        self.drainers
    }
}

impl<P: Platform> Flushing<P> {
    pub(crate) fn new() -> Self {
        Flushing {
            waiters: WaitQueue::new(),
            rounds: P::AtomicU64::new(0),
            generations: core::array::from_fn(|_| P::AtomicU64::new(0)),
            warned: P::AtomicU32::new(0),
        }
    }

    /// Resets it to no waiters. In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        self.waiters.after_fork_in_child();
    }

    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::SeqCst)
    }

    pub(crate) fn generation(&self, set: usize) -> u64 {
        // SeqCst: for a thread that waits for the set, see "No waiter is forgotten". For a thread that sees a pwq with new items, acquire
        // would be enough.
        self.generations[set].load(Ordering::SeqCst)
    }

    /// The age of pwqs that are made now.
    pub(crate) fn age(&self) -> u64 {
        self.rounds()
    }
}

impl<P: Platform> Queue<P> {
    /// The waiters to wake after something has ended, or was cancelled, on a pwq.
    #[cold]
    pub(crate) fn notification_of(&self, pwq: &PoolWorkqueue<P>) -> Notification<P> {
        // The waiters for a pwq are woken when it is drained: this is one of the steps after which it can be.
        if pwq.is_watched() && self.flushing.waiters.is_awaited() && pwq.is_drained() {
            self.flushing.waiters.take()
        } else {
            Notification::none()
        }
    }

    /// Whether nothing is held back, on a pool or running, on any pwq, at one moment during the call.
    ///
    /// What has ended is read on all pwqs first, then what is held back, then what has entered. If the sums are the same, then on each
    /// pwq everything that had entered by the time of the last read had ended by the time of the first. So nothing ran then that could
    /// have queued something else, and what was held back would have been seen, or had entered since. Acquire reads are enough for this
    /// order: a thread that sees that an item has ended also sees what that item had queued. The wait queue (`wait_queue`: MARK, then SEE)
    /// ensures that no thread goes to sleep on an outdated answer.
    pub(crate) fn is_empty(&self) -> bool {
        loop {
            let (newest, retired) = (self.newest_pwq(), self.first_retired());
            let ended = sum(self.pwqs_in_service().map(PoolWorkqueue::ended));
            let held: u64 = self.pwqs_in_service().map(PoolWorkqueue::held).sum();
            let entered = sum(self.pwqs_in_service().map(PoolWorkqueue::entered));
            if core::ptr::eq(newest, self.newest_pwq())
                && core::ptr::eq(retired, self.first_retired())
            {
                return held == 0 && entered == ended;
            }
            // A pwq that came meanwhile, or was retired, was not read each time. The answer cannot be "not empty": the caller would then
            // wait for a notification, and there is none for a pwq on which nothing has ended.
        }
    }

    /// The approximate number of items that are held back, on pools or running.
    pub(crate) fn left(&self) -> u64 {
        let ended = sum(self.pwqs_in_service().map(PoolWorkqueue::ended));
        let held: u64 = self.pwqs_in_service().map(PoolWorkqueue::held).sum();
        held + u64::from(
            sum(self.pwqs_in_service().map(PoolWorkqueue::entered)).wrapping_sub(ended),
        )
    }
}

/// Sums counts of 32 bits, in 32 bits.
fn sum(counts: impl Iterator<Item = u32>) -> u32 {
    counts.fold(0, u32::wrapping_add)
}
