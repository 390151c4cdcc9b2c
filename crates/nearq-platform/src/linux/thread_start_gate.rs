//! The gate between forks and threads that begin or end.
//!
//! The standard library takes locks of its own while a thread begins and ends. In the child of a fork that came at that moment they would
//! stay locked for good, and the child would hang as soon as it starts a thread itself. So a thread that we start is *inside the
//! gate* from before it is created until its `main` begins, and again from the end of its `main` until its thread-local values are
//! dropped, which comes after what the standard library does. A fork closes the gate, then waits until no thread is inside; a thread that
//! wants to begin or end waits until the fork has opened the gate again.
//!
//! Threads that the program starts by other means are not known here.
//!
//! # The word
//! `closed:1 | inside:31`. Entering is a compare-exchange that fails if the gate is closed, so the thread that closes it sees all
//! that have entered. The thread that leaves last wakes the thread that forks. Between entering and leaving, only a thread that creates
//! another one may hold a lock of ours; the fork has taken those that it needs before it closes the gate. All accesses are `Relaxed`
//! except the steps by which the forking thread sees what others did inside: leaving releases, its check acquires.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use super::platform::Linux;
use crate::LockPlatform;

const CLOSED: u32 = 1 << 31;

static WORD: AtomicU32 = AtomicU32::new(0);

/// How long a fork waits for threads that begin or end. If the machine does not let them run for that long, the fork goes on.
const PATIENCE: Duration = Duration::from_secs(1);

fn enter() {
    let mut word = WORD.load(Ordering::Relaxed);
    loop {
        if word & CLOSED != 0 {
            Linux::wait(&WORD, word, None);
            word = WORD.load(Ordering::Relaxed);
            continue;
        }
        match WORD.compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return,
            Err(found) => word = found,
        }
    }
}

fn leave() {
    if WORD.fetch_sub(1, Ordering::Release) == CLOSED + 1 {
        Linux::wake(&raw const WORD, usize::MAX);
    }
}

/// A thread is about to be created. Leaves the gate when it is dropped: by the new thread when it has begun, or by the creator if the
/// thread could not be created.
pub(super) struct Begins(());

impl Begins {
    pub(super) fn new() -> Self {
        enter();
        Begins(())
    }
}

impl Drop for Begins {
    fn drop(&mut self) {
        leave();
    }
}

/// Leaves the gate when the thread's local values are dropped.
struct Leaves;

impl Drop for Leaves {
    fn drop(&mut self) {
        leave();
    }
}

thread_local! {
    static ENDS: core::cell::RefCell<Option<Leaves>> = const { core::cell::RefCell::new(None) };
}

/// A thread of ours. When this is dropped, only the standard library's own work is left to do.
pub(super) struct Ends(());

impl Ends {
    pub(super) fn new() -> Self {
        Ends(())
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        enter();
        ENDS.with(|ends| *ends.borrow_mut() = Some(Leaves));
    }
}

/// A fork begins: closes the gate, and waits until no thread is inside.
pub(super) fn close() {
    let deadline = Linux::now() + PATIENCE;
    let mut word = WORD.fetch_or(CLOSED, Ordering::Acquire) | CLOSED;
    while word != CLOSED && Linux::now() < deadline {
        Linux::wait(&WORD, word, Some(deadline));
        word = WORD.load(Ordering::Acquire);
    }
}

/// The fork is over, in the process that forked: opens the gate.
pub(super) fn open() {
    WORD.fetch_and(!CLOSED, Ordering::Release);
    Linux::wake(&raw const WORD, usize::MAX);
}

/// Opens the gate in the child, whose only thread is the caller.
pub(super) fn open_in_child() {
    WORD.store(0, Ordering::Relaxed);
}
