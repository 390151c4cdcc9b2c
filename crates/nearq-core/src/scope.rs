//! Closures that borrow: [`Workqueue::scope`](crate::Workqueue::scope).
//!
//! One word counts what has been spawned and not ended, plus one for the scope itself. Who brings it to zero wakes the
//! scope. What a closure did is visible to the scope's end: its decrement releases, the scope's last look acquires.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, Linux, Ordering, Platform};

use crate::context::blocking;
use crate::task::Panic;
use crate::workqueue::Workqueue;

/// Where closures that borrow are spawned; given by [`Workqueue::scope`](crate::Workqueue::scope).
pub struct Scope<'scope, 'env: 'scope, P: Platform = Linux> {
    queue: &'scope Workqueue<P>,
    /// Closures that have not ended.
    count: P::AtomicU32,
    panic: Mutex<Option<Panic>, P>,
    /// Invariant in both lifetimes, as in `std::thread::Scope`.
    scope: core::marker::PhantomData<&'scope mut &'scope ()>,
    env: core::marker::PhantomData<&'env mut &'env ()>,
}

/// A pointer to the scope that a closure takes along.
struct Back<P: Platform>(*const P::AtomicU32, *const Mutex<Option<Panic>, P>);

// SAFETY: both ends are shared between threads by design, and live until the count is zero.
unsafe impl<P: Platform> Send for Back<P> {}

impl<P: Platform> Back<P> {
    fn end(self, outcome: Result<(), Panic>) {
        if let Err(panic) = outcome {
            // SAFETY: the scope lives until the count below is zero.
            unsafe { &*self.1 }.lock().get_or_insert(panic);
        }
        // SAFETY: as above. Release: what the closure did. The address is used after, but not read.
        if unsafe { &*self.0 }.fetch_sub(1, Ordering::AcqRel) == 1 {
            P::wake(self.0, 1);
        }
    }
}

impl<'scope, P: Platform> Scope<'scope, '_, P> {
    /// Queues a closure that may borrow what outlives the scope. It ends before the scope does.
    ///
    /// Where the queue is being [drained](crate::Workqueue::drain), and the caller is not one of its own items, the closure is
    /// dropped, and the scope panics when it ends.
    pub fn spawn(&'scope self, closure: impl FnOnce() + Send + 'scope) {
        // Relaxed: the scope reads it after it has spawned.
        self.count.fetch_add(1, Ordering::Relaxed);
        let back = Back::<P>(&raw const self.count, &raw const self.panic);
        let task = move || {
            let back = back;
            let outcome = catch_unwind(AssertUnwindSafe(closure)).map_err(Panic::new);
            let panicked = outcome.is_err();
            back.end(outcome);
            if panicked {
                // The scope has the panic; what goes on from here is only for the worker, which counts it.
                resume_unwind(Box::new("a closure of a scope panicked"));
            }
        };
        let task: Box<dyn FnOnce() + Send + 'scope> = Box::new(task);
        // SAFETY: `scope` does not return before the count is zero, whatever happens, so the closure has ended, and what it
        // borrowed has been let go, while the borrowed is still there. Only the lifetime changes.
        let task: Box<dyn FnOnce() + Send + 'static> = unsafe { core::mem::transmute(task) };
        if let Err(refusal) = self.queue.try_spawn(task) {
            // The closure is gone, and with it what would have ended it.
            Back::<P>(&raw const self.count, &raw const self.panic)
                .end(Err(Panic::new(Box::new(refusal.to_string()))));
        }
    }
}

/// See [`Workqueue::scope`](crate::Workqueue::scope).
pub(crate) fn scope<'env, P: Platform, R>(
    queue: &Workqueue<P>,
    f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env, P>) -> R,
) -> R {
    let scope = Scope {
        queue,
        count: P::AtomicU32::new(1),
        panic: Mutex::new_in(None),
        scope: core::marker::PhantomData,
        env: core::marker::PhantomData,
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    // Acquire: pairs with the release of each end.
    let mut left = scope.count.fetch_sub(1, Ordering::AcqRel) - 1;
    if left != 0 {
        blocking::<P, _>(|| {
            while left != 0 {
                P::wait(&scope.count, left, None);
                left = scope.count.load(Ordering::Acquire);
            }
        });
    }
    let panic = scope.panic.lock().take();
    match (outcome, panic) {
        (Err(payload), _) => resume_unwind(payload),
        (Ok(_), Some(panic)) => resume_unwind(panic.into_payload()),
        (Ok(value), None) => value,
    }
}
