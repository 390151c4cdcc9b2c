//! A bell: wakes the thread that it belongs to, its owner, which sleeps until another thread has done something.
//!
//! The owner says that it sleeps, checks once more what it waits for, and sleeps. The other thread does that, and then rings.
//! All changes of the word are exchanges. So one of the two comes first: if it is the ring, the owner's exchange acquires what the other
//! thread has done before; otherwise the ring finds that the owner sleeps, and wakes it. A ring may come without a reason, so the owner
//! checks what it waits for after each sleep.

use nearq_platform::{Atomic, Ordering, Platform};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// See the head of the file.
pub(crate) struct Bell<P: Platform>(P::AtomicU32);

impl<P: Platform> Bell<P> {
    pub(crate) fn new() -> Self {
        Bell(P::AtomicU32::new(AWAKE))
    }

    /// Sleeps until the bell is rung, unless `has_come` is true. By the owner. The thread that makes it true must ring afterwards.
    pub(crate) fn sleep_unless(&self, has_come: impl Fn() -> bool) {
        self.0.swap(ASLEEP, Ordering::AcqRel);
        if has_come() {
            self.0.swap(AWAKE, Ordering::AcqRel);
            return;
        }
        // Acquire: pairs with the ring.
        while self.0.load(Ordering::Acquire) == ASLEEP {
            P::wait_for_work(&self.0, ASLEEP, None);
        }
    }

    /// Wakes the owner if it sleeps.
    pub(crate) fn ring(&self) {
        if self.0.swap(AWAKE, Ordering::AcqRel) == ASLEEP {
            P::wake(&raw const self.0, 1);
        }
    }
}
