//! Waiting on an address, as Linux's futex does it.
//!
//! One list of sleepers for all words, under one loom mutex: the kernel's hash bucket, with everything in the
//! same bucket. A sleeper brings its own condition variable, so that a wake-up reaches exactly the one that it
//! is meant for. The list holds addresses: `wake` never reads the word.
//!
//! The race that must not exist: a wake-up between the sleeper's comparison and its sleep. The comparison is made
//! under the list's mutex, and sleeping gives the mutex up and waits in one step. A waker first changes the word,
//! then takes the mutex: either it finds the sleeper in the list, or the sleeper took the mutex after it and
//! sees the changed word.

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};
use nearq_platform::{Atomic, Ordering, Wait};

use crate::AtomicU32;

struct Sleeper {
    address: usize,
    woken: Arc<Condvar>,
}

loom::lazy_static! {
    /// The sleepers, in the order in which they came. Created again for each execution of the model.
    static ref SLEEPERS: Mutex<Vec<Sleeper>> = Mutex::new(Vec::new());
}

/// Sleeps until woken, if `word` holds `expected`; not at all if the deadline comes.
pub(crate) fn wait(word: &AtomicU32, expected: u32, deadline_comes: bool) -> Wait {
    let mut sleepers = SLEEPERS.lock().expect("no panic happens under this mutex");
    // Relaxed: a waker that changed the word and is done with the mutex is ordered before us by the mutex; one
    // that has yet to take the mutex will find us in the list, whichever value we saw.
    if word.load(Ordering::Relaxed) != expected {
        return Wait::Changed;
    }
    if deadline_comes {
        return Wait::TimedOut;
    }
    let woken = Arc::new(Condvar::new());
    sleepers.push(Sleeper { address: address(word), woken: Arc::clone(&woken) });
    drop(woken.wait(sleepers).expect("no panic happens under this mutex"));
    Wait::Woken
}

/// Wakes the first `count` threads that sleep on `word`. Returns how many there were.
pub(crate) fn wake(word: *const AtomicU32, count: usize) -> usize {
    let mut sleepers = SLEEPERS.lock().expect("no panic happens under this mutex");
    let mut woken = 0;
    while woken < count {
        let Some(first) = sleepers.iter().position(|sleeper| sleeper.address == address(word))
        else {
            break;
        };
        sleepers.remove(first).woken.notify_one();
        woken += 1;
    }
    woken
}

fn address(word: *const AtomicU32) -> usize {
    word.addr()
}
