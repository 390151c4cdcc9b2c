//! A bell: one listens, as a sleeping thread or as a waker; anybody rings, without waiting for anybody.
//!
//! It carries no news itself. Who has news writes them first and rings then; who listens says so first and looks for news
//! then. Both are `SeqCst` (Dekker's pattern): either the ringer sees who listens, or the listener sees the news. A ring
//! that nobody listens to costs one load.
//!
//! # The word
//!
//! | state | who may change it | the waker's place belongs to |
//! |---|---|---|
//! | `QUIET` | the listener: to `ASLEEP`, `CHANGING` | the listener |
//! | `ASLEEP` | a ringer: to `QUIET`, and wakes the thread; the listener: to `QUIET` | the listener |
//! | `CHANGING` | the listener: to `POLLED`; a ringer: to `MISSED` | the listener |
//! | `MISSED` | the listener: to `QUIET` | the listener |
//! | `POLLED` | a ringer: to `RINGING`; the listener: to `CHANGING`, `ASLEEP` | who takes it out of this state |
//! | `RINGING` | that ringer: to `QUIET` | that ringer |
//!
//! * Each ring that comes while somebody listens takes one of the steps away from `ASLEEP`, `POLLED` or `CHANGING`, or finds
//!   that another ringer has just taken it. So no ring is lost, and none wakes twice.
//! * A ringer may be preempted in `RINGING`. The listener does not wait for it when it polls: it wakes itself instead and
//!   looks again. A thread that is about to sleep lets others run until the state is over: it is the ringer's few instructions.
//! * There is one listener at a time; the owner's exclusive reference says so.
//! * The word also has the process's forks. One of another process counts as `QUIET`: a ringer of the parent's may have vanished in
//!   the middle of its steps, and a waker of the parent's is not to be called. The listener begins anew; what is in the waker's
//!   place is forgotten, for it may be half changed.

use core::task::Waker;

use nearq_platform::{Atomic, Ordering, Platform, PlatformCell};

use crate::base::outcome::contain;

const QUIET: u32 = 0;
const ASLEEP: u32 = 1;
const CHANGING: u32 = 2;
const MISSED: u32 = 3;
const POLLED: u32 = 4;
const RINGING: u32 = 5;
/// Where the epoch begins, behind the state.
const EPOCH_SHIFT: u32 = 3;

/// A state, in this process.
#[inline]
fn here<P: Platform>(state: u32) -> u32 {
    (P::fork_epoch() as u32) << EPOCH_SHIFT | state
}

/// See the head of the file.
pub(crate) struct Bell<P: Platform> {
    word: P::AtomicU32,
    waker: P::Cell<Option<Waker>>,
}

// SAFETY: the word says who may touch the waker's place; wakers may go anywhere.
unsafe impl<P: Platform> Sync for Bell<P> {}
// SAFETY: as above.
unsafe impl<P: Platform> Send for Bell<P> {}

impl<P: Platform> Bell<P> {
    pub(crate) fn new() -> Self {
        Bell { word: P::AtomicU32::new(here::<P>(QUIET)), waker: P::Cell::new(None) }
    }

    fn step(&self, from: u32, to: u32) -> bool {
        let (from, to) = (here::<P>(from), here::<P>(to));
        // SeqCst: Dekker's pattern. It also hands the waker's place over.
        self.word.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Begins anew in the child of a fork. By the listener, before its other steps.
    fn renew(&self) {
        // Relaxed: of another process it is as the parent left it, and only the listener changes that.
        if self.word.load(Ordering::Relaxed) >> EPOCH_SHIFT != here::<P>(QUIET) >> EPOCH_SHIFT {
            // SAFETY: ringers leave a word of another process alone, so the place is the listener's. It is not looked at.
            self.waker.with_mut(|place| unsafe { place.write(None) });
            self.word.store(here::<P>(QUIET), Ordering::SeqCst);
        }
    }

    /// Tells who listens to look again. The caller has written its news by a `SeqCst` operation.
    #[inline]
    pub(crate) fn ring(&self) {
        P::model_fence();
        if self.word.load(Ordering::SeqCst) != here::<P>(QUIET) {
            self.ring_listener();
        }
    }

    #[cold]
    fn ring_listener(&self) {
        loop {
            let state = self.word.load(Ordering::SeqCst) ^ here::<P>(QUIET);
            match state {
                ASLEEP if self.step(ASLEEP, QUIET) => {
                    P::wake(&raw const self.word, 1);
                    return;
                }
                POLLED if self.step(POLLED, RINGING) => {
                    // SAFETY: we took it to RINGING, so the place is ours.
                    let waker = self.waker.with_mut(|place| unsafe { (*place).take() });
                    // Release: hands the place back.
                    self.word.store(here::<P>(QUIET), Ordering::SeqCst);
                    if let Some(waker) = waker {
                        // A waker is foreign code; its panic must not end a worker.
                        contain(|| waker.wake());
                    }
                    return;
                }
                CHANGING if self.step(CHANGING, MISSED) => return,
                QUIET | MISSED | RINGING => return,
                // Nobody of this process listens.
                _ if state >> EPOCH_SHIFT != 0 => return,
                _ => {}
            }
        }
    }

    /// Sleeps until somebody rings, unless `news` says that there are some. The caller is the one listener.
    pub(crate) fn wait(&self, mut news: impl FnMut() -> bool) {
        self.renew();
        // A waker of an earlier poll stays in its place, which is ours from here on.
        while !self.step(QUIET, ASLEEP) && !self.step(POLLED, ASLEEP) {
            P::yield_now();
        }
        P::model_fence();
        if news() {
            // Where it fails, somebody has rung for the very news.
            self.step(ASLEEP, QUIET);
            return;
        }
        let asleep = here::<P>(ASLEEP);
        while self.word.load(Ordering::SeqCst) == asleep {
            P::wait_for_work(&self.word, asleep, None);
        }
    }

    /// Leaves a waker. False if that was not possible because somebody rings just now: the caller looks for news, and calls
    /// again. After true it looks for news once more. The caller is the one listener.
    pub(crate) fn leave(&self, waker: &Waker) -> bool {
        // Foreign code, which may panic: before the place is touched.
        let waker = waker.clone();
        self.renew();
        if !self.step(QUIET, CHANGING) && !self.step(POLLED, CHANGING) {
            return false;
        }
        // SAFETY: in CHANGING the place belongs to the listener.
        let old = self.waker.with_mut(|place| unsafe { (*place).replace(waker) });
        let left = self.step(CHANGING, POLLED);
        if !left {
            self.word.store(here::<P>(QUIET), Ordering::SeqCst);
        }
        P::model_fence();
        contain(|| drop(old));
        left
    }

    /// Takes the waker back that was left last. The caller is the one listener, and listens no more: then the thread that drops the bell has no
    /// foreign code to drop with it.
    pub(crate) fn leave_none(&self) {
        if self.step(POLLED, CHANGING) {
            // SAFETY: in CHANGING the place belongs to the listener.
            let old = self.waker.with_mut(|place| unsafe { (*place).take() });
            self.word.store(here::<P>(QUIET), Ordering::SeqCst);
            contain(|| drop(old));
        }
    }
}
