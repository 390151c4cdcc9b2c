//! Closures that borrow: [`Workqueue::scope`](crate::Workqueue::scope).
//!
//! One word counts what has been spawned and not ended, plus one for the scope itself. The thread that brings it to zero wakes the scope.
//! What a closure did is visible to the scope's end: its decrement releases, the scope's last read acquires.
//!
//! # A scope within an item of the same queue
//! The item has a place under the queue's limit and keeps it while it waits. If all places are taken by items that wait like that, none of
//! their closures could ever start. So such a scope runs its closures itself, in its item's place: each that no worker has started yet, in
//! the order in which they were spawned. It sleeps only when all that are left have been started.
//! * Each closure has a ticket, which is on the scope's list and with the queue. The side that takes the ticket's closure (one exchange)
//!   runs it; the other one finds nothing to do.
//! * A closure of the scope may spawn another one while the scope sleeps: it puts the ticket onto the list, then notifies.
//! * If the queue already holds back many items, the ticket goes onto the list only: what an item that never ends leaves behind of its
//!   scopes would grow without end.
//! * The list and the wait queue are in memory of their own, which every ticket keeps alive: it may come to a worker long after the scope
//!   has ended. The closure itself, with what it borrows, is gone by then.
//!
//! # In the child of a fork
//! If the fork came from inside the scope, the closures spawned before are the parent's: the child's scope counts, runs and waits for its
//! own only. The closure that forked does not touch the scope when it ends there: it is not counted, and the thread whose stack the scope
//! is on may not have been copied.

use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, Linux, Ordering, Platform};

use crate::base::outcome::{Panic, contain};
use crate::base::wait_queue::WaitQueue;
use crate::pool::context::{blocking, with_current};
use crate::user::workqueue::Workqueue;

/// A scope within an item of the queue adds nothing to what is held back beyond this.
const MOST_HELD_BACK: usize = 2048;

/// At most this many closures of a scope may be spawned and not have ended; with more, the process ends.
const MOST_SPAWNED: u32 = u32::MAX / 2;

/// A closure of a scope, its lifetime forgotten.
type Closure = Box<dyn FnOnce() + Send>;

/// Spawns closures that borrow; passed to the closure of [`Workqueue::scope`](crate::Workqueue::scope).
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::Workqueue;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// let queue = Workqueue::builder("words").build()?;
/// let text = String::from("near its data");
/// let length = AtomicUsize::new(0);
/// queue.scope(|scope| {
///     for word in text.split(' ') {
///         // Borrows `text` and `length`. A closure of a scope may spawn further ones.
///         scope.spawn(|| {
///             length.fetch_add(word.len(), Ordering::Relaxed);
///         });
///     }
/// });
/// assert_eq!(length.into_inner(), 11);
/// # Ok::<(), nearq::Error>(())
/// ```
// It is on the stack of the thread that waits, and other threads write it: so it has a cache line of its own.
#[repr(align(64))]
pub struct Scope<'scope, 'env: 'scope, P: Platform = Linux> {
    queue: &'scope Workqueue<P>,
    /// Closures that have not ended.
    count: P::AtomicU32,
    panic: Mutex<Option<Panic>, P>,
    /// If it is within an item of the same queue.
    within: Option<Arc<Within<P>>>,
    /// The process whose closures are counted.
    epoch: P::AtomicU64,
    /// 1 while the scope itself is counted.
    open: P::AtomicU32,
    /// Invariant in both lifetimes, as in `std::thread::Scope`.
    scope: core::marker::PhantomData<&'scope mut &'scope ()>,
    env: core::marker::PhantomData<&'env mut &'env ()>,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Scope<'_, '_, Linux>>() == 64);

/// What a scope within an item of the same queue shares with its closures.
struct Within<P: Platform> {
    /// Tickets that the scope has not seen yet, the last one first; the list has a reference to each.
    newest: P::AtomicPtr<Ticket<P>>,
    waiters: WaitQueue<P>,
}

/// A closure that a worker or the scope itself runs.
struct Ticket<P: Platform> {
    /// Null once it has been taken.
    closure: P::AtomicPtr<Closure>,
    /// The next one of the list; belongs to the thread that puts it there, and afterwards to the scope.
    next: P::AtomicPtr<Ticket<P>>,
}

impl<P: Platform> Ticket<P> {
    fn new(closure: Closure) -> Arc<Self> {
        Arc::new(Ticket {
            closure: P::AtomicPtr::new(Box::into_raw(Box::new(closure))),
            next: P::AtomicPtr::new(core::ptr::null_mut()),
        })
    }

    /// The closure, for the first caller.
    fn take(&self) -> Option<Box<Closure>> {
        // Acquire: what the closure has captured. It pairs with the list's, or the queue's, own release.
        let closure = self.closure.swap(core::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: from `new`, and the swap gives it to one caller.
        NonNull::new(closure).map(|closure| unsafe { Box::from_raw(closure.as_ptr()) })
    }
}

impl<P: Platform> Drop for Ticket<P> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<P: Platform> Within<P> {
    fn new() -> Arc<Self> {
        let newest = P::AtomicPtr::new(core::ptr::null_mut());
        Arc::new(Within { newest, waiters: WaitQueue::new() })
    }

    /// Puts a ticket onto the list, for the scope.
    fn offer(&self, ticket: Arc<Ticket<P>>) {
        let ticket = Arc::into_raw(ticket).cast_mut();
        let _ = ticket.expose_provenance();
        let mut head = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: the list's reference is ours until the exchange succeeds.
            unsafe { &*ticket }.next.store(head, Ordering::Relaxed);
            // SeqCst: for the wait queue. It also releases `next`.
            match self.newest.compare_exchange_weak(
                head,
                ticket,
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(found) => head = found,
            }
        }
        self.waiters.notify();
    }

    /// Takes the list, first offered first.
    fn take_all(&self) -> Vec<Arc<Ticket<P>>> {
        let mut tickets = Vec::new();
        // SeqCst: for the wait queue. It also acquires the tickets.
        let mut newest = self.newest.swap(core::ptr::null_mut(), Ordering::SeqCst);
        while let Some(ticket) = crate::base::shared::taken(newest) {
            // SAFETY: from `offer`; the swap gave us the list, and with it a reference to each ticket.
            let ticket = unsafe { Arc::from_raw(ticket.as_ptr().cast_const()) };
            newest = ticket.next.load(Ordering::Relaxed);
            tickets.push(ticket);
        }
        tickets.reverse();
        tickets
    }

    /// Runs what no worker has started, until `ended`.
    fn run_until(&self, ended: impl Fn() -> bool) {
        while !ended() {
            let tickets = self.take_all();
            if tickets.is_empty() {
                let news = || ended() || !self.newest.load(Ordering::SeqCst).is_null();
                blocking::<P, _>(|| self.waiters.sleep_until(None, news));
            }
            let epoch = P::fork_epoch();
            for ticket in tickets {
                if P::fork_epoch() != epoch {
                    // The parent runs it.
                    core::mem::forget(ticket);
                    continue;
                }
                let Some(closure) = ticket.take() else { continue };
                if contain(closure) {
                    // The scope already has the panic.
                    count_panicked::<P>();
                }
            }
        }
    }
}

impl<P: Platform> Drop for Within<P> {
    fn drop(&mut self) {
        drop(self.take_all());
    }
}

/// Counts a closure that panicked on the pwq that the calling worker serves.
#[cold]
fn count_panicked<P: Platform>() {
    with_current::<P, _>(|context| {
        // SAFETY: null, or the pwq that this worker serves.
        if let Some(pwq) = unsafe {
            crate::limit::pool_workqueue::PoolWorkqueue::of(context.account.get()).as_ref()
        } {
            pwq.count_panicked(context.worker.index);
        }
    });
}

/// What a closure takes with it from its scope.
struct Back<P: Platform> {
    count: *const P::AtomicU32,
    panic: *const Mutex<Option<Panic>, P>,
    within: Option<Arc<Within<P>>>,
    /// The process in which it is counted.
    epoch: u64,
}

// SAFETY: what the pointers point to is shared between threads by design, and lives until the count is zero.
unsafe impl<P: Platform> Send for Back<P> {}

impl<P: Platform> Back<P> {
    fn end(self, outcome: Result<(), Panic>) {
        if P::fork_epoch() != self.epoch {
            return;
        }
        // The first panic belongs to the scope. Another one is foreign, and its drop may panic or wait: so neither under the lock, nor
        // before others are told that the closure has ended.
        let spare = outcome.err().and_then(|panic| {
            // SAFETY: the scope lives until the count below is zero.
            let mut first = unsafe { &*self.panic }.lock();
            if first.is_some() {
                return Some(panic);
            }
            *first = Some(panic);
            None
        });
        // SAFETY: the scope lives until this step has made the count zero. Release: what the closure did. SeqCst: for the wait queue.
        // The address is used after, but not read.
        if unsafe { &*self.count }.fetch_sub(1, Ordering::SeqCst) == 1 {
            match self.within {
                Some(within) => within.waiters.notify(),
                None => {
                    P::wake(self.count, 1);
                }
            }
        }
        contain(|| drop(spare));
    }
}

impl<P: Platform> core::fmt::Debug for Scope<'_, '_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Scope").field("queue", &self.queue.name()).finish_non_exhaustive()
    }
}

impl<'scope, P: Platform> Scope<'scope, '_, P> {
    /// For a closure of this process.
    fn back(&self) -> Back<P> {
        Back {
            count: &raw const self.count,
            panic: &raw const self.panic,
            within: self.within.clone(),
            epoch: P::fork_epoch(),
        }
    }

    /// In the child of a fork, the first time: forgets the closures that are the parent's.
    fn leave_behind(&self) {
        let epoch = P::fork_epoch();
        // Relaxed: changes only in the thread that forked, before that thread has spawned anything.
        if self.epoch.load(Ordering::Relaxed) != epoch {
            self.epoch.store(epoch, Ordering::Relaxed);
            self.count.store(self.open.load(Ordering::Relaxed), Ordering::Relaxed);
            if let Some(within) = &self.within {
                // Neither run nor dropped: a closure of the parent's may be half moved.
                core::mem::forget(within.take_all());
            }
            // SAFETY: the closures of this scope that could use it are the parent's, and this thread is in none of its
            // functions.
            unsafe { self.panic.renew(None) };
        }
    }

    /// Queues a closure that may borrow what outlives the scope. It ends before the scope does.
    ///
    /// If the queue is being [drained](crate::Workqueue::drain) and the caller is not one of its own items, the closure is dropped, and the
    /// scope panics when it ends.
    pub fn spawn(&'scope self, closure: impl FnOnce() + Send + 'scope) {
        self.leave_behind();
        // Relaxed: the scope reads it after it has spawned.
        if self.count.fetch_add(1, Ordering::Relaxed) > MOST_SPAWNED {
            // The scope would end before its closures.
            std::process::abort();
        }
        let back = self.back();
        let task = move || {
            let back = back;
            let outcome = catch_unwind(AssertUnwindSafe(closure)).map_err(Panic::new);
            let panicked = outcome.is_err();
            back.end(outcome);
            if panicked {
                // The scope has the panic; what goes on from here is only for the worker, which counts it.
                resume_unwind(Box::new("a closure of a scope panicked"));
            }
        };
        let task: Box<dyn FnOnce() + Send + 'scope> = Box::new(task);
        // SAFETY: `scope` does not return before the count is zero, whatever happens. So the closure has ended, and what it borrowed has
        // been released, while the borrowed value still exists. Only the lifetime changes.
        let task: Closure = unsafe { core::mem::transmute(task) };
        let Some(within) = &self.within else {
            if let Err(refusal) = self.queue.try_spawn(task) {
                // The closure is gone, and so is what would have reported its end.
                self.back().end(Err(Panic::new(Box::new(refusal.to_string()))));
            }
            return;
        };
        let ticket = Ticket::<P>::new(task);
        if self.queue.inactive() < MOST_HELD_BACK {
            let ticket = Arc::clone(&ticket);
            drop(self.queue.spawn(move || {
                if let Some(closure) = ticket.take() {
                    closure();
                }
            }));
        }
        within.offer(ticket);
    }
}

/// See [`Workqueue::scope`](crate::Workqueue::scope).
pub(crate) fn scope<'env, P: Platform, R>(
    queue: &Workqueue<P>,
    f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env, P>) -> R,
) -> R {
    let scope = Scope {
        queue,
        count: P::AtomicU32::new(1),
        panic: Mutex::new_in(None),
        within: queue.is_served_here().then(Within::new),
        epoch: P::AtomicU64::new(P::fork_epoch()),
        open: P::AtomicU32::new(1),
        scope: core::marker::PhantomData,
        env: core::marker::PhantomData,
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    scope.leave_behind();
    // Relaxed: read by this thread only, or in the child of a fork.
    scope.open.store(0, Ordering::Relaxed);
    // Acquire: pairs with the release of each end.
    let mut left = scope.count.fetch_sub(1, Ordering::AcqRel) - 1;
    if let Some(within) = &scope.within {
        within.run_until(|| {
            // One of its closures may have forked.
            scope.leave_behind();
            scope.count.load(Ordering::SeqCst) == 0
        });
    } else if left != 0 {
        blocking::<P, _>(|| {
            while left != 0 {
                P::wait_for_work(&scope.count, left, None);
                left = scope.count.load(Ordering::Acquire);
            }
        });
    }
    let panic = scope.panic.lock().take();
    match (outcome, panic) {
        (Err(payload), panic) => {
            // Not while the thread unwinds: a drop that panics would end the process.
            contain(|| drop(panic));
            resume_unwind(payload)
        }
        (Ok(value), Some(panic)) => {
            contain(|| drop(value));
            resume_unwind(panic.into_payload())
        }
        (Ok(value), None) => value,
    }
}

#[cfg(test)]
mod tests;
