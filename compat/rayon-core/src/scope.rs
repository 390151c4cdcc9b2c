//! [`scope`], [`scope_fifo`], and the same in the caller's thread.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use nearq::team::Closure;

use crate::broadcast::{BroadcastContext, Refused};
use crate::members::{Lent, Member};
use crate::registry::Registry;

/// Spawns closures that may borrow what outlives [`scope`].
pub struct Scope<'scope> {
    base: Base<'scope>,
}

/// As [`Scope`], but the closures that a member spawns run in the order in which it spawns them; see [`scope_fifo`].
pub struct ScopeFifo<'scope> {
    base: Base<'scope>,
    /// By the number of the member that spawns: its closures, oldest first.
    fifos: Box<[Mutex<VecDeque<Closure>>]>,
}

/// A closure that is spawned.
type Body<'scope> = dyn FnOnce(&Scope<'scope>) + Send + Sync + 'scope;

/// What both kinds have in common.
struct Base<'scope> {
    /// Its lifetimes are forgotten. It exists until its closures have ended, and nothing uses this value later.
    scope: *const nearq::Scope<'static, 'static>,
    /// It exists while the scope does: the function that has made the scope has a handle, or runs in the pool.
    registry: *const Registry,
    /// Invariant, as closures are that borrow for it.
    _marker: PhantomData<Box<Body<'scope>>>,
}

// SAFETY: what the pointers lead to, nearq's scope and the registry, is `Sync`.
unsafe impl Send for Base<'_> {}
// SAFETY: as above.
unsafe impl Sync for Base<'_> {}

impl<'scope> Base<'scope> {
    fn new(scope: &nearq::Scope<'_, '_>, registry: &Registry) -> Self {
        Base { scope: std::ptr::from_ref(scope).cast(), registry, _marker: PhantomData }
    }

    fn scope(&self) -> &'static nearq::Scope<'static, 'static> {
        // SAFETY: the function of the scope and its closures alone reach this value, and nearq's scope exists until all of them have ended.
        unsafe { &*self.scope }
    }

    fn registry(&self) -> &Registry {
        // SAFETY: the caller of `in_scope` has the registry until the scope has ended, and only until then is this value used.
        unsafe { &*self.registry }
    }

    fn spawn(&self, closure: impl FnOnce() + Send + 'scope) {
        // SAFETY: `in_scope` returns only when nearq's scope has ended, and with it the closure. What `'scope` borrows exists until then.
        unsafe { self.scope().spawn_any(closure) };
    }

    fn spawn_broadcast(&self, call: impl Fn(usize) + Send + Sync + 'scope) {
        let (call, refused) = (Arc::new(call), Arc::new(Refused::default()));
        for number in 0..self.registry().num_threads() {
            let (call, checked) = (Arc::clone(&call), Arc::clone(&refused));
            let closure = move || {
                checked.check();
                call(number);
            };
            // SAFETY: nearq's scope counts the closure (`expect`), so `in_scope` returns only when it has ended.
            let closure = unsafe { erased(closure) };
            refused.post(self.registry(), number, self.scope().expect(closure));
        }
    }
}

/// # Safety
/// The closure ends before `'scope` does.
unsafe fn erased<'scope>(closure: impl FnOnce() + Send + 'scope) -> Closure {
    let closure: Box<dyn FnOnce() + Send + 'scope> = Box::new(closure);
    // SAFETY: as the caller promises. Only the lifetime changes.
    unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + 'scope>, Closure>(closure) }
}

/// A pointer to a scope, in one of its closures.
struct Pointer<T>(*const T);

// SAFETY: what it leads to is `Sync`, and exists until the closure has ended.
unsafe impl<T: Sync> Send for Pointer<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Pointer<T> {}

impl<T> Pointer<T> {
    /// # Safety
    /// The scope has not ended.
    unsafe fn get(&self) -> &T {
        // SAFETY: as the caller promises.
        unsafe { &*self.0 }
    }
}

impl<'scope> Scope<'scope> {
    /// Spawns a closure, which ends before the scope does. It is given the scope, to spawn more.
    ///
    /// Closures that a member has spawned run newest first, if no other member takes them; others take the oldest.
    pub fn spawn<BODY>(&self, body: BODY)
    where
        BODY: FnOnce(&Scope<'scope>) + Send + 'scope,
    {
        let scope = Pointer(self);
        // SAFETY: the scope waits for this closure, so it has not ended.
        self.base.spawn(move || body(unsafe { scope.get() }));
    }

    /// Spawns a closure once for each member of the pool. The calls end before the scope does.
    pub fn spawn_broadcast<BODY>(&self, body: BODY)
    where
        BODY: Fn(&Scope<'scope>, BroadcastContext<'_>) + Send + Sync + 'scope,
    {
        let scope = Pointer(self);
        self.base.spawn_broadcast(move |number| {
            // SAFETY: the scope waits for this closure.
            let scope = unsafe { scope.get() };
            body(scope, BroadcastContext::new(scope.base.registry(), number));
        });
    }
}

impl<'scope> ScopeFifo<'scope> {
    /// Spawns a closure, which ends before the scope does. It is given the scope, to spawn more.
    ///
    /// Closures that a member has spawned run in the order in which it has spawned them, if no other member takes them.
    pub fn spawn_fifo<BODY>(&self, body: BODY)
    where
        BODY: FnOnce(&ScopeFifo<'scope>) + Send + 'scope,
    {
        let scope = Pointer(self);
        // SAFETY: the scope waits for this closure.
        let closure = move || body(unsafe { scope.get() });
        let Some(member) = self.base.registry().member().filter(|member| !member.is_attached())
        else {
            self.base.spawn(closure);
            return;
        };
        let number = member.number();
        // SAFETY: a closure that is spawned below, or another one that was spawned like it, runs this one; and `in_scope` returns only when
        // all of these have ended.
        let closure = unsafe { erased(closure) };
        self.fifo(number).push_back(closure);
        let scope = Pointer(self);
        self.base.spawn(move || {
            // SAFETY: the scope waits for this closure.
            let closure = unsafe { scope.get() }.fifo(number).pop_front();
            closure.expect("each entry was added before a closure that takes one")();
        });
    }

    fn fifo(&self, number: usize) -> std::sync::MutexGuard<'_, VecDeque<Closure>> {
        // No foreign code runs under the lock.
        self.fifos[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Spawns a closure once for each member of the pool. The calls end before the scope does.
    pub fn spawn_broadcast<BODY>(&self, body: BODY)
    where
        BODY: Fn(&ScopeFifo<'scope>, BroadcastContext<'_>) + Send + Sync + 'scope,
    {
        let scope = Pointer(self);
        self.base.spawn_broadcast(move |number| {
            // SAFETY: the scope waits for this closure.
            let scope = unsafe { scope.get() };
            body(scope, BroadcastContext::new(scope.base.registry(), number));
        });
    }
}

impl fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("pool_id", &self.base.registry().id()).finish_non_exhaustive()
    }
}

impl fmt::Debug for ScopeFifo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopeFifo")
            .field("num_fifos", &self.fifos.len())
            .field("pool_id", &self.base.registry().id())
            .finish_non_exhaustive()
    }
}

/// Runs `op` in a scope of that pool, and waits for the closures that were spawned in it.
///
/// If the caller is attached to a pool, it lends its number from the end of `op` to the end of the scope, and not while `op` runs, which
/// has that number.
fn in_scope<'scope, R>(registry: &Registry, op: impl FnOnce(Base<'scope>) -> R) -> R {
    let attached = Member::attached();
    let Some(attached) = &attached else {
        return registry.queue().scope(|scope| op(Base::new(scope, registry)));
    };
    // Dropped when the scope has ended, also by a panic.
    let mut lent = None;
    registry.queue().scope(|scope| {
        let _lends = LendsAtEnd { attached, lent: &mut lent };
        op(Base::new(scope, registry))
    })
}

/// Lends the number of an attached thread, which is the caller, when it is dropped.
struct LendsAtEnd<'a, 'member> {
    attached: &'member Member,
    lent: &'a mut Option<Lent<'member>>,
}

impl Drop for LendsAtEnd<'_, '_> {
    fn drop(&mut self) {
        *self.lent = Registry::lend(self.attached);
    }
}

/// As [`in_place_scope`], in that pool.
pub(crate) fn lifo_scope<'scope, R>(
    registry: &Registry,
    op: impl FnOnce(&Scope<'scope>) -> R,
) -> R {
    let mut place = None;
    // The value stays until nearq's scope has ended: its closures refer to it.
    in_scope(registry, |base| op(place.insert(Scope { base })))
}

/// As [`in_place_scope_fifo`], in that pool.
pub(crate) fn fifo_scope<'scope, R>(
    registry: &Registry,
    op: impl FnOnce(&ScopeFifo<'scope>) -> R,
) -> R {
    let mut place = None;
    let fifos = (0..registry.num_threads()).map(|_| Mutex::default()).collect();
    // The value stays until nearq's scope has ended: its closures refer to it.
    in_scope(registry, |base| op(place.insert(ScopeFifo { base, fifos })))
}

/// Runs `op` in the current pool, or else in the global one, and waits for all closures that were spawned in its scope. They may borrow
/// what outlives the call. What they wrote is visible then.
///
/// ```
/// let mut counts = [0; 3];
/// rayon_core::scope(|scope| {
///     for (number, count) in counts.iter_mut().enumerate() {
///         scope.spawn(move |_| *count = number * 10);
///     }
/// });
/// assert_eq!(counts, [0, 10, 20]);
/// ```
///
/// # Panics
/// With the panic of `op`, or else of the first closure that panicked, after all have ended.
pub fn scope<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&Scope<'scope>) -> R + Send,
    R: Send,
{
    let registry = Registry::current();
    registry.run_in_worker(|| lifo_scope(&registry, op))
}

/// As [`scope`], with closures that run in the order in which a member has spawned them.
///
/// # Panics
/// As [`scope`].
pub fn scope_fifo<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&ScopeFifo<'scope>) -> R + Send,
    R: Send,
{
    let registry = Registry::current();
    registry.run_in_worker(|| fifo_scope(&registry, op))
}

/// As [`scope`], but `op` runs in the calling thread.
///
/// # Panics
/// As [`scope`].
pub fn in_place_scope<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&Scope<'scope>) -> R,
{
    lifo_scope(&Registry::current(), op)
}

/// As [`scope_fifo`], but `op` runs in the calling thread.
///
/// # Panics
/// As [`scope`].
pub fn in_place_scope_fifo<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&ScopeFifo<'scope>) -> R,
{
    fifo_scope(&Registry::current(), op)
}
