//! The ring by itself: its lock under the model checker, and its order.

#[cfg(not(any(miri, tsan)))]
mod model;
mod order;
