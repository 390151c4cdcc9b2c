//! A queue without the right to queue: it can be read and changed, and ends when its owner ends it.

mod live;
mod reading;

use std::sync::Arc;

use nearq_platform::{Linux, Platform};

use crate::queue::Queue;
use crate::queue::runtime::Runtime;
use crate::user::workqueue::Workqueue;

/// A workqueue without the right to queue: it can be read, and its attributes can be changed. A [`Workqueue`] has all of this as well.
///
/// It does not keep the queue from ending: the drop of the last [`Workqueue`] drains the queue as usual, and what a handle reads afterwards
/// does not change any more. Hold it only for a short time: the memory of the queue is freed with the last handle.
pub struct QueueHandle<P: Platform = Linux> {
    pub(super) queue: Arc<Queue<P>>,
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

impl<P: Platform> QueueHandle<P> {
    /// The queue with the right to queue; none once its last [`Workqueue`] has been dropped. So an item can queue to its own queue without
    /// keeping it alive.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Work, Workqueue};
    ///
    /// let queue = Workqueue::builder("own").build()?;
    /// let own = queue.handle();
    /// let work = Work::new(move |work: &Work| {
    ///     if let Some(queue) = own.upgrade() {
    ///         queue.queue_delayed(work, std::time::Duration::from_secs(1));
    ///     }
    /// });
    /// queue.queue(&work);
    /// let handle = queue.handle();
    /// drop(queue);
    /// assert!(handle.upgrade().is_none());
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn upgrade(&self) -> Option<Workqueue<P>> {
        self.queue.try_add_owner().then(|| Workqueue::of(Arc::clone(&self.queue)))
    }
}

impl<P: Platform> Clone for QueueHandle<P> {
    fn clone(&self) -> Self {
        QueueHandle { queue: Arc::clone(&self.queue) }
    }
}

impl<P: Platform> core::fmt::Debug for QueueHandle<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("QueueHandle").field("id", &self.id()).field("name", &self.name()).finish()
    }
}
