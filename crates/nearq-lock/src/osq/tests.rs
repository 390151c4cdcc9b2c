//! The queue as a lock: alone, on real threads, and under the model checker.

mod linux;
#[cfg(not(any(miri, tsan)))]
mod model;
