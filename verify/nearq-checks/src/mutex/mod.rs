//! The mutex of `nearq-lock`: its word, queues, slots and turns.
//!
//! # How it follows the code
//! Each thread is at a place of the code ([`At`]), and each [`Step`] leads it to the next one. Steps have the names of the functions of
//! `raw_mutex.rs`, `waiting.rs`, `turn.rs`, `queue.rs` and `slot.rs` that do them. A step is one atomic operation, together with what the
//! thread does on its own before or after it. Several operations form one step only if the other threads could not tell the difference:
//! - a load and a compare-exchange that succeeds only on the loaded value, if a failure leads back to the load and leaves nothing behind:
//!   such a pair is one step, at the moment of the compare-exchange;
//! - operations on things that only the thread can reach: preparing its record, giving it back, writing the `front` of a domain in which it
//!   is the only thread in front;
//! - taking a record or giving one back, and the step before it. The code takes the first free record; here it may be any free one, which
//!   matters for threads that read its number long ago.
//!
//! Such a pair stays two steps if something else happens in between, or if the compare-exchange is not repeated: the read of a domain's
//! tail, the second read of the word, and the join; a fair unlock's read and its step; `try_lock` of a reserved mutex with a slot; the read
//! that leads to `RESERVED`, and setting it; sleeping, which compares once more; waking, which comes after the step that calls for it.
//!
//! # What is left open
//! Counts, clocks and the number of spinners decide when something is done, never whether it is correct. Here they decide nothing: wherever
//! the code checks one of them, both results are tried. So spinning and yielding are the same as doing nothing, and a change to queues by
//! domain, the change back, a hand-over across, rousing, reserving and a time-out may come whenever the code could do them at all. Forks
//! and the contents of `passed` and `since` are left out.
//!
//! # What is checked
//! | property | meaning |
//! |---|---|
//! | exclusion | as many threads hold a mutex as its word says: one or none |
//! | no lost wake-up | some thread can take a step, or no thread sleeps; a time-out is not a step, so no deadline hides a lost wake-up |
//! | no stuck slot | when all is quiet, a slot is in the word of exactly one existing mutex, with empty queues and a free turn; or free |
//! | no lost record | when all is quiet, each record belongs to its thread, or is free |
//! | nobody takes another's reservation away | `RESERVED` is set while the thread that has the turn keeps the mutex for itself |
//! | RESERVED is heeded | no thread without the turn takes a mutex that is reserved in this way, except the threads described below |
//! | nobody passes by | no such thread takes it either after `RESERVED` was wrongly removed |
//! | no fault | errors that can be detected without the whole state ([`Fault`]): a record that is sent a message twice or freed twice, an unbound slot that is unbound, ... |
//! | everybody is served or gives up | when a path through the states ends, all operations are over |
//!
//! The last property is enough for progress if no path goes in a circle, which [`cycles`](crate::cycles) checks: then every path ends,
//! whatever the scheduler does, and every thread that does not give up gets the mutex. A compare-exchange that fails does not count as a
//! circle: it fails because another thread has made progress.
//!
//! # Which threads are not stopped by `RESERVED`
//! A thread that waits without a queue takes a mutex even if it is reserved: the thread would never have the turn, and the mutex may be
//! reserved for no thread. Scenarios with such a thread declare it, and must reach that case.

mod at;
mod lock;
mod model;
mod properties;
mod queues;
mod scenario;
mod slots;
mod state;
mod symmetry;
mod words;

pub use at::{After, At, Queue, Sleeper, Tail, Then};
pub use model::{Action, Step};
pub use scenario::{How, Mode, Mutant, Op, Scenario, Script};
pub use state::{Fault, Line, Message, Next, Record, RecordState, Slot, State, Thread, Wake, Word};
