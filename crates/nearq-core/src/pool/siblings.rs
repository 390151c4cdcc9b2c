//! Pools that help each other: pools of the same priority and mask, of other pods. A worker takes items from them, nearest first.

use nearq_platform::{Atomic, Ordering, Platform};

use super::Pool;
use crate::layout::attributes::PoolKey;
use crate::pool::worker::Worker;

impl<P: Platform> Pool<P> {
    pub(crate) fn siblings(&self) -> impl Iterator<Item = &Pool<P>> {
        // Acquire: pairs with the release in `set_siblings`.
        let list = self.siblings.load(Ordering::Acquire);
        // SAFETY: null, or a list that the runtime keeps as long as itself, of pools that it keeps as well.
        let list = unsafe { list.as_ref() };
        // SAFETY: each pointer of the list is that of a pool, and the runtime keeps its pools as long as itself.
        list.into_iter().flatten().map(|pool| unsafe { &**pool })
    }

    /// Names the pools that this one helps, nearest first.
    pub(crate) fn set_siblings(&self, list: *mut Vec<*const Pool<P>>) {
        self.siblings.store(list, Ordering::Release);
    }

    /// Whether workers of `other` may run items of this pool.
    pub(crate) fn may_be_helped_by(&self, other: &PoolKey) -> bool {
        self.key.helping
            && other.helping
            && self.key.allowed == other.allowed
            && self.key.priority == other.priority
            && self.key.pod != other.pod
            && !self.key.pod.intersects(&other.pod)
    }

    /// As [`take`](Self::take), for a worker of another pool: from the nearest pool that has more than its own workers are about to take.
    pub(crate) fn take_from_siblings(&self, worker: &Worker<P>, limit: usize) -> usize {
        if self.services().homes.are_used() {
            return self.take_by_homes(worker, limit);
        }
        let mut each = self.siblings().map(|sibling| sibling.take_for_sibling(worker, limit));
        each.find(|moved| *moved != 0).unwrap_or(0)
    }

    /// As [`take`](Self::take), for a worker of another pool, which takes whatever comes first.
    pub(super) fn take_for_sibling(&self, worker: &Worker<P>, limit: usize) -> usize {
        if self.has_work() && !self.idle.has_searching() {
            let moved = self.take(worker, limit);
            if moved != 0 {
                // The worker that was called for the rest may have come here instead of the caller.
                if self.has_work() {
                    self.call_worker();
                }
                return moved;
            }
        }
        // Its workers have taken everything, and may be preempted, or in a long item.
        if self.has_loaded() { self.take_back(worker) } else { 0 }
    }

    /// Whether a worker of this pool has something for which a helper should come.
    pub(crate) fn siblings_need_help(&self) -> bool {
        self.key.helping
            && self.siblings().any(|sibling| {
                (sibling.has_work() || sibling.has_loaded() && sibling.has_batches())
                    && !sibling.idle.has_searching()
                    && !sibling.idle.has_idle()
                    && (!self.services().homes.are_used() || sibling.needs_help_of(self))
            })
    }

    /// Whether workers of this pool help one of those pools.
    pub(crate) fn helps_any(&self, which: impl Fn(&Pool<P>) -> bool) -> bool {
        self.key.helping && self.siblings().any(which)
    }
}
