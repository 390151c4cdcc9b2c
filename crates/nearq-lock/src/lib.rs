//! The runtime's mutex: four bytes, generic over the platform, never poisoned.
//!
//! [`Mutex`] protects a value; [`RawMutex`] is the lock alone, for code that embeds it. Both are written only against
//! [`LockPlatform`](nearq_platform::LockPlatform), so the same code runs on Linux, on a simulated machine and under a model checker.
//! `raw.rs` describes the protocol, with its states, orderings and races.
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
//! A free mutex is a word of zero, and a mutex that no thread waits for costs two compare-exchanges. If threads wait, one word still
//! decides which thread holds it. Queues decide which thread reads the word and which is woken next: one queue, or, while hand-overs often
//! cross last-level caches, one for each cache, between which the mutex moves in batches ([`Mode`], [`Settings`]; `waiting.rs` has the
//! protocol).
//!
//! [`Condvar`] makes threads wait until something that a mutex protects meets a condition; [`RawCondvar`] is the same for [`RawMutex`]. A
//! thread that is notified is queued up for the mutex while asleep, and wakes when it has the turn (`raw_condvar.rs`). A thread that waits
//! may be called away by [`Summons`], and may leave by a jump out of a signal handler ([`Stay`]).
//!
//! To observe the mutexes from outside, use [`Statistics`] (while [`Settings::count`] is set) and [`Snapshot`]; to change settings by name,
//! use the names of [`Mode`] and [`Threshold`].
//!
//! [`OsqLock`] is the optimistic spin queue: a lock that is handed on strictly in order, each waiter spinning on a line of its own.
//!
//! In debug builds it is a panic to release a mutex that the thread does not hold, and to wait for one that it already holds (`misuse.rs`).
//!
//! This crate knows nothing of work queues.

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
mod process_state;
mod queue;
mod raw;
mod raw_condvar;
mod ring;
mod settings;
#[cfg(test)]
#[path = "../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;
mod slot;
mod snapshot;
mod statistics;
mod stay;
mod summons;
mod threshold;
mod turn;
mod waiter_slab;
mod waiting;
mod withdraw;
mod word;

pub use condvar::Condvar;
pub use mutex::{Mutex, MutexGuard};
/// The platform that locks use: `Linux`, and what their signatures name.
#[doc(no_inline)]
pub use nearq_platform as platform;
pub use osq::{OsqGuard, OsqLock};
pub use process_state::{expect_urgent, start};
pub use raw::RawMutex;
pub use raw_condvar::{Ended, RawCondvar};
pub use settings::{Mode, Settings, UnknownMode};
pub use snapshot::{SlottedMutex, Snapshot};
pub use statistics::Statistics;
pub use stay::Stay;
pub use summons::{Called, Summons, WaitsBy};
pub use threshold::{OutOfBounds, Threshold};
