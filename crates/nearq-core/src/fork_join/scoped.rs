//! The closures of scopes: jobs on the heap.

use core::ptr::NonNull;
use std::sync::Arc;

use nearq_platform::{Instant, Platform};

use super::in_use::{InUse, answer, current_deque, queue_of};
use super::stealing::{deques_running, help_scope};
pub(crate) use super::waiting::count_panicked;
use super::waiting::{Awaited, Wait, wait_for};
use crate::base::bell::Bell;
use crate::deque::Deque;
use crate::deque::job::Job;
use crate::pool::context::Context;
use crate::queue::Queue;

/// A closure of a scope.
#[repr(C)]
struct Offered<P: Platform, F> {
    job: Job<P>,
    closure: F,
}

impl<P: Platform, F: FnOnce() + Send> Offered<P, F> {
    /// Runs the job and frees it.
    ///
    /// # Safety
    /// As for `Job::execute`.
    unsafe fn run(job: NonNull<Job<P>>, _: Option<&Deque<P>>) -> bool {
        // SAFETY: the function belongs to jobs of this type, whose first field is the job, and which `offer` has made as a box; the caller
        // has the job.
        let this = unsafe { Box::from_raw(job.cast::<Self>().as_ptr()) };
        let epoch = P::fork_epoch();
        (this.closure)();
        P::fork_epoch() == epoch
    }
}

/// Offers a closure of that scope to other workers, if the caller is within a join or a scope of an item of the queue. Otherwise, or if
/// the deque is full, the closure is given back.
///
/// # Safety
/// The closure does not unwind. The scope, and what the closure borrows, live until it has run.
pub(crate) unsafe fn offer<P: Platform, F: FnOnce() + Send>(
    queue: &Queue<P>,
    scope: *const (),
    closure: F,
) -> Result<(), F> {
    let Some(deque) = current_deque::<P>() else { return Err(closure) };
    if !core::ptr::addr_eq(deque.group(), queue) {
        return Err(closure);
    }
    let offered = Box::new(Offered { job: Job::of_scope(scope, Offered::<P, F>::run), closure });
    let offered = Box::into_raw(offered);
    if deque.push_heap(offered.cast()).is_none() {
        // SAFETY: made above, and not offered.
        return Err(unsafe { Box::from_raw(offered) }.closure);
    }
    if deque.has_request() {
        answer(deque);
    }
    Ok(())
}

/// Where the jobs of a scope begin in the deque of the worker that runs the scope's body.
pub(crate) struct Base<P: Platform> {
    deque: NonNull<Deque<P>>,
    /// The position of the first one.
    floor: u32,
    /// If the deque is in use because of this scope.
    _in_use: Option<InUse<P>>,
}

impl<P: Platform> Base<P> {
    /// For a scope within an item of the same queue. None if the queue does not fork.
    pub(crate) fn within() -> Option<Self> {
        if let Some(deque) = current_deque() {
            return Some(Self::of(deque));
        }
        let in_use = InUse::begin_in_item()?;
        let base = Self::of(in_use.deque());
        Some(Base { _in_use: Some(in_use), ..base })
    }

    /// For a scope that an item of another queue enters, if that other queue has a team. The bell is the one to ring when the scope has
    /// ended.
    pub(crate) fn elsewhere() -> Option<(Self, Arc<Bell<P>>)> {
        let base = Self::of(current_deque()?);
        queue_of(base.deque()).team()?;
        let bell = Arc::clone(&base.deque().bell);
        Some((base, bell))
    }

    fn of(deque: &Deque<P>) -> Self {
        Base { deque: NonNull::from(deque), floor: deque.len(), _in_use: None }
    }

    fn deque(&self) -> &Deque<P> {
        // SAFETY: it belongs to the entry of the worker that the caller is, and entries live as long as the runtime. In the child of a fork
        // it is given up, and never freed.
        unsafe { self.deque.as_ref() }
    }

    /// The bell to ring when a scope within an item of the same queue has ended. It lives as long as the runtime.
    pub(crate) fn bell(&self) -> *const Bell<P> {
        Arc::as_ptr(&self.deque().bell)
    }

    /// Runs the closures that no other worker has begun, and waits until `has_ended`. `run_others` runs closures that are not in the deque;
    /// `has_others` says whether there are some, and the thread that makes this true rings the bell afterwards. False in the child of a
    /// fork: the caller is no worker there, and must wait for the count of the scope.
    pub(crate) fn wait_within(
        &self,
        scope: *const (),
        has_ended: impl Fn() -> bool,
        run_others: impl Fn() -> bool,
        has_others: impl Fn() -> bool,
    ) -> bool {
        let own = self.deque();
        wait_for(own, self.floor, &Within { own, scope, has_ended, run_others, has_others }).is_ok()
    }

    /// Waits until `has_ended`. False in the child of a fork, as for `wait_within`.
    pub(crate) fn wait_elsewhere(&self, has_ended: impl Fn() -> bool) -> bool {
        wait_for(self.deque(), self.floor, &Elsewhere { has_ended }).is_ok()
    }
}

/// A scope within an item of the same queue.
struct Within<'a, P: Platform, E, R, O> {
    own: &'a Deque<P>,
    scope: *const (),
    has_ended: E,
    run_others: R,
    has_others: O,
}

impl<P: Platform, E, R, O> Awaited<P> for Within<'_, P, E, R, O>
where
    E: Fn() -> bool,
    R: Fn() -> bool,
    O: Fn() -> bool,
{
    const KIND: Wait = Wait::Within;

    fn is_done(&self) -> bool {
        (self.has_ended)()
    }

    fn has_news(&self) -> bool {
        (self.has_others)()
    }

    fn help(&self, context: &Context<'_, P>, asked: &mut Option<Instant>) -> bool {
        (self.run_others)() || help_scope(context, self.own, self.scope, asked)
    }

    fn any_helped(&self, context: &Context<'_, P>, each: impl Fn(&Deque<P>) -> bool) -> bool {
        deques_running(context, self.own, self.scope).any(each)
    }
}

/// A scope within an item of another queue.
struct Elsewhere<E> {
    has_ended: E,
}

impl<P: Platform, E: Fn() -> bool> Awaited<P> for Elsewhere<E> {
    const KIND: Wait = Wait::Elsewhere;

    fn is_done(&self) -> bool {
        (self.has_ended)()
    }

    fn help(&self, _: &Context<'_, P>, _: &mut Option<Instant>) -> bool {
        false
    }

    fn any_helped(&self, _: &Context<'_, P>, _: impl Fn(&Deque<P>) -> bool) -> bool {
        false
    }
}
