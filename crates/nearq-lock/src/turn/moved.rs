//! Queueing up for a mutex on behalf of a thread that sleeps: one that waited for a condition and was notified (`raw_condvar.rs`). It does
//! not wake up to queue up; it wakes up when it has the turn.
//!
//! # Protocol
//! The record already says `ASLEEP` (`queue.rs`), and its owner waits without a deadline: only the thread before it in the queue ends that.
//! If the owner leaves by a jump instead (`stay.rs`), the record says `LEFT`, and the mover hands on the message that it would have sent.
//! The mover *joins* and *links* as the owner would have, in the domain where the owner fell asleep. If the record is in front, the mover
//! stands up for it, even if it finds that out only by linking. So the owner is only sent the turn, or the message to start over. All that
//! it must know besides is which queue it is in (`Record::slot`, written before the record joins). From there the owner *goes on* as if it
//! had queued up by itself.
//!
//! The record of an urgent thread is put into no queue (`raw_condvar.rs`): the thread is made to wait for the mutex without a queue, and
//! gives the record back.
//!
//! The mover touches the mutex's word until the record has joined, and a slot until it has stood up. The owner gets its message later and
//! will take the mutex, so the mutex exists until then. After that the record is the owner's.

use nearq_platform::{Atomic, LockPlatform, Ordering};

use super::{OVERTAKEN, Turn, Turns};
use crate::process_state::ProcessState;
use crate::queue::{ALONE, ANEW, FRONT, Received, TURN, Waking};
use crate::slot::Stood;
use crate::statistics::Event;
use crate::word::{NUMA, SLOT, TAIL, TAIL_SHIFT, slot};

impl<'a, P: LockPlatform> Turns<'a, P> {
    /// For a record that is queued up by a thread other than its owner, in the domain where the owner was when the record was prepared.
    pub(crate) fn of_record(
        word: &'a P::AtomicU32,
        process: &'a ProcessState<P>,
        number: u32,
    ) -> Self {
        // Relaxed: written before the caller was given the record's number.
        let domain = process.waiters.record(number).place.load(Ordering::Relaxed) as usize;
        Turns { domain, ..Turns::new(word, process) }
    }

    /// Queues up a record whose owner sleeps by it (`queue::ASLEEP`), and leaves it there. The thread that has the mutex before it wakes
    /// the owner when the owner has the turn, or must start over; the owner then [goes on](Self::go_on). So the mutex exists until then.
    pub(crate) fn queue_another_up(&self, number: u32) {
        let waiters = &self.process.waiters;
        let record = waiters.record(number);
        self.note(Event::Moved);
        let mut rounds = 0;
        loop {
            // This is done as in `queue_up`.
            if rounds == OVERTAKEN {
                self.reserve(self.load());
            }
            rounds += 1;
            let word = self.load();
            // Relaxed, here and below: ours alone; published by the step that joins.
            record.next.store(0, Ordering::Relaxed);
            if word & NUMA == 0 {
                record.slot.store(0, Ordering::Relaxed);
                if self.step(word, word & !TAIL | number << TAIL_SHIFT).is_err() {
                    continue;
                }
                match self.link_another(number, word >> TAIL_SHIFT) {
                    None => {}
                    Some(_) => self.send_to(number, TURN),
                }
                return;
            }
            let bound = self.process.slots.get(slot(word));
            let seen = bound.load_tail(self.domain);
            // Must come after the tail is read (see `slot.rs`).
            if (self.load() ^ word) & (NUMA | SLOT) != 0 {
                continue;
            }
            record.slot.store(slot(word), Ordering::Relaxed);
            let Some((before, tail)) = bound.join(self.domain, seen, number) else { continue };
            match self.link_another(number, before) {
                None => {}
                // Stands up for it: it sleeps on unless it has the turn.
                Some(FRONT) => match bound.stand_up(self.domain, number, &tail) {
                    Stood::Turn => {
                        record.since.store(0, Ordering::Relaxed);
                        self.send_to(number, TURN);
                    }
                    Stood::Wait => {}
                    Stood::Anew => self.send_to(number, ANEW),
                },
                Some(message) => self.send_to(number, message),
            }
            return;
        }
    }

    /// Links a record that has joined behind another one, or none (0). Returns the message if it is in front; what comes with the message
    /// is in the record, which is the caller's until it has sent its owner a message or stood up.
    fn link_another(&self, number: u32, before: u32) -> Option<u32> {
        if before != 0 {
            return self.process.waiters.link(number, before);
        }
        let record = self.process.waiters.record(number);
        // Relaxed for both: published by the message.
        record.passed.store(0, Ordering::Relaxed);
        record.since.store(0, Ordering::Relaxed);
        Some(FRONT)
    }

    /// Sends a message to the owner of a record that is in front. It is never `FRONT`, which would be in the way of the next message.
    fn send_to(&self, number: u32, message: u32) {
        let Turn { passed, since, .. } = self.turn(number);
        if !self.process.waiters.send(number, message, (passed, since), Waking::Now) {
            // The owner has left (`stay.rs`), and the record is ours.
            self.hand_on_unused(number, message);
        }
    }

    /// Continues to wait by a record that [another thread](Self::queue_another_up) has queued up or is about to, until the caller has the
    /// mutex; none if it must start over. In all cases the caller no longer has the record.
    pub(crate) fn go_on(&self, number: u32) -> Option<()> {
        let received =
            self.watch(number, None, |load_tail| self.process.waiters.wait_on(number, load_tail));
        let Received::Message(message) = received else {
            unreachable!("without a deadline it waits until it receives a message")
        };
        if message == ALONE {
            self.goes_on();
            self.process.waiters.give_back(number);
            return None;
        }
        // Relaxed: ordered by the message.
        let locked = match self.process.waiters.record(number).slot.load(Ordering::Relaxed) {
            0 => self.in_front_of_plain_queue(self.counted_turn(number), None),
            slot => {
                let bound = self.process.slots.get(slot);
                self.in_domain(bound, &bound.queue_of(self.domain), number, Some(message), None)?
            }
        };
        debug_assert!(locked, "without a deadline it waits until it has the mutex");
        Some(())
    }
}
