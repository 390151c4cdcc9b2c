//! [`broadcast`] and [`spawn_broadcast`].

use std::fmt;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    let (op, refused) = (&op, &Refused::default());
    Registry::wait(|| {
        registry.queue().scope(|scope| {
            for (number, result) in results.iter_mut().enumerate() {
                let call = move || {
                    refused.check();
                    *result = Some(op(BroadcastContext::new(registry, number)));
                };
                refused.post(registry, number, scope.expect(call));
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
        // If it is refused, nobody waits for it.
        drop(registry.post(number, call));
    }
}

/// Whether a call of a broadcast that somebody waits for was refused, because the runtime was shut down.
#[derive(Default)]
pub(crate) struct Refused(AtomicBool);

impl Refused {
    /// Sends a call, which begins with [`check`](Self::check) and contains its panic. If it is refused, it ends here.
    pub(crate) fn post(&self, registry: &Registry, number: usize, call: Closure) {
        if let Err(call) = registry.post(number, call) {
            // Relaxed: read by this thread. Another call of the broadcast may end because of it too.
            self.0.store(true, Ordering::Relaxed);
            call();
        }
    }

    /// # Panics
    /// If a call was refused.
    pub(crate) fn check(&self) {
        if self.0.load(Ordering::Relaxed) {
            resume_unwind(Box::new(nearq::Error::ShutDown.to_string()));
        }
    }
}
