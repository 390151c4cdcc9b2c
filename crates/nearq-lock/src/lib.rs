//! The runtime's mutex: four bytes, generic over the platform, never poisoned.
//!
//! [`Mutex`] protects a value, [`RawMutex`] is the lock alone, for those who embed it. Both are written against
//! [`Platform`](nearq_platform::Platform), so the same code runs on Linux, on a simulated machine and under a
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
//! It is a plain three-state mutex today; it becomes NUMA-aware behind the same interface.
//! It knows nothing of work queues.
//!
//! [`OsqLock`] is the optimistic spin queue: a lock that is handed on strictly in order, each waiter on a line of its own.

mod mutex;
mod osq;
#[allow(dead_code, reason = "the mutex will tell more than its turn")]
mod queue;
mod raw;
#[allow(dead_code, reason = "the mutex will ask for more")]
mod room;
mod table;

pub use mutex::{Mutex, MutexGuard};
pub use osq::{OsqGuard, OsqLock};
pub use raw::RawMutex;
