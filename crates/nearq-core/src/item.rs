//! The header of everything that can be queued, and the state word that says what owns it.
//!
//! # The state word
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | 0 | `PENDING` | the item is queued, is being queued, or waits for its time. The thread that set it owns `account` and `origin` |
//! | 1 | `RUNNING` | a worker executes the item's function |
//! | 2 | `DEFERRED` | queued while running: the thread that ends the execution pushes it |
//! | 3..8 | | of items that run once: which thread or future waits for the result (`task`) |
//! | 3 | `SYNCED` | of others: `disabled` includes one for the `cancel_sync`s that are under way, however many; a fork discards it |
//! | 4 | `EMPTY` | of others: the value is gone (`holds`) |
//! | 8 | `LOCKED` | a thread changes more of the item than the word (`guard`) |
//! | 9 | `WAITED` | a thread waits for an execution to end |
//! | 10 | `STALE` | a queueing was cancelled, but its node (`next`) is still on a list: the thread that takes it off throws it away |
//! | 11 | `PROXIED` | the queueing goes by another node, because the item's own is stale (`proxy`) |
//! | 12 | `INACTIVE` | held back by its queue's limit |
//! | 13 | `TIMED` | pending, but not queued yet: on a timer |
//! | 14 | `ARRIVED` | the thread that took the node off its list, or the timer, found the item locked and left it to the lock's holder |
//! | 15 | `ENDED` | the execution ended while the item was locked: the lock's holder does the worker's remaining steps |
//! | 16..28 | disabled | how often it was disabled |
//! | 16 | `ASKED` | of closures, which run once: the handle has asked it to end early |
//! | 28..40 | epoch | the number of the process's forks when the item was last queued |
//! | 40..64 | references | handles that users hold |
//!
//! The word does not say whether an item has a home: its pwqs say whether any item has one (`queue/homes`).
//!
//! | `PENDING` | `RUNNING` | `DEFERRED` | what holds the item |
//! |---|---|---|---|
//! | 0 | 0 | 0 | idle: nothing; the last handle's drop frees it |
//! | 1 | 0 | 0 | a list, or the thread that is pushing it, or a timer |
//! | 0 | 1 | 0 | one worker |
//! | 1 | 1 | 0 | one worker, and a thread that is in the middle of `queue`, or a list of held-back items, or a timer |
//! | 1 | 1 | 1 | one worker, which will push it |
//!
//! # Steps
//! * **claim** (queuer): sets `PENDING`. If it was already set, another thread's queueing stands, and this call adds none. Refused if the
//!   item is disabled.
//! * **account** (queuer): the queue's limit admits it or holds it back; then `account` is written. Until then it is null, so a canceller
//!   that finds it set knows that there is a place to give back.
//! * **publish** (queuer): if the item is not running, the queuer pushes it. If it is, the queuer sets `DEFERRED`, and the thread that
//!   clears `RUNNING` pushes it.
//! * **start** (worker that took it off a list): sets `account` to null, then changes `PENDING` to `RUNNING` in one step.
//! * **finish** (that worker): clears `RUNNING`.
//! * **cancel** (any thread, under the lock): clears `PENDING`. The node stays where it is, `STALE`: lists have no way to take one out
//!   without stopping other threads. Worker and canceller decide by compare-exchange on the word: either `start` saw no `STALE`, and there
//!   is nothing to cancel, or it sees `STALE`.
//!
//! # The lock
//! `LOCKED` is for rare operations: cancelling, disabling, waiting for an item. Only users' threads wait for it. A worker never does,
//! because a user's thread that is preempted there would stop a worker of a higher priority. The worker leaves a mark (`ARRIVED`, `ENDED`),
//! and the holder does the worker's step before it unlocks. Every change of the word is a read-modify-write of the whole word, so no mark
//! is overlooked. Meanwhile handles may be added and dropped, and `publish` goes on; a claim waits.
//!
//! # What follows
//! * *One execution at a time, anywhere*: an item is pushed only by the owner of `PENDING`, never while `RUNNING` is
//!   set, and `RUNNING` is set only by taking it off a list. So the function may be `FnMut`.
//! * *Nothing is lost between "pending" and "running"*: claim is a read-modify-write even if it fails. It may precede `start` in the word's
//!   modification order: then what the caller wrote before it is visible to the execution (release here, acquire in `start`, and the
//!   read-modify-writes between them keep the chain). Otherwise it follows `start`, succeeds, and causes another execution.
//! * *The item may drop its last handle or requeue itself while it runs*: `PENDING`, `RUNNING` and `STALE` keep it alive as a
//!   handle does; the thread that ends the last of them frees it. What the function captured may be dropped earlier (`holds`).
//! * *After a fork*, whatever the parent's threads held of an item belongs to the parent's copy: a word of an older epoch counts as idle,
//!   and the first thread that uses it in the child makes it so (`current`). A task, which runs once, counts as the parent's for ever
//!   (`task`). The item whose function forked runs in the child as well (`fork`).
//!
//! # The folder
//! Imports `base`, `homes` and `timer`. An item knows neither queues nor pools: it has an account, which it stores and compares, and whose
//! owner is called through a trait (`account`). README.md in the folder lists the races.
//!
//! | file | what it holds |
//! |---|---|
//! | `execution` | the steps of the thread that executes or admits an item |
//! | `guard`, `proxy` | the item's lock and what is done under it; the node of an item whose own is still on a list |
//! | `holds` | what ends with an item, and when |
//! | `item_ext`, `stamp`, `origin` | what few items need, and the word for it; when a sample was queued; which CPU queued an item, and its home |
//! | `account` | what an item knows of its queue, and of the timer |
//! | `owned` | ownership of an item, as types |
//! | `inbox`, `batch`, `list` | where items wait: for a pool, for a worker, with one thread |
//! | `named` | names that users give, as tables |
//! | `wait_snapshot` | what was seen on a list while its lock was held |
//!
//! `guard`, `proxy`, `item_ext`, `account` and `owned` form a circle with the state word: the slow steps of the word end when the lock is
//! given back, which makes other steps; and a proxy is an item.

pub(crate) mod account;
pub(crate) mod batch;
pub(crate) mod execution;
pub(crate) mod guard;
pub(crate) mod holds;
pub(crate) mod inbox;
pub(crate) mod item_ext;
pub(crate) mod list;
pub(crate) mod named;
mod origin;
pub(crate) mod owned;
pub(crate) mod proxy;
pub(crate) mod stamp;
pub(crate) mod wait_snapshot;

use core::ptr::NonNull;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use crate::base::shared::{pushed, taken};
use crate::item::item_ext::Attachment;
use crate::item::stamp::Stamp;
use account::Account;
pub(crate) use origin::Origin;
use owned::{Abandoned, ItemRef, Pending, Running};

pub(crate) const PENDING: u64 = 1;
pub(crate) const RUNNING: u64 = 1 << 1;
pub(crate) const DEFERRED: u64 = 1 << 2;
pub(crate) const SYNCED: u64 = 1 << 3;
pub(crate) const EMPTY: u64 = 1 << 4;
// Of items that run once; see `task`.
pub(crate) const DONE: u64 = 1 << 3;
pub(crate) const ASLEEP: u64 = 1 << 4;
pub(crate) const POLLED: u64 = 1 << 5;
pub(crate) const CHANGING: u64 = 1 << 6;
pub(crate) const CANCELLED: u64 = 1 << 7;
pub(crate) const LOCKED: u64 = 1 << 8;
pub(crate) const WAITED: u64 = 1 << 9;
pub(crate) const STALE: u64 = 1 << 10;
pub(crate) const PROXIED: u64 = 1 << 11;
pub(crate) const INACTIVE: u64 = 1 << 12;
pub(crate) const TIMED: u64 = 1 << 13;
pub(crate) const ARRIVED: u64 = 1 << 14;
pub(crate) const ENDED: u64 = 1 << 15;
pub(crate) const DISABLED_ONCE: u64 = 1 << 16;
// Of closures; the place where others count.
pub(crate) const ASKED: u64 = DISABLED_ONCE;
pub(crate) const DISABLED: u64 = 0xfff << 16;
/// Where the epoch begins, and how wide it is: an epoch that is exactly 4096 forks old would be taken for the current one.
const EPOCH_SHIFT: u32 = 28;
const EPOCH: u64 = 0xfff << EPOCH_SHIFT;
pub(crate) const REFERENCE: u64 = 1 << 40;

/// The largest allowed number of handles. Beyond it, the process ends: a panic could be caught, and the count would wrap and free an item
/// that has handles. As many threads again may be between counting and ending.
const MOST_REFERENCES: u64 = (u64::MAX / REFERENCE) / 2;

/// An item must not be freed while any of these bits is set, even if no handle is left.
const ALIVE: u64 = PENDING | RUNNING | STALE | LOCKED;

/// What an item's function and memory are; one static table per type of item.
pub(crate) struct ItemVtable<P: Platform> {
    /// Runs the function, finishes the item, and frees it if nothing holds it any more. The caller has started the item, and must not touch
    /// it afterwards unless the answer is `deferred`.
    pub(crate) execute: unsafe fn(NonNull<Item<P>>) -> Executed,
    /// Frees the item.
    pub(crate) free: unsafe fn(NonNull<Item<P>>),
    /// For items whose value may be dropped before their memory is freed.
    pub(crate) parts: Option<Parts<P>>,
    /// Ends an item that runs once and was not queued: its handle says that it is cancelled. Not called for other items.
    pub(crate) refuse: unsafe fn(NonNull<Item<P>>),
    /// Whether nothing depends on it being run: then it waits until a worker has nothing else to do, and no worker is added for it.
    pub(crate) is_optional: unsafe fn(NonNull<Item<P>>) -> bool,
    /// The function's name, for display.
    pub(crate) name: Name,
}

/// The name of an item's function, for display.
#[derive(Clone, Copy)]
pub(crate) enum Name {
    /// That of a type.
    OfType(fn() -> &'static str),
    /// Any other.
    Given(&'static str),
}

impl Name {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Name::OfType(name) => name(),
            Name::Given(name) => name,
        }
    }
}

/// How a type of item drops its value and frees its memory separately.
pub(crate) struct Parts<P: Platform> {
    /// Drops the value in place.
    pub(crate) empty: unsafe fn(NonNull<Item<P>>),
    /// Frees the memory; the value is gone.
    pub(crate) dealloc: unsafe fn(NonNull<Item<P>>),
}

#[expect(clippy::expl_impl_clone_on_copy, reason = "a derived one would ask that of P")]
impl<P: Platform> Clone for Parts<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Parts<P> {}

/// The header with which every queueable object begins.
///
/// `account` and `origin` are written by the owner of `PENDING`.
#[repr(C)]
pub(crate) struct Item<P: Platform> {
    pub(crate) state: P::AtomicU64,
    /// The next item of the list that this one is on.
    pub(crate) next: P::AtomicPtr<Item<P>>,
    /// Where it was queued; null from the start of an execution until the next queueing is accounted.
    account: P::AtomicPtr<Account<P>>,
    table: &'static ItemVtable<P>,
    /// The CPU that queued it, and its home node, for callers that want to know. Relaxed: a hint, which the next queuer may overwrite while
    /// the worker that has started the item still reads it.
    origin: P::AtomicU32,
    /// Where the thread that waits for the result sleeps; belongs to `task`.
    pub(crate) join: P::AtomicU32,
    /// What only few items need; if there is none of that, the time when the item was queued, if it was recorded.
    pub(crate) attachment: Attachment<P>,
}

/// What an execution leaves for its worker to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Executed {
    /// The function panicked; the panic has been dealt with.
    pub(crate) panicked: bool,
    /// The item was queued meanwhile: the worker still has its `RUNNING`, and calls [`Item::finish_deferred`].
    pub(crate) deferred: bool,
}

/// What must be done after an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    /// Nothing: the item is idle, or another thread holds it.
    Done,
    /// It was queued meanwhile; `RUNNING` is still set.
    Deferred,
    /// Nothing holds it any more: free it.
    Free,
    /// Nothing can execute it any more, and its value still exists: the caller has been given a handle, and must give it back.
    Last,
}

/// The result of starting a node that was taken off a list.
pub(crate) enum Started<P: Platform> {
    /// The item has started.
    Yes(Running<P>),
    /// The item is locked; the lock's holder has the node now.
    Left,
    /// The queueing was cancelled, and the item lives on. Its account may be gone.
    Cancelled,
    /// As `Cancelled`, and nothing holds the item any more.
    Free(Abandoned<P>),
    /// The node is a proxy of another item.
    Proxy(Pending<P>),
}

/// The result of activating an item that was held back.
pub(crate) enum Activated<P: Platform> {
    /// It is not held back any more, and must be published.
    Yes(Pending<P>),
    /// The item is locked: it stays where it is, and the lock's holder sends the activation item.
    Locked(Pending<P>),
    /// The queueing was cancelled, and has given back what it counted; the item lives on.
    Cancelled,
    /// As `Cancelled`, and nothing holds the item any more.
    Free(Abandoned<P>),
}

/// [`ItemVtable::is_optional`] of items that users queue.
pub(crate) unsafe fn never_optional<P: Platform>(_: NonNull<Item<P>>) -> bool {
    false
}

/// [`ItemVtable::refuse`] of items that may be queued again and again.
pub(crate) unsafe fn never_refused<P: Platform>(_: NonNull<Item<P>>) {
    unreachable!("the queuer gives its claim back");
}

#[cold]
fn too_many_handles<P: Platform>() -> ! {
    // Not by a macro that panics if nothing can be written: the count would go on.
    P::warn(&format!(
        "a work item, or the wakers of a future, have more than {MOST_REFERENCES} handles; the process is aborted"
    ));
    std::process::abort();
}

/// Whether the item that the caller executes should end early: a spawned task that was cancelled, or an item that is disabled.
pub(crate) fn is_cancelled_here<P: Platform>() -> bool {
    crate::base::executing::item::<P>().is_some_and(|item| {
        // SAFETY: the caller is in its function, so RUNNING keeps it alive; foreign code of other kinds sees no item (`outside_item`).
        let item = unsafe { item.cast::<Item<P>>().as_ref() };
        // Relaxed: advice, which nothing else depends on.
        let word = item.state.load(Ordering::Relaxed);
        word & (DISABLED | CANCELLED) != 0 && is_of_this_process::<P>(word)
    })
}

/// Whether nothing holds an item with this word.
#[inline]
pub(crate) fn is_abandoned(word: u64) -> bool {
    word < REFERENCE && word & ALIVE == 0
}

/// The number of the process's forks so far, as the word stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(pub(crate) u64);

impl Epoch {
    /// The current epoch. A caller that needs it for each item keeps the answer until a fork.
    #[inline]
    pub(crate) fn now<P: Platform>() -> Self {
        Epoch(P::fork_epoch() << EPOCH_SHIFT & EPOCH)
    }
}

#[inline]
fn epoch<P: Platform>() -> u64 {
    Epoch::now::<P>().0
}

/// How often an item is disabled, as the word stores it; the temporary one of `cancel_sync` does not count. Items that run once are never
/// disabled.
pub(crate) fn disabled_for_long(word: u64) -> u64 {
    match word & DISABLED {
        0 => 0,
        disabled => disabled - (word & SYNCED) / SYNCED * DISABLED_ONCE,
    }
}

/// Whether a state word is of this process; if not, it describes the parent's threads.
#[inline]
pub(crate) fn is_of_this_process<P: Platform>(word: u64) -> bool {
    word & EPOCH == epoch::<P>()
}

/// Part of the 64 bytes that a queued item may cost, including what it captures and what the allocator adds.
const _: () = assert!(size_of::<Item<nearq_platform::Linux>>() == 48);

impl<P: Platform> Item<P> {
    /// An idle item with one handle.
    pub(crate) fn new(table: &'static ItemVtable<P>) -> Self {
        Self::with_state(table, REFERENCE | epoch::<P>())
    }

    /// An item that runs once, with one handle; the thread that made it queues it.
    pub(crate) fn new_pending(table: &'static ItemVtable<P>) -> Self {
        Self::with_state(table, REFERENCE | PENDING | epoch::<P>())
    }

    /// An item in any state.
    pub(crate) fn with_state(table: &'static ItemVtable<P>, state: u64) -> Self {
        Item {
            state: P::AtomicU64::new(state),
            next: P::AtomicPtr::new(core::ptr::null_mut()),
            account: P::AtomicPtr::new(core::ptr::null_mut()),
            table,
            origin: P::AtomicU32::new(0),
            join: P::AtomicU32::new(0),
            attachment: Attachment::none(),
        }
    }

    /// Makes this pointer, which comes from the whole object that the item begins, available to [`whole`](Self::whole). Called by the
    /// thread that makes an item.
    ///
    /// # Safety
    /// The item is alive.
    pub(crate) unsafe fn expose(item: NonNull<Self>) -> NonNull<Self> {
        pushed(item);
        item
    }

    /// The item by the pointer to the whole object. A reference to the header may be used for the header alone, and the function lies
    /// behind it.
    pub(crate) fn whole(&self) -> ItemRef<'_, P> {
        let whole = taken(core::ptr::from_ref(self)).expect("the address of a reference");
        // SAFETY: alive, as the reference is; and exposed by the thread that made it.
        unsafe { ItemRef::new(whole) }
    }

    // ---- the queuer's steps ------------------------------------------------------------------------------

    /// Takes `PENDING`; returns the node that the caller sends, or nothing if the item is pending or disabled. `epoch` is the current one.
    #[inline]
    pub(crate) fn claim(item: ItemRef<'_, P>, epoch: Epoch) -> Option<Pending<P>> {
        let state = &item.state;
        let word = state.load(Ordering::Relaxed);
        let plain = PENDING | LOCKED | STALE | PROXIED | DISABLED | EPOCH;
        if word & plain == epoch.0 {
            // Release: what the caller wrote is visible to the execution. Acquire: pairs with `finish`, so that the fields
            // are ours.
            let claimed =
                state.compare_exchange(word, word | PENDING, Ordering::AcqRel, Ordering::Relaxed);
            if claimed.is_ok() {
                // SAFETY: PENDING was set.
                return Some(unsafe { Pending::from_raw(item.as_raw()) });
            }
        }
        Self::claim_slow(item)
    }

    /// As [`claim`](Self::claim), if the word is not plain or another thread changed it.
    #[cold]
    fn claim_slow(item: ItemRef<'_, P>) -> Option<Pending<P>> {
        let mut attempt = 0;
        loop {
            let word = item.current();
            if word & (PENDING | DISABLED) != 0 {
                // A claim that fails is a read-modify-write as well: release, for the execution that is still to come.
                let word = item.state.fetch_or(0, Ordering::AcqRel);
                if word & (PENDING | DISABLED) != 0 {
                    return None;
                }
            } else if word & LOCKED != 0 {
                crate::base::pause::for_holder::<P>(&mut attempt);
            } else if word & STALE != 0 {
                if let Some(node) = proxy::claim(item) {
                    return Some(node);
                }
            } else if item.change(word, word | PENDING) {
                // SAFETY: PENDING was set.
                return Some(unsafe { Pending::from_raw(item.as_raw()) });
            }
        }
    }

    /// The word, after removing what an older epoch left in it.
    #[inline]
    pub(crate) fn current(&self) -> u64 {
        let word = self.state.load(Ordering::Acquire);
        if is_of_this_process::<P>(word) { word } else { self.leave_behind(word) }
    }

    /// The process has forked since: threads of the parent that held the item hold the parent's copy. Not for tasks, whose results would be
    /// lost. Under the lock, so that no thread uses the item before all of it is idle.
    #[cold]
    fn leave_behind(&self, mut word: u64) -> u64 {
        loop {
            let idle = word & !(REFERENCE - 1) | disabled_for_long(word) | epoch::<P>();
            let locked = idle | LOCKED;
            match self.state.compare_exchange(word, locked, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.forget_account();
                    self.forget_ext(word);
                    self.guard().unlock();
                    return idle;
                }
                Err(found) if is_of_this_process::<P>(found) => return found,
                Err(found) => word = found,
            }
        }
    }

    /// One compare-exchange of the word.
    #[inline]
    pub(crate) fn change(&self, from: u64, to: u64) -> bool {
        // AcqRel: every step hands the item on; see "what follows".
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Records where the item goes. The caller owns `PENDING`, and the queueing is counted at the account.
    #[inline]
    pub(crate) fn set_target(&self, account: *const Account<P>, origin: Origin) {
        self.set_origin(origin);
        // Release: pairs with the acquire in `accounted`.
        self.account.store(account.cast_mut(), Ordering::Release);
    }

    /// Where the item is counted. The caller owns `PENDING`.
    #[inline]
    pub(crate) fn account(&self) -> *const Account<P> {
        self.account.load(Ordering::Relaxed)
    }

    /// Makes the node ready for a queueing that is not accounted yet. Called by the thread that has the node, before it clears the last bit
    /// that says so.
    pub(crate) fn forget_account(&self) {
        self.account.store(core::ptr::null_mut(), Ordering::Relaxed);
    }

    /// As [`account`](Self::account), for the holder of a pending item's lock: null while it is not accounted, or is starting.
    pub(crate) fn accounted(&self) -> *const Account<P> {
        // Acquire: pairs with the release in `set_target`.
        self.account.load(Ordering::Acquire)
    }

    /// The CPU that queued it, and its home; or, if it is already queued again, those of the next queueing.
    #[inline]
    pub(crate) fn origin(&self) -> Origin {
        Origin::from_word(self.origin.load(Ordering::Relaxed))
    }

    /// As [`set_target`](Self::set_target), for a thread that starts an item from a proxy.
    #[inline]
    pub(crate) fn set_origin(&self, origin: Origin) {
        self.origin.store(origin.word(), Ordering::Relaxed);
    }

    /// The stamp that an observed queueing left there; see `observe`. The caller owns `PENDING`.
    #[inline]
    pub(crate) fn stamp(&self) -> Stamp {
        self.attachment.stamp()
    }

    /// The caller owns `PENDING`.
    pub(crate) fn set_stamp(&self, stamp: Stamp) {
        self.attachment.set_stamp(stamp);
    }

    /// The item waits for its queue's limit. The caller owns `PENDING`, and has not accounted it yet.
    pub(crate) fn set_inactive(&self) {
        self.state.fetch_or(INACTIVE, Ordering::Relaxed);
    }

    /// Undoes [`set_inactive`](Self::set_inactive). The caller still has not accounted it.
    pub(crate) fn unset_inactive(&self) {
        self.state.fetch_and(!INACTIVE, Ordering::Relaxed);
    }

    /// As [`Pending::publish`]: returns whether the caller pushes the node.
    #[inline]
    fn may_be_pushed(&self) -> bool {
        // Acquire: pairs with the release in `finish`; the next execution sees what the last one did.
        if self.state.load(Ordering::Acquire) & RUNNING == 0 {
            return true;
        }
        self.publish_running()
    }

    #[cold]
    fn publish_running(&self) -> bool {
        loop {
            let word = self.state.load(Ordering::Acquire);
            if word & RUNNING == 0 {
                return true;
            }
            // Cancelled before it was on a list: no thread will take it off one. While the item runs, nothing more is needed.
            if word & STALE != 0 {
                self.forget_account();
            }
            let to = if word & STALE != 0 { word & !STALE } else { word | DEFERRED };
            if self.change(word, to) {
                return false;
            }
        }
    }

    // ---- forks -------------------------------------------------------------------------------------------

    /// In the child of a fork, for the item whose function forked: it runs there too, in the caller. What was queued for it meanwhile is
    /// the parent's, and so are the threads that wait for it. It stays disabled, or cancelled.
    pub(crate) fn after_fork_in_child(&self) {
        let word = self.state.load(Ordering::Relaxed);
        let disabled = disabled_for_long(word);
        // The marks of waiters are the parent's.
        let ended = if word & DISABLED == 0 { word & (DONE | CANCELLED) } else { 0 };
        let kept = word & (RUNNING | !(REFERENCE - 1)) | ended | disabled | epoch::<P>();
        self.forget_account();
        self.forget_ext(word);
        self.state.store(kept, Ordering::Relaxed);
    }

    /// In the child of a fork, for an item of the runtime itself: makes it idle, with one handle.
    pub(crate) fn reset_after_fork_in_child(&self) {
        crate::base::forked::set(&self.state, REFERENCE | epoch::<P>());
        crate::base::forked::set(&self.account, core::ptr::null_mut());
    }

    /// Makes `item_ext` forget the parent's threads. Called by the thread that has the item to itself; `word` is what the parent left.
    fn forget_ext(&self, word: u64) {
        if let Some(ext) = self.attachment.ext() {
            ext.after_fork_in_child(word & LOCKED != 0);
        }
    }

    // ---- handles -----------------------------------------------------------------------------------------

    /// Adds a handle. The caller has one.
    pub(crate) fn add_reference(&self) {
        let before = self.state.fetch_add(REFERENCE, Ordering::Relaxed);
        if before / REFERENCE >= MOST_REFERENCES {
            too_many_handles::<P>();
        }
    }

    /// Removes a handle; true if the caller must free the item.
    #[inline]
    pub(crate) fn drop_reference(&self) -> bool {
        // Release: what was done through this handle comes before the free. Acquire: for the thread that frees.
        let before = self.state.fetch_sub(REFERENCE, Ordering::AcqRel);
        is_abandoned(before - REFERENCE)
    }

    /// Whether a queueing stands that the caller can join. What the caller wrote is visible to that execution, as if a claim had failed.
    pub(crate) fn joins_pending(&self) -> bool {
        // Release, for the execution that is still to come: so the word is written, as in `claim_slow`.
        self.current() & PENDING != 0 && self.state.fetch_or(0, Ordering::AcqRel) & PENDING != 0
    }

    // ---- reading -----------------------------------------------------------------------------------------

    /// Whether it is queued, or on a timer. May be out of date at once.
    pub(crate) fn is_pending(&self) -> bool {
        self.current() & PENDING != 0
    }

    /// Whether it is being executed. May be out of date at once.
    pub(crate) fn is_running(&self) -> bool {
        self.current() & RUNNING != 0
    }

    /// Whether its node is that of a cancelled queueing. Called by the thread that has the node: while that thread has it, a stale node
    /// stays stale.
    pub(crate) fn is_stale(&self) -> bool {
        self.state.load(Ordering::Acquire) & STALE != 0
    }

    /// Whether it refuses to be queued. May be out of date at once.
    pub(crate) fn is_disabled(&self) -> bool {
        self.state.load(Ordering::Acquire) & DISABLED != 0
    }

    /// The item's table.
    #[inline]
    pub(crate) fn table(&self) -> &'static ItemVtable<P> {
        self.table
    }
}

impl<P: Platform> Pending<P> {
    /// Returns the node if the caller must push it. None: the thread that ends the execution will push it, or the queueing was cancelled
    /// meanwhile.
    #[inline]
    pub(crate) fn publish(self) -> Option<Self> {
        self.may_be_pushed().then_some(self)
    }
}

impl<P: Platform> Drop for Item<P> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: an item is dropped once.
        unsafe { self.attachment.free() };
    }
}

#[cfg(test)]
pub(crate) mod tests;
