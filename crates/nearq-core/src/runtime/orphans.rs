//! Queues that no thread waits for: an item of their own has dropped them, or their owner has waited long enough.
//!
//! They are kept on a list until no thread touches them any more. The list is checked by a worker that comes to rest, a rescuer, the
//! monitor, and a thread that leaves the rundown reference of one of them (`rundown_ref`).

use std::sync::Arc;

use nearq_platform::{Atomic, Ordering, Platform};

use super::{Core, KnownQueue};

impl<P: Platform, Q: KnownQueue> Core<P, Q> {
    /// Keeps a queue whose drop must not wait, until no thread touches it any more. Its rundown reference is closed.
    pub(crate) fn adopt(&self, queue: Arc<Q>) {
        let mut orphans = self.orphans.lock();
        // With the lock: a thread that finds the mark finds the queue on the list (`rundown_ref`).
        queue.mark_orphaned();
        orphans.push(queue);
        // SeqCst: Dekker's pattern with `reap_orphans`: the mark, then a check whether a worker serves the queue (`Queue::is_left`).
        self.has_orphans.store(1, Ordering::SeqCst);
    }

    /// Drops the adopted queues that no thread touches any more. By a worker that serves none.
    #[inline]
    pub(crate) fn reap_orphans(&self) {
        // SeqCst: Dekker's pattern. The worker that was the last to serve a queue records that it serves none (`Worker::set_account`), then
        // reads this mark. The thread that adopts the queue sets the mark, then checks whether a worker serves the queue
        // (`Queue::is_left`).
        if self.has_orphans.load(Ordering::SeqCst) != 0 {
            self.reap_orphans_now();
        }
    }

    /// As [`reap_orphans`](Self::reap_orphans), by any thread that was in the rundown reference of one of them, outside all locks.
    #[cold]
    pub(crate) fn reap_orphans_now(&self) {
        let mut empty = Vec::new();
        {
            let mut orphans = self.orphans.lock();
            let mut index = 0;
            while index < orphans.len() {
                if orphans[index].close_if_unused() {
                    empty.push(orphans.swap_remove(index));
                } else {
                    index += 1;
                }
            }
            self.has_orphans.store(u32::from(!orphans.is_empty()), Ordering::SeqCst);
        }
        // Outside the lock: the last queue may be the last handle of the runtime.
        drop(empty);
    }
}
