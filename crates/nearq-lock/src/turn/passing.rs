//! Taking a mutex that has a slot without queueing up there.
//!
//! A thread that passes by has no turn, and needs none to take the mutex. It is counted in its domain's line (see `running.rs`), and
//! handles the slot's turn in two cases:
//! - no thread has the turn when it *has passed by*: then it is the last one, and decides whether to return to one queue;
//! - the mutex is free and reserved, apparently for no thread: then it *takes the turn first*, and then the mutex, as any thread that has
//!   the turn does. Otherwise another thread could get the turn in between, and would lose what it has reserved.

use nearq_platform::LockPlatform;

use super::Turns;
use crate::word::{LOCKED, NUMA, RESERVED, TAIL, slot};

impl<P: LockPlatform> Turns<'_, P> {
    /// The caller has taken the mutex, was in no queue, and found `word`. If no other thread has queued for some time either, the mutex
    /// returns to one queue.
    pub(crate) fn passed_by(&self, word: u32) {
        if word & NUMA != 0 {
            let bound = self.process.slots.get(slot(word));
            bound.is_passed_by(self.domain);
            if word & TAIL == 0 && bound.take_if_quiet() {
                self.hand_to_domains(bound, true);
            }
        }
    }

    /// Takes the mutex, which is free and reserved by the word `seen`, if no thread has the turn of the slot there. It takes the turn
    /// first, so that no other thread gets it in between. None if the word has changed.
    pub(crate) fn try_reserved(&self, seen: u32) -> Option<bool> {
        let bound = self.process.slots.get(slot(seen));
        let Some(top) = bound.quiet_top() else { return Some(false) };
        // Must come after the turn is read: the slot was the mutex's then. It still is if the turn can be taken, because a thread that
        // unbinds the slot has the turn before, and another generation follows.
        if self.load() != seen || !bound.take_turn(top) {
            return None;
        }
        let mut word = seen;
        while word & LOCKED == 0 {
            if self.take(word, word & !RESERVED | LOCKED) {
                self.hand_to_domains(bound, true);
                return Some(true);
            }
            word = self.load();
        }
        // A thread that waits without a queue was faster.
        self.hand_to_domains(bound, false);
        Some(false)
    }
}
