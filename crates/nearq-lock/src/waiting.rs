//! How a thread waits for a mutex. The steps from 3 on are in `turn.rs`.
//!
//! The word and its bits are described in `raw.rs`, records and queues in `queue.rs`, the queues by domain in `slot.rs`.
//!
//! # The way of one that finds the mutex held
//! 1. *Look* at the word for a while, if nobody queues up: most critical sections are short.
//!    If more threads look already than there are CPUs for, let others run a few times first: the holder was preempted, probably.
//! 2. *Pass by*: if the word is free and not reserved, take it, although others may be waiting. A thread that runs now is
//!    faster than one that has to be woken; the order is kept by 5.
//! 3. *Queue up* by the thread's own record: in the plain queue, whose tail is in the word, or, while the word says `NUMA`, in
//!    the queue of the own domain. Wait by the record until it is our *turn*: look for a while if enough CPUs are left, then
//!    sleep.
//! 4. *Contend*: who has the turn, and nobody else, looks at the word, takes it when it is free, and otherwise sleeps on it.
//!    Before, it sees to it that the one behind is awake, so that waking that one does not cost the lock any time. In a domain's
//!    queue, if it sees that one thread takes the mutex again and again, it lets that one run for a few microseconds first.
//! 5. Who has had the turn for longer than the patience sets `RESERVED`: nobody passes by any more.
//! 6. Who has taken the mutex from its turn *hands the turn on*, while it holds the mutex, and leaves the queue. So a record is
//!    in one queue at a time, however many mutexes its thread holds, and unlocking has nothing to do with queues, but for this: if
//!    the next one sleeps, it is woken when the mutex is free. A wake-up takes longer than most critical sections, and those who
//!    came meanwhile would all queue up behind one that sleeps.
//!
//! A thread without a record (65535 others wait), one of a real-time class, and everybody in the mode `Off`, does not queue up but sleeps on
//! the word.
//! Such a thread takes the mutex as `ASLEEP`, as it cannot know whether it was the only one. `RESERVED` does not stop it: the mutex
//! may be kept for nobody, and one that has no turn that could come cannot sleep until a mutex is taken that is free. Where
//! everybody's mode is `Off` nobody has a turn, and nothing is kept from anybody; otherwise who has the turn may be passed by such
//! threads as often as there are some.
//!
//! # Threads of real-time classes
//! They do not look on while others run, and have no place in a queue: after the first look they sleep on the word, where the kernel wakes
//! the one of the highest priority first, and take the mutex as soon as it is free, also where it is `RESERVED` for an ordinary thread.
//! `try_lock` does not heed `RESERVED` for them either. To let others run would let nobody run that is less urgent, and takes from a
//! thread of `SCHED_DEADLINE` what is left of its period; and a place in the order of arrival would have the urgent wait for the patient.
//! It is asked at each wait, as others may change a thread's class at any time.
//!
//! # From the plain queue to queues by domain, and back
//! Who hands the turn of the plain queue on counts: hand-overs in a row, and those that went to another domain (`passed`,
//! which goes along with the turn). If enough went across, and two of those who wait are of one domain, it binds a slot
//! and sets `NUMA`, all while it holds the mutex. From then on nobody joins the plain queue, as the tail and `NUMA` are one
//! word. The turn stays in the plain queue until that is empty; it goes to the slot then. Nobody is stopped or moved.
//! Way back: the one who has the slot's turn and finds nobody to give it to unbinds the slot, if that happened often enough in
//! a row without another domain having waited; at once where slots are few (`room.rs`), also in the mode `Numa`.
//!
//! # Who has the turn
//! The plain queue has one turn, each bound slot has one. A mutex has one of them, but for the moments in which a slot is
//! being unbound and new waiters queue up in the plain queue already. Two that contend do no harm: `LOCKED` decides.
//!
//! # Who gives up
//! Who waits by its record leaves the record behind. Who has the turn hands it on. In the plain queue `RESERVED` stays for the one
//! behind; where nobody is, it goes by the step that clears the tail. In a domain it is taken away before the turn is handed on.
//! So nobody takes away what the next one has reserved.
//!
//! A mutex may be reserved without anybody whose turn it is: by a fair unlock when those who waited have just given up, or by one
//! that was overtaken while it queued up. It stays free for the next one that queues up, which finds itself in front, and for who
//! tries: a `try_lock` that finds a slot in such a word takes the slot's turn first, if nobody has it, and the mutex from there.

use core::time::Duration;

use nearq_platform::{Atomic, Instant, LockPlatform, Ordering, Wait};

use crate::room::Room;
use crate::settings::Mode;
use crate::statistics::Event;
use crate::stay::Stay;
use crate::turn::Turns;
use crate::word::{ASLEEP, LOCKED, NUMA, RESERVED, TAIL, TAIL_SHIFT};

/// How many looks at a held mutex before queueing up: as `std`'s mutex.
const FIRST_LOOKS: u32 = 100;

/// Who lets others run and comes back after so long has given a preempted holder its chance.
const LONG_YIELD: Duration = Duration::from_micros(100);

/// A mutex's word, and a thread that wants it.
pub(crate) struct Waiting<'a, P: LockPlatform> {
    word: &'a P::AtomicU32,
    /// Where the thread notes its station, if it may leave by a jump.
    stay: Option<&'a Stay<P>>,
}

impl<'a, P: LockPlatform> Waiting<'a, P> {
    #[inline]
    pub(crate) fn new(word: &'a P::AtomicU32) -> Self {
        Waiting { word, stay: None }
    }

    /// For a thread that notes its station in `stay`, if there is one.
    #[inline]
    pub(crate) fn staying(self, stay: Option<&'a Stay<P>>) -> Self {
        Waiting { stay, ..self }
    }

    fn load(&self) -> u32 {
        // Acquire: what the one who bound the slot did before is seen. Each decision is made by a step on the word.
        self.word.load(Ordering::Acquire)
    }

    /// A step of the word that takes the mutex.
    fn take(&self, from: u32, to: u32) -> bool {
        // Acquire: pairs with the release of the unlock.
        self.word.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the mutex as one who passes by, if it is free and not kept for somebody.
    pub(crate) fn try_lock(&self) -> bool {
        let mut word = self.load();
        loop {
            if word & LOCKED != 0 {
                return false;
            }
            if word & RESERVED != 0 && P::is_real_time() {
                // It stays reserved for the one whose turn it is, after us.
                if self.take(word, word | LOCKED) {
                    return true;
                }
            } else if word & RESERVED != 0 && Self::somebody_queues(word) {
                return false;
            } else if word & RESERVED != 0 && word & NUMA != 0 {
                // The word does not say whether somebody has the slot's turn.
                let turns = Turns::new(self.word, Room::<P>::get());
                if let Some(locked) = turns.try_reserved(word) {
                    return locked;
                }
            } else if self.take(word, (word | LOCKED) & !RESERVED) {
                // Reserved or not: without anybody in a queue it is nobody's turn.
                self.passed_by(word);
                return true;
            }
            word = self.load();
        }
    }

    /// Whether somebody is in the plain queue.
    fn somebody_queues(word: u32) -> bool {
        word & TAIL != 0 && Room::<P>::get().table.is_here(word >> TAIL_SHIFT)
    }

    /// The caller has taken the mutex, was in no queue, and found `word`.
    #[inline]
    fn passed_by(&self, word: u32) {
        if word & NUMA != 0 {
            Turns::new(self.word, Room::<P>::get()).passed_by(word);
        }
    }

    /// Waits for the mutex; false if the deadline came first.
    pub(crate) fn lock(&self, deadline: Option<Instant>) -> bool {
        let mut word = self.load();
        let mut turns_made = None;
        let make = || Turns::new(self.word, Room::<P>::get()).staying(self.stay);
        if word & !ASLEEP == LOCKED
            || word & (LOCKED | RESERVED | NUMA) == LOCKED
                && turns_made.get_or_insert_with(make).looks_although_others_wait()
        {
            P::wait_until_changed(self.word, word, FIRST_LOOKS);
            word = self.load();
        }
        let mut yields = 0;
        let mut urgent = None;
        loop {
            if word & (LOCKED | RESERVED) == 0 && self.take(word, word | LOCKED) {
                self.passed_by(word);
                return true;
            }
            let turns: &Turns<'_, P> = turns_made.get_or_insert_with(make);
            if *urgent.get_or_insert_with(|| turns.sees_urgent()) {
                turns.note(Event::Contended);
                turns.note(Event::Unqueued);
                return self.wait_without_queue(deadline);
            }
            let settings = turns.settings();
            // Where no CPU is left that could look, others in a queue are asleep: to join them leaves a CPU idle.
            if word & RESERVED != 0
                || word & (NUMA | TAIL) != 0 && !turns.is_crowded()
                || settings.mode == Mode::Off
                || yields == settings.yields
            {
                break;
            }
            // If the one who holds the mutex was preempted, it may be its turn now. One long pause is enough: others had the CPU, and
            // time goes by in which we are in no queue.
            let before = P::now();
            P::yield_now();
            if P::now() - before >= LONG_YIELD {
                yields = settings.yields - 1;
            }
            yields += 1;
            word = self.load();
        }
        let mut turns = turns_made.unwrap_or_else(make);
        turns.note(Event::Contended);
        loop {
            let off = turns.settings().mode == Mode::Off;
            let number =
                if off && self.load() & (NUMA | TAIL) == 0 { None } else { turns.take_record() };
            let Some(number) = number else {
                turns.note(Event::Unqueued);
                return self.wait_without_queue(deadline);
            };
            // Again if the slot was not the mutex's any more. With the settings of now: those of before may be why.
            match turns.queue_up(number, deadline) {
                Some(locked) => return locked,
                None => turns = make(),
            }
        }
    }

    /// Waits on for the mutex by a record by which the caller slept, and which another thread queues up
    /// (`Turns::queue_another_up`).
    pub(crate) fn go_on(&self, number: u32) {
        let turns = Turns::of_record(self.word, Room::<P>::get(), number).staying(self.stay);
        if turns.go_on(number).is_none() {
            self.lock(None);
        }
    }

    /// Binds a slot for a test, which holds the mutex.
    #[cfg(test)]
    pub(crate) fn bind_in_front(&self) -> bool {
        Turns::new(self.word, Room::<P>::get()).bind_in_front()
    }

    /// Says in the word that somebody is about to sleep on it.
    fn say_asleep(&self, word: u32) -> bool {
        // Relaxed: nothing is published by it; sleeping compares the word.
        let step =
            self.word.compare_exchange(word, word | ASLEEP, Ordering::Relaxed, Ordering::Relaxed);
        step.is_ok()
    }

    /// Waits without a place in a queue: sleeps on the word.
    #[cold]
    pub(crate) fn wait_without_queue(&self, deadline: Option<Instant>) -> bool {
        self.wait_without_queue_by(|_, value| P::wait(self.word, value, deadline))
    }

    /// Likewise; how it sleeps is the caller's affair. It may never come back from there: what is left behind is `ASLEEP`, which makes
    /// the next unlock wake nobody.
    pub(crate) fn wait_without_queue_by(
        &self,
        mut sleep: impl FnMut(*const P::AtomicU32, u32) -> Wait,
    ) -> bool {
        // Who has not slept has not been told of others.
        let mut take = LOCKED;
        loop {
            let word = self.load();
            if word & LOCKED == 0 {
                if self.take(word, word | take) {
                    return true;
                }
                continue;
            }
            if word & ASLEEP == 0 && !self.say_asleep(word) {
                continue;
            }
            if let Some(stay) = self.stay {
                stay.is_on_word(self.word);
            }
            let outcome = sleep(self.word, word | ASLEEP);
            if let Some(stay) = self.stay {
                stay.goes_on();
            }
            take = LOCKED | ASLEEP;
            if outcome == Wait::TimedOut {
                return false;
            }
            P::wait_until_changed(self.word, LOCKED | ASLEEP, FIRST_LOOKS);
        }
    }
}

#[cfg(test)]
mod tests;
