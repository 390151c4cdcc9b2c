//! The condition variable without a guard: which threads wait, which are notified, and how notified threads get the mutex again.
//!
//! # Protocol
//! One 32-bit word, which is a ring of the waiting threads' records (`ring.rs`); zero when no thread waits.
//!
//! - *wait*: put the thread's record into the ring, release the mutex, sleep by the record. If notified: *go on* and wait for the mutex;
//!   the record is in its queue by then, or soon will be. If the deadline came or the thread was called away: take the record out of the
//!   ring, take the mutex as usual. A wait that may be [called away](Summons) announces that after its record is in the ring and before it
//!   sleeps.
//! - *notify*: take the first record, or all, out of the ring; then put each at the end of the queue of the mutex that its owner wants
//!   (`turn/moved.rs`), where the owner sleeps on until it has the turn. No thread is woken just to queue up.
//! - *notify an urgent thread*: a thread of a real-time class has no place in a queue (`waiting.rs`). It is woken, and waits for the mutex
//!   as such threads do: the kernel decides among them.
//!
//! Invariants:
//! 1. **No notification is lost**: a record is in the ring before its owner releases the mutex. A thread that has taken the mutex after
//!    that, or that is ordered after it in another way, finds the record there.
//! 2. **A thread that was not there is not notified**: a notifier claims records in the ring, in their order (`ring.rs`), and nothing of
//!    its call is kept for later.
//! 3. **A waiter does not touch the condition variable after it has been notified**, and a notifier does not touch it after the step that
//!    lets a waiter know. So it may be destroyed as soon as all threads have been notified, even while some leave at a deadline: a thread
//!    that notifies all waits for those (`ring.rs`). A thread that cannot know whether all have been notified or have left waits for that
//!    ([`RawCondvar::wait_until_left`]); this takes no mutex, and waits for none.
//! 4. **One thread runs at a time**: of the ordinary threads that were notified, the one in front of the mutex's queue is awake, and the
//!    one behind it if that saves time. The others sleep by their records, like the threads that came for the mutex by themselves.
//!
//! # How urgent a thread is
//! A thread queries its own urgency at each wait, before its record is in the ring: so a notifier that takes the mutex afterwards finds the
//! record in the right place. The query is a system call, made while the mutex is held; so no thread makes it in a process in which no
//! thread of a real-time class was ever seen (`ProcessState::urgency`). Such a thread is seen when it waits for a condition for the first
//! time, when it finds a mutex held, and when the program says so ([`expect_urgent`](crate::expect_urgent)).
//!
//! # Why not the system's requeue
//! `FUTEX_CMP_REQUEUE` moves sleepers from one word to another. But here sleepers on a mutex's word are the exception: its waiters sleep by
//! their records, in an order, and by cache if that pays. Sleepers that were moved to the word would be outside of all of that, and would
//! all have to be woken at each unlock, as the word does not say which of them is next (`raw_mutex.rs`). Moving a record into the queue is
//! what a waiter does itself. It costs no system call, and works on every platform as it is; the mutex's three kinds of waiting, its bounds
//! on overtaking and its changes of mode stay as they are.
//!
//! # What is not in this order
//! A thread without a record (65535 others wait) is not in the ring. It releases the mutex for a moment and checks again by itself. These
//! are the only wake-ups without a reason, except for those that [`Summons`] may cause.

use core::ptr;
use core::time::Duration;

use nearq_platform::{Atomic, ConstAtomic, ConstPlatform, Instant, Linux, LockPlatform, Ordering};

use crate::misuse;
use crate::process_state::ProcessState;
use crate::raw::RawMutex;
use crate::ring::{Ring, Slept, past_the_gate, peek, until_empty};
use crate::stay::Stay;
use crate::summons::Summons;
use crate::turn::Turns;
use crate::waiting::Waiting;

/// How long a thread without a record waits before it checks again.
const PAUSE: Duration = Duration::from_millis(1);

/// A condition variable for [`RawMutex`]: four bytes.
///
/// [`Condvar`](crate::Condvar) is the one for guards; its documentation says what it guarantees.
///
/// ```
/// use nearq_lock::raw::{RawCondvar, RawMutex};
///
/// static MUTEX: RawMutex = RawMutex::new();
/// static CONDVAR: RawCondvar = RawCondvar::new();
///
/// MUTEX.lock();
/// let thread = std::thread::spawn(|| {
///     MUTEX.lock();
///     assert!(CONDVAR.notify_one());
///     // SAFETY: taken above.
///     unsafe { MUTEX.unlock() };
/// });
/// // SAFETY: taken above.
/// unsafe { CONDVAR.wait(&MUTEX) };
/// // SAFETY: `wait` took it again.
/// unsafe { MUTEX.unlock() };
/// thread.join().unwrap();
/// ```
pub struct RawCondvar<P: LockPlatform = Linux> {
    ring: P::AtomicU32,
}

const _: () = assert!(size_of::<RawCondvar<Linux>>() == 4, "it is embedded as the mutex is");

/// How a wait for a condition ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The thread was notified; or woke for no reason, if 65535 threads already wait.
    Notified,
    /// The deadline came first.
    TimedOut,
    /// The thread was summoned first. If its [`Summons`] does not say so, it woke for no reason.
    Called,
}

impl RawCondvar<Linux> {
    /// A condition variable that no thread waits for.
    pub const fn new() -> Self {
        Self::const_new_in()
    }
}

impl<P: ConstPlatform> RawCondvar<P> {
    /// A condition variable that no thread waits for, in a constant.
    #[doc(hidden)]
    pub const fn const_new_in() -> Self {
        RawCondvar { ring: <P::AtomicU32 as ConstAtomic>::ZERO }
    }
}

impl<P: LockPlatform> RawCondvar<P> {
    /// A condition variable that no thread waits for, on any platform.
    #[doc(hidden)]
    pub fn new_in() -> Self {
        RawCondvar { ring: P::AtomicU32::new(0) }
    }

    /// Releases the mutex, sleeps until notified, and takes the mutex again.
    ///
    /// That it returns does not mean that what the caller waits for has happened: another thread may have had the mutex in between, and if
    /// 65535 threads already wait, it returns without a notification. Different callers may use different mutexes; each gets back its own.
    ///
    /// # Safety
    /// The caller holds `mutex`. It holds it again on return.
    ///
    /// # Panics
    /// In debug builds, if the thread does not hold `mutex`.
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn wait(&self, mutex: &RawMutex<P>) {
        // SAFETY: as the caller promises.
        unsafe { self.wait_at_most(mutex, None) };
    }

    /// As [`wait`](Self::wait), but sleeps at most for `time`. False if the time was over first. Taking the mutex again may take longer.
    ///
    /// # Safety
    /// The caller holds `mutex`. It holds it again on return.
    ///
    /// # Panics
    /// In debug builds, if the thread does not hold `mutex`.
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn wait_for(&self, mutex: &RawMutex<P>, time: Duration) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.wait_at_most(mutex, Some(P::now() + time)) }
    }

    /// As [`wait`](Self::wait), but at most until `deadline`, if there is one. False if the deadline came first.
    ///
    /// # Safety
    /// As for [`wait`](Self::wait).
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) unsafe fn wait_at_most(
        &self,
        mutex: &RawMutex<P>,
        deadline: Option<Instant>,
    ) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.wait_as(mutex, deadline, None, None) != Ended::TimedOut }
    }

    /// As [`wait`](Self::wait), or at most until `deadline` if there is one, but another thread may end the wait by `summons`, which is the
    /// caller's. If the summons has already been sent, the wait ends within a millisecond.
    ///
    /// # Safety
    /// As for [`wait`](Self::wait).
    ///
    /// # Panics
    /// Likewise.
    #[doc(hidden)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn wait_unless_called(
        &self,
        mutex: &RawMutex<P>,
        deadline: Option<Instant>,
        summons: &Summons<P>,
    ) -> Ended {
        // SAFETY: as the caller promises.
        unsafe { self.wait_as(mutex, deadline, Some(summons), None) }
    }

    /// As [`wait_unless_called`](Self::wait_unless_called); without a summons, no other thread can end the wait. With a stay, the thread
    /// may jump out of the wait from a signal handler: before it jumps, it must call [`Stay::leave`] on the stay. It does not hold the
    /// mutex then.
    ///
    /// # Safety
    /// As for [`wait`](Self::wait).
    ///
    /// # Panics
    /// Likewise.
    #[doc(hidden)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn wait_as(
        &self,
        mutex: &RawMutex<P>,
        deadline: Option<Instant>,
        summons: Option<&Summons<P>>,
        stay: Option<&Stay<P>>,
    ) -> Ended {
        misuse::expect_held::<P>(mutex.word());
        // SAFETY: as the caller promises.
        unsafe { self.wait_with(Some(mutex), deadline, summons, stay) }
    }

    /// As [`wait_as`](Self::wait_as), without a mutex: for a caller that keeps the one it holds, and is notified by threads that do not
    /// need it.
    ///
    /// ```
    /// use core::time::Duration;
    /// use nearq_lock::raw::{Ended, RawCondvar};
    /// use nearq_lock::platform::{Linux, LockPlatform};
    ///
    /// let soon = Linux::now() + Duration::from_millis(1);
    /// assert_eq!(RawCondvar::new().wait_keeping(Some(soon), None, None), Ended::TimedOut);
    /// ```
    #[doc(hidden)]
    pub fn wait_keeping(
        &self,
        deadline: Option<Instant>,
        summons: Option<&Summons<P>>,
        stay: Option<&Stay<P>>,
    ) -> Ended {
        // SAFETY: there is no mutex.
        unsafe { self.wait_with(None, deadline, summons, stay) }
    }

    /// # Safety
    /// The caller holds the mutex, if there is one.
    #[cfg_attr(debug_assertions, track_caller)]
    #[inline(always)]
    unsafe fn wait_with(
        &self,
        mutex: Option<&RawMutex<P>>,
        deadline: Option<Instant>,
        summons: Option<&Summons<P>>,
        stay: Option<&Stay<P>>,
    ) -> Ended {
        let process = ProcessState::<P>::get();
        let Some(number) =
            process.waiters.take_own().or_else(|| Self::take_another_record(process))
        else {
            // SAFETY: as the caller promises.
            return unsafe { Self::wait_outside(mutex, deadline) };
        };
        let urgency = process.urgency();
        let word = mutex.map_or(ptr::null(), |mutex| ptr::from_ref(mutex.word()));
        process.waiters.prepare_for_ring(number, process.current_domain(), word, urgency);
        let mut ring = Ring::lock(&self.ring, 0, &process.waiters);
        ring.add(number, urgency);
        ring.unlock();
        if let Some(stay) = stay {
            stay.begin(number, word);
            stay.is_listed(&self.ring);
        }
        if let Some(mutex) = mutex {
            // SAFETY: as the caller promises.
            unsafe { mutex.unlock() };
        }
        let answered = summons.map(|summons| summons.wait_by(number));
        // The summons was sent before: its sender does not know of the record.
        let called = answered.is_some_and(|answered| answered.was_sent);
        let until = if called { Some(Self::soon(deadline)) } else { deadline };
        let slept = process.waiters.sleep_in_ring(number, until);
        // Done before the record may be another thread's.
        if let (Some(summons), Some(answered)) = (summons, answered) {
            summons.wait_no_more(answered);
        }
        if slept == Slept::Claimed {
            if let Some(stay) = stay {
                stay.is_queued();
            }
            if let Some(mutex) = mutex {
                Waiting::<P>::new(mutex.word()).staying(stay).go_on(number);
                misuse::took::<P>(mutex.word());
            } else {
                process.waiters.wait_on(number, |_| ());
                if let Some(stay) = stay {
                    stay.goes_on();
                }
                process.waiters.give_back(number);
            }
            return Ended::Notified;
        }
        if let Some(stay) = stay {
            stay.goes_on();
        }
        process.waiters.leave(number, &self.ring);
        if let Some(mutex) = mutex {
            mutex.lock_as(stay);
        }
        let called = called && !deadline.is_some_and(P::has_come);
        if called || slept == Slept::Called { Ended::Called } else { Ended::TimedOut }
    }

    /// For a thread that waits for the first time: its class is queried from the system here.
    #[cold]
    fn take_another_record(process: &ProcessState<P>) -> Option<u32> {
        process.check_urgency();
        process.waiters.take()
    }

    /// A moment from now, or `deadline` if that comes first.
    fn soon(deadline: Option<Instant>) -> Instant {
        let soon = P::now() + PAUSE;
        deadline.map_or(soon, |deadline| deadline.min(soon))
    }

    /// Waits without a record.
    ///
    /// # Safety
    /// As for [`wait_with`](Self::wait_with).
    #[cold]
    unsafe fn wait_outside(mutex: Option<&RawMutex<P>>, deadline: Option<Instant>) -> Ended {
        if let Some(mutex) = mutex {
            // SAFETY: as the caller promises.
            unsafe { mutex.unlock() };
        }
        let left = deadline.map(|deadline| deadline - P::now());
        P::sleep(left.map_or(PAUSE, |left| left.min(PAUSE)));
        if let Some(mutex) = mutex {
            mutex.lock();
        }
        if deadline.is_some_and(P::has_come) { Ended::TimedOut } else { Ended::Notified }
    }

    /// Waits until no thread touches the condition variable any more: until each thread that was blocked there has been notified, has
    /// reached its deadline or was called away. For a caller that is about to free its memory, and may hold the mutexes that those threads
    /// want.
    ///
    /// ```
    /// let condvar = nearq_lock::raw::RawCondvar::new();
    /// condvar.wait_until_left();
    /// ```
    pub fn wait_until_left(&self) {
        if peek::<P>(&self.ring).is_some() {
            until_empty(&self.ring, &ProcessState::<P>::get().waiters);
        }
    }

    /// Whether a notification would find a waiting thread: the same answer as [`notify_one`](Self::notify_one), but no thread is notified.
    /// That may have changed by the time the caller uses the answer.
    ///
    /// ```
    /// assert!(!nearq_lock::raw::RawCondvar::new().is_waited_for());
    /// ```
    #[inline]
    pub fn is_waited_for(&self) -> bool {
        peek::<P>(&self.ring).is_some()
    }

    /// Notifies the most urgent thread; among threads of the same urgency, the one that has waited longest. True if one waited.
    ///
    /// The caller may hold the mutex or not.
    pub fn notify_one(&self) -> bool {
        self.notify_one_after(|| {})
    }

    /// As [`notify_one`](Self::notify_one). `then` is called after the condition variable has been touched for the last time, and before a
    /// thread that is notified here can know it. For a caller that also notifies other threads, any of which may destroy the condition
    /// variable once it is notified.
    ///
    /// # Panics
    /// If `then` does. Threads are notified as if it had not.
    pub fn notify_one_after(&self, then: impl FnOnce()) -> bool {
        let Some(found) = peek::<P>(&self.ring) else {
            then();
            return false;
        };
        self.notify_first(found, then)
    }

    /// Separate from the check that finds no waiter, which is the result of most notifications, so that only this function saves registers.
    #[inline(never)]
    fn notify_first(&self, found: u32, then: impl FnOnce()) -> bool {
        let process = ProcessState::<P>::get();
        let mut ring = Ring::lock(&self.ring, found, &process.waiters);
        let claimed = ring.claim_first();
        ring.unlock();
        let notified = Notified { process, claimed: claimed.into_iter() };
        then();
        drop(notified);
        claimed.is_some()
    }

    /// Notifies all waiting threads, and returns how many there were.
    ///
    /// The caller may hold the mutex or not. The threads do not all wake up now: each does when it can have the mutex.
    pub fn notify_all(&self) -> usize {
        self.notify_all_after(|| {})
    }

    /// As [`notify_all`](Self::notify_all). `then` is called as by [`notify_one_after`](Self::notify_one_after).
    ///
    /// # Panics
    /// Likewise.
    pub fn notify_all_after(&self, then: impl FnOnce()) -> usize {
        let Some(found) = peek::<P>(&self.ring) else {
            then();
            return 0;
        };
        let process = ProcessState::<P>::get();
        let gate = P::AtomicU32::new(0);
        let mut ring = Ring::lock(&self.ring, found, &process.waiters);
        let claimed = ring.claim_all(&gate);
        ring.unlock();
        past_the_gate::<P>(&gate);
        let count = claimed.count;
        let notified = Notified { process, claimed };
        then();
        drop(notified);
        count
    }

    /// Queues a thread that was notified for the mutex that it released. An urgent thread has no place in the queue: it is woken, and takes
    /// the mutex as such threads do. A thread that released no mutex is woken too.
    ///
    /// # Safety
    /// The caller has claimed the record.
    unsafe fn move_to_mutex(process: &ProcessState<P>, number: u32) {
        let record = process.waiters.record(number);
        // Relaxed, here and below: written before the record was put into the ring, in which the caller found it.
        let word = record.word.load(Ordering::Relaxed).cast_const();
        if record.slot.load(Ordering::Relaxed) != 0 || word.is_null() {
            process.waiters.let_go(number);
            return;
        }
        // SAFETY: the mutex of a thread that is in `wait` until it has that mutex, which it cannot have before this is done.
        Turns::of_record(unsafe { &*word }, process, number).queue_another_up(number);
    }
}

/// Records that the caller has claimed. They are queued up when this is dropped, including when it is dropped by unwinding.
struct Notified<'a, P: LockPlatform, I: Iterator<Item = u32>> {
    process: &'a ProcessState<P>,
    claimed: I,
}

impl<P: LockPlatform, I: Iterator<Item = u32>> Drop for Notified<'_, P, I> {
    fn drop(&mut self) {
        for number in &mut self.claimed {
            // SAFETY: claimed, and given out once.
            unsafe { RawCondvar::move_to_mutex(self.process, number) };
        }
    }
}

impl<P: LockPlatform> Default for RawCondvar<P> {
    fn default() -> Self {
        Self::new_in()
    }
}

impl<P: LockPlatform> core::fmt::Debug for RawCondvar<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RawCondvar").field("waited_for", &self.is_waited_for()).finish()
    }
}

#[cfg(test)]
mod tests;
