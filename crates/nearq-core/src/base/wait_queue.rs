//! A wait queue: threads and futures wait on it until a condition of their own holds.
//!
//! A wait queue does not say what happened. Each waiter brings a condition over other memory; a thread that may have made a condition true
//! notifies afterwards.
//!
//! # The word
//! | bits | name | meaning |
//! |---|---|---|
//! | 0 | `AWAITED` | a waiter exists, or did a moment ago: a notifier must do something |
//! | 1 | `ASLEEP` | a thread sleeps on the word, or is about to |
//! | 2..32 | | notifications that found a waiter |
//!
//! * A waiter sets `AWAITED` (a thread also sets `ASLEEP`), checks its condition, and sleeps only while the word is what it set. A future
//!   pushes its waker onto `stack` before it sets `AWAITED`.
//! * A notifier reads `AWAITED`. If it is set, the notifier clears both marks and increments the count in one step, takes the whole stack,
//!   and wakes all waiters. It takes no lock and waits for no thread. Waiters whose condition does not hold begin again.
//!
//! # Nothing is lost
//! Dekker's pattern, all `SeqCst`. The waiter marks the word (MARK), then reads what the condition is about (SEE). The notifier writes that
//! (MAKE), then reads the word (LOOK). Either LOOK finds the mark, or SEE sees what was made. So the write that makes a condition true, and
//! the condition's reads, must be `SeqCst` too. If LOOK finds the mark but another notifier clears it first, that notifier wakes all
//! waiters after MAKE. A waker is on the stack before its mark is set, so the notifier that clears the mark takes the waker with it, unless
//! an earlier notifier did. In that case the waker has been called or will be, and its future checks again.
//!
//! # Ownership of a registration
//! It is shared by the stack and the future, and counted. Its `state` changes once from `ARMED`: to `LEFT` (by the future) or to `TAKEN`
//! (by the thread that took the stack). The side that made that step has the waker. A future that is dropped takes its waker out at once.
//! Its empty registration stays on the stack until the next notification. Their number is bounded: once more than `limit` have been pushed
//! since the last one, the thread that pushes takes the stack and wakes, for nothing, those that are still armed. The limit is four times
//! the number that were armed then, and at least `LEAST`. So at most one of four registrations is woken for nothing.
//!
//! # When the wait queue may be freed
//! Not before [`WaitQueue::take`] has returned in every thread that calls it: the callers ensure that (a worker by the pwq that it serves,
//! an issuer by its handle). What remains to be done then, [`Notification::wake`], no longer touches the wait queue's memory: it has an
//! address to wake, and registrations of its own. Wakers are foreign code, and are called nowhere else. A panic of a waker that is called
//! or dropped goes no further.
//!
//! # In the child of a fork
//! Marks and registrations of the parent's threads do no harm. A thread that the child does not have is woken without effect. A waker of
//! the parent's is forgotten, neither called nor dropped. A future that the child has a copy of registers again when it is polled. So a
//! wait queue that the runtime has no list of needs no work after a fork. For the others, [`WaitQueue::after_fork_in_child`] saves work at
//! the next notification.

use core::task::Waker;
use std::sync::Arc;

use nearq_platform::{Atomic, AtomicInt, Instant, Ordering, Platform, PlatformCell, Wait};

use crate::base::outcome::contain;

const AWAITED: u32 = 1;
const ASLEEP: u32 = 1 << 1;

const ARMED: u32 = 0;
const LEFT: u32 = 1;
const TAKEN: u32 = 2;

/// Registrations that may be on a stack before it is checked how many of them are still armed.
const LEAST: u32 = 32;

/// A wait queue: what threads and futures wait on.
pub(crate) struct WaitQueue<P: Platform> {
    word: P::AtomicU32,
    /// Registrations, newest first.
    stack: P::AtomicPtr<Registration<P>>,
    /// How many were pushed since the stack was last taken; off by a few where threads race.
    pushed: P::AtomicU32,
    limit: P::AtomicU32,
}

/// A waker on a wait queue's stack.
struct Registration<P: Platform> {
    state: P::AtomicU32,
    /// Belongs to the thread that changes `state` from `ARMED`.
    waker: P::Cell<Option<Waker>>,
    /// Belongs to the thread that pushes it, then to the thread that takes the stack.
    next: P::AtomicPtr<Registration<P>>,
    /// The process in which it was made: in the child of a fork, a waker of the parent's is never called.
    epoch: u64,
}

/// A future's side of a wait queue. Dropping it takes the waker back.
pub(crate) struct Listener<P: Platform> {
    /// The registration, and the identity of its waker.
    registered: Option<(Arc<Registration<P>>, Identity)>,
}

/// What distinguishes a waker from all others that are alive: the addresses of its data and of its functions. No second clone of the waker,
/// because that would keep its task alive after the first has been called.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity(usize, usize);

impl Identity {
    fn of(waker: &Waker) -> Self {
        Identity(waker.data().addr(), core::ptr::from_ref(waker.vtable()).addr())
    }
}

/// The waiters to be woken; the wait queue is not needed any more.
#[must_use = "no thread is woken before `wake`"]
pub(crate) struct Notification<P: Platform> {
    /// The word, if threads sleep on it. Used as an address, never read.
    sleepers: *const P::AtomicU32,
    registrations: *mut Registration<P>,
}

// SAFETY: a registration's cell is touched only by the thread that changes its state, and wakers may be sent.
unsafe impl<P: Platform> Send for Registration<P> {}
// SAFETY: the cell belongs to the one thread that takes `state` away from `ARMED`, and `next` to the one that pushes or takes the
// stack.
unsafe impl<P: Platform> Sync for Registration<P> {}

impl<P: Platform> WaitQueue<P> {
    pub(crate) fn new() -> Self {
        WaitQueue {
            word: P::AtomicU32::new(0),
            stack: P::AtomicPtr::new(core::ptr::null_mut()),
            pushed: P::AtomicU32::new(0),
            limit: P::AtomicU32::new(LEAST),
        }
    }

    // ---- notifiers -----------------------------------------------------------------------------------------

    /// Wakes all waiters. Costs one load if there are none. The caller has already written, `SeqCst`, what may have made a condition true.
    #[inline]
    pub(crate) fn notify(&self) {
        if self.is_awaited() {
            self.take().wake();
        }
    }

    /// Whether a thread or future may be waiting; if not, there is nothing to notify.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        P::model_fence();
        // SeqCst: LOOK.
        self.word.load(Ordering::SeqCst) & AWAITED != 0
    }

    /// Takes the waiters, as the caller's last access to the wait queue. The caller wakes them.
    #[cold]
    pub(crate) fn take(&self) -> Notification<P> {
        // SeqCst: LOOK.
        let mut word = self.word.load(Ordering::SeqCst);
        loop {
            if word & AWAITED == 0 {
                // There is no waiter, or another thread wakes it.
                return Notification::none();
            }
            // Clears the two lowest bits and counts.
            let next = (word | AWAITED | ASLEEP).wrapping_add(1);
            match self.word.compare_exchange_weak(word, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        let asleep = word & ASLEEP != 0;
        let sleepers = if asleep { &raw const self.word } else { core::ptr::null() };
        Notification { sleepers, registrations: self.take_stack() }
    }

    fn take_stack(&self) -> *mut Registration<P> {
        self.pushed.store(0, Ordering::Relaxed);
        // SeqCst: comes after the mark was cleared. Acquire: the registrations.
        self.stack.swap(core::ptr::null_mut(), Ordering::SeqCst)
    }

    /// Drops all waiters: the threads and futures that waited are the parent's, and what was registered is forgotten. In the child of a
    /// fork, by the thread that has the wait queue to itself.
    pub(crate) fn after_fork_in_child(&self) {
        let word = self.word.load(Ordering::Relaxed);
        crate::base::forked::set(&self.word, word & !(AWAITED | ASLEEP));
        crate::base::forked::set(&self.stack, core::ptr::null_mut());
        crate::base::forked::set(&self.pushed, 0);
    }

    // ---- waiters -------------------------------------------------------------------------------------------

    /// Sleeps until `condition` holds or the deadline has passed; returns whether it holds. The condition may be evaluated any number of
    /// times; its reads are `SeqCst`. Workers call `context::wait_until`.
    pub(crate) fn sleep_until(
        &self,
        deadline: Option<Instant>,
        mut condition: impl FnMut() -> bool,
    ) -> bool {
        loop {
            let seen = self.mark(AWAITED | ASLEEP);
            if condition() {
                return true;
            }
            let ended = P::wait_for_work(&self.word, seen, deadline);
            if condition() {
                return true;
            }
            if ended == Wait::TimedOut {
                return false;
            }
        }
    }

    /// Marks that there is a waiter; returns the word after that.
    fn mark(&self, marks: u32) -> u32 {
        // SeqCst: MARK.
        let word = self.word.fetch_or(marks, Ordering::SeqCst) | marks;
        P::model_fence();
        word
    }

    fn push(&self, registration: Arc<Registration<P>>) {
        // Relaxed: the two numbers are a bound, not a protocol.
        if self.pushed.fetch_add(1, Ordering::Relaxed) >= self.limit.load(Ordering::Relaxed) {
            let all =
                Notification::<P> { sleepers: core::ptr::null(), registrations: self.take_stack() };
            let armed = all.wake();
            self.limit.store(armed.saturating_mul(4).max(LEAST), Ordering::Relaxed);
        }
        let registration = Arc::into_raw(registration).cast_mut();
        let mut head = self.stack.load(Ordering::Relaxed);
        loop {
            // SAFETY: the count that the stack will own is still ours.
            unsafe { &*registration }.next.store(head, Ordering::Relaxed);
            // SeqCst: precedes the mark. Release: the registration.
            let pushed = self.stack.compare_exchange_weak(
                head,
                registration,
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            match pushed {
                Ok(_) => return,
                Err(found) => head = found,
            }
        }
    }
}

impl<P: Platform> Drop for WaitQueue<P> {
    fn drop(&mut self) {
        // Futures may still have theirs; their wakers will never be called.
        let mut next = self.take_stack();
        while let Some(registration) = take_first(&mut next) {
            registration.end(TAKEN);
        }
    }
}

/// Takes the first registration off a list that the caller owns.
fn take_first<P: Platform>(list: &mut *mut Registration<P>) -> Option<Arc<Registration<P>>> {
    let first = core::ptr::NonNull::new(*list)?;
    // SAFETY: from `Arc::into_raw` in `push`, with the count that the stack owned; the caller owns the list.
    let first = unsafe { Arc::from_raw(first.as_ptr().cast_const()) };
    *list = first.next.load(Ordering::Relaxed);
    Some(first)
}

impl<P: Platform> Registration<P> {
    /// Ends it, and drops the waker unless another thread has taken it before.
    fn end(&self, how: u32) {
        contain(|| drop(self.leave(how)));
    }

    /// Ends it; returns the waker, unless another thread has taken it before, or it is the parent's.
    fn leave(&self, how: u32) -> Option<Waker> {
        // AcqRel: the second of the two sides sees that the waker is gone, and what was done before.
        if self.state.swap(how, Ordering::AcqRel) != ARMED {
            return None;
        }
        // SAFETY: the thread that changed the state from ARMED owns the cell.
        let waker = self.waker.with_mut(|waker| unsafe { (*waker).take() });
        if self.epoch != P::fork_epoch() {
            // In the child of a fork: the data behind a waker of the parent's may be half changed, and its locks may be held for good.
            core::mem::forget(waker);
            return None;
        }
        waker
    }
}

impl<P: Platform> Notification<P> {
    /// A notification that wakes no waiter.
    pub(crate) fn none() -> Self {
        Notification { sleepers: core::ptr::null(), registrations: core::ptr::null_mut() }
    }

    /// Wakes them all; returns how many of the futures were still waiting.
    pub(crate) fn wake(mut self) -> u32 {
        if !self.sleepers.is_null() {
            P::wake(self.sleepers, usize::MAX);
        }
        let mut first = core::ptr::null_mut::<Registration<P>>();
        // First come, first woken.
        while let Some(registration) = take_first(&mut self.registrations) {
            registration.next.store(first, Ordering::Relaxed);
            first = Arc::into_raw(registration).cast_mut();
        }
        let mut armed = 0;
        while let Some(registration) = take_first(&mut first) {
            if let Some(waker) = registration.leave(TAKEN) {
                armed += 1;
                // Foreign code; its panic must not end a worker.
                contain(|| waker.wake());
            }
        }
        armed
    }
}

impl<P: Platform> Listener<P> {
    pub(crate) const fn new() -> Self {
        Listener { registered: None }
    }

    /// Whether `condition` holds. If it does not, `waker` is called at the next notification.
    pub(crate) fn poll_until(
        &mut self,
        waiters: &WaitQueue<P>,
        waker: &Waker,
        mut condition: impl FnMut() -> bool,
    ) -> bool {
        if condition() {
            self.leave();
            return true;
        }
        let own = Identity::of(waker);
        let armed = self.registered.as_ref().is_some_and(|(registration, registered)| {
            // Acquire: pairs with `leave`. While it is armed, its waker is alive, so no other waker has the same identity. If it is taken
            // right after this, the waker is called.
            registration.state.load(Ordering::Acquire) == ARMED
                && *registered == own
                && registration.epoch == P::fork_epoch()
        });
        if !armed {
            // Foreign code, which may panic: so before anything is changed.
            let waker = waker.clone();
            self.leave();
            let registration = Arc::new(Registration {
                state: P::AtomicU32::new(ARMED),
                waker: P::Cell::new(Some(waker)),
                next: P::AtomicPtr::new(core::ptr::null_mut()),
                epoch: P::fork_epoch(),
            });
            waiters.push(Arc::clone(&registration));
            self.registered = Some((registration, own));
        }
        waiters.mark(AWAITED);
        let holds = condition();
        if holds {
            self.leave();
        }
        holds
    }

    /// Takes the waker back, and drops it.
    pub(crate) fn leave(&mut self) {
        if let Some((registration, _)) = self.registered.take() {
            registration.end(LEFT);
        }
    }
}

impl<P: Platform> Drop for Listener<P> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
pub(crate) mod tests;
