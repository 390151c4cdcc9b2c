//! Queueing up for a mutex, and what a thread does when it has the turn. `waiting.rs` describes the whole path. `turn/moved.rs` describes
//! how a thread is queued up by another one, `turn/contending.rs` how the thread that has the turn gets the mutex, `turn/running.rs` which
//! thread is allowed to run first, and `turn/passing.rs` what a thread that is in no queue does with a slot's turn.

mod contending;
mod counting;
mod moved;
mod passing;
mod plain_tail;
mod running;

use core::cell::Cell;

use nearq_platform::{Atomic, Instant, LockPlatform, Ordering};

use self::counting::{ACROSS, DOMAIN, FROM, MOST_REFUSED, REFUSED};
use self::plain_tail::PlainTail;
use crate::process_state::ProcessState;
use crate::queue::{ALONE, ANEW, FRONT, Received, Recipient, TURN, Tail, WAITING, Waking};
use crate::settings::{Mode, Settings};
use crate::slot::{DomainTail, Slot, Stood};
use crate::statistics::Event;
use crate::stay::Stay;
use crate::word::{LOCKED, NUMA, RESERVED, SLOT, TAIL, TAIL_SHIFT, slot};

/// For how many microseconds the threads behind spin: it takes several hand-overs until they have the turn, and if they are awake then, the
/// lock does not pay for a wake-up. They leave one place for spinning to the thread that has the turn.
const MICROS_IN_QUEUE: u32 = 20;
/// Likewise in a domain to which the turn comes back soon: about as long as it is away with a hundred threads.
const MICROS_IN_BRISK_QUEUE: u32 = 100;
/// So many threads that wait in a domain make a whole batch; with fewer, it is shorter in proportion.
const FULL_BATCH: u32 = 5;
/// While a thread spins on the word, it reads the clock once per this many rounds; within a domain, the clock is read once per this many
/// hand-overs.
const CLOCK_EVERY: u32 = 8;
/// How many times the thread that has the turn tolerates being overtaken while it spins.
const OVERTAKEN: u32 = 4;

/// A mutex's word, and a thread that queues up for it.
pub(crate) struct Turns<'a, P: LockPlatform> {
    word: &'a P::AtomicU32,
    process: &'a ProcessState<P>,
    settings: Settings,
    /// The domain that the thread was in when it came.
    domain: usize,
    /// Where the thread notes its station, if it may leave by a jump.
    stay: Option<&'a Stay<P>>,
    /// What came with the message to start over, for the case that the thread is the first in the plain queue: see [`REFUSED`].
    anew: Cell<u64>,
}

/// A turn: which queue it belongs to, and what was passed on with it.
#[derive(Clone, Copy)]
struct Turn {
    number: u32,
    /// In the plain queue as described at [`ACROSS`]; in a domain's queue, how often the mutex was taken in the domain since the turn came.
    passed: u64,
    /// In a domain: since when the turn has been there, or a little less; 0 if the clock was not read yet.
    since: u64,
}

impl<'a, P: LockPlatform> Turns<'a, P> {
    pub(crate) fn new(word: &'a P::AtomicU32, process: &'a ProcessState<P>) -> Self {
        Turns {
            word,
            process,
            settings: process.settings(),
            domain: process.current_domain(),
            stay: None,
            anew: Cell::new(0),
        }
    }

    /// For a thread that notes its station in `stay`, if there is one.
    pub(crate) fn staying(self, stay: Option<&'a Stay<P>>) -> Self {
        Turns { stay, ..self }
    }

    /// The thread has put its record into a queue and waits there: notes that.
    fn is_queued(&self) {
        if let Some(stay) = self.stay {
            stay.is_queued();
        }
    }

    /// The thread has the turn: notes that, and stores what came with the turn in the record, where `hand_on_unused` finds it.
    fn is_in_front(&self, turn: Turn) {
        if let Some(stay) = self.stay {
            let record = self.process.waiters.record(turn.number);
            // Relaxed for both: only the thread in front accesses them.
            record.passed.store(turn.passed, Ordering::Relaxed);
            record.since.store(turn.since, Ordering::Relaxed);
            stay.is_in_front();
        }
    }

    /// The thread is at no station any more: notes that.
    fn goes_on(&self) {
        if let Some(stay) = self.stay {
            stay.goes_on();
        }
    }

    /// Notes the record by which the thread will wait, and the queue: a slot's number, or 0.
    fn begins(&self, number: u32, slot: u32) {
        if let Some(stay) = self.stay {
            // Relaxed: only the thread itself accesses it before it joins.
            self.process.waiters.record(number).slot.store(slot, Ordering::Relaxed);
            stay.begin(number, self.word);
        }
    }

    pub(crate) fn settings(&self) -> Settings {
        self.settings
    }

    /// For a thread that starts over, with the settings as they are now; `before` is what it was told to do so with.
    pub(crate) fn starting_over(self, before: &Self) -> Self {
        Turns { anew: Cell::new(before.anew.get()), ..self }
    }

    /// Whether to spin for a while before joining other waiters.
    ///
    /// Within one cache, spinning costs the other threads little, and a queue that every thread joins at once is a convoy: if CPUs are few,
    /// each hand-over waits until a thread has woken up. On simulated machines of 2 and 16 CPUs with one cache, joining at once had half
    /// the speed of no queue; with spinning it is 0.94 to 1.17 of that speed. With several caches, a thread queues up as soon as it comes,
    /// and spins on a line of its own.
    pub(crate) fn reads_word_despite_waiters(&self) -> bool {
        self.process.used_domains == 1
    }

    /// Whether so many threads spin here that no CPU is left for another one.
    pub(crate) fn is_crowded(&self) -> bool {
        !self.process.another_may_spin(self.domain)
    }

    /// Whether the thread is of a real-time class.
    pub(crate) fn check_urgency(&self) -> bool {
        self.process.check_urgency()
    }

    /// A record to queue up by, if there is one.
    #[inline]
    pub(crate) fn take_record(&self) -> Option<u32> {
        self.process.waiters.take_own().or_else(|| self.take_another_record())
    }

    /// For a thread that waits for the first time: it has time to allocate what threads that hold mutexes may need.
    #[cold]
    fn take_another_record(&self) -> Option<u32> {
        if P::number() == 0 && self.process.may_bind(self.settings.mode) {
            self.process.stock();
        }
        self.process.waiters.take()
    }

    fn load(&self) -> u32 {
        // Acquire: sees what the thread that bound the slot did before. Each decision is made by a step on the word or the slot.
        self.word.load(Ordering::Acquire)
    }

    /// Changes the word without taking or releasing the mutex.
    fn step(&self, from: u32, to: u32) -> Result<(), u32> {
        // Release: a record in the tail is prepared, or a slot is bound. Acquire: the record or slot that we find there is.
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).map(drop)
    }

    /// Changes the word so that the mutex is taken.
    fn take(&self, from: u32, to: u32) -> bool {
        // Acquire: pairs with the release of the unlock.
        self.word.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn note(&self, event: Event) {
        #[cfg(test)]
        crate::statistics::seen::note(event);
        if self.settings.count {
            self.process.counts[self.domain].add(event);
        }
    }

    /// Queues up by a record, and waits until the caller has the mutex (true) or the deadline has come (false). None if the caller must
    /// start over. In all cases the caller no longer has the record.
    pub(crate) fn queue_up(&self, number: u32, deadline: Option<Instant>) -> Option<bool> {
        let mut rounds = 0;
        loop {
            // A nearby thread that takes and releases the mutex again and again could make our steps fail for ever, so threads that pass by
            // are now stopped. The thread in front, which may soon be this one, removes the mark.
            if rounds == OVERTAKEN {
                self.reserve(self.load());
            }
            rounds += 1;
            let word = self.load();
            if word & (LOCKED | RESERVED) == 0 {
                if self.take(word, word | LOCKED) {
                    self.process.waiters.give_back(number);
                    self.passed_by(word);
                    return Some(true);
                }
            } else if word & NUMA == 0 {
                self.process.waiters.prepare(number, self.domain);
                self.begins(number, 0);
                if self.step(word, word & !TAIL | number << TAIL_SHIFT).is_ok() {
                    return Some(self.in_plain_queue(number, word >> TAIL_SHIFT, deadline));
                }
            } else {
                let bound = self.process.slots.get(slot(word));
                let seen = bound.load_tail(self.domain);
                // Must come after the tail is read (see `slot.rs`).
                if (self.load() ^ word) & (NUMA | SLOT) != 0 {
                    continue;
                }
                self.process.waiters.prepare(number, self.domain);
                self.begins(number, slot(word));
                if let Some((before, tail)) = bound.join(self.domain, seen, number) {
                    if deadline.is_some() {
                        self.process.waiters.is_behind(number, before);
                    }
                    let received = if before == 0 {
                        Some(FRONT)
                    } else {
                        self.process.waiters.link(number, before)
                    };
                    return self.in_domain(bound, &tail, number, received, deadline);
                }
            }
        }
    }

    /// Waits by a record, in the plain queue or in the domain's, until it receives a message. On return, `number` names the record that
    /// received it.
    fn wait_by(
        &self,
        number: &mut u32,
        bound: Option<&Slot<P>>,
        deadline: Option<Instant>,
        tail: &impl Tail,
    ) -> Received {
        self.is_queued();
        let (waiters, before) = (&self.process.waiters, *number);
        let received = self.watch(before, bound, |load_tail| {
            waiters.wait(number, load_tail, true, deadline, self.stay, tail)
        });
        if let Some(stay) = self.stay {
            if *number != before {
                stay.begin(*number, self.word);
            }
        }
        received
    }

    /// Waits by a record, spinning only as long as other waiters may spin by theirs, and notes the outcome. In a domain to which the turn
    /// comes back soon, it spins for longer, and when it is roused, it rouses the threads behind it.
    fn watch(
        &self,
        number: u32,
        bound: Option<&Slot<P>>,
        wait: impl FnOnce(&mut dyn FnMut(&P::AtomicU32)) -> Received,
    ) -> Received {
        let mut unchanged = 0;
        let mut load_tail = |state: &P::AtomicU32| {
            let brisk = bound.is_some_and(|bound| bound.is_brisk(self.domain));
            if brisk && unchanged > 0 && !self.is_crowded() {
                self.process.waiters.rouse_behind(number);
            }
            let micros = if brisk { MICROS_IN_BRISK_QUEUE } else { MICROS_IN_QUEUE };
            if !self.process.spin(self.domain, state, WAITING, micros, 1, self.stay) {
                unchanged += 1;
            }
        };
        let received = wait(&mut load_tail);
        if unchanged > 0 {
            self.note(Event::SleptInQueue);
        }
        if received == Received::Nothing {
            self.note(Event::GaveUp);
        }
        received
    }

    /// What came with a message.
    fn turn(&self, number: u32) -> Turn {
        let record = self.process.waiters.record(number);
        // Relaxed for both: ordered by the message.
        let (passed, since) =
            (record.passed.load(Ordering::Relaxed), record.since.load(Ordering::Relaxed));
        Turn { number, passed, since }
    }

    // ---- the plain queue -------------------------------------------------------------------------------

    fn in_plain_queue(&self, number: u32, before: u32, deadline: Option<Instant>) -> bool {
        let mut turn = Turn { number, passed: self.anew.get(), since: 0 };
        if before != 0 {
            let mut number = number;
            let tail = PlainTail::<P>::new(self.word, 0);
            if deadline.is_some() {
                self.process.waiters.is_behind(number, before);
            }
            if self.process.waiters.link(number, before).is_none()
                && self.wait_by(&mut number, None, deadline, &tail) == Received::Nothing
            {
                return false;
            }
            turn = self.counted_turn(number);
        }
        self.in_front_of_plain_queue(turn, deadline)
    }

    /// What came with a message in the plain queue, including this hand-over.
    fn counted_turn(&self, number: u32) -> Turn {
        let mut turn = self.turn(number);
        let from = turn.passed >> FROM & DOMAIN;
        if from != 0 {
            let across = from != self.domain as u64 + 1;
            turn.passed += 1 + (u64::from(across) << ACROSS);
            self.note(if across { Event::Across } else { Event::Within });
        }
        turn
    }

    fn in_front_of_plain_queue(&self, turn: Turn, deadline: Option<Instant>) -> bool {
        let number = turn.number;
        self.is_in_front(turn);
        let word = self.contend(number, None, deadline);
        self.goes_on();
        match word {
            Some(word) if word >> TAIL_SHIFT == number => {
                // We were the only thread in the queue, and the step that took the mutex took us out.
                self.process.waiters.give_back(number);
                self.plain_queue_is_empty(word, true);
                true
            }
            Some(word) => {
                let passed = self.count(turn, word);
                let tail = PlainTail::<P>::new(self.word, 0);
                let with = (passed, 0);
                let left =
                    self.process.waiters.leave_front(number, &tail, TURN, with, Waking::Later);
                if left == Recipient::None {
                    self.plain_queue_is_empty(tail.cleared.get(), true);
                }
                true
            }
            None => {
                self.hand_on_plain(turn);
                false
            }
        }
    }

    /// Hands on the turn of the plain queue without holding the mutex, and leaves the queue.
    fn hand_on_plain(&self, turn: Turn) {
        // The reservation stays for the thread behind, if there is one. If there is none, the step that clears the tail also removes it:
        // after that step another thread may have the turn, and its reservation is not ours to take away.
        let tail = PlainTail::<P>::new(self.word, RESERVED);
        let with = (turn.passed, 0);
        let left = self.process.waiters.leave_front(turn.number, &tail, TURN, with, Waking::Now);
        if left == Recipient::None {
            self.plain_queue_is_empty(tail.cleared.get(), false);
        }
    }

    /// Hands on the message of a record whose owner has left (`stay.rs`), in the queue that the record names in `slot`. The caller has the
    /// record.
    pub(crate) fn hand_on_unused(&self, number: u32, message: u32) {
        let turn = self.turn(number);
        // Relaxed: written before the record joined its queue.
        match self.process.waiters.record(number).slot.load(Ordering::Relaxed) {
            _ if message == ALONE => self.process.waiters.give_back(number),
            0 => self.hand_on_plain(turn),
            slot => {
                let bound = self.process.slots.get(slot);
                let tail = bound.queue_of(self.domain);
                if message == TURN {
                    // Like a thread that gives up at its deadline.
                    self.unreserve();
                    self.hand_on(bound, &tail, turn, false, false);
                } else {
                    self.process.waiters.leave_front(number, &tail, ANEW, (0, 0), Waking::Now);
                }
            }
        }
    }

    /// The plain queue is empty, by the step that found `word`. If the mutex had a slot by then, the slot's turn is the caller's. If it has
    /// got one since, that is for the threads that came later.
    fn plain_queue_is_empty(&self, word: u32, holds: bool) {
        if word & NUMA != 0 {
            self.hand_to_domains(self.process.slots.get(slot(word)), holds);
        }
    }

    /// For tests: queues up in the plain queue and binds a slot once in front, like a thread that has had the turn and has the mutex. Does
    /// nothing if other threads are in the queue, because one of them would have the turn.
    #[cfg(test)]
    pub(crate) fn bind_in_front(&self) -> bool {
        // Another thread may have been preempted while it made slots.
        while !self.process.stock() {
            P::yield_now();
        }
        let number = self.process.waiters.take().expect("a record is free");
        self.process.waiters.prepare(number, self.domain);
        let word = self.load();
        if word & (TAIL | NUMA) != 0 || self.step(word, word | number << TAIL_SHIFT).is_err() {
            self.process.waiters.give_back(number);
            return false;
        }
        self.bind(0);
        let tail = PlainTail::<P>::new(self.word, 0);
        if self.process.waiters.leave_front(number, &tail, TURN, (0, 0), Waking::Now)
            == Recipient::None
            && tail.cleared.get() & NUMA != 0
        {
            let bound = self.process.slots.get(slot(tail.cleared.get()));
            if bound.give_away(self.process, self.domain, Waking::Now).is_none() && !bound.rest() {
                self.hand_to_domains(bound, true);
            }
        }
        self.load() & NUMA != 0
    }

    // ---- queues by domain ------------------------------------------------------------------------------

    fn in_domain(
        &self,
        bound: &Slot<P>,
        tail: &DomainTail<'_, P>,
        number: u32,
        received: Option<u32>,
        deadline: Option<Instant>,
    ) -> Option<bool> {
        let (mut received, mut number) = (received, number);
        // Whether a message said so, and the thread did not find out by itself.
        let mut told = true;
        let turn = loop {
            match received {
                Some(TURN) => break self.turn(number),
                Some(FRONT) => match bound.stand_up(self.domain, number, tail) {
                    Stood::Turn => {
                        break Turn { number, passed: 0, since: 0 };
                    }
                    Stood::Wait => received = None,
                    Stood::Anew => (received, told) = (Some(ANEW), false),
                },
                Some(_) => {
                    self.goes_on();
                    #[cfg(test)]
                    crate::statistics::seen::note(Event::Anew);
                    let passed = if told { self.turn(number).passed } else { 0 };
                    self.anew.set(passed);
                    self.process.waiters.leave_front(number, tail, ANEW, (passed, 0), Waking::Now);
                    return None;
                }
                None => match self.wait_by(&mut number, Some(bound), deadline, tail) {
                    Received::Message(message) => received = Some(message),
                    Received::Nothing => return Some(false),
                },
            }
        };
        self.is_in_front(turn);
        let before = turn.passed;
        let turn = self.let_run(bound, turn);
        let ran = turn.passed != before;
        let locked = self.contend(number, Some((bound, &turn)), deadline).is_some();
        self.goes_on();
        if !locked {
            // Done while the turn is still ours: after that, the reservation may be another thread's.
            self.unreserve();
        }
        self.hand_on(bound, tail, turn, ran, locked);
        Some(locked)
    }

    /// Hands the slot's turn on, and leaves the queue. `ran` says whether other threads took the mutex while this one had the turn.
    fn hand_on(
        &self,
        bound: &Slot<P>,
        tail: &DomainTail<'_, P>,
        turn: Turn,
        ran: bool,
        locked: bool,
    ) {
        let Turn { number, passed, mut since } = turn;
        if locked && self.leaves_at_once() {
            self.unbind(bound, 0);
            self.process.waiters.leave_front(number, tail, ANEW, (0, 0), Waking::Now);
            return;
        }
        // In a domain where few threads wait, a whole batch would mean many turns for each of them, while the others wait for one.
        let rounds = bound.count_round(self.domain, number, passed == 0);
        let batch = self.settings.batch;
        let mut over = passed + 1 >= u64::from(batch) || rounds * FULL_BATCH >= batch;
        // The clock is read when a batch begins, and then each so many acquisitions, or after any that are counted in `let_run`.
        if !over && (since == 0 || ran || passed % u64::from(CLOCK_EVERY) == 0) {
            let now = P::now().as_nanos();
            if since == 0 {
                since = now;
            }
            over = now >= since + self.patience();
        }
        if over && bound.others_wait(self.domain) {
            if let Some(behind) = self.process.waiters.leave_front_quietly(number, tail, FRONT) {
                bound.sit_behind(self.domain, behind);
            }
            self.end_batch(bound, false, locked);
            return;
        }
        let (passed, since) = if over { (0, 0) } else { (passed + 1, since) };
        let waking = Waking::of(locked);
        let left = self.process.waiters.leave_front(number, tail, TURN, (passed, since), waking);
        if left == Recipient::None {
            self.end_batch(bound, true, locked);
        } else {
            self.note(Event::Within);
        }
    }

    /// The turn leaves the domain: because no thread is left there (`dry`), or because it is another domain's.
    ///
    /// Batches that run dry may mean that threads are away from the mutex for longer than a batch takes. Then it may be that in one queue
    /// none would wait at all, once those that wait have gone. Only a trial can tell: if that happens often, the mutex returns to one queue,
    /// and changes again if its threads still wait. Each trial in a row is mostly twice as long, up to a
    /// limit; the count of trials is lost if a thread that comes anew is the first in the plain queue.
    fn end_batch(&self, bound: &Slot<P>, dry: bool, holds: bool) {
        if bound.runs_dry(self.domain, dry) && holds && self.settings.mode == Mode::Auto {
            self.unbind(bound, u64::from(bound.trials() + 1).min(MOST_REFUSED) << REFUSED);
        } else {
            self.hand_to_domains(bound, holds);
        }
    }

    /// Whether the settings no longer allow queues by domain. If so, the thread that holds the mutex and has the slot's turn unbinds the
    /// slot even if other threads wait there: otherwise a mutex that always has waiters would never return to one queue.
    fn leaves_at_once(&self) -> bool {
        matches!(self.settings.mode, Mode::Off | Mode::Plain)
    }

    /// Gives the slot's turn, which the caller has, to a domain that waits for it. If none does, the turn is free, or the slot is unbound.
    /// Only the thread that holds the mutex may unbind it.
    fn hand_to_domains(&self, bound: &Slot<P>, holds: bool) {
        if holds && self.leaves_at_once() {
            self.unbind(bound, 0);
            return;
        }
        loop {
            let waking = Waking::of(holds);
            if let Some(to) = bound.give_away(self.process, self.domain, waking) {
                self.note(if to == self.domain { Event::Within } else { Event::Across });
                return;
            }
            let auto = self.settings.mode == Mode::Auto;
            if holds
                && (self.process.is_short_of_slots()
                    || auto && bound.is_quiet_for(self.settings.quiet))
            {
                self.unbind(bound, 0);
                return;
            }
            if bound.rest() {
                return;
            }
        }
    }

    /// Unbinds the slot. The first thread in the plain queue begins with `passed`.
    #[cold]
    fn unbind(&self, bound: &Slot<P>, passed: u64) {
        self.note(Event::Unbound);
        let mut word = self.load();
        let number = slot(word);
        while let Err(found) = self.step(word, word & !(NUMA | SLOT)) {
            word = found;
        }
        bound.unbind(self.process, passed);
        self.process.slots.free(number);
    }

    fn patience(&self) -> u64 {
        self.settings.patience.as_nanos() as u64
    }
}
