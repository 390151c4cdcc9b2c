//! The gate of a queue, by which those come in who have no handle of it: threads that wake a future, or send an item whose time has
//! come.
//!
//! Users queue through a handle, which they have, so none of them queues while the queue is dropped. Those others have
//! none. The drop closes the gate, waits until nobody is in the middle of it, and looks only then whether the queue is empty: who
//! was in before has counted its item by then; those who come later are refused. Items of the queue itself do not
//! ask: they are counted while they run.
//!
//! One word: how many are in the middle, and a bit that says closed. Who is inside takes a few instructions, and waits for
//! nobody; only the drop waits.

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

const CLOSED: u32 = 1 << 31;

/// See the head of the file.
pub(crate) struct Gate<P: Platform> {
    word: P::AtomicU32,
}

impl<P: Platform> Gate<P> {
    /// An open gate.
    pub(crate) fn new() -> Self {
        Gate { word: P::AtomicU32::new(0) }
    }

    /// Runs `f` inside, or not at all if the gate is closed. The caller keeps the gate alive. Whether it ran.
    pub(crate) fn pass(&self, f: impl FnOnce()) -> bool {
        // Acquire: keeps `f` behind it.
        let open = self.word.fetch_add(1, Ordering::AcqRel) & CLOSED == 0;
        if open {
            f();
        }
        // Release: pairs with the acquire in `is_quiet`; who sees that nobody is inside sees what was done there.
        if self.word.fetch_sub(1, Ordering::AcqRel) == CLOSED + 1 {
            P::wake(&raw const self.word, usize::MAX);
        }
        open
    }

    /// Nobody is in the middle of it: who was is the parent's. It stays closed if it was. In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        crate::fork::set(&self.word, self.word.load(Ordering::Relaxed) & CLOSED);
    }

    /// Lets nobody in any more.
    pub(crate) fn close(&self) {
        self.word.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Whether nobody is in the middle of it.
    pub(crate) fn is_quiet(&self) -> bool {
        // Acquire: pairs with the release in `pass`.
        self.word.load(Ordering::Acquire) & !CLOSED == 0
    }

    /// Waits until nobody is in the middle of it. By who has closed it, or it may take for ever.
    pub(crate) fn wait_until_quiet(&self) {
        loop {
            // Acquire: as above.
            let word = self.word.load(Ordering::Acquire);
            if word & !CLOSED == 0 {
                return;
            }
            P::wait(&self.word, word, None);
        }
    }
}

#[cfg(test)]
mod tests;
