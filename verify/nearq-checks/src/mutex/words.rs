//! `contend` of `turn.rs`, and the other steps on the word by the thread that has the turn.

use super::at::{After, At, Queue, Sleeper, Tail, Then};
use super::model::Acting;
use super::scenario::Mutant;
use super::state::{Message, RecordState, State, Wake};

impl State {
    /// Whether the thread behind a record, if it is linked, sleeps.
    pub(super) fn behind_asleep(&self, number: u8) -> bool {
        match self.records[usize::from(number) - 1].next {
            super::state::Next::Record(next) => {
                self.records[usize::from(next) - 1].state == RecordState::Asleep
            }
            _ => false,
        }
    }
}

impl Acting<'_> {
    /// No thread passes by this one any more: it has the mutex, or does not want it.
    fn is_not_kept_waiting(&mut self) {
        let (mutex, me) = (self.mutex(), self.me as u8 + 1);
        if self.state.reserved_by[mutex] == me {
            self.state.reserved_by[mutex] = 0;
        }
    }

    /// From now on no thread should pass by this one.
    fn is_kept_waiting(&mut self) {
        let (mutex, me) = (self.mutex(), self.me as u8 + 1);
        self.state.reserved_by[mutex] = me;
    }

    /// Removes `RESERVED`, which is not set for another thread.
    pub(super) fn take_reservation_away(&mut self) {
        let mutex = self.mutex();
        let reserved = core::mem::take(&mut self.word().reserved);
        self.state.robbed |= reserved && self.state.reserved_by[mutex] != 0;
    }

    /// The mutex is free: takes it, and removes `RESERVED`.
    pub(super) fn contend_take(&mut self, queue: Queue, bind: bool) {
        self.is_not_kept_waiting();
        let number = self.own();
        let word = self.word();
        (word.locked, word.reserved) = (true, false);
        let found = *word;
        self.holds();
        match queue {
            Queue::Plain if found.tail == number => {
                // The same step takes the only thread out of the queue.
                self.word().tail = 0;
                self.give_back(number);
                let slot = if found.numa { found.slot } else { 0 };
                self.plain_queue_is_empty(slot, Then::Hold);
            }
            Queue::Plain if bind => self.go(At::TakeSlot),
            Queue::Plain => self.leave_plain(After::PlainLocked),
            Queue::Domain { slot, generation } => {
                self.go(At::HandOn { slot, generation, then: Then::Hold });
            }
        }
    }

    pub(super) fn leave_plain(&mut self, after: After) {
        let number = self.own();
        self.go(At::StepOut { number, message: Message::Turn, tail: Tail::Plain, after });
    }

    /// The deadline has come for the thread that has the turn.
    pub(super) fn give_up_turn(&mut self, queue: Queue) {
        self.is_not_kept_waiting();
        match queue {
            Queue::Plain if self.is(Mutant::TurnNotHandedOn) => {
                self.thread().own = 0;
                self.finish();
            }
            Queue::Plain => self.leave_plain(After::PlainGaveUp),
            Queue::Domain { slot, generation } if self.is(Mutant::UnreservesLate) => {
                self.go(At::HandOn { slot, generation, then: Then::Unreserve });
            }
            Queue::Domain { slot, generation } => self.go(At::Unreserve { slot, generation }),
        }
    }

    /// `plain_queue_is_empty`: the slot that the word named then, or 0, has its turn from the plain queue.
    pub(super) fn plain_queue_is_empty(&mut self, slot: u8, then: Then) {
        if slot == 0 {
            self.end(then);
        } else {
            self.go(At::HandToDomains { slot, then });
        }
    }

    /// Wakes the thread behind, which sleeps.
    pub(super) fn rouse(&mut self, queue: Queue) {
        let number = self.own();
        if let super::state::Next::Record(next) = self.state.record(number).next {
            self.state.record(next).state = RecordState::Waiting;
            self.thread().wake = Some(Wake::Record(next));
        }
        self.go(At::Contend { queue, roused: true });
    }

    pub(super) fn reserve(&mut self, queue: Queue, roused: bool) {
        self.word().reserved = true;
        self.is_kept_waiting();
        self.go(At::Contend { queue, roused });
    }

    /// `queue_up`: the thread was overtaken too often.
    pub(super) fn ask_no_passing(&mut self) {
        self.word().reserved = true;
        self.thread().asked = true;
        self.go(At::QueueUp);
    }

    /// The step before sleeping on the word.
    pub(super) fn mark_asleep(&mut self, queue: Queue, roused: bool, crowded: bool) {
        let word = self.word();
        word.asleep = true;
        word.reserved &= !crowded;
        let expected = *word;
        if expected.reserved {
            self.is_kept_waiting();
        } else if crowded {
            self.is_not_kept_waiting();
        }
        self.go(At::SleepOnWord { expected, sleeper: Sleeper::Contender(queue, roused) });
    }

    /// A thread that gives up its turn does not keep the mutex reserved.
    pub(super) fn unreserve(&mut self, slot: u8, generation: u8) {
        self.take_reservation_away();
        self.go(At::HandOn { slot, generation, then: Then::GiveUp });
    }

    pub(super) fn unreserve_late(&mut self, empty: u8) {
        self.take_reservation_away();
        self.plain_queue_is_empty(empty, Then::GiveUp);
    }

    /// What follows `hand_to_domains`.
    pub(super) fn end(&mut self, then: Then) {
        match then {
            Then::Hold => self.go(At::Holding),
            Then::Unreserve => self.go(At::UnreserveLate { empty: 0 }),
            Then::GiveUp | Then::Dropped => self.finish(),
        }
    }
}
