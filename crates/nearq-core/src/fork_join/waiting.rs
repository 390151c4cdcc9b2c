//! How a worker waits in a join or a scope for what other workers run; and how it runs what it has pushed itself.

use core::time::Duration;

use nearq_platform::{Instant, Platform};

use super::in_use::queue_of;
use super::stealing::{has_claimed, victims};
use super::thief::steal_for;
use super::{PAUSES, SEARCH};
use crate::base::outcome::contain;
use crate::deque::job::Job;
use crate::deque::{Deque, Popped};
use crate::limit::pool_workqueue::PoolWorkqueue;
use crate::pool::context::{Context, blocking, with_current};
use crate::queue::team::Closure;
pub(crate) use crate::queue::team::Wait;

/// At most how long a worker searches before it sleeps, if there seem to be jobs for it, or if a thief has not said yet which one it is.
const LONGEST_SEARCH: Duration = Duration::from_micros(200);

/// In the child of a fork, in which nothing can be waited for: there are no other workers.
pub(super) struct InChild;

/// What a worker waits for.
pub(super) trait Awaited<P: Platform> {
    /// For the team of its queue.
    const KIND: Wait;

    /// Whether it has come. The thread that makes this true must ring the bell of the worker's deque afterwards.
    fn is_done(&self) -> bool;

    /// Whether there is something for `help` besides jobs to steal. The thread that makes this true must ring too.
    fn has_news(&self) -> bool {
        false
    }

    /// Runs a part of it. False if there was none. `asked`: as for `steal_from`.
    fn help(&self, context: &Context<'_, P>, asked: &mut Option<Instant>) -> bool;

    /// Calls `each` with the deques that hold parts of it, until one call returns true. Returns whether one has, or a deque is not
    /// known yet.
    fn any_helped(&self, context: &Context<'_, P>, each: impl Fn(&Deque<P>) -> bool) -> bool;
}

/// Waits for something, for a caller that may run all its jobs down to `floor`. Meanwhile it helps, and runs what the team of its queue has
/// for it alone.
pub(super) fn wait_for<P: Platform, A: Awaited<P>>(
    deque: &Deque<P>,
    floor: u32,
    awaited: &A,
) -> Result<(), InChild> {
    run_down_to(deque, floor);
    if awaited.is_done() {
        return Ok(());
    }
    wait_for_others(deque, floor, awaited)
}

/// The caller has run all its jobs down to `floor`.
#[cold]
fn wait_for_others<P: Platform, A: Awaited<P>>(
    deque: &Deque<P>,
    floor: u32,
    awaited: &A,
) -> Result<(), InChild> {
    let mut since = P::now();
    let mut round = since;
    let mut asked = None;
    loop {
        run_down_to(deque, floor);
        if awaited.is_done() {
            return Ok(());
        }
        let helped = with_current::<P, _>(|context| awaited.help(context, &mut asked));
        if !helped.ok_or(InChild)? && !attend(deque, A::KIND) {
            let now = P::now();
            let may_sleep = now - since >= SEARCH
                && (!asks_for_parts(deque, awaited)
                    || has_claimed(asked, round) && P::now() - since >= LONGEST_SEARCH);
            if !may_sleep {
                round = now;
                P::pause(PAUSES);
                continue;
            }
            sleep(deque, A::KIND, || awaited.is_done() || awaited.has_news());
        }
        since = P::now();
        (round, asked) = (since, None);
    }
}

/// Asks the workers that run parts of what the caller waits for to ring when they have jobs. True if they may have some already.
fn asks_for_parts<P: Platform>(deque: &Deque<P>, awaited: &impl Awaited<P>) -> bool {
    let found = with_current::<P, _>(|context| {
        awaited.any_helped(context, |helped| {
            helped.request_ring(&deque.bell);
            false
        });
        // Pairs with the light fence between an owner's push and its read of the requests.
        P::heavy_fence() && awaited.any_helped(context, Deque::has_jobs)
    });
    found.unwrap_or(false)
}

/// Sleeps until the bell rings, unless `has_come`, or the team has something for the caller.
fn sleep<P: Platform>(deque: &Deque<P>, wait: Wait, has_come: impl Fn() -> bool) {
    let team = queue_of(deque).team();
    blocking::<P, _>(|| {
        // While the caller sleeps, its CPU is free for a thief.
        call_for_more(deque);
        if let Some(team) = team {
            team.sleeps(wait, true);
        }
        deque.bell.sleep_unless(|| has_come() || team.is_some_and(|team| team.has_urgent(wait)));
        if let Some(team) = team {
            team.sleeps(wait, false);
        }
    });
}

/// Runs what the team of the queue has for the caller alone, which waits. False if there was nothing.
fn attend<P: Platform>(deque: &Deque<P>, wait: Wait) -> bool {
    let team = with_current::<P, _>(|_| queue_of(deque).team()).flatten();
    let Some(closure) = team.and_then(|team| team.take_urgent(wait)) else { return false };
    // Workers that wait for the caller's stolen job must run no part of it: it is no part of that job.
    let before = deque.set_attending(true);
    run_closure(deque, deque.len(), closure);
    deque.set_attending(before);
    true
}

/// Calls a thief if there are jobs and none searches. By the owner of a deque that is in use.
fn call_for_more<P: Platform>(deque: &Deque<P>) {
    with_current::<P, _>(|context| {
        let queue = queue_of(deque);
        if victims(context, queue, deque).any(Deque::has_jobs) {
            queue.thieves(context.pool, steal_for).call(queue);
        }
    });
}

/// Pops the owner's jobs down to that position, newest first, and runs those that have not been stolen. They are closures of scopes. In
/// the child of a fork, where the jobs are the parent's, it runs none and returns false.
pub(super) fn run_down_to<P: Platform>(deque: &Deque<P>, floor: u32) -> bool {
    while deque.len() > floor {
        run_newest(deque);
    }
    with_current::<P, _>(|_| ()).is_some()
}

/// Pops the newest job, which is on the heap, and runs it if it is the owner's. False in the child of a fork, or if it has been stolen.
pub(super) fn run_newest<P: Platform>(deque: &Deque<P>) -> bool {
    let Some((position, job, on_heap)) = deque.newest() else { return false };
    let is_own = deque.pop(position) == Popped::Own;
    // A job on the stack is popped by the frame that has pushed it, and none of those is above the floor of a frame that has called this.
    debug_assert!(on_heap);
    let runs = is_own && with_current::<P, _>(|_| ()).is_some();
    if runs {
        // SAFETY: popped just now and not run; it is on the heap, so the owner may run it.
        unsafe { Job::execute(job, None) };
    }
    runs
}

/// Runs a closure of the team, and the jobs that it leaves above that position. False in the child of a fork that it made.
pub(super) fn run_closure<P: Platform>(deque: &Deque<P>, floor: u32, closure: Closure) -> bool {
    let epoch = P::fork_epoch();
    let panicked = contain(closure);
    if P::fork_epoch() != epoch {
        return false;
    }
    if panicked {
        count_panicked::<P>();
    }
    run_down_to(deque, floor)
}

/// Counts a closure that panicked, on the pwq that the calling worker serves.
#[cold]
pub(crate) fn count_panicked<P: Platform>() {
    with_current::<P, _>(|context| {
        // SAFETY: null, or the pwq that this worker serves, which stays meanwhile.
        if let Some(pwq) = unsafe { PoolWorkqueue::of(context.account.get()).as_ref() } {
            pwq.count_panicked(context.worker.index);
        }
    });
}
