//! What an item knows of the timer on which it may be: that there is a record of it, and how that is asked.
//!
//! The record is made and read in `queue/delay`, which knows queues. The item's lock keeps it: it is replaced and freed under the lock, or with the
//! item (`extra`).

use core::ptr::NonNull;
use std::sync::Arc;

use nearq_platform::Platform;

use super::Item;
use super::account::Owner;
use crate::item::held::Held;
use crate::timer::TimerNode;

/// That with which the record of a delayed item begins.
#[repr(C)]
pub(crate) struct Later<P: Platform> {
    pub(crate) node: TimerNode<P>,
    table: &'static LaterTable<P>,
}

/// What is asked of an item's record. `this` is the item's, and the caller has the item's lock; or it is about to free the item.
pub(crate) struct LaterTable<P: Platform> {
    /// Takes an item off the timer that is on one.
    pub(crate) cancel: unsafe fn(this: *const Later<P>, held: &Held<'_, P>),
    /// The timer found the item locked: what it came for, to be done when the lock has been given back.
    pub(crate) take_over: unsafe fn(this: *const Later<P>, held: &Held<'_, P>) -> Option<Launch<P>>,
    /// Gives the item's reference of the record back.
    pub(crate) abandon: unsafe fn(this: *const Later<P>),
}

impl<P: Platform> Later<P> {
    pub(crate) fn new(node: TimerNode<P>, table: &'static LaterTable<P>) -> Self {
        Later { node, table }
    }

    /// See [`LaterTable::cancel`]. Under the lock of an item that is on a timer.
    pub(crate) fn cancel(held: &Held<'_, P>) {
        let this = held.later();
        // SAFETY: an item that is on a timer has a record, as long as we have the lock.
        unsafe { ((*this).table.cancel)(this, held) };
    }

    /// See [`LaterTable::take_over`]. Under the lock of an item that is on a timer.
    pub(crate) fn take_over(held: &Held<'_, P>) -> Option<Launch<P>> {
        let this = held.later();
        // SAFETY: as in `cancel`.
        unsafe { ((*this).table.take_over)(this, held) }
    }

    /// Lets go of an item's record, if it has one. By the thread that frees the item or replaces the record.
    ///
    /// # Safety
    /// Null, or the record of an item that does not have it any more.
    pub(crate) unsafe fn abandon(this: *const Later<P>) {
        // SAFETY: as the caller says.
        if let Some(later) = unsafe { this.as_ref() } {
            let abandon = later.table.abandon;
            // SAFETY: as the caller says.
            unsafe { abandon(this) };
        }
    }
}

/// An item that is on its way to its queue: off the timer, and still to be sent.
pub(crate) struct Launch<P: Platform> {
    pub(crate) queue: Arc<dyn Owner<P>>,
    pub(crate) item: NonNull<Item<P>>,
    pub(crate) node: NonNull<Item<P>>,
    pub(crate) cpu: usize,
}

impl<P: Platform> Launch<P> {
    /// Sends it, unless the queue is being dropped. The caller has a handle of the item, and not its lock.
    pub(crate) fn go(self) {
        self.queue.submit(self.item, self.node, self.cpu);
    }

    /// As [`go`](Self::go), and gives a reference back.
    pub(crate) fn go_with_reference(self) {
        let item = self.item;
        self.go();
        // SAFETY: the reference is given back here.
        crate::base::executing::outside_item::<P>(|| unsafe { Item::let_go(item) });
    }
}
