//! Foreign code that deadlines leave to be run: the drop of what a delayed item captured, if nothing else had the item.
//!
//! It may take long, and it may wait for other deadlines, so the timer's thread does not run it. Separate threads, `nq/drop`, are started
//! for it, and end when nothing is left. There may be several, because what one of them runs may wait for what is behind it; but not many.

use std::collections::VecDeque;

use nearq_lock::Mutex;
use nearq_platform::Platform;

use super::Foreign;
use crate::base::outcome::contain;

/// The most threads.
const MOST: usize = 4;

/// See the head of the file.
pub(super) struct Leavings<P: Platform>(Mutex<State, P>);

#[derive(Default)]
struct State {
    left: VecDeque<Foreign>,
    /// Threads that run it.
    threads: usize,
}

impl<P: Platform> Leavings<P> {
    pub(super) fn new() -> Self {
        Leavings(Mutex::new_in(State::default()))
    }

    /// Adds `foreign`, and calls `start` to start one more thread that calls [`run`](Self::run), if that helps. False if that failed, and
    /// there is no other thread: then it must be retried.
    pub(super) fn add(&self, foreign: &mut Vec<Foreign>, start: impl FnOnce() -> bool) -> bool {
        let mut state = self.0.lock();
        state.left.extend(foreign.drain(..));
        if state.left.is_empty() || state.threads >= MOST {
            return true;
        }
        state.threads += 1;
        drop(state);
        if start() {
            return true;
        }
        let mut state = self.0.lock();
        state.threads -= 1;
        state.threads != 0
    }

    /// Runs what is there until nothing is left. By a thread that was started for it.
    pub(super) fn run(&self) {
        let epoch = P::fork_epoch();
        loop {
            let mut state = self.0.lock();
            let Some(foreign) = state.left.pop_front() else {
                state.threads -= 1;
                return;
            };
            drop(state);
            contain(foreign);
            if P::fork_epoch() != epoch {
                // In the child of a fork, where nothing of it exists.
                return;
            }
        }
    }

    /// Runs what is left. By the timer's thread at its end, after which no deadline can be late.
    pub(super) fn run_all(&self) {
        self.0.lock().threads += 1;
        self.run();
    }

    /// Resets it: what it has is the parent's. In the child of a fork.
    pub(super) fn after_fork_in_child(&self) {
        // SAFETY: this is the only thread, and no user's code runs while it holds the lock.
        unsafe { self.0.renew(State::default()) };
    }
}
