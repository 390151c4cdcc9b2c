//! A thread's waits for conditions that other threads may end, so that it comes and does something else.
//!
//! # Protocol
//! One word for each thread that may be called:
//!
//! | bits | name | meaning | who may change it |
//! |---|---|---|---|
//! | 0-15 | `WAITS_BY` | the record by which the thread waits now, or 0 | the thread |
//! | 31 | `SENT` | somebody has called it | who calls, to 1; nobody to 0, but for the child of a fork |
//!
//! - *wait*: put the record into the ring; then write its number into the word. Was `SENT` there: wait for a moment only. After the
//!   wait, however it ended, take the number away again.
//! - *call*: first set `SENT`, by the step that says by which record the thread waits; then do what the thread is to find; then have
//!   it leave the ring, if there was a record (`ring.rs`).
//!
//! Both steps change one word, so one of the two comes first. Either the thread finds `SENT`, or who calls finds the record, which
//! is in a ring by then or was claimed. So **a thread that was called does not sleep on**: it is woken, or was notified, or looks again
//! after a moment, in which what it is to find may not be done yet.
//!
//! The word is touched once by who calls, before anything else is done: the thread may end, and the word with it, as soon as it can find
//! what it was called for. The record is there for ever; at worst it is another wait's by then, which ends for no reason.
//!
//! # Who breaks the rules
//! The functions here are safe, so they bear a summons by which two threads wait, or that is told of another one's record: the thread's steps
//! write the bits of `WAITS_BY` alone, whatever is there, and who calls looks whether there is a record of the number that it finds
//! (`Table::call_away`). At worst a wait ends for no reason, or one that should have ended goes on.
//!
//! Orderings: what was done before the thread is woken it learns by other means than these words (the ring's lock orders nothing with
//! who calls). The word's steps are acquire and release, as the number that is found leads to a record that was made ready before.

use nearq_platform::{Atomic, AtomicInt, ConstAtomic, Linux, LockPlatform, Ordering};

use crate::room::Room;

const WAITS_BY: u32 = 0xffff;
const SENT: u32 = 1 << 31;

/// By which others may end a thread's [waits](crate::RawCondvar::wait_unless_called): each thread has one of its own. Where two threads wait
/// by one, a call may end another wait than that of who should come, for no reason, or none.
#[derive(Debug)]
pub struct Summons<P: LockPlatform = Linux> {
    word: P::AtomicU32,
}

/// What a thread finds that begins to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) was_sent: bool,
    /// The record by which it waited already: in a signal handler it may wait within a wait.
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
    /// Which was not sent, on Linux.
    pub const fn new() -> Self {
        Summons { word: <<Linux as LockPlatform>::AtomicU32 as ConstAtomic>::ZERO }
    }
}

impl<P: LockPlatform> Summons<P> {
    /// Which was not sent, on any platform.
    pub fn new_in() -> Self {
        Summons { word: P::AtomicU32::new(0) }
    }

    /// From now on the thread does not wait for long. What it is to find may be done now; then it is to be [woken](Called::wake), for which
    /// neither the summons nor the thread need be there any more.
    pub fn send(&self) -> Called<P> {
        // Acquire: the record that is found was made ready. Release: pairs with the acquire in `wait_by`.
        let before = self.word.fetch_or(SENT, Ordering::AcqRel);
        Called { number: before & WAITS_BY, platform: core::marker::PhantomData }
    }

    /// Nobody has sent it. For the thread itself, where all others have vanished by a fork.
    pub fn renew(&self) {
        // Relaxed: nobody else is there.
        self.word.fetch_and(WAITS_BY, Ordering::Relaxed);
    }

    /// The record by which the caller, whose summons this is, waits now; for [`waits_again`](Self::waits_again).
    pub fn waits_by(&self) -> WaitsBy {
        // Relaxed: the caller's alone.
        WaitsBy(self.word.load(Ordering::Relaxed) & WAITS_BY)
    }

    /// The caller, whose summons this is, waits again by the record that [`waits_by`](Self::waits_by) returned. It has
    /// [left](crate::Stay::leave) the wait that it began since.
    pub fn waits_again(&self, by: WaitsBy) {
        // Relaxed: nothing is published by it.
        self.set(by.0, Ordering::Relaxed);
    }

    /// The caller, whose summons it is, waits by a record that is in a ring.
    pub(crate) fn wait_by(&self, number: u32) -> Answered {
        // Release: pairs with the acquire in `send`. Acquire: with the release there.
        let before = self.set(number, Ordering::AcqRel);
        Answered { was_sent: before & SENT != 0, outer: before & WAITS_BY }
    }

    /// It does not wait any more by the record that it began to wait by with that answer.
    pub(crate) fn wait_no_more(&self, answered: Answered) {
        // Relaxed: nothing is published by it.
        self.set(answered.outer, Ordering::Relaxed);
    }

    /// Writes a number, and returns the word before.
    fn set(&self, number: u32, order: Ordering) -> u32 {
        // Relaxed, both: decided by the step.
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
    /// Ends the wait that the thread was in when it was called, unless it was notified meanwhile.
    pub fn wake(self) {
        if self.number != 0 {
            Room::<P>::get().table.call_away(self.number);
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
    fn a_call_does_not_follow_a_number_that_no_record_has() {
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
    fn two_that_wait_by_one_summons_do_not_send_it() {
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
