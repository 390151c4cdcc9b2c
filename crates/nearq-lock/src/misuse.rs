//! In debug builds, wrong uses of a mutex panic: releasing it without holding it, and taking it again while holding it.
//!
//! Each thread has a list of what it holds (`nearq_platform::HeldLocks`); a mutex is known by the address of its word. A thread that takes
//! one notes it *after* the step that took it, and removes it from the list *before* the step that releases it. Only the thread itself ever
//! reads its list. In release builds nothing here does anything.
//!
//! # What is reported, and when
//! - A thread releases a mutex that is *not in its list*: it panics, and the mutex stays as it is.
//! - A thread is about to wait without a deadline for a mutex that is *in its list*: it would wait for ever, and panics. The list alone
//!   does not prove that: a mutex may have been leaked while it was held, and its memory may belong to another mutex by now. Three facts
//!   together prove it: the word is locked, the mutex is in the list, and no thread has since noted that it took one at that address. A
//!   thread that takes a mutex at the address of a leaked one needs a few instructions between its step and its note, unless it is
//!   preempted there; so we check again for a while before we report anything. A thread that really holds the mutex has time.
//!
//! # Which thread holds what in the end
//! - *Forks*: the child's thread has a copy of the list of the thread that forked, and so holds what that thread held. What other threads
//!   held is in no list there, and must be reset (`RawMutex::renew`).
//! - *Condition variables* release the mutex and take it again; the thread that was moved into the queue notes it itself.
//! - *A thread that ends* loses its list. What it has not released stays held, by no thread.
//! - *Another thread* may release a mutex after the thread that took it has disowned it (`RawMutex::disown`, `RawMutex::adopt`).

use core::time::Duration;

use nearq_platform::{Atomic, HeldLocks, LockPlatform, Ordering};

use crate::word::LOCKED;

/// How many times a thread that seems to hold what it waits for checks again before it panics.
const CHECKS: u32 = 10;
/// How long it sleeps between two checks.
const PAUSE: Duration = Duration::from_millis(1);

/// Queries the caller's list about the lock with that word. Does nothing in release builds, or if there is no list.
#[inline(always)]
fn query<P: LockPlatform, R>(
    word: &P::AtomicU32,
    what: impl FnOnce(&HeldLocks, usize) -> R,
) -> Option<R> {
    if cfg!(debug_assertions) {
        P::with_held(|held| what(held, core::ptr::from_ref(word).addr()))
    } else {
        None
    }
}

/// The caller has taken the lock.
#[inline(always)]
pub(crate) fn took<P: LockPlatform>(word: &P::AtomicU32) {
    query::<P, _>(word, HeldLocks::add);
}

/// The caller no longer holds the lock, if it did.
#[inline(always)]
pub(crate) fn lost<P: LockPlatform>(word: &P::AtomicU32) {
    query::<P, _>(word, HeldLocks::forget);
}

/// The caller still holds the lock, but not in its own name from now on.
#[inline(always)]
pub(crate) fn disowns<P: LockPlatform>(word: &P::AtomicU32) {
    query::<P, _>(word, HeldLocks::remove);
}

/// The caller is about to release the lock.
#[inline(always)]
#[track_caller]
pub(crate) fn gives_back<P: LockPlatform>(word: &P::AtomicU32) {
    if query::<P, _>(word, HeldLocks::remove) == Some(false) {
        not_held::<P>(word);
    }
}

/// The caller uses the lock in a way that requires holding it.
#[inline(always)]
#[track_caller]
pub(crate) fn expect_held<P: LockPlatform>(word: &P::AtomicU32) {
    if query::<P, _>(word, HeldLocks::may_have) == Some(false) {
        not_held::<P>(word);
    }
}

#[cold]
#[track_caller]
fn not_held<P: LockPlatform>(word: &P::AtomicU32) -> ! {
    // Relaxed: for the message.
    assert!(
        word.load(Ordering::Relaxed) & LOCKED != 0,
        "a mutex was unlocked that no thread holds. It was unlocked twice, or moved while it was held"
    );
    panic!(
        "a mutex was unlocked by a thread that does not hold it. The thread that locked it must unlock it, or disown it first; or the mutex was \
             moved while it was held"
    );
}

/// The caller is about to wait for the mutex without a deadline.
#[inline(always)]
#[track_caller]
pub(crate) fn waits<P: LockPlatform>(word: &P::AtomicU32) {
    if seems_held::<P>(word) {
        taken_again::<P>(word);
    }
}

/// Whether the caller holds the mutex, as far as one check can tell.
fn seems_held<P: LockPlatform>(word: &P::AtomicU32) -> bool {
    query::<P, _>(word, HeldLocks::surely_has) == Some(true)
        // Relaxed: see the head of the file.
        && word.load(Ordering::Relaxed) & LOCKED != 0
}

#[cold]
#[track_caller]
fn taken_again<P: LockPlatform>(word: &P::AtomicU32) {
    for _ in 0..CHECKS {
        P::sleep(PAUSE);
        if !seems_held::<P>(word) {
            return;
        }
    }
    panic!(
        "a thread waits for a mutex that it already holds, and would wait for ever: it locked it before, and still has the guard, or has forgotten it"
    );
}
