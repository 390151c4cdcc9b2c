//! Near which CPU a worker wakes up: the kernel's own pools set `p->wake_cpu` before they wake a worker, and here it is a hint to the
//! machine's scheduler ([`Placement::set_wake_hint`]).
//!
//! The scheduler treats the hint as the CPU on which the worker ran last: it searches for an idle CPU from there on, and moves nothing by
//! force. So a hint costs one store, where narrowing an affinity and widening it again (`affinity`) costs two system calls and a
//! migration. If no scheduler receives hints, a wake-up costs one more load.
//!
//! * In a pool that a **localised** queue uses, a worker wakes up near the CPU of the thread that wakes it: the thread that queued, or a
//!   worker that found more than it can run. Other queues share the pool, and their workers wake up there too.
//! * A worker that went to sleep **outside its pod** wakes up in its pod, near each of the pod's CPUs in turn.
//!
//! Everything here is a hint, so all accesses are relaxed: a wrong value sends a worker to a CPU where it may run anyway.
//!
//! [`Placement::set_wake_hint`]: nearq_platform::Placement::set_wake_hint

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use super::Pool;
use crate::pool::worker::Worker;

impl<P: Platform> Pool<P> {
    /// A localised queue uses the pool.
    pub(crate) fn set_localised(&self) {
        self.called.localised.store(1, Ordering::Relaxed);
    }

    /// Wakes a worker of this pool that was popped.
    #[inline]
    pub(crate) fn wake(&self, worker: &Worker<P>) {
        if P::receives_wake_hints() {
            self.hint(worker);
        }
        worker.parker.unpark();
    }

    #[cold]
    fn hint(&self, worker: &Worker<P>) {
        let pod = &self.key.pod;
        let back = || {
            let turn = self.called.wake_turn.fetch_add(1, Ordering::Relaxed);
            pod.iter().nth(turn as usize % pod.len().max(1))
        };
        let cpu = if self.called.localised.load(Ordering::Relaxed) != 0 {
            Some(P::current_cpu())
        } else if worker.slept_on().is_some_and(|cpu| !pod.contains(cpu)) {
            back()
        } else {
            None
        };
        let Some(cpu) = cpu else { return };
        // The name is written when the thread starts and when it ends; if that is now, the worker wakes up without a hint.
        if let Some(thread) = worker.thread.try_lock().and_then(|thread| *thread) {
            P::set_wake_hint(thread, cpu);
        }
    }
}
