//! A pool workqueue (pwq): one workqueue on one pool. An item is counted on a pwq.
//!
//! A queue's pwqs are never freed before the queue: an issuer that read the old table a moment ago may still use one of them. A change of
//! attributes that comes back to an earlier pool finds its pwq again. If a queue has had many, those on which nothing is left are retired:
//! they accept no more items (`queue/retired`).
//!
//! # When a pwq is drained
//! What enters is counted with the credits, before any worker can run it; what is held back is counted in `held`. An item that is activated
//! has entered before it stops being held back. So: read what has ended, then `held`, then what has entered. If nothing is held back, and
//! as many have ended as entered, then everything that had come here by the time of the last read had ended by then. All are `SeqCst`.
//!
//! A thread that waits for that marks the pwq as watched, then checks it. A thread that ends an item reads the mark afterwards and
//! notifies the queue (`flush`). All are `SeqCst`: one of the two sees the other.

use core::time::Duration;
use std::sync::Arc;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use crate::base::numa_box::NumaBox;
use crate::base::pad::Padded;
use crate::base::wait_queue::Notification;
use crate::item::account::{Account, AccountRef, Owner};
use crate::item::inbox::Inbox;
use crate::item::owned::{Pending, Running};
use crate::limit::credits::Credits;
use crate::limit::node_active::NodeActive;
use crate::limit::statistics::{InFlight, PoolStatistics};
use crate::pool::Pool;
use crate::pool::worker::Counted;

/// Counters are spread over this many cache lines at most, so that workers of one pool seldom share one.
const STRIPES: usize = 8;

/// What the workers of one stripe have counted.
struct Stripe<P: Platform> {
    completed: P::AtomicU64,
    panicked: P::AtomicU64,
    helped: P::AtomicU64,
    repatriated: P::AtomicU64,
    cpu_nanos: P::AtomicU64,
    replaced: P::AtomicU64,
    hogged: P::AtomicU64,
    at_home: P::AtomicU64,
    away: P::AtomicU64,
    thieves: P::AtomicU64,
    stolen: P::AtomicU64,
}

/// The pwq is not the one that issuers use now; a thread may wait for what is left on it.
pub(crate) const PAST: u32 = 1;
/// A thread waits for the queue to be empty.
pub(crate) const DRAINING: u32 = 1 << 1;

/// The pwq accepts items.
const SERVES: u32 = 0;
/// The pwq accepts no items while the thread that retires it checks whether something is left.
const RETIRES: u32 = 1;
/// The pwq is retired.
const GONE: u32 = 2;

/// Items run on the CPU that queued them, if a worker can run there.
pub(crate) const LOCALIZE: u32 = 1;
/// Items do not count as running.
pub(crate) const INTENSIVE: u32 = 1 << 1;
/// Some of the items are timed (`observe`).
pub(crate) const OBSERVED: u32 = 1 << 2;
/// Items may have homes (`queue/homes`).
pub(crate) const HOMED: u32 = 1 << 3;

/// One workqueue on one pool.
///
/// In this order: an item's account is the pwq's address (`PoolWorkqueue::of`), and what is read for each item comes before the rest.
#[repr(C)]
pub(crate) struct PoolWorkqueue<P: Platform> {
    /// Where the pwq's items are counted, as the items know it; its owner is the queue.
    account: Account<P>,
    /// The domain of the queue in which its items are counted.
    node_active: *const NodeActive<P>,
    pub(crate) pool: Arc<Pool<P>>,
    /// How items are queued and run, if not in the usual way: [`LOCALIZE`], [`INTENSIVE`], [`OBSERVED`], [`HOMED`].
    flags: P::AtomicU32,
    /// While it is observed: one item of two to this power may be a sample (`observe`).
    sample_shift: P::AtomicU32,
    /// Which of the queue's sets of pwqs it is in; see `flush`.
    pub(crate) set: usize,
    /// When its set came into use, for the order among the pwqs of one pool.
    age: P::AtomicU64,
    /// The reasons for which a thread may wait for the pwq to be drained; 0 if there is none. Read after each item.
    watched: P::AtomicU32,
    /// Whether it accepts items: [`SERVES`], [`RETIRES`] or [`GONE`].
    retired: P::AtomicU32,
    /// Items that may be admitted without reading the domain's limit.
    pub(crate) credits: Padded<Credits<P>>,
    /// Items beyond the domain's limit.
    pub(crate) inactive: Padded<Inbox<P>>,
    /// How many of those there are, or are about to be.
    held: Padded<P::AtomicU64>,
    stripes: NumaBox<Padded<Stripe<P>>>,
    /// Items that were admitted, and cancelled before they ran.
    cancelled: P::AtomicU64,
    /// Calls of the queue's rescuer to the pool, and what it has run on account of the pwq.
    mayday: P::AtomicU64,
    rescued: P::AtomicU64,
    /// The queue's next pwq; see `Queue::pwqs`.
    pub(crate) next: P::AtomicPtr<PoolWorkqueue<P>>,
    /// The domain's next pwq; see `NodeActive::pwqs`.
    pub(crate) next_of_domain: P::AtomicPtr<PoolWorkqueue<P>>,
}

// SAFETY: `account` points to the queue that owns the pwq and outlives it, `node_active` to a part of that queue; the rest is
// `Sync` by itself.
unsafe impl<P: Platform> Sync for PoolWorkqueue<P> {}
// SAFETY: `account` and `node_active` point to the queue that owns the pwq, whichever thread uses or frees it; all else is `Send` by
// itself.
unsafe impl<P: Platform> Send for PoolWorkqueue<P> {}

impl<P: Platform> PoolWorkqueue<P> {
    pub(crate) fn new(
        queue: *const dyn Owner<P>,
        node_active: *const NodeActive<P>,
        pool: Arc<Pool<P>>,
        set: usize,
    ) -> Self {
        let stripes = pool.key.pod.len().next_power_of_two().clamp(1, STRIPES);
        let stripe = || {
            Padded(Stripe {
                completed: P::AtomicU64::new(0),
                panicked: P::AtomicU64::new(0),
                helped: P::AtomicU64::new(0),
                repatriated: P::AtomicU64::new(0),
                cpu_nanos: P::AtomicU64::new(0),
                replaced: P::AtomicU64::new(0),
                hogged: P::AtomicU64::new(0),
                at_home: P::AtomicU64::new(0),
                away: P::AtomicU64::new(0),
                thieves: P::AtomicU64::new(0),
                stolen: P::AtomicU64::new(0),
            })
        };
        let stripes = NumaBox::new::<P>(pool.near_node(), stripes, stripe);
        PoolWorkqueue {
            account: Account::new(queue),
            node_active,
            pool,
            flags: P::AtomicU32::new(0),
            sample_shift: P::AtomicU32::new(0),
            set,
            age: P::AtomicU64::new(0),
            watched: P::AtomicU32::new(0),
            retired: P::AtomicU32::new(SERVES),
            credits: Padded(Credits::new()),
            inactive: Padded(Inbox::new()),
            held: Padded(P::AtomicU64::new(0)),
            stripes,
            cancelled: P::AtomicU64::new(0),
            mayday: P::AtomicU64::new(0),
            rescued: P::AtomicU64::new(0),
            next: P::AtomicPtr::new(core::ptr::null_mut()),
            next_of_domain: P::AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// The account of the pwq's items.
    #[inline(always)]
    pub(crate) fn account(&self) -> *const Account<P> {
        // The pointer is that of the whole pwq, so that `of` recovers it.
        core::ptr::from_ref(self).cast()
    }

    /// As [`account`](Self::account), for code that has the pwq.
    #[inline(always)]
    fn lent(&self) -> AccountRef<'_, P> {
        // SAFETY: the pointer is that of the whole pwq; a thread that has the pwq keeps the owner alive.
        unsafe { AccountRef::new(self.account()) }.expect("a reference is not null")
    }

    /// The waiters to wake after something has ended here.
    pub(crate) fn notification(&self) -> Notification<P> {
        self.account.owner().notification_of(self.lent())
    }

    /// The pwq whose account that is; null if `account` is null.
    #[inline(always)]
    pub(crate) fn of(account: *const Account<P>) -> *const Self {
        const { assert!(core::mem::offset_of!(PoolWorkqueue<P>, account) == 0) };
        account.cast()
    }

    /// The address of the queue that the pwq belongs to (`queue/owner`).
    #[inline]
    pub(crate) fn owner_address(&self) -> *const () {
        self.account.owner_address()
    }

    /// The domain in which its items are counted.
    #[inline]
    pub(crate) fn node_active(&self) -> &NodeActive<P> {
        // SAFETY: a part of the queue that owns the pwq; a thread that has the pwq keeps that queue from being freed.
        unsafe { &*self.node_active }
    }

    #[inline]
    fn stripe(&self, worker: u32) -> &Stripe<P> {
        &self.stripes[worker as usize & (self.stripes.len() - 1)]
    }

    /// Counts one execution that has ended, as the last step of that execution.
    #[inline]
    pub(crate) fn count_completed(&self, worker: u32) {
        // SeqCst: Dekker's pattern with `NodeActive::close`. Release: a thread that reads the sum sees what the item did.
        self.stripe(worker).completed.fetch_add(1, Ordering::SeqCst);
    }

    #[cold]
    pub(crate) fn count_panicked(&self, worker: u32) {
        self.stripe(worker).panicked.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn count_helped(&self, worker: u32) {
        self.stripe(worker).helped.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn count_repatriated(&self, worker: u32) {
        self.stripe(worker).repatriated.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a run of an item with a home.
    pub(crate) fn count_home(&self, worker: u32, at_home: bool) {
        let stripe = self.stripe(worker);
        let counter = if at_home { &stripe.at_home } else { &stripe.away };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an execution of a thief.
    pub(crate) fn count_thief(&self, worker: u32) {
        self.stripe(worker).thieves.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a job that another worker has stolen and runs.
    pub(crate) fn count_stolen(&self, worker: u32) {
        self.stripe(worker).stolen.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn count_cpu_time(&self, worker: u32, nanos: u64) {
        self.stripe(worker).cpu_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Counts what the monitor has seen of a worker that serves the pwq.
    pub(crate) fn count_seen(&self, worker: &crate::pool::worker::Worker<P>) {
        let stripe = self.stripe(worker.index);
        for (what, counter) in
            [(Counted::Replaced, &stripe.replaced), (Counted::Hogged, &stripe.hogged)]
        {
            let count = worker.take_counted(what);
            if count != 0 {
                counter.fetch_add(u64::from(count), Ordering::Relaxed);
            }
        }
    }

    /// Counts a call of the queue's rescuer.
    pub(crate) fn count_mayday(&self) {
        self.mayday.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts what the queue's rescuer runs.
    pub(crate) fn count_rescued(&self) {
        self.rescued.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one item that was admitted and cancelled.
    pub(crate) fn count_cancelled(&self) {
        // SeqCst: Dekker's pattern with `NodeActive::close`. Release: a thread that reads the sum sees what was done before.
        self.cancelled.fetch_add(1, Ordering::SeqCst);
    }

    /// Items that were admitted and are over: executions that have ended, and what was cancelled. Never more than there were; those counted
    /// before a `SeqCst` fence or operation of the caller are included.
    pub(crate) fn completed(&self) -> u64 {
        let stripes = self.stripes.iter();
        stripes.map(|stripe| stripe.completed.load(Ordering::SeqCst)).sum::<u64>()
            + self.cancelled.load(Ordering::SeqCst)
    }

    // ---- what has entered, and whether it has ended ----------------------------------------------------------

    /// Counts an execution that has ended, and notifies the threads that wait for that. The last step of that execution.
    #[inline]
    pub(crate) fn end(&self, worker: u32) {
        self.count_completed(worker);
        let node_active = self.node_active();
        if node_active.needs_attention() {
            node_active.attend();
        }
        self.notify();
    }

    /// An item that was about to be held back is refused after all.
    pub(crate) fn let_go(&self) {
        self.held.fetch_sub(1, Ordering::SeqCst);
        self.notify();
    }

    /// Counts an item that is about to be held back.
    pub(crate) fn hold(&self) {
        self.held.fetch_add(1, Ordering::SeqCst);
    }

    /// Admits an item that was held back.
    pub(crate) fn enter_held(&self) {
        self.credits.enter();
        self.held.fetch_sub(1, Ordering::SeqCst);
    }

    /// An item that was held back has been cancelled.
    pub(crate) fn unhold(&self) {
        self.held.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether the pwq accepts no items. For a thread that is about to count one here, and again after it has.
    pub(crate) fn is_retired(&self) -> bool {
        P::model_fence();
        self.retired.load(Ordering::SeqCst) != SERVES
    }

    /// Whether it is retired for good.
    pub(crate) fn is_gone(&self) -> bool {
        self.retired.load(Ordering::SeqCst) == GONE
    }

    /// Stops the pwq from accepting items; false if something is left on it, and then it accepts them again. By the thread that has the
    /// queue's configuration, for a pwq that is not in the table in use.
    pub(crate) fn retire(&self) -> bool {
        self.retired.store(RETIRES, Ordering::SeqCst);
        P::model_fence();
        self.node_active().give_back(u64::from(self.credits.revoke()));
        let unused = self.is_drained() && self.inactive.is_empty();
        self.retired.store(if unused { GONE } else { SERVES }, Ordering::SeqCst);
        unused
    }

    /// An item that was counted here goes elsewhere after all.
    pub(crate) fn leave(&self) {
        self.credits.leave();
        self.notify();
    }

    /// Whether everything that has come here so far has ended.
    pub(crate) fn is_drained(&self) -> bool {
        let ended = self.ended();
        P::model_fence();
        self.held() == 0 && self.entered() == ended
    }

    /// What has ended, as a count to compare with what has entered.
    pub(crate) fn ended(&self) -> u32 {
        self.completed() as u32
    }

    /// How many workers run its items now: those of the pool, and the queue's rescuer.
    fn running(&self) -> u64 {
        let rescuer = self.account.owner().rescues(self.lent());
        self.pool.workers_of(self.account()) + u64::from(rescuer)
    }

    /// Whether more was admitted than has ended or is run by workers of the pool. What helpers and the rescuer run counts as waiting. What
    /// waits never counts as running, unless a worker is looking for its next item at this very moment.
    pub(crate) fn has_waiting(&self) -> bool {
        let ended = self.ended();
        let running = self.pool.workers_of(self.account());
        u64::from(self.entered().wrapping_sub(ended)) > running
    }

    /// Items held back.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::SeqCst)
    }

    /// Items admitted, all in all, in 32 bits.
    pub(crate) fn entered(&self) -> u32 {
        self.credits.entered()
    }

    /// Items on the pool, and those that run; items held back.
    pub(crate) fn in_flight(&self) -> InFlight {
        let ended = self.ended();
        let running = self.running();
        let let_in = u64::from(self.entered().wrapping_sub(ended));
        InFlight {
            running: running.min(let_in),
            waiting: let_in.saturating_sub(running),
            inactive: self.held(),
        }
    }

    /// From now on, a thread may wait for that reason.
    pub(crate) fn watch(&self, why: u32) {
        self.watched.fetch_or(why, Ordering::SeqCst);
        P::model_fence();
    }

    /// From now on, no thread waits for that reason.
    pub(crate) fn unwatch(&self, why: u32) {
        self.watched.fetch_and(!why, Ordering::SeqCst);
    }

    /// Whether a thread may wait for the pwq to be drained.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        P::model_fence();
        self.watched.load(Ordering::SeqCst) != 0
    }

    /// Something has ended here: notifies the threads that may wait for that.
    #[inline]
    pub(crate) fn notify(&self) {
        if self.is_watched() {
            self.notification().wake();
        }
    }

    /// When its set came into use.
    pub(crate) fn age(&self) -> u64 {
        self.age.load(Ordering::SeqCst)
    }

    /// Sets when its set came into use; before issuers find it. By the thread that holds the queue's configuration.
    pub(crate) fn set_age(&self, age: u64) {
        self.age.store(age, Ordering::SeqCst);
    }

    /// How items are queued and run; 0 is the usual way.
    #[inline]
    pub(crate) fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    pub(crate) fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
        if flags & LOCALIZE != 0 {
            self.pool.set_localised();
        }
    }

    /// One item of two to this power may be a sample.
    #[inline]
    pub(crate) fn sample_shift(&self) -> u32 {
        self.sample_shift.load(Ordering::Relaxed)
    }

    /// Sets [`sample_shift`](Self::sample_shift) from now on. It seldom changes, because every issuer reads it.
    pub(crate) fn set_sample_shift(&self, sample_shift: u32) {
        if self.sample_shift() != sample_shift {
            self.sample_shift.store(sample_shift, Ordering::Relaxed);
        }
    }

    /// Puts an item that is admitted onto the pool. Its target is this pwq.
    #[inline(always)]
    pub(crate) fn push(&self, item: Pending<P>) {
        self.pool.push(item);
    }

    /// As [`push`](Self::push), of an item that may have a home.
    #[inline]
    pub(crate) fn push_any(&self, item: Pending<P>) {
        match item.origin().home() {
            None => self.pool.push(item),
            Some(_) => self.pool.push_homed(item),
        }
    }

    /// Resets it so that nothing waits here. What has been completed stays counted; [`NodeActive::after_fork_in_child`] counts as much as
    /// admitted. In the child of a fork.
    ///
    /// [`NodeActive::after_fork_in_child`]: crate::limit::node_active::NodeActive::after_fork_in_child
    pub(crate) fn after_fork_in_child(&self, shut: bool) {
        self.credits.after_fork_in_child(self.ended());
        self.inactive.after_fork_in_child();
        crate::base::forked::set(&*self.held, 0);
        // A pwq that is `PAST` keeps that mark: its set is not in use.
        let past = self.watched.load(Ordering::Relaxed) & PAST;
        crate::base::forked::set(&self.watched, past | if shut { DRAINING } else { 0 });
    }

    /// The counters, for a reader.
    pub(crate) fn statistics(&self) -> PoolStatistics {
        let sum = |counter: fn(&Stripe<P>) -> &P::AtomicU64| {
            self.stripes.iter().map(|stripe| counter(stripe).load(Ordering::Relaxed)).sum::<u64>()
        };
        // What has ended is read first, then what runs: an item that ends in between counts twice for a moment, and is never missed.
        let completed = sum(|stripe| &stripe.completed);
        let running = self.running();
        PoolStatistics {
            pool: self.pool.id,
            pod: self.pool.key.pod.clone(),
            started: completed + running,
            completed,
            panicked: sum(|stripe| &stripe.panicked),
            cpu_time: Duration::from_nanos(sum(|stripe| &stripe.cpu_nanos)),
            repatriated: sum(|stripe| &stripe.repatriated),
            helped: sum(|stripe| &stripe.helped),
            concurrency_wakeups: sum(|stripe| &stripe.replaced),
            cpu_intensive: sum(|stripe| &stripe.hogged),
            mayday: self.mayday.load(Ordering::Relaxed),
            rescued: self.rescued.load(Ordering::Relaxed),
            at_home: sum(|stripe| &stripe.at_home),
            away: sum(|stripe| &stripe.away),
            thieves: sum(|stripe| &stripe.thieves),
            stolen: sum(|stripe| &stripe.stolen),
        }
    }
}

/// Ends an execution during which the item was queued on some pwq: on `served`, where the caller counts the execution afterwards, or on
/// another one.
pub(crate) fn push_deferred<P: Platform>(item: Running<P>, served: Option<&PoolWorkqueue<P>>) {
    let account = served.map_or(core::ptr::null(), PoolWorkqueue::account);
    if let (Some(node), Some(served)) = (item.finish_deferred(account), served) {
        served.push_any(node);
    }
}

#[cfg(test)]
mod tests;
