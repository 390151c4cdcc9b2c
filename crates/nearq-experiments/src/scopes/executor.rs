//! The interface that the experiment needs of a work queue with items that are made once and queued many times, and nearq's and the
//! kernel's queues behind it.

use crate::Error;
use crate::harness::{Census, Host, Role, failed};
use crate::kernel_queue::{self, Counting, KernelItem, KernelQueue};
use nearq::{Runtime, Work, Workqueue, inspect::PoolStatistics};
use nearq_sim::Sim;
use nearq_topology::AffinityScope;
use std::sync::Arc;

/// Items that a queue may have on its pools at once: the most that can be set. Further items wait; the order in which they
/// go on is a different question from where items run.
pub const MOST_ACTIVE: usize = 2048;

/// How a queue places its items: one line of the document's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// How CPUs are grouped into pods.
    pub scope: AffinityScope,
    /// Whether workers may never leave their pod.
    pub strict: bool,
    /// Whether an item runs on the CPU that queued it if a worker can.
    pub localize: bool,
    /// Whether idle workers of other pods take items; this has no effect if workers are strict or there is one pod.
    pub helping: bool,
}

/// A queue.
pub trait Executor: Send + Sync {
    /// An item that runs `function` each time that it is queued.
    fn item(&self, function: Box<dyn FnMut() + Send>) -> Box<dyn Item>;

    /// What its workers have done so far, if it counts that.
    fn counts(&self) -> Option<Counts> {
        None
    }
}

/// What the workers of a queue have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Items run.
    pub completed: u64,
    /// Items run by workers of other pods.
    pub helped: u64,
    /// How often a worker was brought back into its pod before an item.
    pub repatriated: u64,
}

/// A reusable item.
pub trait Item: Send {
    /// Queues the item from the calling thread. False means that it is queued already and has not started.
    fn queue(&self) -> bool;
}

/// A queue of nearq with this placement, on a runtime of its own whose workers are counted. It lives for one run.
pub(super) fn nearq<H: Host>(
    placement: Placement,
    census: &Census<H>,
) -> Result<Box<dyn Executor>, Error> {
    let census = census.clone();
    let runtime =
        Runtime::<H>::builder_in().on_worker_start(move |_| census.enter(Role::Worker)).build();
    let queue = runtime
        .map_err(failed)?
        .workqueue_builder("scopes")
        .affinity_scope(placement.scope)
        .affinity_strict(placement.strict)
        .localize(placement.localize)
        .helping(placement.helping)
        .max_active(MOST_ACTIVE)
        .build();
    Ok(Box::new(Queue(Arc::new(queue.map_err(failed)?))))
}

/// A queue, which keeps its runtime alive.
struct Queue<H: Host>(Arc<Workqueue<H>>);

impl<H: Host> Executor for Queue<H> {
    fn item(&self, mut function: Box<dyn FnMut() + Send>) -> Box<dyn Item> {
        let work = Work::new_in(move |_: &Work<H>| function());
        Box::new(Queued { queue: Arc::clone(&self.0), work })
    }

    fn counts(&self) -> Option<Counts> {
        let add = |sum: Counts, row: &PoolStatistics| Counts {
            completed: sum.completed + row.completed,
            helped: sum.helped + row.helped,
            repatriated: sum.repatriated + row.repatriated,
        };
        Some(self.0.statistics().iter().fold(Counts::default(), add))
    }
}

/// A queue of the kernel with this placement, whose workers are counted. Its workers never help other pods.
pub(super) fn kernel(
    placement: Placement,
    census: &Census<Sim>,
) -> Result<Box<dyn Executor>, Error> {
    let Placement { scope, strict, localize, .. } = placement;
    let placement = kernel_queue::Placement { scope, strict, localize };
    Ok(Box::new(KernelQueue::new(placement, (MOST_ACTIVE, Counting::CompareExchange), census)?))
}

impl Executor for KernelQueue {
    fn item(&self, function: Box<dyn FnMut() + Send>) -> Box<dyn Item> {
        Box::new(KernelQueue::item(self, function))
    }

    fn counts(&self) -> Option<Counts> {
        let kernel_queue::Counts { completed, repatriated } = KernelQueue::counts(self);
        Some(Counts { completed, helped: 0, repatriated })
    }
}

impl Item for KernelItem {
    fn queue(&self) -> bool {
        KernelItem::queue(self)
    }
}

struct Queued<H: Host> {
    queue: Arc<Workqueue<H>>,
    work: Work<H>,
}

impl<H: Host> Item for Queued<H> {
    fn queue(&self) -> bool {
        self.queue.queue(&self.work)
    }
}
