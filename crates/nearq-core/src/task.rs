//! Spawned tasks: a closure that runs once, and what closures and futures (`future`) have in common.
//!
//! # The state word
//! A task is created with `PENDING` (`item`), and has `RUNNING` from its start on. No other thread can queue a closure: it is started once,
//! or cancelled before. In addition to `item`, the word of a task has:
//!
//! | bit | name | meaning | changed by |
//! |---|---|---|---|
//! | 3 | `DONE` | the result is available | the thread that ends the task sets it |
//! | 4 | `ASLEEP` | a thread sleeps on `Item::join`, until that is not zero, or has done so and left | the joiner sets it |
//! | 5 | `POLLED` | a waker is stored | the joiner sets it |
//! | 6 | `CHANGING` | the joiner writes its waker; the thread that ends the task leaves it alone | the joiner sets and clears it |
//! | 7 | `CANCELLED` | the result is, or will be, `JoinError::Cancelled` | the canceller sets it |
//! | 16 | `ASKED` | a closure should end early; nothing but the closure itself reads it | the canceller that came too late sets it |
//!
//! * Closure and result share their place, the state. It belongs to the worker from `RUNNING` on, or to the thread that has taken back the
//!   queueing of a closure (`Item::cancel`); to the handle after `DONE`. `DONE` is written with release and read with acquire.
//! * A closure's start against its cancellation: `Item::cancel` decides, for one canceller. A closure that has neither `PENDING` nor
//!   `RUNNING` nor `DONE` has been cancelled by a thread that is dropping it. That thread sets `CANCELLED` and `DONE` in one step. The node
//!   may still be on a list; the thread that takes it off touches the state only to free it.
//! * If no thread waits, the worker ends with one compare-exchange: `DONE` set, `RUNNING` cleared. Otherwise it sets `DONE`, wakes the
//!   waiter while `RUNNING` keeps the task alive, and clears `RUNNING` last.
//! * The waker's place belongs to the joiner in `CHANGING`, and to the thread that ends the task from `POLLED | DONE` on. Each changes the
//!   word before it touches the place, so the later one sees the earlier one.
//! * In the child of a fork, a task of the parent's that has no result yet will never have one: its word is of another epoch (`item`), and
//!   its handle treats it as cancelled. No thread touches its state: it may be half moved.
//! * The memory is one allocation, freed by the thread that ends the last of these: `PENDING`, `RUNNING`, `STALE`, the references.
//!
//! # The folder
//! Imports `base`, `homes`, `item`, `pool`, `limit` and `queue`. `work`: items that are queued again and again. `join`: waiting for a
//! result; forms a circle with this file, which has the states. `cancel_on_drop`: awaiting a result, without which the task is cancelled;
//! forms a circle with `join`. `future`: futures. `waiting`: waiting for items. The folder owns bits 3 to 8 of the word, and the place of
//! the waker.

pub(crate) mod cancel_on_drop;
pub(crate) mod future;
pub(crate) mod join;
pub(crate) mod waiting;
pub(crate) mod work;

use core::ptr::NonNull;
use core::task::Waker;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform, PlatformCell};

use crate::base::outcome::{JoinError, Panic, contain};
use crate::item::Name;
use crate::item::owned::Pending;
use crate::item::{
    ASKED, ASLEEP, CANCELLED, CHANGING, DONE, Executed, Item, ItemVtable, PENDING, POLLED,
    REFERENCE, RUNNING, is_of_this_process,
};
use crate::task::join::{JoinHandle, Kind};

/// The owner of a task, which must also be notified of its end; it is a part of the task itself.
pub(crate) trait Owner<P: Platform>: Send + 'static {
    /// Whether it must be notified. If not, a task ends in one step.
    const NOTIFIED: bool;

    /// Runs the closure, or a poll of the future.
    #[inline(always)]
    fn run<R>(&self, program: impl FnOnce() -> R) -> R {
        program()
    }

    /// A future is about to be polled.
    fn began(&self);

    /// Whether a future has been polled. May be out of date at once.
    fn has_begun(&self) -> bool;

    /// The closure has ended, or what is left of it or of the future is about to be dropped; the result will be available after this.
    /// Called once, by the thread that ends the task.
    #[inline(always)]
    fn ending(&self) {}

    /// The result is available.
    ///
    /// # Safety
    /// The owner is that of `item`, which is kept alive meanwhile. Called once per task.
    unsafe fn ended(&self, item: NonNull<Item<P>>);
}

/// No owner but the handle.
pub(crate) struct Alone;

impl<P: Platform> Owner<P> for Alone {
    const NOTIFIED: bool = false;

    #[inline]
    fn began(&self) {}

    fn has_begun(&self) -> bool {
        false
    }

    #[inline]
    unsafe fn ended(&self, _: NonNull<Item<P>>) {}
}

pub(crate) enum TaskState<F, T> {
    /// The closure, or the future.
    Program(F),
    Result(Result<T, JoinError>),
    Taken,
}

/// The part of a task that its handle uses without knowing the program's type.
#[repr(C)]
pub(crate) struct Head<P: Platform> {
    pub(crate) item: Item<P>,
    pub(crate) waker: P::Cell<Option<Waker>>,
}

/// A task; the header comes first, then the owner, so that code that knows only these finds them.
#[repr(C)]
pub(crate) struct Task<P: Platform, O, F, T> {
    pub(crate) head: Head<P>,
    pub(crate) owner: O,
    pub(crate) state: P::Cell<TaskState<F, T>>,
}

impl<P: Platform, O, F, T> Task<P, O, F, T> {
    pub(crate) fn new(table: &'static ItemVtable<P>, owner: O, program: F) -> Self {
        Task {
            head: Head { item: Item::new_pending(table), waker: P::Cell::new(None) },
            owner,
            state: P::Cell::new(TaskState::Program(program)),
        }
    }

    /// The program of a task that never began.
    pub(crate) fn into_program(self) -> F {
        self.state.with_mut(|state| {
            // SAFETY: the task is owned, so no other thread has it.
            match core::mem::replace(unsafe { &mut *state }, TaskState::Taken) {
                TaskState::Program(program) => program,
                _ => unreachable!("it never began"),
            }
        })
    }

    /// Takes the result.
    ///
    /// # Safety
    /// The item is the header of a task of this type that is alive; its `DONE` was read with acquire, and the caller has the
    /// only handle.
    ///
    /// # Panics
    /// If it has already been taken.
    pub(crate) unsafe fn take(item: NonNull<Item<P>>) -> Result<T, JoinError> {
        // SAFETY: the header comes first (repr C), and the caller says that it is a task of this type.
        let this = unsafe { item.cast::<Self>().as_ref() };
        this.state.with_mut(|state| {
            // SAFETY: after DONE the place belongs to the only handle.
            match core::mem::replace(unsafe { &mut *state }, TaskState::Taken) {
                TaskState::Result(result) => result,
                _ => panic!("a JoinHandle was polled after it had given its result"),
            }
        })
    }
}

impl<P: Platform, O: Owner<P>, F: FnOnce() -> T + Send, T: Send + 'static> Task<P, O, F, T> {
    const TABLE: ItemVtable<P> = ItemVtable {
        is_optional: crate::item::never_optional,
        execute: Self::execute,
        free: Self::free,
        parts: None,
        refuse: Self::refuse,
        name: Name::OfType(core::any::type_name::<F>),
    };
    const KIND: Kind<T, P> = Kind { take: Self::take, cancel: Self::cancel, abandon: Self::cancel };

    unsafe fn execute(item: NonNull<Item<P>>) -> Executed {
        // SAFETY: the table belongs to items of this type, whose header comes first (repr C); RUNNING keeps it alive.
        let this = unsafe { item.cast::<Self>().as_ref() };
        let mut panicked = false;
        this.state.with_mut(|state| {
            // SAFETY: until DONE the place belongs to the worker that runs the task.
            let state = unsafe { &mut *state };
            let TaskState::Program(closure) = core::mem::replace(state, TaskState::Taken) else {
                unreachable!("a task runs once")
            };
            let result = catch_unwind(AssertUnwindSafe(|| this.owner.run(closure)));
            panicked = result.is_err();
            let result = result.map_err(|payload| JoinError::Panicked(Panic::new(payload)));
            *state = TaskState::Result(result);
        });
        this.owner.ending();
        // SAFETY: RUNNING is ours, and header and owner are those of this very task.
        if unsafe { this.head.complete(item, &this.owner) } {
            // SAFETY: nobody else has it any more.
            unsafe { Self::free(item) };
        }
        Executed { panicked, deferred: false }
    }

    unsafe fn free(item: NonNull<Item<P>>) {
        // SAFETY: allocated as a box of this type by `new`, and nothing holds it any more.
        let task = unsafe { Box::from_raw(item.cast::<Self>().as_ptr()) };
        // A result that was never taken may panic when it is dropped.
        contain(|| drop(task));
    }

    /// Drops the closure of a task that was not queued.
    ///
    /// # Safety
    /// As [`cancel`](Self::cancel); the task is on no list, and never will be.
    unsafe fn refuse(item: NonNull<Item<P>>) {
        // SAFETY: as the caller says.
        let this = unsafe { item.cast::<Self>().as_ref() };
        // SAFETY: as the caller says.
        unsafe { this.end_unstarted(item, JoinError::Refused, 0) };
        // Acquire: what was done through the handle, which still exists.
        this.head.item.state.fetch_and(!PENDING, Ordering::AcqRel);
    }

    /// The closure will not start: drops it, and records why, with `bit` for the handle.
    ///
    /// # Safety
    /// The caller has ensured that it will not start, and has a handle; `item` is the task's header.
    unsafe fn end_unstarted(&self, item: NonNull<Item<P>>, why: JoinError, bit: u64) {
        // First, because what is dropped may spawn, and wait for what the owner gives back.
        self.owner.ending();
        self.state.with_mut(|state| {
            // SAFETY: no thread starts the closure, so the place belongs to us until DONE.
            let closure = core::mem::replace(unsafe { &mut *state }, TaskState::Result(Err(why)));
            // Dropping what it captured may panic.
            contain(|| drop(closure));
        });
        // Release: the result. Acquire: the waker.
        let before = self.head.item.state.fetch_or(DONE | bit, Ordering::AcqRel);
        self.head.notify(before);
        // SAFETY: the owner of this very task, which the caller's handle keeps alive; no other thread ends a closure that does not start.
        unsafe { self.owner.ended(item) };
    }

    /// Drops the closure if it has not started. True if it is cancelled, by this call or by an earlier one.
    ///
    /// # Safety
    /// The item is the header of a task of this type, and the caller has a handle.
    unsafe fn cancel(item: NonNull<Item<P>>) -> bool {
        // SAFETY: as the caller says.
        let this = unsafe { item.cast::<Self>().as_ref() };
        let state = &this.head.item.state;
        // Relaxed: changes in the thread that forked only.
        if let Some(cancelled) = left_behind::<P>(state.load(Ordering::Relaxed)) {
            return cancelled;
        }
        if !this.head.item.cancel() {
            // Relaxed: nothing depends on it, and the closure sees it at some time.
            let word = state.fetch_or(ASKED, Ordering::Relaxed);
            return word & CANCELLED != 0 || word & (PENDING | RUNNING | DONE) == 0;
        }
        // SAFETY: as the caller says; the queueing was taken back.
        unsafe { this.end_unstarted(item, JoinError::Cancelled, CANCELLED) };
        true
    }
}

/// Whether a task of the parent's counts as cancelled in the child of a fork; nothing if it is a task of this process.
pub(crate) fn left_behind<P: Platform>(word: u64) -> Option<bool> {
    (!is_of_this_process::<P>(word)).then_some(word & CANCELLED != 0 || word & DONE == 0)
}

impl<P: Platform> Head<P> {
    /// The result of a closure is available. True if the caller must free the task; if not, it must not touch it any more.
    ///
    /// # Safety
    /// `item` is the closure's header, the owner is its own, and the caller has its `RUNNING`.
    #[inline]
    unsafe fn complete<O: Owner<P>>(&self, item: NonNull<Item<P>>, owner: &O) -> bool {
        if !O::NOTIFIED {
            let state = &self.item.state;
            let mut before = state.load(Ordering::Relaxed);
            while before & (ASLEEP | POLLED | CHANGING) == 0 {
                // Release: the result. Acquire: what was done through the handle, for the free.
                match state.compare_exchange_weak(
                    before,
                    (before & !RUNNING) | DONE,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return before < REFERENCE,
                    Err(found) => before = found,
                }
            }
        }
        // SAFETY: as the caller says.
        unsafe { self.complete_and_notify(item, owner) }
    }

    /// # Safety
    /// As for [`complete`](Self::complete).
    #[cold]
    unsafe fn complete_and_notify<O: Owner<P>>(&self, item: NonNull<Item<P>>, owner: &O) -> bool {
        // Release: the result. Acquire: the waker.
        let before = self.item.state.fetch_or(DONE, Ordering::AcqRel);
        self.notify(before);
        // SAFETY: the owner of this very task, which RUNNING keeps alive; a closure that runs is ended here only.
        unsafe { owner.ended(item) };
        self.item.state.fetch_and(!RUNNING, Ordering::AcqRel) < REFERENCE
    }

    /// Wakes the waiter for the result, by what the word was when the caller set `DONE`. The caller keeps the task alive.
    pub(crate) fn notify(&self, before: u64) {
        if before & ASLEEP != 0 {
            self.item.join.store(1, Ordering::Release);
            P::wake(&raw const self.item.join, 1);
        }
        if before & (POLLED | CHANGING) == POLLED {
            // SAFETY: with POLLED and DONE set and CHANGING not, the place belongs to the thread that set DONE.
            let waker = self.waker.with_mut(|waker| unsafe { (*waker).take() });
            if let Some(waker) = waker {
                // A waker is foreign code; its panic must not end a worker.
                contain(|| waker.wake());
            }
        }
    }
}

/// The queueing and the handle of a task that has just been made.
///
/// # Safety
/// The item was made with `PENDING` and one reference, which nothing else has; the pointer is that of the whole allocation, of the kind's
/// type.
pub(crate) unsafe fn born<P: Platform, T>(
    item: NonNull<Item<P>>,
    kind: &'static Kind<T, P>,
) -> (Pending<P>, JoinHandle<T, P>) {
    // SAFETY: as the caller says.
    unsafe { (Pending::from_raw(Item::expose(item)), JoinHandle::new(item, kind)) }
}

/// Takes the closure out of a task that its queue has refused, and frees the task. The task was made by [`owned`] with these types.
pub(crate) fn take_back<P: Platform, O, F, T>(item: Pending<P>, handle: JoinHandle<T, P>) -> F
where
    O: Owner<P>,
    F: FnOnce() -> T + Send,
    T: Send + 'static,
{
    // The handle's reference and the queueing are given up together, with the allocation.
    core::mem::forget(handle);
    let task = item.into_raw().cast::<Task<P, O, F, T>>();
    // SAFETY: allocated as a box of this type by `new`; nothing but the queueing and the handle ever referred to it.
    unsafe { Box::from_raw(task.as_ptr()) }.into_program()
}

/// A closure that has been allocated, and the handle to it.
pub(crate) fn new<P: Platform, F, T>(closure: F) -> (Pending<P>, JoinHandle<T, P>)
where
    F: FnOnce() -> T + Send,
    T: Send + 'static,
{
    owned(Alone, closure)
}

/// As [`new`], with an owner.
pub(crate) fn owned<P: Platform, O, F, T>(owner: O, closure: F) -> (Pending<P>, JoinHandle<T, P>)
where
    O: Owner<P>,
    F: FnOnce() -> T + Send,
    T: Send + 'static,
{
    let task = Box::new(Task::<P, O, F, T>::new(&Task::<P, O, F, T>::TABLE, owner, closure));
    // The pointer to the whole allocation, so that what is behind the header may be reached through it.
    let item: NonNull<Item<P>> = NonNull::from(Box::leak(task)).cast();
    // SAFETY: made with PENDING and one reference, which are these two.
    unsafe { born(item, &Task::<P, O, F, T>::KIND) }
}

#[cfg(test)]
pub(crate) mod tests;
