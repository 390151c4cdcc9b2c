//! Threads that begin or end, and forks that wait for them.
//!
//! The standard library takes locks of its own while a thread begins and ends. A child of a fork that came in that moment would have them
//! locked for ever, and hang as soon as it starts a thread itself. So a thread that is started by us is *in transit* from before it is
//! created until its `main` begins, and again from the end of its `main` until its thread-local values are dropped, which comes after what
//! the standard library does. A fork closes the gate, then waits until nobody is in transit; who wants to begin or to end waits before
//! the gate until the fork is over.
//!
//! Threads that the program starts by other means are not known here.
//!
//! # The word
//! `closed:1 | in transit:31`. Entering is a compare-exchange that fails where the gate is closed, so who closes it sees all that have
//! entered. Whoever leaves last wakes the one who forks. Nobody holds any lock of ours between entering and leaving but
//! who creates a thread; the fork has what it needs of those before it closes the gate. All `Relaxed` but for the steps by which
//! the forking thread sees what others did in transit: leaving releases, its look acquires.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use super::platform::Linux;
use crate::LockPlatform;

const CLOSED: u32 = 1 << 31;

static WORD: AtomicU32 = AtomicU32::new(0);

/// How long a fork waits for threads that begin or end. Where the machine does not let them run for so long, it goes on.
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

/// A thread is about to be created. Leaves when it is dropped: by the new thread, when it has begun, or where it was not created.
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

/// Leaves when the thread's local values are dropped.
struct Leaves;

impl Drop for Leaves {
    fn drop(&mut self) {
        leave();
    }
}

thread_local! {
    static ENDS: core::cell::RefCell<Option<Leaves>> = const { core::cell::RefCell::new(None) };
}

/// A thread of ours. When this is dropped it has nothing to do any more but what the standard library does.
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

/// A fork comes: waits until nobody is in transit, and keeps it so.
pub(super) fn close() {
    let deadline = Linux::now() + PATIENCE;
    let mut word = WORD.fetch_or(CLOSED, Ordering::Acquire) | CLOSED;
    while word != CLOSED && Linux::now() < deadline {
        Linux::wait(&WORD, word, Some(deadline));
        word = WORD.load(Ordering::Acquire);
    }
}

/// The fork is over, in the process that forked.
pub(super) fn open() {
    WORD.fetch_and(!CLOSED, Ordering::Release);
    Linux::wake(&raw const WORD, usize::MAX);
}

/// The caller is the child's only thread.
pub(super) fn open_in_child() {
    WORD.store(0, Ordering::Relaxed);
}
