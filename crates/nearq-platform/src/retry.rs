//! Attempts that failed and must be made again: [`Retries`].
//!
//! A runtime starts its threads when work comes, and the system may temporarily refuse one. If the runtime has no thread left to try again,
//! the attempt is put here, and the threads that wait for the work make it again while they wait
//! ([`Threads::wait_for_work`](crate::Threads::wait_for_work)).
//!
//! # Protocol
//! The attempts are a stack of nodes. Any thread may push a node ([`Retries::add`]). One thread at a time takes the whole stack and makes
//! each attempt once ([`Retries::make`]); an attempt that fails again adds itself back. `busy` is set while a thread makes attempts: the
//! stack is empty then, but [`Retries::is_empty`] says false, because an attempt may still fail. A node belongs to the stack while it is on
//! it, and otherwise to the thread that took it.
//!
//! However many threads wait or ask, the stack is taken at most once per [`PAUSE`] (`not_before`), because a failing attempt costs the
//! system a call.
//!
//! A thread that is about to push a node has written the first node's address into it. Meanwhile that first node may be taken and freed,
//! and another node may be made at the same address and pushed. Then the exchange succeeds: the address is right, but the pointer's
//! provenance is that of the freed node. So nodes are published by their addresses (`expose_provenance`), and the thread that takes the
//! stack goes by those.
//!
//! # Forks
//! `busy` holds the process's epoch, plus one. In the child of a fork, the parent's mark does not count. Attempts that a thread of the
//! parent had taken off the stack are not made in the child: they were for work of the parent.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use core::time::Duration;

use crate::Instant;

/// How long a thread waits before it makes the attempts again.
pub const PAUSE: Duration = Duration::from_millis(100);

/// Tries again. If it fails, it adds itself back.
pub type Attempt = Box<dyn FnOnce() + Send>;

struct Node {
    attempt: Attempt,
    next: *mut Node,
}

impl Node {
    /// The node at that address, by the address alone; none if it is null.
    ///
    /// # Safety
    /// It was pushed by [`Retries::add`], and no other thread has it.
    unsafe fn at(node: *mut Node) -> Option<Box<Node>> {
        let whole: *mut Node = ptr::with_exposed_provenance_mut(node.addr());
        // SAFETY: validity: from `Box::into_raw` in `add`. Aliasing: as the caller says.
        (!whole.is_null()).then(|| unsafe { Box::from_raw(whole) })
    }
}

/// The attempts of one process that must be made again.
#[derive(Debug, Default)]
pub struct Retries {
    head: AtomicPtr<Node>,
    busy: AtomicU64,
    /// In nanoseconds of the platform's clock: the stack is not taken before.
    not_before: AtomicU64,
}

impl Retries {
    /// None.
    pub const fn new() -> Self {
        Retries {
            head: AtomicPtr::new(ptr::null_mut()),
            busy: AtomicU64::new(0),
            not_before: AtomicU64::new(0),
        }
    }

    /// Whether no attempt is left, in the process of that epoch. An outdated answer costs no more than a pause.
    #[inline]
    pub fn is_empty(&self, epoch: u64) -> bool {
        // Acquire, here and below: pairs with the release in `make` after an attempt that was added back. A caller that finds the mark
        // gone finds that attempt when it reads the stack a second time.
        let is_bare = || self.head.load(Ordering::Acquire).is_null();
        is_bare() && self.busy.load(Ordering::Acquire) != epoch + 1 && is_bare()
    }

    /// Leaves an attempt to be made.
    pub fn add(&self, attempt: Attempt) {
        let node = Box::into_raw(Box::new(Node { attempt, next: ptr::null_mut() }));
        let _ = node.expose_provenance();
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // SAFETY: validity: made above. Aliasing: no other thread knows of the node until it is on the stack.
            unsafe { (*node).next = head };
            // Release: pairs with the acquire in `make`; hands the node over.
            match self.head.compare_exchange_weak(head, node, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(found) => head = found,
            }
        }
    }

    /// Makes each attempt once, unless another thread is making them or has made them within a [`PAUSE`]. In the process of that epoch;
    /// `now` is the time on the platform's clock.
    pub fn make(&self, epoch: u64, now: Instant) {
        let now = now.as_nanos();
        // Relaxed: nothing is published with the time.
        let is_early = now < self.not_before.load(Ordering::Relaxed);
        if is_early || self.head.load(Ordering::Relaxed).is_null() {
            return;
        }
        let busy = self.busy.load(Ordering::Relaxed);
        // Relaxed: the mark protects nothing; it only says that a thread is making attempts.
        let begins = |busy| {
            self.busy.compare_exchange(busy, epoch + 1, Ordering::Relaxed, Ordering::Relaxed)
        };
        if busy == epoch + 1 || begins(busy).is_err() {
            return;
        }
        self.not_before.store(now + PAUSE.as_nanos() as u64, Ordering::Relaxed);
        // Acquire: pairs with the release in `add`.
        let mut first = self.head.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: it was taken off the stack, so it is ours.
        while let Some(node) = unsafe { Node::at(first) } {
            let Node { attempt, next } = *node;
            attempt();
            first = next;
        }
        // Release: pairs with the acquire in `is_empty`.
        self.busy.store(0, Ordering::Release);
    }
}

impl Drop for Retries {
    fn drop(&mut self) {
        let mut first = *self.head.get_mut();
        // SAFETY: no other thread has the stack.
        while let Some(node) = unsafe { Node::at(first) } {
            first = node.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// The instant that many pauses after the clock's origin.
    fn at(pauses: u32) -> Instant {
        Instant::from_nanos(0) + PAUSE * pauses
    }

    /// An attempt that fails that many times, and counts how often it was made.
    fn fails(retries: &Arc<Retries>, times: u32, made: &Arc<AtomicU32>) -> Attempt {
        let (retries, made) = (Arc::clone(retries), Arc::clone(made));
        Box::new(move || {
            made.fetch_add(1, Ordering::Relaxed);
            if times != 0 {
                let again = fails(&retries, times - 1, &made);
                retries.add(again);
            }
        })
    }

    #[test]
    fn an_attempt_is_repeated_until_it_succeeds() {
        let (retries, made) = (Arc::new(Retries::new()), Arc::default());
        retries.add(fails(&retries, 2, &made));
        retries.add(fails(&retries, 0, &made));
        for (round, count) in [(1, 2), (2, 3), (3, 4), (4, 4)] {
            retries.make(0, at(round));
            // No attempt is made again within the pause.
            retries.make(0, at(round));
            assert_eq!(made.load(Ordering::Relaxed), count);
        }
        assert!(retries.is_empty(0));
    }

    #[test]
    fn during_an_attempt_the_list_is_not_empty_and_no_other_call_retries() {
        let (retries, made) = (Arc::new(Retries::new()), Arc::default());
        let (retries_clone, failing) = (Arc::clone(&retries), fails(&retries, 0, &made));
        retries.add(Box::new(move || {
            retries_clone.add(failing);
            retries_clone.make(0, at(2));
            assert!(!retries_clone.is_empty(0));
        }));
        retries.make(0, at(1));
        assert_eq!(made.load(Ordering::Relaxed), 0);
        retries.make(0, at(2));
        assert_eq!(made.load(Ordering::Relaxed), 1);
        assert!(retries.is_empty(0));
    }

    #[test]
    fn the_mark_of_another_process_is_ignored() {
        let (retries, made) = (Arc::new(Retries::new()), Arc::default());
        // This is the state in which a fork in the middle of the parent's `make` leaves the child.
        retries.busy.store(1, Ordering::Relaxed);
        retries.add(fails(&retries, 0, &made));
        retries.make(1, at(1));
        assert_eq!(made.load(Ordering::Relaxed), 1);
        assert!(retries.is_empty(1));
    }

    #[test]
    fn remaining_attempts_are_freed_with_the_list() {
        let made = Arc::<AtomicU32>::default();
        let retries = Retries::new();
        let made_clone = Arc::clone(&made);
        retries.add(Box::new(move || drop(made_clone)));
        drop(retries);
        assert_eq!(Arc::strong_count(&made), 1);
    }

    #[test]
    fn threads_add_and_make_attempts_concurrently() {
        let (retries, made) = (Arc::new(Retries::new()), Arc::<AtomicU32>::default());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 0..100 {
                        retries.add(fails(&retries, 1, &made));
                        retries.make(0, at(round));
                    }
                });
            }
        });
        let mut round = 100;
        while !retries.is_empty(0) {
            retries.make(0, at(round));
            round += 1;
        }
        assert_eq!(made.load(Ordering::Relaxed), 600);
    }
}
