//! The runtime's mutex: four bytes, generic over the platform, never poisoned.
//!
//! [`Mutex`] protects a value, [`RawMutex`] is the lock alone, for those who embed it. Both are written against
//! [`LockPlatform`](nearq_platform::LockPlatform) alone, so the same code runs on Linux, on a simulated machine and under a
//! model checker. The protocol, with its states, orderings and races, is described in `raw.rs`.
//!
//! ```
//! use nearq_lock::Mutex;
//!
//! static COUNT: Mutex<u32> = Mutex::new(0);
//!
//! *COUNT.lock() += 1;
//! assert_eq!(*COUNT.lock(), 1);
//! ```
//!
//! A free mutex is a word of zero, and one that nobody waits for costs two compare-exchanges. Where threads wait, one word
//! still decides who holds it; queues decide who looks at the word and who is woken next: one queue, or, while hand-overs
//! cross last-level caches often, one for each cache, between which the mutex moves in batches ([`Mode`], [`Settings`];
//! `waiting.rs` has the protocol).
//!
//! [`Condvar`] has threads wait until something that a mutex protects is as they want it; [`RawCondvar`] is the same for
//! [`RawMutex`]. Who is notified is queued up for the mutex asleep, and wakes when it is its turn (`raw_condvar.rs`). A thread that
//! waits may be called away by [`Summons`], and may leave by a jump out of a signal handler ([`Stay`]).
//!
//! Whoever wants to see from outside how it goes has [`Statistics`] (while [`Settings::count`] says so) and [`Snapshot`]; and sets by name
//! what can be set by [`Mode`]'s and [`Threshold`]'s names.
//!
//! [`OsqLock`] is the optimistic spin queue: a lock that is handed on strictly in order, each waiter on a line of its own.
//!
//! In debug builds it is a panic to give a mutex back that the thread does not hold, and to wait for one that it holds already
//! (`misuse.rs`).
//!
//! It knows nothing of work queues.

#[cfg(feature = "lock_api")]
mod api;
mod condvar;
mod fallible;
mod lines;
mod misuse;
#[cfg(all(test, not(any(miri, tsan))))]
mod modelled;
mod mutex;
mod numbered;
mod osq;
mod queue;
mod raw;
mod raw_condvar;
mod ring;
mod room;
mod settings;
#[cfg(test)]
#[path = "../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;
mod slot;
mod snapshot;
mod statistics;
mod stay;
mod summons;
mod table;
mod threshold;
mod turn;
mod waiting;
mod withdraw;
mod word;

pub use condvar::Condvar;
pub use mutex::{Mutex, MutexGuard};
/// The platform that locks are on: `Linux`, and what their signatures name.
#[doc(no_inline)]
pub use nearq_platform as platform;
pub use osq::{OsqGuard, OsqLock};
pub use raw::RawMutex;
pub use raw_condvar::{Ended, RawCondvar};
pub use room::{expect_urgent, start};
pub use settings::{Mode, Settings, UnknownMode};
pub use snapshot::{SlottedMutex, Snapshot};
pub use statistics::Statistics;
pub use stay::Stay;
pub use summons::{Called, Summons, WaitsBy};
pub use threshold::{OutOfBounds, Threshold};
