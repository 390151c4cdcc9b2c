//! The list onto which any thread pushes items, and from which a worker takes all of them.
//!
//! One pointer. A push is one compare-exchange: before it, no thread sees the item; after it, every thread does. So a pusher that is
//! preempted anywhere delays only its own item. (A queue in which a push takes two steps hides, between them, whatever other threads push
//! behind.) The price is the order: the list is last-in-first-out, and `take_all` reverses it.
//!
//! Ordering: push and the emptiness test are `SeqCst`, because a pusher and a worker that goes to sleep use Dekker's pattern to ensure that
//! one sees the other (`idle`). The push releases the item, `take_all` acquires it.

use nearq_platform::{Atomic, Ordering, Platform};

use crate::item::Item;
use crate::item::list::List;
use crate::item::owned::Pending;

/// A multi-producer list of items.
pub(crate) struct Inbox<P: Platform> {
    head: P::AtomicPtr<Item<P>>,
}

impl<P: Platform> Inbox<P> {
    pub(crate) fn new() -> Self {
        Inbox { head: P::AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Pushes an item; the list owns it afterwards.
    #[inline]
    pub(crate) fn push(&self, item: Pending<P>) {
        let item = item.into_raw();
        let node = crate::base::shared::pushed(item);
        let mut head = self.head.load(Ordering::Relaxed);
        let mut attempt = 0;
        loop {
            // SAFETY: not pushed yet: PENDING is still the caller's, and keeps the item alive.
            unsafe { item.as_ref() }.next.store(head, Ordering::Relaxed);
            match self.head.compare_exchange_weak(head, node, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return,
                Err(_) => crate::base::pause::after_failure::<P>(&mut attempt),
            }
            head = self.head.load(Ordering::Relaxed);
        }
    }

    /// Whether it is empty; see the ordering above.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::SeqCst).is_null()
    }

    /// The items on it, last pushed first.
    ///
    /// # Safety
    /// No thread takes anything while the answer is used.
    pub(crate) unsafe fn nodes(&self) -> impl Iterator<Item = *const Item<P>> {
        // Acquire: pairs with the release in `push`.
        let mut next: *const Item<P> = self.head.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            let node = crate::base::shared::taken(next)?;
            // SAFETY: what is on the list is alive, and stays there as the caller says.
            next = unsafe { node.as_ref() }.next.load(Ordering::Relaxed);
            Some(node.as_ptr().cast_const())
        })
    }

    /// Takes everything, first pushed first. The check for emptiness is `SeqCst` too: a thread that gives a place back reads this list
    /// (`node_active`).
    pub(crate) fn take_all(&self) -> List<P> {
        let mut list = List::new();
        if self.is_empty() {
            return list;
        }
        let mut newest = self.head.swap(core::ptr::null_mut(), Ordering::SeqCst);
        while let Some(item) = crate::base::shared::taken(newest) {
            // SAFETY: the swap gave us the whole list, and with it each item's PENDING.
            newest = unsafe { item.as_ref() }.next.load(Ordering::Relaxed);
            // SAFETY: the swap gave us the item's PENDING, of which no other thread makes a `Pending`.
            list.push_front(unsafe { Pending::from_raw(item) });
        }
        list
    }

    /// In the child of a fork: empties it, because its content is the parent's.
    pub(crate) fn after_fork_in_child(&self) {
        crate::base::forked::set(&self.head, core::ptr::null_mut());
    }

    /// Spins, about `budget` reads, until it is not empty. Returns whether it is not.
    #[inline]
    pub(crate) fn spin(&self, budget: u32) -> bool {
        P::wait_until_changed_ptr(&self.head, core::ptr::null_mut(), budget)
    }
}

#[cfg(test)]
mod tests;
