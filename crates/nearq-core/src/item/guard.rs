//! The lock of an item, and what is done under it: cancelling, disabling, waiting for an execution to end.
//!
//! # Which threads wait
//! Users' threads hold the lock for a few instructions, and wait for each other. Workers never wait: a worker that finds the item locked
//! leaves a mark in the word (`item`), and the holder does what the worker came for before it unlocks:
//! * `ARRIVED`: a worker took the node off a list to run it: the holder pushes it again, right after the lock. Or an activator wanted to
//!   admit it (`INACTIVE`): the holder sends the queue's activation item. Or the timer wanted to queue it (`TIMED`): the holder does that,
//!   also right after the lock.
//! * `ENDED`: the execution has ended: the holder clears `RUNNING`, counts the end for the waiters, and pushes what was queued meanwhile
//!   (`DEFERRED`).
//!
//! The lock is given back by a compare-exchange that fails if a mark was set, so none is overlooked. While it is held, the item neither
//! starts nor ends nor is activated. A claim waits; publishing and handles go on: they change bits that the holder leaves alone, or reads
//! again in each compare-exchange.
//!
//! # Cancelling
//! `PENDING` is cleared. If the node is on a list, it becomes `STALE`; if the lock's holder has it (`ARRIVED`) or the execution would push
//! it (`DEFERRED`), it is on none. The place under the queue's limit is given back at once (`Owner::retire`), so nothing that is cancelled
//! delays others, a flush, or the queue's end. A queueing that is not accounted yet cannot be cancelled: the canceller unlocks and tries
//! again, because that queuer is only a few instructions away.
//!
//! # Waiting
//! While any thread waits (`WAITED`), `ended` counts what has ended: executions, and queueings that were cancelled. A thread that begins to
//! wait sees under the lock how many of them are on their way (one that runs, one that is queued), and waits until `ended` has grown by
//! that number. Later queueings come later in that count, including those that are cancelled while an earlier execution runs: they are
//! counted separately (`later`) until that execution has ended. So an item that requeues itself for ever keeps no thread waiting, and no
//! thread is woken too early.

use core::cell::Cell;
use std::sync::Arc;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use crate::base::wait_queue::Notification;
use crate::item::account::{AccountRef, Later, Left, Leftover, Owner};
use crate::item::item_ext::ItemExt;
use crate::item::owned::{ItemRef, Pending};
use crate::item::{
    ARRIVED, DEFERRED, DISABLED, DISABLED_ONCE, ENDED, Finished, INACTIVE, Item, LOCKED, PENDING,
    PROXIED, RUNNING, STALE, SYNCED, TIMED, WAITED, disabled_for_long, is_abandoned,
};

/// The most often that an item can be disabled for long: one less than the word has room for, which leaves one for `disable_for_now`.
const MOST_DISABLED: u64 = DISABLED - DISABLED_ONCE;

/// The lock, held.
pub(crate) struct ItemGuard<'a, P: Platform> {
    item: &'a Item<P>,
    /// Something has ended that a thread waits for.
    notify: Cell<bool>,
    /// What must not be dropped under the lock: it may be the last handle of a queue.
    kept: Cell<Option<Arc<dyn Owner<P>>>>,
    /// The waiters of the queue where an item was cancelled.
    notification: Cell<Option<Notification<P>>>,
    /// That queue, if it has no handle any more.
    leftover: Cell<Option<Leftover<P>>>,
}

impl<P: Platform> Item<P> {
    /// Takes the lock. Workers do not call it on their own account.
    pub(crate) fn lock(&self) -> ItemGuard<'_, P> {
        let mut attempt = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            crate::base::pause::for_holder::<P>(&mut attempt);
        }
    }

    /// Takes the lock if it is free, and the item is not abandoned.
    pub(crate) fn try_lock(&self) -> Option<ItemGuard<'_, P>> {
        let word = self.current();
        let free = word & LOCKED == 0 && !is_abandoned(word);
        (free && self.change(word, word | LOCKED)).then(|| self.guard())
    }

    /// Takes the lock; nothing if the item is abandoned. For a caller that has only a hold on the memory.
    pub(crate) fn lock_unless_abandoned(&self) -> Option<ItemGuard<'_, P>> {
        let mut attempt = 0;
        loop {
            if is_abandoned(self.current()) {
                return None;
            }
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
            crate::base::pause::for_holder::<P>(&mut attempt);
        }
    }

    /// The lock, which the caller has set.
    pub(crate) fn guard(&self) -> ItemGuard<'_, P> {
        ItemGuard {
            item: self,
            notify: Cell::new(false),
            kept: Cell::new(None),
            notification: Cell::new(None),
            leftover: Cell::new(None),
        }
    }

    /// Takes back the item's queueing, if it has not started; true if there was one.
    pub(crate) fn cancel(&self) -> bool {
        let mut attempt = 0;
        loop {
            if self.current() & PENDING == 0 {
                return false;
            }
            let guard = self.lock();
            let cancelled = guard.cancel();
            guard.unlock();
            if let Some(cancelled) = cancelled {
                return cancelled;
            }
            crate::base::pause::for_holder::<P>(&mut attempt);
        }
    }

    /// Leaves an item that is on a timer to the lock's holder, or finds that it is on none; then true. False if it is not locked any more.
    pub(crate) fn leave_to_holder(&self) -> bool {
        let word = self.current();
        word & TIMED == 0 || (word & LOCKED != 0 && self.change(word, word | ARRIVED))
    }

    /// Refuses every queueing from now on; adds one to how often the item is disabled.
    pub(crate) fn disable(&self) {
        loop {
            let word = self.current();
            let depth = disabled_for_long(word);
            assert!(depth < MOST_DISABLED, "a work item is disabled more than 4094 times");
            if self.change(word, word + DISABLED_ONCE) {
                return;
            }
        }
    }

    /// Undoes one `disable`; true if it was the last.
    pub(crate) fn enable(&self) -> bool {
        loop {
            let word = self.current();
            // Does not count the temporary one of a `cancel_sync`, which ends by itself.
            let depth = disabled_for_long(word);
            assert!(depth != 0, "a work item is enabled more often than it was disabled");
            if self.change(word, word - DISABLED_ONCE) {
                return (word - DISABLED_ONCE) & DISABLED == 0;
            }
        }
    }

    /// As [`disable`](Self::disable), until [`enable_after`](Self::enable_after): by a call that ends in the same thread, so that the child
    /// of a fork, which has lost the thread, drops it. However many such calls are under way, they count as one `disable`, which no
    /// `enable` by another caller takes back.
    pub(crate) fn disable_for_now(&self) {
        let ext = self.ext();
        let guard = self.lock();
        // Relaxed, here and below: under the lock.
        let syncs = ext.syncs.load(Ordering::Relaxed);
        ext.syncs.store(syncs + 1, Ordering::Relaxed);
        if syncs == 0 {
            // `disable` leaves room for one more. AcqRel: every step hands the item on.
            self.state.fetch_add(DISABLED_ONCE + SYNCED, Ordering::AcqRel);
        }
        guard.unlock();
    }

    /// Undoes [`disable_for_now`](Self::disable_for_now).
    pub(crate) fn enable_after(&self) {
        let guard = self.lock();
        let syncs = &self.known_ext().syncs;
        match syncs.load(Ordering::Relaxed) {
            // A fork has discarded it.
            0 => {}
            1 => {
                syncs.store(0, Ordering::Relaxed);
                self.state.fetch_sub(DISABLED_ONCE + SYNCED, Ordering::AcqRel);
            }
            more => syncs.store(more - 1, Ordering::Relaxed),
        }
        guard.unlock();
    }

    /// What few items need; made now if there is none.
    pub(crate) fn ext(&self) -> &ItemExt<P> {
        self.attachment.ext_or_new()
    }

    /// The extension of an item that has one.
    fn known_ext(&self) -> &ItemExt<P> {
        self.attachment
            .ext()
            .expect("the caller has seen a bit that only items with an extension have")
    }

    /// Begins to wait for the running execution, and for the queued one if `queued`; nothing if there is none. Ends with
    /// [`end_wait`](Self::end_wait).
    pub(crate) fn begin_wait(&self, queued: bool) -> Option<u64> {
        let ext = self.ext();
        let guard = self.lock();
        let word = self.state.load(Ordering::Acquire);
        let queued = queued && word & (PENDING | TIMED) == PENDING;
        let count = u64::from(word & RUNNING != 0) + u64::from(queued);
        let target = (count != 0).then(|| {
            ext.waiting.fetch_add(1, Ordering::Relaxed);
            self.state.fetch_or(WAITED, Ordering::Relaxed);
            // What is counted separately comes right after the running execution.
            ext.ended.load(Ordering::Relaxed) + ext.later.load(Ordering::Relaxed) + count
        });
        guard.unlock();
        target
    }

    /// Whether what [`begin_wait`](Self::begin_wait) began to wait for has ended.
    pub(crate) fn has_ended(&self, target: u64) -> bool {
        // SeqCst: `WaitQueue` requires it. Acquire: pairs with `count_ended`; what the execution did is visible.
        self.known_ext().ended.load(Ordering::SeqCst) >= target
    }

    /// Ends a wait.
    pub(crate) fn end_wait(&self) {
        let guard = self.lock();
        let ext = self.known_ext();
        if ext.waiting.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.state.fetch_and(!WAITED, Ordering::Relaxed);
            // Nothing counts or compares any more.
            ext.later.store(0, Ordering::Relaxed);
        }
        guard.unlock();
    }

    /// Gives back a claim that the queue refused. `node` is what the claim of `item` returned.
    #[cold]
    pub(crate) fn unclaim(item: ItemRef<'_, P>, node: Pending<P>) {
        let guard = item.lock();
        guard.clear(PENDING | PROXIED);
        guard.count_dropped();
        if node.as_raw() != item.as_raw() {
            // SAFETY: it is a proxy of the item, and was not sent.
            unsafe { crate::item::proxy::free(node) };
        }
        // SAFETY: the answer says so; then the caller does without its handle or hold.
        unsafe { Item::free_if_over(guard.unlock_by_worker(), item.as_raw()) };
    }
}

impl<P: Platform> ItemGuard<'_, P> {
    /// The current word.
    pub(crate) fn word(&self) -> u64 {
        self.item.state.load(Ordering::Acquire)
    }

    /// Clears bits; returns the word before.
    pub(crate) fn clear(&self, bits: u64) -> u64 {
        self.item.state.fetch_and(!bits, Ordering::AcqRel)
    }

    /// Takes the queueing back; returns whether there was one. Nothing if it is between two steps of another thread: try again.
    pub(crate) fn cancel(&self) -> Option<bool> {
        let word = self.word();
        if word & PENDING == 0 {
            return Some(false);
        }
        if word & TIMED != 0 {
            Later::cancel(self);
            return Some(true);
        }
        let (account, held_back) = if word & PROXIED != 0 {
            crate::item::proxy::cancel(self)?
        } else {
            let account = self.item.accounted();
            if account.is_null() {
                return None;
            }
            (account, self.make_stale() & INACTIVE != 0)
        };
        self.count_dropped();
        // SAFETY: the queueing was counted there, and the queue waits for it to be retired.
        let account = unsafe { AccountRef::new(account) }?;
        let homed = word & PROXIED == 0 && self.item.origin().home().is_some();
        let (notification, leftover) = account.owner().retire(account, held_back, homed);
        self.notification.set(Some(notification));
        self.leftover.set(leftover);
        Some(true)
    }

    /// Where the item is counted as held back, if it is. Nothing if it is between two steps of another thread: try again.
    #[expect(
        clippy::option_option,
        reason = "as `cancel`: the outer one is for the caller's loop alone"
    )]
    pub(crate) fn held_back_at(&self) -> Option<Option<AccountRef<'_, P>>> {
        let word = self.word();
        let node: &Item<P> = match word & (PENDING | TIMED | PROXIED) {
            PENDING => self.item,
            word if word == PENDING | PROXIED => {
                // SAFETY: the item is `PROXIED`, and we have its lock: so the node is alive.
                unsafe { &*crate::item::proxy::of(self.item.known_ext()).as_raw().as_ptr() }
            }
            _ => return Some(None),
        };
        // SAFETY: null, or the account where the node is counted; cancelling, which gives that back, needs the lock.
        let account = unsafe { AccountRef::new(node.accounted()) }?;
        // After the account, which is written when this is decided.
        let is_held_back = node.current() & INACTIVE != 0;
        Some(is_held_back.then_some(account))
    }

    /// Clears `PENDING` of an item that is queued by its own node; returns the word before.
    fn make_stale(&self) -> u64 {
        loop {
            let word = self.word();
            // The holder has a node that arrived; but one that was to be activated is still on its list.
            let arrived = word & (ARRIVED | INACTIVE) == ARRIVED;
            let stale = if arrived || word & DEFERRED != 0 { 0 } else { STALE };
            if stale == 0 {
                // On no list: the next queueing uses the node.
                self.item.forget_account();
            }
            let to = word & !(PENDING | DEFERRED | ARRIVED | INACTIVE) | stale;
            if self.item.change(word, to) {
                return word;
            }
        }
    }

    /// Drops the queue after the lock has been given back.
    pub(crate) fn keep(&self, queue: Arc<dyn Owner<P>>) {
        let before = self.kept.replace(Some(queue));
        // Another handle of the same queue: an item is on one timer, for one queue.
        debug_assert!(before.is_none_or(|before| Arc::strong_count(&before) > 1));
    }

    /// The item.
    pub(crate) fn item(&self) -> &Item<P> {
        self.item
    }

    /// The item's timer record; null if it was never on a timer.
    pub(crate) fn later(&self) -> *const Later<P> {
        self.item.ext().delay.load(Ordering::Acquire)
    }

    /// Counts an execution that has ended, for the waiters, and what was cancelled behind it.
    fn count_ended(&self) {
        let ext = self.item.known_ext();
        let count = 1 + ext.later.swap(0, Ordering::Relaxed);
        // Release: what the execution did. SeqCst: `WaitQueue` requires it.
        ext.ended.fetch_add(count, Ordering::SeqCst);
        P::model_fence();
        self.notify.set(true);
    }

    /// Counts a queueing that is over without an execution, if any thread waits: behind the running execution, if there is one.
    fn count_dropped(&self) {
        let word = self.word();
        if word & WAITED == 0 {
            return;
        }
        // Under the lock an execution neither starts nor ends, except that it may leave `ENDED`: that is counted when the lock is
        // given back.
        if word & RUNNING != 0 {
            self.item.known_ext().later.fetch_add(1, Ordering::Relaxed);
        } else {
            self.count_ended();
        }
    }

    /// Gives the lock back. For a caller that has a handle.
    pub(crate) fn unlock(self) {
        let finished = self.unlock_by_worker();
        debug_assert_eq!(finished, Finished::Done, "the caller has a handle");
    }

    /// Does what was left to the holder, and gives the lock back. For a thread that has no handle: says whether the item must be freed, or
    /// whether the caller has been given the last handle.
    pub(crate) fn unlock_by_worker(self) -> Finished {
        let item = self.item;
        // Foreign code, which is called once the item is not touched any more.
        let mut waiters = Vec::new();
        // What a worker would take at once, only to find the item locked: it is sent after the unlock. Otherwise a worker that is faster
        // than this thread would come again and again.
        let mut left: Option<Left<P>> = None;
        let mut launch = None;
        let mut finished = Finished::Done;
        loop {
            let word = self.word();
            if word & ENDED != 0 {
                if item.change(word, word & !(RUNNING | DEFERRED | ENDED)) {
                    if word & WAITED != 0 {
                        self.count_ended();
                    }
                    if word & DEFERRED != 0 {
                        left = Some(self.node_left(word));
                    }
                }
            } else if word & ARRIVED != 0 {
                if item.change(word, word & !ARRIVED) {
                    if word & TIMED != 0 {
                        launch = Later::take_over(&self).or(launch);
                    } else {
                        left = Some(self.bring_on(word));
                    }
                }
            } else if self.notify.take() {
                waiters.push(item.known_ext().waiters.take());
            } else if let Some(notification) = self.notification.take() {
                waiters.push(notification);
            } else if item.is_to_be_emptied(word & !LOCKED) {
                // Its destructor may take long, and workers come again and again while the item is locked: so it runs after the unlock.
                item.add_reference();
                finished = Finished::Last;
            } else if item.change(word, word & !LOCKED) {
                // What is left keeps the item: it is pending, or stale.
                if left.is_none() && is_abandoned(word & !LOCKED) {
                    finished = Finished::Free;
                }
                if let Some(launch) = launch {
                    launch.go_with_reference();
                }
                if let Some(left) = left {
                    left.send();
                }
                for waiter in waiters {
                    waiter.wake();
                }
                return finished;
            }
        }
    }

    /// A worker or an activator found the item locked: what must be sent for it.
    fn bring_on(&self, word: u64) -> Left<P> {
        if word & INACTIVE != 0 {
            // Held back, so accounted; cancelling, which gives that back, needs the lock.
            // SAFETY: so it is not null; and what is accounted cannot be given back without our lock, so the queue is there.
            Left::new(unsafe { AccountRef::new(self.item.account()) }.expect("accounted"), None)
        } else {
            self.node_left(word)
        }
    }

    /// The node of a queueing that is accounted and on no list.
    fn node_left(&self, word: u64) -> Left<P> {
        let node = match word & PROXIED {
            0 => self.item.whole(),
            // SAFETY: we have the lock.
            _ => unsafe { crate::item::proxy::of(self.item.known_ext()) },
        };
        // SAFETY: what is accounted, as this queueing is, cannot be given back without our lock, so the queue is there.
        let account = unsafe { AccountRef::new(node.account()) }.expect("accounted");
        // SAFETY: the node is on no list: it was left to us with its queueing.
        Left::new(account, Some(unsafe { Pending::from_raw(node.as_raw()) }))
    }
}

#[cfg(test)]
mod plain;
#[cfg(test)]
mod tests;
