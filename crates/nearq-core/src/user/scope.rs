//! Closures that borrow: [`Workqueue::scope`](crate::Workqueue::scope).
//!
//! One word counts what has been spawned and not ended, plus one for the scope itself. The thread that brings it to zero wakes the scope.
//! A closure contains its own panic, which the scope keeps, and counts it on the worker that runs it.
//! What a closure did is visible to the scope's end: its decrement releases, the scope's last read acquires.
//!
//! # A scope within an item of the same queue
//! The item has a place under the queue's limit and keeps it while it waits. If all places were taken by items that wait like that, none of
//! their closures could ever start. So such a scope itself runs each closure that no worker has started yet, in its item's place. It sleeps
//! only when all closures that are left have been started. Closures that a worker of the queue spawns are jobs in that worker's deque
//! (`fork_join`).
//!
//! # The list of tickets
//! Closures that another thread spawns, and all closures on queues that do not fork (per-CPU queues, and queues that run one item at a
//! time), are queued as items. A scope within an item keeps a list of them, so that it can run them itself.
//! * Each closure has a ticket, which is both on the scope's list and in an item of the queue. The side that takes the ticket's closure
//!   (one exchange) runs it; the other one finds nothing to do.
//! * A closure of the scope may spawn another one while the scope sleeps: it puts the ticket onto the list, then notifies.
//! * If the queue already holds back many items, the ticket goes onto the list only. Otherwise an item that never ends, and makes one scope
//!   after the other, would fill the queue with used tickets.
//! * A ticket may come to a worker long after the scope has ended, so it has memory of its own. Its closure, with what that borrows, is
//!   gone by then. The list and the wait queue have memory of their own too: the thread that runs the last closure notifies when the scope
//!   may be gone.
//!
//! # In the child of a fork
//! If the fork came from inside the scope, the closures spawned before are the parent's: the child's scope counts, runs and waits for its
//! own only. The closure that forked does not touch the scope when it ends there: it is not counted, and the thread whose stack the scope
//! is on may not exist in the child.

mod handle;

use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, Linux, Ordering, Platform};

use crate::base::bell::Bell;
use crate::base::once::Once;
use crate::base::outcome::{Panic, contain};
use crate::base::wait_queue::WaitQueue;
use crate::fork_join::scoped::{Base, count_panicked, offer};
use crate::pool::context::blocking;
use crate::queue::team::Closure;
use crate::user::workqueue::Workqueue;
pub use handle::ScopedJoinHandle;

/// A scope within an item of the queue adds nothing to what is held back beyond this.
const MOST_HELD_BACK: usize = 2048;

/// At most this many closures of a scope may be spawned and not have ended; with more, the process ends.
const MOST_SPAWNED: u32 = COUNT / 2;

/// The bits of a scope's word that count closures.
const COUNT: u32 = IN_CHILD - 1;
/// In a scope's word: the process has forked, and the thread that waits is no worker here. It waits for the word.
const IN_CHILD: u32 = 1 << 31;

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
    waiter: Waiter<P>,
    /// If it is within an item of the same queue: closures that are queued as items. Made when there is the first.
    tickets: Once<P, Arc<Within<P>>>,
    /// The process whose closures are counted.
    epoch: P::AtomicU64,
    /// 1 while the scope itself is counted.
    open: P::AtomicU32,
    /// Invariant in both lifetimes, as in `std::thread::Scope`.
    scope: core::marker::PhantomData<&'scope mut &'scope ()>,
    env: core::marker::PhantomData<&'env mut &'env ()>,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Scope<'_, '_, Linux>>() <= 128);

/// How the thread that waits for the scope is woken.
enum Waiter<P: Platform> {
    /// It waits for the count.
    Count,
    /// Within an item of the same queue: it is a worker, and its bell lives as long as the runtime.
    Worker(*const Bell<P>),
    /// It is a worker of another queue, and perhaps of another runtime.
    Elsewhere(Arc<Bell<P>>),
    /// Within an item of the same queue, if that queue does not fork: it waits for its tickets.
    InTurn,
}

impl<P: Platform> Clone for Waiter<P> {
    fn clone(&self) -> Self {
        match self {
            Waiter::Count => Waiter::Count,
            Waiter::Worker(bell) => Waiter::Worker(*bell),
            Waiter::Elsewhere(bell) => Waiter::Elsewhere(Arc::clone(bell)),
            Waiter::InTurn => Waiter::InTurn,
        }
    }
}

// SAFETY: the raw pointer is followed only where the bell that it leads to is known to be there, and a bell is `Sync`.
unsafe impl<P: Platform> Send for Waiter<P> {}
// SAFETY: as above.
unsafe impl<P: Platform> Sync for Waiter<P> {}

/// What a scope within an item of the same queue shares with closures that are queued as items.
struct Within<P: Platform> {
    /// Tickets that the scope has not seen yet, the last one first; the list has a reference to each.
    newest: P::AtomicPtr<Ticket<P>>,
    waiters: WaitQueue<P>,
}

/// A closure that a worker or the scope itself runs.
struct Ticket<P: Platform> {
    /// Null once it has been taken.
    closure: P::AtomicPtr<Closure>,
    /// The next ticket of the list. Written by the thread that puts this one onto the list, and afterwards read by the scope.
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
            if !self.run_new() {
                let news = || ended() || self.has_new();
                blocking::<P, _>(|| self.waiters.sleep_until(None, news));
            }
        }
    }

    /// Whether there are tickets that the scope has not seen.
    fn has_new(&self) -> bool {
        !self.newest.load(Ordering::SeqCst).is_null()
    }

    /// Runs the closures of the tickets that the scope has not seen, unless a worker has started them. False if there are no such tickets.
    fn run_new(&self) -> bool {
        let tickets = self.take_all();
        let any = !tickets.is_empty();
        let epoch = P::fork_epoch();
        for ticket in tickets {
            if P::fork_epoch() != epoch {
                // The parent runs it.
                core::mem::forget(ticket);
                continue;
            }
            if let Some(closure) = ticket.take() {
                closure();
            }
        }
        any
    }
}

impl<P: Platform> Drop for Within<P> {
    fn drop(&mut self) {
        drop(self.take_all());
    }
}

/// What a closure needs of its scope when it ends.
struct Back<P: Platform> {
    scope: *const Scope<'static, 'static, P>,
    /// The process in which it is counted.
    epoch: u64,
}

// SAFETY: what the pointer leads to is shared between threads by design, and lives until the count is zero.
unsafe impl<P: Platform> Send for Back<P> {}

impl<P: Platform> Back<P> {
    fn end(self, outcome: Result<(), Panic>) {
        if P::fork_epoch() != self.epoch {
            return;
        }
        // SAFETY: the scope lives until the count below is zero.
        let scope = unsafe { &*self.scope };
        // The first panic belongs to the scope. Another one is foreign, and its drop may panic or wait: so neither under the lock, nor
        // before others are told that the closure has ended.
        let spare = outcome.err().and_then(|panic| handle::set_first(&scope.panic, panic));
        let waiter = scope.waiter.clone();
        let tickets =
            if matches!(waiter, Waiter::InTurn) { scope.tickets.get().cloned() } else { None };
        let count = &raw const scope.count;
        // SAFETY: the scope lives until this step has made the count zero. Release: what the closure did. SeqCst: for the wait queue.
        // Afterwards the address is used, and what it leads to is not read.
        let before = unsafe { &*count }.fetch_sub(1, Ordering::SeqCst);
        if before & COUNT == 1 {
            match waiter {
                Waiter::InTurn => {
                    if let Some(tickets) = tickets {
                        tickets.waiters.notify();
                    }
                }
                // SAFETY: the bell lives as long as the runtime. The caller is a worker of that runtime, which waits for its workers; or it
                // is the thread that the bell belongs to.
                Waiter::Worker(bell) if before & IN_CHILD == 0 => unsafe { &*bell }.ring(),
                Waiter::Elsewhere(bell) if before & IN_CHILD == 0 => bell.ring(),
                _ => {
                    P::wake(count, 1);
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
    fn wait_for_count(&self) {
        let left = || {
            self.leave_behind();
            self.count.load(Ordering::Acquire)
        };
        if left() & COUNT == 0 {
            return;
        }
        blocking::<P, _>(|| {
            loop {
                let left = left();
                if left & COUNT == 0 {
                    return;
                }
                P::wait_for_work(&self.count, left, None);
            }
        });
    }

    /// For a closure of this process.
    fn back(&self) -> Back<P> {
        Back { scope: core::ptr::from_ref(self).cast(), epoch: P::fork_epoch() }
    }

    /// In the child of a fork, the first time: forgets the closures that are the parent's.
    fn leave_behind(&self) {
        let epoch = P::fork_epoch();
        // Relaxed: changes only in the thread that forked, before that thread has spawned anything.
        if self.epoch.load(Ordering::Relaxed) != epoch {
            self.epoch.store(epoch, Ordering::Relaxed);
            self.count.store(self.open.load(Ordering::Relaxed) | IN_CHILD, Ordering::Relaxed);
            if let Some(tickets) = self.tickets.get() {
                // Neither run nor dropped: a closure of the parent's may be half moved.
                core::mem::forget(tickets.take_all());
            }
            // SAFETY: the closures of this scope that could use the lock are the parent's, so no other thread of this process uses it; and
            // this thread is in none of the lock's functions.
            unsafe { self.panic.renew(None) };
        }
    }

    /// Spawns a closure that may borrow what outlives the scope. It ends before the scope does.
    ///
    /// Within a [`join`](crate::join) or a scope of an item of the same queue, the closure stays with the calling worker until another one
    /// takes it. Otherwise it is queued as an item.
    ///
    /// If the queue is being [drained](crate::Workqueue::drain) and the caller is not one of its own items, the closure is dropped, and the
    /// scope panics when it ends.
    ///
    /// [`spawn_with_handle`](Self::spawn_with_handle) gives the closure's value, for a second allocation.
    pub fn spawn(&'scope self, closure: impl FnOnce() + Send + 'scope) {
        // SAFETY: `scope` does not return before the count is zero, whatever happens. So what the closure borrows exists until it has run.
        unsafe { self.spawn_any(closure) };
    }

    /// Spawns a closure as [`spawn`](Self::spawn) does, and returns a handle that waits for it and gives its value. The handle may be
    /// dropped, as that of [`std::thread::Scope::spawn`].
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// let queue = nearq::Workqueue::builder("halves").build()?;
    /// let numbers: Vec<u64> = (1..=100).collect();
    /// let (left, right) = numbers.split_at(50);
    /// let sum = queue.scope(|scope| {
    ///     let left = scope.spawn_with_handle(|| left.iter().sum::<u64>());
    ///     let right = scope.spawn_with_handle(|| right.iter().sum::<u64>());
    ///     left.join().unwrap() + right.join().unwrap()
    /// });
    /// assert_eq!(sum, 5050);
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn spawn_with_handle<T: Send + 'scope>(
        &'scope self,
        closure: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T, P> {
        let (handle, shell) = handle::share(self.queue.inside(), &self.panic, closure);
        // SAFETY: as in `spawn`.
        unsafe { self.spawn_any(shell) };
        handle
    }

    /// As [`spawn`](Self::spawn), with a closure that may borrow anything.
    ///
    /// # Safety
    /// What the closure borrows exists until [`Workqueue::scope`](crate::Workqueue::scope) returns.
    #[doc(hidden)]
    pub unsafe fn spawn_any(&self, closure: impl FnOnce() + Send) {
        let closure = self.count_in(closure);
        // SAFETY: the closure contains its panic; and as the caller promises.
        let offered =
            unsafe { offer(self.queue.inside(), core::ptr::from_ref(self).cast(), closure) };
        if let Err(closure) = offered {
            self.queue_as_item(closure);
        }
    }

    /// Counts a closure that the caller will have run by other means. It must run once: the scope waits for it.
    #[doc(hidden)]
    pub fn expect(&'scope self, closure: impl FnOnce() + Send + 'scope) -> Closure {
        erased(self.count_in(closure))
    }

    /// Counts a closure. What is returned runs it, contains its panic, and counts it out.
    fn count_in<F: FnOnce() + Send>(&self, closure: F) -> impl FnOnce() + Send + use<P, F> {
        self.leave_behind();
        // Relaxed: the scope reads it after it has spawned.
        if self.count.fetch_add(1, Ordering::Relaxed) & COUNT > MOST_SPAWNED {
            // The scope would end before its closures.
            std::process::abort();
        }
        let back = self.back();
        move || {
            let back = back;
            let outcome = catch_unwind(AssertUnwindSafe(closure)).map_err(Panic::new);
            let panicked = outcome.is_err();
            back.end(outcome);
            if panicked {
                count_panicked::<P>();
            }
        }
    }

    /// Queues a closure, which counts its own panic.
    #[cold]
    fn queue_as_item(&self, closure: impl FnOnce() + Send) {
        let closure = erased(closure);
        if matches!(self.waiter, Waiter::Count | Waiter::Elsewhere(_)) {
            if let Err(refusal) = self.queue.give(closure) {
                // The closure is gone, and so is what would have reported its end.
                self.back().end(Err(Panic::new(Box::new(refusal.to_string()))));
            }
            return;
        }
        let ticket = Ticket::<P>::new(closure);
        if self.queue.inactive() < MOST_HELD_BACK {
            let ticket = Arc::clone(&ticket);
            // If it is refused, the scope runs it.
            let _ = self.queue.give(Box::new(move || {
                if let Some(closure) = ticket.take() {
                    closure();
                }
            }));
        }
        self.tickets.get_or_make(Within::new).offer(ticket);
        if let Waiter::Worker(bell) = &self.waiter {
            // SAFETY: the scope has not ended, so its worker is there, and with it the worker's bell.
            unsafe { &**bell }.ring();
        }
    }
}

/// Forgets the lifetime of a closure that a scope counts.
fn erased<'scope>(closure: impl FnOnce() + Send + 'scope) -> Closure {
    let closure: Box<dyn FnOnce() + Send + 'scope> = Box::new(closure);
    // SAFETY: `scope` does not return before its count is zero, whatever happens. So the closure has ended, and what it borrowed has been
    // released, while the borrowed value still exists; or the scope never returns. Only the lifetime changes.
    unsafe { core::mem::transmute::<Box<dyn FnOnce() + Send + 'scope>, Closure>(closure) }
}

/// See [`Workqueue::scope`](crate::Workqueue::scope).
pub(crate) fn scope<'env, P: Platform, R>(
    queue: &Workqueue<P>,
    f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env, P>) -> R,
) -> R {
    let (base, waiter) = if queue.is_served_here() {
        match Base::within() {
            Some(base) => {
                let waiter = Waiter::Worker(base.bell());
                (Some(base), waiter)
            }
            None => (None, Waiter::InTurn),
        }
    } else {
        match Base::elsewhere() {
            Some((base, bell)) => (Some(base), Waiter::Elsewhere(bell)),
            None => (None, Waiter::Count),
        }
    };
    let scope = Scope {
        queue,
        count: P::AtomicU32::new(1),
        panic: Mutex::new_in(None),
        waiter,
        tickets: Once::new(),
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
    scope.count.fetch_sub(1, Ordering::AcqRel);
    let has_ended = || {
        // One of its closures may have forked.
        scope.leave_behind();
        scope.count.load(Ordering::SeqCst) & COUNT == 0
    };
    let has_waited = match (&base, &scope.waiter) {
        (Some(base), Waiter::Worker(_)) => {
            let tickets = || scope.tickets.get().is_some_and(|tickets| tickets.run_new());
            let has_tickets = || scope.tickets.get().is_some_and(|tickets| tickets.has_new());
            base.wait_within(core::ptr::from_ref(&scope).cast(), has_ended, tickets, has_tickets)
        }
        (Some(base), _) => base.wait_elsewhere(has_ended),
        (None, Waiter::InTurn) => {
            scope.tickets.get_or_make(Within::new).run_until(has_ended);
            true
        }
        (None, _) => false,
    };
    if !has_waited {
        // The caller is no worker of a team; or this is the child of a fork, where it is no worker at all.
        scope.wait_for_count();
    }
    drop(base);
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
