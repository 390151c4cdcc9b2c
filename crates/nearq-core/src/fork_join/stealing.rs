//! From which deques a worker may steal, and how it does.

use core::ptr::NonNull;

use nearq_platform::{Instant, Platform};

use super::PATIENCE;
use super::in_use::queue_of;
use super::waiting::run_down_to;
use crate::deque::job::{Job, Progress};
use crate::deque::{Deque, Requests, Steal};
use crate::limit::pool_workqueue::PoolWorkqueue;
use crate::pool::Pool;
use crate::pool::context::Context;
use crate::queue::Queue;

/// A job that the caller has stolen, and must run.
pub(super) struct Stolen<'a, P: Platform> {
    job: NonNull<Job<P>>,
    victim: &'a Deque<P>,
}

impl<P: Platform> Stolen<'_, P> {
    /// Runs it, and what it leaves in the thief's own deque. False in the child of a fork that it made.
    pub(super) fn run(self, context: &Context<'_, P>, own: &Deque<P>) -> bool {
        let floor = own.len();
        // SAFETY: null, or the pwq of the item that this worker runs, which stays until the item has ended.
        if let Some(pwq) = unsafe { PoolWorkqueue::of(context.account.get()).as_ref() } {
            pwq.count_stolen(context.worker.index);
        }
        // SAFETY: stolen, and not run yet, so the job is there.
        let before = own.set_running(unsafe { self.job.as_ref() }.scope());
        // SAFETY: stolen from that deque, and not run yet.
        if !unsafe { Job::execute(self.job, Some(self.victim)) } {
            return false;
        }
        // Before what the job leaves is run: that may belong to other scopes.
        own.set_running(before);
        run_down_to(own, floor)
    }
}

/// The deques from which the owner of `deque` may steal jobs of the queue, nearest first.
pub(super) fn victims<'a, P: Platform>(
    context: &Context<'a, P>,
    queue: &'a Queue<P>,
    deque: &'a Deque<P>,
) -> impl Iterator<Item = &'a Deque<P>> {
    let own = context.pool;
    let siblings = own.key.helping.then(|| own.siblings()).into_iter().flatten();
    // If the queue's attributes have changed, items that fork may still run in the pools that the former attributes chose.
    let is_former = move |pool: &&Pool<P>| {
        !core::ptr::eq(*pool, own)
            && (pool.key.pod.intersects(&own.key.pod)
                || own.key.helping && !pool.may_be_helped_by(&own.key))
    };
    let former = queue.pwqs_in_service().map(|pwq| &*pwq.pool).filter(is_former);
    core::iter::once(own)
        .chain(siblings)
        .chain(former)
        .flat_map(move |pool| pool.deques(core::ptr::from_ref(queue).cast()))
        .filter(move |other| !core::ptr::eq(*other, deque))
}

/// Steals a job of the queue for the owner of `own`. `asked`: as for [`steal_from`].
pub(super) fn steal_any<'a, P: Platform>(
    context: &Context<'a, P>,
    queue: &'a Queue<P>,
    own: &'a Deque<P>,
    asked: &mut Option<Instant>,
) -> Option<Stolen<'a, P>> {
    victims(context, queue, own).find_map(|victim| {
        let may = || core::ptr::addr_eq(victim.group(), queue);
        steal_from(context.worker.index, victim, may, asked)
    })
}

/// Whether a round over the deques that began then has claimed what owners who were `asked` did not make public; true if none was asked. An
/// owner may be blocked and never answer, so a caller goes on until then before it gives up.
pub(super) fn has_claimed(asked: Option<Instant>, round: Instant) -> bool {
    asked.is_none_or(|asked| round - asked >= PATIENCE)
}

/// Runs a job that is offered by the thief of the job with that progress. False if there was none.
pub(super) fn help_thief<P: Platform>(
    context: &Context<'_, P>,
    own: &Deque<P>,
    progress: &Progress<P>,
    asked: &mut Option<Instant>,
) -> bool {
    let Some((thief, victim)) = thief_of(context, progress) else { return false };
    // While the thief runs the job, all jobs in its deque are parts of that one, or of a closure that it runs while it waits.
    let may = || progress.thief() == Some(thief) && !victim.is_attending();
    let stolen = steal_from(context.worker.index, victim, may, asked);
    stolen.map(|stolen| stolen.run(context, own)).is_some()
}

/// The number and the deque of the thief that runs the job with that progress.
pub(super) fn thief_of<'a, P: Platform>(
    context: &Context<'a, P>,
    progress: &Progress<P>,
) -> Option<(u32, &'a Deque<P>)> {
    let thief = progress.thief()?;
    Some((thief, context.services.workers.get(thief).deque.get()?))
}

/// The deques of the workers that run a stolen closure of that scope.
pub(super) fn deques_running<'a, P: Platform>(
    context: &Context<'a, P>,
    own: &'a Deque<P>,
    scope: *const (),
) -> impl Iterator<Item = &'a Deque<P>> {
    victims(context, queue_of(own), own).filter(move |victim| victim.running() == scope)
}

/// Runs a job that is offered by a worker which runs a stolen closure of that scope. False if there was none.
pub(super) fn help_scope<P: Platform>(
    context: &Context<'_, P>,
    own: &Deque<P>,
    scope: *const (),
    asked: &mut Option<Instant>,
) -> bool {
    // While such a worker runs the closure, all jobs in its deque are parts of that one, or of another one that it runs while it waits.
    let stolen = deques_running(context, own, scope).find_map(|victim| {
        let may = || victim.running() == scope && !victim.is_attending();
        steal_from(context.worker.index, victim, may, asked)
    });
    stolen.map(|stolen| stolen.run(context, own)).is_some()
}

/// Steals from a deque, for the worker with that number. If the deque's jobs are all private, asks the owner to make some public; does it
/// itself if an owner was asked [`PATIENCE`] ago. `asked` is when.
pub(super) fn steal_from<'a, P: Platform>(
    thief: u32,
    victim: &'a Deque<P>,
    may: impl Fn() -> bool,
    asked: &mut Option<Instant>,
) -> Option<Stolen<'a, P>> {
    let stolen = |job: NonNull<Job<P>>| {
        // At once: the owner may be waiting for the job already, and can help only a thief that it knows.
        // SAFETY: stolen, and not run yet, so the job is there.
        unsafe { job.as_ref() }.progress.begin(thief);
        Some(Stolen { job, victim })
    };
    match victim.steal(&may) {
        Steal::Job(job) => return stolen(job),
        Steal::Empty => return None,
        Steal::Private => {}
    }
    let now = P::now();
    match *asked {
        Some(since) if now - since >= PATIENCE => {
            victim.claim(&may);
            match victim.steal(&may) {
                Steal::Job(job) => stolen(job),
                _ => None,
            }
        }
        Some(_) => None,
        None => {
            victim.request(Requests::SHARE);
            *asked = Some(now);
            None
        }
    }
}
