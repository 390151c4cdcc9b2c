//! How the thread that has the turn gets the mutex: it spins on the word, reserves the mutex if it has waited too long, and sleeps on the
//! word. It touches the word, and the record behind its own to rouse that thread.

use nearq_platform::{AtomicInt, Instant, LockPlatform, Ordering, Wait};

use super::{CLOCK_EVERY, OVERTAKEN, Turn, Turns};
use crate::slot::Slot;
use crate::statistics::Event;
use crate::word::{ASLEEP, LOCKED, RESERVED, TAIL, TAIL_SHIFT};

/// For how many microseconds the thread that has the turn spins before it sleeps.
///
/// Falling asleep and being woken costs both sides together 2 to 5 µs. Spinning for about as long as the sleep would cost loses at most a
/// factor of two against knowing beforehand how long the lock will be held (Karlin, Li, Manasse, Owicki: Empirical studies of competitive
/// spinning, 1991).
const MICROS_IN_TURN: u32 = 5;
/// After this many times the patience, the mutex is kept even for a thread that sleeps.
const FIRMNESS: u32 = 4;

impl<P: LockPlatform> Turns<'_, P> {
    /// Takes the mutex, as the thread that has the turn: that of the slot, or of the plain queue. Returns the word as it was before; none
    /// if the deadline came.
    pub(super) fn contend(
        &self,
        number: u32,
        slots: Option<(&Slot<P>, &Turn)>,
        deadline: Option<Instant>,
    ) -> Option<u32> {
        let plain = slots.is_none();
        let mut since = None;
        let mut rounds = 0;
        let mut slept = false;
        let mut firm = false;
        // If CPUs are left for spinning, the order is kept: all threads are awake. If not, threads that run pass by, and are faster
        // than any order.
        let mut crowded = self.is_crowded();
        loop {
            let word = self.load();
            if word & LOCKED == 0 {
                let kept = if plain && word >> TAIL_SHIFT == number {
                    // The only thread in the plain queue leaves it by the same step.
                    word & !(RESERVED | TAIL)
                } else {
                    word & !RESERVED
                };
                if self.take(word, kept | LOCKED) {
                    self.note(Event::Turn);
                    return Some(word);
                }
                continue;
            }
            rounds += 1;
            // While the mutex is not to be had anyway.
            if rounds == 1 && !crowded {
                if let Some(next) = self.process.waiters.behind(number) {
                    self.process.waiters.rouse(next);
                }
                if let Some((bound, Turn { passed: 0, .. })) = slots {
                    bound.begin_batch(self.process, self.domain, self.patience());
                }
            }
            if slept || rounds % CLOCK_EVERY == 0 {
                slept = false;
                crowded = self.is_crowded();
                let now = P::now();
                if deadline.is_some_and(P::has_come) {
                    self.note(Event::GaveUp);
                    return None;
                }
                let waited = now - *since.get_or_insert(now);
                firm = waited >= self.settings.patience * FIRMNESS;
                if waited >= self.settings.patience && self.reserve(word) {
                    continue;
                }
            }
            if rounds >= OVERTAKEN && !(crowded && plain) && self.reserve(word) {
                continue;
            }
            let spins = rounds <= OVERTAKEN || !crowded || word & RESERVED != 0;
            if spins
                && self.process.spin(self.domain, self.word, word, MICROS_IN_TURN, 0, self.stay)
            {
                continue;
            }
            crowded = self.is_crowded();
            // If CPUs are few, the mutex is not kept for a thread that sleeps, unless it has waited for very long: it may be a long time
            // until it has a CPU again.
            let asleep = if crowded && !firm { word & !RESERVED | ASLEEP } else { word | ASLEEP };
            if self.step(word, asleep).is_ok() {
                self.note(Event::SleptInTurn);
                // The patience counts from here on, however short the spinning was.
                since.get_or_insert_with(P::now);
                let outcome = P::wait(self.word, asleep, deadline);
                (slept, rounds) = (true, 1);
                if outcome == Wait::TimedOut {
                    self.note(Event::GaveUp);
                    return None;
                }
            }
        }
    }

    /// No other thread takes the mutex from now on; false if that is so already. Uses one step that cannot fail repeatedly while other
    /// threads pass by.
    pub(super) fn reserve(&self, word: u32) -> bool {
        if word & RESERVED != 0 {
            return false;
        }
        self.note(Event::Reserved);
        // Relaxed: nothing is published by it.
        self.word.fetch_or(RESERVED, Ordering::Relaxed);
        true
    }

    /// A thread that gives up its turn does not keep the mutex reserved. Must be called while the caller still has the turn.
    pub(super) fn unreserve(&self) {
        let mut word = self.load();
        while word & RESERVED != 0 {
            match self.step(word, word & !RESERVED) {
                Ok(()) => return,
                Err(found) => word = found,
            }
        }
    }
}
