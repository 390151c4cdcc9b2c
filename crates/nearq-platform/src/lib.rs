//! What a machine can do for the runtime, and its implementation on Linux.
//!
//! [`Platform`] is the interface between the runtime and the machine. It consists of three traits, each based on the one before:
//!
//! | trait | what it has | what needs it |
//! |---|---|---|
//! | [`LockPlatform`] | atomics, waiting, clock, current CPU, forks | `nearq-lock` |
//! | [`Threads`] | threads and their states, waiting for work, fences | `nearq-core` |
//! | [`Placement`] | the machine, affinities, where memory is | `nearq-core`, the experiments, the command |
//!
//! `nearq-lock` is written against the first trait only, and `nearq-core` against all three, so that the same code runs on Linux
//! ([`Linux`]), on a simulated machine with hundreds of CPUs, and under a model checker.
//!
//! This is the only crate that makes system calls, starts threads or names `std`'s atomics.
//! It knows nothing about queues and locks.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this crate is where threads, time, atomics and system calls live"
)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "nearq runs on Linux only: it steers threads with Linux's affinity, futex and scheduler calls. \
     Build it for a *-linux-gnu or *-linux-musl target."
);

mod atomic;
mod cache_map;
mod cell;
mod error;
mod held_locks;
#[cfg(target_os = "linux")]
mod linux;
mod lock_platform;
mod parker;
mod placement;
mod platform;
mod retry;
mod said;
mod setting;
#[cfg(all(test, target_os = "linux"))]
#[path = "../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;
#[cfg(target_os = "linux")]
mod sys;
mod threads;
mod time;

pub use atomic::{Atomic, AtomicInt, ConstAtomic, Ordering};
pub use cache_map::{CacheInfo, CacheMap};
pub use cell::PlatformCell;
pub use error::OsError;
pub use held_locks::HeldLocks;
#[cfg(target_os = "linux")]
pub use linux::{Linux, NotSpawned, Peer, ProcessSpec, Spawned, Spawner};
pub use lock_platform::{ConstPlatform, ForkHooks, LockPlatform, MemoryPolicy, Wait};
#[doc(hidden)]
pub use nearq_topology::debug_as_display;
pub use parker::Parker;
pub use placement::{Machine, MachineChange, Placement, Residency};
pub use platform::Platform;
pub use retry::{Attempt, PAUSE, Retries};
pub use said::Said;
pub use setting::{NotUnderstood, SWITCH, parse_switch, read_setting};
#[cfg(target_os = "linux")]
pub use sys::SavedErrno;
pub use threads::{RunState, SchedPolicy, Scheduling, SignalMask, ThreadSpec, Threads};
pub use time::Instant;
