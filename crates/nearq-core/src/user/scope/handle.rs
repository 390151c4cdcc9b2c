//! [`ScopedJoinHandle`]: waits for one closure of a scope, and gives its value.
//!
//! The closure lies in a slot, which the handle shares with the *shell*: what the scope offers and counts as its closure. The side that
//! claims the slot runs the closure. That is the shell; or `join` within an item of the same queue, which does so in the item's place,
//! because the limit may leave no other one. Then the shell finds nothing to do.
//!
//! # The word
//! | bit | name | set by |
//! |---|---|---|
//! | 0 | `CLAIMED` | the side that runs the closure, or drops it because it was refused; once |
//! | 1 | `DONE` | the same, when the result is there |
//! | 2 | `DETACHED` | the handle, when it is dropped |
//! | 3 | `ASLEEP` | the thread that sleeps on the word in `join` |
//!
//! The stage belongs to the side that has claimed it until `DONE`, and to the handle afterwards; if `DETACHED` was set before `DONE`, it
//! stays with the former. Both bits are set by read-modify-writes of one word, so one of the two sides comes second and finds out. `DONE`
//! releases the result, and reading it acquires.
//!
//! # A panic
//! It is the result of `join`. If the handle is dropped instead, it is the scope's, whichever comes first.
//!
//! # In the child of a fork
//! A closure of the parent's that has no result there never gets one: `join` says that it is cancelled.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, Linux, Ordering, Platform, PlatformCell};

use crate::base::outcome::{JoinError, Panic, contain};
use crate::fork_join::scoped::count_panicked;
use crate::pool::context::blocking;
use crate::queue::{Queue, serves};
use crate::task::TaskState;

const CLAIMED: u32 = 1;
const DONE: u32 = 1 << 1;
const DETACHED: u32 = 1 << 2;
const ASLEEP: u32 = 1 << 3;

/// A closure of a scope: [`join`](Self::join) waits for it, and gives its value. Returned by
/// [`Scope::spawn_with_handle`](crate::Scope::spawn_with_handle).
///
/// A handle that is dropped lets the closure run. If the closure panics then, the scope panics when it ends.
pub struct ScopedJoinHandle<'scope, T: Send + 'scope, P: Platform = Linux> {
    queue: &'scope Queue<P>,
    /// The scope's first panic.
    panic: &'scope Mutex<Option<Panic>, P>,
    slot: Arc<dyn Joined<T, P> + 'scope>,
}

/// What the handle does with a slot, whatever its closure is.
trait Joined<T, P: Platform>: Send + Sync {
    fn word(&self) -> &P::AtomicU32;

    fn epoch(&self) -> u64;

    /// Runs the closure, unless another side has claimed it.
    fn run_unclaimed(&self);

    /// Takes the result. Only the handle calls it, after it has read `DONE` with acquire; none if it was taken before.
    fn take(&self) -> Option<Result<T, JoinError>>;
}

struct Slot<P: Platform, F, T> {
    word: P::AtomicU32,
    epoch: u64,
    stage: P::Cell<TaskState<F, T>>,
}

// SAFETY: the stage belongs to one side at a time, as the head of the file says, and both what is run and what it returns may be sent.
unsafe impl<P: Platform, F: Send, T: Send> Sync for Slot<P, F, T> {}
// SAFETY: as above.
unsafe impl<P: Platform, F: Send, T: Send> Send for Slot<P, F, T> {}

impl<P: Platform, F: FnOnce() -> T + Send, T: Send> Slot<P, F, T> {
    /// True for one caller.
    fn claim(&self) -> bool {
        // Relaxed: the closure was there before the slot was shared.
        self.word.fetch_or(CLAIMED, Ordering::Relaxed) & CLAIMED == 0
    }

    /// Replaces the stage.
    ///
    /// # Safety
    /// It belongs to the caller.
    unsafe fn replace(&self, next: TaskState<F, T>) -> TaskState<F, T> {
        // SAFETY: as the caller says.
        self.stage.with_mut(|stage| core::mem::replace(unsafe { &mut *stage }, next))
    }

    /// Runs the closure, which the caller has claimed. Returns the panic if the handle was dropped before.
    fn run(&self) -> Option<Panic> {
        // SAFETY: claimed by the caller.
        let TaskState::Program(closure) = (unsafe { self.replace(TaskState::Taken) }) else {
            unreachable!("it is claimed once")
        };
        let result = catch_unwind(AssertUnwindSafe(closure));
        self.end(result.map_err(|payload| JoinError::Panicked(Panic::new(payload))))
    }

    /// Leaves the result of a closure that the caller has claimed; as [`run`](Self::run).
    fn end(&self, result: Result<T, JoinError>) -> Option<Panic> {
        let panicked = matches!(result, Err(JoinError::Panicked(_)));
        // SAFETY: claimed by the caller, and not `DONE`.
        drop(unsafe { self.replace(TaskState::Result(result)) });
        // Release: the result. Acquire: what was done before the handle was dropped.
        let before = self.word.fetch_or(DONE, Ordering::AcqRel);
        if before & ASLEEP != 0 {
            P::wake(&raw const self.word, usize::MAX);
        }
        if before & DETACHED == 0 {
            if panicked {
                count_panicked::<P>();
            }
            return None;
        }
        // SAFETY: the handle was dropped before `DONE`, so the stage stays with the caller.
        match unsafe { self.replace(TaskState::Taken) } {
            TaskState::Result(Err(JoinError::Panicked(panic))) => Some(panic),
            _ => None,
        }
    }
}

impl<P: Platform, F: FnOnce() -> T + Send, T: Send> Joined<T, P> for Slot<P, F, T> {
    fn word(&self) -> &P::AtomicU32 {
        &self.word
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn run_unclaimed(&self) {
        if self.claim() {
            let panic = self.run();
            debug_assert!(panic.is_none(), "the caller has the handle");
        }
    }

    fn take(&self) -> Option<Result<T, JoinError>> {
        // SAFETY: as the trait says: `DONE` was read with acquire, and the handle is there.
        match unsafe { self.replace(TaskState::Taken) } {
            TaskState::Result(result) => Some(result),
            _ => None,
        }
    }
}

/// The scope's side: dropped without having been called if the queue refuses it.
struct Shell<P: Platform, F: FnOnce() -> T + Send, T: Send>(Arc<Slot<P, F, T>>);

impl<P: Platform, F: FnOnce() -> T + Send, T: Send> Shell<P, F, T> {
    fn run(&self) {
        if self.0.claim() {
            if let Some(panic) = self.0.run() {
                // The scope contains it, counts it and keeps it.
                resume_unwind(panic.into_payload());
            }
        }
    }
}

impl<P: Platform, F: FnOnce() -> T + Send, T: Send> Drop for Shell<P, F, T> {
    fn drop(&mut self) {
        if self.0.claim() {
            self.0.end(Err(JoinError::Refused));
        }
    }
}

/// The handle of a closure, and what the scope runs in its place.
pub(super) fn share<'scope, P, F, T>(
    queue: &'scope Queue<P>,
    panic: &'scope Mutex<Option<Panic>, P>,
    closure: F,
) -> (ScopedJoinHandle<'scope, T, P>, impl FnOnce() + Send + use<'scope, P, F, T>)
where
    P: Platform,
    F: FnOnce() -> T + Send + 'scope,
    T: Send + 'scope,
{
    let stage = P::Cell::new(TaskState::Program(closure));
    let slot = Arc::new(Slot { word: P::AtomicU32::new(0), epoch: P::fork_epoch(), stage });
    let shell = Shell(Arc::clone(&slot));
    let handle = ScopedJoinHandle { queue, panic, slot };
    (handle, move || shell.run())
}

impl<T: Send, P: Platform> ScopedJoinHandle<'_, T, P> {
    fn has_ended(&self) -> bool {
        // Acquire: pairs with the release in `Slot::end`.
        self.slot.word().load(Ordering::Acquire) & DONE != 0
    }

    /// Returns whether the closure has ended, so that [`join`](Self::join) does not wait.
    pub fn is_finished(&self) -> bool {
        self.has_ended()
    }

    /// Waits until the closure has ended, and returns its value. What it wrote is visible.
    ///
    /// Within an item of the same queue, the caller runs the closure itself if no worker has begun it. Elsewhere, and if one has, another
    /// worker runs in the caller's place meanwhile.
    ///
    /// # Errors
    /// * [`Panicked`](JoinError::Panicked): the closure panicked. The scope does not panic for that.
    /// * [`Refused`](JoinError::Refused): the queue has refused the closure. The scope panics when it ends.
    /// * [`Cancelled`](JoinError::Cancelled): in the child of a fork, for a closure that the parent runs.
    pub fn join(self) -> Result<T, JoinError> {
        if !self.has_ended() {
            if self.slot.epoch() != P::fork_epoch() {
                return Err(JoinError::Cancelled);
            }
            if serves(self.queue) {
                self.slot.run_unclaimed();
            }
            if !self.has_ended() {
                blocking::<P, _>(|| wait::<P>(self.slot.word()));
            }
        }
        self.slot.take().expect("only `join` takes it")
    }
}

/// Sleeps until the result is there.
fn wait<P: Platform>(word: &P::AtomicU32) {
    loop {
        // Acquire: pairs with the release in `Slot::end`.
        let before = word.fetch_or(ASLEEP, Ordering::Acquire);
        if before & DONE != 0 {
            return;
        }
        P::wait_for_work(word, before | ASLEEP, None);
    }
}

/// The handle is dropped. Returns the panic of a closure that has ended before.
fn detach<T, P: Platform>(slot: &(impl Joined<T, P> + ?Sized)) -> Option<Panic> {
    // Release: what was done through the handle. Acquire: the result.
    let before = slot.word().fetch_or(DETACHED, Ordering::AcqRel);
    match (before & DONE != 0).then(|| slot.take()).flatten() {
        Some(Err(JoinError::Panicked(panic))) => Some(panic),
        _ => None,
    }
}

/// Stores a panic if it is the first; otherwise it is given back.
pub(super) fn set_first<P: Platform>(
    place: &Mutex<Option<Panic>, P>,
    panic: Panic,
) -> Option<Panic> {
    let mut first = place.lock();
    if first.is_some() {
        return Some(panic);
    }
    *first = Some(panic);
    None
}

/// As [`set_first`]; another one than the first is dropped.
fn keep_first<P: Platform>(place: &Mutex<Option<Panic>, P>, panic: Panic) {
    let spare = set_first(place, panic);
    contain(|| drop(spare));
}

impl<T: Send, P: Platform> Drop for ScopedJoinHandle<'_, T, P> {
    fn drop(&mut self) {
        let Some(panic) = detach(&*self.slot) else { return };
        // In the child of a fork, the scope's lock may be held by a thread that is not there.
        if self.slot.epoch() == P::fork_epoch() {
            keep_first(self.panic, panic);
        }
    }
}

impl<T: Send, P: Platform> core::fmt::Debug for ScopedJoinHandle<'_, T, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ScopedJoinHandle").field("finished", &self.has_ended()).finish()
    }
}

#[cfg(test)]
mod tests;
