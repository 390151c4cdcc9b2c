//! A thread's waits for conditions that other threads may end, so that the thread returns and does something else.
//!
//! # Protocol
//! One word for each thread that may be called:
//!
//! | bits | name | meaning | changed by |
//! |---|---|---|---|
//! | 0-15 | `WAITS_BY` | the record by which the thread waits now, or 0 | the thread |
//! | 31 | `SENT` | a thread has called it | a thread that calls, to 1; no thread to 0, except in the child of a fork |
//!
//! - *wait*: put the record into the ring; then write its number into the word. If `SENT` was there: wait only for a moment. After the
//!   wait, however it ended, remove the number again.
//! - *call*: first set `SENT`, by the step that also reads the record by which the thread waits; then make the change that the thread must
//!   find; then make the thread leave the ring, if there was a record (`ring.rs`).
//!
//! Both steps change one word, so one of the two comes first. Either the thread finds `SENT`, or the caller finds the record, which is in a
//! ring by then or was claimed. So **a thread that was called does not sleep on**: it is woken, or was notified, or checks again after a
//! moment, during which the change that it must find may not have been made yet.
//!
//! The thread that calls touches the word once, before it does anything else: the thread that is called may end, and the word with it, as
//! soon as it can find what it was called for. The record exists for ever; at worst it belongs to another wait by then, which ends for no
//! reason.
//!
//! # Wrong uses
//! The functions here are safe, so they tolerate a summons by which two threads wait, or one that is given another thread's record: the
//! thread's steps write only the bits of `WAITS_BY`, whatever is there, and the thread that calls checks whether there is a record of the
//! number that it finds (`WaiterSlab::call_away`). At worst a wait ends for no reason, or one that should have ended goes on.
//!
//! Orderings: what was done before the thread is woken reaches it by other means than these words (the ring's lock orders nothing with the
//! thread that calls). The word's steps are acquire and release, as the number that is found leads to a record that was made ready before.

use nearq_platform::{Atomic, AtomicInt, ConstAtomic, Linux, LockPlatform, Ordering};

use crate::process_state::ProcessState;

const WAITS_BY: u32 = 0xffff;
const SENT: u32 = 1 << 31;

/// Lets other threads end a thread's [waits](crate::raw::RawCondvar::wait_unless_called). Each thread has one of its own. If two threads
/// wait by the same one, a call may end the wrong wait, for no reason, or none.
#[derive(Debug)]
pub struct Summons<P: LockPlatform = Linux> {
    word: P::AtomicU32,
}

/// What a thread finds when it begins to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) was_sent: bool,
    /// The record by which the thread already waited: in a signal handler, it may wait within a wait.
    outer: u32,
}

/// The record by which a thread waits; see [`Summons::waits_by`].
#[derive(Clone, Copy, Debug)]
pub struct WaitsBy(u32);

/// The wait of a thread that was called, if it waited.
#[derive(Debug)]
#[must_use = "the thread sleeps on until it is woken"]
pub struct Called<P: LockPlatform = Linux> {
    number: u32,
    platform: core::marker::PhantomData<P>,
}

impl Summons<Linux> {
    /// A summons that has not been sent, on Linux.
    pub const fn new() -> Self {
        Summons { word: <<Linux as LockPlatform>::AtomicU32 as ConstAtomic>::ZERO }
    }
}

impl<P: LockPlatform> Summons<P> {
    /// A summons that has not been sent, on any platform.
    pub fn new_in() -> Self {
        Summons { word: P::AtomicU32::new(0) }
    }

    /// From now on the thread does not wait for long. After this call, make the change that the thread must find, then [wake](Called::wake)
    /// the thread; for that, neither the summons nor the thread need exist any more.
    pub fn send(&self) -> Called<P> {
        // Acquire: the record that is found was made ready. Release: pairs with the acquire in `wait_by`.
        let before = self.word.fetch_or(SENT, Ordering::AcqRel);
        Called { number: before & WAITS_BY, platform: core::marker::PhantomData }
    }

    /// Makes it a summons that has not been sent. For the thread itself, when all other threads have vanished in a fork.
    pub fn renew(&self) {
        // Relaxed: there is no other thread.
        self.word.fetch_and(WAITS_BY, Ordering::Relaxed);
    }

    /// The record by which the caller, whose summons this is, waits now; for [`waits_again`](Self::waits_again).
    pub fn waits_by(&self) -> WaitsBy {
        // Relaxed: the caller's alone.
        WaitsBy(self.word.load(Ordering::Relaxed) & WAITS_BY)
    }

    /// The caller, whose summons this is, waits again by the record that [`waits_by`](Self::waits_by) returned. It has
    /// [left](crate::raw::Stay::leave) the wait that it began since then.
    pub fn waits_again(&self, by: WaitsBy) {
        // Relaxed: nothing is published by it.
        self.set(by.0, Ordering::Relaxed);
    }

    /// The caller, whose summons this is, waits by a record that is in a ring.
    pub(crate) fn wait_by(&self, number: u32) -> Answered {
        // Release: pairs with the acquire in `send`. Acquire: pairs with the release there.
        let before = self.set(number, Ordering::AcqRel);
        Answered { was_sent: before & SENT != 0, outer: before & WAITS_BY }
    }

    /// The caller no longer waits by the record for which it got that answer.
    pub(crate) fn wait_no_more(&self, answered: Answered) {
        // Relaxed: nothing is published by it.
        self.set(answered.outer, Ordering::Relaxed);
    }

    /// Writes a number, and returns the word before.
    fn set(&self, number: u32, order: Ordering) -> u32 {
        // Relaxed for both: decided by the step.
        let mut found = self.word.load(Ordering::Relaxed);
        loop {
            let new = found & !WAITS_BY | number & WAITS_BY;
            match self.word.compare_exchange_weak(found, new, order, Ordering::Relaxed) {
                Ok(before) => return before,
                Err(other) => found = other,
            }
        }
    }
}

impl<P: LockPlatform> Called<P> {
    /// Ends the wait that the thread was in when it was called, unless it has been notified since.
    pub fn wake(self) {
        if self.number != 0 {
            ProcessState::<P>::get().waiters.call_away(self.number);
        }
    }
}

impl Default for Summons<Linux> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_ignores_a_number_without_a_record() {
        let summons = Summons::new();
        for number in [1, 4, 5, 40_000, WAITS_BY] {
            let before = summons.waits_by();
            summons.waits_again(WaitsBy(number));
            summons.send().wake();
            summons.waits_again(before);
            summons.renew();
            assert_eq!(summons.waits_by().0, 0);
        }
    }

    #[test]
    fn two_waits_with_one_summons_do_not_send_it() {
        let summons = Summons::new();
        let first = summons.wait_by(9);
        let second = summons.wait_by(2);
        summons.wait_no_more(first);
        summons.send().wake();
        summons.renew();
        summons.wait_no_more(second);
        assert!(!summons.wait_by(3).was_sent);
    }
}
