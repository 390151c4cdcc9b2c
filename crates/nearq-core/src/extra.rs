//! What few items need: made when one is first waited for, delayed, or queued again after a cancel.

use nearq_platform::{Atomic, Ordering, Platform};

use crate::delayed::Delay;
use crate::event::Event;
use crate::fork;
use crate::item::Item;

/// See the fields.
pub(crate) struct Extra<P: Platform> {
    /// What has ended while somebody waited (`held`). Written under the item's lock.
    pub(crate) ended: P::AtomicU64,
    /// Queueings that were cancelled, while somebody waited, behind the execution that runs: they count when that has ended. Under the
    /// item's lock.
    pub(crate) later: P::AtomicU64,
    /// Who waits. Written under the item's lock.
    pub(crate) waiters: P::AtomicU32,
    /// `ended` has grown.
    pub(crate) event: Event<P>,
    /// The node by which an item that is `AWAY` is queued (`stand_in`). Under the item's lock.
    pub(crate) stand_in: P::AtomicPtr<Item<P>>,
    /// What the timer needs of the item (`delayed`); null if it never waited for its time. Under the item's lock.
    pub(crate) delay: P::AtomicPtr<Delay<P>>,
}

impl<P: Platform> Extra<P> {
    pub(crate) fn new() -> Self {
        Extra {
            ended: P::AtomicU64::new(0),
            later: P::AtomicU64::new(0),
            waiters: P::AtomicU32::new(0),
            event: Event::new(),
            stand_in: P::AtomicPtr::new(core::ptr::null_mut()),
            delay: P::AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Nobody waits, and no node is under way: who did and what was are the parent's. What has ended stays counted. In the child
    /// of a fork, by who has the item to itself; `locked` if a thread of the parent had its lock.
    ///
    /// The delay is of another epoch, and is replaced when it is needed (`delayed`); unless it may be half changed, then it is
    /// forgotten.
    pub(crate) fn after_fork_in_child(&self, locked: bool) {
        fork::set(&self.waiters, 0);
        fork::set(&self.stand_in, core::ptr::null_mut());
        self.event.after_fork_in_child();
        if locked {
            fork::set(&self.delay, core::ptr::null_mut());
        }
    }
}

impl<P: Platform> Drop for Extra<P> {
    fn drop(&mut self) {
        crate::delayed::abandon(self.delay.load(Ordering::Acquire));
    }
}
