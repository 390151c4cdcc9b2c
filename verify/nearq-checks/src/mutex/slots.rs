//! `slot.rs`, and what `turn.rs` does with slots: standing up, handing the turn on, binding and unbinding.

use super::at::{After, At, Queue, Tail, Then};
use super::model::Acting;
use super::scenario::Mutant;
use super::state::{DOMAINS, Fault, Message};

impl Acting<'_> {
    // ---- the turn --------------------------------------------------------------------------------------

    /// The thread in front of its domain's queue asks for the turn.
    pub(super) fn stand_up(&mut self, slot: u8, generation: u8) {
        let (here, number) = (self.here(), self.own());
        let there = self.state.slot(slot);
        if there.generation != generation {
            return self.begin_anew(slot, generation);
        }
        if !there.taken {
            there.taken = true;
            let queue = Queue::Domain { slot, generation };
            return self.go(At::Contend { queue, roused: false });
        }
        if there.standing[here] {
            self.state.faulty(Fault::TwoStandUp);
        }
        self.state.slot(slot).lines[here].front = number;
        self.go(At::SetBit { slot, generation });
    }

    /// The step of `stand_up` after `front` has been written.
    pub(super) fn set_bit(&mut self, slot: u8, generation: u8) {
        let (here, number) = (self.here(), self.own());
        let there = self.state.slot(slot);
        if there.generation != generation {
            let line = &mut there.lines[here];
            if line.front == number {
                // Without the bit, no thread reads it.
                line.front = 0;
            }
            return self.begin_anew(slot, generation);
        }
        let queue = Queue::Domain { slot, generation };
        if there.taken {
            there.standing[here] = true;
            self.go(At::WaitBy(queue));
        } else {
            there.taken = true;
            there.lines[here].front = 0;
            self.go(At::Contend { queue, roused: false });
        }
    }

    pub(super) fn take_if_quiet(&mut self, slot: u8) -> bool {
        let there = self.state.slot(slot);
        let quiet = !there.taken && !there.standing.contains(&true);
        there.taken |= quiet;
        quiet
    }

    /// The thread leaves the front of its domain's queue, and the turn stays in the domain.
    pub(super) fn hand_within(&mut self, slot: u8, generation: u8, then: Then) {
        self.leave_domain(slot, generation, Message::Turn, After::Within(slot, then));
    }

    /// Likewise, and the turn goes to another domain.
    pub(super) fn hand_across(&mut self, slot: u8, generation: u8, then: Then) {
        self.leave_domain(slot, generation, Message::Front, After::Across(slot, then));
    }

    fn leave_domain(&mut self, slot: u8, generation: u8, message: Message, after: After) {
        let (number, domain) = (self.own(), self.here() as u8);
        let tail = Tail::Line { slot, domain, generation };
        self.go(At::StepOut { number, message, tail, after });
    }

    pub(super) fn sit_behind(&mut self, slot: u8, behind: u8, then: Then) {
        let here = self.here();
        let there = self.state.slot(slot);
        let two = there.standing[here];
        there.lines[here].front = behind;
        there.standing[here] = true;
        if two {
            self.state.faulty(Fault::TwoStandUp);
        }
        self.go(At::HandToDomains { slot, then });
    }

    /// Clears a domain's bit, and sends a message to the thread that stands up there.
    fn send_to_front(&mut self, slot: u8, domain: u8, message: Message, after: After) {
        self.state.slot(slot).standing[usize::from(domain)] = false;
        self.go(At::ReadFront { slot, domain, message, after });
    }

    pub(super) fn read_front(&mut self, slot: u8, domain: u8, message: Message, after: After) {
        let there = self.state.slot(slot);
        let number = core::mem::take(&mut there.lines[usize::from(domain)].front);
        let tail = Tail::Line { slot, domain, generation: there.generation };
        if number == 0 {
            return self.state.faulty(Fault::NobodyStandsUp);
        }
        self.go(At::Tell { number, message, tail, after });
    }

    pub(super) fn give_away(&mut self, slot: u8, domain: u8, then: Then) {
        self.send_to_front(slot, domain, Message::Turn, After::Away(slot, then));
    }

    /// No thread stands up: the turn is free.
    pub(super) fn rest(&mut self, slot: u8, then: Then) {
        self.state.slot(slot).taken = false;
        self.end(then);
    }

    // ---- binding ---------------------------------------------------------------------------------------

    /// `bind_in_front`: queues up in front, if the queue is empty, and binds.
    pub(super) fn bind_in_front(&mut self, number: u8) {
        self.thread().asked = true;
        let word = *self.word();
        if word.numa || word.tail != 0 || !self.has_record(number) {
            return self.go(At::Holding);
        }
        // The record goes into the tail, ahead of any thread that comes later.
        self.join_plain();
        self.go(At::TakeSlot);
    }

    /// A slot to bind: the first free one.
    pub(super) fn take_slot(&mut self) {
        let mut all = 1..=self.scenario.slots;
        match all.find(|&number| !self.state.slot(number).used) {
            Some(slot) => {
                self.state.slot(slot).used = true;
                self.go(At::BindLine { slot, domain: 0 });
            }
            None => self.leave_plain(After::PlainLocked),
        }
    }

    /// The part of `bind` for one domain's queue, which must be empty.
    pub(super) fn bind_line(&mut self, slot: u8, domain: u8) {
        let blind = self.is(Mutant::BindOverSomebody);
        let leaves = self.is(Mutant::BindLeavesTails);
        let there = self.state.slot(slot);
        let line = &mut there.lines[usize::from(domain)];
        if line.last != 0 && !blind {
            there.used = false;
            return self.leave_plain(After::PlainLocked);
        }
        line.last = 0;
        if !leaves {
            line.generation = there.generation;
        }
        let next = domain + 1;
        self.go(if usize::from(next) < DOMAINS {
            At::BindLine { slot, domain: next }
        } else {
            At::BindTop { slot }
        });
    }

    pub(super) fn bind_top(&mut self, slot: u8) {
        let there = self.state.slot(slot);
        let ready = !there.taken && !there.standing.contains(&true);
        there.taken = true;
        if !ready {
            self.state.faulty(Fault::SlotNotReady);
        }
        self.go(At::BindWord { slot });
    }

    pub(super) fn bind_word(&mut self, slot: u8) {
        let word = self.word();
        (word.numa, word.slot) = (true, slot);
        self.leave_plain(After::PlainLocked);
    }

    // ---- unbinding -------------------------------------------------------------------------------------

    /// `unbind`: takes the number out of the word.
    pub(super) fn unbind_word(&mut self, slot: u8, then: Then) {
        let word = self.word();
        let named = word.numa && word.slot == slot;
        (word.numa, word.slot) = (false, 0);
        if !named {
            self.state.faulty(Fault::SlotNotHad);
        }
        self.go(At::UnbindTop { slot, then });
    }

    /// `unbind` of the slot: each thread that stands up starts over; when none is left, a new generation begins.
    pub(super) fn unbind_top(&mut self, slot: u8, then: Then) {
        let (deaf, same) = (self.is(Mutant::UnbindTellsNobody), self.is(Mutant::SameGeneration));
        let there = self.state.slot(slot);
        if let Some(domain) = there.standing.iter().position(|&standing| standing && !deaf) {
            return self.send_to_front(
                slot,
                domain as u8,
                Message::Anew,
                After::Unbind(slot, then),
            );
        }
        there.standing = [false; DOMAINS];
        there.taken = false;
        there.generation += u8::from(!same);
        self.go(At::FreeSlot { slot, then });
    }

    pub(super) fn free_slot(&mut self, slot: u8, then: Then) {
        let used = core::mem::replace(&mut self.state.slot(slot).used, false);
        if !used {
            self.state.faulty(Fault::SlotNotHad);
        }
        self.end(then);
    }
}
