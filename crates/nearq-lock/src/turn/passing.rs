//! Taking a mutex that has a slot without queueing up there.
//!
//! Who passes by has no turn, and needs none to take the mutex. It leaves its record's number in the slot (see `running.rs`), and
//! looks after the slot's turn in two cases:
//! - the turn is nobody's when it *has passed by*: then it is the last one, and says whether there is one queue again;
//! - the mutex is free and reserved, for nobody as it seems: then it *takes the turn first*, and the mutex from there as everybody whose
//!   turn it is. Otherwise another one could get the turn in between, and would lose what it has reserved.

use nearq_platform::LockPlatform;

use super::Turns;
use crate::table::Table;
use crate::word::{LOCKED, NUMA, RESERVED, TAIL, slot};

impl<P: LockPlatform> Turns<'_, P> {
    /// The caller has taken the mutex, was in no queue, and found `word`. If nobody else was either, for some time, there is one
    /// queue again.
    pub(crate) fn passed_by(&self, word: u32) {
        if word & NUMA != 0 {
            let bound = self.room.slots.get(slot(word));
            bound.is_passed_by(Table::<P>::own_number());
            if word & TAIL == 0 && bound.take_if_quiet() {
                self.hand_to_domains(bound, true);
            }
        }
    }

    /// Takes the mutex, which is free and reserved by the word `seen`, if nobody has the turn of the slot there: from that turn, lest
    /// somebody gets it meanwhile. Nothing if the word has changed.
    pub(crate) fn try_reserved(&self, seen: u32) -> Option<bool> {
        let bound = self.room.slots.get(slot(seen));
        let Some(top) = bound.quiet_top() else { return Some(false) };
        // Comes after the look at the turn: the slot was the mutex's then. It still is if the turn can be taken, as who unbinds it has
        // the turn before, and there is another generation after.
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
        // One that waits without a queue was faster.
        self.hand_to_domains(bound, false);
        Some(false)
    }
}
