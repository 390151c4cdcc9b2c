//! Models of the runtime's protocols, for the model checker `stateright`; for tests only.
//!
//! Under `loom`, the tests of the other crates run the code itself, with every ordering that the language allows, by two or three
//! threads and with a bound on preemptions. This crate restates the protocol without the code: each atomic step is a transition between
//! states that are compared and stored, so that *all* orders of three and four threads are visited, with time-outs at every place where
//! one may come. Steps take effect at once and for all threads; memory orderings are left to `loom`.
//!
//! [`mutex`] models the word and the slots of `nearq-lock`, [`rwlock`] its reader-writer lock.

pub mod cycles;
pub mod mutex;
pub mod rwlock;
