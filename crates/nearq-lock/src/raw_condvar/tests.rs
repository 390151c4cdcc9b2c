//! Waiting for a condition and being notified: under the model checker, and on real threads.

mod linux;
#[cfg(not(any(miri, tsan)))]
mod model;
#[cfg(not(any(miri, tsan)))]
mod summoned;
