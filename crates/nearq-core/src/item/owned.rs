//! Ownership of an item, as types. The steps of the state word take and return them, so no function takes a bare pointer and trusts its
//! caller.
//!
//! | type | what its owner has | where it goes |
//! |---|---|---|
//! | [`ItemRef`] | a borrow: the item stays alive for as long | nowhere; it is copied |
//! | [`Pending`] | the node of a queueing: `PENDING`, or `STALE` once it is cancelled | onto a list (`into_raw`), into [`start`](Pending::start), back by [`Item::unclaim`] |
//! | [`Running`] | `RUNNING` | into the function of the item's table, which finishes it |
//! | [`Abandoned`] | all of it: nothing else has the item | into [`free`](Abandoned::free) |
//!
//! The last three cannot be copied, and each step takes one and returns another. None of them does anything when it is dropped: a queueing
//! that is forgotten would never run, so they are `must_use`. A bare pointer becomes one of them only through an `unsafe` function: when it
//! comes off a list, or when an item is made.

use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

use nearq_platform::Platform;

use super::Item;

/// An item that is kept alive for `'a`: by a handle, by `PENDING` or `RUNNING`, or by its lock.
#[derive(Clone, Copy)]
pub(crate) struct ItemRef<'a, P: Platform>(NonNull<Item<P>>, PhantomData<&'a Item<P>>);

impl<P: Platform> ItemRef<'_, P> {
    /// A borrow of that item.
    ///
    /// # Safety
    /// The item stays alive while the borrow is used, and the pointer comes from the whole object that the item begins.
    #[inline(always)]
    pub(crate) unsafe fn new(item: NonNull<Item<P>>) -> Self {
        ItemRef(item, PhantomData)
    }

    /// The pointer of the whole object.
    #[inline(always)]
    pub(crate) fn as_raw(self) -> NonNull<Item<P>> {
        self.0
    }
}

impl<P: Platform> Deref for ItemRef<'_, P> {
    type Target = Item<P>;

    #[inline(always)]
    fn deref(&self) -> &Item<P> {
        // SAFETY: the caller of `new` keeps the item alive while this borrow is used; shared references only.
        unsafe { self.0.as_ref() }
    }
}

/// The node of a queueing: the item itself, or a proxy. Only its owner may put it on a list, start it or give it back. Cancelling takes
/// `PENDING` from it and leaves `STALE`; the owner finds that out when it starts the item.
#[must_use = "a queueing that is forgotten never runs"]
pub(crate) struct Pending<P: Platform>(NonNull<Item<P>>);

// SAFETY: what an item consists of is `Send`, and its queueing may be handed between threads.
unsafe impl<P: Platform> Send for Pending<P> {}

impl<P: Platform> Pending<P> {
    /// The queueing of that node.
    ///
    /// # Safety
    /// The caller has the node: it has set `PENDING`, or has taken the node off the list where [`into_raw`](Self::into_raw) put it.
    #[inline(always)]
    pub(crate) unsafe fn from_raw(node: NonNull<Item<P>>) -> Self {
        Pending(node)
    }

    /// The node's pointer, for a list, which owns the queueing then.
    #[inline(always)]
    pub(crate) fn into_raw(self) -> NonNull<Item<P>> {
        self.0
    }

    /// The node's pointer, to compare.
    #[inline(always)]
    pub(crate) fn as_raw(&self) -> NonNull<Item<P>> {
        self.0
    }
}

impl<P: Platform> Deref for Pending<P> {
    type Target = Item<P>;

    #[inline(always)]
    fn deref(&self) -> &Item<P> {
        // SAFETY: PENDING or STALE keeps it alive, and only the owner of this could end that.
        unsafe { self.0.as_ref() }
    }
}

/// An item that nothing else holds any more. Its owner frees it.
#[must_use = "an item that is forgotten leaks"]
pub(crate) struct Abandoned<P: Platform>(NonNull<Item<P>>);

impl<P: Platform> Abandoned<P> {
    /// The end of that item.
    ///
    /// # Safety
    /// Nothing holds it any more, and it is not freed elsewhere.
    pub(crate) unsafe fn new(item: NonNull<Item<P>>) -> Self {
        Abandoned(item)
    }

    /// Frees it. Dropping what its function captured may panic; that goes no further.
    #[cold]
    pub(crate) fn free(self) {
        // SAFETY: nothing else has the item or frees it, which the caller of `new` has promised; this is used up.
        unsafe { Item::free(self.0) };
    }
}

/// An item whose `RUNNING` the owner has.
#[must_use = "an item that is not finished never runs again"]
pub(crate) struct Running<P: Platform>(NonNull<Item<P>>);

impl<P: Platform> Running<P> {
    /// The execution of that item.
    ///
    /// # Safety
    /// The caller has set `RUNNING`, or has it because the function of the item's table left it (`Executed::deferred`).
    #[inline(always)]
    pub(crate) unsafe fn from_raw(item: NonNull<Item<P>>) -> Self {
        Running(item)
    }

    /// The item's pointer, for the function of its table, which ends the execution.
    #[inline(always)]
    pub(crate) fn into_raw(self) -> NonNull<Item<P>> {
        self.0
    }

    /// The item's pointer, to compare.
    #[inline(always)]
    pub(crate) fn as_raw(&self) -> NonNull<Item<P>> {
        self.0
    }
}

impl<P: Platform> Deref for Running<P> {
    type Target = Item<P>;

    #[inline(always)]
    fn deref(&self) -> &Item<P> {
        // SAFETY: RUNNING keeps it alive, and only the owner of this could end that.
        unsafe { self.0.as_ref() }
    }
}
