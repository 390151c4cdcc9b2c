//! `raw_mutex.rs` and `waiting.rs`: taking the mutex without a turn, waiting without a queue, and releasing the mutex.

use super::at::{At, Sleeper, Then};
use super::model::Acting;
use super::scenario::{Mode, Mutant};
use super::state::{Wake, Word};

impl Acting<'_> {
    /// A step of the word that takes the mutex, for a thread that does not have the turn. Returns the word as
    /// it was.
    fn take_in_passing(&mut self, asleep: bool) -> Word {
        let mutex = self.mutex();
        let found = *self.word();
        if self.state.reserved_by[mutex] != 0 {
            self.state.ignored |= found.reserved;
            self.state.passed |= !found.reserved;
        }
        let word = self.word();
        word.locked = true;
        word.asleep |= asleep;
        self.holds();
        found
    }

    /// The thread has taken the mutex.
    pub(super) fn holds(&mut self) {
        let thread = self.thread();
        (thread.holds, thread.asked) = (true, false);
    }

    /// `lock`, `try_lock` and `queue_up`, if the mutex is free.
    pub(super) fn take(&mut self) {
        if self.is(Mutant::TakeInTwoSteps) && self.state.threads[self.me].at == At::Between {
            return self.go(At::StoreLocked);
        }
        let found = self.take_in_passing(false);
        // The mutex is reserved for no thread: `try_lock` takes it anyway.
        self.word().reserved &= self.is(Mutant::ReservedIgnored);
        self.find_passing_threads(found);
    }

    pub(super) fn store_locked(&mut self) {
        let found = self.take_in_passing(false);
        self.find_passing_threads(found);
    }

    /// The check in `Waiting::passed_by`.
    fn find_passing_threads(&mut self, found: Word) {
        let in_slot = found.numa && found.tail == 0;
        self.go(if in_slot { At::PassedBy(found.slot) } else { At::Holding });
    }

    /// `Turns::passed_by`: takes the turn of a slot if no thread has it.
    pub(super) fn passed_by(&mut self, slot: u8) {
        if self.take_if_quiet(slot) {
            self.go(At::HandToDomains { slot, then: Then::Hold });
        } else {
            self.go(At::Holding);
        }
    }

    /// `try_reserved`, for a reserved mutex that is free: `quiet_top`.
    pub(super) fn try_quiet(&mut self, seen: Word) {
        let there = *self.state.slot(seen.slot);
        if there.taken || there.standing.contains(&true) {
            self.finish();
        } else {
            self.go(At::TryLookAgain { seen, generation: there.generation });
        }
    }

    pub(super) fn try_look_again(&mut self, seen: Word, generation: u8) {
        let same = *self.word() == seen || self.is(Mutant::TryTrustsOldLook);
        let slot = seen.slot;
        self.go(match same {
            true if self.is(Mutant::TryWithoutTurn) => At::TryTake { slot },
            true => At::TryTurn { slot, generation },
            false => At::Between,
        });
    }

    pub(super) fn try_turn(&mut self, slot: u8, generation: u8) {
        let same = self.state.slot(slot).generation == generation;
        let taken = same && self.take_if_quiet(slot);
        self.go(if taken { At::TryTake { slot } } else { At::Between });
    }

    /// The thread has the turn.
    pub(super) fn try_take(&mut self, slot: u8) {
        let free = !self.word().locked;
        if free {
            self.take_reservation_away();
            self.word().locked = true;
            self.holds();
        }
        let then = if free { Then::Hold } else { Then::GiveUp };
        if !self.is(Mutant::TryWithoutTurn) {
            self.go(At::HandToDomains { slot, then });
        } else if free {
            self.go(At::Holding);
        } else {
            self.finish();
        }
    }

    /// The mutex is held, or reserved for a thread. In the mode `Off` it is checked once more.
    pub(super) fn find_held(&mut self, number: u8) {
        if self.is_off() {
            self.go(At::TakeRecord);
        } else {
            self.take_record(number);
        }
    }

    fn is_off(&self) -> bool {
        self.scenario.script(&self.state.threads[self.me]).mode == Mode::Off
    }

    /// Takes a record, if there is one and the mode uses queues.
    pub(super) fn take_record(&mut self, number: u8) {
        let word = *self.word();
        if self.is_off() && !word.numa && word.tail == 0 || !self.has_record(number) {
            return self.go(At::WithoutQueue { slept: false });
        }
        self.thread().asked = false;
        self.wake_deferred();
        self.go(At::QueueUp);
    }

    /// `WaiterSlab::take`: takes the thread's own record, or this one, which no thread has. Returns whether there is one.
    pub(super) fn has_record(&mut self, number: u8) -> bool {
        if self.own() == 0 && number != 0 {
            self.state.record(number).used = true;
            self.thread().own = number;
        }
        self.own() != 0
    }

    pub(super) fn wait_without_queue(&mut self, slept: bool) {
        if !self.word().locked {
            self.take_in_passing(slept);
            return self.go(At::Holding);
        }
        self.word().asleep = true;
        let expected = *self.word();
        self.go(At::SleepOnWord { expected, sleeper: Sleeper::WithoutQueue });
    }

    /// `P::wait` on the word.
    pub(super) fn sleep_on_word(&mut self, expected: Word, sleeper: Sleeper) {
        if *self.word() == expected {
            let mutex = self.mutex() as u8;
            self.go(At::AsleepOnWord { mutex, sleeper });
        } else {
            self.rise(self.me, sleeper);
        }
    }

    /// A thread that has slept on the word reads it again.
    fn rise(&mut self, who: usize, sleeper: Sleeper) {
        self.state.threads[who].at = match sleeper {
            Sleeper::WithoutQueue => At::WithoutQueue { slept: true },
            Sleeper::Contender(queue, roused) => At::Contend { queue, roused },
        };
    }

    pub(super) fn unlock(&mut self, keep: bool) {
        let mutex = self.mutex() as u8;
        let found = *self.word();
        let forgets = self.is(Mutant::UnlockForgetsReserved);
        let word = self.word();
        (word.locked, word.asleep) = (false, false);
        word.reserved = keep || found.reserved && !forgets;
        if found.asleep && !self.is(Mutant::UnlockForgetsWake) {
            let no_queue = found.tail == 0 && !found.numa || self.is(Mutant::UnlockWakesOne);
            let wake = if no_queue { Wake::One(mutex) } else { Wake::All(mutex) };
            self.thread().wake = Some(wake);
        }
        if (found.tail != 0 || found.numa) && !self.is(Mutant::UnlockForgetsDeferredWake) {
            self.wake_deferred();
        }
        self.finish();
    }

    pub(super) fn unlock_fair(&mut self) {
        let word = *self.word();
        self.go(match word {
            Word { tail: 1.., .. } => At::Unlock { keep: true },
            Word { numa: true, slot, .. } => At::FairQuiet(slot),
            _ => At::Unlock { keep: false },
        });
    }

    pub(super) fn fair_quiet(&mut self, slot: u8) {
        let keep = self.state.slot(slot).taken;
        self.go(At::Unlock { keep });
    }

    /// `wake_deferred`, which comes after the wake-ups that are already due.
    fn wake_deferred(&mut self) {
        let thread = self.thread();
        let number = core::mem::take(&mut thread.wakes_later);
        match thread.wake {
            _ if number == 0 => {}
            None => thread.wake = Some(Wake::Record(number)),
            Some(_) => thread.wakes_then = number,
        }
    }

    /// What the thread does after it has woken all threads that it must wake.
    fn wake_next(&mut self) {
        let thread = self.thread();
        let number = core::mem::take(&mut thread.wakes_then);
        thread.wake = (number != 0).then_some(Wake::Record(number));
    }

    /// `P::wake`, apart from which thread is chosen.
    pub(super) fn wake(&mut self) {
        match self.thread().wake.take() {
            Some(Wake::All(mutex)) => {
                let sleepers: Vec<usize> = self.state.sleepers(mutex).collect();
                for who in sleepers {
                    self.wake_from_word(who);
                }
            }
            Some(Wake::Record(number)) => {
                for thread in &mut self.state.threads {
                    if let At::AsleepBy(queue) = thread.at
                        && thread.own == number
                    {
                        thread.at = At::Awake { queue, late: false };
                    }
                }
            }
            Some(Wake::One(_)) | None => {}
        }
        self.wake_next();
    }

    pub(super) fn wake_one(&mut self, who: u8) {
        self.wake_next();
        self.wake_from_word(usize::from(who));
    }

    fn wake_from_word(&mut self, who: usize) {
        if let At::AsleepOnWord { sleeper, .. } = self.state.threads[who].at {
            self.rise(who, sleeper);
        }
    }

    /// Sleeping may end without a wake-up.
    pub(super) fn wake_for_no_reason(&mut self, at: At) {
        self.thread().spurious -= 1;
        match at {
            At::AsleepOnWord { sleeper, .. } => self.rise(self.me, sleeper),
            At::AsleepBy(queue) => self.go(At::Awake { queue, late: false }),
            at => unreachable!("nobody sleeps at {at:?}"),
        }
    }

    /// `RawMutex::drop`, by the only thread that still has the mutex.
    pub(super) fn drop_mutex(&mut self) {
        let mutex = self.mutex();
        self.state.dropped[mutex] = true;
        let slot = self.state.words[mutex].slot;
        if slot == 0 {
            self.finish();
        } else {
            self.state.words[mutex] = Word::default();
            self.go(At::UnbindTop { slot, then: Then::Dropped });
        }
    }
}
