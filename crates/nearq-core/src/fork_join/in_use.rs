//! A worker's deque while an item uses it: from the item's first fork until its outermost join or scope ends. A thief uses it until the
//! thief ends.

use core::ptr::NonNull;

use nearq_platform::Platform;

use super::thief::steal_for;
use super::waiting::run_down_to;
use crate::base::ids::QueueKind;
use crate::base::outcome::contain;
use crate::deque::{Deque, Requests};
use crate::limit::pool_workqueue::PoolWorkqueue;
use crate::pool::context::{Context, with_current};
use crate::queue::Queue;

/// A worker's deque while it is in use.
pub(super) struct InUse<P: Platform> {
    deque: NonNull<Deque<P>>,
}

impl<P: Platform> InUse<P> {
    /// By a worker that runs an item of the queue which has not forked yet.
    pub(super) fn begin(context: &Context<'_, P>, queue: &Queue<P>) -> Self {
        let deque = context.worker.deque.get_or_make();
        deque.begin(core::ptr::from_ref(queue).cast());
        context.pool.change_forking(true);
        context.deque.set(deque);
        InUse { deque: NonNull::from(deque) }
    }

    /// For the item that the caller runs, at its first fork. None if its queue does not fork: a per-CPU queue, or one that runs one item at
    /// a time.
    pub(super) fn begin_in_item() -> Option<Self> {
        let began = with_current::<P, _>(|context| {
            // SAFETY: null, or the pwq of the item that this worker runs, which keeps the queue.
            let pwq = unsafe { PoolWorkqueue::of(context.account.get()).as_ref() }?;
            let may_fork = pwq.queue().kind == QueueKind::Unbound && pwq.node_active().limit() > 1;
            may_fork.then(|| InUse::begin(context, pwq.queue()))
        });
        let in_use = began.flatten()?;
        in_use.deque().request(Requests::CALL);
        Some(in_use)
    }

    pub(super) fn deque(&self) -> &Deque<P> {
        // SAFETY: it belongs to the entry of the worker that the caller is, and entries live as long as the runtime. In the child of a fork
        // it is given up, and never freed.
        unsafe { self.deque.as_ref() }
    }
}

impl<P: Platform> Drop for InUse<P> {
    // Out of line: it runs once in an item, and the code of the other joins is to stay short.
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        run_down_to(self.deque(), 0);
        // Does nothing in the child of a fork, where the pool counts other workers.
        with_current::<P, _>(|context| {
            context.deque.set(core::ptr::null());
            self.deque().end();
            context.pool.change_forking(false);
        });
    }
}

/// The deque of the item that the caller runs; none if that item has not forked, or if the caller runs none.
#[inline(always)]
pub(super) fn current_deque<'a, P: Platform>() -> Option<&'a Deque<P>> {
    let deque = with_current::<P, _>(|context| context.deque.get())?;
    // SAFETY: null, or the deque of this worker, whose entry lives as long as the runtime. In the child of a fork it is given up, and never
    // freed.
    unsafe { deque.as_ref() }
}

/// The queue for which a deque is in use. By the owner of the deque, which runs an item of the queue, in the process in which it began.
pub(super) fn queue_of<P: Platform>(deque: &Deque<P>) -> &Queue<P> {
    // SAFETY: set to the address of a queue by `InUse::begin`; the caller's item keeps the queue.
    unsafe { &*deque.group().cast() }
}

/// Does what other workers have asked of the owner, which is the caller and has offered a job just now.
#[cold]
#[inline(never)]
pub(super) fn answer<P: Platform>(deque: &Deque<P>) {
    let requests = deque.take_requests();
    // Does nothing in the child of a fork, where no thread finds the deque, and the queue may be gone.
    with_current::<P, _>(|context| {
        deque.share();
        deque.ring_for(requests);
        if requests.contains(Requests::CALL) {
            let queue = queue_of(deque);
            // A subscriber to what is queued is foreign code. Its panic must not unwind the frame whose job has been offered.
            contain(|| {
                queue.thieves(context.pool, steal_for).call(queue);
            });
        }
    });
}
