//! How a worker runs items that may have homes: where, with which memory, and what is counted.

use std::sync::Arc;

use nearq_platform::Platform;

use super::Runner;
use crate::homes::{MemoryPolicy, Wanted};
use crate::item::execution::Ended;
use crate::item::owned::Running;
use crate::limit::pool_workqueue::PoolWorkqueue;

impl<P: Platform> Runner<'_, P> {
    /// Calls `execute`, which runs the item, of a pwq that is [`HOMED`](crate::limit::pool_workqueue::HOMED).
    pub(super) fn run_at_home(
        &mut self,
        served: &PoolWorkqueue<P>,
        item: Running<P>,
        execute: impl FnOnce(Running<P>) -> Ended<P>,
    ) -> Ended<P> {
        let homes = &self.inner.services.homes;
        let queue = served.queue();
        let node = item.origin().home();
        if node.is_some() {
            served.pool.homed_left();
        }
        let memory = match (queue.memory(), node) {
            (MemoryPolicy::Home, Some(node)) => Wanted::Node(node),
            (MemoryPolicy::Interleave, _) => Wanted::InTurn,
            _ => Wanted::Own,
        };
        self.memory.want::<P>(memory, homes);
        let Some(node) = node else { return execute(item) };
        if served.pool.node.is_none() {
            self.affinity.go_home::<P>(node, homes);
        }
        let here = homes.map.node_of(P::current_cpu());
        served.count_home(self.worker.index, here == Some(node));
        // A handle of our own: the item may be gone before its destructors have run. The queue keeps its homes alive.
        let own = item.attachment.home_at_once();
        let home = own.as_ref().map_or(queue.home_now(), |home| Arc::as_ptr(home.inside()));
        // SAFETY: null, or kept alive as described above.
        let known = unsafe { home.as_ref() };
        let before =
            known.filter(|home| home.follows()).and_then(|_| P::cpu_time(P::current_thread()).ok());
        self.context.home.set(home);
        self.worker.set_home(Some(node));
        let executed = execute(item);
        self.context.home.set(core::ptr::null());
        if P::fork_epoch() != self.epoch {
            return executed;
        }
        self.worker.set_home(None);
        if let (Some(home), Some(before), Some(here)) = (known, before, here) {
            if let Ok(now) = P::cpu_time(P::current_thread()) {
                home.count_cpu_time(here, now.saturating_sub(before).as_nanos() as u64);
            }
        }
        executed
    }
}
