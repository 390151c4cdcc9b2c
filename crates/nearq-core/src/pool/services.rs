//! What the pools, their workers and the pwqs to them share within a runtime, and what they ask of the runtime.
//!
//! The runtime contains this and more (`runtime`). It is a higher layer, so it is called through a trait, on cold paths only.

use std::sync::Arc;

use nearq_platform::{Atomic, Platform};

use super::Pool;
use super::alarm::Alarm;
use super::spawn_failure::Denied;
use crate::base::wait_queue::WaitQueue;
use crate::homes::Homes;
use crate::pool::worker::Worker;
use crate::pool::worker_slab::WorkerSlab;

/// What all pools of a runtime share.
pub(crate) struct Services<P: Platform> {
    /// The entries of all workers.
    pub(crate) workers: WorkerSlab<P>,
    /// Wakes the monitor.
    pub(crate) alarm: Alarm<P>,
    pub(crate) homes: Arc<Homes<P>>,
    /// Whether there was ever a pool that no queue used.
    pub(crate) has_unused: P::AtomicU32,
    /// In the child of a fork: rescuers must be started again.
    pub(crate) rescuers_missing: P::AtomicU32,
    /// Notified when a worker has released the queue that it served; for a thread that wants to free a queue.
    pub(crate) departures: WaitQueue<P>,
    host: *const dyn Host<P>,
}

// SAFETY: `host` points to the runtime, of which this is a part; all else is `Send` by itself.
unsafe impl<P: Platform> Send for Services<P> {}
// SAFETY: a shared reference gives `&dyn Host`, and a `Host` is `Sync`; all else is so by itself.
unsafe impl<P: Platform> Sync for Services<P> {}

/// A runtime, as its pools know it.
pub(crate) trait Host<P: Platform>: Send + Sync {
    /// Starts the thread of `worker`, an entry of `pool`.
    fn start_thread(&self, pool: &Pool<P>, worker: &Worker<P>) -> Result<(), Denied>;

    /// The limit on threads has refused a worker that the pool needs.
    fn want_thread(&self, pool: &Pool<P>);

    /// As [`want_thread`](Self::want_thread), after that has had no effect for long. By the monitor.
    fn want_thread_badly(&self, pool: &Pool<P>);

    /// Something has come to the pool, or a user: the monitor must check it.
    fn put_into_service(&self, pool: &Pool<P>);

    /// Whether nothing new is accepted, because the runtime is shut down.
    fn is_shut(&self) -> bool;
}

impl<P: Platform> Services<P> {
    /// The services of that runtime, of which they are a part.
    pub(crate) fn new(host: *const dyn Host<P>, alarm: Alarm<P>, homes: Arc<Homes<P>>) -> Self {
        Services {
            workers: WorkerSlab::new(),
            alarm,
            homes,
            has_unused: P::AtomicU32::new(0),
            rescuers_missing: P::AtomicU32::new(0),
            departures: WaitQueue::new(),
            host,
        }
    }

    /// The runtime.
    pub(crate) fn host(&self) -> &dyn Host<P> {
        // SAFETY: the services are a part of it.
        unsafe { &*self.host }
    }
}
