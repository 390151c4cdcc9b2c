//! What an item knows of the queue that it goes through: an address to be counted at, and an owner to be told.
//!
//! An item stores its account, compares it, and hands it on; it does not look into it. So nothing here knows of queues, links and limits,
//! which are above. The owner is called where that is rare: a queueing was cancelled, the holder of an item's lock has a node to send, or an
//! item's time has come. A link begins with its account, so the worker that executes an item finds the link without a call
//! (`Link::of`).
//!
//! An account is never freed before its owner. Whoever follows the pointer keeps the owner: because a queueing is counted there, or by a visit.

use core::ptr::NonNull;
use std::sync::Arc;

use nearq_platform::Platform;

use super::Item;
use crate::base::event::Notification;

/// Where queueings are counted: that with which a link begins.
pub(crate) struct Account<P: Platform> {
    owner: *const dyn Owner<P>,
}

/// A queue, as items know it.
pub(crate) trait Owner<P: Platform>: Send + Sync {
    /// A queueing was cancelled: gives back what it counted at the account. `held_back`: it had not been let in. `homed`: its node is on the
    /// list of a pool for items with homes. The threads that waited for that are to be woken outside all locks, and the leftover to be
    /// dropped there.
    fn retire(
        &self,
        account: &Account<P>,
        held_back: bool,
        homed: bool,
    ) -> (Notification<P>, Option<Leftover<P>>);

    /// Keeps the queue from being freed, for a few instructions of a thread that has nothing else there.
    fn begin_visit(&self);

    /// The last that the thread does to the queue. What is returned is to be dropped outside all locks.
    fn end_visit(&self) -> Option<Leftover<P>>;

    /// Pushes a node that is counted at the account, and on no list; without a node, has the limit looked after. By a visitor.
    fn send(&self, account: &Account<P>, node: Option<NonNull<Item<P>>>);

    /// Sends an item whose time has come, for that CPU, unless the queue is being dropped. `node` is what the item goes by. The caller has a
    /// handle of the item, and not its lock.
    fn submit(self: Arc<Self>, item: NonNull<Item<P>>, node: NonNull<Item<P>>, cpu: usize);

    /// The thread that is to be woken after something has ended, or was cancelled, at the account, which somebody watches.
    fn tell_of(&self, account: &Account<P>) -> Notification<P>;

    /// Whether the queue's rescuer runs an item that is counted at the account.
    fn rescues(&self, account: &Account<P>) -> bool;

    /// The queue has no handle, and its memory is kept by the caller, which has ended a visit: looks whether that was the last.
    fn reap(&self);
}

impl<P: Platform> Account<P> {
    /// An account of that owner, which outlives it.
    pub(crate) fn new(owner: *const dyn Owner<P>) -> Self {
        Account { owner }
    }

    /// The owner.
    #[inline]
    pub(crate) fn owner(&self) -> &dyn Owner<P> {
        // SAFETY: the owner outlives the account, and whoever has the account keeps the owner from being freed: by a handle, by an item that
        // is queued there, by a visit, or by `Worker::set_account`.
        unsafe { &*self.owner }
    }

    /// The owner's address. To be followed where the caller knows what type all owners are.
    #[inline]
    pub(crate) fn owner_address(&self) -> *const () {
        self.owner.cast()
    }
}

/// A queue without a handle, kept by a thread that has ended its visit. Its drop looks whether that was the last that touched the queue.
pub(crate) struct Leftover<P: Platform>(Arc<dyn Owner<P>>);

impl<P: Platform> Leftover<P> {
    pub(crate) fn new(owner: Arc<dyn Owner<P>>) -> Self {
        Leftover(owner)
    }
}

impl<P: Platform> Drop for Leftover<P> {
    fn drop(&mut self) {
        self.0.reap();
    }
}

/// What is to be sent when an item's lock has been given back: a node, or the look after the limit. A cancelled node is sent as well;
/// who takes it off its list throws it away.
pub(crate) struct Left<P: Platform> {
    account: *const Account<P>,
    node: Option<NonNull<Item<P>>>,
}

impl<P: Platform> Left<P> {
    /// The queueing is counted at the account, and the caller has the item's lock: so the queue is there. From here on it is
    /// there because we visit it.
    pub(crate) fn new(account: *const Account<P>, node: Option<NonNull<Item<P>>>) -> Self {
        // SAFETY: as above.
        unsafe { &*account }.owner().begin_visit();
        Left { account, node }
    }

    pub(crate) fn send(self) {
        // SAFETY: we visit the queue, and accounts live as long as it.
        let account = unsafe { &*self.account };
        account.owner().send(account, self.node);
    }
}

impl<P: Platform> Drop for Left<P> {
    fn drop(&mut self) {
        // SAFETY: as in `send`; the last that is done to the queue. No lock is held.
        drop(unsafe { &*self.account }.owner().end_visit());
    }
}
