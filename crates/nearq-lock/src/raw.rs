//! The parts that the locks are built from: a mutex and a reader-writer lock without a value, a condition variable without a guard, and the
//! queue as a lock of its own.
//!
//! [`Mutex`](crate::Mutex), [`RwLock`](crate::RwLock) and [`Condvar`](crate::Condvar) are what most programs need. Use these for code that embeds the lock, such as a
//! data structure with a lock in each entry, or an interface to another language. Releasing them is `unsafe`, because no guard proves that
//! the caller holds them.
//!
//! ```
//! use nearq_lock::raw::RawMutex;
//!
//! static LOCK: RawMutex = RawMutex::new();
//!
//! LOCK.lock();
//! // SAFETY: taken above.
//! unsafe { LOCK.unlock() };
//! assert!(!LOCK.is_locked());
//! ```

pub use crate::osq::{OsqGuard, OsqLock};
#[doc(hidden)]
pub use crate::raw_condvar::Ended;
pub use crate::raw_condvar::RawCondvar;
pub use crate::raw_mutex::RawMutex;
pub use crate::raw_rwlock::RawRwLock;
#[doc(hidden)]
pub use crate::raw_rwlock::Requests;
#[doc(hidden)]
pub use crate::stay::Stay;
#[doc(hidden)]
pub use crate::summons::{Called, Summons, WaitsBy};
