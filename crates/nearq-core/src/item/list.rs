//! A list of items that one thread owns.

use core::ptr::NonNull;

use nearq_platform::{Atomic, Ordering, Platform};

use crate::item::Item;
use crate::item::owned::Pending;

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

    /// Puts the item at the front.
    pub(crate) fn push_front(&mut self, item: Pending<P>) {
        item.next.store(self.head, Ordering::Relaxed);
        let item = item.into_raw();
        self.head = item.as_ptr();
        if self.tail.is_null() {
            self.tail = item.as_ptr();
        }
        self.len += 1;
    }

    /// Puts the item at the end.
    pub(crate) fn push_back(&mut self, item: Pending<P>) {
        item.next.store(core::ptr::null_mut(), Ordering::Relaxed);
        let item = item.into_raw();
        match NonNull::new(self.tail) {
            None => self.head = item.as_ptr(),
            // SAFETY: the tail is on this list, which has its PENDING.
            Some(tail) => unsafe { tail.as_ref() }.next.store(item.as_ptr(), Ordering::Relaxed),
        }
        self.tail = item.as_ptr();
        self.len += 1;
    }

    /// Takes the first item.
    pub(crate) fn pop_front(&mut self) -> Option<Pending<P>> {
        let item = NonNull::new(self.head)?;
        // SAFETY: the item is on this list, which has its PENDING.
        self.head = unsafe { item.as_ref() }.next.load(Ordering::Relaxed);
        if self.head.is_null() {
            self.tail = core::ptr::null_mut();
        }
        self.len -= 1;
        // SAFETY: it was on the list, which has given it up.
        Some(unsafe { Pending::from_raw(item) })
    }

    /// The first item.
    pub(crate) fn front(&self) -> Option<&Item<P>> {
        // SAFETY: null, or on this list, which has its PENDING.
        unsafe { self.head.as_ref() }
    }

    /// The items, in their order.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = *const Item<P>> {
        let mut next: *const Item<P> = self.head;
        core::iter::from_fn(move || {
            // SAFETY: the item is on this list, which has its PENDING.
            let item = unsafe { next.as_ref() }?;
            let node = next;
            next = item.next.load(Ordering::Relaxed);
            Some(node)
        })
    }

    /// Puts all of `other` at the end.
    pub(crate) fn append(&mut self, other: &mut List<P>) {
        let Some(first) = NonNull::new(other.head) else { return };
        match NonNull::new(self.tail) {
            None => self.head = first.as_ptr(),
            // SAFETY: the tail is on this list, which has its PENDING.
            Some(tail) => unsafe { tail.as_ref() }.next.store(first.as_ptr(), Ordering::Relaxed),
        }
        self.tail = other.tail;
        self.len += other.len;
        *other = List::new();
    }

    /// Takes at most `most` of the wanted items out of the first `among`. The rest keeps its order.
    pub(crate) fn extract(
        &mut self,
        wanted: impl Fn(&Item<P>) -> bool,
        most: usize,
        among: usize,
    ) -> List<P> {
        let (mut chosen, mut passed) = (List::new(), List::new());
        for _ in 0..among {
            if chosen.len() == most {
                break;
            }
            let Some(item) = self.pop_front() else { break };
            if wanted(&item) {
                chosen.push_back(item);
            } else {
                passed.push_back(item);
            }
        }
        passed.append(self);
        *self = passed;
        chosen
    }

    /// Moves the wanted items to the front. Both parts keep their order.
    pub(crate) fn prefer(&mut self, wanted: impl Fn(&Item<P>) -> bool) {
        let (mut first, mut rest) = (List::new(), List::new());
        while let Some(item) = self.pop_front() {
            if wanted(&item) {
                first.push_back(item);
            } else {
                rest.push_back(item);
            }
        }
        first.append(&mut rest);
        *self = first;
    }
}
