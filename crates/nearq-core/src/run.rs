//! The loop that a worker's thread runs.
//!
//! ```text
//!            +--------------------------------------------------------------+
//!            v                                                              |
//! woken: searching ── place? ──► find: own pool, own pool's batches, ──► batch: repatriate, start, call,
//!            ^         │ no            pods nearby (helping)              finish, count, item by item
//!            │         v                      │ nothing                     │ turn over, or no more here
//!            └────── rest ◄──── spin ◄────────┘◄────────────────────────────┘
//! ```
//! `rest` is the only place where a worker sleeps. On the way it settles on the idle stack, gives its place of the concurrency limit back,
//! and checks its own pool and the pods it helps once more (see `idle` and `concurrency_limit` for why nothing is lost).
//!
//! # The folder
//! Imports all folders down to `queue`, except `timer` and `observe`. `search`: where a worker looks for items. `homes`: how an item with a
//! home runs. `threads`: how a worker's thread begins and ends. `rescue`: the thread of a rescuer. It has no locks or words of its own.

mod homes;
mod rescue;
mod search;
mod threads;

use core::time::Duration;
use std::sync::Arc;

use nearq_platform::{Instant, PAUSE, Platform};

use crate::homes::{Wanted, WorkerMemory};
use crate::item::account::Account;
use crate::item::batch::CAPACITY;
use crate::item::execution::Ended;
use crate::item::owned::{Pending, Running};
use crate::item::proxy::{self, Arrived};
use crate::item::stamp::Stamp;
use crate::item::{ItemVtable, Started};
use crate::limit::activation_item;
use crate::limit::pool_workqueue::{
    HOMED, INTENSIVE, LOCALIZE, OBSERVED, PoolWorkqueue, push_deferred,
};
use crate::pool::Pool;
use crate::pool::affinity::Affinity;
use crate::pool::context::{self, Context, Surplus};
use crate::pool::worker::Worker;
use crate::queue::runtime::Inner;
use crate::runtime::until_retry;

/// How long a worker keeps its place while pools of its concurrency limit wait for one. Long compared with a wake-up (some 10 us), short
/// compared with what a person notices.
const TURN: Duration = Duration::from_millis(1);
// In nanoseconds, because they are compared for each batch.

/// Items shorter than this are taken in growing batches: otherwise the lock (some 10 ns) would be noticeable.
const SHORT_ITEM: u64 = 5_000;
/// From this much waiting work on, waking another worker is worth it: a wake-up costs some 10 us, and the worker that is woken may take the
/// CPU from the issuer.
const WORTH_WAKING: u64 = 100_000;
/// Items longer than this are taken one by one: others would wait behind them.
const LONG_ITEM: u64 = 20_000;
/// How often a busy worker reads its CPU clock (a system call, some 100 ns).
const ACCOUNT_EVERY: u64 = 1_000_000;

/// Why a worker goes to sleep although there is work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum YieldReason {
    /// Other pools wait for its place.
    Turn,
    /// It was one too many, and has given its place back already.
    Surplus(Surplus),
}

/// Whether the thread is still a worker after an item, is the copy of one in the child of a fork (`fork`), or was retired to make room for
/// another pool's worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    Here,
    Forked,
    Retired,
}

pub(crate) struct Runner<'a, P: Platform> {
    context: &'a Context<'a, P>,
    inner: &'a Inner<P>,
    pool: &'a Arc<Pool<P>>,
    worker: &'a Worker<P>,
    affinity: Affinity,
    memory: WorkerMemory,
    /// Items to take at a time.
    limit: usize,
    /// How long an item took in the last batch, on average; in nanoseconds.
    each: u64,
    /// When it got its place.
    turn_began: Instant,
    /// CPU time when it was last read, and when that was.
    cpu_time: Duration,
    accounted: Instant,
    /// Items that it has run since it was woken.
    ran: u32,
    /// How often in a row it has searched for work without success before it slept, and how many more times it does not search.
    fruitless: u32,
    sleeps_at_once: u32,
    /// Until then it does not let other threads run again; see `let_others_run`.
    keeps_cpu_until: Instant,
    /// The reason to give up its place although there is work.
    yields: Option<YieldReason>,
    /// The process that it is a worker of.
    epoch: u64,
}

/// The life of a worker's thread: from searching to its end. True if it was retired.
pub(crate) fn run<P: Platform>(
    inner: &Inner<P>,
    pool: &Arc<Pool<P>>,
    worker: &Worker<P>,
    affinity: Affinity,
) -> bool {
    let context = Context::new(pool, worker);
    let _entered = context.enter();
    *worker.thread.lock() = Some(P::current_thread());
    let mut runner = Runner::new(&context, inner, pool, worker, affinity);
    let ended = runner.live();
    if ended != Ran::Forked {
        // The worker's entry may belong to another thread by now.
        worker.thread.lock().take_if(|thread| *thread == P::current_thread());
    }
    ended == Ran::Retired
}

/// Runs an item that is counted on that pwq.
#[inline(always)]
fn execute<P: Platform>(
    served: &PoolWorkqueue<P>,
    item: Running<P>,
    table: &'static ItemVtable<P>,
) -> Ended<P> {
    let address = item.as_raw().as_ptr();
    crate::queue::tracepoints::run(served, address, table, || item.execute(table))
}

impl<'a, P: Platform> Runner<'a, P> {
    /// For the caller, to which that context belongs.
    pub(crate) fn new(
        context: &'a Context<'a, P>,
        inner: &'a Inner<P>,
        pool: &'a Arc<Pool<P>>,
        worker: &'a Worker<P>,
        mut affinity: Affinity,
    ) -> Self {
        affinity.begin::<P>();
        let now = P::now();
        Runner {
            context,
            inner,
            pool,
            worker,
            affinity,
            memory: WorkerMemory::new(&inner.services.homes),
            limit: 1,
            each: u64::MAX,
            turn_began: now,
            cpu_time: P::cpu_time(P::current_thread()).unwrap_or_default(),
            accounted: now,
            ran: 0,
            fruitless: 0,
            sleeps_at_once: 0,
            keeps_cpu_until: now,
            yields: None,
            epoch: P::fork_epoch(),
        }
    }

    fn live(&mut self) -> Ran {
        loop {
            if !self.take_place() {
                if let Some(ended) = self.rest() {
                    return ended;
                }
                continue;
            }
            if self.find() {
                self.context.set_runs_short(self.has_short_runner());
                if self.pool.idle().end_search() {
                    self.call_for_rest();
                }
                self.watch_batch();
                self.pool.keep_spare();
                if self.work() == Ran::Forked {
                    return Ran::Forked;
                }
                self.pool.idle().begin_search();
                self.context.set_runs_short(false);
                if self.yields.is_none() && !self.inner.is_stopping() {
                    continue;
                }
                self.queue_up();
            } else if self.spin() {
                continue;
            }
            if let Some(ended) = self.rest() {
                return ended;
            }
        }
    }

    fn take_place(&mut self) -> bool {
        if self.context.has_place.get() {
            return true;
        }
        let taken = self.worker.take_grant() || self.pool.concurrency.acquire(self.pool);
        if taken {
            self.context.set_place(true);
            self.yields = None;
            self.turn_began = P::now();
        }
        taken
    }

    /// The worker is about to sleep: queues its pool up for a place, if it needs one for what is left.
    fn queue_up(&self) {
        let concurrency = &self.pool.concurrency;
        if self.yields.is_none() || !self.pool.has_waiting() {
            return;
        }
        match self.yields {
            // It rests, and gives its place back after this.
            Some(YieldReason::Turn) => concurrency.enqueue(self.pool),
            Some(YieldReason::Surplus(Surplus::OfLimit)) => {
                concurrency.enqueue(self.pool);
                // A place may have been given back in between, when no pool waited yet.
                concurrency.hand_out();
            }
            // As many workers are awake here as may be; the next one that rests checks the inbox.
            Some(YieldReason::Surplus(Surplus::OfPool)) | None => {}
        }
    }

    /// Runs batches until the pool has no more, or the turn is over.
    fn work(&mut self) -> Ran {
        let mut begin = P::now();
        loop {
            self.worker.set_began(begin);
            let mut count = 0;
            while let Some(item) = self.worker.next() {
                if self.run_item::<false>(item) == Ran::Forked {
                    return Ran::Forked;
                }
                count += 1;
            }
            let end = P::now();
            self.ran = self.ran.saturating_add(count);
            self.adapt(end.nanos_since(begin), count);
            begin = end;
            if end.nanos_since(self.accounted) >= ACCOUNT_EVERY {
                self.account(end);
            }
            // The monitor reads the machine, because that takes a millisecond of CPU time, which a worker may get only after seconds if
            // there are many threads.
            if self.inner.is_refresh_due(end) {
                self.inner.services.alarm.arm();
            }
            // From here on the worker may wait for a lock, and no item is the cause of that.
            self.worker.set_running(core::ptr::null());
            let concurrency = &self.pool.concurrency;
            self.yields = if let Some(surplus) = self.context.leave_if_over(end) {
                Some(YieldReason::Surplus(surplus))
            } else if concurrency.has_waiting_besides(self.pool) && end - self.turn_began >= TURN {
                Some(YieldReason::Turn)
            } else {
                None
            };
            if self.yields.is_some()
                || self.inner.is_stopping()
                || self.pool.take(self.worker, self.limit) == 0
            {
                return Ran::Here;
            }
            self.context.set_runs_short(self.has_short_runner());
            self.call_for_rest();
            self.watch_batch();
        }
    }

    /// The first item of the batch may block; then the monitor ensures that the others do not wait for it.
    #[inline]
    fn watch_batch(&self) {
        if self.worker.batch.len() > 1 {
            self.inner.services.alarm.arm();
        }
    }

    /// Calls another worker for what waits beyond this worker's batch, if it is worth it.
    fn call_for_rest(&self) {
        if !self.pool.has_work() {
            return;
        }
        if !self.context.runs_short.get() {
            self.pool.call_worker();
        } else if self.each.saturating_mul(self.pool.listed().into()) >= WORTH_WAKING {
            self.pool.call_idle_worker();
        } else {
            // The next item of this worker may block.
            self.inner.services.alarm.arm();
        }
    }

    /// Takes more items at a time while they are short, and one by one while they are long.
    fn adapt(&mut self, nanos: u64, count: u32) {
        if count == 0 {
            return;
        }
        self.each = nanos / u64::from(count);
        if self.each < SHORT_ITEM {
            self.limit = (self.limit * 2).min(CAPACITY);
        } else if self.each > LONG_ITEM {
            self.limit = 1;
        }
    }

    /// Whether the items so far were short, for several batches.
    fn has_short_runner(&self) -> bool {
        self.limit == CAPACITY
    }

    /// Runs an item by itself, for a rescuer.
    pub(crate) fn run_one(&mut self, item: Pending<P>) -> Ran {
        self.worker.set_began(P::now());
        let ran = self.run_item::<true>(item);
        if ran == Ran::Here {
            let now = P::now();
            if now.nanos_since(self.accounted) >= ACCOUNT_EVERY {
                self.account(now);
            }
        }
        ran
    }

    #[inline]
    fn run_item<const RESCUES: bool>(&mut self, node: Pending<P>) -> Ran {
        // Before it starts; after that the next queuer may write it.
        let account = node.account();
        let (item, account) = match node.start() {
            Started::Yes(item) => (item, account),
            started => match self.set_aside(started) {
                Some(instead) => instead,
                None => return Ran::Here,
            },
        };
        let table = item.table();
        // SAFETY: null for the activation item; else the item is counted as admitted by the pwq's queue, which waits for it.
        let Some(served) = (unsafe { PoolWorkqueue::of(account).as_ref() }) else {
            activation_item::carry_out(self.pool, item);
            return Ran::Here;
        };
        if self.context.account.get() != account {
            self.serve(account);
        }
        if self.affinity.repatriate::<P>() {
            served.count_repatriated(self.worker.index);
        }
        if !core::ptr::eq(Arc::as_ptr(&served.pool), Arc::as_ptr(self.pool)) {
            served.count_helped(self.worker.index);
        }
        if RESCUES {
            served.count_rescued();
        }
        self.worker.set_running(table);
        self.context.executing.item.set(item.as_raw().as_ptr().cast());
        let Ended { panicked, mut deferred } = if served.flags() == 0 {
            execute(served, item, table)
        } else {
            self.run_with_flags(served, item, table)
        };
        if self.context.clean_up.take() && self.clean_up(&mut deferred) == Ran::Forked {
            return Ran::Forked;
        }
        if panicked {
            served.count_panicked(self.worker.index);
        }
        if let Some(item) = deferred {
            push_deferred(item, Some(served));
        }
        served.end(self.worker.index);
        Ran::Here
    }

    /// As [`execute`], if the item is not run in the usual way.
    #[inline(never)]
    fn run_with_flags(
        &mut self,
        served: &PoolWorkqueue<P>,
        item: Running<P>,
        table: &'static ItemVtable<P>,
    ) -> Ended<P> {
        let flags = served.flags();
        let stamp = item.stamp();
        if flags & LOCALIZE != 0 && !P::receives_wake_hints() {
            self.affinity.localize::<P>(item.origin().cpu());
        }
        let execute = |item: Running<P>| {
            if flags & INTENSIVE == 0 {
                execute(served, item, table)
            } else {
                context::blocking::<P, _>(|| execute(served, item, table))
            }
        };
        let execute = |item: Running<P>| {
            if cfg!(feature = "observe") && flags & OBSERVED != 0 && stamp != Stamp::NONE {
                let address = item.as_raw().as_ptr().cast_const();
                served.time(address, table, stamp, || execute(item))
            } else {
                execute(item)
            }
        };
        if flags & HOMED != 0 { self.run_at_home(served, item, execute) } else { execute(item) }
    }

    /// The item has described itself, or it has forked and this is the child. In the child, nothing of the pool, the entry or the pwq may
    /// be touched: all of it may belong to another thread by now.
    #[cold]
    fn clean_up(&self, deferred: &mut Option<Running<P>>) -> Ran {
        if P::fork_epoch() == self.epoch {
            self.worker.set_description("");
            return Ran::Here;
        }
        if let Some(item) = deferred.take() {
            // The item was queued in the child while it ran here. That queueing was counted in the child; the execution was not.
            push_deferred(item, None);
        }
        Ran::Forked
    }

    /// Sets the account whose items it serves; null for none. The queue that it has served so far may be freed then.
    fn serve(&mut self, account: *const Account<P>) {
        if self.memory.is_changed() {
            // SAFETY: null, or the pwq of an item that the caller is about to run.
            let pwq = unsafe { PoolWorkqueue::of(account).as_ref() };
            // If the pwq's items may have homes, each item says what it wants.
            if pwq.is_some_and(|pwq| pwq.flags() & HOMED == 0) {
                self.memory.want::<P>(Wanted::Own, &self.inner.services.homes);
            }
        }
        self.context.account.set(account);
        self.worker.set_account(account);
        self.inner.services.departures.notify();
    }

    /// What to do with a node whose item did not start. Returns an item that started instead, and where it is counted.
    #[cold]
    fn set_aside(&mut self, started: Started<P>) -> Option<(Running<P>, *const Account<P>)> {
        match started {
            Started::Yes(_) | Started::Left | Started::Cancelled => {}
            Started::Free(item) => item.free(),
            Started::Proxy(node) => match proxy::arrive(node) {
                Arrived::Started(target, account) => return Some((target, account)),
                Arrived::Gone => {}
                Arrived::Again(node) => {
                    self.pool.push(node);
                    // Its lock's holder may be waiting for this very CPU.
                    P::yield_now();
                }
            },
        }
        None
    }

    /// Counts the CPU time since the last check for the pwq that is served now, as the kernel's tick does.
    fn account(&mut self, now: Instant) {
        self.accounted = now;
        let Ok(cpu_time) = P::cpu_time(P::current_thread()) else { return };
        let used = cpu_time.saturating_sub(self.cpu_time);
        self.cpu_time = cpu_time;
        // SAFETY: null, or the pwq of `Worker::set_account`, which keeps its queue alive.
        if let Some(pwq) = unsafe { PoolWorkqueue::of(self.context.account.get()).as_ref() } {
            pwq.count_cpu_time(self.worker.index, used.as_nanos() as u64);
            pwq.count_seen(self.worker);
        }
    }

    /// Stops serving a pwq, and forgets the item; returns the time.
    pub(crate) fn let_go(&mut self) -> Instant {
        let now = P::now();
        if !self.context.account.get().is_null() {
            self.account(now);
            self.worker.set_running(core::ptr::null());
            self.serve(core::ptr::null());
        }
        // The item may be gone, and what is freed from here on is foreign code.
        self.context.executing.item.set(core::ptr::null());
        now
    }

    /// Sleeps until there is work. The caller is searching, and is searching again when this returns `None`. Otherwise it ends, in the way
    /// that is returned.
    fn rest(&mut self) -> Option<Ran> {
        let now = self.let_go();
        self.inner.reap_orphans();
        self.worker.set_sched_idle();
        self.worker.note_sleep();
        self.pool.idle().settle(self.worker);
        let had_place = self.context.set_place(false);
        if had_place {
            self.pool.concurrency.release();
        }
        if self.pool.has_work() {
            self.pool.call_worker();
        } else if had_place && self.yields.is_none() && self.pool.siblings_need_help() {
            // A worker that got no place need not call another worker, which would get none either.
            self.pool.wake_another();
        }
        self.inner.settled();
        let mut timeout = Some(self.inner.idle_timeout());
        // Whether the worker stays only because an attempt is left.
        let mut stays = false;
        loop {
            if self.inner.is_stopping() && self.worker.die() {
                return Some(self.ended());
            }
            let deadline = timeout.map(|timeout| now + self.pool.patience(timeout));
            let until = if stays { Some(P::now() + PAUSE) } else { until_retry::<P>(deadline) };
            let permit = self.worker.parker.park(until);
            if !self.worker.is_idle() {
                self.inner.hand_retries_on();
                if self.worker.leave() {
                    self.pool.bury();
                    return Some(Ran::Retired);
                }
                self.ran = 0;
                return None;
            }
            if !permit && deadline.is_some_and(|deadline| P::now() >= deadline) {
                P::retry_now();
                stays = self.inner.is_last_to_retry(self.worker);
                if stays {
                    continue;
                }
                if self.worker.die() {
                    return Some(self.ended());
                }
                // A thread is waking us at this very moment.
                timeout = None;
            }
        }
    }

    fn ended(&self) -> Ran {
        self.inner.hand_retries_on();
        self.pool.worker_ended();
        self.pool.bury();
        Ran::Here
    }
}

#[cfg(test)]
mod tests;
