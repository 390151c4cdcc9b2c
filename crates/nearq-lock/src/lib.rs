//! A mutex and a condition variable for Linux, of four bytes each, and a reader-writer lock of eight bytes, never poisoned. Mutex and
//! condition variable are the locks of nearq's runtime.
//!
//! [`Mutex`], [`Condvar`] and [`RwLock`] are used like those of the crate `parking_lot`; [`raw`] has the parts that they are built from. What is
//! special about them is how threads wait: when threads of several last-level caches compete for a mutex, it is handed over within a cache
//! for a while before it moves to another one.
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
//! # How threads wait
//!
//! A mutex that no thread waits for costs two compare-exchanges: one to take it, one to release it. If threads wait, one word still decides
//! which thread holds the mutex. Queues decide which thread reads the word and which is woken next: one queue, or, while hand-overs often
//! cross last-level caches, one for each cache, between which the mutex moves in batches ([`Mode`], [`Settings`]).
//!
//! A thread that waits for a [`Condvar`] and is notified is queued up for the mutex while asleep, and wakes when it has the turn. So
//! however many threads are notified, they do not all compete for the mutex at once.
//!
//! # Readers and writers
//!
//! Writers of an [`RwLock`] queue up in a mutex, so their order and their batches by cache are those of a mutex. Neither readers nor
//! writers starve: readers that come while a writer waits or writes are let in together when that writer leaves, and before the next one.
//! While readers of several last-level caches meet, they count themselves by cache, and write to no line of another cache.
//!
//! # Settings and observation
//!
//! [`Settings`] are those of all mutexes of a process. The environment variable `NEARQ_LOCK` sets the mode: `auto` (the default), `off`,
//! `plain` or `numa`; any other value causes a warning and means `auto`. `NEARQ_LOCK_DOMAINS` says what queues by cache are for: each
//! last-level cache (`cache`, the default), each `node` or each `package`; it is read when a thread first waits. [`Statistics`] counts what happens to threads that wait, while
//! [`Settings::count`] is set. [`Snapshot`] shows which mutexes have queues by cache. Tools that change settings by name use the names of
//! [`Mode`] and [`Threshold`].
//!
//! # Differences from `parking_lot`
//!
//! - Threads may wait for one `Condvar` with different mutexes at the same time.
//! - Functions that wait for a time return a `bool`, false if the time was over, in place of `WaitTimeoutResult`.
//! - In debug builds it is a panic to release a mutex that the thread does not hold, and to wait for one that it already holds.
//! - An [`RwLock`] lets waiting readers in after each writer, and has no recursive reads: `read` waits if a writer waits, even if the thread
//!   reads already.
//! - There is no reentrant mutex and no mapped guard. The crate `lock_api` has both.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `lock_api_0_4` | [`raw::RawMutex`] and [`raw::RawRwLock`] implement the traits of the crate `lock_api`, version 0.4 |
//! | `lock_api_0_5` | the same for version 0.5, which needs Rust 1.95; this crate needs 1.85 |
//!
//! # The platform
//!
//! The types have a parameter, [`LockPlatform`](platform::LockPlatform), which is Linux unless it is named. The project's own tests run the
//! same code on a simulated machine and under a model checker by naming another. Programs need not do so.

#[cfg(any(feature = "lock_api_0_4", feature = "lock_api_0_5"))]
mod api;
mod condvar;
mod deadline;
mod domains;
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
pub mod raw;
mod raw_condvar;
mod raw_mutex;
mod raw_rwlock;
mod readers;
mod ring;
mod rwlock;
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
mod yields;

pub use condvar::Condvar;
pub use mutex::{Mutex, MutexGuard};
/// The types that signatures name as `P`. Programs leave `P` at its default, `Linux`. This is no part of the stable interface.
#[doc(no_inline)]
pub use nearq_platform as platform;
pub use process_state::expect_urgent;
#[doc(hidden)]
pub use process_state::start;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};
pub use settings::{Mode, Settings, UnknownMode};
pub use snapshot::{RowedRwLock, SlottedMutex, Snapshot};
pub use statistics::Statistics;
pub use threshold::{OutOfBounds, Threshold};

/// The README's example is compiled and run with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
