//! [`QueueView`]: what can be read of a queue and changed, without the right to queue.

mod live;
mod reading;

use std::sync::Arc;

use nearq_platform::{Linux, Platform};

use crate::queue::Queue;
use crate::queue::runtime::Runtime;

/// Reads and changes a workqueue's settings, and reads its statistics and limits. It cannot queue.
///
/// [`Workqueue`](crate::Workqueue) and [`Handle`](crate::Handle) dereference to it. [`Workqueue::view`](crate::Workqueue::view) and
/// [`Runtime::queues`] return one of its own.
///
/// A view does not keep the queue open: the drop of the last `Workqueue` drains the queue as usual. What a view reads afterwards no longer
/// changes, and changes are refused ([`Error::Ended`](crate::Error::Ended)). The memory of the queue is freed with the last view or
/// handle.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{Workqueue, inspect::QueueView};
///
/// fn print(queue: &QueueView) {
///     println!("{} ({}): {} items held back", queue.name(), queue.affinity_scope_in_words(), queue.inactive());
///     for pool in queue.statistics() {
///         println!("  CPUs {}: {} executions, {:?} of CPU time", pool.pod, pool.completed, pool.cpu_time);
///     }
/// }
///
/// let queue = Workqueue::builder("shown").build()?;
/// queue.spawn(|| ()).join().unwrap();
/// print(&queue);
///
/// // A setter is in effect for the next item.
/// queue.set_max_active(4)?;
/// assert_eq!(queue.max_active(), 4);
/// # Ok::<(), nearq::Error>(())
/// ```
pub struct QueueView<P: Platform = Linux> {
    pub(super) queue: Arc<Queue<P>>,
}

impl<P: Platform> Runtime<P> {
    /// Returns the queues that have not ended, oldest first. A queue whose last [`Workqueue`](crate::Workqueue) is being dropped is
    /// included until its last item has run.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Runtime, Workqueue};
    ///
    /// let queue = Workqueue::builder("visible").build()?;
    /// assert!(Runtime::global().queues().iter().any(|queue| queue.name() == "visible"));
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn queues(&self) -> Vec<QueueView<P>> {
        // A queue that has ended stays in memory while it has views and handles.
        let queues = self.inner().live_queues().into_iter().filter(|queue| !queue.has_ended());
        queues.map(|queue| QueueView { queue }).collect()
    }
}

impl<P: Platform> Clone for QueueView<P> {
    fn clone(&self) -> Self {
        QueueView { queue: Arc::clone(&self.queue) }
    }
}

impl<P: Platform> core::fmt::Debug for QueueView<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("QueueView").field("id", &self.id()).field("name", &self.name()).finish()
    }
}
