//! What a queue has done, and has to do, as readers see it.

use core::time::Duration;

use crate::base::ids::PoolId;

/// The items of a queue that have not ended. Read while items come and go, so each number may be a few too high or too low.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InFlight {
    /// Items that run.
    pub running: u64,
    /// Items that wait for a worker.
    pub waiting: u64,
    /// Items that the limit holds back.
    pub inactive: u64,
}

impl core::ops::AddAssign for InFlight {
    fn add_assign(&mut self, other: Self) {
        self.running += other.running;
        self.waiting += other.waiting;
        self.inactive += other.inactive;
    }
}

/// What one pool has done for one queue; see [`QueueView::statistics`](crate::inspect::QueueView::statistics), which also has an example.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::Workqueue;
///
/// let queue = Workqueue::builder("counted").build()?;
/// (0..100).for_each(|_| drop(queue.spawn(|| ())));
/// queue.flush()?;
/// for pool in queue.statistics() {
///     let elsewhere = pool.helped * 100 / pool.completed.max(1);
///     println!("CPUs {}: {:?} of CPU time; {elsewhere} % of the items ran in other pods", pool.pod, pool.cpu_time);
/// }
/// # Ok::<(), nearq::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// The pool's number.
    pub pool: PoolId,
    /// The CPUs of the pool's pod.
    pub pod: nearq_topology::CpuSet,
    /// Executions that have begun. For a moment, it may be too high by one for each worker.
    pub started: u64,
    /// Executions that have ended.
    pub completed: u64,
    /// Executions that ended in a panic; they count as completed too.
    pub panicked: u64,
    /// CPU time of the pool's workers while they ran this queue's items. It is counted when a worker pauses, and at least every millisecond
    /// between two items. If a worker ran items of several queues in that time, it divides the time by the number of items.
    pub cpu_time: Duration,
    /// How often a worker was brought back into its pod before it ran an item.
    pub repatriated: u64,
    /// Executions by workers of other pods.
    pub helped: u64,
    /// How often another worker was called because one slept inside an item, without having declared it with
    /// [`block_in_place`](crate::block_in_place). Counted when the item has ended.
    pub concurrency_wakeups: u64,
    /// How often an item of a per-CPU queue used its CPU for longer than the limit while others waited; see
    /// [`RuntimeBuilder::cpu_intensive_after`](crate::RuntimeBuilder::cpu_intensive_after). Counted when the item has ended.
    pub cpu_intensive: u64,
    /// How often the queue's [rescuer](crate::WorkqueueBuilder::rescuer) was called, because no worker could be started.
    pub mayday: u64,
    /// Executions that the rescuer has begun.
    pub rescued: u64,
    /// Executions of items with a [home](crate::home::Home) that began there.
    pub at_home: u64,
    /// Executions of items with a home that began elsewhere.
    pub away: u64,
    /// Executions that did nothing but run closures of a [`join`](crate::join) of other workers. They count as completed too; all other
    /// completed executions are of the program's own items.
    pub thieves: u64,
    /// Closures of a [`join`](crate::join) that another worker than the caller ran.
    pub stolen: u64,
}

impl PoolStatistics {
    /// Adds what has happened on another pwq of the same pool.
    pub(crate) fn add(&mut self, other: &PoolStatistics) {
        self.started += other.started;
        self.completed += other.completed;
        self.panicked += other.panicked;
        self.cpu_time += other.cpu_time;
        self.repatriated += other.repatriated;
        self.helped += other.helped;
        self.concurrency_wakeups += other.concurrency_wakeups;
        self.cpu_intensive += other.cpu_intensive;
        self.mayday += other.mayday;
        self.rescued += other.rescued;
        self.at_home += other.at_home;
        self.away += other.away;
        self.thieves += other.thieves;
        self.stolen += other.stolen;
    }
}
