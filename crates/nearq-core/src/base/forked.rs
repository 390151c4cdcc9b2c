//! What a structure uses to take part in a fork: a word that is written only if it has another value, and a lock that is held from before
//! the fork until after it. `fork` says when, and in which process.

use nearq_lock::Mutex;
use nearq_platform::{Atomic, Ordering, Platform};

/// Writes the word only if its value differs, so that otherwise its page stays shared with the parent.
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
    // SAFETY: the lock was taken and the guard forgotten by this thread or, in the child, by the thread of which this one is a copy.
    unsafe { mutex.force_unlock() };
}
