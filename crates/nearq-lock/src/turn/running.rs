//! Letting a thread go on running while it has the mutex to itself.
//!
//! If the turn is always handed on at once, the word and what the mutex protects move from cache to cache each time. One thread that takes
//! the mutex, releases it and soon comes back has all of it in its own cache, and is twice as fast. So a thread that has the turn in a
//! domain's queue first checks whether there is such a thread, and if so keeps away from the word for a while. How often that may happen in
//! a row is bounded as hand-overs within the domain are: by their count, and by the patience of other domains.
//!
//! The slot shows whether it is one thread or several, because threads that pass by leave their record's number there. If it is several, no
//! cache keeps anything, and the lock would only be handed over later. The result is passed on with the turn.

use nearq_platform::LockPlatform;

use super::{Turn, Turns};
use crate::slot::Slot;
use crate::word::RESERVED;

/// How long a thread that has the turn in a domain lets another thread run if that one takes the mutex again and again.
///
/// While one thread has the mutex to itself, the mutex's word and what it protects stay in that thread's cache. With a short section on a
/// simulated EPYC 9654, 16 threads are half as fast as one alone if each turn is taken at once, and 0.84 times as fast with this wait; with
/// 3 µs it is 0.82, with 10 µs 0.88. If there is no such thread, it costs up to 7 %.
const MICROS_TO_RUN: u32 = 5;
/// A thread that comes back for the mutex within this many tenths of a microsecond has it to itself for that time.
const TENTHS_TO_COME_BACK: u32 = 5;
/// If no such thread is found, one turn passes without a check; if none is found then either, 3 turns; and so on, up to this many.
const TURNS_WITHOUT_CHECK: u64 = 31;

/// In `passed` of a domain's queue, above the hand-overs: for how many more turns there is no check for such a thread; and above that, for
/// how many there was none last time.
pub(super) const UNSEEN: u32 = 32;
const UNSEEN_BEFORE: u32 = 40;
const TURNS: u64 = 0xff;

impl<P: LockPlatform> Turns<'_, P> {
    /// Lets a thread that takes the mutex again and again have it for a while longer. Returns the turn, with what was found.
    pub(super) fn let_run(&self, bound: &Slot<P>, turn: Turn) -> Turn {
        let unseen = turn.passed >> UNSEEN & TURNS;
        if unseen > 0 {
            return Turn { passed: turn.passed - (1 << UNSEEN), ..turn };
        }
        let hand_overs = u64::from(turn.passed as u32);
        if hand_overs == 0 {
            // The turn has just come from another domain, whose threads should no longer run; or it starts a new count in this one.
            return turn;
        }
        if !self.one_runs(bound) {
            let turns = (2 * (turn.passed >> UNSEEN_BEFORE) + 1).min(TURNS_WITHOUT_CHECK);
            return Turn { passed: hand_overs | turns << UNSEEN | turns << UNSEEN_BEFORE, ..turn };
        }
        self.process.pause(self.domain, MICROS_TO_RUN, self.stay);
        Turn { passed: hand_overs, ..turn }
    }

    /// Whether one and the same thread, which passes by, takes and releases the mutex in short succession.
    fn one_runs(&self, bound: &Slot<P>) -> bool {
        let soon = (self.process.reads(TENTHS_TO_COME_BACK) / 10).max(1);
        let mut word = self.load();
        let mut passed_by = 0;
        // Released, then twice taken and released; or one step later.
        for change in 0..5 {
            if word & RESERVED != 0 || !P::wait_until_changed(self.word, word, soon) {
                return false;
            }
            // Acquire: the thread that has released it noted before that it passed by.
            word = self.load();
            if change == 2 {
                passed_by = bound.passed_by_last();
            }
        }
        passed_by != 0 && passed_by == bound.passed_by_last()
    }
}
