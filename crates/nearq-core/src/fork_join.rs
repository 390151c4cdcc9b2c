//! Fork-join: an item of an unbound queue offers a part of its work, and other workers of the queue may run it.
//!
//! [`join`] runs two closures. It offers the second, as a job on the caller's stack, in the worker's deque (`deque`); runs the first; and
//! takes the second back, unless a thief has it by then. So it never depends on help: the caller runs what no worker took.
//!
//! # Who steals
//! Thieves are items of the same queue (`queue/thieves`). One is called at the first fork of an item, if none searches. A thief that finds
//! a job calls the next one if it sees another job; otherwise it leaves the request to call one with every deque. A thief searches the
//! deques of its own pool first, and then those of sibling pools, nearest first, if the queue helps. It takes jobs of its own queue only.
//! A deque whose jobs are all private is asked to make some public; if the owner does not answer within [`PATIENCE`], the thief does it.
//!
//! A thief that finds nothing for [`SEARCH`] leaves. If no other one searches, it first leaves the request to call a thief with every
//! deque, and checks them once more.
//!
//! # How a join waits
//! If a thief has the job, the caller runs jobs that the thief offers: they are parts of what the caller waits for (leapfrogging; D. Wagner
//! and B. Calder, "Leapfrogging: A Portable Technique for Implementing Efficient Futures", 1993). It runs nothing else: another item's job
//! might wait for a lock that the caller has. After [`SEARCH`] it sleeps, and another worker takes its place.
//!
//! # In the child of a fork
//! The thread that forked is no worker there: it has no context. Its deque stays as it is, and no thread of the child finds it (`LazyDeque`). Jobs that a thread of the parent
//! has are lost: their closures were moved. A join that waits for one panics.

use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::NonNull;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use nearq_platform::{Instant, Platform, PlatformCell};

use crate::base::ids::QueueKind;
use crate::base::outcome::contain;
use crate::deque::job::Job;
use crate::deque::{Deque, Popped, Request, Steal};
use crate::limit::pool_workqueue::PoolWorkqueue;
use crate::pool::Pool;
use crate::pool::context::{Context, blocking, is_in_item, with_current};
use crate::queue::Queue;
use crate::queue::thieves::Thieves;

/// How long a thief searches without success before it leaves, and a join before it sleeps: somewhat more than a wake-up takes.
const SEARCH: Duration = Duration::from_micros(15);
/// How long a thief waits for an owner to make jobs public. Forks that matter come more often than that; making the owner's CPU execute a
/// barrier costs it about a microsecond.
const PATIENCE: Duration = Duration::from_micros(5);
/// How many pauses a search makes between two rounds.
const PAUSES: u32 = 16;

/// What a closure has returned, or its panic.
type Outcome<R> = std::thread::Result<R>;

/// A closure that is offered to other workers, and its result.
#[repr(C)]
struct Offered<P: Platform, F, R> {
    job: Job<P>,
    closure: P::Cell<ManuallyDrop<F>>,
    /// Written by the thief before the job is done.
    result: P::Cell<MaybeUninit<Outcome<R>>>,
}

impl<P: Platform, F: FnOnce() -> R + Send, R: Send> Offered<P, F, R> {
    #[inline(always)]
    fn new(closure: F) -> Self {
        Offered {
            job: Job::new(Self::run),
            closure: P::Cell::new(ManuallyDrop::new(closure)),
            result: P::Cell::new(MaybeUninit::uninit()),
        }
    }

    /// Takes the closure.
    ///
    /// # Safety
    /// The caller has the job, and takes the closure once.
    #[inline(always)]
    unsafe fn take(&self) -> F {
        // SAFETY: as the caller promises.
        self.closure.with_mut(|closure| unsafe { ManuallyDrop::take(&mut *closure) })
    }

    /// Runs the job, for a thread that has stolen it; see `Job::run`.
    unsafe fn run(job: NonNull<Job<P>>) -> bool {
        // SAFETY: the function belongs to jobs of this type, whose first field is the job; the owner waits.
        let this = unsafe { job.cast::<Self>().as_ref() };
        // SAFETY: the caller has stolen the job.
        let closure = unsafe { this.take() };
        let epoch = P::fork_epoch();
        let result = catch_unwind(AssertUnwindSafe(closure));
        if P::fork_epoch() != epoch {
            // In the child of a fork that the closure made, the owner's stack may be another thread's by now.
            contain(|| drop(result));
            return false;
        }
        // SAFETY: the owner reads it when the job is done.
        this.result.with_mut(|place| unsafe { (*place).write(result) });
        true
    }

    /// What the thief has stored.
    ///
    /// # Safety
    /// A thief had the job, and it is done. Called once.
    unsafe fn stolen_result(&self) -> Outcome<R> {
        // SAFETY: as the caller promises.
        self.result.with_mut(|place| unsafe { (*place).assume_init_read() })
    }
}

/// Runs both closures, the second possibly in another worker. If the caller does not run an item, `outside` is called instead.
#[inline]
pub(crate) fn join<P: Platform, A, B, RA, RB>(
    a: A,
    b: B,
    outside: impl FnOnce(A, B) -> (RA, RB),
) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    let deque = with_current::<P, _>(|context| context.deque.get());
    // SAFETY: null, or the deque of this worker, whose entry lives as long as the runtime.
    match deque.and_then(|deque| unsafe { deque.as_ref() }) {
        Some(deque) => fork(deque, a, b),
        None => join_first::<P, _, _, _, _>(a, b, outside),
    }
}

/// The first join of an item, or a join outside of items.
#[cold]
#[inline(never)]
fn join_first<P: Platform, A, B, RA, RB>(
    a: A,
    b: B,
    outside: impl FnOnce(A, B) -> (RA, RB),
) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    if !is_in_item::<P>() {
        return outside(a, b);
    }
    let began = with_current::<P, _>(|context| {
        // SAFETY: null, or the pwq of the item that this worker runs, which keeps the queue.
        let pwq = unsafe { PoolWorkqueue::of(context.account.get()).as_ref() }?;
        let may_fork = pwq.queue().kind == QueueKind::Unbound && pwq.node_active().limit() > 1;
        may_fork.then(|| InUse::begin(context, pwq.queue()))
    });
    let Some(in_use) = began.flatten() else { return in_turn(a, b) };
    in_use.deque().request(Request::Call);
    fork(in_use.deque(), a, b)
}

/// Runs both here. Both run, even if the first panics.
fn in_turn<A: FnOnce() -> RA, B: FnOnce() -> RB, RA, RB>(a: A, b: B) -> (RA, RB) {
    then(catch_unwind(AssertUnwindSafe(a)), b)
}

/// Runs the second closure, after the first, whatever became of that.
#[inline(always)]
fn then<B: FnOnce() -> RB, RA, RB>(ra: Outcome<RA>, b: B) -> (RA, RB) {
    both(ra, catch_unwind(AssertUnwindSafe(b)))
}

#[inline]
fn fork<P: Platform, A, B, RA, RB>(deque: &Deque<P>, a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    let offered = Offered::<P, B, RB>::new(b);
    // The pointer of the whole: a thief reaches the closure and the result through it.
    if !deque.push((&raw const offered).cast()) {
        // SAFETY: not offered, so the job is ours.
        return in_turn(a, unsafe { offered.take() });
    }
    if deque.has_request() {
        answer(deque);
    }
    let ra = catch_unwind(AssertUnwindSafe(a));
    match deque.pop() {
        Popped::Own => {
            // SAFETY: the job is ours again.
            then(ra, unsafe { offered.take() })
        }
        Popped::Stolen => {
            wait(deque, &offered.job);
            // SAFETY: it is done.
            both(ra, unsafe { offered.stolen_result() })
        }
    }
}

/// The results of both, or the first panic.
#[inline(always)]
fn both<RA, RB>(ra: Outcome<RA>, rb: Outcome<RB>) -> (RA, RB) {
    match (ra, rb) {
        (Ok(ra), Ok(rb)) => (ra, rb),
        (Err(payload), rb) => unwind(payload, rb),
        (Ok(ra), Err(payload)) => unwind(payload, ra),
    }
}

/// Unwinds, after it has dropped what the other closure left. Not while the thread unwinds: a drop that panics would end the process.
#[cold]
fn unwind(payload: Box<dyn core::any::Any + Send>, other: impl Sized) -> ! {
    contain(|| drop(other));
    resume_unwind(payload)
}

/// Does what a thief has asked for. By the owner, which has offered a job just now.
#[cold]
#[inline(never)]
fn answer<P: Platform>(deque: &Deque<P>) {
    let request = deque.take_request();
    // None in the child of a fork, where no thread finds the deque, and the queue may be gone.
    with_current::<P, _>(|context| {
        deque.share();
        if request == Request::Call {
            let queue = queue_of(deque);
            // A subscriber to what is queued is foreign code. Its panic must not unwind the frame whose job has been offered.
            contain(|| queue.thieves(context.pool, steal_for).call(queue));
        }
    });
}

/// The queue for which a deque is in use. By the owner of the deque, which runs an item of the queue, in the process in which it began.
fn queue_of<P: Platform>(deque: &Deque<P>) -> &Queue<P> {
    // SAFETY: set to the address of a queue by `InUse::begin`; the caller's item keeps the queue.
    unsafe { &*deque.group().cast() }
}

/// A worker's deque while it is in use.
struct InUse<P: Platform> {
    deque: NonNull<Deque<P>>,
}

impl<P: Platform> InUse<P> {
    /// By a worker that runs an item of the queue, and has not forked yet.
    fn begin(context: &Context<'_, P>, queue: &Queue<P>) -> Self {
        let deque = context.worker.deque.get_or_make();
        deque.begin(core::ptr::from_ref(queue).cast());
        context.pool.change_forking(true);
        context.deque.set(deque);
        InUse { deque: NonNull::from(deque) }
    }

    fn deque(&self) -> &Deque<P> {
        // SAFETY: it belongs to the entry of the worker that the caller is, and entries live as long as the runtime. In the child of a fork
        // it is given up, and never freed.
        unsafe { self.deque.as_ref() }
    }
}

impl<P: Platform> Drop for InUse<P> {
    fn drop(&mut self) {
        // None in the child of a fork, where the pool counts other workers.
        with_current::<P, _>(|context| {
            context.deque.set(core::ptr::null());
            self.deque().end();
            context.pool.change_forking(false);
        });
    }
}

/// Waits for a job that a thief has. By its owner, whose other jobs have all been stolen.
#[cold]
fn wait<P: Platform>(deque: &Deque<P>, job: &Job<P>) {
    // If this unwound, the thief would write into a frame that is gone.
    struct Abort;
    impl Drop for Abort {
        fn drop(&mut self) {
            std::process::abort();
        }
    }
    let abort = Abort;
    let mut since = P::now();
    let mut asked = None;
    while !job.is_done() {
        if with_current::<P, _>(|_| ()).is_none() {
            // In the child of a fork: there are no thieves here.
            core::mem::forget(abort);
            panic!(
                "the process forked inside `join`, and a thread of the parent runs the other closure"
            );
        }
        if help(job, &mut asked) {
            (since, asked) = (P::now(), None);
        } else if P::now() - since >= SEARCH {
            blocking::<P, _>(|| {
                // The caller's CPU is free.
                call_for_more(deque);
                job.sleep();
            });
        } else {
            P::pause(PAUSES);
        }
    }
    core::mem::forget(abort);
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

/// The deques from which the owner of `deque` may steal jobs of the queue, nearest first.
fn victims<'a, P: Platform>(
    context: &Context<'a, P>,
    queue: &'a Queue<P>,
    deque: &'a Deque<P>,
) -> impl Iterator<Item = &'a Deque<P>> {
    let own = context.pool;
    let siblings = own.key.helping.then(|| own.siblings()).into_iter().flatten();
    // If the queue's attributes have changed, items that fork may run in pools of the former ones.
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

/// Runs a job that the thief of `job` offers. False if there was none.
fn help<P: Platform>(job: &Job<P>, asked: &mut Option<Instant>) -> bool {
    let Some(thief) = job.thief() else { return false };
    with_current::<P, _>(|context| {
        let victim = context.services.workers.get(thief).deque.get()?;
        // While the thief runs `job`, all that its deque holds are parts of that.
        let may = || job.thief() == Some(thief);
        let stolen = steal_from(victim, may, asked)?;
        // SAFETY: stolen just now.
        unsafe { Job::run_stolen(stolen, context.worker.index) };
        Some(())
    })
    .flatten()
    .is_some()
}

/// Steals from a deque. If its jobs are all private, asks the owner to make some public and, if that was asked [`PATIENCE`] ago, does it.
fn steal_from<P: Platform>(
    victim: &Deque<P>,
    may: impl Fn() -> bool,
    asked: &mut Option<Instant>,
) -> Option<NonNull<Job<P>>> {
    match victim.steal(&may) {
        Steal::Job(job) => return Some(job),
        Steal::Empty => return None,
        Steal::Private => {}
    }
    let now = P::now();
    match *asked {
        Some(since) if now - since >= PATIENCE => {
            victim.claim(&may);
            match victim.steal(&may) {
                Steal::Job(job) => Some(job),
                _ => None,
            }
        }
        Some(_) => None,
        None => {
            victim.request_share();
            *asked = Some(now);
            None
        }
    }
}

/// What a thief does: steals jobs of the queue and runs them, until there are none.
fn steal_for<P: Platform>(queue: &Queue<P>, thieves: &Thieves<P>) {
    thieves.begin();
    with_current::<P, _>(|context| {
        let in_use = InUse::begin(context, queue);
        let thief = ThiefAtWork { context, queue, thieves, deque: in_use.deque() };
        thief.work();
    });
}

/// A thief that runs.
struct ThiefAtWork<'a, P: Platform> {
    context: &'a Context<'a, P>,
    queue: &'a Queue<P>,
    thieves: &'a Thieves<P>,
    deque: &'a Deque<P>,
}

impl<P: Platform> ThiefAtWork<'_, P> {
    /// It is counted as searching when this begins, and not any more when it ends.
    fn work(&self) {
        while let Some(job) = self.find() {
            self.end_search();
            // The first fork of the job calls another thief, if none searches.
            self.deque.request(Request::Call);
            // SAFETY: stolen just now.
            if !unsafe { Job::run_stolen(job, self.context.worker.index) } {
                return;
            }
            self.thieves.begin_search();
            if self.is_in_the_way() {
                break;
            }
        }
        self.end_search();
    }

    /// Whether others wait for its worker, its place under a limit, or its end. They come first; the thief must give way to them.
    fn is_in_the_way(&self) -> bool {
        let pool = self.context.pool;
        // SAFETY: the pwq of the item that this worker runs, which is the thief.
        let served = unsafe { PoolWorkqueue::of(self.context.account.get()).as_ref() };
        // Other thieves are no reason: they would do the same.
        (pool.has_work() && !pool.waits_for_optional_only())
            || pool.concurrency.has_waiting()
            || pool.is_over()
            || served
                .is_none_or(|pwq| self.queue.held_back_beside(pwq) || !self.queue.leads_to(pwq))
    }

    /// Stops searching. If it was the last thief that searched, it calls another one for the jobs that are there; and from now on, owners
    /// must call one.
    fn end_search(&self) {
        if !self.thieves.end_search() {
            return;
        }
        let found = self.victims().any(Deque::has_jobs) || {
            self.victims().for_each(|victim| victim.request(Request::Call));
            // Pairs with the light fence between an owner's push and its reads.
            P::heavy_fence() && self.victims().any(Deque::has_jobs)
        };
        if found {
            self.thieves.call(self.queue);
        }
    }

    /// Searches until there is a job, or for long enough.
    fn find(&self) -> Option<NonNull<Job<P>>> {
        let since = P::now();
        let mut asked = None;
        loop {
            let found = self.victims().find_map(|victim| {
                let may = || core::ptr::addr_eq(victim.group(), self.queue);
                steal_from(victim, may, &mut asked)
            });
            if found.is_some() || P::now() - since >= SEARCH {
                return found;
            }
            P::pause(PAUSES);
        }
    }

    /// The deques that it may steal from.
    fn victims(&self) -> impl Iterator<Item = &Deque<P>> {
        victims(self.context, self.queue, self.deque)
    }
}
