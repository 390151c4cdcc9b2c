//! The ring by itself: its lock under the model checker, and its order.

#[cfg(not(miri))]
mod model;
mod order;
