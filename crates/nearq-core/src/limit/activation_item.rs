//! The item by which a domain asks a worker to check its limit: only workers activate what is held back.
//!
//! The item belongs to no pwq and is not counted. A domain has one such item; while it is pending, further requests are merged with it. It
//! goes to a pool of the domain that has a free worker, and comes before all other items there, because what it admits may be for CPUs that
//! are idle.

use core::ptr::NonNull;

use nearq_platform::{Atomic, Ordering, Platform};

use crate::item::Name;
use crate::item::owned::{ItemRef, Pending, Running};
use crate::item::{Epoch, Executed, Finished, Item, ItemVtable};
use crate::limit::node_active::NodeActive;
use crate::pool::Pool;

/// The item, and the domain for which it asks.
#[repr(C)]
pub(crate) struct ActivationItem<P: Platform> {
    item: Item<P>,
    node_active: P::AtomicPtr<NodeActive<P>>,
}

impl<P: Platform> ActivationItem<P> {
    const TABLE: ItemVtable<P> = ItemVtable {
        is_optional: crate::item::never_optional,
        execute: Self::execute,
        free: Self::free,
        parts: None,
        refuse: crate::item::never_refused,
        name: Name::Given("activation item"),
    };

    pub(crate) fn new() -> Self {
        ActivationItem {
            item: Item::new(&Self::TABLE),
            node_active: P::AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Sets the domain to which it belongs; before it is sent. The domain does not move any more.
    pub(crate) fn set_node_active(&self, node_active: *const NodeActive<P>) {
        // Release: pairs with the acquire in `execute`.
        self.node_active.store(node_active.cast_mut(), Ordering::Release);
    }

    /// Sends it to a worker of `pool`, unless it is on its way.
    pub(crate) fn send(&self, pool: &Pool<P>) {
        // SAFETY: the domain has a handle. The pointer to the whole activation item: `execute` reads what lies behind the item.
        let item = unsafe { ItemRef::new(NonNull::from(self).cast()) };
        // An activation item is never cancelled, so the node is its own.
        if let Some(node) = Item::claim(item, Epoch::now::<P>()).and_then(Pending::publish) {
            pool.push_activation(node);
        }
    }

    /// Whether the node is this item.
    pub(crate) fn is(&self, item: &Item<P>) -> bool {
        core::ptr::eq(item, &raw const self.item)
    }

    /// Whether it is on its way or being executed.
    pub(crate) fn is_active(&self) -> bool {
        self.item.is_pending() || self.item.is_running()
    }

    /// In the child of a fork: resets it, so that it is not queued.
    pub(crate) fn after_fork_in_child(&self) {
        self.item.reset_after_fork_in_child();
    }

    unsafe fn execute(item: NonNull<Item<P>>) -> Executed {
        // SAFETY: the table belongs to activation items only, whose first field is the item; the queue waits for its activation items
        // before it is freed.
        let this = unsafe { item.cast::<ActivationItem<P>>().as_ref() };
        // SAFETY: set before it was sent, to the domain that it is a part of.
        unsafe { &*this.node_active.load(Ordering::Acquire) }.attend();
        Executed { panicked: false, deferred: this.item.finish() == Finished::Deferred }
    }

    unsafe fn free(_: NonNull<Item<P>>) {
        unreachable!("the domain holds a reference to its activation item");
    }
}

/// Executes the item by which a queue asks a worker to check its limit, which has started. It belongs to no pwq and is not counted.
#[cold]
pub(crate) fn carry_out<P: Platform>(pool: &Pool<P>, item: Running<P>) {
    let table = item.table();
    // The queue waits for its activation item before it is freed. An activation item is never cancelled, so it is still queued where it was
    // deferred.
    if let Some(item) = item.execute(table).deferred {
        if let Some(node) = item.finish_deferred(core::ptr::null()) {
            pool.push_activation(node);
        }
    }
    // The fence: the activation item's state is not written `SeqCst`.
    P::fence(Ordering::SeqCst);
    pool.services().departures.notify();
}
