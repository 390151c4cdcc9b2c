//! `queue_up` of `turn.rs`, and `queue.rs`: joining, waiting by a record, leaving a front and sending a message to the thread behind.

use super::at::{After, At, Queue, Tail, Then};
use super::model::Acting;
use super::scenario::Mutant;
use super::state::{Fault, Line, Message, Next, Record, RecordState, Wake};

impl Acting<'_> {
    // ---- records ---------------------------------------------------------------------------------------

    /// `prepare`, and a check that nothing leads to the record any more.
    fn prepare(&mut self, number: u8) {
        let named = |line: &Line| line.last == number;
        let reached = self.state.words.iter().any(|word| word.tail == number)
            || self.state.slots.iter().any(|slot| slot.lines.iter().any(named))
            || self.state.records.iter().any(|record| record.next == Next::Record(number));
        if reached {
            self.state.faulty(Fault::RecordStillReached);
        }
        *self.state.record(number) = Record { used: true, ..Record::default() };
    }

    /// `give_back`, and `free` if the record is another thread's: no thread can reach it any more.
    pub(super) fn give_back(&mut self, number: u8) {
        if !self.state.record(number).used {
            self.state.faulty(Fault::RecordFreedTwice);
        }
        let used = number == self.own();
        *self.state.record(number) = Record { used, ..Record::default() };
    }

    // ---- joining ---------------------------------------------------------------------------------------

    /// The step that puts the record into the word's tail.
    pub(super) fn join_plain(&mut self) {
        let number = self.own();
        self.prepare(number);
        let before = core::mem::replace(&mut self.word().tail, number);
        self.go(match before {
            0 => At::Contend { queue: Queue::Plain, roused: false },
            before => At::Link { before, queue: Queue::Plain },
        });
    }

    pub(super) fn look(&mut self, slot: u8) {
        let here = self.here();
        // `front` is not part of the tail.
        let seen = Line { front: 0, ..self.state.slot(slot).lines[here] };
        self.go(if self.is(Mutant::NoLookAgain) {
            At::Join { slot, seen }
        } else {
            At::LookAgain { slot, seen }
        });
    }

    pub(super) fn reread_machine(&mut self, slot: u8, seen: Line) {
        let word = *self.word();
        self.go(if word.numa && word.slot == slot { At::Join { slot, seen } } else { At::QueueUp });
    }

    pub(super) fn join(&mut self, slot: u8, seen: Line) {
        let (here, number) = (self.here(), self.own());
        let line = self.state.slot(slot).lines[here];
        if (line.generation, line.last) != (seen.generation, seen.last) {
            return self.go(At::QueueUp);
        }
        self.prepare(number);
        self.state.slot(slot).lines[here].last = number;
        let generation = seen.generation;
        self.go(match seen.last {
            0 => At::StandUp { slot, generation },
            before => At::Link { before, queue: Queue::Domain { slot, generation } },
        });
    }

    pub(super) fn link(&mut self, before: u8, queue: Queue) {
        let number = self.own();
        let found = core::mem::replace(&mut self.state.record(before).next, Next::Record(number));
        match found {
            Next::Gone(message) if !self.is(Mutant::LinkSeesNoGone) => {
                self.give_back(before);
                self.receive(queue, message);
            }
            _ => self.go(At::WaitBy(queue)),
        }
    }

    // ---- waiting ---------------------------------------------------------------------------------------

    /// What a thread does after it has received a message.
    fn receive(&mut self, queue: Queue, message: Message) {
        let at = match (queue, message) {
            (Queue::Domain { slot, generation }, Message::Front) => {
                At::StandUp { slot, generation }
            }
            (Queue::Domain { slot, generation }, Message::Anew) => {
                return self.begin_anew(slot, generation);
            }
            _ => At::Contend { queue, roused: false },
        };
        self.go(at);
    }

    pub(super) fn begin_anew(&mut self, slot: u8, generation: u8) {
        let (number, domain) = (self.own(), self.here() as u8);
        let tail = Tail::Line { slot, domain, generation };
        self.go(At::StepOut { number, message: Message::Anew, tail, after: After::Anew });
    }

    /// From awake to asleep, unless it has received a message.
    pub(super) fn wait_by(&mut self, queue: Queue) {
        let number = self.own();
        let record = self.state.record(number);
        match record.state {
            RecordState::Sent(message) => self.receive(queue, message),
            _ => {
                record.state = RecordState::Asleep;
                self.go(At::SleepBy(queue));
            }
        }
    }

    /// `P::wait` on the record.
    pub(super) fn sleep_by(&mut self, queue: Queue) {
        let number = self.own();
        let asleep = self.state.record(number).state == RecordState::Asleep;
        self.go(if asleep { At::AsleepBy(queue) } else { At::Awake { queue, late: false } });
    }

    /// Checks the record after sleeping; if the deadline has come, goes from asleep to having left.
    pub(super) fn awake(&mut self, queue: Queue, late: bool) {
        let number = self.own();
        let by_store = self.is(Mutant::LeftByStore);
        let record = self.state.record(number);
        match record.state {
            _ if late && by_store => {}
            RecordState::Sent(message) => return self.receive(queue, message),
            RecordState::Asleep if late => {}
            RecordState::Asleep => return self.go(At::SleepBy(queue)),
            _ => return self.go(At::WaitBy(queue)),
        }
        record.state = RecordState::Left;
        // `leave_behind`: it belongs to the thread that takes it out of the queue.
        self.thread().own = 0;
        self.finish();
    }

    // ---- leaving ---------------------------------------------------------------------------------------

    /// Takes a record that is in front out of its queue. Behind it may be a thread, none, or one that has not linked
    /// yet.
    pub(super) fn step_out(&mut self, number: u8, message: Message, tail: Tail, after: After) {
        if let Next::Record(next) = self.state.record(number).next {
            self.give_back(number);
            return self.find_behind(next, message, tail, after);
        }
        self.go(At::ClearTail { number, message, tail, after });
    }

    /// No thread has linked: `Tail::clear`.
    pub(super) fn clear_tail(&mut self, number: u8, message: Message, tail: Tail, after: After) {
        let clears = self.is(Mutant::StepOutSeesNoJoiner);
        let (nobody, cleared) = match tail {
            Tail::Plain => {
                let late = self.is(Mutant::UnreservesLate);
                let word = self.word();
                let ours = word.tail == number || clears;
                let slot = if word.numa { word.slot } else { 0 };
                if ours {
                    word.tail = 0;
                    // The same step does this.
                    if after == After::PlainGaveUp && !late {
                        self.take_reservation_away();
                    }
                }
                (ours, slot)
            }
            Tail::Line { slot, domain, generation } => {
                let line = &mut self.state.slot(slot).lines[usize::from(domain)];
                let ours = (line.generation, line.last) == (generation, number) || clears;
                if ours {
                    line.last = 0;
                }
                (ours, 0)
            }
        };
        if nobody {
            self.give_back(number);
            self.told_nobody(cleared, after);
        } else {
            self.go(At::SwapGone { number, message, tail, after });
        }
    }

    /// A thread has joined: leaves the message for it, unless it has linked by now.
    pub(super) fn swap_gone(&mut self, number: u8, message: Message, tail: Tail, after: After) {
        if let Next::Record(next) = self.state.record(number).next {
            self.give_back(number);
            return self.find_behind(next, message, tail, after);
        }
        self.state.record(number).next = Next::Gone(message);
        if self.own() == number {
            // `leave_behind`.
            self.thread().own = 0;
        }
        self.told(after);
    }

    /// A thread is behind: it is sent the message, or, with `leave_front_quietly`, stays behind.
    fn find_behind(&mut self, next: u8, message: Message, tail: Tail, after: After) {
        self.go(match after {
            After::Across(slot, then) => At::SitBehind { slot, behind: next, then },
            _ => At::Tell { number: next, message, tail, after },
        });
    }

    pub(super) fn send(&mut self, number: u8, message: Message, tail: Tail, after: After) {
        let record = self.state.record(number);
        let before = core::mem::replace(&mut record.state, RecordState::Sent(message));
        if !record.used || matches!(before, RecordState::Sent(_)) {
            self.state.faulty(Fault::RecordSentToTwice);
        }
        if before == RecordState::Left {
            // No thread waits by that record: it is treated as ours.
            return self.go(At::StepOut { number, message, tail, after });
        }
        if before == RecordState::Asleep {
            let thread = self.thread();
            let later = thread.holds && message == Message::Turn;
            if later && thread.own != 0 && thread.wakes_later == 0 {
                thread.wakes_later = number;
            } else {
                thread.wake = Some(Wake::Record(number));
            }
        }
        self.told(after);
    }

    /// `Recipient::Record` or `Recipient::Joiner`.
    fn told(&mut self, after: After) {
        match after {
            After::PlainLocked => self.go(At::Holding),
            After::PlainGaveUp => self.finish(),
            After::Anew => self.go(At::TakeRecord),
            After::Within(_, then) | After::Away(_, then) => self.end(then),
            After::Across(slot, then) => self.go(At::HandToDomains { slot, then }),
            After::Unbind(slot, then) => self.go(At::UnbindTop { slot, then }),
        }
    }

    /// `Recipient::None`; the plain queue's tail was cleared in a word that names this slot, or 0.
    fn told_nobody(&mut self, cleared: u8, after: After) {
        match after {
            After::PlainLocked => self.plain_queue_is_empty(cleared, Then::Hold),
            After::PlainGaveUp if self.is(Mutant::UnreservesLate) => {
                self.go(At::UnreserveLate { empty: cleared });
            }
            After::PlainGaveUp => self.plain_queue_is_empty(cleared, Then::GiveUp),
            After::Anew => self.go(At::TakeRecord),
            After::Within(slot, then) | After::Across(slot, then) | After::Away(slot, then) => {
                self.go(At::HandToDomains { slot, then });
            }
            After::Unbind(slot, then) => self.go(At::UnbindTop { slot, then }),
        }
    }
}
