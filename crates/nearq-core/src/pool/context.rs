//! The state that a worker's thread keeps about itself, to which the platform's slot points; and how other code finds out whether its
//! caller is a worker.

use core::cell::Cell;
use core::time::Duration;
use std::sync::Arc;

use nearq_platform::{Instant, Platform};

use crate::base::executing::Executing;
use crate::base::wait_queue::WaitQueue;
use crate::deque::Deque;
use crate::homes::{Home, Inside};
use crate::item::account::Account;
use crate::pool::Pool;
use crate::pool::services::Services;
use crate::pool::worker::Worker;

/// How long more workers stay awake than may be, after some have come back from blocking. Long compared with most blocking: while a
/// surplus worker is awake, it goes on when another one blocks, and no CPU idles during a wake-up.
const SURPLUS_STAYS: Duration = Duration::from_millis(20);
/// The same while another pool waits for a place. It gets none before the surplus is gone.
const SURPLUS_STAYS_IN_THE_WAY: Duration = Duration::from_millis(2);

/// The limit beyond which more workers are awake than may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surplus {
    /// In the worker's pool.
    OfPool,
    /// In its concurrency limit.
    OfLimit,
}

/// The worker that the current thread is. Private to that thread.
///
/// `executing` comes first: code that needs only that part relies on it.
#[repr(C)]
pub(crate) struct Context<'a, P: Platform> {
    pub(crate) executing: Executing,
    pub(crate) services: &'a Services<P>,
    pub(crate) pool: &'a Pool<P>,
    pub(crate) worker: &'a Worker<P>,
    /// Whether it has a place of its concurrency limit.
    pub(crate) has_place: Cell<bool>,
    /// Depth of blocking sections.
    blocking: Cell<u32>,
    /// Whether it has given its place to another worker for a blocking section. A rescuer has none to give.
    lent: Cell<bool>,
    /// The time since which more workers are awake than may be, as seen at the ends of its batches.
    over_since: Cell<Option<Instant>>,
    /// Whether the pool counts it as one that runs short items.
    pub(crate) runs_short: Cell<bool>,
    /// Something must be done when the current item has returned: it has described itself, or it has forked and this is the child.
    pub(crate) clean_up: Cell<bool>,
    /// The account whose items it serves; null between batches.
    pub(crate) account: Cell<*const Account<P>>,
    /// Whether the current item is a future which it polls: a future that waits leaves its place, so it may wait for its own queue.
    polls: Cell<bool>,
    /// The home of the item that it executes; null if it has none.
    pub(crate) home: Cell<*const Inside<P>>,
    /// The bound to which the task belongs that it executes; null if there is none. To compare.
    pub(crate) bound: Cell<*const ()>,
    /// The worker's deque while the current item forks; otherwise null.
    pub(crate) deque: Cell<*const Deque<P>>,
}

impl<'a, P: Platform> Context<'a, P> {
    pub(crate) fn new(pool: &'a Pool<P>, worker: &'a Worker<P>) -> Self {
        Context {
            executing: Executing::nothing(),
            services: pool.services(),
            pool,
            worker,
            has_place: Cell::new(false),
            blocking: Cell::new(0),
            lent: Cell::new(false),
            over_since: Cell::new(None),
            runs_short: Cell::new(false),
            clean_up: Cell::new(false),
            account: Cell::new(core::ptr::null()),
            polls: Cell::new(false),
            home: Cell::new(core::ptr::null()),
            bound: Cell::new(core::ptr::null()),
            deque: Cell::new(core::ptr::null()),
        }
    }

    /// Tells the pool whether it runs short items one after the other.
    #[inline]
    pub(crate) fn set_runs_short(&self, runs_short: bool) {
        if self.runs_short.replace(runs_short) != runs_short {
            self.pool.change_short_runners(runs_short);
        }
    }

    /// Notes that it has a place of its concurrency limit, or has lost it. False if that was so before.
    pub(crate) fn set_place(&self, has: bool) -> bool {
        let changes = self.note_place(has);
        if changes {
            self.pool.change_awake(has);
        }
        changes
    }

    /// Gives its place back if, for some time, there has been one too many for the pool's `max_running` or for the concurrency limit's
    /// places. At the end of a batch.
    ///
    /// The worker does not leave at once: most often another worker is about to block, and then need not call one. And the system may have
    /// put two of them onto one CPU; the worker that leaves then is as likely as not the one that has the other CPU to itself.
    #[inline]
    pub(crate) fn leave_if_over(&self, now: Instant) -> Option<Surplus> {
        if !self.has_place.get() || !(self.pool.is_over() || self.pool.concurrency.is_over()) {
            self.over_since.set(None);
            return None;
        }
        let since = self.over_since.get().unwrap_or(now);
        self.over_since.set(Some(since));
        let in_the_way = self.pool.concurrency.has_waiting_besides(self.pool);
        let stays = if in_the_way { SURPLUS_STAYS_IN_THE_WAY } else { SURPLUS_STAYS };
        if now - since >= stays { self.leave() } else { None }
    }

    #[cold]
    fn leave(&self) -> Option<Surplus> {
        self.over_since.set(None);
        if self.pool.leave_if_over() {
            self.note_place(false);
            self.pool.concurrency.release();
            Some(Surplus::OfPool)
        } else if self.pool.concurrency.leave_if_over() {
            self.set_place(false);
            Some(Surplus::OfLimit)
        } else {
            None
        }
    }

    fn note_place(&self, has: bool) -> bool {
        let changes = self.has_place.replace(has) != has;
        if changes {
            self.worker.set_placed(has);
        }
        changes
    }

    /// Makes this the thread's context while the guard lives.
    pub(crate) fn enter(&self) -> Entered<P> {
        const { assert!(core::mem::offset_of!(Context<'_, P>, executing) == 0) };
        P::set_slot(core::ptr::from_ref(self).cast());
        Entered(core::marker::PhantomData)
    }
}

/// Clears the slot when it is dropped.
pub(crate) struct Entered<P: Platform>(core::marker::PhantomData<P>);

impl<P: Platform> Drop for Entered<P> {
    fn drop(&mut self) {
        P::set_slot(core::ptr::null());
    }
}

/// Runs `f` with the context of the current thread, if it is a worker's.
#[inline(always)]
pub(crate) fn with_current<P: Platform, R>(f: impl FnOnce(&Context<'_, P>) -> R) -> Option<R> {
    let slot = P::slot().cast::<Context<'_, P>>();
    // SAFETY: the slot of a thread of platform P is null or was set by `enter` to a context of the same P on this thread's stack; the guard
    // clears it before the context is dropped, and no other reference excludes ours.
    let context = unsafe { slot.as_ref() }?;
    Some(f(context))
}

/// Runs `f`, which may sleep for long. A worker gives its place to another one meanwhile. First it runs the ends of futures that this
/// thread has put off: `f` may wait for one of them.
pub(crate) fn blocking<P: Platform, R>(f: impl FnOnce() -> R) -> R {
    struct Back<P: Platform>(core::marker::PhantomData<P>);
    impl<P: Platform> Drop for Back<P> {
        fn drop(&mut self) {
            with_current::<P, _>(|context| {
                context.blocking.set(context.blocking.get() - 1);
                if context.blocking.get() == 0 && context.lent.replace(false) {
                    context.pool.change_away(false);
                    context.pool.concurrency.acquire_anyway();
                    context.set_place(true);
                }
            });
        }
    }
    crate::base::ending::catch_up::<P>();
    let _back = with_current::<P, _>(|context| {
        context.blocking.set(context.blocking.get() + 1);
        if context.blocking.get() == 1 {
            context.set_runs_short(false);
            if context.has_place.get() {
                context.lent.set(true);
                context.pool.change_away(true);
                context.set_place(false);
                context.pool.concurrency.release();
            }
            let relieved =
                context.worker.batch.len() != 0 && context.pool.relieve(context.worker, true);
            if !relieved && context.pool.has_waiting() {
                context.pool.call_worker();
            }
        }
        Back::<P>(core::marker::PhantomData)
    });
    f()
}

/// Blocks until `condition` holds, of which `waiters` is notified, or the deadline has passed; returns whether it holds. In a worker,
/// another worker takes this one's place meanwhile. The condition may be evaluated any number of times; its reads are `SeqCst`.
pub(crate) fn wait_until<P: Platform>(
    waiters: &WaitQueue<P>,
    deadline: Option<Instant>,
    mut condition: impl FnMut() -> bool,
) -> bool {
    condition() || blocking::<P, _>(|| waiters.sleep_until(deadline, condition))
}

/// Runs `poll`, which polls a future of the runtime's, as the current item.
pub(crate) fn polling<P: Platform, R>(poll: impl FnOnce() -> R) -> R {
    with_current::<P, _>(|context| context.polls.set(true));
    let outcome = poll();
    with_current::<P, _>(|context| context.polls.set(false));
    outcome
}

/// Whether the current item is a future of the runtime's that is being polled.
pub(crate) fn is_polling<P: Platform>() -> bool {
    with_current::<P, _>(|context| context.polls.get()).unwrap_or(false)
}

/// Whether the caller is a worker that executes an item right now.
pub(crate) fn is_in_item<P: Platform>() -> bool {
    with_current::<P, _>(|context| !context.account.get().is_null()).unwrap_or(false)
}

/// The home of the item that the caller runs in, if it is a worker of that runtime.
pub(crate) fn home_of_caller<P: Platform>(services: *const Services<P>) -> Option<Home<P>> {
    with_current::<P, _>(|context| {
        let home = context.home.get();
        if home.is_null() || !core::ptr::eq(context.services, services) {
            return None;
        }
        // SAFETY: the pointer of an `Arc`, which the worker keeps until the item has returned; this adds the reference that is taken.
        unsafe { Arc::increment_strong_count(home) };
        // SAFETY: the pointer of an `Arc`; this takes over the reference that was added just now.
        Some(Home::of(unsafe { Arc::from_raw(home) }))
    })
    .flatten()
}

/// Whether the caller is a worker of that runtime.
pub(crate) fn works_for<P: Platform>(services: *const Services<P>) -> bool {
    with_current::<P, _>(|context| core::ptr::eq(context.services, services)).unwrap_or(false)
}
