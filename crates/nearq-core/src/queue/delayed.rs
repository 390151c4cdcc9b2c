//! Items that are queued when some time has passed: what a queue does for them before `delay` takes over.

use core::time::Duration;
use std::sync::Arc;

use nearq_platform::{Atomic, AtomicInt, Instant, Ordering, Platform};

use super::{Queue, SubmitKind};
use crate::base::error::Error;
use crate::item::owned::ItemRef;
use crate::item::{Item, PENDING};
use crate::timer::slack::meeting;

impl<P: Platform> Queue<P> {
    /// An item is on a timer for the queue from now on. The caller has a handle of the queue.
    pub(crate) fn begin_delay(&self) {
        // Relaxed: it is read after the last handle was dropped.
        self.delays.fetch_add(1, Ordering::Relaxed);
    }

    /// An item is not on a timer for the queue any more.
    pub(crate) fn end_delay(&self) {
        // Relaxed: if it is read too early, the timer looks for nothing.
        self.delays.fetch_sub(1, Ordering::Relaxed);
    }

    /// Items that are on a timer for the queue.
    #[cfg(test)]
    pub(crate) fn delays(&self) -> u32 {
        self.delays.load(Ordering::Relaxed)
    }

    /// Makes the timer look for items whose queue is gone, if there are any. After the rundown reference was closed.
    pub(crate) fn abandon_delays(&self) {
        if self.delays.load(Ordering::Relaxed) != 0 {
            self.inner().timer.sweep();
        }
    }

    /// Queues an item when some time has passed; false if it is pending already.
    pub(crate) fn try_queue_delayed(
        self: &Arc<Self>,
        item: ItemRef<'_, P>,
        cpu: usize,
        delay: Duration,
    ) -> Result<bool, Error> {
        if delay.is_zero() {
            return self.queue_for(item, cpu, SubmitKind::Again);
        }
        self.try_queue_at(item, cpu, P::now() + delay)
    }

    /// As [`try_queue_delayed`](Self::try_queue_delayed), at an instant from `delay` to `delay + slack` from now at which others meet.
    pub(crate) fn try_queue_within(
        self: &Arc<Self>,
        item: ItemRef<'_, P>,
        cpu: usize,
        delay: Duration,
        slack: Duration,
    ) -> Result<bool, Error> {
        let slack = u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX);
        let deadline = meeting((P::now() + delay).as_nanos(), slack);
        self.try_queue_at(item, cpu, Instant::from_nanos(deadline))
    }

    fn try_queue_at(
        self: &Arc<Self>,
        item: ItemRef<'_, P>,
        cpu: usize,
        deadline: Instant,
    ) -> Result<bool, Error> {
        // The timer is about to drop the items that it has.
        let shut = self.inner().is_shut();
        let guard = item.lock();
        let armed = !shut && crate::queue::delay::arm(&guard, self, cpu, deadline);
        guard.unlock();
        if armed {
            self.inner().timer.see_to_the_thread();
            return Ok(true);
        }
        self.why_not(&item)
    }

    /// As [`try_queue_delayed`](Self::try_queue_delayed), for a caller that does not want to know why the item is refused.
    pub(crate) fn queue_delayed(
        self: &Arc<Self>,
        item: ItemRef<'_, P>,
        cpu: usize,
        delay: Duration,
    ) -> bool {
        self.queued_or_warn(self.try_queue_delayed(item, cpu, delay))
    }

    /// As [`queue_delayed`](Self::queue_delayed), replacing an existing queueing; returns whether there was one.
    pub(crate) fn modify_delayed(
        self: &Arc<Self>,
        item: ItemRef<'_, P>,
        cpu: usize,
        delay: Duration,
    ) -> bool {
        let deadline = P::now() + delay;
        let mut attempt = 0;
        let mut pending = false;
        loop {
            let guard = item.lock();
            let Some(cancelled) = guard.cancel() else {
                guard.unlock();
                crate::base::pause::for_holder::<P>(&mut attempt);
                continue;
            };
            let armed = !delay.is_zero()
                && !self.inner().is_shut()
                && crate::queue::delay::arm(&guard, self, cpu, deadline);
            // Otherwise it is pending again, or disabled, or the runtime ends.
            let is_pending = guard.word() & PENDING != 0;
            guard.unlock();
            if armed {
                self.inner().timer.see_to_the_thread();
            } else if !delay.is_zero() && self.inner().is_shut() {
                self.warn_refused();
            }
            pending |= cancelled;
            // The item was idle for a moment: a queueing by a faster thread is taken back too.
            if !delay.is_zero() {
                if armed || !is_pending {
                    return pending;
                }
                continue;
            }
            match Item::claim(item, self.epoch()) {
                Some(node) => self.launch(item, node, cpu),
                None if item.is_disabled() => false,
                None => continue,
            };
            return pending;
        }
    }
}
