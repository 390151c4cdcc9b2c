//! What ends with an item, and when: its *value*, which is what the function captured, and its *memory*.
//!
//! # The value
//! The value is dropped as soon as nothing can execute the item any more: no handle is left, and it is neither pending nor running. The
//! node of a cancelled queueing does not keep the value alive, whether it is still on a list (`STALE`) or on a timer. So the captured data
//! does not wait for a worker to remove that node, and its destructor does not run where the runtime removes it. The thread that ends the
//! last of these drops the value before it gives that one up:
//!
//! | what ends last | the value is dropped by |
//! |---|---|
//! | the last handle | the thread that drops the handle (`let_go`) |
//! | an execution | the worker, before it clears `RUNNING` |
//! | the item's lock, if the last handle and the last execution ended while it was held | the thread that holds it: by a handle, later |
//!
//! The value is not dropped while the item is locked, because workers that find it locked come again and again. The thread that gives the
//! lock back takes a handle first, and lets go of that afterwards (`Finished::Last`).
//!
//! `EMPTY` says that the value is gone. Only the thread that could still have started the item sets it, so no other thread uses the value at
//! that time.
//!
//! # The memory
//! The thread that finds the item abandoned (`is_abandoned`) ends it: it drops the value, if that is still there, and gives back the item's
//! own *hold* on the memory. A proxy and a timer each have a hold but no handle. The last hold frees the memory. Holds are counted in the
//! extension; an item whose only hold is its own need not have one.
//!
//! A thread that takes a hold keeps the item from being abandoned while it does so; the item's own hold is therefore still counted.

use core::ptr::NonNull;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use super::{EMPTY, Finished, Item, LOCKED, PENDING, REFERENCE, RUNNING, STALE, is_abandoned};
use crate::base::executing::outside_item;

/// More holds than memory could have.
const TOO_MANY: u32 = u32::MAX / 2;

/// Gives back what its owner has, even if a destructor panics.
struct GiveBack<P: Platform>(NonNull<Item<P>>, unsafe fn(NonNull<Item<P>>));

impl<P: Platform> Drop for GiveBack<P> {
    fn drop(&mut self) {
        // SAFETY: the creator of this has the handle or the hold that the function gives back, and only this drop gives it back.
        unsafe { (self.1)(self.0) };
    }
}

impl<P: Platform> Item<P> {
    /// Gives a handle back. With the last handle, the value is dropped in the caller's thread.
    ///
    /// One compare-exchange decides. Either it finds that the caller has the last handle of an item that nothing executes, and the value is
    /// dropped first; or it gives the handle back while the word still names another holder, which decides by a compare-exchange of the
    /// same word.
    ///
    /// # Safety
    /// The caller has a handle, and does not use it afterwards.
    pub(crate) unsafe fn let_go(item: NonNull<Self>) {
        // SAFETY: the caller's handle.
        let this = unsafe { item.as_ref() };
        // Acquire, here and below: pairs with the release of the threads that have given other handles back.
        let mut word = this.state.load(Ordering::Acquire);
        loop {
            // Ours is the only handle then, so no thread can queue the item. A thread that has the lock checks this itself before it unlocks.
            // No value is dropped while the item is locked: workers that find it locked come again and again.
            if word & LOCKED == 0 && this.is_to_be_emptied(word - REFERENCE) {
                let give_back: unsafe fn(NonNull<Self>) = |item| {
                    // SAFETY: the caller's handle.
                    if unsafe { item.as_ref() }.drop_reference() {
                        // SAFETY: this was the last handle, and the item is neither queued nor running.
                        unsafe { (item.as_ref().table().free)(item) };
                    }
                };
                // The destructor may panic.
                let _handle = GiveBack(item, give_back);
                // SAFETY: ours is the only handle, and the item is neither pending nor running: nothing else can have it executed. EMPTY
                // is not set.
                unsafe { this.empty() };
                return;
            }
            // Release: what was done through this handle comes before the free.
            match this.state.compare_exchange(
                word,
                word - REFERENCE,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        if is_abandoned(word - REFERENCE) {
            // SAFETY: this was the last handle, and the item is neither queued nor running.
            unsafe { (this.table().free)(item) };
        }
    }

    /// Gives a reference back, unless it is the last that could keep the value alive: then true, and the caller still has it.
    ///
    /// # Safety
    /// The caller has a reference, and does not use it afterwards if this is false.
    pub(crate) unsafe fn drop_reference_unless_last(item: NonNull<Self>) -> bool {
        // SAFETY: the caller's reference.
        let this = unsafe { item.as_ref() };
        let mut word = this.state.load(Ordering::Relaxed);
        loop {
            // A cancelled node may be all that is left. The holder of the lock has a reference of its own, or gives the lock back soon; so
            // the lock is not counted.
            if word - REFERENCE < REFERENCE && word & (PENDING | RUNNING) == 0 {
                return true;
            }
            // Release: what was done through this reference comes before the free.
            let given_back = this.state.compare_exchange(
                word,
                word - REFERENCE,
                Ordering::Release,
                Ordering::Relaxed,
            );
            match given_back {
                Ok(_) => return false,
                Err(found) => word = found,
            }
        }
    }

    /// Whether a cancelled node is all that keeps an item with this word, and the value is still there.
    pub(crate) fn is_to_be_emptied(&self, word: u64) -> bool {
        word < REFERENCE
            && word & (STALE | PENDING | RUNNING) == STALE
            && word & EMPTY == 0
            && self.table().parts.is_some()
    }

    /// Drops the value, whose destructor may panic.
    ///
    /// # Safety
    /// The caller has the last thing that could have the item executed, and the value still exists.
    pub(crate) unsafe fn empty(&self) {
        let parts = self.table().parts.as_ref().expect("the caller has asked for it");
        // Release: the thread that frees the item must see that the value is gone.
        let before = self.state.fetch_or(EMPTY, Ordering::AcqRel);
        debug_assert_eq!(before & EMPTY, 0);
        // SAFETY: nothing else uses the value, as the caller says; EMPTY is set once, so it is dropped once.
        unsafe { (parts.empty)(self.whole().as_raw()) };
    }

    /// As [`empty`](Self::empty), for a worker.
    ///
    /// # Safety
    /// As for [`empty`](Self::empty).
    #[cold]
    pub(crate) unsafe fn empty_contained(&self) {
        // SAFETY: what the caller says of this is what `empty` asks for.
        outside_item::<P>(|| unsafe { self.empty() });
    }

    /// Ends an item: the function in its table that frees it.
    ///
    /// # Safety
    /// The item is abandoned, and its table has parts. Called once.
    pub(crate) unsafe fn end_parts(item: NonNull<Self>) {
        // SAFETY: the item's own hold, which is given back here.
        let _own = GiveBack(item, |item| unsafe { Self::release(item) });
        // SAFETY: the item's own hold keeps it.
        let this = unsafe { item.as_ref() };
        // Acquire: pairs with `empty`.
        if this.state.load(Ordering::Acquire) & EMPTY == 0 {
            let parts = this.table().parts.as_ref().expect("as the caller says");
            // SAFETY: nothing holds the item any more. EMPTY need not be set: the item is ended once.
            unsafe { (parts.empty)(item) };
        }
    }

    /// Takes a hold on the memory. The caller keeps the item from being abandoned.
    pub(crate) fn hold(&self) {
        // Relaxed: the thread that takes a hold already keeps the memory.
        let before = self.ext().holds.fetch_add(1, Ordering::Relaxed);
        if before > TOO_MANY {
            std::process::abort();
        }
    }

    /// Gives back a hold on the memory. The caller keeps the item from being abandoned, so it is not the last one.
    pub(crate) fn unhold(&self) {
        // Release: what was done under the hold comes before the memory is freed.
        let before = self.ext().holds.fetch_sub(1, Ordering::Release);
        debug_assert!(before > 1, "the item's own hold is there");
    }

    /// Gives back a hold on the memory; the last one frees it.
    ///
    /// # Safety
    /// The caller has a hold, and does not touch the item afterwards.
    pub(crate) unsafe fn release(item: NonNull<Self>) {
        // SAFETY: the hold keeps the memory.
        let this = unsafe { item.as_ref() };
        // Release: what was done under the hold comes before the memory is freed. Acquire: the thread that frees it sees that.
        let others =
            this.attachment.ext().is_some_and(|ext| ext.holds.fetch_sub(1, Ordering::AcqRel) != 1);
        if !others {
            debug_assert!(is_abandoned(this.state.load(Ordering::Relaxed)));
            let parts = this.table().parts.as_ref().expect("only such items are held");
            // SAFETY: this was the last hold.
            unsafe { (parts.dealloc)(item) };
        }
    }

    /// Frees an item. Dropping what its function captured may panic; that must not end a worker.
    ///
    /// # Safety
    /// Nothing holds the item any more.
    #[cold]
    pub(crate) unsafe fn free(item: NonNull<Self>) {
        // SAFETY: as the caller says.
        outside_item::<P>(|| unsafe { (item.as_ref().table().free)(item) });
    }

    /// Frees an item if the answer says so, or gives its last handle back.
    ///
    /// # Safety
    /// If it must be freed, nothing holds it any more; if a handle is left, it is the caller's.
    pub(crate) unsafe fn free_if_over(left: Finished, item: NonNull<Self>) {
        match left {
            // SAFETY: as the caller says.
            Finished::Free => unsafe { Self::free(item) },
            // SAFETY: as the caller says.
            Finished::Last => outside_item::<P>(|| unsafe { Item::let_go(item) }),
            Finished::Done | Finished::Deferred => {}
        }
    }
}
