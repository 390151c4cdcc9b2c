//! Delayed items that may be late, so that several of them share a wake-up: what the kernel's deferrable timers are for.

use core::time::Duration;

use nearq_platform::Platform;

use crate::task::work::Work;
use crate::user::handle::Handle;
use crate::user::workqueue::Workqueue;

impl<P: Platform> Workqueue<P> {
    /// Queues `work` as [`queue_delayed`](Self::queue_delayed) does, once `delay` has passed, or up to `slack` later. For periodic work that
    /// is not urgent, in programs that are mostly idle: items with slack are queued at common instants, also those of different programs, so
    /// they wake idle CPUs less often.
    ///
    /// The instants of items with the same slack are more than half of it apart, those of items with more slack are among them: any number of
    /// items with a slack of a second cause at most two wake-ups a second.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Work, Workqueue};
    /// use std::time::Duration;
    ///
    /// let queue = Workqueue::builder("housekeeping").build()?;
    /// let again = queue.handle();
    /// // Every 60 to 90 seconds.
    /// let (minute, half) = (Duration::from_secs(60), Duration::from_secs(30));
    /// let trim = Work::new(move |work| {
    ///     println!("give unused memory back");
    ///     again.queue_delayed_within(work, minute, half);
    /// });
    /// queue.queue_delayed_within(&trim, minute, half);
    /// # trim.disable();
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn queue_delayed_within(&self, work: &Work<P>, delay: Duration, slack: Duration) -> bool {
        let queue = self.shared();
        let queued = queue.try_queue_within(work.item(), P::current_cpu(), delay, slack);
        queue.queued_or_warn(queued)
    }
}

impl<P: Platform> Handle<P> {
    /// Queues `work` later, as [`Workqueue::queue_delayed_within`] does. Also returns false if the queue has ended.
    pub fn queue_delayed_within(&self, work: &Work<P>, delay: Duration, slack: Duration) -> bool {
        let queue = self.shared();
        let arm = || queue.try_queue_within(work.item(), P::current_cpu(), delay, slack);
        queue.queued_or_warn(self.arm(arm))
    }
}
