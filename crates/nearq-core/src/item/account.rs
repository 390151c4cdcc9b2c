//! What an item knows of the layers above it: of its queue, and of the timer.
//!
//! # The queue: an address where items are counted, and an owner to notify
//! An item stores its account, compares it, and hands it on, but does not read it. So nothing here depends on queues, pwqs and limits,
//! which are higher layers. The owner is called only in rare cases: a queueing was cancelled, the holder of an item's lock has a node to
//! send, or an item's time has come. A pwq begins with its account, so the worker that executes an item finds the pwq without a call
//! (`PoolWorkqueue::of`).
//!
//! An account is never freed before its owner. A thread that follows the pointer keeps the owner alive, because a queueing is counted
//! there, or by a visit.
//!
//! # The timer: a record, and how it is called
//! The record is made and read in `queue/delay`, which knows queues. The item's lock keeps it alive: it is replaced and freed under the
//! lock, or with the item (`item_ext`).

use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use std::sync::Arc;

use nearq_platform::Platform;

use super::Item;
use super::owned::{ItemRef, Pending};
use crate::base::wait_queue::Notification;
use crate::item::guard::ItemGuard;
use crate::timer::TimerNode;

/// Where queueings are counted: the first part of a pwq.
pub(crate) struct Account<P: Platform> {
    owner: *const dyn Owner<P>,
}

/// An account whose owner is kept alive for `'a`, by the pointer to the whole pwq that it begins: a reference to the account would lose
/// access to the rest.
#[derive(Clone, Copy)]
pub(crate) struct AccountRef<'a, P: Platform>(NonNull<Account<P>>, PhantomData<&'a Account<P>>);

impl<P: Platform> AccountRef<'_, P> {
    /// A borrow of that account; `None` if it is null.
    ///
    /// # Safety
    /// The pointer is null, or that of a whole pwq, and the owner is kept alive while the borrow is used.
    #[inline(always)]
    pub(crate) unsafe fn new(account: *const Account<P>) -> Option<Self> {
        NonNull::new(account.cast_mut()).map(|account| AccountRef(account, PhantomData))
    }

    /// The pointer to the whole pwq.
    #[inline(always)]
    pub(crate) fn as_raw(self) -> *const Account<P> {
        self.0.as_ptr()
    }
}

impl<P: Platform> Deref for AccountRef<'_, P> {
    type Target = Account<P>;

    #[inline(always)]
    fn deref(&self) -> &Account<P> {
        // SAFETY: the caller of `new` keeps the owner, and so the account, alive while this borrow is used; shared references only.
        unsafe { self.0.as_ref() }
    }
}

/// A queue, as items know it.
pub(crate) trait Owner<P: Platform>: Send + Sync {
    /// A queueing was cancelled: gives back what it counted at the account. `held_back`: it had not been admitted. `homed`: its node is on
    /// the list of a pool for items with homes. The caller wakes the threads that waited for that, and drops the leftover, outside all
    /// locks.
    fn retire(
        &self,
        account: AccountRef<'_, P>,
        held_back: bool,
        homed: bool,
    ) -> (Notification<P>, Option<Leftover<P>>);

    /// Keeps the queue from being freed, for a few instructions of a thread that holds nothing else there.
    fn begin_visit(&self);

    /// The thread's last access to the queue. The caller drops the return value outside all locks.
    fn end_visit(&self) -> Option<Leftover<P>>;

    /// Pushes a node that is counted at the account and is on no list; without a node, has the limit checked. Called by a visitor.
    fn send(&self, account: AccountRef<'_, P>, node: Option<Pending<P>>);

    /// Sends an item whose time has come, for that CPU, unless the queue is being dropped. `node` is the node by which the item is queued.
    /// The caller has a handle of the item, but not its lock.
    fn submit(self: Arc<Self>, item: ItemRef<'_, P>, node: Pending<P>, cpu: usize);

    /// The waiters to wake after something has ended, or was cancelled, at an account that is being watched.
    fn notification_of(&self, account: AccountRef<'_, P>) -> Notification<P>;

    /// Whether the queue's rescuer runs an item that is counted at the account.
    fn rescues(&self, account: AccountRef<'_, P>) -> bool;

    /// The queue has no handle. Its memory is kept by the caller, which has ended a visit and checks whether it was the last.
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
        // SAFETY: the owner outlives the account, and a thread that has the account keeps the owner from being freed: by a handle, by an item that
        // is queued there, by a visit, or by `Worker::set_account`.
        unsafe { &*self.owner }
    }

    /// The owner's address. To be followed only if the caller knows which type all owners have.
    #[inline]
    pub(crate) fn owner_address(&self) -> *const () {
        self.owner.cast()
    }
}

/// A queue without a handle, kept by a thread that has ended its visit. Its drop checks whether that thread was the last that touched the
/// queue.
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

/// What must be sent when an item's lock has been given back: a node, or a check of the limit. A cancelled node is sent as well; the worker
/// that takes it off its list throws it away.
pub(crate) struct Left<P: Platform> {
    account: *const Account<P>,
    node: Option<Pending<P>>,
}

impl<P: Platform> Left<P> {
    /// The queueing is counted at the account, and the caller has the item's lock, so the queue exists. From here on, our visit keeps it
    /// alive.
    pub(crate) fn new(account: AccountRef<'_, P>, node: Option<Pending<P>>) -> Self {
        account.owner().begin_visit();
        Left { account: account.as_raw(), node }
    }

    fn account(&self) -> AccountRef<'_, P> {
        // SAFETY: from a borrow; we visit the queue, and accounts live as long as it.
        unsafe { AccountRef::new(self.account) }.expect("not null")
    }

    pub(crate) fn send(mut self) {
        let node = self.node.take();
        let account = self.account();
        account.owner().send(account, node);
    }
}

impl<P: Platform> Drop for Left<P> {
    fn drop(&mut self) {
        // Our last access to the queue. No lock is held.
        drop(self.account().owner().end_visit());
    }
}

// ---- the timer --------------------------------------------------------------------------------------------

/// The first part of a delayed item's record.
#[repr(C)]
pub(crate) struct Later<P: Platform> {
    pub(crate) node: TimerNode<P>,
    table: &'static LaterTable<P>,
}

/// The operations of an item's record. `this` is the item's. The caller has the item's lock, or is about to free the item.
pub(crate) struct LaterTable<P: Platform> {
    /// Takes an item off the timer it is on.
    pub(crate) cancel: unsafe fn(this: *const Later<P>, guard: &ItemGuard<'_, P>),
    /// The timer found the item locked: returns what the timer was about to do, for the time after the unlock.
    pub(crate) take_over:
        unsafe fn(this: *const Later<P>, guard: &ItemGuard<'_, P>) -> Option<Launch<P>>,
    /// Gives back the item's reference to the record.
    pub(crate) abandon: unsafe fn(this: *const Later<P>),
}

impl<P: Platform> Later<P> {
    pub(crate) fn new(node: TimerNode<P>, table: &'static LaterTable<P>) -> Self {
        Later { node, table }
    }

    /// See [`LaterTable::cancel`]. Under the lock of an item that is on a timer.
    pub(crate) fn cancel(guard: &ItemGuard<'_, P>) {
        let this = guard.later();
        // SAFETY: an item that is on a timer has a record, while we have the lock.
        unsafe { ((*this).table.cancel)(this, guard) };
    }

    /// See [`LaterTable::take_over`]. Under the lock of an item that is on a timer.
    pub(crate) fn take_over(guard: &ItemGuard<'_, P>) -> Option<Launch<P>> {
        let this = guard.later();
        // SAFETY: an item that is on a timer has a record, which is replaced and freed under the item's lock only: `guard` is that.
        unsafe { ((*this).table.take_over)(this, guard) }
    }

    /// Releases an item's record, if it has one. By the thread that frees the item or replaces the record.
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
    pub(crate) node: Pending<P>,
    pub(crate) cpu: usize,
}

impl<P: Platform> Launch<P> {
    /// Sends it, unless the queue is being dropped. The caller has a handle of the item, but not its lock.
    pub(crate) fn go(self) {
        // SAFETY: the caller's handle.
        let item = unsafe { ItemRef::new(self.item) };
        self.queue.submit(item, self.node, self.cpu);
    }

    /// As [`go`](Self::go), and gives back a reference to the item.
    pub(crate) fn go_with_reference(self) {
        let item = self.item;
        self.go();
        // SAFETY: the reference is given back here.
        crate::base::executing::outside_item::<P>(|| unsafe { Item::let_go(item) });
    }
}
