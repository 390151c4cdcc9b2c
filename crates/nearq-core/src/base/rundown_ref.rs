//! The rundown reference of a queue: it tracks threads that touch the queue without a `Workqueue`, so that a drop can wait for them.
//!
//! A user that queues through a `Workqueue` keeps the queue open, so no such user queues while the queue is dropped. Two kinds of threads
//! have no `Workqueue`:
//! * Those that *pass*: they queue through a `Handle`, wake a future, or send an item whose time has come, and keep the queue's memory by a
//!   reference. The drop closes the rundown reference, waits until no thread is inside it, and only then checks whether the queue is empty.
//!   A thread that was inside before has counted its item by then; a thread that comes later is refused. Items of the queue itself do not
//!   pass the rundown reference: they are counted while they run.
//! * Those that *visit*: they have cancelled an item, or send one whose lock they held. What they do may make the queue empty, so they
//!   enter first, and being inside keeps the queue's memory. They are never refused.
//!
//! A thread is inside for a few instructions, and waits for no other thread; only the drop waits.
//!
//! # Orphans
//! No thread waits for a queue that one of its own items drops. The queue is put on a list (`Core::adopt`), and a worker that has nothing
//! to do drops those queues of the list that no thread touches any more. If the worker finds a thread in the rundown reference, that thread
//! must check again when it leaves, because there may be no worker to do it. So the thread that puts a queue on the list marks the rundown
//! reference (MARK), under the lock of the list. A thread that leaves (LEAVE) and finds the mark checks the list: it finds the queue there,
//! or another thread has dropped it. LEAVE and MARK change the same word: if LEAVE comes first, each thread that checks the queue after
//! MARK finds that the leaving thread has left.

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

const CLOSED: u32 = 1 << 31;
const ORPHANED: u32 = 1 << 30;
/// How many threads are inside it.
const COUNT: u32 = ORPHANED - 1;

/// See the head of the file.
pub(crate) struct RundownRef<P: Platform> {
    word: P::AtomicU32,
}

/// How a thread has passed.
pub(crate) struct Passed {
    /// Whether the rundown reference was open, so that the thread passed.
    pub(crate) open: bool,
    /// Whether the queue is an orphan, so that the thread must check whether it was the last.
    pub(crate) orphaned: bool,
}

impl<P: Platform> RundownRef<P> {
    /// An open rundown reference.
    pub(crate) fn new() -> Self {
        RundownRef { word: P::AtomicU32::new(0) }
    }

    /// Runs `f` inside, or not at all if the rundown reference is closed. The caller keeps the rundown reference alive.
    pub(crate) fn pass(&self, f: impl FnOnce()) -> Passed {
        // Even a thread that is refused below is counted inside for a moment: if many threads kept trying, some of them would always be
        // counted, and the drop would never return. A thread that is refused here has not entered and checks no orphan.
        if self.is_closed() {
            return Passed { open: false, orphaned: false };
        }
        // Acquire: keeps `f` behind it.
        let open = self.word.fetch_add(1, Ordering::AcqRel) & CLOSED == 0;
        if open {
            f();
        }
        // LEAVE. Release: pairs with the acquire in `is_quiet`; a thread that sees that no thread is inside sees what was done there.
        // Acquire: pairs with MARK.
        let before = self.word.fetch_sub(1, Ordering::AcqRel);
        self.wake_after(before);
        Passed { open, orphaned: before & ORPHANED != 0 }
    }

    /// Enters, whether the rundown reference is closed or not. Must come before the change that may make the queue empty, and that change
    /// must be a release: a thread that sees it sees the visit as well.
    pub(crate) fn begin_visit(&self) {
        self.word.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends a visit: the caller's last access to the rundown reference. If the queue is an orphan, `keep` is called first; it returns a
    /// reference by which the caller can check whether it was the last.
    pub(crate) fn end_visit<T>(&self, keep: impl Fn() -> T) -> Option<T> {
        let mut word = self.word.load(Ordering::Acquire);
        let mut kept = None;
        loop {
            if word & ORPHANED != 0 {
                // At most once: what is kept may not be dropped here.
                kept.get_or_insert_with(&keep);
            }
            // LEAVE, as in `pass`.
            let left = self.word.compare_exchange_weak(
                word,
                word - 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match left {
                Ok(before) => {
                    self.wake_after(before);
                    return kept;
                }
                Err(found) => word = found,
            }
        }
    }

    /// Wakes the thread that drops the queue, if the caller was the last inside. The rundown reference may be gone: only its address is
    /// used.
    fn wake_after(&self, before: u32) {
        // No thread waits if the queue is an orphan.
        if before == CLOSED + 1 {
            P::wake(&raw const self.word, usize::MAX);
        }
    }

    /// Resets the rundown reference to having no thread inside: those that were inside are the parent's. A closed rundown reference stays
    /// closed. In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        crate::base::forked::set(&self.word, self.word.load(Ordering::Relaxed) & !COUNT);
    }

    /// Refuses passing threads from now on.
    pub(crate) fn close(&self) {
        self.word.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Whether it refuses passing threads. Once true, it stays true.
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: a thread that reads an old value enters, and finds out there; others learn of the end by other means.
        self.word.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// From now on, threads that leave check whether they were the last. MARK.
    pub(crate) fn mark_orphaned(&self) {
        // Release: pairs with LEAVE.
        self.word.fetch_or(ORPHANED, Ordering::AcqRel);
    }

    /// Whether no thread is inside it.
    pub(crate) fn is_quiet(&self) -> bool {
        // Acquire: pairs with LEAVE.
        self.word.load(Ordering::Acquire) & COUNT == 0
    }

    /// Waits until no thread is inside it. Called by the thread that has closed it, or it may take for ever.
    pub(crate) fn wait_until_quiet(&self) {
        loop {
            // Acquire: pairs with LEAVE.
            let word = self.word.load(Ordering::Acquire);
            if word & COUNT == 0 {
                return;
            }
            P::wait(&self.word, word, None);
        }
    }
}

#[cfg(test)]
mod tests;
