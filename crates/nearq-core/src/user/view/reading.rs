//! What can be read of a workqueue.

use nearq_platform::Platform;
use nearq_topology::CpuSet;

use super::QueueView;
use crate::base::ids::{PoolId, QueueId, QueueKind};
use crate::homes::{Home, MemoryPolicy};
use crate::layout::attributes::Attributes;
use crate::layout::domain::DomainLimit;
use crate::limit::pool_workqueue::{InFlight, PoolStatistics};
use crate::observe::histogram::QueueTimes;
use crate::queue::runtime::Runtime;

impl<P: Platform> QueueView<P> {
    /// Its number, from 1 on; never used for another queue of the runtime.
    pub fn id(&self) -> QueueId {
        self.queue.id
    }

    /// The queue's name.
    pub fn name(&self) -> &str {
        &self.queue.name
    }

    /// The runtime that the queue is on.
    pub fn runtime(&self) -> &Runtime<P> {
        self.queue.runtime()
    }

    /// Whether it is a [per-CPU queue](crate::WorkqueueBuilder::per_cpu).
    pub fn is_per_cpu(&self) -> bool {
        self.queue.kind == QueueKind::PerCpu
    }

    /// Whether it is an [ordered queue](crate::WorkqueueBuilder::ordered).
    pub fn is_ordered(&self) -> bool {
        self.queue.kind == QueueKind::Ordered
    }

    /// Whether [`Runtime::freeze`] holds its items back.
    pub fn is_freezable(&self) -> bool {
        self.queue.flags.freezable
    }

    /// Whether it has a [rescuer](crate::WorkqueueBuilder::rescuer).
    pub fn has_rescuer(&self) -> bool {
        self.queue.rescuer().is_some()
    }

    /// The home of items that have no home of their own.
    pub fn home(&self) -> Option<Home<P>> {
        self.queue.home()
    }

    /// Where the memory that items touch first comes from.
    pub fn memory(&self) -> MemoryPolicy {
        self.queue.memory()
    }

    /// The attributes as they were set.
    pub fn attributes(&self) -> Attributes {
        self.queue.attributes()
    }

    /// The scope in words: `cache`; `default (cache_shard)` if the runtime's default is followed; `cache (off)` if affinity is off;
    /// `per-cpu` for a per-CPU queue; `ordered` for an ordered one.
    pub fn affinity_scope_in_words(&self) -> String {
        self.queue.affinity_scope_in_words()
    }

    /// The CPUs that items may run on now: the mask within what the process may use, or all of that if nothing is left.
    pub fn effective_cpumask(&self) -> CpuSet {
        self.queue.layout().effective
    }

    /// The nice value that the queue's workers actually have: the one that was set, or the nearest that is allowed. 19 with
    /// [`sched_idle`](crate::WorkqueueBuilder::sched_idle).
    ///
    /// Known from the last worker of that nice value that was started, for any queue. Before there was one, it is what the caller could
    /// have for itself: the limit `RLIMIT_NICE` and a try, which leaves the caller as it was.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    ///
    /// let queue = Workqueue::builder("urgent").highpri().build()?;
    /// if queue.effective_nice() > -20 {
    ///     eprintln!("not as urgent as asked for: nice {}", queue.effective_nice());
    /// }
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn effective_nice(&self) -> i32 {
        self.queue.effective_nice()
    }

    /// The pods in effect: their CPUs, in the order of their first CPU.
    pub fn pods(&self) -> Vec<CpuSet> {
        self.queue.layout().pools.into_iter().map(|pool| pool.pod).collect()
    }

    /// What has happened, by pool; pools of earlier attributes included. No number ever decreases. Costs the workers nothing.
    pub fn statistics(&self) -> Vec<PoolStatistics> {
        self.queue.statistics()
    }

    /// How many items may be on pools or running at once, as it was set; see
    /// [`WorkqueueBuilder::max_active`](crate::WorkqueueBuilder::max_active).
    pub fn max_active(&self) -> usize {
        self.attributes().max_active
    }

    /// The least number of items that may be active on each node; see
    /// [`WorkqueueBuilder::min_active`](crate::WorkqueueBuilder::min_active).
    pub fn min_active(&self) -> usize {
        self.attributes().min_active
    }

    /// The state of the limit in each of the domains in which it is counted, in the order of their numbers. Domains that the queue does not
    /// use any more are included. The numbers are read one after the other while items come and go.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    ///
    /// let queue = Workqueue::builder("limited").max_active(16).build()?;
    /// for row in queue.limits() {
    ///     println!("{} (CPUs {}): {} of {}, {} wait", row.domain, row.cpus, row.active, row.limit, row.inactive);
    /// }
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn limits(&self) -> Vec<DomainLimit> {
        self.queue.limits()
    }

    /// Items that wait because of the limit.
    pub fn inactive(&self) -> usize {
        self.queue.inactive()
    }

    /// The thread of its rescuer, in the system's own tools; none if it has none now.
    pub fn rescuer_thread_id(&self) -> Option<u64> {
        self.queue.rescuer().and_then(|rescuer| rescuer.thread()).map(P::thread_id)
    }

    /// The CPUs that its rescuer's thread may run on now.
    pub fn rescuer_cpumask(&self) -> Option<CpuSet> {
        let thread = self.queue.rescuer().and_then(|rescuer| rescuer.thread())?;
        P::affinity(thread).ok()
    }

    /// Where items go that are queued on each CPU: the pool's number, by CPU number.
    pub fn pools_by_cpu(&self) -> Vec<PoolId> {
        self.queue.pools_by_cpu()
    }

    /// What is under way.
    pub fn in_flight(&self) -> InFlight {
        self.queue.in_flight()
    }

    /// How long items waited from queueing to start, and how long they ran, since they were [timed](Runtime::time_items) for the first
    /// time; none before.
    pub fn times(&self) -> Option<QueueTimes> {
        self.queue.observed.read()
    }
}
