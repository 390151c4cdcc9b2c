//! The optimistic spin queue as a lock in its own right: strictly first come, first served; each waiter spins on a line of its own; a
//! thread that waits may leave.
//!
//! # Protocol
//! The lock is a queue (`queue.rs`) whose tail is its word, two bytes: the number of the last record, 0 when the lock is free. **The thread
//! in front holds the lock**; releasing it means leaving the front. So the holder's record stays in the queue while it holds the lock, and
//! the guard knows its number.
//!
//! Invariants, in addition to those of the queue:
//! 1. One record is in front, so one thread holds the lock.
//! 2. A record in front stays there until its guard is dropped, whatever happens to its thread: a record whose guard was forgotten never
//!    becomes another thread's (`WaiterSlab::ended`).
//! 3. An unlock does not touch the lock after the step that lets another thread have it: it either clears the tail or tells the next
//!    thread, and the steps between are on records.
//!
//! Orderings: the tail's compare-exchange is acquire and pairs with the release that cleared it; otherwise the message orders (`queue.rs`).
//! The next holder sees what the previous one wrote.
//!
//! # Threads and CPUs
//! A lock that is handed to the next thread whether that thread runs or not is slow if there are more threads than CPUs: each hand-over
//! waits until the next thread has been given a CPU. Waiters here sleep after they have spun for a while, so the lock does not collapse as
//! queue locks that only spin do; but a lock that may be overtaken ([`Mutex`](crate::Mutex)) is faster then. This lock is what the mutex is
//! built from; use it if strict order matters, or to measure it.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::time::Duration;

use nearq_platform::{Atomic, ConstAtomic, ConstPlatform, Instant, Linux, LockPlatform, Ordering};

use crate::process_state::ProcessState;
use crate::queue::{Received, TURN, Tail, Waking};

/// For how many microseconds a waiter spins before it sleeps: it takes several hand-overs until it has the turn.
const SPIN: u32 = 50;

/// A value that one thread at a time may use, in the order in which they asked for it.
///
/// Not reentrant. A thread may hold several; each takes one of the process's 65535 waiters' records while it is held or waited for. A guard
/// that is forgotten (`core::mem::forget`) keeps the lock held and the record taken for ever, even after its thread has ended.
///
/// ```
/// use nearq_lock::raw::OsqLock;
///
/// static COUNT: OsqLock<u32> = OsqLock::new(0);
///
/// *COUNT.lock() += 1;
/// assert_eq!(*COUNT.lock(), 1);
/// assert!(COUNT.lock_spinning(100).is_some());
/// ```
pub struct OsqLock<T: ?Sized, P: LockPlatform = Linux> {
    /// The number of the last record; 0 if no thread has the lock.
    tail: P::AtomicU16,
    value: UnsafeCell<T>,
}

// SAFETY: moving the lock moves the value; the tail is an atomic and may go anywhere.
unsafe impl<T: ?Sized + Send, P: LockPlatform> Send for OsqLock<T, P> {}
// SAFETY: a shared lock hands out the value to one thread at a time (invariant 1), and each hand-over orders what the previous holder did
// before what the next one does. So the value goes from thread to thread, which `Send` allows.
unsafe impl<T: ?Sized + Send, P: LockPlatform> Sync for OsqLock<T, P> {}

const _: () = assert!(size_of::<OsqLock<(), Linux>>() == 2, "it is embedded by the thousand");

/// A record's number as the tail has it: there are 65535.
fn in_tail(number: u32) -> u16 {
    number as u16
}

struct Last<'a, P: LockPlatform>(&'a P::AtomicU16);

impl<P: LockPlatform> Tail for Last<'_, P> {
    #[inline]
    fn clear(&self, number: u32) -> bool {
        // Release: pairs with the acquire of the thread that takes the free lock. Acquire on failure: with the release of the thread that
        // joined behind us.
        self.0.compare_exchange(in_tail(number), 0, Ordering::Release, Ordering::Acquire).is_ok()
    }

    fn replace(&self, number: u32, with: u32) -> bool {
        // Acquire and release: the thread that takes the place of the last one passes on what that one has released. Relaxed: nothing is
        // read on failure.
        let (from, to) = (in_tail(number), in_tail(with));
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl<T> OsqLock<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self::const_new_in(value)
    }
}

impl<T, P: ConstPlatform> OsqLock<T, P> {
    /// A free lock around `value`, in a constant.
    #[doc(hidden)]
    pub const fn const_new_in(value: T) -> Self {
        OsqLock { tail: <P::AtomicU16 as ConstAtomic>::ZERO, value: UnsafeCell::new(value) }
    }
}

impl<T, P: LockPlatform> OsqLock<T, P> {
    /// A free lock around `value`, on any platform.
    #[doc(hidden)]
    pub fn new_in(value: T) -> Self {
        OsqLock { tail: P::AtomicU16::new(0), value: UnsafeCell::new(value) }
    }

    /// Unwraps the value. Nothing is locked: the caller owns the lock.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, P: LockPlatform> OsqLock<T, P> {
    /// Takes the lock when the caller has the turn; sleeps if that takes long.
    ///
    /// A thread that already holds it waits for ever. While 65535 threads already wait for or hold such locks, the caller waits until one
    /// of them is done, and until then has no place in the queue.
    pub fn lock(&self) -> OsqGuard<'_, T, P> {
        self.wait(0, true, None).expect("without a deadline it waits until it receives a message")
    }

    /// Takes the lock if it is free and no thread waits. Never sleeps. None also while all 65535 records of the process are in use.
    pub fn try_lock(&self) -> Option<OsqGuard<'_, T, P>> {
        // Relaxed: decided by the step below.
        if self.is_locked() {
            return None;
        }
        let process = ProcessState::<P>::get();
        let number = process.waiters.take()?;
        process.waiters.prepare(number, 0);
        // Acquire: pairs with the release that cleared it. Release: the record is prepared.
        match self.tail.compare_exchange(0, in_tail(number), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => Some(self.guard(process, number)),
            Err(_) => {
                process.waiters.give_back(number);
                None
            }
        }
    }

    /// Queues up and checks about `checks` times whether the caller has the turn; leaves the queue if it does not. Never sleeps.
    pub fn lock_spinning(&self, checks: u32) -> Option<OsqGuard<'_, T, P>> {
        self.wait(checks, false, None)
    }

    /// As [`try_lock_until`](OsqLock::try_lock_until), on any platform.
    #[doc(hidden)]
    pub fn try_lock_until_in(&self, deadline: Instant) -> Option<OsqGuard<'_, T, P>> {
        self.wait(0, true, Some(deadline))
    }

    /// Takes the lock if the caller has the turn within `time`; leaves the queue otherwise.
    pub fn try_lock_for(&self, time: Duration) -> Option<OsqGuard<'_, T, P>> {
        self.try_lock_until_in(P::now() + time)
    }

    fn wait(
        &self,
        reads: u32,
        sleep: bool,
        deadline: Option<Instant>,
    ) -> Option<OsqGuard<'_, T, P>> {
        let process = ProcessState::<P>::get();
        let mut number = loop {
            match process.waiters.take() {
                Some(number) => break number,
                None if !sleep || deadline.is_some_and(|deadline| P::now() >= deadline) => {
                    return None;
                }
                // There is no record to wait by: 65535 are already in use.
                None => P::sleep(Duration::from_millis(1)),
            }
        };
        let domain = process.current_domain();
        process.waiters.prepare(number, domain);
        // Acquire: pairs with the release that cleared the tail. Release: the record is prepared.
        let before = u32::from(self.tail.swap(in_tail(number), Ordering::AcqRel));
        if !sleep || deadline.is_some() {
            process.waiters.is_behind(number, before);
        }
        if before == 0 || process.waiters.link(number, before).is_some() {
            return Some(self.guard(process, number));
        }
        let spin = |state: &P::AtomicU32| {
            if sleep {
                process.spin(domain, state, crate::queue::WAITING, SPIN, 0, None);
            } else {
                P::wait_until_changed(state, crate::queue::WAITING, reads);
            }
        };
        let tail = Last::<P>(&self.tail);
        match process.waiters.wait(&mut number, spin, sleep, deadline, None, &tail) {
            Received::Message(message) => {
                debug_assert_eq!(message, TURN, "this queue has no other message");
                Some(self.guard(process, number))
            }
            Received::Nothing => None,
        }
    }

    fn guard<'a>(&'a self, process: &'a ProcessState<P>, number: u32) -> OsqGuard<'a, T, P> {
        process.waiters.hold(number);
        OsqGuard { lock: self, process, number, not_send: PhantomData }
    }

    /// The value. Nothing is locked: `&mut self` proves that no other thread can have the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Whether a thread holds the lock. That may have changed by the time the caller uses the answer, and the answer orders nothing.
    pub fn is_locked(&self) -> bool {
        // Relaxed: a hint; conclude nothing from it.
        self.tail.load(Ordering::Relaxed) != 0
    }
}

impl<T: ?Sized + fmt::Debug, P: LockPlatform> fmt::Debug for OsqLock<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("OsqLock");
        match self.try_lock() {
            Some(guard) => shown.field("value", &&*guard),
            None => shown.field("value", &format_args!("<locked>")),
        };
        shown.finish()
    }
}

/// The right to use the value of an [`OsqLock`]; hands the lock to the next thread in line when dropped.
///
/// It cannot be sent to another thread: the record in the queue is that of the thread that took the lock. If it is forgotten
/// (`core::mem::forget`), the lock stays held for ever.
#[must_use = "the lock is given back when the guard is dropped, which is at once if nothing holds it"]
pub struct OsqGuard<'a, T: ?Sized, P: LockPlatform = Linux> {
    lock: &'a OsqLock<T, P>,
    process: &'a ProcessState<P>,
    number: u32,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives `&T` and nothing else.
unsafe impl<T: ?Sized + Sync, P: LockPlatform> Sync for OsqGuard<'_, T, P> {}

impl<T: ?Sized, P: LockPlatform> Deref for OsqGuard<'_, T, P> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so we hold the lock: no other thread has a reference (invariant 1), and borrowing the
        // guard keeps `&T` and `&mut T` apart within this one. The lock outlives the guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized, P: LockPlatform> DerefMut for OsqGuard<'_, T, P> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock outlives the guard, which has it: no other thread has a reference (invariant 1). `&mut self` makes this the
        // only borrow of the guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized, P: LockPlatform> Drop for OsqGuard<'_, T, P> {
    fn drop(&mut self) {
        // Our record is in front: this is the only guard of the thread that holds the lock.
        let tail = Last::<P>(&self.lock.tail);
        self.process.waiters.leave_front(self.number, &tail, TURN, (0, 0), Waking::Now);
    }
}

impl<T: ?Sized + fmt::Debug, P: LockPlatform> fmt::Debug for OsqGuard<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests;
