//! The node of an item whose own node is still on a list because of a queueing that was cancelled.
//!
//! Lists have no way to take an item out of their middle (`item`), so a cancelled node stays there until a worker takes it off. If the item
//! is queued again before that, it must go to the end of the list, or onto another one. So it is queued by a node that is allocated for
//! this one queueing: an item without a function, whose target is the real one.
//!
//! # Protocol
//! * *claim* (queuer, under the target's lock, if the target is `STALE` and not `PENDING`): makes the node, and sets `PENDING` and
//!   `PROXIED`. The node has a hold on the target's memory (`item/holds`). It is accounted, held back, activated and pushed like any item.
//! * *arrive* (worker that took it off a list): under the target's lock, which it only tries to take: if that is locked, the node goes back
//!   onto the pool. If the target runs, the node stays with it (`DEFERRED`), and the thread that ends the execution pushes it. Otherwise
//!   the target starts, and the node is freed.
//! * *cancel* (under the target's lock): the node becomes `STALE` itself, and the thread that takes it off its list frees it. If it is on
//!   none (`DEFERRED`), the canceller frees it.
//!
//! A node's own word has `PENDING | PROXIED`, or `STALE | PROXIED` once it is cancelled, and `INACTIVE` like any item's; it is never
//! `LOCKED` or `RUNNING`. `PROXIED` in the target's word means that `ItemExt::proxy` is alive and belongs to the current queueing. Both
//! change only under the target's lock.

use core::ptr::NonNull;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use crate::item::Name;
use crate::item::account::Account;
use crate::item::guard::ItemGuard;
use crate::item::item_ext::ItemExt;
use crate::item::owned::{ItemRef, Pending, Running};
use crate::item::{
    ARRIVED, DEFERRED, DISABLED, Epoch, Executed, INACTIVE, Item, ItemVtable, LOCKED, PENDING,
    PROXIED, RUNNING, STALE, TIMED, is_abandoned,
};

#[repr(C)]
struct Proxy<P: Platform> {
    item: Item<P>,
    target: NonNull<Item<P>>,
}

impl<P: Platform> Proxy<P> {
    const TABLE: ItemVtable<P> = ItemVtable {
        is_optional: crate::item::never_optional,
        execute: Self::execute,
        free: Self::free,
        parts: None,
        refuse: crate::item::never_refused,
        name: Name::Given("proxy"),
    };

    unsafe fn execute(_: NonNull<Item<P>>) -> Executed {
        unreachable!("it is the target that starts")
    }

    unsafe fn free(node: NonNull<Item<P>>) {
        // SAFETY: only `make` uses this table, so `make` made the node; a table's `free` is called when nothing holds the item any more.
        unsafe { release(node) };
    }
}

/// The table of the item that a node on a list is for: its own, or that of the item of which it is the proxy.
///
/// # Safety
/// The node is on a list and stays there during the call, and was not stale after it was put there.
pub(crate) unsafe fn table_of<P: Platform>(node: &Item<P>) -> &'static ItemVtable<P> {
    let word = node.state.load(Ordering::Acquire);
    if word & (PENDING | PROXIED | STALE) != PENDING | PROXIED {
        return node.table();
    }
    // An item with a proxy under way is not on a list itself, or its own node is stale there.
    let proxy = node.whole().as_raw().cast::<Proxy<P>>();
    // SAFETY: an item on a list with PENDING and PROXIED, and not STALE, is a proxy, which the list keeps; it has a hold of its target.
    unsafe { proxy.as_ref().target.as_ref().table() }
}

/// The item of which a node is the proxy. The node keeps it alive.
///
/// # Safety
/// The node was made by [`claim`] or [`take_off_timer`], and the caller has it.
pub(crate) unsafe fn target_of<P: Platform>(node: &Item<P>) -> ItemRef<'_, P> {
    // SAFETY: as the caller says; the node keeps the target alive.
    unsafe { ItemRef::new(node.whole().as_raw().cast::<Proxy<P>>().as_ref().target) }
}

/// Frees a node that nothing holds any more, and gives back its hold on the target.
///
/// # Safety
/// The node was made by [`claim`], and nothing holds it any more.
unsafe fn release<P: Platform>(node: NonNull<Item<P>>) {
    // SAFETY: `make` allocated it as a box of this type, and nothing holds it any more, as the caller says.
    let target = unsafe { Box::from_raw(node.cast::<Proxy<P>>().as_ptr()) }.target;
    // SAFETY: the node had a hold.
    unsafe { Item::release(target) };
}

/// Frees a node that is on no list. The caller has a handle of the target, or its lock.
///
/// # Safety
/// The node was made by [`make`], and nothing else holds it.
pub(crate) unsafe fn free<P: Platform>(node: Pending<P>) {
    // SAFETY: as the caller says.
    let target = unsafe { Box::from_raw(node.into_raw().cast::<Proxy<P>>().as_ptr()) }.target;
    // SAFETY: the caller keeps it alive.
    unsafe { target.as_ref() }.unhold();
}

/// Claims an item whose node is stale; returns the node to send. `None` if the node is not stale any more, or the item is claimed.
pub(crate) fn claim<P: Platform>(target: ItemRef<'_, P>) -> Option<Pending<P>> {
    let ext = target.ext();
    let made = make(target);
    let guard = target.lock();
    let node = loop {
        let word = guard.word();
        if word & STALE == 0 || word & (PENDING | DISABLED) != 0 {
            // SAFETY: made above, and on no list.
            unsafe { free(made) };
            break None;
        }
        ext.proxy.store(made.as_raw().as_ptr(), Ordering::Relaxed);
        if target.change(word, word | PENDING | PROXIED) {
            break Some(made);
        }
    };
    guard.unlock();
    node
}

/// Takes `TIMED` from a pending item, under its lock; returns the node by which it goes on.
pub(crate) fn take_off_timer<P: Platform>(guard: &ItemGuard<'_, P>) -> Pending<P> {
    let target = guard.item();
    loop {
        let word = guard.word();
        debug_assert_eq!(word & (PENDING | TIMED | PROXIED), PENDING | TIMED);
        if word & STALE == 0 {
            if target.change(word, word & !(TIMED | ARRIVED)) {
                // SAFETY: PENDING was the timer's, which has given it up.
                return unsafe { Pending::from_raw(target.whole().as_raw()) };
            }
        } else {
            let node = make(target.whole());
            target.ext().proxy.store(node.as_raw().as_ptr(), Ordering::Relaxed);
            if target.change(word, word & !(TIMED | ARRIVED) | PROXIED) {
                return node;
            }
            // SAFETY: made above, and on no list.
            unsafe { free(node) };
        }
    }
}

/// A node with a hold on its target.
fn make<P: Platform>(target: ItemRef<'_, P>) -> Pending<P> {
    target.hold();
    let made = Box::new(Proxy {
        item: Item::with_state(&Proxy::<P>::TABLE, PENDING | PROXIED | Epoch::now::<P>().0),
        target: target.as_raw(),
    });
    // SAFETY: made with PENDING, and nothing else holds it.
    unsafe { Pending::from_raw(Item::expose(NonNull::from(Box::leak(made)).cast())) }
}

/// The current node of an item that is `PROXIED`.
///
/// # Safety
/// The caller has the item's lock while the answer is used.
pub(crate) unsafe fn of<P: Platform>(ext: &ItemExt<P>) -> ItemRef<'_, P> {
    let node = NonNull::new(ext.proxy.load(Ordering::Relaxed));
    // SAFETY: an item that is `PROXIED` has a proxy, which is alive while the item is locked.
    unsafe { ItemRef::new(node.expect("an item that is away has a node")) }
}

/// The result of taking a node off a list.
pub(crate) enum Arrived<P: Platform> {
    /// The target has started; it was counted at that account.
    Started(Running<P>, *const Account<P>),
    /// Nothing remains to be done.
    Gone,
    /// The target is locked: the node must go back onto the pool.
    Again(Pending<P>),
}

/// A worker has taken the node off a list; `start` has found that it is a proxy.
pub(crate) fn arrive<P: Platform>(node: Pending<P>) -> Arrived<P> {
    // SAFETY: a node that is `PROXIED`, and came off a list, is a proxy.
    let item = unsafe { node.as_raw().cast::<Proxy<P>>().as_ref() }.target;
    // SAFETY: the node has a hold of it.
    let target = unsafe { item.as_ref() };
    // Cancelled, and nothing holds the target any more: no thread has its lock.
    let is_over = is_abandoned(target.state.load(Ordering::Acquire));
    if !is_over {
        let Some(guard) = target.try_lock() else { return Arrived::Again(node) };
        if node.state.load(Ordering::Acquire) & STALE == 0 {
            return start_target(guard, node);
        }
        // SAFETY: the answer says so; the node's hold keeps the memory.
        unsafe { Item::free_if_over(guard.unlock_by_worker(), item) };
    }
    // SAFETY: it is on no list, and cancelled: nothing else holds it. Its hold keeps the target until here.
    unsafe { release(node.into_raw()) };
    Arrived::Gone
}

/// Starts the target of a node that has arrived, or leaves the node to the running execution.
fn start_target<P: Platform>(guard: ItemGuard<'_, P>, node: Pending<P>) -> Arrived<P> {
    let target = guard.item();
    let (account, origin, stamp) = (node.account(), node.origin(), node.stamp());
    loop {
        let word = guard.word();
        debug_assert_eq!(word & (PENDING | PROXIED | LOCKED), PENDING | PROXIED | LOCKED);
        if word & RUNNING != 0 {
            if target.change(word, word | DEFERRED) {
                // The execution or the node keeps the target, and the execution has the node.
                guard.unlock();
                return Arrived::Gone;
            }
        } else {
            // While PENDING is ours.
            target.set_origin(origin);
            target.set_stamp(stamp);
            let to = word & !(PENDING | PROXIED | LOCKED) | RUNNING;
            // No mark can be set: our node is the only one that could arrive, and nothing runs.
            if target.change(word, to) {
                // SAFETY: RUNNING was set.
                let running = unsafe { Running::from_raw(target.whole().as_raw()) };
                // SAFETY: on no list, and the target is not `PROXIED` any more: nothing else holds the node. RUNNING keeps the target.
                unsafe { free(node) };
                return Arrived::Started(running, account);
            }
        }
    }
}

/// Takes back the queueing of an item that is `PROXIED`; returns where it is accounted, and whether it is held back there. Nothing if it is
/// not accounted yet.
pub(crate) fn cancel<P: Platform>(guard: &ItemGuard<'_, P>) -> Option<(*const Account<P>, bool)> {
    let target = guard.item();
    // SAFETY: the target is `PROXIED`, and we have its lock.
    let node = unsafe { of(target.ext()) };
    let account = node.accounted();
    if account.is_null() {
        return None;
    }
    let before = guard.clear(PENDING | PROXIED | DEFERRED);
    if before & DEFERRED != 0 {
        // SAFETY: on no list, and the execution will not push it any more. We have a handle, or the target's RUNNING is set.
        unsafe { free(Pending::from_raw(node.as_raw())) };
        return Some((account, false));
    }
    // One step for both: STALE alone keeps it, so the thread that takes it off its list frees it. AcqRel: either that thread sees the
    // cancel, or it has admitted the node before, which we see. No other thread has set STALE or cleared PENDING.
    let before = node.state.fetch_add(STALE - PENDING, Ordering::AcqRel);
    Some((account, before & INACTIVE != 0))
}
