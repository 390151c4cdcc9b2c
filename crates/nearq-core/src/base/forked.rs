//! What a structure uses to take part in a fork: a word that is written only where it has another value, and a lock that is held from
//! before the fork to after it. `fork` says when, and in which process.

use nearq_lock::Mutex;
use nearq_platform::{Atomic, Ordering, Platform};

/// Writes a word that has another value; one that has it already is left alone, so that its page stays shared with the parent.
pub(crate) fn set<T: Copy + PartialEq>(word: &impl Atomic<T>, value: T) {
    if word.load(Ordering::Relaxed) != value {
        word.store(value, Ordering::Relaxed);
    }
}

/// Takes a lock until [`give_back`].
pub(crate) fn hold<T, P: Platform>(mutex: &Mutex<T, P>) {
    core::mem::forget(mutex.lock());
}

/// Gives back what [`hold`] took, in the process that forked or in the child.
///
/// # Safety
/// `hold` took it before the fork.
pub(crate) unsafe fn give_back<T, P: Platform>(mutex: &Mutex<T, P>) {
    // SAFETY: this thread took it, or in the child the thread of which this one is a copy, and forgot the guard.
    unsafe { mutex.force_unlock() };
}
