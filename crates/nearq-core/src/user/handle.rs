//! A queue for who looks at it from outside: it can be read and changed, and ends whenever its owner ends it.

use std::sync::Arc;

use nearq_platform::{Linux, Platform};
use nearq_topology::CpuSet;

use crate::base::error::Error;
use crate::home::{Home, QueueMemory};
use crate::layout::attributes::{Attributes, Kind};
use crate::layout::domain::DomainLimit;
use crate::limit::link::{InHand, LinkStatistics};
use crate::observe::histogram::Times;
use crate::queue::Queue;
use crate::queue::runtime::Runtime;
use crate::user::settings::change_of_bounds;
use crate::user::workqueue::Workqueue;

/// A workqueue, for who looks at it from outside. Nothing can be queued through it.
///
/// It does not keep the queue from ending: its owner's drop drains the queue as ever, and what a handle reads afterwards does not change
/// any more. To be held for a short time: the memory of the queue goes with the last handle.
pub struct QueueHandle<P: Platform = Linux> {
    queue: Arc<Queue<P>>,
}

impl<P: Platform> Runtime<P> {
    /// The queues whose end has not begun, oldest first.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Runtime, Workqueue};
    ///
    /// let queue = Workqueue::builder("visible").build()?;
    /// assert!(Runtime::default().queues().iter().any(|queue| queue.name() == "visible"));
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn queues(&self) -> Vec<QueueHandle<P>> {
        let queues = self.inner().live_queues().into_iter();
        queues.map(|queue| QueueHandle { queue }).collect()
    }
}

impl<P: Platform> Workqueue<P> {
    /// The queue, for who looks at it from outside.
    pub fn handle(&self) -> QueueHandle<P> {
        QueueHandle { queue: Arc::clone(self.shared()) }
    }
}

impl<P: Platform> QueueHandle<P> {
    /// Its number, from 1 on; no other queue of the runtime ever has it.
    pub fn id(&self) -> u64 {
        self.queue.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.queue.name
    }

    /// Whether it is a per-CPU queue.
    pub fn is_per_cpu(&self) -> bool {
        self.queue.kind == Kind::PerCpu
    }

    /// Whether it is an ordered queue.
    pub fn is_ordered(&self) -> bool {
        self.queue.kind == Kind::Ordered
    }

    /// Whether it has a rescuer.
    pub fn has_rescuer(&self) -> bool {
        self.queue.rescuer().is_some()
    }

    /// The thread of its rescuer, in the system's own tools; none where it has none now.
    pub fn rescuer_thread_id(&self) -> Option<u64> {
        self.queue.rescuer().and_then(|rescuer| rescuer.thread()).map(P::thread_id)
    }

    /// The CPUs that its rescuer's thread may run on now.
    pub fn rescuer_cpumask(&self) -> Option<CpuSet> {
        let thread = self.queue.rescuer().and_then(|rescuer| rescuer.thread())?;
        P::affinity(thread).ok()
    }

    /// Where items are at home that have no home of their own.
    pub fn home(&self) -> Option<Home<P>> {
        self.queue.home()
    }

    /// Changes that; in effect for the next item.
    ///
    /// # Errors
    /// The queue is a per-CPU one.
    pub fn set_home(&self, home: Option<&Home<P>>) -> Result<(), Error> {
        self.queue.set_home(home)
    }

    /// Where the memory comes from that items touch first.
    pub fn memory(&self) -> QueueMemory {
        self.queue.memory()
    }

    /// Changes that; in effect for the next item.
    ///
    /// # Errors
    /// The queue is a per-CPU one.
    pub fn set_memory(&self, memory: QueueMemory) -> Result<(), Error> {
        self.queue.set_memory(memory)
    }

    /// The attributes as they were set.
    pub fn attributes(&self) -> Attributes {
        self.queue.attributes()
    }

    /// The scope in words, as [`Workqueue::scope_in_words`].
    pub fn scope_in_words(&self) -> String {
        self.queue.scope_in_words()
    }

    /// The CPUs that items may run on now.
    pub fn effective_cpumask(&self) -> CpuSet {
        self.queue.layout().effective
    }

    /// The nice value that the workers really have; see [`Workqueue::effective_nice`].
    pub fn effective_nice(&self) -> i32 {
        self.queue.effective_nice()
    }

    /// Where items go that are queued on a CPU: the pool's number, by CPU number.
    pub fn pools_by_cpu(&self) -> Vec<u32> {
        self.queue.pools_by_cpu()
    }

    /// The limit as it was set.
    pub fn max_active(&self) -> usize {
        self.queue.bounds().max_active
    }

    /// What each node may have active at least.
    pub fn min_active(&self) -> usize {
        self.queue.bounds().min_active
    }

    /// How the limit stands in each of its domains; see [`Workqueue::limits`].
    pub fn limits(&self) -> Vec<DomainLimit> {
        self.queue.limits()
    }

    /// What has happened, by pool; pools of earlier attributes included.
    pub fn statistics(&self) -> Vec<LinkStatistics> {
        self.queue.statistics()
    }

    /// What is under way.
    pub fn in_hand(&self) -> InHand {
        self.queue.in_hand()
    }

    /// How long items waited from queueing to start, and how long they ran, since they were
    /// [timed](Runtime::time_items) for the first time; none before.
    pub fn times(&self) -> Option<(Times, Times)> {
        self.queue.observed.read()
    }

    /// Changes attributes and the limit: all of it or, with an error, nothing. In effect for the next item when it returns.
    ///
    /// # Errors
    /// Something cannot be carried out, or cannot be chosen for this kind of queue; the queue has ended.
    pub fn change(
        &self,
        change: impl FnOnce(&mut Attributes),
        max_active: Option<usize>,
        min_active: Option<usize>,
    ) -> Result<(), Error> {
        let (runtime, kind) = (self.queue.runtime(), self.queue.kind);
        self.queue.change_both(change, change_of_bounds(runtime, kind, max_active, min_active)?)
    }
}

impl<P: Platform> core::fmt::Debug for QueueHandle<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("QueueHandle").field("id", &self.id()).field("name", &self.name()).finish()
    }
}
