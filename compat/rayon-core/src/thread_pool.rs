//! [`ThreadPool`], and what a thread can find out about the pool that it is in.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::broadcast::{BroadcastContext, broadcast_in, spawn_broadcast_in};
use crate::builder::{ThreadPoolBuildError, ThreadPoolBuilder, ThreadSpawn};
use crate::members::Member;
use crate::registry::Registry;
use crate::scope::{Scope, ScopeFifo, fifo_scope, lifo_scope};
use crate::{join, scope, scope_fifo};

/// A pool other than the global one. [`ThreadPoolBuilder`] makes it.
///
/// When it is dropped, closures that were given to it still run; if it has threads of its own, they end when no closure is left.
pub struct ThreadPool {
    pub(crate) registry: Arc<Registry>,
}

impl ThreadPool {
    /// As [`ThreadPoolBuilder::build`].
    ///
    /// # Errors
    /// As there.
    #[deprecated(note = "Use `ThreadPoolBuilder::build`")]
    #[allow(deprecated, reason = "it is the deprecated interface")]
    pub fn new(configuration: crate::Configuration) -> Result<ThreadPool, Box<dyn Error>> {
        Self::build(configuration.into_builder()).map_err(Box::from)
    }

    pub(crate) fn build<S: ThreadSpawn>(
        builder: ThreadPoolBuilder<S>,
    ) -> Result<ThreadPool, ThreadPoolBuildError> {
        Ok(ThreadPool { registry: Registry::new(builder, false)? })
    }

    /// Runs `op` in the pool, waits for it, and returns its result. Functions of this crate that `op` calls use this pool. In a member of
    /// the pool, `op` is called directly.
    ///
    /// If a member of another pool calls this, another worker runs in its place while it waits. If that pool has no number left for such a
    /// worker, the member runs closures of its pool itself.
    ///
    /// ```
    /// let pool = rayon_core::ThreadPoolBuilder::new().num_threads(2).build()?;
    /// assert_eq!(pool.install(rayon_core::current_num_threads), 2);
    /// # Ok::<(), rayon_core::ThreadPoolBuildError>(())
    /// ```
    ///
    /// # Panics
    /// With the panic of `op`.
    pub fn install<OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce() -> R + Send,
        R: Send,
    {
        if self.registry.member().is_some() { op() } else { self.registry.run_in_worker(op) }
    }

    /// As [`broadcast`](crate::broadcast), in this pool.
    pub fn broadcast<OP, R>(&self, op: OP) -> Vec<R>
    where
        OP: Fn(BroadcastContext<'_>) -> R + Sync,
        R: Send,
    {
        broadcast_in(op, &self.registry)
    }

    /// The size of the pool.
    #[inline]
    pub fn current_num_threads(&self) -> usize {
        self.registry.num_threads()
    }

    /// The number of the member that the current thread is, if it is one of this pool.
    #[inline]
    pub fn current_thread_index(&self) -> Option<usize> {
        self.registry.member().map(|member| member.number())
    }

    /// As [`current_thread_has_pending_tasks`](crate::current_thread_has_pending_tasks), for a member of this pool.
    #[inline]
    pub fn current_thread_has_pending_tasks(&self) -> Option<bool> {
        self.registry.member().map(|member| member.has_pending())
    }

    /// As [`join`](crate::join()), in this pool.
    pub fn join<A, B, RA, RB>(&self, oper_a: A, oper_b: B) -> (RA, RB)
    where
        A: FnOnce() -> RA + Send,
        B: FnOnce() -> RB + Send,
        RA: Send,
        RB: Send,
    {
        self.install(|| join(oper_a, oper_b))
    }

    /// As [`scope`](crate::scope()), in this pool.
    pub fn scope<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&Scope<'scope>) -> R + Send,
        R: Send,
    {
        self.install(|| scope(op))
    }

    /// As [`scope_fifo`](crate::scope_fifo), in this pool.
    pub fn scope_fifo<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&ScopeFifo<'scope>) -> R + Send,
        R: Send,
    {
        self.install(|| scope_fifo(op))
    }

    /// As [`in_place_scope`](crate::in_place_scope), with closures that run in this pool.
    pub fn in_place_scope<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&Scope<'scope>) -> R,
    {
        lifo_scope(&self.registry, op)
    }

    /// As [`in_place_scope_fifo`](crate::in_place_scope_fifo), with closures that run in this pool.
    pub fn in_place_scope_fifo<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&ScopeFifo<'scope>) -> R,
    {
        fifo_scope(&self.registry, op)
    }

    /// As [`spawn`](crate::spawn()), in this pool.
    pub fn spawn<OP>(&self, op: OP)
    where
        OP: FnOnce() + Send + 'static,
    {
        self.registry.spawn(op, false);
    }

    /// As [`spawn_fifo`](crate::spawn_fifo), in this pool.
    pub fn spawn_fifo<OP>(&self, op: OP)
    where
        OP: FnOnce() + Send + 'static,
    {
        self.registry.spawn(op, true);
    }

    /// As [`spawn_broadcast`](crate::spawn_broadcast), in this pool.
    pub fn spawn_broadcast<OP>(&self, op: OP)
    where
        OP: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
    {
        spawn_broadcast_in(op, &self.registry);
    }

    /// As [`yield_now`](crate::yield_now), for a member of this pool.
    pub fn yield_now(&self) -> Option<Yield> {
        self.registry.member().map(|member| Yield::of(member.run_any()))
    }

    /// As [`yield_local`](crate::yield_local), for a member of this pool.
    pub fn yield_local(&self) -> Option<Yield> {
        self.registry.member().map(|member| Yield::of(member.run_local()))
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool")
            .field("num_threads", &self.current_num_threads())
            .field("id", &self.registry.id())
            .finish()
    }
}

/// The number of the member that the current thread is, below [`current_num_threads`](crate::current_num_threads); none outside of pools.
/// See the [crate's documentation](crate#numbers-of-threads).
#[inline]
pub fn current_thread_index() -> Option<usize> {
    Member::current().map(|member| member.number())
}

/// Whether the current thread has closures that it has spawned or offered and that no member has begun; none outside of pools.
#[inline]
pub fn current_thread_has_pending_tasks() -> Option<bool> {
    Member::current().map(|member| member.has_pending())
}

/// Runs one closure of the pool in the current thread, if there is one: its own first, then any other. None outside of pools.
pub fn yield_now() -> Option<Yield> {
    Member::current().map(|member| Yield::of(member.run_any()))
}

/// Runs one closure that the current thread has spawned, or that it was sent by a broadcast, if there is one. None outside of pools.
pub fn yield_local() -> Option<Yield> {
    Member::current().map(|member| Yield::of(member.run_local()))
}

/// What [`yield_now`] or [`yield_local`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yield {
    /// It has run a closure.
    Executed,
    /// It has found none.
    Idle,
}

impl Yield {
    fn of(executed: bool) -> Self {
        if executed { Yield::Executed } else { Yield::Idle }
    }
}
