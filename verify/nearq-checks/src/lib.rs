//! Models of the runtime's protocols, for the model checker `stateright`; for tests only.
//!
//! Under `loom`, the tests of the other crates run the code itself, with every ordering that the language allows, by two or three
//! threads and with a bound on preemptions. What is here is the protocol told again, without the code: each atomic step is a
//! transition between states that are compared and stored, so that *all* orders of three and four threads are looked at, with time-outs
//! at every place where one may come. Steps take effect at once and for all; what orderings do is `loom`'s affair.
//!
//! [`mutex`] is the life of the word and of the slots of `nearq-lock`.

pub mod cycles;
pub mod mutex;
