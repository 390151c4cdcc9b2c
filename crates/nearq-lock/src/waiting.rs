//! How a thread waits for a mutex.
//!
//! The word and its bits are described in `raw.rs`, records and queues in `queue.rs`, the queues by domain in `slot.rs`.
//!
//! # The way of one that finds the mutex held
//! 1. *Look* at the word for a while, if nobody queues up: most critical sections are short.
//! 2. *Pass by*: if the word is free and not reserved, take it, although others may be waiting. A thread that runs now is
//!    faster than one that has to be woken; the order is kept by 5.
//! 3. *Queue up* by the thread's own record: in the plain queue, whose tail is in the word, or, while the word says `NUMA`, in
//!    the queue of the own domain. Wait by the record until it is our *turn*: look for a while if enough CPUs are left, then
//!    sleep.
//! 4. *Contend*: who has the turn, and nobody else, looks at the word, takes it when it is free, and otherwise sleeps on it.
//!    Before, it sees to it that the one behind is awake, so that waking that one does not cost the lock any time.
//! 5. Who has had the turn for longer than the patience sets `RESERVED`: nobody passes by any more.
//! 6. Who has taken the mutex from its turn *hands the turn on*, while it holds the mutex, and leaves the queue. So a record is
//!    in one queue at a time, however many mutexes its thread holds, and unlocking has nothing to do with queues.
//!
//! A thread without a record (65535 others wait), and everybody in the mode `Off`, does not queue up but sleeps on the word.
//! Such a thread takes the mutex as `ASLEEP`, as it cannot know whether it was the only one.
//!
//! # From the plain queue to queues by domain, and back
//! Who hands the turn of the plain queue on counts: hand-overs in a row, and those that went to another domain (`passed`,
//! which goes along with the turn). If enough went across, and two of those who wait are of one domain, it binds a slot
//! and sets `NUMA`, all while it holds the mutex. From then on nobody joins the plain queue, as the tail and `NUMA` are one
//! word. The turn stays in the plain queue until that is empty; it goes to the slot then. Nobody is stopped or moved.
//! Way back: the one who has the slot's turn and finds nobody to give it to unbinds the slot, if that happened often enough in
//! a row without another domain having waited.
//!
//! # Who has the turn
//! The plain queue has one turn, each bound slot has one. A mutex has one of them, but for the moments in which a slot is
//! being unbound and new waiters queue up in the plain queue already. Two that contend do no harm: `LOCKED` decides.
//!
//! # Who gives up
//! Who waits by its record leaves the record behind. Who has the turn hands it on and takes `RESERVED` away. A reserved mutex
//! without anybody whose turn it is stays free for the next one that queues up, which finds itself in front.

use core::cell::Cell;

use nearq_platform::{Atomic, AtomicInt, Instant, Ordering, Platform, Wait};

use crate::queue::{ANEW, FRONT, Heard, TURN, Tail, Told, WAITING};
use crate::room::Room;
use crate::settings::{Mode, Settings};
use crate::slot::{DomainTail, Slot, Stood};
use crate::word::{ASLEEP, LOCKED, NUMA, RESERVED, SLOT, SLOT_SHIFT, TAIL, TAIL_SHIFT, slot};

/// How many looks at a held lock before queueing up.
///
/// A look is a load and a pause, 10 to 40 ns; falling asleep and being woken costs both sides together 2 to 5 µs.
/// To spin about as long as the sleep would cost loses at most a factor of two against knowing beforehand how
/// long the lock will be held (Karlin, Li, Manasse, Owicki: Empirical studies of competitive spinning, 1991).
/// std's mutex has the same number.
const FIRST_LOOKS: u32 = 100;
/// How often to let others run after that: if the one who holds the mutex was preempted, it may be its turn now.
const FIRST_YIELDS: u32 = 7;
/// How many looks of the one whose turn it is before it sleeps.
const LOOKS_IN_TURN: u32 = 200;
/// How many looks by a record before sleeping: it takes several hand-overs until it is our turn.
const LOOKS_IN_QUEUE: u32 = 4_000;
/// How many of those who wait are looked at to find two of one domain.
const LOOK_AT: usize = 64;
/// The clock is read at one turn in so many of looking at the word.
const CLOCK_EVERY: u32 = 8;

/// So often the one whose turn it is bears being overtaken while it looks.
const OVERTAKEN: u32 = 4;

/// In `passed` of the plain queue: hand-overs, from here on those across, and from here on where it comes from, plus one, or
/// zero if nobody counts.
const ACROSS: u32 = 16;
const FROM: u32 = 32;
const COUNT: u32 = 0xffff;

/// A mutex's word, and a thread that wants it.
pub(crate) struct Waiting<'a, P: Platform> {
    word: &'a P::AtomicU32,
}

/// The plain queue's tail, and the word as it was when it was cleared.
struct PlainTail<'a, P: Platform> {
    word: &'a P::AtomicU32,
    cleared: Cell<u32>,
}

impl<P: Platform> Tail for PlainTail<'_, P> {
    fn clear(&self, number: u32) -> bool {
        // Acquire: as `Tail` asks.
        let mut word = self.word.load(Ordering::Acquire);
        while word >> TAIL_SHIFT == number {
            // Release: what we did in front is over. Acquire on failure: as above.
            match self.word.compare_exchange(
                word,
                word & !TAIL,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    self.cleared.set(word);
                    return true;
                }
                Err(found) => word = found,
            }
        }
        false
    }
}

/// What goes along with the turn.
#[derive(Clone, Copy)]
struct Turn {
    number: u32,
    here: usize,
    passed: u64,
    since: u64,
}

impl<'a, P: Platform> Waiting<'a, P> {
    #[inline]
    pub(crate) fn new(word: &'a P::AtomicU32) -> Self {
        Waiting { word }
    }

    fn load(&self) -> u32 {
        // Acquire: what the one who bound the slot did before is seen. Each decision is made by a step on the word, or the slot.
        self.word.load(Ordering::Acquire)
    }

    /// A step of the word that neither takes nor gives the mutex.
    fn step(&self, from: u32, to: u32) -> Result<(), u32> {
        // Release: a record in the tail is prepared, a slot is bound. Acquire: the one that we find there is.
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).map(drop)
    }

    /// A step of the word that takes the mutex.
    fn take(&self, from: u32, to: u32) -> bool {
        // Acquire: pairs with the release of the unlock.
        self.word.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the mutex as one who passes by.
    pub(crate) fn try_lock(&self) -> bool {
        let mut word = self.load();
        loop {
            if word & LOCKED != 0 || word & RESERVED != 0 && Self::somebody_has_the_turn(word) {
                return false;
            }
            if self.take(word, (word | LOCKED) & !RESERVED) {
                self.passed_by(word);
                return true;
            }
            word = self.load();
        }
    }

    /// Whether a reserved mutex is reserved for somebody.
    fn somebody_has_the_turn(word: u32) -> bool {
        // What is found in a slot that is not the mutex's any more does not matter: the step on the word will fail.
        word & TAIL != 0 || word & NUMA != 0 && !Room::<P>::get().slots.get(slot(word)).is_quiet()
    }

    /// The caller has taken the mutex, and was in no queue. Perhaps nobody else is either, for some time.
    #[inline]
    fn passed_by(&self, word: u32) {
        if word & (NUMA | TAIL) == NUMA {
            let room = Room::<P>::get();
            let bound = room.slots.get(slot(word));
            if bound.take_if_quiet() {
                self.hand_to_domains(room, bound, room.here(), room.settings(), true);
            }
        }
    }

    /// Waits for the mutex; false if the deadline came first.
    pub(crate) fn lock(&self, deadline: Option<Instant>) -> bool {
        let mut word = self.load();
        let mut rounds = 0;
        loop {
            if word & (LOCKED | RESERVED) == 0 && self.take(word, word | LOCKED) {
                self.passed_by(word);
                return true;
            }
            // Whoever finds others waiting queues up behind them at once.
            if word & !(LOCKED | ASLEEP) != 0 || rounds > FIRST_YIELDS {
                break;
            }
            if rounds > 0 {
                P::yield_now();
            } else {
                P::wait_until_changed(self.word, word, FIRST_LOOKS);
            }
            rounds += 1;
            word = self.load();
        }
        let room = Room::<P>::get();
        let settings = room.settings();
        loop {
            if settings.mode == Mode::Off && self.load() & (NUMA | TAIL) == 0 {
                return self.wait_without_queue(deadline);
            }
            let Some(number) = room.table.take() else {
                return self.wait_without_queue(deadline);
            };
            // Again if the slot was not the mutex's any more.
            if let Some(locked) = self.queue_up(room, settings, number, deadline) {
                return locked;
            }
        }
    }

    /// Queues up by a record, and waits. Nothing if it has to begin anew; the record is given back in any case.
    fn queue_up(
        &self,
        room: &Room<P>,
        settings: Settings,
        number: u32,
        deadline: Option<Instant>,
    ) -> Option<bool> {
        let here = room.here();
        loop {
            let word = self.load();
            if word & (LOCKED | RESERVED) == 0 {
                if self.take(word, word | LOCKED) {
                    room.table.give_back(number);
                    self.passed_by(word);
                    return Some(true);
                }
            } else if word & NUMA == 0 {
                room.table.prepare(number, here);
                if self.step(word, word & !TAIL | number << TAIL_SHIFT).is_ok() {
                    let before = word >> TAIL_SHIFT;
                    return Some(
                        self.in_plain_queue(room, settings, number, here, before, deadline),
                    );
                }
            } else {
                let bound = room.slots.get(slot(word));
                let seen = bound.look(here);
                // Acquire: comes after the look at the tail (see `slot.rs`), and what the one who bound the slot did is seen.
                if (self.word.load(Ordering::Acquire) ^ word) & (NUMA | SLOT) != 0 {
                    continue;
                }
                room.table.prepare(number, here);
                if let Some((before, tail)) = bound.join(here, seen, number) {
                    return self
                        .in_domain(room, settings, bound, &tail, number, here, before, deadline);
                }
            }
        }
    }

    /// Waits by a record until it is told something.
    fn wait_by(room: &Room<P>, number: u32, here: usize, deadline: Option<Instant>) -> Heard {
        let look = |state: &P::AtomicU32| {
            room.spin(here, state, WAITING, LOOKS_IN_QUEUE);
        };
        room.table.wait(number, look, true, deadline)
    }

    /// What came with a message.
    fn turn(room: &Room<P>, number: u32, here: usize) -> Turn {
        let record = room.table.record(number);
        // Relaxed, both: ordered by the message.
        let (passed, since) =
            (record.passed.load(Ordering::Relaxed), record.since.load(Ordering::Relaxed));
        Turn { number, here, passed, since }
    }

    // ---- the plain queue -------------------------------------------------------------------------------

    fn in_plain_queue(
        &self,
        room: &Room<P>,
        settings: Settings,
        number: u32,
        here: usize,
        before: u32,
        deadline: Option<Instant>,
    ) -> bool {
        let turn = if before == 0 {
            Turn { number, here, passed: 0, since: 0 }
        } else {
            if room.table.link(number, before).is_none()
                && Self::wait_by(room, number, here, deadline) == Heard::Nothing
            {
                return false;
            }
            let mut turn = Self::turn(room, number, here);
            if let from @ 1.. = turn.passed >> FROM {
                turn.passed += 1 + (u64::from(from != here as u64 + 1) << ACROSS);
            }
            turn
        };
        let tail = PlainTail::<P> { word: self.word, cleared: Cell::new(0) };
        match self.contend(room, settings, turn, true, deadline) {
            Some(word) if word >> TAIL_SHIFT == number => {
                // We were the only one, and the step that took the mutex took us out.
                room.table.give_back(number);
                self.plain_queue_is_empty(room, settings, here, word, true);
                true
            }
            Some(word) => {
                let passed = self.count(room, settings, turn, word);
                if room.table.leave_front(number, &tail, TURN, passed, 0) == Told::Nobody {
                    self.plain_queue_is_empty(room, settings, here, tail.cleared.get(), true);
                }
                true
            }
            None => {
                if room.table.leave_front(number, &tail, TURN, turn.passed, 0) == Told::Nobody {
                    self.unreserve();
                    self.plain_queue_is_empty(room, settings, here, tail.cleared.get(), false);
                }
                false
            }
        }
    }

    /// The plain queue is empty, by the step that found `word`: if the mutex had a slot by then, its turn is the caller's. Not
    /// if it has one since: that is the affair of those who came after.
    fn plain_queue_is_empty(
        &self,
        room: &Room<P>,
        settings: Settings,
        here: usize,
        word: u32,
        holds: bool,
    ) {
        if word & NUMA != 0 {
            self.hand_to_domains(room, room.slots.get(slot(word)), here, settings, holds);
        }
    }

    /// Counts a hand-over of the plain queue, and changes to queues by domain where they cross domains often. The caller
    /// holds the mutex, and somebody is behind it.
    fn count(&self, room: &Room<P>, settings: Settings, turn: Turn, word: u32) -> u64 {
        let wanted = match settings.mode {
            Mode::Numa => true,
            Mode::Auto => room.used_domains > 1,
            Mode::Off | Mode::Plain => false,
        };
        if !wanted || word & NUMA != 0 {
            return 0;
        }
        if settings.mode == Mode::Numa {
            self.bind(room);
            return 0;
        }
        let all = turn.passed as u32 & COUNT;
        let across = (turn.passed >> ACROSS) as u32 & COUNT;
        if all < settings.hand_overs {
            return turn.passed & !(u64::MAX << FROM) | (turn.here as u64 + 1) << FROM;
        }
        if across * 100 >= all * settings.remote_percent
            && let Some(next) = room.table.behind(turn.number)
            && Self::two_of_one_domain(room, next)
        {
            self.bind(room);
        }
        0
    }

    /// Whether two of those in the plain queue are of one domain, from a record on that is linked. The caller has the turn, so
    /// nobody leaves the queue.
    fn two_of_one_domain(room: &Room<P>, first: u32) -> bool {
        let mut seen: u32 = 0;
        let mut at = Some(first);
        for _ in 0..LOOK_AT {
            let Some(number) = at else { return false };
            // Relaxed: set before it linked.
            let place = room.table.record(number).place.load(Ordering::Relaxed);
            if seen >> place & 1 == 1 {
                return true;
            }
            seen |= 1 << place;
            at = room.table.behind(number);
        }
        true
    }

    /// Binds a slot, if there is one. The caller holds the mutex and has the plain queue's turn, which is the slot's from now
    /// on.
    #[cold]
    fn bind(&self, room: &Room<P>) {
        let Some(number) = room.take_slot() else { return };
        let mut word = self.load();
        while let Err(found) = self.step(word, word & !SLOT | NUMA | number << SLOT_SHIFT) {
            word = found;
        }
    }

    /// Queues up in the plain queue and binds a slot once in front, for tests: what one does that has had the turn, and has the
    /// mutex. Nothing if others are in the queue, who would have the turn.
    #[cfg(test)]
    pub(crate) fn bind_in_front(&self) -> bool {
        let room = Room::<P>::get();
        let number = room.table.take().expect("there are many");
        room.table.prepare(number, room.here());
        let word = self.load();
        if word & (TAIL | NUMA) != 0 || self.step(word, word | number << TAIL_SHIFT).is_err() {
            room.table.give_back(number);
            return false;
        }
        self.bind(room);
        let settings = room.settings();
        let tail = PlainTail::<P> { word: self.word, cleared: Cell::new(0) };
        if room.table.leave_front(number, &tail, TURN, 0, 0) == Told::Nobody {
            let cleared = tail.cleared.get();
            if cleared & NUMA != 0 {
                let bound = room.slots.get(slot(cleared));
                if !bound.give_away(room, room.here(), settings.patience.as_nanos() as u64)
                    && !bound.rest()
                {
                    self.hand_to_domains(room, bound, room.here(), settings, true);
                }
            }
        }
        self.load() & NUMA != 0
    }

    // ---- queues by domain ------------------------------------------------------------------------------

    #[expect(clippy::too_many_arguments, reason = "one step of `queue_up`, apart for its length")]
    fn in_domain(
        &self,
        room: &Room<P>,
        settings: Settings,
        bound: &Slot<P>,
        tail: &DomainTail<'_, P>,
        number: u32,
        here: usize,
        before: u32,
        deadline: Option<Instant>,
    ) -> Option<bool> {
        let mut heard = if before == 0 { Some(FRONT) } else { room.table.link(number, before) };
        let turn = loop {
            match heard {
                Some(TURN) => break Self::turn(room, number, here),
                Some(FRONT) => match bound.stand_up(here, number, tail, P::now) {
                    Stood::Turn => {
                        let since = P::now().as_nanos();
                        break Turn { number, here, passed: 0, since };
                    }
                    Stood::Wait => heard = None,
                    Stood::Anew => heard = Some(ANEW),
                },
                Some(_) => {
                    room.table.leave_front(number, tail, ANEW, 0, 0);
                    return None;
                }
                None => match Self::wait_by(room, number, here, deadline) {
                    Heard::Message(message) => heard = Some(message),
                    Heard::Nothing => return Some(false),
                },
            }
        };
        let locked = self.contend(room, settings, turn, false, deadline).is_some();
        self.hand_on(room, settings, bound, tail, turn, locked);
        if !locked {
            self.unreserve();
        }
        Some(locked)
    }

    /// Hands the slot's turn on, and leaves the queue.
    fn hand_on(
        &self,
        room: &Room<P>,
        settings: Settings,
        bound: &Slot<P>,
        tail: &DomainTail<'_, P>,
        turn: Turn,
        locked: bool,
    ) {
        let Turn { number, here, passed, since } = turn;
        let mut over = passed + 1 >= u64::from(settings.batch);
        let mut now = None;
        if !over && passed % 16 == 15 {
            let time = P::now();
            over = time.as_nanos() >= since + settings.patience.as_nanos() as u64;
            now = Some(time);
        }
        if over && bound.others_wait(here) {
            let now = now.unwrap_or_else(P::now);
            if let Some(behind) = room.table.leave_front_quietly(number, tail, FRONT) {
                bound.sit_behind(here, behind, now);
            }
            self.hand_to_domains(room, bound, here, settings, locked);
            return;
        }
        let (passed, since) = if over { (0, P::now().as_nanos()) } else { (passed + 1, since) };
        if room.table.leave_front(number, tail, TURN, passed, since) == Told::Nobody {
            self.hand_to_domains(room, bound, here, settings, locked);
        }
    }

    /// Gives the slot's turn, which the caller has, to a domain that waits for it; to nobody if none does, or unbinds the
    /// slot then. Only who holds the mutex may unbind it.
    fn hand_to_domains(
        &self,
        room: &Room<P>,
        bound: &Slot<P>,
        from: usize,
        settings: Settings,
        holds: bool,
    ) {
        loop {
            if bound.give_away(room, from, settings.patience.as_nanos() as u64) {
                return;
            }
            let leave = match settings.mode {
                Mode::Numa => false,
                Mode::Auto => bound.is_quiet_for(settings.quiet),
                Mode::Off | Mode::Plain => true,
            };
            if leave && holds {
                self.unbind(room, bound);
                return;
            }
            if bound.rest() {
                return;
            }
        }
    }

    #[cold]
    fn unbind(&self, room: &Room<P>, bound: &Slot<P>) {
        let mut word = self.load();
        let number = slot(word);
        while let Err(found) = self.step(word, word & !(NUMA | SLOT)) {
            word = found;
        }
        bound.unbind(room);
        room.slots.free(number);
    }

    // ---- the word --------------------------------------------------------------------------------------

    /// Takes the mutex, as the one whose turn it is: the word as it was before. Nothing if the deadline came.
    fn contend(
        &self,
        room: &Room<P>,
        settings: Settings,
        turn: Turn,
        plain: bool,
        deadline: Option<Instant>,
    ) -> Option<u32> {
        let mut since = None;
        let mut rounds = 0;
        let mut slept = false;
        loop {
            let word = self.load();
            if word & LOCKED == 0 {
                // The only one in the plain queue leaves it by the same step.
                let alone = plain && word >> TAIL_SHIFT == turn.number;
                let out = if alone { RESERVED | TAIL } else { RESERVED };
                if self.take(word, word & !out | LOCKED) {
                    return Some(word);
                }
                continue;
            }
            let crowded = !room.has_room(turn.here);
            if rounds == 0
                && !crowded
                && let Some(next) = room.table.behind(turn.number)
            {
                room.table.rouse(next);
            }
            rounds += 1;
            if slept || rounds % CLOCK_EVERY == 0 {
                let now = P::now();
                if deadline.is_some_and(|deadline| now >= deadline) {
                    return None;
                }
                let since = *since.get_or_insert(now);
                if word & RESERVED == 0 && now - since >= settings.patience {
                    self.reserve();
                    continue;
                }
                slept = false;
            }
            if rounds >= OVERTAKEN && word & RESERVED == 0 && !(crowded && plain) {
                self.reserve();
                continue;
            }
            if !(rounds > OVERTAKEN && crowded && word & RESERVED == 0)
                && room.spin(turn.here, self.word, word, LOOKS_IN_TURN)
            {
                continue;
            }
            if self.step(word, word | ASLEEP).is_ok() {
                // From here on for the patience, however short the spinning was.
                since.get_or_insert_with(P::now);
                let outcome = P::wait(self.word, word | ASLEEP, deadline);
                slept = true;
                rounds = 1;
                if outcome == Wait::TimedOut {
                    return None;
                }
            }
        }
    }

    /// Nobody else takes the mutex from now on. Not by a step that could fail again and again while others pass by.
    fn reserve(&self) {
        // Relaxed: nothing is published by it.
        self.word.fetch_or(RESERVED, Ordering::Relaxed);
    }

    /// Who gives up its turn does not keep the mutex reserved.
    fn unreserve(&self) {
        let mut word = self.load();
        while word & RESERVED != 0 {
            match self.step(word, word & !RESERVED) {
                Ok(()) => return,
                Err(found) => word = found,
            }
        }
    }

    /// Waits without a place in a queue: sleeps on the word.
    #[cold]
    fn wait_without_queue(&self, deadline: Option<Instant>) -> bool {
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
            if word & ASLEEP == 0 && self.step(word, word | ASLEEP).is_err() {
                continue;
            }
            let outcome = P::wait(self.word, word | ASLEEP, deadline);
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
