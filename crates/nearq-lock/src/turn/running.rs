//! Letting a thread go on running while it has the mutex to itself.
//!
//! If the turn is always handed on at once, the word and what the mutex protects move from cache to cache each time. One thread that takes
//! the mutex, releases it and soon comes back has all of it in its own cache, and is twice as fast. So a thread that has the turn in a
//! domain's queue keeps away from the word for a microsecond, and counts how often a thread of the domain took the mutex in that time: if
//! that was less often than it would have been handed over, the next turns are taken at once. How many depends on how often that was so in
//! a row, because such a microsecond is lost. What was taken counts for the batch.
//!
//! Only the thread that has the turn uses what is kept for this, in the domain's line. Orderings: it is handed on with the turn; the count
//! of those that pass by is a hint.

use nearq_platform::{Atomic, LockPlatform, Ordering};

use super::{Turn, Turns};
use crate::slot::Slot;

/// How long a thread that has the turn in a domain lets another thread run. A thread that waits longer when it is its turn makes all that
/// are behind it wait longer, too: with 5 µs, the longest waits of 16 threads were three times as long, and no more was done.
const MICROS_TO_RUN: u32 = 1;
/// The least number of acquisitions in that time for which it is worth it: several hand-overs within a domain take as long.
const OFTEN: u32 = 4;
/// If there were fewer, one turn passes in order; if there are fewer again, 3 turns; and so on, up to this many.
const MOST_ORDERLY: u32 = 511;

impl<P: LockPlatform> Turns<'_, P> {
    /// Lets a thread that takes the mutex again and again have it for a while longer. Returns the turn, with the acquisitions added.
    pub(super) fn let_run(&self, bound: &Slot<P>, turn: Turn) -> Turn {
        let line = bound.line(self.domain);
        if turn.passed == 0 {
            // The turn has just come from another domain, whose threads should no longer run; or it starts a new count in this one.
            return turn;
        }
        // Relaxed, here and below: see the head of the file.
        let orderly = line.orderly.load(Ordering::Relaxed);
        if orderly > 0 {
            line.orderly.store(orderly - 1, Ordering::Relaxed);
            return turn;
        }
        let before = line.passes.load(Ordering::Relaxed);
        self.process.pause(self.domain, MICROS_TO_RUN, self.stay);
        let passes = line.passes.load(Ordering::Relaxed).wrapping_sub(before);
        let orderly = if passes < OFTEN {
            (2 * line.orderly_before.load(Ordering::Relaxed) + 1).min(MOST_ORDERLY)
        } else {
            0
        };
        line.orderly.store(orderly, Ordering::Relaxed);
        line.orderly_before.store(orderly, Ordering::Relaxed);
        Turn { passed: turn.passed + u64::from(passes), ..turn }
    }
}
