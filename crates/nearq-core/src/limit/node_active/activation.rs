//! Admitting what was held back, by one worker at a time. The protocol is described in `node_active`.
//!
//! If other workers complete items as fast as one worker admits them, that worker would never return to its own items. So it admits
//! [`AT_ONCE`] at most, and then hands the task on: it gives the task up, and sends the activation item.

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use super::{
    AGAIN, ATTENDED, CLOSED, MANY_STALE, NodeActive, OPENING, UNATTENDED, ceiling, with_ceiling,
};
use crate::base::wait_queue::Notification;
use crate::item::Activated;
use crate::item::list::List;
use crate::item::owned::Pending;
use crate::limit::inactive_queue::InactiveQueue;
use crate::limit::pool_workqueue::PoolWorkqueue;

/// Items that one worker admits, or throws away, before another worker takes over: some 10 µs. Small in unit tests, so that models
/// reach it.
pub(super) const AT_ONCE: u32 = if cfg!(test) { 2 } else { 64 };

/// This many cancelled items may be on the lists while no worker checks them, even if there are fewer others: some 100 KiB, as on a pool's
/// lists.
pub(super) const MANY_LEFT: u64 = 1024;

impl<P: Platform> NodeActive<P> {
    /// Activates what the limit allows, opens the ceiling if nothing is left, and wakes the threads that wait for the queue to be empty.
    /// Workers only.
    #[cold]
    pub(crate) fn attend(&self) {
        loop {
            P::model_fence();
            match self.attention.load(Ordering::SeqCst) {
                AGAIN => return,
                UNATTENDED if self.change_attention(UNATTENDED, ATTENDED) => break,
                ATTENDED if self.change_attention(ATTENDED, AGAIN) => return,
                _ => {}
            }
        }
        let mut left = AT_ONCE;
        let mut notifications = Vec::new();
        loop {
            self.activate_once(&mut left, &mut notifications);
            if left == 0 {
                // The activation item comes after all requests that were made meanwhile.
                self.attention.swap(UNATTENDED, Ordering::SeqCst);
                P::model_fence();
                self.kick();
                break;
            }
            if self.change_attention(ATTENDED, UNATTENDED) {
                break;
            }
            self.attention.swap(ATTENDED, Ordering::SeqCst);
            P::model_fence();
        }
        // Wakers are foreign code, so they are not called while this is the only worker that may admit anything.
        for notification in notifications {
            notification.wake();
        }
    }

    fn change_attention(&self, from: u32, to: u32) -> bool {
        self.attention.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// What [`attend`](Self::attend) does, once, for that many items at most. Adds the waiters to wake afterwards.
    fn activate_once(&self, left: &mut u32, notifications: &mut Vec<Notification<P>>) {
        let mut inactive_queue = self.inactive_queue.lock();
        loop {
            self.activate(&mut inactive_queue, left);
            if !self.may_open() {
                break;
            }
            // The mark comes before the check. Only the holder of `inactive_queue` sets it.
            let word = self.ceiling.load(Ordering::SeqCst);
            let word = match ceiling(word) {
                CLOSED => self.ceiling.fetch_or(OPENING, Ordering::SeqCst) | OPENING,
                _ => word,
            };
            P::model_fence();
            if !self.may_open() {
                continue;
            }
            let possible = self.allowed();
            if ceiling(word) == CLOSED {
                // It fails if the limit was changed meanwhile, and then the activation item opens the ceiling; or if an item was held back,
                // which is seen below.
                let open = with_ceiling(word, possible);
                let _ =
                    self.ceiling.compare_exchange(word, open, Ordering::SeqCst, Ordering::SeqCst);
            }
            P::model_fence();
            if self.may_open() {
                break;
            }
            self.close();
        }
        let watched = core::mem::take(&mut inactive_queue.watched);
        drop(inactive_queue);
        for pwq in watched {
            // SAFETY: the pwq belongs to the queue, which the caller keeps alive.
            let pwq = unsafe { &*pwq };
            notifications.push(pwq.notification());
        }
        if self.freezers.load(Ordering::SeqCst) != 0 && self.is_still() {
            self.wake_freezers();
        }
    }

    pub(super) fn wake_freezers(&self) {
        self.stilled.fetch_add(1, Ordering::SeqCst);
        P::wake(&raw const self.stilled, usize::MAX);
    }

    /// Whether nothing needs the ceiling closed: nothing is held back, no thread drains the queue, and something may be admitted.
    fn may_open(&self) -> bool {
        self.drainers.load(Ordering::SeqCst) == 0
            && self.inactive.load(Ordering::SeqCst) == 0
            && self.limit() != 0
    }

    fn activate(&self, inactive_queue: &mut InactiveQueue<P>, left: &mut u32) {
        if self.inactive.load(Ordering::SeqCst) == 0
            && self.stale.load(Ordering::Relaxed) < MANY_STALE
        {
            return;
        }
        inactive_queue.collect(self);
        self.tidy(inactive_queue);
        while !inactive_queue.is_empty() && *left > 0 {
            let limit = self.limit();
            let admitted = self.admitted.load(Ordering::SeqCst);
            if admitted >= self.completed() + limit {
                return;
            }
            if self
                .admitted
                .compare_exchange(admitted, admitted + 1, Ordering::SeqCst, Ordering::SeqCst)
                .is_err()
            {
                continue;
            }
            if self.is_below(limit) {
                self.admitted.fetch_sub(1, Ordering::SeqCst);
                continue;
            }
            if !self.activate_next(inactive_queue, left) {
                // Nothing was activated with the place that was taken. An issuer that has held something back meanwhile may have found no
                // place, and left it to the thread that gives one back.
                self.admitted.fetch_sub(1, Ordering::SeqCst);
                P::model_fence();
                if !inactive_queue.is_empty() {
                    // Puts back the item that is locked, or the items for which nothing is left.
                    return;
                }
                inactive_queue.collect(self);
            }
        }
    }

    /// Activates the next item that was not cancelled. False if there is none; or if the next one is locked, which stays there, so that no
    /// other item gets past it (the lock's holder sends the activation item); or if nothing is `left`.
    fn activate_next(&self, inactive_queue: &mut InactiveQueue<P>, left: &mut u32) -> bool {
        while *left > 0 {
            let Some((place, item)) = inactive_queue.pop() else { break };
            *left -= 1;
            if item.is_stale() {
                self.throw(item);
                continue;
            }
            // Before it is activated, because it may be cancelled after that. It need not be the pwq on which it was held back.
            let pwq = PoolWorkqueue::of(item.account());
            match item.activate() {
                Activated::Yes(item) => {
                    // SAFETY: the pwq belongs to the queue, which the caller keeps alive.
                    let pwq = unsafe { &*pwq };
                    pwq.enter_held();
                    self.inactive.fetch_sub(1, Ordering::SeqCst);
                    if pwq.is_watched() {
                        // It may have been cancelled before it had entered: then no thread has been woken yet.
                        inactive_queue.watched.push(pwq);
                    }
                    if let Some(item) = item.publish() {
                        pwq.push_any(item);
                    }
                    return true;
                }
                Activated::Locked(item) => {
                    inactive_queue.put_back(place, item);
                    return false;
                }
                // It was cancelled at this very moment.
                Activated::Cancelled => drop(self.stale.fetch_sub(1, Ordering::Relaxed)),
                Activated::Free(item) => {
                    self.stale.fetch_sub(1, Ordering::Relaxed);
                    item.free();
                }
            }
        }
        false
    }

    /// A cancelled item was on a list of held-back items. It stays there until a thread removes it. Returns true once for every
    /// [`MANY_LEFT`] cancelled items: then the monitor must check if no worker does.
    pub(crate) fn forget_inactive(&self) -> bool {
        // Relaxed: a count of what could be thrown away. It is below zero for a moment if an item is thrown away before it is counted.
        let stale = self.stale.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.inactive.fetch_sub(1, Ordering::SeqCst);
        stale % MANY_LEFT == 0
    }

    /// Whether more cancelled items than `many` are on the lists, and more than others.
    fn is_untidy(&self, many: u64) -> bool {
        let stale = self.stale.load(Ordering::Relaxed);
        stale >= many.max(self.inactive.load(Ordering::Relaxed))
    }

    /// As [`tidy`](Self::tidy), by the monitor, when nothing has been started for a while: then no worker checks the lists. An item that is
    /// cancelled and queued again leaves a node each time.
    pub(crate) fn tidy_up(&self) {
        let mut before = u64::MAX;
        loop {
            let stale = self.stale.load(Ordering::Relaxed);
            // More items are cancelled meanwhile. As long as these are far fewer, all walks together take little longer than the first one.
            if stale > before / 2 || !self.is_untidy(MANY_LEFT) {
                return;
            }
            self.clear_out();
            before = stale;
        }
    }

    /// Throws away all cancelled items that are on the lists.
    ///
    /// A worker that needs `inactive_queue` meanwhile waits for it, and then finds all items that were there. So the caller holds
    /// `inactive_queue` for one walk only, and throws items away afterwards.
    pub(super) fn clear_out(&self) {
        // A worker that holds it throws away the cancelled items it finds.
        let Some(mut inactive_queue) = self.inactive_queue.try_lock() else { return };
        inactive_queue.collect(self);
        let stale = inactive_queue.take_stale();
        drop(inactive_queue);
        self.throw_all(stale);
    }

    /// Throws away cancelled items, once there are more of them than of others.
    fn tidy(&self, inactive_queue: &mut InactiveQueue<P>) {
        if !self.is_untidy(MANY_STALE) {
            return;
        }
        let stale = inactive_queue.take_stale();
        self.throw_all(stale);
    }

    fn throw_all(&self, mut stale: List<P>) {
        while let Some(item) = stale.pop_front() {
            self.throw(item);
        }
    }

    /// A cancelled item has come off its list.
    fn throw(&self, item: Pending<P>) {
        self.stale.fetch_sub(1, Ordering::Relaxed);
        match item.activate() {
            Activated::Free(item) => item.free(),
            Activated::Cancelled => {}
            Activated::Yes(_) | Activated::Locked(_) => {
                unreachable!("a cancelled node is not made fresh again")
            }
        }
    }

    /// Throws away what is left of cancelled items, when no thread touches the queue any more.
    pub(crate) fn throw_away(&self) {
        let mut inactive_queue = self.inactive_queue.lock();
        inactive_queue.collect(self);
        while let Some((_, item)) = inactive_queue.pop() {
            self.throw(item);
        }
    }
}
