//! The plain queue's tail, which is in the mutex's word, for leaving the queue (`queue.rs`).

use core::cell::Cell;

use nearq_platform::{Atomic, LockPlatform, Ordering};

use crate::queue::Tail;
use crate::word::{TAIL, TAIL_SHIFT};

/// The plain queue's tail, and the word as it was when it was cleared.
pub(super) struct PlainTail<'a, P: LockPlatform> {
    word: &'a P::AtomicU32,
    /// What the same step removes.
    also: u32,
    pub(super) cleared: Cell<u32>,
}

impl<'a, P: LockPlatform> PlainTail<'a, P> {
    pub(super) fn new(word: &'a P::AtomicU32, also: u32) -> Self {
        PlainTail { word, also, cleared: Cell::new(0) }
    }
}

impl<P: LockPlatform> Tail for PlainTail<'_, P> {
    fn clear(&self, number: u32) -> bool {
        // Acquire: pairs with the release of the thread that joined behind us.
        let mut word = self.word.load(Ordering::Acquire);
        while word >> TAIL_SHIFT == number {
            let without = word & !(TAIL | self.also);
            // Release: what we did in front is over. Acquire on failure: pairs with the release of the thread that joined behind us.
            match self.word.compare_exchange(word, without, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.cleared.set(word);
                    return true;
                }
                Err(found) => word = found,
            }
        }
        false
    }

    fn replace(&self, number: u32, with: u32) -> bool {
        // Relaxed, here and on failure: nothing is read through it; the step decides.
        let mut word = self.word.load(Ordering::Relaxed);
        while word >> TAIL_SHIFT == number {
            let new = word & !TAIL | with << TAIL_SHIFT;
            // Acquire and release: the thread that takes the place of the last one passes on what that one has released.
            match self.word.compare_exchange(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(found) => word = found,
            }
        }
        false
    }
}
