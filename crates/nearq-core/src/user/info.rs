//! Pools and workers for display: copies, made for the caller.

use core::time::Duration;

use nearq_platform::Platform;
use nearq_topology::CpuSet;

use crate::base::ids::PoolId;
use crate::pool::Pool;
use crate::pool::worker::Worker;
use crate::queue::runtime::Runtime;

/// A pool: the workers of one pod, for one priority. See [`Runtime::pools`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolInfo {
    /// The pool's number.
    pub id: PoolId,
    /// The nice value that was set for its workers.
    pub nice: i32,
    /// Whether its workers are of the class `SCHED_IDLE`.
    pub idle_class: bool,
    /// The time slice that was set for its workers; `None` is the system's own.
    pub slice: Option<Duration>,
    /// Whether it is the pool of one CPU, for per-CPU queues.
    pub bound: bool,
    /// Whether its workers never leave the pod.
    pub strict: bool,
    /// Whether idle workers of other pods take its items.
    pub helping: bool,
    /// The CPUs of its pod.
    pub pod: CpuSet,
    /// The CPUs that its workers may go to.
    pub allowed: CpuSet,
    /// The number of its workers.
    pub workers: usize,
    /// How many of its workers sleep for lack of work, or of a free CPU.
    pub sleeping: usize,
    /// Items that wait for a worker; the newest are not counted yet.
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

/// A worker thread; see [`Runtime::workers`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerState {
    /// The number of its pool.
    pub pool: PoolId,
    /// The thread's number in the system's own tools (on Linux, its thread ID).
    pub thread_id: Option<u64>,
    /// Whether it is a queue's [rescuer](crate::WorkqueueBuilder::rescuer), which works for the pool now.
    pub rescuer: bool,
    /// Whether it sleeps for lack of work, or of a free CPU.
    pub sleeping: bool,
    /// The name of the function that it runs, or that it ran last before it searched for more work.
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
    /// Returns the pools that queues use, and those that still have threads. For tools that show how the runtime divides the machine, and
    /// how many threads each part has.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// # let queue = nearq::Workqueue::builder("shown").build()?;
    /// # queue.spawn(|| ()).join().unwrap();
    /// for pool in nearq::Runtime::global().pools() {
    ///     println!("pool {} on CPUs {}: {} workers, {} asleep", pool.id, pool.pod, pool.workers, pool.sleeping);
    /// }
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn pools(&self) -> Vec<PoolInfo> {
        let pools = self.inner().pools.lock();
        let used = pools.in_service().filter(|pool| pool.is_used() || pool.threads().0 != 0);
        used.map(|pool| PoolInfo::of(pool)).collect()
    }

    /// Returns every worker, those that sleep included. For tools that find out what a thread of the program is; [`running`](Self::running)
    /// says more about the items that run.
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
