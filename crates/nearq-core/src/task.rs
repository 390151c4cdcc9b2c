//! A closure that runs once, and the handle that waits for its result.
//!
//! # The state word
//! A task is born with `PENDING` (`item`), and has `RUNNING` from its start until it has ended; nobody else can queue it.
//! Besides `PENDING` and the handle's reference, the word has:
//!
//! | bit | name | meaning | who changes it |
//! |---|---|---|---|
//! | 3 | `DONE` | the result is there | the worker sets it |
//! | 4 | `ASLEEP` | a thread sleeps on `Item::join`, until that is not zero | the joiner sets it |
//! | 5 | `POLLED` | a waker is there | the joiner sets it |
//! | 6 | `CHANGING` | the joiner writes its waker; the worker leaves it alone | the joiner sets and clears it |
//!
//! * Closure and result share their place: the worker owns it until `DONE`, the handle after. `DONE` is written with
//!   release and read with acquire.
//! * The worker ends with one compare-exchange where nobody waits: `DONE` set, `RUNNING` cleared. Else it sets `DONE`, wakes
//!   who waits while `RUNNING` keeps the task alive, and clears `RUNNING` last.
//! * The waker's place belongs to the joiner in `CHANGING`, and to the worker from `POLLED | DONE` on. Each changes the word
//!   before it touches the place, so the later one sees the earlier one.
//! * The memory is one allocation, freed by who ends the last of the two: `PENDING` or `RUNNING`, and the handle's reference.

use core::future::Future;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll, Waker};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nearq_platform::{Atomic, AtomicInt, Linux, Ordering, Platform, PlatformCell};

use crate::context::blocking;
use crate::error::Error;
use crate::item::{Executed, Item, ItemTable, PENDING, REFERENCE, RUNNING, Started};

const DONE: u64 = 1 << 3;
const ASLEEP: u64 = 1 << 4;
const POLLED: u64 = 1 << 5;
const CHANGING: u64 = 1 << 6;

/// What a closure that panicked left behind.
pub struct Panic(Box<dyn Any + Send>);

impl Panic {
    pub(crate) fn new(payload: Box<dyn Any + Send>) -> Self {
        Panic(payload)
    }

    /// The value that the closure panicked with, for `std::panic::resume_unwind`.
    pub fn into_payload(self) -> Box<dyn Any + Send> {
        self.0
    }

    /// The message, if the value is one.
    pub fn message(&self) -> Option<&str> {
        self.0
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| self.0.downcast_ref::<String>().map(String::as_str))
    }
}

impl core::fmt::Debug for Panic {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Panic").field(&self.message().unwrap_or("..")).finish()
    }
}

impl core::fmt::Display for Panic {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "the closure panicked: {}", self.message().unwrap_or("(not a text)"))
    }
}

impl std::error::Error for Panic {}

enum Stage<F, T> {
    Closure(F),
    Result(Result<T, Panic>),
    Taken,
}

/// What the handle needs of a task whose closure's type it does not know.
#[repr(C)]
struct Head<P: Platform> {
    item: Item<P>,
    waker: P::Cell<Option<Waker>>,
}

#[repr(C)]
struct Task<P: Platform, F, T> {
    head: Head<P>,
    stage: P::Cell<Stage<F, T>>,
}

impl<P: Platform, F: FnOnce() -> T + Send, T: Send> Task<P, F, T> {
    const TABLE: ItemTable<P> =
        ItemTable { execute: Self::execute, free: Self::free, name: core::any::type_name::<F> };

    unsafe fn execute(item: NonNull<Item<P>>) -> Executed {
        // SAFETY: the table belongs to items of this type, whose header comes first (repr C); RUNNING keeps it alive.
        let this = unsafe { item.cast::<Self>().as_ref() };
        let mut panicked = false;
        this.stage.with_mut(|stage| {
            // SAFETY: until DONE the place belongs to the worker that runs the task.
            let stage = unsafe { &mut *stage };
            let Stage::Closure(closure) = core::mem::replace(stage, Stage::Taken) else {
                unreachable!("a task runs once")
            };
            let result = catch_unwind(AssertUnwindSafe(closure)).map_err(Panic);
            panicked = result.is_err();
            *stage = Stage::Result(result);
        });
        if this.head.complete() {
            // SAFETY: nobody else has it any more.
            unsafe { Self::free(item) };
        }
        Executed { panicked, deferred: false }
    }

    unsafe fn free(item: NonNull<Item<P>>) {
        // SAFETY: allocated as a box of this type by `spawn`, and nobody has it any more.
        let task = unsafe { Box::from_raw(item.cast::<Self>().as_ptr()) };
        // A result that nobody took may panic when it is dropped; that must not end a worker.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(task)));
    }

    /// Ends a task that was not queued: the closure is dropped, and the result says why.
    unsafe fn refuse(item: NonNull<Item<P>>, why: &Error) {
        // SAFETY: as in `execute`; the caller has PENDING and has queued the task nowhere.
        let this = unsafe { item.cast::<Self>().as_ref() };
        // As if it ran.
        let started = this.head.item.start();
        debug_assert_eq!(started, Started::Yes, "nobody else has it");
        let closure = this.stage.with_mut(|stage| {
            let refused = Stage::Result(Err(Panic(Box::new(why.to_string()))));
            // SAFETY: until DONE the place belongs to who has RUNNING.
            core::mem::replace(unsafe { &mut *stage }, refused)
        });
        // What the closure captured may panic when it is dropped; the task must be complete all the same.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(closure)));
        if this.head.complete() {
            // SAFETY: nobody else has it any more.
            unsafe { Self::free(item) };
        }
    }

    unsafe fn take(item: NonNull<Item<P>>) -> Result<T, Panic> {
        // SAFETY: as in `run`; called with the table's own type by the handle that was made with it.
        let this = unsafe { item.cast::<Self>().as_ref() };
        this.stage.with_mut(|stage| {
            // SAFETY: after DONE the place belongs to the only handle.
            match core::mem::replace(unsafe { &mut *stage }, Stage::Taken) {
                Stage::Result(result) => result,
                _ => panic!("a JoinHandle was polled after it had given its result"),
            }
        })
    }
}

impl<P: Platform> Head<P> {
    /// The result is there. True if the caller is to free the task; if not, it must not touch it any more.
    #[inline]
    fn complete(&self) -> bool {
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
        self.complete_and_wake()
    }

    #[cold]
    fn complete_and_wake(&self) -> bool {
        // Release: the result. Acquire: the waker.
        let before = self.item.state.fetch_or(DONE, Ordering::AcqRel);
        if before & ASLEEP != 0 {
            self.item.join.store(1, Ordering::Release);
            P::wake(&raw const self.item.join, 1);
        }
        if before & (POLLED | CHANGING) == POLLED {
            // SAFETY: with POLLED and DONE set and CHANGING not, the place belongs to the worker.
            let waker = self.waker.with_mut(|waker| unsafe { (*waker).take() });
            if let Some(waker) = waker {
                // A waker is foreign code; its panic must not end the worker.
                let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
            }
        }
        self.item.state.fetch_and(!RUNNING, Ordering::AcqRel) < REFERENCE
    }
}

/// A task that has been allocated, and the handle to it.
pub(crate) fn new<P: Platform, F, T>(closure: F) -> (NonNull<Item<P>>, JoinHandle<T, P>)
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let task = Box::new(Task {
        head: Head { item: Item::new_pending(&Task::<P, F, T>::TABLE), waker: P::Cell::new(None) },
        stage: P::Cell::new(Stage::<F, T>::Closure(closure)),
    });
    let item: NonNull<Item<P>> = NonNull::from(Box::leak(task)).cast();
    (item, JoinHandle { item, take: Task::<P, F, T>::take, result: core::marker::PhantomData })
}

/// What ends a task that could not be queued.
pub(crate) struct Refuse<P: Platform>(unsafe fn(NonNull<Item<P>>, &Error));

impl<P: Platform> Refuse<P> {
    /// What ends tasks of this closure.
    pub(crate) fn of<F: FnOnce() -> T + Send, T: Send>(_: &F) -> Self {
        Refuse(Task::<P, F, T>::refuse)
    }

    /// Ends the task; its handle says why.
    ///
    /// # Safety
    /// The task was made from that closure, and has not been queued.
    #[cold]
    pub(crate) unsafe fn refuse(self, item: NonNull<Item<P>>, why: &Error) {
        // SAFETY: as the caller promises.
        unsafe { (self.0)(item, why) };
    }
}

/// Waits for a spawned closure: by [`join`](Self::join), or as a `Future`. Dropping it lets the closure go on by itself.
pub struct JoinHandle<T, P: Platform = Linux> {
    item: NonNull<Item<P>>,
    take: unsafe fn(NonNull<Item<P>>) -> Result<T, Panic>,
    result: core::marker::PhantomData<T>,
}

// SAFETY: the handle gives out the result, which is Send; the header is shared by design.
unsafe impl<T: Send, P: Platform> Send for JoinHandle<T, P> {}
// SAFETY: a shared handle only says whether the result is there.
unsafe impl<T: Send, P: Platform> Sync for JoinHandle<T, P> {}

impl<T, P: Platform> Unpin for JoinHandle<T, P> {}

impl<T, P: Platform> JoinHandle<T, P> {
    fn head(&self) -> &Head<P> {
        // SAFETY: the handle keeps the task alive, and a task begins with its head (repr C).
        unsafe { self.item.cast::<Head<P>>().as_ref() }
    }

    fn state(&self) -> &P::AtomicU64 {
        &self.head().item.state
    }

    /// Whether the closure has ended.
    pub fn is_finished(&self) -> bool {
        self.state().load(Ordering::Acquire) & DONE != 0
    }

    /// Waits until the closure has ended, and returns its result. What the closure wrote is visible.
    ///
    /// In a worker, another worker takes this one's place meanwhile.
    ///
    /// # Errors
    /// The closure panicked.
    pub fn join(self) -> Result<T, Panic> {
        if !self.is_finished() {
            blocking::<P, _>(|| self.wait());
        }
        // SAFETY: DONE was read with acquire, and this is the only handle.
        unsafe { (self.take)(self.item) }
    }

    fn wait(&self) {
        // Acquire: the result, where it is there already.
        if self.state().fetch_or(ASLEEP, Ordering::AcqRel) & DONE != 0 {
            return;
        }
        // Acquire: pairs with the release in `complete_and_wake`, which comes after DONE.
        let join = &self.head().item.join;
        while join.load(Ordering::Acquire) == 0 {
            P::wait(join, 0, None);
        }
    }

    /// Leaves a waker; true if the result is there instead.
    fn leave_waker(&self, waker: &Waker) -> bool {
        // Acquire: the result, and the waker of an earlier poll.
        if self.state().fetch_or(CHANGING, Ordering::AcqRel) & DONE != 0 {
            return true;
        }
        self.head().waker.with_mut(|place| {
            // SAFETY: in CHANGING the place belongs to the joiner.
            let place = unsafe { &mut *place };
            if !place.as_ref().is_some_and(|known| known.will_wake(waker)) {
                *place = Some(waker.clone());
            }
        });
        let mut before = self.state().load(Ordering::Relaxed);
        loop {
            if before & DONE != 0 {
                // Acquire: pairs with the release of DONE.
                return self.is_finished();
            }
            // Release: hands the waker to the worker.
            match self.state().compare_exchange_weak(
                before,
                (before & !CHANGING) | POLLED,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return false,
                Err(found) => before = found,
            }
        }
    }
}

impl<T, P: Platform> Future for JoinHandle<T, P> {
    type Output = Result<T, Panic>;

    /// # Panics
    /// If it is polled after it has given its result.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_finished() || self.leave_waker(context.waker()) {
            // SAFETY: DONE was read with acquire, and this is the only handle.
            Poll::Ready(unsafe { (self.take)(self.item) })
        } else {
            Poll::Pending
        }
    }
}

impl<T, P: Platform> Drop for JoinHandle<T, P> {
    #[inline]
    fn drop(&mut self) {
        // Release: what was done through the handle. Acquire: what the worker did, for the free.
        let before = self.state().fetch_sub(REFERENCE, Ordering::AcqRel);
        if before & (PENDING | RUNNING) == 0 {
            let free = self.head().item.table().free;
            // SAFETY: the task has ended, and this was the only handle.
            unsafe { free(self.item) };
        }
    }
}

impl<T, P: Platform> core::fmt::Debug for JoinHandle<T, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish()
    }
}

#[cfg(test)]
mod tests;
