//! A job: the part of a fork that another thread may run. It is on the stack of the thread that offers it (`join`), or on the heap
//! (a closure of a scope).
//!
//! # Who may touch what
//! A job belongs to the thread that has pushed it, until that thread pops it or another one steals it; then to the thread that has got it,
//! which runs it once. A job on the heap is freed by running it. For a job on a stack, the thief's last access is the step that sets its
//! [`Progress`] to `DONE`; from then on the job is the owner's again, and may be gone. What follows is a ring of the owner's bell, which is
//! not part of the job.
//!
//! # The word of `Progress`
//! | state | meaning |
//! |---|---|
//! | bits 1 to 31 | one more than the number of the thread that runs it; 0 if none has said so yet |
//! | `DONE` alone | it has ended |
//!
//! The thief's swap to `DONE` releases what the job did; the owner's load of `DONE` acquires it. The thief's number is a hint: Relaxed.

use core::ptr::NonNull;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use super::Deque;

const DONE: u32 = 1;
const THIEF_SHIFT: u32 = 1;

/// Runs a job without unwinding. False in the child of a fork that the job made: then the job was not touched after the fork, because its
/// owner does not exist there, and the owner's stack may be another thread's by now.
type Run<P> = unsafe fn(NonNull<Job<P>>, Option<&Deque<P>>) -> bool;

/// See the head of the file. It is the first field of a structure that has the closure too.
#[repr(C)]
pub(crate) struct Job<P: Platform> {
    run: Run<P>,
    /// The address of the scope whose closure it is; null for a job on a stack.
    scope: *const (),
    /// Used for a job on a stack only.
    pub(crate) progress: Progress<P>,
}

impl<P: Platform> Job<P> {
    pub(crate) fn on_stack(run: Run<P>) -> Self {
        Job { run, scope: core::ptr::null(), progress: Progress::new() }
    }

    pub(crate) fn of_scope(scope: *const (), run: Run<P>) -> Self {
        debug_assert!(!scope.is_null());
        Job { run, scope, progress: Progress::new() }
    }

    pub(crate) fn scope(&self) -> *const () {
        self.scope
    }

    /// Runs a job. False in the child of a fork that the job made.
    ///
    /// # Safety
    /// The caller has popped it, or has stolen it from `victim`, and has not run it yet. If it is on a stack, the caller has stolen it.
    pub(crate) unsafe fn execute(job: NonNull<Self>, victim: Option<&Deque<P>>) -> bool {
        // SAFETY: the job exists until it has run.
        let run = unsafe { job.as_ref() }.run;
        // SAFETY: as the caller promises.
        unsafe { run(job, victim) }
    }
}

/// Whether a job on a stack has ended, and who runs it.
pub(crate) struct Progress<P: Platform>(P::AtomicU32);

impl<P: Platform> Progress<P> {
    fn new() -> Self {
        Progress(P::AtomicU32::new(0))
    }

    /// The job has been stolen by the caller, the thread with that number, which will run it.
    pub(crate) fn begin(&self, thief: u32) {
        self.0.fetch_or((thief + 1) << THIEF_SHIFT, Ordering::Relaxed);
    }

    /// The job has ended. By the thief, which has stolen it from that deque; its last access to the job.
    ///
    /// # Safety
    /// `this` is the progress of a job that the caller has stolen, and has not ended before.
    pub(crate) unsafe fn end(this: *const Self, victim: &Deque<P>) {
        // SAFETY: the owner waits for DONE, so the job exists until this step.
        unsafe { &*this }.0.swap(DONE, Ordering::AcqRel);
        victim.bell.ring();
    }

    /// Whether the thread that stole the job has run it. By the owner.
    pub(crate) fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire) == DONE
    }

    /// The thread that runs the job, if it has said so.
    pub(crate) fn thief(&self) -> Option<u32> {
        (self.0.load(Ordering::Relaxed) >> THIEF_SHIFT).checked_sub(1)
    }
}
