//! [`broadcast`] and [`spawn_broadcast`].

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use nearq::team::Closure;

use crate::members::Member;
use crate::registry::Registry;

/// The member of a pool in which a closure of a broadcast runs.
pub struct BroadcastContext<'a> {
    index: usize,
    num_threads: usize,
    pool: usize,
    /// It stays in the closure and in its thread.
    _marker: PhantomData<&'a mut dyn Fn()>,
}

impl BroadcastContext<'_> {
    pub(crate) fn new(registry: &Registry, index: usize) -> Self {
        debug_assert_eq!(Member::current().map(|member| member.number()), Some(index));
        let (num_threads, pool) = (registry.num_threads(), registry.id());
        BroadcastContext { index, num_threads, pool, _marker: PhantomData }
    }

    /// The number of the member.
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many members the broadcast visits: the size of the pool.
    #[inline]
    pub fn num_threads(&self) -> usize {
        self.num_threads
    }
}

impl fmt::Debug for BroadcastContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroadcastContext")
            .field("index", &self.index)
            .field("num_threads", &self.num_threads)
            .field("pool_id", &self.pool)
            .finish()
    }
}

/// Runs a closure once in each member of the current pool, or else of the global one, and returns the results in the order of the members'
/// numbers.
///
/// A member runs it when it has run what it has spawned itself, or while it waits in the pool.
///
/// ```
/// let squares = rayon_core::broadcast(|context| context.index() * context.index());
/// assert_eq!(squares.len(), rayon_core::current_num_threads());
/// assert_eq!(squares[1], 1);
/// ```
///
/// # Panics
/// With the panic of one of the calls, after all have ended.
pub fn broadcast<OP, R>(op: OP) -> Vec<R>
where
    OP: Fn(BroadcastContext<'_>) -> R + Sync,
    R: Send,
{
    broadcast_in(op, &Registry::current())
}

/// Has a closure run once in each member of the current pool, or else of the global one, and does not wait for that.
///
/// A panic goes to the pool's [panic handler](crate::ThreadPoolBuilder::panic_handler); without one, it ends the process.
pub fn spawn_broadcast<OP>(op: OP)
where
    OP: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
{
    spawn_broadcast_in(op, &Registry::current());
}

pub(crate) fn broadcast_in<OP, R>(op: OP, registry: &Arc<Registry>) -> Vec<R>
where
    OP: Fn(BroadcastContext<'_>) -> R + Sync,
    R: Send,
{
    let mut results: Vec<Option<R>> = (0..registry.num_threads()).map(|_| None).collect();
    let op = &op;
    Registry::wait(|| {
        registry.queue().scope(|scope| {
            for (number, result) in results.iter_mut().enumerate() {
                let call = move || *result = Some(op(BroadcastContext::new(registry, number)));
                registry.post(number, scope.expect(call));
            }
        });
    });
    results.into_iter().map(|result| result.expect("a scope ends after its closures")).collect()
}

pub(crate) fn spawn_broadcast_in<OP>(op: OP, registry: &Arc<Registry>)
where
    OP: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
{
    let op = Arc::new(op);
    for number in 0..registry.num_threads() {
        let (op, pool) = (Arc::clone(&op), Arc::clone(registry));
        let call: Closure = Box::new(move || {
            pool.catch(|| op(BroadcastContext::new(&pool, number)));
            drop(op);
            drop(pool);
        });
        registry.post(number, call);
    }
}
