//! How a thread gives up waiting in a queue (`queue.rs`), so that records without a waiter do not pile up there.
//!
//! A queue is followed from its front to its end, so a thread that waits in it cannot take its record out: the record stays behind as
//! `LEFT`, until the turn reaches it. Without further measures, threads that come to a held lock again and again and wait for a short time
//! would each time leave a record behind, until the process has none left.
//!
//! # Protocol
//! A thread that gives up reads the record *ahead* of its own, which it noted in `before` when it joined. If no thread waits there any
//! more, it takes that record over, takes its own out, and gives up the one ahead instead; and so on.
//!
//! - *take over*: change the state of the one ahead from `LEFT` to a *claim*, which names the caller's record. If its `next` is the
//!   caller's record, it really is ahead of the caller: from the claim to `WAITING`. Otherwise `before` is out of date, and the claim is
//!   undone.
//! - *take out*: if a record has linked behind the caller's own, name that one in the `next` of the one ahead. If not, clear that `next`,
//!   and then write the one ahead into the tail, if the tail names the caller's record. If it does not, another record has joined and has
//!   not linked: everything is put back, and the caller's record stays, as one that has been left.
//!
//! # Why no thread is lost
//! - A thread that sends to a record treats a claim as `LEFT`, and has the record. Then the caller's step from the claim fails, and it has
//!   changed nothing. So no step waits for another thread's.
//! - Only the caller writes a claim with the number of its record. So if its step from the claim succeeds, the record has been in one queue
//!   all the time, and has received no message. Its `next` was cleared when it was made ready for that queue, so the record that is named
//!   there is in it.
//! - From then on the caller has both records, and its own gets no message: only the thread that takes the one ahead out sends it one, and
//!   that is the caller. So no other thread reads or writes the `next` of the one ahead, unless that one is last, which it becomes only
//!   after `next` was cleared.
//! - If the one ahead is sent a message in the meantime, the caller has its message when it gives up.
//!
//! The records that stay behind belong to threads that came earlier and left later than those behind them, so there are no more of them
//! than threads that waited at the same time. A record that a jump leaves behind (`stay.rs`) is taken out by the next thread behind it that
//! gives up.
//!
//! Orderings: a claim acquires what the thread that left has released; giving up releases what was changed; the tail's step releases the
//! cleared `next` to the thread that joins.

use nearq_platform::{Atomic, LockPlatform, Ordering};

use crate::queue::{CLAIMED, LEFT, Received, Tail, WAITING};
use crate::waiter_slab::WaiterSlab;

impl<P: LockPlatform> WaiterSlab<P> {
    /// Notes which record is ahead of the caller's, or that none is (0). Must be called before the caller links, if it may give up; other
    /// callers need not call it.
    pub(crate) fn is_behind(&self, number: u32, ahead: u32) {
        // Relaxed: a hint, for the owner; a thread that changes it later has found the link.
        self.record(number).before.store(ahead, Ordering::Relaxed);
    }

    /// The caller stops waiting by its record, at whatever point of the wait it is, and no longer has a record in the queue. If it received
    /// a message, it still has a record, which may be another one, and must pass the message on.
    pub(crate) fn withdraw(&self, number: &mut u32, tail: &impl Tail) -> Received {
        while let Some(ahead) = self.take_over(*number) {
            self.take_out(*number, ahead, tail);
            *number = ahead;
        }
        self.give_up(*number)
    }

    /// Takes over the record that is ahead of the caller's, if no thread waits by it.
    fn take_over(&self, number: u32) -> Option<u32> {
        // Relaxed for both: hints.
        let ahead = self.record(number).before.load(Ordering::Relaxed);
        if ahead == 0 || !self.owner_exists(ahead) {
            return None;
        }
        let (state, claim) = (&self.record(ahead).state, CLAIMED | number);
        // Acquire: pairs with the release of the thread that left it. Relaxed on failure: nothing is read.
        state.compare_exchange(LEFT, claim, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let is_ahead = self.behind(ahead) == Some(number);
        let to = if is_ahead { WAITING } else { LEFT };
        // Release: a thread that finds `LEFT` has the record. Relaxed on failure: the thread that sent to it has it.
        let step = state.compare_exchange(claim, to, Ordering::Release, Ordering::Relaxed);
        let taken = step.is_ok() && is_ahead;
        #[cfg(test)]
        if taken {
            crate::statistics::seen::note(crate::statistics::Event::TakenOver);
        }
        taken.then_some(ahead)
    }

    /// Takes the caller's record out of the queue; the one ahead is the caller's too.
    fn take_out(&self, number: u32, ahead: u32, tail: &impl Tail) {
        let (record, ahead_record) = (self.record(number), self.record(ahead));
        // Relaxed, here and below: the caller's alone; published when the one ahead is given up, or by the tail's step. It is in the same
        // queue.
        ahead_record.slot.store(record.slot.load(Ordering::Relaxed), Ordering::Relaxed);
        if let Some(next) = self.behind(number) {
            // A hint for that record.
            self.record(next).before.store(ahead, Ordering::Relaxed);
            ahead_record.next.store(next, Ordering::Relaxed);
            self.give_back(number);
            return;
        }
        ahead_record.next.store(0, Ordering::Relaxed);
        if tail.replace(number, ahead) {
            self.give_back(number);
            return;
        }
        ahead_record.next.store(number, Ordering::Relaxed);
        // Release: a thread that finds it has the record.
        record.state.store(LEFT, Ordering::Release);
        self.leave_behind(number);
    }
}
