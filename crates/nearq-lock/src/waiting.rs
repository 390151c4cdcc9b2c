//! How a thread waits for a mutex. The steps from 3 on are in `turn.rs`.
//!
//! The word and its bits are described in `raw_mutex.rs`, records and queues in `queue.rs`, the queues by domain in `slot.rs`.
//!
//! # The path of a thread that finds the mutex held
//! 1. *Spin* on the word for a while, if no thread queues up: most critical sections are short. If more threads already spin than there are
//!    CPUs for, let other threads run a few times first: the holder was probably preempted.
//! 2. *Pass by*: if the word is free and not reserved, take it, although other threads may be waiting. A thread that runs now is faster
//!    than one that has to be woken; step 5 keeps the order.
//! 3. *Queue up* by the thread's own record: in the plain queue, whose tail is in the word, or, while the word says `NUMA`, in the queue of
//!    the thread's domain. Wait by the record until the thread has the *turn*: spin for a while if enough CPUs are left, then sleep.
//! 4. *Contend*: the thread that has the turn, and no other, reads the word, takes it when it is free, and otherwise sleeps on it. First,
//!    it ensures that the thread behind it is awake, so that waking that thread does not cost the lock any time. In a domain's queue, if it
//!    sees that one thread takes the mutex again and again, it lets that thread run for a few microseconds first.
//! 5. A thread that has had the turn for longer than the patience sets `RESERVED`: no thread passes by any more.
//! 6. A thread that has taken the mutex from its turn *hands the turn on*, while it holds the mutex, and leaves the queue. So a record is
//!    in one queue at a time, however many mutexes its thread holds, and unlocking does not involve queues, with one exception: if the next
//!    thread sleeps, it is woken when the mutex is free. A wake-up takes longer than most critical sections, and the threads that came in
//!    the meantime would all queue up behind one that sleeps.
//!
//! A thread without a record (65535 others wait), a thread of a real-time class, and every thread in the mode `Off` does not queue up but
//! sleeps on the word. Such a thread takes the mutex with `ASLEEP` set, as it cannot know whether it was the only sleeper. `RESERVED` does
//! not stop it: the mutex may be reserved for no thread, and a thread that will never have a turn cannot sleep until a free mutex is taken.
//! If every thread's mode is `Off`, no thread has a turn, and the mutex is kept from none. Otherwise such threads may overtake the thread
//! that has the turn any number of times.
//!
//! # Threads of real-time classes
//! They do not yield to other threads, and have no place in a queue. After the first spin they sleep on the word, where the kernel wakes
//! the one of the highest priority first. They take the mutex as soon as it is free, even if it is `RESERVED` for an ordinary thread.
//! `try_lock` ignores `RESERVED` for them too. Yielding would not let a less urgent thread run, and takes from a thread of `SCHED_DEADLINE`
//! what is left of its period; and a place in the order of arrival would make urgent threads wait for less urgent ones. The class is
//! queried at each wait, as other threads may change it at any time.
//!
//! # From the plain queue to queues by domain, and back
//! The thread that hands on the turn of the plain queue counts: hand-overs in a row, and those that went to another domain (`passed`, which
//! is passed on with the turn). If enough went to another domain, and the waiters would make batches there (`turn/counting.rs`), it binds a
//! slot and sets `NUMA`, all while it holds the mutex. From then on no thread joins the plain queue, as the tail and `NUMA` are in one
//! word. The turn stays in the plain queue until that is empty, then it goes to the slot. No thread is stopped or moved on
//! this way. The way back: a
//! thread that has the slot's turn and finds no thread to give it to unbinds the slot, if that happened often enough in a row without
//! another domain having waited; it does so at once if slots are few (`process_state.rs`), even in the mode `Numa`. And if batches often
//! end because no thread of the domain is left, it unbinds the slot although threads wait, for a trial (`Turns::end_batch`).
//!
//! # Which threads are awake
//! A thread that has the turn ensures that the one behind it is awake. Threads of a domain wait for longer than that, as long as the turn is
//! away, and then all of them have the turn in short succession. A wake-up takes as long as ten hand-overs. So if the turn comes back soon,
//! they spin for longer; and when the turn comes to a domain, it rouses the first thread of the domain that has it after the next one, and
//! each thread that is roused there rouses the next two.
//!
//! # Which thread has the turn
//! The plain queue has one turn, and each bound slot has one. A mutex has one of these, except in the moments in which a slot is being
//! unbound and new waiters already queue up in the plain queue. Two threads that contend do no harm: `LOCKED` decides.
//!
//! # Threads that give up
//! A thread that waits by its record leaves the record behind. A thread that has the turn hands it on. In the plain queue, `RESERVED` stays
//! for the thread behind; if there is none, the step that clears the tail removes it. In a domain, it is removed before the turn is handed
//! on. So no thread removes what the next one has reserved.
//!
//! A mutex may be reserved although no thread has the turn: by a fair unlock when the waiters have just given up, or by a thread that was
//! overtaken while it queued up. It is then open to the next thread that queues up, which finds itself in front, and to a thread that
//! tries: a `try_lock` that finds a slot in such a word first takes the slot's turn, if no thread has it, and then the mutex.

use nearq_platform::{Atomic, Instant, LockPlatform, Ordering, Wait};

use crate::process_state::ProcessState;
use crate::settings::Mode;
use crate::statistics::Event;
use crate::stay::Stay;
use crate::turn::Turns;
use crate::word::{ASLEEP, LOCKED, NUMA, RESERVED, TAIL, TAIL_SHIFT};
use crate::yields::yield_once;

/// How many times to read a held mutex's word before queueing up: as `std`'s mutex.
const FIRST_READS: u32 = 100;

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
        // Acquire: sees what the thread that bound the slot did before. Each decision is made by a step on the word.
        self.word.load(Ordering::Acquire)
    }

    /// Changes the word so that the mutex is taken.
    fn take(&self, from: u32, to: u32) -> bool {
        // Acquire: pairs with the release of the unlock.
        self.word.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the mutex by passing by, if it is free and not reserved for another thread.
    pub(crate) fn try_lock(&self) -> bool {
        let mut word = self.load();
        loop {
            if word & LOCKED != 0 {
                return false;
            }
            if word & RESERVED != 0 && P::is_real_time() {
                // It stays reserved for the thread that has the turn, which is next.
                if self.take(word, word | LOCKED) {
                    return true;
                }
            } else if word & RESERVED != 0 && Self::somebody_queues(word) {
                return false;
            } else if word & RESERVED != 0 && word & NUMA != 0 {
                // The word does not say whether a thread has the slot's turn.
                let turns = Turns::new(self.word, ProcessState::<P>::get());
                if let Some(locked) = turns.try_reserved(word) {
                    return locked;
                }
            } else if self.take(word, (word | LOCKED) & !RESERVED) {
                // Reserved or not: if no thread is in a queue, no thread has the turn.
                self.passed_by(word);
                return true;
            }
            word = self.load();
        }
    }

    /// Whether a thread is in the plain queue.
    fn somebody_queues(word: u32) -> bool {
        word & TAIL != 0 && ProcessState::<P>::get().waiters.owner_exists(word >> TAIL_SHIFT)
    }

    /// The caller has taken the mutex, was in no queue, and found `word`.
    #[inline]
    fn passed_by(&self, word: u32) {
        if word & NUMA != 0 {
            Turns::new(self.word, ProcessState::<P>::get()).passed_by(word);
        }
    }

    /// Waits for the mutex; false if the deadline came first.
    pub(crate) fn lock(&self, deadline: Option<Instant>) -> bool {
        let mut word = self.load();
        let mut turns_made = None;
        let make = || Turns::new(self.word, ProcessState::<P>::get()).staying(self.stay);
        if word & !ASLEEP == LOCKED
            || word & (LOCKED | RESERVED | NUMA) == LOCKED
                && turns_made.get_or_insert_with(make).reads_word_despite_waiters()
        {
            P::wait_until_changed(self.word, word, FIRST_READS);
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
            if *urgent.get_or_insert_with(|| turns.check_urgency()) {
                turns.note(Event::Contended);
                turns.note(Event::Unqueued);
                return self.wait_without_queue(deadline);
            }
            let settings = turns.settings();
            // If no CPU is left for spinning, the other threads in a queue are asleep: joining them would leave a CPU idle.
            if word & RESERVED != 0
                || word & (NUMA | TAIL) != 0 && !turns.is_crowded()
                || settings.mode == Mode::Off
                || yields == settings.yields
            {
                break;
            }
            // If the thread that holds the mutex was preempted, it may run now. Meanwhile this thread is in no queue.
            yields = yield_once::<P>(yields, settings.yields);
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
            // Repeats if the slot was no longer the mutex's. Uses the current settings: the earlier ones may have been the reason.
            match turns.queue_up(number, deadline) {
                Some(locked) => return locked,
                None => turns = make().starting_over(&turns),
            }
        }
    }

    /// Continues to wait for the mutex by a record by which the caller slept, and which another thread queues up
    /// (`Turns::queue_another_up`).
    pub(crate) fn go_on(&self, number: u32) {
        let turns =
            Turns::of_record(self.word, ProcessState::<P>::get(), number).staying(self.stay);
        if turns.go_on(number).is_none() {
            self.lock(None);
        }
    }

    /// Binds a slot for a test, which holds the mutex.
    #[cfg(test)]
    pub(crate) fn bind_in_front(&self) -> bool {
        Turns::new(self.word, ProcessState::<P>::get()).bind_in_front()
    }

    /// Notes in the word that a thread is about to sleep on it.
    fn mark_asleep(&self, word: u32) -> bool {
        // Relaxed: nothing is published by it; the sleep compares the word.
        let step =
            self.word.compare_exchange(word, word | ASLEEP, Ordering::Relaxed, Ordering::Relaxed);
        step.is_ok()
    }

    /// Waits without a place in a queue: sleeps on the word.
    #[cold]
    pub(crate) fn wait_without_queue(&self, deadline: Option<Instant>) -> bool {
        self.wait_without_queue_by(|_, value| P::wait(self.word, value, deadline))
    }

    /// Likewise; the caller decides how it sleeps. It may never return from the sleep: then it leaves `ASLEEP` behind, for which the next
    /// unlock makes a wake-up that wakes no thread.
    pub(crate) fn wait_without_queue_by(
        &self,
        mut sleep: impl FnMut(*const P::AtomicU32, u32) -> Wait,
    ) -> bool {
        // A thread that has not slept need not restore `ASLEEP` for other sleepers.
        let mut take = LOCKED;
        loop {
            let word = self.load();
            if word & LOCKED == 0 {
                if self.take(word, word | take) {
                    return true;
                }
                continue;
            }
            if word & ASLEEP == 0 && !self.mark_asleep(word) {
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
            P::wait_until_changed(self.word, LOCKED | ASLEEP, FIRST_READS);
        }
    }
}

#[cfg(test)]
mod tests;
