//! The interface of `rayon-core` 1.13 on nearq's work queues. With it, a program's rayon runs on nearq without a change of the program:
//!
//! ```toml
//! [patch.crates-io]
//! rayon-core = { path = "…/compat/rayon-core" }
//! ```
//!
//! Each pool is a work queue. So idle workers help the nearest ones first; a worker that blocks is replaced; the child of a fork has a pool
//! that works; and `nearq top`, `get`, `set` and `tune` show and change the pools of a running program. The queue of the global pool is
//! named `rayon`; those of other pools are named after their threads, or `rayon-0`, `rayon-1` and so on. A function that needs the global
//! pool panics if that cannot be made.
//!
//! # Numbers of threads
//! A worker that runs closures of a pool is a *member* of it, and holds a number, which is what [`current_thread_index`] returns. The
//! number is below [`current_num_threads`], and no other member holds it at the same time. A member keeps it while it blocks or waits;
//! closures that it runs meanwhile, on the same stack, have the same number, as in rayon. The worker that replaces a blocked one has
//! another number. When all numbers are held, no other worker begins closures of the pool until one is given back.
//!
//! # Differences
//! * If neither [`num_threads`](ThreadPoolBuilder::num_threads) nor the environment sets its size, a pool has two numbers for each CPU. As
//!   many closures run at once as there are CPUs; the others wait or block.
//! * A member that waits in [`join`] or [`scope`] runs parts of what it waits for: what those closures have forked, or have spawned in
//!   scopes. It also runs its call of a [`broadcast`]. In rayon it runs anything. So closures that [`spawn`] was given are not run
//!   meanwhile by that thread, and cannot want a lock which it holds.
//! * The threads of a pool come and go, unless its builder sets a name, a stack size, a handler, or how they are started. What a closure
//!   leaves in thread-local storage may be found by another closure later or not; [`broadcast`] visits each number once, and not each
//!   thread. The threads of a pool with threads of its own have numbers too, which the start and the exit handler are given;
//!   [`current_thread_index`] need not return the same one.
//! * [`use_current_thread`](ThreadPoolBuilder::use_current_thread): the current thread runs closures of the pool only in [`yield_now`] and
//!   [`yield_local`]. While it waits for this or another pool, other threads may run closures with its number; it runs none then.
//! * After a fork, closures that were spawned before belong to the parent. If a pool has threads of its own, the child starts others for
//!   it, with the same names, stack size and handlers, but without the builder's [`spawn_handler`](ThreadPoolBuilder::spawn_handler).
//!
//! # Settings
//! `NEARQ_RAYON_SCOPE`, `NEARQ_RAYON_STRICT` and `NEARQ_RAYON_NICE` set the affinity scope of all pools (`cpu`, `smt`, `cache`,
//! `cache_shard`, `numa`, `system`), whether it is strict (`1`), and the nice value. `NEARQ_CONTROL` says who may change them while the
//! program runs.

#![warn(missing_docs)]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "it runs on Linux only: rayon's interface has threads of the standard library"
)]

mod broadcast;
mod builder;
mod join;
mod members;
mod registry;
mod scope;
mod settings;
mod spawn;
mod thread_pool;
mod threads;

#[cfg(all(test, rayon_core_tests))]
mod tests;
#[cfg(all(test, rayon_core_tests))]
use tests::unwind;

pub use broadcast::{BroadcastContext, broadcast, spawn_broadcast};
#[allow(deprecated, reason = "it is the deprecated interface")]
pub use builder::{Configuration, initialize};
pub use builder::{ThreadPoolBuildError, ThreadPoolBuilder};
pub use join::{FnContext, join, join_context};
pub use scope::{Scope, ScopeFifo, in_place_scope, in_place_scope_fifo, scope, scope_fifo};
pub use spawn::{spawn, spawn_fifo};
pub use thread_pool::{
    ThreadPool, Yield, current_thread_has_pending_tasks, current_thread_index, yield_local,
    yield_now,
};
pub use threads::ThreadBuilder;

/// Returns the largest size of a pool.
pub fn max_num_threads() -> usize {
    registry::LARGEST
}

/// Returns the size of the current pool: the one whose closure the caller runs, or else the global one.
pub fn current_num_threads() -> usize {
    match members::Member::current() {
        Some(member) => member.size(),
        None => registry::Registry::global().num_threads(),
    }
}
