//! Mutexes that are used wrongly panic in debug builds: given back by who does not hold them, taken again by who does.
//!
//! Each thread has a list of what it holds (`nearq_platform::Held`); a mutex is known by the address of its word. Whoever takes
//! one notes it *after* the step that took it, and strikes it out *before* the step that gives it back. Only the thread itself ever
//! looks into its list. In release builds nothing here does anything.
//!
//! # What is said, and when
//! - *Not in the list* of who gives a mutex back: it panics, and the mutex stays as it is.
//! - *In the list* of who is about to wait for it without a deadline: it would wait for ever, and panics. The list alone does not
//!   prove that: a mutex may have been leaked while it was held, and its memory be another's by now. Three things together do: the
//!   word is locked, the mutex is in the list, and nobody has noted since that it took one at that address. Who takes one that lies where
//!   a leaked one was is between its step and its note for a few instructions, unless it is preempted there; so we look again
//!   for a while before we say anything. Who really holds it has time.
//!
//! # Who holds what in the end
//! - *Forks*: the child's thread has a copy of the list of the thread that forked, and so holds what that one held. What other
//!   threads held is in nobody's list there, and is made anew (`RawMutex::renew`).
//! - *Condition variables* give the mutex back and take it again; the thread that was moved into the queue notes it itself.
//! - *A thread that ends* takes its list along. What it has not given back stays held, by nobody.
//! - *Somebody else* may give a mutex back after the one who took it has disowned it (`RawMutex::disown`, `RawMutex::adopt`).

use core::time::Duration;

use nearq_platform::{Atomic, Held, LockPlatform, Ordering};

use crate::word::LOCKED;

/// So often who seems to hold what it waits for looks again before it panics.
const LOOKS: u32 = 10;
/// And so long it sleeps in between.
const PAUSE: Duration = Duration::from_millis(1);

/// Asks the caller's list about the lock with that word; nothing in release builds, and where there is no list.
#[inline(always)]
fn ask<P: LockPlatform, R>(word: &P::AtomicU32, what: impl FnOnce(&Held, usize) -> R) -> Option<R> {
    if cfg!(debug_assertions) {
        P::with_held(|held| what(held, core::ptr::from_ref(word).addr()))
    } else {
        None
    }
}

/// The caller has taken the lock.
#[inline(always)]
pub(crate) fn took<P: LockPlatform>(word: &P::AtomicU32) {
    ask::<P, _>(word, Held::add);
}

/// The caller does not hold the lock any more, if it did.
#[inline(always)]
pub(crate) fn lost<P: LockPlatform>(word: &P::AtomicU32) {
    ask::<P, _>(word, Held::forget);
}

/// The caller holds the lock, but not in its own name from now on.
#[inline(always)]
pub(crate) fn disowns<P: LockPlatform>(word: &P::AtomicU32) {
    ask::<P, _>(word, Held::remove);
}

/// The caller is about to give the lock back.
#[inline(always)]
#[track_caller]
pub(crate) fn gives_back<P: LockPlatform>(word: &P::AtomicU32) {
    if ask::<P, _>(word, Held::remove) == Some(false) {
        not_held::<P>(word);
    }
}

/// The caller uses the lock as one who holds it does.
#[inline(always)]
#[track_caller]
pub(crate) fn expect_held<P: LockPlatform>(word: &P::AtomicU32) {
    if ask::<P, _>(word, Held::may_have) == Some(false) {
        not_held::<P>(word);
    }
}

#[cold]
#[track_caller]
fn not_held<P: LockPlatform>(word: &P::AtomicU32) -> ! {
    // Relaxed: for the message.
    assert!(
        word.load(Ordering::Relaxed) & LOCKED != 0,
        "a mutex is given back that nobody holds: it is free. It was given back twice, or moved while it was held"
    );
    panic!(
        "a mutex is given back by a thread that does not hold it: another thread took it, and has to give it back, or to \
         disown it before. Or it was moved while it was held"
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

/// Whether the caller holds the mutex, as far as can be known at one look.
fn seems_held<P: LockPlatform>(word: &P::AtomicU32) -> bool {
    ask::<P, _>(word, Held::surely_has) == Some(true)
        // Relaxed: see the head of the file.
        && word.load(Ordering::Relaxed) & LOCKED != 0
}

#[cold]
#[track_caller]
fn taken_again<P: LockPlatform>(word: &P::AtomicU32) {
    for _ in 0..LOOKS {
        P::sleep(PAUSE);
        if !seems_held::<P>(word) {
            return;
        }
    }
    panic!(
        "a thread waits for a mutex that it holds already, which would be for ever: it took it before, and still has the guard, \
         or has forgotten it"
    );
}
