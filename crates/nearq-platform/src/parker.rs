//! One thread sleeps until another one wakes it.
//!
//! # Protocol
//! One word, three states:
//!
//! | value | meaning | which thread may change it |
//! |---|---|---|
//! | `EMPTY` | no permit; the owner is not asleep | owner to `PARKED`, any thread to `PERMIT` |
//! | `PARKED` | the owner sleeps, or is about to | any thread to `PERMIT`, and then wakes it; the owner to `EMPTY` when its time is over |
//! | `PERMIT` | an `unpark` that has not been consumed | owner to `EMPTY` |
//!
//! The race: `unpark` comes between the owner's decision to sleep and its sleep. The permit solves this: `unpark` swaps in `PERMIT`
//! whatever the word was; the owner sleeps only on the word `PARKED`, which the platform's `wait` compares under its own lock. The swap
//! (release) pairs with the owner's consuming swap (acquire): what was written before `unpark` is seen after `park`.
//!
//! Only the owner may call `park`; any thread may call `unpark`.

use crate::{Atomic, Instant, LockPlatform, Ordering, Wait};

const EMPTY: u32 = 0;
const PARKED: u32 = 1;
const PERMIT: u32 = 2;

/// A permit that one thread waits for and other threads give.
///
/// ```
/// use nearq_platform::{Linux, Parker};
///
/// let parker = Parker::<Linux>::new();
/// parker.unpark();
/// parker.park(None); // returns at once: the permit was there
/// ```
pub struct Parker<P: LockPlatform> {
    state: P::AtomicU32,
}

impl<P: LockPlatform> Parker<P> {
    /// A parker without a permit.
    pub fn new() -> Self {
        Parker { state: P::AtomicU32::new(EMPTY) }
    }

    /// Sleeps until there is a permit, or until `deadline`. Consumes the permit; true if there was one.
    ///
    /// Never returns true without an `unpark`. What was written before that `unpark` is visible.
    #[inline]
    pub fn park(&self, deadline: Option<Instant>) -> bool {
        // Acquire: pairs with the release in `unpark`.
        if self.state.swap(EMPTY, Ordering::Acquire) == PERMIT {
            return true;
        }
        self.park_slow(deadline)
    }

    #[cold]
    fn park_slow(&self, deadline: Option<Instant>) -> bool {
        // Relaxed: a failure is a permit that came in between, which the swap below consumes.
        if self.state.compare_exchange(EMPTY, PARKED, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            // A swap, not a store: a second `unpark` may have come since, and what was written before it is
            // promised to be visible too. Acquire: pairs as in `park`.
            self.state.swap(EMPTY, Ordering::Acquire);
            return true;
        }
        loop {
            let outcome = P::wait(&self.state, PARKED, deadline);
            // Relaxed: whether the permit is there is decided by the swap below.
            if self.state.load(Ordering::Relaxed) == PERMIT || outcome == Wait::TimedOut {
                return self.state.swap(EMPTY, Ordering::Acquire) == PERMIT;
            }
        }
    }

    /// Gives the permit, and wakes the owner if it sleeps. Several calls give one permit.
    #[inline]
    pub fn unpark(&self) {
        // Release: pairs with the acquire in `park`.
        if self.state.swap(PERMIT, Ordering::Release) == PARKED {
            P::wake(&raw const self.state, 1);
        }
    }
}

impl<P: LockPlatform> Default for Parker<P> {
    fn default() -> Self {
        Self::new()
    }
}
