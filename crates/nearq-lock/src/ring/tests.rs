//! The ring by itself: its lock under the model checker, its order, and forks.

mod fork;
#[cfg(not(any(miri, tsan)))]
mod model;
mod order;
