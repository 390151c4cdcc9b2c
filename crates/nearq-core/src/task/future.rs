//! A future that the workers of a queue poll: [`Workqueue::spawn_future`](crate::Workqueue::spawn_future).
//!
//! It is an item that is queued again each time it is woken, so `item` has most of the protocol:
//! * A wake claims `PENDING`, and sends the item where the waking thread is. A wake of an item that is already queued joins that queueing;
//!   what the waking thread wrote is visible to the next poll. A wake while it is polled makes it run once more, by the worker that polls
//!   it (`DEFERRED`), at the end of the list. So it is never polled twice at once, and no wake is lost.
//! * A waker is a reference to the item: no wake and no clone allocates. A future that can no longer be woken, joined or cancelled is freed
//!   by the thread that drops the last reference.
//! * While it waits for a wake it is on no list, and is not counted anywhere.
//!
//! # Its end
//! The state belongs to the thread that has `RUNNING`. That thread drops the future in place (it is pinned there), writes the result, sets
//! `DONE`, notifies the joiner and the owner, and finishes. A wake after that does nothing; one that came in between has queued the item
//! once more: that execution finds `DONE`, and is only counted.
//!
//! # Cancelling
//! `CANCELLED` is set first, then the future is woken: the thread that runs it next finds the mark and drops it instead of polling it.
//! `DONE` is set by compare-exchange from a word whose `CANCELLED` has been taken into account: so if `cancel` has returned true, the
//! result is `Cancelled`, even if the poll that ran meanwhile had another one.
//!
//! # The end of its queue
//! A task does not keep its queue alive, and a future that waits for a wake does not delay the queue's drop. The task has a `Weak`.
//! * A wake from within an item of the same queue needs no more: that item is counted, so the queue exists.
//! * Any other wake must enter through the queue's rundown reference (`rundown_ref`), which the drop closes before it drains.
//! * After a shutdown of the runtime the queue, like the rundown reference, refuses every thread that is not one of the runtime's workers.
//! * A thread that the rundown reference or the queue refuses cannot count the item on the queue. It has `PENDING`, sets `CANCELLED`, and
//!   publishes; the item's pwq stays null, as it has been since the last start. If no thread runs the item, the waking thread ends it
//!   itself. If a thread does, `DEFERRED` tells that thread, which sees the pwq, takes the queueing back, and ends the item on the spot.
//!   What the future drops then may end other futures in the same way: `ending` ensures that a chain of them needs no deep stack.
//! * A thread that ends an item outside of the queue may find, when it finishes, that an item of the draining queue has woken it properly.
//!   Then it pushes the item, as a worker does; it has kept the queue alive meanwhile.
//!
//! # In the child of a fork
//! A future of the parent's is not polled there: a wake does nothing, and its handle treats it as cancelled (`task`). A future whose poll
//! forked goes on in the child too; a wake that came before the fork is the parent's.
//!
//! # What is not used
//! * A future is never cancelled, disabled or waited for by its item, so the word's other bits are not in use.

use core::future::Future;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform, PlatformCell};

use crate::base::outcome::{JoinError, Panic, contain};
use crate::item::Name;
use crate::item::owned::{ItemRef, Pending, Running};
use crate::item::{
    CANCELLED, DEFERRED, DONE, Epoch, Executed, Finished, Item, ItemVtable, PENDING,
    is_of_this_process,
};
use crate::pool::context::polling;
use crate::queue::Queue;
use crate::task::join::{JoinHandle, Kind};
use crate::task::{Owner, Task, TaskState, left_behind};

/// The place to which a future is sent when it is woken.
pub(crate) trait Route<P: Platform>: Send + 'static {
    /// What keeps the place alive after it has refused a queueing.
    type Kept: Send + 'static;

    /// Sends a queueing, counted. If the place is closed, it gives the queueing back.
    fn send(&self, item: Pending<P>) -> Result<(), (Pending<P>, Self::Kept)>;

    /// Ends an execution outside of the place during which the item was sent there.
    ///
    /// The caller keeps the place alive, and the item is counted there.
    fn push(kept: Option<&Self::Kept>, item: Running<P>);
}

impl<P: Platform> Route<P> for Weak<Queue<P>> {
    type Kept = Option<Arc<Queue<P>>>;

    fn send(&self, item: Pending<P>) -> Result<(), (Pending<P>, Self::Kept)> {
        if crate::queue::serves::<P>(self.as_ptr()) {
            // SAFETY: the caller is within an item of the queue, which is not freed before that item has been counted.
            let sent = unsafe { &*self.as_ptr() }.send_own(item, P::current_cpu());
            debug_assert!(sent.is_ok(), "what its own items wake is not refused");
            return Ok(());
        }
        let Some(queue) = self.upgrade() else { return Err((item, None)) };
        let mut item = Some(item);
        queue.pass(|| {
            item = item.take().and_then(|item| queue.send_own(item, P::current_cpu()).err());
        });
        item.map_or(Ok(()), |item| Err((item, Some(queue))))
    }

    fn push(_: Option<&Self::Kept>, item: Running<P>) {
        crate::limit::pool_workqueue::push_deferred(item, None);
    }
}

/// A task whose program is a future; the task comes first.
#[repr(C)]
struct Spawned<P: Platform, O, R, F, T> {
    task: Task<P, O, F, T>,
    route: R,
}

impl<P, O, R, F, T> Spawned<P, O, R, F, T>
where
    P: Platform,
    O: Owner<P>,
    R: Route<P>,
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    const TABLE: ItemVtable<P> = ItemVtable {
        is_optional: crate::item::never_optional,
        execute: Self::execute,
        free: Self::free,
        parts: None,
        refuse: Self::refuse,
        name: Name::OfType(core::any::type_name::<F>),
    };
    const KIND: Kind<T, P> =
        Kind { take: Task::<P, O, F, T>::take, cancel: Self::cancel, abandon: Self::abandon };
    const WAKER: RawWakerVTable = RawWakerVTable::new(
        Self::waker_clone,
        Self::waker_wake,
        Self::waker_wake_by_ref,
        Self::waker_drop,
    );

    /// # Safety
    /// The item is the header of a `Spawned` of this type that is alive for `'a`.
    unsafe fn of<'a>(item: NonNull<Item<P>>) -> &'a Self {
        // SAFETY: the header comes first (repr C, twice).
        unsafe { item.cast::<Self>().as_ref() }
    }

    fn item(&self) -> &Item<P> {
        &self.task.head.item
    }

    // ---- running -----------------------------------------------------------------------------------------

    unsafe fn execute(item: NonNull<Item<P>>) -> Executed {
        // SAFETY: the table belongs to items of this type; RUNNING keeps it alive.
        let this = unsafe { Self::of(item) };
        // SAFETY: RUNNING is ours.
        let panicked = unsafe { this.run(item) };
        // SAFETY: RUNNING is still ours: `run` does not give it back.
        Executed { panicked, deferred: unsafe { Self::finish(item) } }
    }

    /// Polls the future, or drops it if it is cancelled. True if it panicked.
    ///
    /// # Safety
    /// The caller has `RUNNING`; `item` is the header, with access to what is behind it.
    unsafe fn run(&self, item: NonNull<Item<P>>) -> bool {
        // Relaxed: `start` was a read-modify-write of the same word, and acquired.
        let state = self.item().state.load(Ordering::Relaxed);
        if state & DONE != 0 {
            // The future was woken at the moment at which it ended.
            return false;
        }
        if state & CANCELLED != 0 {
            // SAFETY: as the caller says.
            return unsafe { self.end(item, Err(JoinError::Cancelled)) };
        }
        self.task.owner.began();
        // RUNNING keeps the item alive, so this waker is not counted, and not dropped.
        let raw = RawWaker::new(item.as_ptr().cast_const().cast(), &Self::WAKER);
        // SAFETY: the table's functions fulfil the contract of `RawWaker`.
        let waker = ManuallyDrop::new(unsafe { Waker::from_raw(raw) });
        let polled = self.task.state.with_mut(|state| {
            // SAFETY: until DONE the state belongs to the thread that has RUNNING.
            let TaskState::Program(future) = (unsafe { &mut *state }) else {
                unreachable!("not DONE, so the future is there")
            };
            // SAFETY: the future never leaves its place in the allocation before it is dropped.
            let future = unsafe { Pin::new_unchecked(future) };
            let poll = || self.task.owner.run(|| future.poll(&mut Context::from_waker(&waker)));
            polling::<P, _>(|| catch_unwind(AssertUnwindSafe(poll)))
        });
        match polled {
            Ok(Poll::Pending) => false,
            // SAFETY: as the caller says.
            Ok(Poll::Ready(value)) => unsafe { self.end(item, Ok(value)) },
            Err(payload) => {
                // SAFETY: as the caller says.
                unsafe { self.end(item, Err(JoinError::Panicked(Panic::new(payload)))) };
                true
            }
        }
    }

    /// Drops the future and leaves the result. True if the drop panicked.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    unsafe fn end(&self, item: NonNull<Item<P>>, result: Result<T, JoinError>) -> bool {
        // First, because what is dropped may spawn, and wait for what the owner gives back.
        self.task.owner.ending();
        let mut panicked = self.replace(TaskState::Result(result));
        let state = &self.item().state;
        let mut heeded = false;
        let mut before = state.load(Ordering::Relaxed);
        loop {
            if before & CANCELLED != 0 && !heeded {
                heeded = true;
                panicked |= self.replace(TaskState::Result(Err(JoinError::Cancelled)));
            }
            // Release: the result. Acquire: the waker.
            match state.compare_exchange_weak(
                before,
                before | DONE,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(found) => before = found,
            }
        }
        self.task.head.notify(before);
        // SAFETY: the owner of this very task, which RUNNING keeps alive; DONE is set once, and only here.
        unsafe { self.task.owner.ended(item) };
        panicked
    }

    /// Replaces the state; the old one is dropped in place. True if that panicked.
    fn replace(&self, next: TaskState<F, T>) -> bool {
        self.task.state.with_mut(|state| {
            // SAFETY: until DONE the state belongs to the thread that has RUNNING; what is there is dropped once, because it is
            // overwritten next, and a panic in between goes no further.
            let panicked = contain(|| unsafe { core::ptr::drop_in_place(state) });
            // SAFETY: the state is still ours: DONE is not set. What was there has been dropped, so nothing is lost by overwriting it.
            unsafe { state.write(next) };
            panicked
        })
    }

    /// Gives `RUNNING` back. True if the caller must push the item, and still has `RUNNING`: it was woken meanwhile, and is counted.
    ///
    /// # Safety
    /// The item is of this type, and the caller has its `RUNNING`.
    unsafe fn finish(item: NonNull<Item<P>>) -> bool {
        loop {
            // SAFETY: RUNNING keeps it alive.
            let this = unsafe { Self::of(item) };
            match this.item().finish() {
                Finished::Done => return false,
                Finished::Free => {
                    // SAFETY: nothing holds it any more.
                    unsafe { Self::free(item) };
                    return false;
                }
                Finished::Deferred => {}
                Finished::Last => unreachable!("a future has no value to be dropped before it"),
            }
            // Acquire: pairs with `publish`; the pwq is that of the deferred queueing.
            this.item().state.load(Ordering::Acquire);
            if !this.item().account().is_null() {
                return true;
            }
            // Woken when its queue is closed, so counted nowhere; it is cancelled. AcqRel: hands PENDING on.
            this.item().state.fetch_and(!(PENDING | DEFERRED), Ordering::AcqRel);
            // SAFETY: RUNNING is still ours.
            unsafe { this.run(item) };
        }
    }

    unsafe fn free(item: NonNull<Item<P>>) {
        // SAFETY: allocated as a box of this type by `owned`, and nothing holds it any more.
        let spawned = unsafe { Box::from_raw(item.cast::<Self>().as_ptr()) };
        // Dropping a future or a result may panic.
        contain(|| drop(spawned));
    }

    // ---- waking ------------------------------------------------------------------------------------------

    /// # Safety
    /// The item is of this type, and the caller has a reference, or is within its poll.
    unsafe fn wake(item: NonNull<Item<P>>) {
        // SAFETY: as the caller says.
        let this = unsafe { Self::of(item) };
        // Relaxed: no poll follows that would have to see anything.
        let word = this.item().state.load(Ordering::Relaxed);
        // In the child of a fork, the parent's futures stay the parent's.
        if word & DONE != 0 || !is_of_this_process::<P>(word) {
            return;
        }
        // SAFETY: as the caller says. It is never cancelled by its item, so its node is its own.
        let claimed = Item::claim(unsafe { ItemRef::new(item) }, Epoch::now::<P>());
        let Some(node) = claimed else { return };
        if let Err((node, kept)) = this.route.send(node) {
            node.add_reference();
            let end = move || {
                // SAFETY: the item is of this type; the reference is given back last.
                unsafe {
                    Self::end_here(node, Some(&kept));
                    Self::give_back(item);
                }
            };
            // SAFETY: the future, its result and a handle of its queue may be dropped anywhere.
            unsafe { crate::base::ending::in_turn::<P>(end) };
        }
    }

    /// Ends a new future that its queue has refused, in the calling thread.
    ///
    /// # Safety
    /// The item is of this type and on no list, and the caller has its `PENDING` and a reference.
    unsafe fn refuse(item: NonNull<Item<P>>) {
        // SAFETY: as the caller says.
        let node = unsafe { Pending::from_raw(item) };
        // No waker exists yet, so no thread but this one ends it.
        let Some(node) = node.publish() else { return };
        let item = node.start_here().into_raw();
        // SAFETY: the caller says that it is of this type; RUNNING is ours since `start_here`.
        unsafe { Self::of(item).end(item, Err(JoinError::Refused)) };
        // SAFETY: it is of this type, and RUNNING is still ours: `end` does not give it back.
        let woken = unsafe { Self::finish(item) };
        debug_assert!(!woken, "nothing can wake a future that was never polled");
    }

    /// Drops the future in the calling thread, or leaves that to the thread that polls it: it is cancelled.
    ///
    /// # Safety
    /// The item is of this type; the caller has a reference, and keeps its queue alive, if that exists.
    unsafe fn end_here(node: Pending<P>, kept: Option<&R::Kept>) {
        // Release: the thread that ends it does so because of this.
        node.state.fetch_or(CANCELLED, Ordering::AcqRel);
        let Some(node) = node.publish() else { return };
        let item = node.start_here().into_raw();
        // SAFETY: the caller says that it is of this type; RUNNING is ours since `start`.
        unsafe { Self::of(item).run(item) };
        // SAFETY: it is of this type, and RUNNING is still ours: `run` does not give it back.
        if unsafe { Self::finish(item) } {
            // SAFETY: `finish` has left RUNNING to us, and has read the account; the caller keeps the queue alive.
            R::push(kept, unsafe { Running::from_raw(item) });
        }
    }

    /// Marks it as cancelled and wakes it, unless it has ended. True if it is cancelled, by this call or by an earlier one.
    ///
    /// # Safety
    /// The item is of this type, and the caller has a handle.
    unsafe fn cancel(item: NonNull<Item<P>>) -> bool {
        // SAFETY: as the caller says.
        let state = &unsafe { Self::of(item) }.item().state;
        let mut before = state.load(Ordering::Relaxed);
        if let Some(cancelled) = left_behind::<P>(before) {
            return cancelled;
        }
        loop {
            if before & (DONE | CANCELLED) != 0 {
                return before & CANCELLED != 0;
            }
            match state.compare_exchange_weak(
                before,
                before | CANCELLED,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(found) => before = found,
            }
        }
        // SAFETY: a handle is a reference.
        unsafe { Self::wake(item) };
        true
    }

    /// Cancels it if it has not been polled. A future whose first poll begins at this very moment may be cancelled, too.
    ///
    /// # Safety
    /// As [`cancel`](Self::cancel).
    unsafe fn abandon(item: NonNull<Item<P>>) -> bool {
        // SAFETY: as the caller says.
        let begun = unsafe { Self::of(item) }.task.owner.has_begun();
        // SAFETY: as the caller says.
        !begun && unsafe { Self::cancel(item) }
    }

    // ---- the waker's table: the data is the item, and each waker a reference -------------------------------

    /// # Safety
    /// The data is that of one of our wakers.
    unsafe fn item_of(data: *const ()) -> NonNull<Item<P>> {
        // SAFETY: as the caller says: it is the item's address.
        unsafe { NonNull::new_unchecked(data.cast_mut().cast()) }
    }

    unsafe fn waker_clone(data: *const ()) -> RawWaker {
        // SAFETY: the waker that is cloned keeps the item alive.
        unsafe { Self::item_of(data).as_ref() }.add_reference();
        RawWaker::new(data, &Self::WAKER)
    }

    unsafe fn waker_wake(data: *const ()) {
        // SAFETY: the waker is a reference, which is given back last.
        unsafe {
            Self::wake(Self::item_of(data));
            Self::waker_drop(data);
        }
    }

    unsafe fn waker_wake_by_ref(data: *const ()) {
        // SAFETY: the waker is a reference, or that of the poll that calls this.
        unsafe { Self::wake(Self::item_of(data)) };
    }

    unsafe fn waker_drop(data: *const ()) {
        // SAFETY: the waker is a reference.
        unsafe { Self::give_back(Self::item_of(data)) };
    }

    /// # Safety
    /// The caller has a reference, and does not touch the item afterwards.
    unsafe fn give_back(item: NonNull<Item<P>>) {
        // SAFETY: as the caller says.
        if unsafe { item.as_ref() }.drop_reference() {
            // SAFETY: neither queued nor running, and this was the last reference.
            let end = move || unsafe { Self::free(item) };
            // SAFETY: the future and its result may be dropped anywhere.
            unsafe { crate::base::ending::in_turn::<P>(end) };
        }
    }
}

/// A future that has been allocated, and the handle to it.
pub(crate) fn owned<P, O, R, F, T>(owner: O, route: R, future: F) -> (Pending<P>, JoinHandle<T, P>)
where
    P: Platform,
    O: Owner<P>,
    R: Route<P>,
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let task = Task::<P, O, F, T>::new(&Spawned::<P, O, R, F, T>::TABLE, owner, future);
    let spawned = Box::new(Spawned { task, route });
    // The pointer to the whole allocation, so that what is behind the header may be reached through it.
    let item: NonNull<Item<P>> = NonNull::from(Box::leak(spawned)).cast();
    // SAFETY: made with PENDING and one reference, which are these two.
    unsafe { crate::task::born(item, &Spawned::<P, O, R, F, T>::KIND) }
}

/// Takes the future out of a task that its queue has refused, and frees the task. The task was made by [`owned`] with these types.
pub(crate) fn take_back<P, O, F, T>(item: Pending<P>, handle: JoinHandle<T, P>) -> F
where
    P: Platform,
    O: Owner<P>,
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    type Made<P, O, F, T> = Spawned<P, O, Weak<Queue<P>>, F, T>;
    // The handle's reference and the queueing are given up together, with the allocation.
    core::mem::forget(handle);
    // SAFETY: allocated as a box of this type by `owned`; no waker was made, and nothing but the queueing and the handle ever referred to
    // it.
    let spawned = unsafe { Box::from_raw(item.into_raw().cast::<Made<P, O, F, T>>().as_ptr()) };
    spawned.task.into_program()
}

#[cfg(test)]
mod tests;
