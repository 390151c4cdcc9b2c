//! The platform for the model checker loom; for tests only.
//!
//! [`Loom`] runs code that is written against [`Platform`](nearq_platform::Platform) inside `loom::model`:
//! every interleaving of a few threads, every value that a relaxed load may return. Differences from a real
//! platform:
//!
//! - **Deadlines never come**, unless a thread [says so](Loom::set_deadlines_come). A wake-up that is lost and would be
//!   covered up by a timeout shows as a deadlock, which loom reports. `now` stands still, `sleep` is a yield.
//! - **Spinning is one read.** `wait_until_changed` reads once, because model checkers cannot handle loops of
//!   reads. Code that spins without end says so with the budget `u32::MAX`, which also yields.
//! - **Waiting orders more than promised**: it goes through loom's mutex. An acquire that is missing only after
//!   a wait goes unnoticed; on the paths that do not wait it is found.
//! - **`wake` does not touch the word.** It is an address, as on Linux; freed memory is fine.
//! - loom treats `SeqCst` accesses as little more than `AcqRel` (a load misses no newer `SeqCst` write); put
//!   [`LockPlatform::model_fence`](nearq_platform::LockPlatform::model_fence) into Dekker patterns. Its limits: five threads with the first one,
//!   about 1000 steps a thread, no load buffering. Use two or three threads and a preemption bound of two or three.
//! - Affinity, nice, scheduling and memory calls do nothing and succeed; the CPU is what
//!   [`Loom::set_current_cpu`] says.
//!
//! ```
//! use nearq_model::Loom;
//! use nearq_platform::{Parker, Platform, ThreadSpec, Threads};
//! use std::sync::Arc;
//!
//! loom::model(|| {
//!     let parker = Arc::new(Parker::<Loom>::new());
//!     let theirs = Arc::clone(&parker);
//!     let thread = Loom::spawn(ThreadSpec::default(), move || theirs.unpark()).unwrap();
//!     assert!(parker.park(None));
//!     Loom::join(thread);
//! });
//! ```

mod atomic;
mod bounds;
mod cell;
mod futex;
mod platform;

pub use atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64};
pub use bounds::bound;
pub use cell::Cell;
pub use platform::{JoinHandle, Loom, Thread};
