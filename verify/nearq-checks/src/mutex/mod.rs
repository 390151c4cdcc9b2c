//! The mutex of `nearq-lock`: its word, queues, slots and turns.
//!
//! # How it follows the code
//! Each thread is at a place of the code ([`At`]), and each [`Step`] leads it to the next one. Steps have the names of the functions
//! of `raw.rs`, `waiting.rs`, `turn.rs`, `queue.rs` and `slot.rs` that do them. A step is one atomic operation, and what the thread
//! does by itself before or after it. More than one operation is one step only where the others could not tell:
//! - a load, and a compare-exchange that succeeds only on what was loaded, where failing leads back to the load and leaves
//!   nothing behind: such a pair is a step of its own at the moment of the compare-exchange;
//! - what touches things that only the thread can reach: preparing its record, giving it back, the `front` of a domain in which it
//!   is the only one in front;
//! - taking a record or giving one back, and the step before it. The code takes the first that is free; here it may be any, which
//!   matters to threads that have read its number long ago.
//!
//! A pair is kept apart where something else happens in between, or where the compare-exchange is not repeated: the look at a
//! domain's tail, at the word again, and the join; a fair unlock's look and its step; `try_lock` of a reserved mutex with a slot; the look that
//! leads to `RESERVED`, and setting it; sleeping, which compares once more; waking, which comes after the step that calls for it.
//!
//! # What is left open
//! Counts, clocks and the number of spinners decide when something is done, never whether it is right to do it. Here they decide
//! nothing: wherever the code asks one of them, both answers are tried. So looking and yielding are nothing but standing still,
//! and a change to queues by domain, the way back, a hand-over across, rousing, reserving and a time-out may come whenever the
//! code could do them at all. Forks and the contents of `passed` and `since` are left out.
//!
//! # What is checked
//! | property | meaning |
//! |---|---|
//! | exclusion | as many hold a mutex as its word says: one or none |
//! | no lost wake-up | somebody can take a step, or nobody sleeps; a time-out is not a step, so no deadline hides one |
//! | no stuck slot | when all is quiet, a slot is in the word of exactly one mutex that is still there, with empty queues and a turn that nobody has; or it is free |
//! | no lost record | when all is quiet, each record is its thread's, or free |
//! | nobody takes another's reservation away | `RESERVED` is there for as long as one who has the turn keeps the mutex for itself |
//! | RESERVED is heeded | nobody without the turn takes such a mutex, but for those below |
//! | nobody passes by | nor does anybody because `RESERVED` has vanished |
//! | no fault | what needs no look at the whole state ([`Fault`]): a record told or freed twice, a slot unbound that is not bound, ... |
//! | everybody is served or gives up | where a way through the states ends, all operations are over |
//!
//! The last is enough for progress where no way goes in a circle, which [`cycles`](crate::cycles) looks for: then every way ends,
//! whatever the scheduler does, and everybody who does not give up gets the mutex. A compare-exchange that fails is no circle
//! here: it fails because another thread has got on.
//!
//! # Who is not stopped by `RESERVED`
//! One that waits without a queue: it has no turn that could come, and the mutex may be kept for nobody. Scenarios with such a one
//! say so, and must show it.

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
