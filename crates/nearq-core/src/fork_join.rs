//! Fork-join: an item of an unbound queue offers a part of its work, and other workers of the queue may run it.
//!
//! [`join`] runs two closures. It offers the second in the worker's deque (`deque`), as a job on the caller's stack; runs the first; and
//! takes the second back, unless a thief has it by then. A scope offers its closures as jobs on the heap, and at its end runs those that
//! are left, newest first. So neither depends on help: the caller runs what no other worker has taken.
//!
//! | file | what it holds |
//! |---|---|
//! | `in_use` | a worker's deque while an item uses it |
//! | `stealing` | from which deques a worker may steal, and how it does |
//! | `thief` | what a thief does |
//! | `waiting` | how a join or a scope waits for jobs that were stolen |
//! | `scoped` | the closures of scopes |
//!
//! # Who steals
//! Thieves are items of the same queue (`queue/thieves`). One is called at the first fork of an item, if none searches. A thief searches
//! the deques of its own pool first; then those of sibling pools, nearest first, if these help each other; then those of pools that the
//! queue used before its attributes changed. It takes jobs of its own queue only. If all jobs of a deque are private, it asks the owner to
//! make some public; if the owner does not answer within [`PATIENCE`], the thief does it.
//!
//! A thief stops searching when it has found a job, or after [`SEARCH`]; but if its first round has asked an owner, not before it has
//! claimed what that one did not make public. If no other one searches then, it calls the next thief if it sees a job. If it sees none, it
//! asks the owner of each deque to call one at the next push, and looks at the deques once more. Then it runs what it has found, or ends.
//!
//! # How a join or a scope waits
//! If a thief has the job, the caller runs jobs that the thief offers: they are parts of what the caller waits for (leapfrogging; D. Wagner
//! and B. Calder, "Leapfrogging: A Portable Technique for Implementing Efficient Futures", 1993). It runs no unrelated job: that might wait
//! for a lock that the caller has. After [`SEARCH`] it leaves its bell with the thief and sleeps; another worker takes its place. It is
//! woken when what it waits for is done, or when the thief has jobs again.
//!
//! The parts of a job are all that it pushes, so also closures that it spawns in a scope around the join. The caller runs those too.
//!
//! # Teams
//! A layer above may give the workers of a queue numbers, and work of its own beside the jobs (`queue/team`). Then a thief enters the team
//! before it searches, and takes closures from the team too. A worker that waits runs what the team has for it alone.
//!
//! # In the child of a fork
//! The thread that forked is no worker there: it has no context. Its deque stays as it is, and no thread of the child finds it
//! (`LazyDeque`). Jobs that a thread of the parent has are lost: their closures were moved. A join that waits for one panics. Closures of
//! scopes that were spawned before the fork are the parent's.

use core::mem::{ManuallyDrop, MaybeUninit, needs_drop};
use core::ptr::NonNull;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use nearq_platform::{Instant, Platform, PlatformCell};

use crate::base::outcome::contain;
use crate::deque::job::{Job, Progress};
use crate::deque::{Deque, Popped};
use crate::pool::context::{Context, is_in_item, with_current};

mod in_use;
pub(crate) mod scoped;
mod stealing;
mod thief;
mod waiting;

use in_use::{InUse, answer, current_deque, queue_of};
use stealing::{has_claimed, steal_any};
pub(crate) use thief::steal_for;
use waiting::{Awaited, Wait};

/// How long a thief searches without success before it leaves, and a join before it sleeps: somewhat more than a wake-up takes.
const SEARCH: Duration = Duration::from_micros(15);
/// How long a thief waits for an owner to make jobs public. Most owners fork again sooner than that; a claim interrupts the owner's CPU,
/// which costs it about a microsecond.
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
            job: Job::on_stack(Self::run),
            closure: P::Cell::new(ManuallyDrop::new(closure)),
            result: P::Cell::new(MaybeUninit::uninit()),
        }
    }

    /// The closure of a job that was not offered.
    fn into_closure(self) -> F {
        // SAFETY: the job was not offered, so no other thread has it; the caller gives it up.
        unsafe { self.take() }
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

    /// Runs the job, for a thread that has stolen it.
    ///
    /// # Safety
    /// As for `Job::execute`.
    unsafe fn run(job: NonNull<Job<P>>, victim: Option<&Deque<P>>) -> bool {
        // SAFETY: the function belongs to jobs of this type, whose first field is the job; the frame of the owner stays until that is done.
        let this = unsafe { job.cast::<Self>().as_ref() };
        let victim = victim.expect("the owner runs the closure itself");
        // SAFETY: the caller has stolen the job, and runs it once.
        let closure = unsafe { this.take() };
        let epoch = P::fork_epoch();
        let result = catch_unwind(AssertUnwindSafe(closure));
        if P::fork_epoch() != epoch {
            // In the child of a fork that the closure made, the owner's stack may be another thread's by now.
            contain(|| drop(result));
            return false;
        }
        // SAFETY: the job, and with it this cell, belongs to the caller until the job is done; only then does the owner read it.
        this.result.with_mut(|place| unsafe { (*place).write(result) });
        // SAFETY: the caller has stolen the job, and touches nothing of it afterwards.
        unsafe { Progress::end(&raw const this.job.progress, victim) };
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
///
/// Each closure is called in few places, so that the compiler builds both into the caller.
#[inline(always)]
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
    // Before anything else, and inlined, so that the caller stores what the closure has borrowed in the job right away. If it were copied
    // there as a whole, the processor would wait for the stores of its parts; that took half the time of a join.
    let offered = Offered::<P, B, RB>::new(b);
    let first;
    let deque = match current_deque::<P>() {
        Some(deque) => {
            first = None;
            Some(deque)
        }
        None => {
            let Ok(in_use) = begin_first() else { return outside(a, offered.into_closure()) };
            first = in_use;
            first.as_ref().map(InUse::deque)
        }
    };
    let results = fork(deque, a, offered);
    drop(first);
    results
}

/// The caller does not run an item.
struct Outside;

/// For a join that is the first of its item, or is outside of items. None if the item's queue does not fork (`InUse::begin_in_item`).
#[cold]
#[inline(never)]
fn begin_first<P: Platform>() -> Result<Option<InUse<P>>, Outside> {
    if is_in_item::<P>() { Ok(InUse::begin_in_item()) } else { Err(Outside) }
}

/// Runs the second closure after the first, whether that has returned or panicked.
#[inline(always)]
fn then<B: FnOnce() -> RB, RA, RB>(ra: Outcome<RA>, b: B) -> (RA, RB) {
    match ra {
        // Nothing is left to do if the second one panics.
        Ok(ra) if !needs_drop::<RA>() => (ra, b()),
        ra => both(ra, catch_unwind(AssertUnwindSafe(b))),
    }
}

/// Runs both closures. Without a deque, or if that is full, both run here. Both run, even if the first panics.
#[inline(always)]
fn fork<P: Platform, A, B, RA, RB>(
    deque: Option<&Deque<P>>,
    a: A,
    offered: Offered<P, B, RB>,
) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    // A pointer to the whole, not to its job: a thief reaches the closure and the result through it.
    let offer = deque.and_then(|deque| Some((deque, deque.push((&raw const offered).cast())?)));
    if let Some((deque, _)) = offer {
        if deque.has_request() {
            answer(deque);
        }
    }
    let ra = catch_unwind(AssertUnwindSafe(a));
    if let Some((deque, position)) = offer {
        if deque.len() != position + 1 {
            // The first closure has spawned closures in scopes around this join. They lie above the job, which is popped next.
            waiting::run_down_to(deque, position + 1);
        }
        if deque.pop(position) == Popped::Stolen {
            wait(deque, &offered.job.progress);
            // SAFETY: it is done.
            return both(ra, unsafe { offered.stolen_result() });
        }
    }
    // SAFETY: the job was not offered, or is ours again.
    then(ra, unsafe { offered.take() })
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

/// A job that a thief has.
struct StolenJob<'a, P: Platform> {
    own: &'a Deque<P>,
    progress: &'a Progress<P>,
}

impl<P: Platform> Awaited<P> for StolenJob<'_, P> {
    const KIND: Wait = Wait::Within;

    fn is_done(&self) -> bool {
        self.progress.is_done()
    }

    fn help(&self, context: &Context<'_, P>, asked: &mut Option<Instant>) -> bool {
        stealing::help_thief(context, self.own, self.progress, asked)
    }

    fn any_helped(&self, context: &Context<'_, P>, each: impl Fn(&Deque<P>) -> bool) -> bool {
        stealing::thief_of(context, self.progress).is_none_or(|(_, deque)| each(deque))
    }
}

/// Waits for a job that a thief has. By its owner, whose other jobs have all been stolen.
#[cold]
fn wait<P: Platform>(deque: &Deque<P>, progress: &Progress<P>) {
    // If this unwound, the thief would write into a frame that is gone.
    struct Abort;
    impl Drop for Abort {
        fn drop(&mut self) {
            std::process::abort();
        }
    }
    let abort = Abort;
    let waited = waiting::wait_for(deque, deque.len(), &StolenJob { own: deque, progress });
    core::mem::forget(abort);
    assert!(
        waited.is_ok(),
        "the process forked inside `join`, and a thread of the parent runs the other closure"
    );
}

/// Whether the caller has jobs in its deque.
#[doc(hidden)]
pub fn has_own_jobs<P: Platform>() -> bool {
    current_deque::<P>().is_some_and(Deque::has_jobs)
}

/// Runs the newest job in the caller's deque, if it is a closure of a scope. False if there is none.
#[doc(hidden)]
pub fn run_own_job<P: Platform>() -> bool {
    let Some(deque) = current_deque::<P>() else { return false };
    while deque.newest().is_some_and(|(_, _, on_heap)| on_heap) {
        let floor = deque.len() - 1;
        if waiting::run_newest(deque) {
            waiting::run_down_to(deque, floor);
            return true;
        }
    }
    false
}

/// Steals a job of the queue whose item the caller runs, and runs it. False if there is none. If the owner of a job has to be asked for it,
/// the caller waits for [`PATIENCE`]: the owner may be blocked, and a caller that has nothing else to do may only be calling this.
#[doc(hidden)]
pub fn run_stolen_job<P: Platform>() -> bool {
    let Some(deque) = current_deque::<P>() else { return false };
    if deque.has_jobs() {
        // Jobs of what it steals would lie above its own jobs, and a helper would take them for parts of what those belong to.
        return false;
    }
    with_current::<P, _>(|context| {
        let queue = queue_of(deque);
        let mut asked = None;
        loop {
            let round = P::now();
            if let Some(stolen) = steal_any(context, queue, deque, &mut asked) {
                stolen.run(context, deque);
                return true;
            }
            if has_claimed(asked, round) {
                return false;
            }
            P::pause(PAUSES);
        }
    })
    .unwrap_or(false)
}

#[cfg(test)]
mod tests;
