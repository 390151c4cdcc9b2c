//! The header of everything that can be queued, and the state word that says who owns it.
//!
//! # The state word
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | 0 | `PENDING` | the item is queued, or is being queued. Whoever set it owns `next`, `link` and `cpu` |
//! | 1 | `RUNNING` | a worker executes the item's function |
//! | 2 | `DEFERRED` | queued while running: the worker that runs it pushes it when the function returns |
//! | 3..8 | | of items that run once: who waits for the result (`task`) |
//! | 8..32 | | reserved |
//! | 32..64 | references | handles that users hold |
//!
//! | `PENDING` | `RUNNING` | `DEFERRED` | who holds the item |
//! |---|---|---|---|
//! | 0 | 0 | 0 | idle: nobody; the last handle's drop frees it |
//! | 1 | 0 | 0 | a list, or the thread that is pushing it |
//! | 0 | 1 | 0 | one worker |
//! | 1 | 1 | 0 | one worker, and a thread that is in the middle of `queue` |
//! | 1 | 1 | 1 | one worker, which will push it |
//! | 1 | 0 | 1 | for a moment: the worker that has just cleared `RUNNING`, or the queuer that came too late |
//!
//! # Steps
//! * **claim** (queuer): sets `PENDING`. If it was set, somebody else's queueing stands, and this one is that one.
//! * **publish** (queuer, after writing `link`): where the item is not running, the queuer pushes it. Where it is,
//!   the queuer sets `DEFERRED`; of the two read-modify-writes "set `DEFERRED`" and "clear `RUNNING`", the later one
//!   sees the earlier one, and its author pushes.
//! * **start** (worker that took it off a list): `PENDING` to `RUNNING` in one step.
//! * **finish** (that worker): clears `RUNNING`.
//!
//! # What follows
//! * *One execution at a time, anywhere*: an item is pushed only by the owner of `PENDING`, never while `RUNNING` is
//!   set, and `RUNNING` is set only by taking it off a list. So the function may be `FnMut`.
//! * *Nothing is lost between "pending" and "running"*: claim is a read-modify-write even where it fails. Either it
//!   comes before `start` in the word's modification order, then what the caller wrote before it is visible to the
//!   execution (release here, acquire in `start`, and the read-modify-writes between them keep the chain), or it
//!   comes after, then it succeeds and causes another execution.
//! * *The item may drop its last handle or requeue itself while it runs*: `PENDING` and `RUNNING` keep it alive as a
//!   handle does; who ends the last of the three frees it.
//!
//! An item that runs once (`task`) is born with `PENDING`, which stays until it has ended: nobody else can claim it.
//! It uses further bits of the word for who waits for its result; `task` describes them.

use core::ptr::NonNull;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform, PlatformCell};

use crate::link::Link;

pub(crate) const PENDING: u64 = 1;
const RUNNING: u64 = 1 << 1;
const DEFERRED: u64 = 1 << 2;
pub(crate) const REFERENCE: u64 = 1 << 32;

/// What an item's function and memory are; one static table per type of item.
pub(crate) struct ItemTable<P: Platform> {
    /// Starts the item, runs its function, finishes it, and frees it if nobody has it any more. The caller has the
    /// item's `PENDING`, and must not touch the item afterwards unless it is to push it.
    pub(crate) execute: unsafe fn(NonNull<Item<P>>) -> Executed,
    /// Frees the item.
    pub(crate) free: unsafe fn(NonNull<Item<P>>),
    /// The function's name, for people.
    pub(crate) name: fn() -> &'static str,
}

/// The header with which every queueable object begins.
///
/// Fields besides `state` and `table` belong to the owner of `PENDING`.
#[repr(C)]
pub(crate) struct Item<P: Platform> {
    pub(crate) state: P::AtomicU64,
    /// The next item of the list that this one is on.
    pub(crate) next: P::AtomicPtr<Item<P>>,
    /// Where it was queued.
    link: P::Cell<*const Link<P>>,
    table: &'static ItemTable<P>,
    /// The CPU that queued it, where the link wants to know.
    cpu: P::Cell<u32>,
    /// Where the thread that waits for the result waits; belongs to `task`.
    pub(crate) join: P::AtomicU32,
}

/// What an execution leaves to its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Executed {
    /// The function panicked; the panic has been dealt with.
    pub(crate) panicked: bool,
    /// The item was queued meanwhile; the worker has its `PENDING` and pushes it to where its link says.
    pub(crate) push: bool,
}

/// What is to be done after an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    /// Nothing: the item is idle, or somebody else has it.
    Done,
    /// It was queued meanwhile: push it to where its link says.
    Push,
    /// Nobody has it any more: free it.
    Free,
}

impl<P: Platform> Item<P> {
    /// An idle item with one handle.
    pub(crate) fn new(table: &'static ItemTable<P>) -> Self {
        Self::with_state(table, REFERENCE)
    }

    /// An item that runs once, with one handle; whoever made it queues it.
    pub(crate) fn new_pending(table: &'static ItemTable<P>) -> Self {
        Self::with_state(table, REFERENCE | PENDING)
    }

    fn with_state(table: &'static ItemTable<P>, state: u64) -> Self {
        Item {
            state: P::AtomicU64::new(state),
            next: P::AtomicPtr::new(core::ptr::null_mut()),
            link: P::Cell::new(core::ptr::null()),
            table,
            cpu: P::Cell::new(0),
            join: P::AtomicU32::new(0),
        }
    }

    /// Takes `PENDING`; false if it is taken.
    #[inline]
    pub(crate) fn claim(&self) -> bool {
        // Release: what the caller wrote is visible to the execution, also where the claim fails.
        // Acquire: pairs with `finish`, so that the fields are ours.
        self.state.fetch_or(PENDING, Ordering::AcqRel) & PENDING == 0
    }

    /// Records where the item goes. The caller owns `PENDING`.
    #[inline]
    pub(crate) fn set_target(&self, link: *const Link<P>, cpu: u32) {
        // SAFETY: the owner of PENDING is the only one who touches these fields, and the item is alive.
        self.link.with_mut(|field| unsafe { *field = link });
        // SAFETY: as above.
        self.cpu.with_mut(|field| unsafe { *field = cpu });
    }

    /// The link on which the item is. The caller owns `PENDING`.
    #[inline]
    pub(crate) fn link(&self) -> *const Link<P> {
        // SAFETY: the owner of PENDING is the only one who touches this field, and the item is alive.
        self.link.with(|field| unsafe { *field })
    }

    /// The CPU that queued it. The caller owns `PENDING`.
    #[inline]
    pub(crate) fn cpu(&self) -> u32 {
        // SAFETY: the owner of PENDING is the only one who touches this field, and the item is alive.
        self.cpu.with(|field| unsafe { *field })
    }

    /// True: the caller pushes the item. False: the worker that runs it will.
    #[inline]
    pub(crate) fn publish(&self) -> bool {
        // Acquire: pairs with the release in `finish`; the next execution sees what the last one did.
        if self.state.load(Ordering::Acquire) & RUNNING == 0 {
            return true;
        }
        self.publish_running()
    }

    #[cold]
    fn publish_running(&self) -> bool {
        // Release: hands `link` to the worker. Acquire: as in `publish`.
        if self.state.fetch_or(DEFERRED, Ordering::AcqRel) & RUNNING != 0 {
            return false;
        }
        self.state.fetch_and(!DEFERRED, Ordering::AcqRel);
        true
    }

    /// From `PENDING` to `RUNNING`, in one step. The caller took the item off a list.
    #[inline]
    pub(crate) fn start(&self) {
        // Acquire: pairs with every `claim` before it. Release: keeps the fields' reads above it.
        let before = self.state.fetch_add(RUNNING - PENDING, Ordering::AcqRel);
        debug_assert_eq!(before & (PENDING | RUNNING), PENDING);
    }

    /// The function has returned. The item must not be touched afterwards, unless the answer says so.
    #[inline]
    pub(crate) fn finish(&self) -> Finished {
        // Release: the next execution, or the free, sees what this one did. Acquire: pairs with `publish_running`.
        // A subtraction, because it is one instruction where an "and" whose old value is wanted is a loop.
        let before = self.state.fetch_sub(RUNNING, Ordering::AcqRel);
        debug_assert_ne!(before & RUNNING, 0);
        if before & DEFERRED != 0 {
            self.state.fetch_and(!DEFERRED, Ordering::AcqRel);
            Finished::Push
        } else if before < REFERENCE && before & PENDING == 0 {
            Finished::Free
        } else {
            Finished::Done
        }
    }

    /// One more handle. The caller has one.
    pub(crate) fn add_reference(&self) {
        let before = self.state.fetch_add(REFERENCE, Ordering::Relaxed);
        assert!(
            before >> 32 < u64::from(u32::MAX / 2),
            "more than two billion handles of one work item"
        );
    }

    /// One handle less; true if the caller must free the item.
    pub(crate) fn drop_reference(&self) -> bool {
        // Release: what was done through this handle comes before the free. Acquire: for whoever frees.
        let before = self.state.fetch_sub(REFERENCE, Ordering::AcqRel);
        before >> 32 == 1 && before & (PENDING | RUNNING) == 0
    }

    /// Whether it is queued. Old by the time the caller looks at it.
    pub(crate) fn is_pending(&self) -> bool {
        self.state.load(Ordering::Acquire) & PENDING != 0
    }

    /// Whether it is being executed. Old by the time the caller looks at it.
    pub(crate) fn is_running(&self) -> bool {
        self.state.load(Ordering::Acquire) & RUNNING != 0
    }

    /// The item's table.
    #[inline]
    pub(crate) fn table(&self) -> &'static ItemTable<P> {
        self.table
    }
}

/// A queue of items that one thread owns, in the order in which they came.
pub(crate) struct List<P: Platform> {
    head: *mut Item<P>,
    tail: *mut Item<P>,
    len: usize,
}

// SAFETY: a list owns its items (it has their PENDING), and items may be handed between threads.
unsafe impl<P: Platform> Send for List<P> {}

impl<P: Platform> List<P> {
    pub(crate) const fn new() -> Self {
        List { head: core::ptr::null_mut(), tail: core::ptr::null_mut(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts the item at the front. The caller owns its `PENDING`.
    pub(crate) fn push_front(&mut self, item: NonNull<Item<P>>) {
        // SAFETY: the owner of PENDING keeps the item alive.
        let header = unsafe { item.as_ref() };
        header.next.store(self.head, Ordering::Relaxed);
        self.head = item.as_ptr();
        if self.tail.is_null() {
            self.tail = item.as_ptr();
        }
        self.len += 1;
    }

    /// Puts the item at the end. The caller owns its `PENDING`.
    pub(crate) fn push_back(&mut self, item: NonNull<Item<P>>) {
        // SAFETY: the owner of PENDING keeps the item alive.
        let header = unsafe { item.as_ref() };
        header.next.store(core::ptr::null_mut(), Ordering::Relaxed);
        match NonNull::new(self.tail) {
            None => self.head = item.as_ptr(),
            // SAFETY: the tail is on this list, which has its PENDING.
            Some(tail) => unsafe { tail.as_ref() }.next.store(item.as_ptr(), Ordering::Relaxed),
        }
        self.tail = item.as_ptr();
        self.len += 1;
    }

    /// Takes the first item; the caller has its `PENDING` then.
    pub(crate) fn pop_front(&mut self) -> Option<NonNull<Item<P>>> {
        let item = NonNull::new(self.head)?;
        // SAFETY: the item is on this list, which has its PENDING.
        self.head = unsafe { item.as_ref() }.next.load(Ordering::Relaxed);
        if self.head.is_null() {
            self.tail = core::ptr::null_mut();
        }
        self.len -= 1;
        Some(item)
    }

    /// Puts all of `other` at the end.
    pub(crate) fn append(&mut self, other: &mut List<P>) {
        while let Some(item) = other.pop_front() {
            self.push_back(item);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
