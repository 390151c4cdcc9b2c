//! Pools and workers for display: copies, made for the caller.

use core::time::Duration;

use nearq_platform::Platform;
use nearq_topology::CpuSet;

use crate::base::ids::PoolId;
use crate::pool::Pool;
use crate::pool::worker::Worker;
use crate::queue::runtime::Runtime;

/// A pool, for display.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolInfo {
    /// Its number.
    pub id: PoolId,
    /// Its workers' nice value as asked for.
    pub nice: i32,
    /// Whether its workers are of the class `SCHED_IDLE`.
    pub idle_class: bool,
    /// Its workers' slice as asked for; `None` is the system's own.
    pub slice: Option<Duration>,
    /// Whether it is the pool of one CPU, for per-CPU queues.
    pub bound: bool,
    /// Whether its workers never leave the pod.
    pub strict: bool,
    /// Whether idle workers of other pods take its items.
    pub helping: bool,
    /// The pod's CPUs.
    pub pod: CpuSet,
    /// The CPUs that its workers may go to.
    pub allowed: CpuSet,
    /// Its threads.
    pub workers: usize,
    /// How many of them sleep.
    pub sleeping: usize,
    /// Items that were taken off the inbox and have not begun.
    pub ready: usize,
}

impl PoolInfo {
    pub(crate) fn of<P: Platform>(pool: &Pool<P>) -> Self {
        let (workers, sleeping) = pool.threads();
        PoolInfo {
            id: pool.id,
            nice: pool.key.priority.nice,
            idle_class: pool.key.priority.idle,
            slice: pool.key.priority.slice,
            bound: pool.key.bound,
            strict: pool.key.strict,
            helping: pool.key.helping,
            pod: pool.key.pod.clone(),
            allowed: pool.key.allowed.clone(),
            workers,
            sleeping,
            ready: pool.ready(),
        }
    }
}

/// A worker, for display.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerState {
    /// Its pool's number.
    pub pool: PoolId,
    /// The thread's number in the system's own tools.
    pub thread_id: Option<u64>,
    /// Whether it is a queue's [rescuer](crate::WorkqueueBuilder::rescuer) that is at the pool.
    pub rescuer: bool,
    /// Whether it sleeps.
    pub sleeping: bool,
    /// What it runs, or ran last before it looked for more.
    pub function: Option<&'static str>,
    /// The description that the item has set; see [`set_description`](crate::set_description).
    pub description: String,
}

impl WorkerState {
    pub(crate) fn of<P: Platform>(worker: &Worker<P>) -> Self {
        WorkerState {
            pool: worker.pool().id,
            thread_id: worker.thread.lock().map(P::thread_id),
            rescuer: worker.rescues(),
            sleeping: worker.is_idle(),
            function: worker.function(),
            description: worker.description(),
        }
    }
}

impl<P: Platform> Runtime<P> {
    /// The pools that queues use, and those that still have threads, for display.
    pub fn pools(&self) -> Vec<PoolInfo> {
        let pools = self.inner().pools.lock();
        let used = pools.in_service().filter(|pool| pool.is_used() || pool.threads().0 != 0);
        used.map(|pool| PoolInfo::of(pool)).collect()
    }

    /// Every worker, for display.
    pub fn workers(&self) -> Vec<WorkerState> {
        // A rescuer counts as one while it is at a pool.
        let workers = self
            .inner()
            .services
            .workers
            .iter()
            .filter(|worker| worker.is_alive() && !(worker.rescues() && worker.is_idle()));
        workers.map(WorkerState::of).collect()
    }
}
