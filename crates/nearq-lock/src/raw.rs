//! The lock itself: one 32-bit word with three states.
//!
//! # Protocol
//!
//! | value | meaning | who may change it, to what |
//! |---|---|---|
//! | `FREE` (0) | nobody holds the lock | anybody to `LOCKED`; one that has slept or is about to, to `CONTENDED` |
//! | `LOCKED` (1) | held, and nobody sleeps | the holder to `FREE`; one that is about to sleep, to `CONTENDED` |
//! | `CONTENDED` (2) | held, and somebody may sleep | the holder to `FREE`, and then it wakes one |
//!
//! Steps:
//! - *lock, fast*: compare-exchange `FREE` to `LOCKED`.
//! - *lock, slow*: look for a while whether `LOCKED` goes away; if the word is `FREE` then, try *fast* again.
//!   After that swap `CONTENDED` in: if the word was `FREE`, the lock is ours; otherwise sleep while the word is
//!   `CONTENDED`, look for a while, and swap again.
//! - *unlock*: swap `FREE` in; if the word was `CONTENDED`, wake one sleeper.
//!
//! Invariants:
//! 1. **Whoever turns `FREE` into anything else holds the lock.** Both transitions are one read-modify-write.
//! 2. **While a thread sleeps, the word is `CONTENDED`, or a wake-up is on its way, or a thread that was woken
//!    is on its way to swap `CONTENDED` in.** A sleeper has swapped `CONTENDED` in and sleeps only while it is
//!    there. Only an unlock takes it away, and that unlock wakes one. The woken one does not know whether others
//!    sleep, so it takes the lock as `CONTENDED`; its own unlock then wakes the next (or nobody, once too often).
//! 3. **An unlock does not touch the mutex after its swap.** The next owner may free the memory as soon as the
//!    word is `FREE`; the wake-up afterwards uses the address alone, which may wake a stranger for no reason, as
//!    every waiter on this platform must expect.
//!
//! The race: the holder unlocks between a locker's swap and its sleep. The platform's `wait` compares the word
//! with `CONTENDED` and falls asleep in one step, so the locker returns at once; and a new owner that took the
//! word from `FREE` to `LOCKED` in between makes the comparison fail as well.
//!
//! Orderings: every transition out of `FREE` is acquire and pairs with the release in the unlock's swap; what one
//! holder wrote, the next one sees. A swap of `CONTENDED` over `LOCKED` publishes nothing: the holder replaces it by
//! its own release swap, and only that one is taken for `FREE`.
//!
//! Not fair: a thread that comes by may take the lock before the one that was woken.

use nearq_platform::{Atomic, ConstAtomic, ConstPlatform, Linux, Ordering, Platform};

const FREE: u32 = 0;
const LOCKED: u32 = 1;
const CONTENDED: u32 = 2;

/// How many looks at a held lock before sleeping.
///
/// A look is a load and a pause, 10 to 40 ns; falling asleep and being woken costs both sides together 2 to 5 µs.
/// To spin about as long as the sleep would cost loses at most a factor of two against knowing beforehand how
/// long the lock will be held (Karlin, Li, Manasse, Owicki: Empirical studies of competitive spinning, 1991).
/// std's mutex has the same number. On a single CPU the holder cannot run while we look: the looks are in vain
/// there, unless the platform knows and looks once, as the simulator does.
const SPIN: u32 = 100;

/// A mutex without a value: `lock`, `try_lock`, `unlock`. Four bytes on Linux.
pub struct RawMutex<P: Platform = Linux> {
    state: P::AtomicU32,
}

const _: () = assert!(size_of::<RawMutex<Linux>>() == 4, "the lock is embedded by the thousand");

impl RawMutex<Linux> {
    /// A free lock, on Linux.
    pub const fn new() -> Self {
        Self::const_new_in()
    }
}

impl<P: ConstPlatform> RawMutex<P> {
    /// A free lock, in a constant.
    pub const fn const_new_in() -> Self {
        RawMutex { state: <P::AtomicU32 as ConstAtomic>::ZERO }
    }
}

impl<P: Platform> RawMutex<P> {
    /// A free lock, on any platform.
    pub fn new_in() -> Self {
        RawMutex { state: P::AtomicU32::new(FREE) }
    }

    /// Takes the lock; sleeps while another thread holds it. A thread that holds it already waits for ever.
    #[inline]
    pub fn lock(&self) {
        // Acquire: pairs with the release in `unlock`.
        if self
            .state
            .compare_exchange_weak(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            self.lock_slow();
        }
    }

    #[cold]
    fn lock_slow(&self) {
        P::wait_until_changed(&self.state, LOCKED, SPIN);
        if self.try_lock() {
            return;
        }
        // Acquire: pairs with the release in `unlock`. From here on we take the lock as `CONTENDED` only,
        // because others may sleep (invariant 2).
        while self.state.swap(CONTENDED, Ordering::Acquire) != FREE {
            P::wait(&self.state, CONTENDED, None);
            P::wait_until_changed(&self.state, LOCKED, SPIN);
        }
    }

    /// Takes the lock if it is free. True if we hold it now.
    #[inline]
    pub fn try_lock(&self) -> bool {
        // Acquire: pairs with the release in `unlock`.
        self.state.compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Gives the lock back, and wakes a thread that sleeps on it.
    ///
    /// # Safety
    /// The caller holds the lock: it took it, and has not given it back.
    #[inline]
    pub unsafe fn unlock(&self) {
        let word: *const P::AtomicU32 = &raw const self.state;
        // Release: pairs with the acquire of whoever takes the lock next. `*self` may be gone after this line.
        let before = self.state.swap(FREE, Ordering::Release);
        debug_assert_ne!(before, FREE, "unlock of a mutex that nobody holds");
        if before == CONTENDED {
            Self::wake_one(word);
        }
    }

    #[cold]
    fn wake_one(word: *const P::AtomicU32) {
        P::wake(word, 1);
    }

    /// Makes the lock free, whoever had it and whoever slept on it.
    ///
    /// # Safety
    /// No other thread uses the lock: those that held it or slept on it are not copied into the child of a fork.
    pub unsafe fn renew(&self) {
        // Relaxed: there is nobody to see it but the caller, and threads that it starts.
        self.state.store(FREE, Ordering::Relaxed);
    }

    /// Whether somebody holds the lock; it may have changed by the time the caller looks at the answer.
    pub fn is_locked(&self) -> bool {
        // Relaxed: a hint, nothing may be concluded from it.
        self.state.load(Ordering::Relaxed) != FREE
    }
}

impl<P: Platform> Default for RawMutex<P> {
    fn default() -> Self {
        Self::new_in()
    }
}

impl<P: Platform> core::fmt::Debug for RawMutex<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RawMutex").field("locked", &self.is_locked()).finish()
    }
}
