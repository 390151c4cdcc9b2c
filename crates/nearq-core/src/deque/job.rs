//! A job: the part of a fork that another thread may run, on the stack of the thread that offers it.
//!
//! # Who may touch what
//! Until the job has been stolen, it is the owner's. The thread that steals it runs it, and its last access to the job is the step that
//! sets `DONE`; from then on the job is the owner's again, and may be gone. That step is followed by a wake-up, which needs only the
//! address.
//!
//! | state | meaning |
//! |---|---|
//! | bits 2 to 31 | one more than the number of the thread that runs it; 0 if none has said so yet |
//! | `ASLEEP` | the owner sleeps until it is done |
//! | `DONE` alone | it has ended |
//!
//! # Orderings
//! The thief's swap to `DONE` releases what the job did; the owner's load of `DONE` acquires it. The thief's number is a hint: Relaxed.
//! `ASLEEP` is set by a compare-exchange, and `DONE` by a swap of the same word: so either the thief sees `ASLEEP` and wakes the owner,
//! or the owner sees `DONE` and does not sleep.

use core::ptr::NonNull;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

const DONE: u32 = 1;
const ASLEEP: u32 = 2;
const THIEF_SHIFT: u32 = 2;

/// See the head of the file. The first field of what it is a part of.
#[repr(C)]
pub(crate) struct Job<P: Platform> {
    state: P::AtomicU32,
    /// Runs it and stores the result, without unwinding. False in the child of a fork that the job made: then nothing was stored, because
    /// the owner and its stack may not exist there.
    run: unsafe fn(NonNull<Job<P>>) -> bool,
}

impl<P: Platform> Job<P> {
    pub(crate) fn new(run: unsafe fn(NonNull<Job<P>>) -> bool) -> Self {
        Job { state: P::AtomicU32::new(0), run }
    }

    /// Runs a job that the caller, the thread with that number, has stolen. False in the child of a fork that the job made.
    ///
    /// # Safety
    /// The caller has got it from `Deque::steal`, and has not run it yet.
    pub(crate) unsafe fn run_stolen(job: NonNull<Self>, thief: u32) -> bool {
        // SAFETY: the owner waits for DONE, so the job exists.
        let this = unsafe { job.as_ref() };
        this.state.fetch_or((thief + 1) << THIEF_SHIFT, Ordering::Relaxed);
        // SAFETY: stolen by the caller, which runs it once.
        if !unsafe { (this.run)(job) } {
            return false;
        }
        let word = &raw const this.state;
        // SAFETY: as above; this is the last access.
        let before = this.state.swap(DONE, Ordering::AcqRel);
        if before & ASLEEP != 0 {
            // The job may be gone: only the address is used.
            P::wake(word, 1);
        }
        true
    }

    /// Whether the thread that stole it has run it. By the owner.
    pub(crate) fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    /// The thread that runs it, if it has said so.
    pub(crate) fn thief(&self) -> Option<u32> {
        let state = self.state.load(Ordering::Relaxed);
        (state >> THIEF_SHIFT).checked_sub(1)
    }

    /// Sleeps until it is done. By the owner.
    pub(crate) fn sleep(&self) {
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state == DONE {
                return;
            }
            let asleep = state | ASLEEP;
            // The thief may be storing its number.
            if state == asleep
                || self
                    .state
                    .compare_exchange(state, asleep, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            {
                P::wait_for_work(&self.state, asleep, None);
            }
        }
    }
}
