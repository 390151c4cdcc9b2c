//! The list onto which owners push requests, and from which the timer's thread takes all of them.
//!
//! Like the pools' `inbox`: one pointer, and a push is one compare-exchange, so an owner that is preempted anywhere delays only its own
//! node. It can be closed: a later push is refused.

use core::ptr::{NonNull, null_mut, without_provenance_mut};

use nearq_platform::{Atomic, Ordering, Platform};

use super::node::TimerNode;

pub(super) struct Inbox<P: Platform> {
    head: P::AtomicPtr<TimerNode<P>>,
}

/// The head of an inbox that is closed; no node has that address.
fn closed<P: Platform>() -> *mut TimerNode<P> {
    without_provenance_mut(1)
}

/// Requests that were taken, first pushed first.
pub(super) struct Requests<P: Platform> {
    head: *mut TimerNode<P>,
}

impl<P: Platform> Inbox<P> {
    pub(super) fn new() -> Self {
        Inbox { head: P::AtomicPtr::new(null_mut()) }
    }

    /// Pushes a node whose `QUEUED` the caller has set; false if the inbox is closed.
    pub(super) fn push(&self, node: NonNull<TimerNode<P>>) -> bool {
        let pushed = crate::base::shared::pushed(node);
        let mut attempt = 0;
        loop {
            let head = self.head.load(Ordering::Relaxed);
            if head == closed::<P>() {
                return false;
            }
            // SAFETY: the caller keeps the node alive until it is pushed.
            unsafe { node.as_ref() }.next.store(head, Ordering::Relaxed);
            // Release: the thread sees `next`. SeqCst: pairs with `is_empty`, see `timer`.
            let pushed =
                self.head.compare_exchange_weak(head, pushed, Ordering::SeqCst, Ordering::Relaxed);
            if pushed.is_ok() {
                return true;
            }
            crate::base::pause::after_failure::<P>(&mut attempt);
        }
    }

    /// Whether it is empty; for a thread that is about to sleep.
    pub(super) fn is_empty(&self) -> bool {
        self.head.load(Ordering::SeqCst).is_null()
    }

    /// Takes everything. By the timer's thread, before it closes the inbox.
    pub(super) fn take_all(&self) -> Requests<P> {
        if self.head.load(Ordering::Relaxed).is_null() {
            return Requests { head: null_mut() };
        }
        // Acquire: pairs with `push`.
        Self::reversed(self.head.swap(null_mut(), Ordering::SeqCst))
    }

    /// Empties it, because its content is the parent's. In the child of a fork.
    pub(super) fn after_fork_in_child(&self, closes: bool) {
        crate::base::forked::set(&self.head, if closes { closed::<P>() } else { null_mut() });
    }

    /// Takes everything, for the last time.
    pub(super) fn close(&self) -> Requests<P> {
        let head = self.head.swap(closed::<P>(), Ordering::SeqCst);
        Self::reversed(if head == closed::<P>() { null_mut() } else { head })
    }

    fn reversed(mut newest: *mut TimerNode<P>) -> Requests<P> {
        let mut head = null_mut();
        while let Some(node) = crate::base::shared::taken(newest) {
            // SAFETY: it was on the inbox, so it has `QUEUED` and `HELD`; `HELD` keeps it alive, and we have its `next`.
            let next = &unsafe { node.as_ref() }.next;
            newest = next.load(Ordering::Relaxed);
            next.store(head, Ordering::Relaxed);
            head = node.as_ptr();
        }
        Requests { head }
    }
}

impl<P: Platform> Iterator for Requests<P> {
    type Item = NonNull<TimerNode<P>>;

    fn next(&mut self) -> Option<Self::Item> {
        let node = NonNull::new(self.head)?;
        // SAFETY: HELD keeps it alive, and `next` has been ours since the list was taken.
        self.head = unsafe { node.as_ref() }.next.load(Ordering::Relaxed);
        Some(node)
    }
}
