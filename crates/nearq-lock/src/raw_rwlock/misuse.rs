//! In debug builds, wrong uses of a reader-writer lock panic: leaving it without having it, and waiting for it in a way that can never end.
//!
//! As for mutexes (`misuse.rs` of the crate), each thread has a list of what it has. A lock is there under the address of its state, plus
//! a number that says as what the thread has it; no other lock's word has such an address. A thread that reads a lock several times has it
//! there as often.
//!
//! A wait without a deadline is reported if the thread has the lock in a way that keeps out what it waits for: it writes and wants to read,
//! or reads in any way and wants to write. It is not reported that a thread that reads wants to read again: whether it waits for ever
//! depends on the writer in between, which may give up.

use core::time::Duration;

use nearq_platform::{Atomic, HeldLocks, LockPlatform, Ordering};

use super::word::{KIND, UPGRADABLE, active, has_writer, row};

/// As what a thread has a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Read = 1,
    Write = 2,
    Upgradable = 3,
}

/// What keeps a thread out that wants to read, to write, to read upgradably, and to upgrade.
pub(super) const AGAINST_READ: &[Held] = &[Held::Write];
pub(super) const AGAINST_WRITE: &[Held] = &[Held::Read, Held::Write, Held::Upgradable];
pub(super) const AGAINST_UPGRADABLE: &[Held] = &[Held::Write, Held::Upgradable];
pub(super) const AGAINST_UPGRADE: &[Held] = &[Held::Read];

/// How many times a thread that seems to have what it waits for checks again before it panics, and how long it sleeps in between.
const CHECKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(1);

/// Queries the caller's list. Does nothing in release builds, or if there is no list.
#[inline(always)]
fn query<P: LockPlatform, R>(
    state: &P::AtomicU32,
    held: Held,
    what: impl FnOnce(&HeldLocks, usize) -> R,
) -> Option<R> {
    if cfg!(debug_assertions) {
        P::with_held(|list| what(list, core::ptr::from_ref(state).addr() + held as usize))
    } else {
        None
    }
}

/// The caller has taken the lock.
#[inline(always)]
pub(super) fn took<P: LockPlatform>(state: &P::AtomicU32, held: Held) {
    match held {
        Held::Read => query::<P, _>(state, held, HeldLocks::add_again),
        Held::Write | Held::Upgradable => query::<P, _>(state, held, HeldLocks::add),
    };
}

/// The lock is gone, or free, whatever the caller had.
#[cold]
pub(super) fn lost<P: LockPlatform>(state: &P::AtomicU32) {
    for held in [Held::Read, Held::Write, Held::Upgradable] {
        while query::<P, _>(state, held, HeldLocks::forget) == Some(true) {}
    }
}

/// The caller is about to leave the lock.
#[inline(always)]
#[track_caller]
pub(super) fn gives_back<P: LockPlatform>(state: &P::AtomicU32, held: Held) {
    if query::<P, _>(state, held, HeldLocks::remove) == Some(false) {
        not_held(held);
    }
}

/// The caller uses the lock in a way that requires having it.
#[inline(always)]
#[track_caller]
pub(super) fn expect_held<P: LockPlatform>(state: &P::AtomicU32, held: Held) {
    if query::<P, _>(state, held, HeldLocks::may_have) == Some(false) {
        not_held(held);
    }
}

/// The caller has the lock as something else now.
#[inline(always)]
pub(super) fn becomes<P: LockPlatform>(state: &P::AtomicU32, from: Held, to: Held) {
    query::<P, _>(state, from, HeldLocks::remove);
    took::<P>(state, to);
}

#[cold]
#[track_caller]
fn not_held(held: Held) -> ! {
    let what = match held {
        Held::Read => "a reader",
        Held::Write => "a writer",
        Held::Upgradable => "an upgradable reader",
    };
    panic!(
        "a reader-writer lock was unlocked by a thread that does not have it as {what}. The thread that locked it must unlock it, once, and \
             as what it has it; or the lock was moved while it was locked"
    );
}

/// The caller is about to wait for the lock without a deadline.
#[inline(always)]
#[track_caller]
pub(super) fn waits<P: LockPlatform>(state: &P::AtomicU32, against: &[Held]) {
    if against.iter().any(|&held| seems_held::<P>(state, held)) {
        taken_again::<P>(state, against);
    }
}

/// Whether the caller has the lock so, as far as one check can tell. The list alone does not prove it: a lock may have been leaked, and
/// another one may be at its address now.
fn seems_held<P: LockPlatform>(state: &P::AtomicU32, held: Held) -> bool {
    if query::<P, _>(state, held, HeldLocks::surely_has) != Some(true) {
        return false;
    }
    // Relaxed: what the thread has itself, it sees.
    let word = state.load(Ordering::Relaxed);
    match held {
        Held::Read => active(word) > 0 || row(word) != 0,
        Held::Write => has_writer(word),
        Held::Upgradable => word & KIND == UPGRADABLE,
    }
}

#[cold]
#[track_caller]
fn taken_again<P: LockPlatform>(state: &P::AtomicU32, against: &[Held]) {
    for _ in 0..CHECKS {
        P::sleep(PAUSE);
        if !against.iter().any(|&held| seems_held::<P>(state, held)) {
            return;
        }
    }
    panic!(
        "a thread waits for a reader-writer lock that it already has, and would wait for ever: it locked it before, and still has the guard, or \
             has forgotten it"
    );
}
