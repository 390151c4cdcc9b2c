//! What can be read of a workqueue.

use nearq_platform::Platform;
use nearq_topology::CpuSet;

use super::QueueView;
use crate::base::ids::{PoolId, QueueId, QueueKind};
use crate::homes::{Home, MemoryPolicy};
use crate::layout::attributes::Attributes;
use crate::layout::domain::DomainLimit;
use crate::limit::statistics::{InFlight, PoolStatistics};
use crate::observe::histogram::QueueTimes;
use crate::queue::runtime::Runtime;

impl<P: Platform> QueueView<P> {
    /// Returns the queue's number: from 1 on, and never used for another queue of the runtime.
    pub fn id(&self) -> QueueId {
        self.queue.id
    }

    /// Returns the queue's name.
    pub fn name(&self) -> &str {
        &self.queue.name
    }

    /// Returns the runtime that the queue is on.
    pub fn runtime(&self) -> &Runtime<P> {
        self.queue.runtime()
    }

    /// Returns whether it is a [per-CPU queue](crate::WorkqueueBuilder::per_cpu).
    pub fn is_per_cpu(&self) -> bool {
        self.queue.kind == QueueKind::PerCpu
    }

    /// Returns whether it is an [ordered queue](crate::WorkqueueBuilder::ordered).
    pub fn is_ordered(&self) -> bool {
        self.queue.kind == QueueKind::Ordered
    }

    /// Returns whether [`Runtime::freeze`] holds its items back.
    pub fn is_freezable(&self) -> bool {
        self.queue.flags.freezable
    }

    /// Returns whether it has a [rescuer](crate::WorkqueueBuilder::rescuer).
    pub fn has_rescuer(&self) -> bool {
        self.queue.rescuer().is_some()
    }

    /// Returns the home of items that have no home of their own.
    pub fn home(&self) -> Option<Home<P>> {
        self.queue.home()
    }

    /// Returns which node the memory that items touch first comes from.
    pub fn memory(&self) -> MemoryPolicy {
        self.queue.memory()
    }

    /// Returns the attributes as they were set.
    pub fn attributes(&self) -> Attributes {
        self.queue.attributes()
    }

    /// Returns the scope in words: `cache`; `default (cache_shard)` if the runtime's default is followed; `cache (off)` if affinity is off;
    /// `per-cpu` for a per-CPU queue; `ordered` for an ordered one.
    pub fn affinity_scope_in_words(&self) -> String {
        self.queue.affinity_scope_in_words()
    }

    /// Returns the CPUs that items may run on now: the part of the mask that the process may use, or all that the process may use if that
    /// part is empty.
    pub fn effective_cpumask(&self) -> CpuSet {
        self.queue.layout().effective
    }

    /// Returns the nice value that the queue's workers actually have: the one that was set, or the nearest that is allowed. 19 with
    /// [`sched_idle`](crate::WorkqueueBuilder::sched_idle).
    ///
    /// It is taken from the last worker with that nice value that was started, for any queue. Before there was one, it is what the caller
    /// could have for itself, according to the limit `RLIMIT_NICE` and an attempt, which leaves the caller's value as it was.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    ///
    /// let queue = Workqueue::builder("urgent").highpri().build()?;
    /// if queue.effective_nice() > -20 {
    ///     eprintln!("not as urgent as requested: nice {}", queue.effective_nice());
    /// }
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn effective_nice(&self) -> i32 {
        self.queue.effective_nice()
    }

    /// Returns the CPUs of each pod in effect, in the order of their first CPUs.
    pub fn pods(&self) -> Vec<CpuSet> {
        self.queue.layout().pools.into_iter().map(|pool| pool.pod).collect()
    }

    /// Returns what has happened, by pool, pools of earlier attributes included. No number ever decreases. Reading them costs the workers
    /// nothing.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    ///
    /// let queue = Workqueue::builder("counted").build()?;
    /// (0..10).for_each(|_| drop(queue.spawn(|| ())));
    /// queue.flush()?;
    /// let completed: u64 = queue.statistics().iter().map(|pool| pool.completed).sum();
    /// assert_eq!(completed, 10);
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn statistics(&self) -> Vec<PoolStatistics> {
        self.queue.statistics()
    }

    /// Returns the limit as it was set: how many items may be active at once. See
    /// [`WorkqueueBuilder::max_active`](crate::WorkqueueBuilder::max_active).
    pub fn max_active(&self) -> usize {
        self.attributes().max_active
    }

    /// Returns how many items may be active on each node even if its share of the limit is smaller; see
    /// [`WorkqueueBuilder::min_active`](crate::WorkqueueBuilder::min_active).
    pub fn min_active(&self) -> usize {
        self.attributes().min_active
    }

    /// Returns the state of the limit in each [domain](crate::inspect::Domain) in which it is counted, ordered by domain. Domains that the
    /// queue no longer uses are included. The numbers are read one after the other while items come and go.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    ///
    /// let queue = Workqueue::builder("limited").max_active(16).build()?;
    /// for row in queue.limits() {
    ///     println!("{} (CPUs {}): {} of {} active, {} held back", row.domain, row.cpus, row.active, row.limit, row.inactive);
    /// }
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn limits(&self) -> Vec<DomainLimit> {
        self.queue.limits()
    }

    /// Returns the number of items that the limit holds back.
    pub fn inactive(&self) -> usize {
        self.queue.inactive()
    }

    /// Returns the number of its rescuer's thread in the system's own tools; `None` if it has no rescuer now.
    pub fn rescuer_thread_id(&self) -> Option<u64> {
        self.queue.rescuer().and_then(|rescuer| rescuer.thread()).map(P::thread_id)
    }

    /// Returns the CPUs that its rescuer's thread may run on now; `None` if it has no rescuer now.
    pub fn rescuer_cpumask(&self) -> Option<CpuSet> {
        let thread = self.queue.rescuer().and_then(|rescuer| rescuer.thread())?;
        P::affinity(thread).ok()
    }

    /// Returns the pools by CPU number: the pool to which an item goes that is queued on that CPU.
    pub fn pools_by_cpu(&self) -> Vec<PoolId> {
        self.queue.pools_by_cpu()
    }

    /// Returns how many items run, wait for a worker, and are held back.
    pub fn in_flight(&self) -> InFlight {
        self.queue.in_flight()
    }

    /// Returns how long items waited from queueing to start, and how long they ran, counted since they were [timed](Runtime::time_items)
    /// for the first time; `None` if they never were.
    pub fn times(&self) -> Option<QueueTimes> {
        self.queue.observed.read()
    }
}
