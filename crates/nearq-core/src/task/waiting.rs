//! Waiting for one item: [`Work::flush`], [`Work::cancel_sync`], and [`Flushed`], the same as a future.
//!
//! `guard` describes how an item counts what has ended; this file waits for the count.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use nearq_platform::{Linux, Platform};

use crate::base::error::Error;
use crate::base::wait_queue::Listener;
use crate::item::{Item, PENDING, RUNNING};
use crate::limit::node_active::NodeActive;
use crate::pool::context::wait_until;
use crate::task::work::Work;

/// A wait for what was on its way when this was made.
struct Waiting<P: Platform> {
    work: Work<P>,
    target: u64,
    /// The process in which it was on its way; in a child of that process it will not end.
    epoch: u64,
}

impl<P: Platform> Waiting<P> {
    /// Begins to wait for the running execution, and for the queued one if `queued`; nothing if there is none.
    fn begin(work: &Work<P>, queued: bool) -> Option<Self> {
        let target = work.header().begin_wait(queued)?;
        Some(Waiting { work: work.clone(), target, epoch: P::fork_epoch() })
    }

    fn is_of_this_process(&self) -> bool {
        self.epoch == P::fork_epoch()
    }

    fn is_over(&self) -> bool {
        !self.is_of_this_process() || self.work.header().has_ended(self.target)
    }

    fn wait(self) {
        wait_until(&self.work.header().ext().waiters, None, || self.is_over());
    }
}

impl<P: Platform> Drop for Waiting<P> {
    fn drop(&mut self) {
        if self.is_of_this_process() {
            self.work.header().end_wait();
        }
    }
}

impl<P: Platform> Work<P> {
    /// Blocks until the item's last queueing has been executed: the pending execution or, if there is none, the running one. Returns
    /// whether there was something to wait for. What the execution did is visible. The form to await is [`flushed`](Self::flushed).
    ///
    /// Does not wait for queueings that come meanwhile: when it returns, the item is idle unless it has been queued again. Nor does it wait
    /// for an item on a timer (see [`flush_delayed`](Self::flush_delayed)). If the execution is cancelled meanwhile, the wait ends.
    ///
    /// # Errors
    /// [`Error::Deadlock`] if the wait would never end: inside the item's own function; or if the limit of its queue holds this item back,
    /// and all items that count under that limit would wait like that. A closure of the item's own [`join`](crate::join) that another worker
    /// runs does not count as inside: there, the call waits for ever.
    pub fn flush(&self) -> Result<bool, Error> {
        self.refuse_own(FLUSH_OWN)?;
        if !self.is_busy() {
            return Ok(false);
        }
        let Some(waiting) = Waiting::begin(self, true) else { return Ok(false) };
        let beside = Beside::begin(self.header()).ok_or(Error::Deadlock(FLUSH_BEHIND))?;
        waiting.wait();
        drop(beside);
        Ok(true)
    }

    /// Returns a future that does what [`flush`](Self::flush) does. It waits for what is pending or running now, when it is made, not when
    /// it is first polled.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Work, Workqueue};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let work = Work::new(|_| println!("it runs"));
    /// queue.queue(&work);
    /// let task = async move {
    ///     let waited = work.flushed().await?;
    ///     println!("it has run; {}", if waited { "this waited for it" } else { "it had ended before" });
    ///     assert!(!work.is_pending() && !work.is_running());
    ///     Ok::<(), nearq::Error>(())
    /// };
    /// # queue.spawn_future(task).join()??;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Deadlock`] if it is polled inside the item's own function.
    pub fn flushed(&self) -> Flushed<P> {
        let waiting = if self.is_busy() { Waiting::begin(self, true) } else { None };
        Flushed { waiting, listener: Listener::new(), waited: false }
    }

    /// Blocks as [`flush`](Self::flush) does, but queues an item that is on a timer at once instead of at its time.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn flush_delayed(&self) -> Result<bool, Error> {
        self.refuse_own(FLUSH_OWN)?;
        let timed = crate::queue::delay::expedite(self.header());
        Ok(self.flush()? || timed)
    }

    /// Waits until no execution runs that began before the call.
    fn wait_for_running(&self) {
        if self.header().is_running() {
            if let Some(waiting) = Waiting::begin(self, false) {
                waiting.wait();
            }
        }
    }

    /// Cancels the pending execution, and blocks until the item does not run. Returns true if the item was pending; it is not executed for
    /// that queueing.
    ///
    /// Meanwhile the item refuses to be queued, so this ends even if the item keeps queueing itself. When it returns, the item is neither
    /// pending nor running, unless it has been queued since. What its executions did is visible.
    ///
    /// There is no form to await. In an async task, call [`disable`](Self::disable), await [`flushed`](Self::flushed), and call
    /// [`enable`](Self::enable).
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Work, Workqueue};
    ///
    /// let queue = Workqueue::builder("again").build()?;
    /// // It queues itself without end, through a handle that does not keep the queue open.
    /// let handle = queue.handle();
    /// let work = Work::new(move |work: &Work| drop(handle.try_queue(work)));
    /// queue.queue(&work);
    /// work.cancel_sync()?;
    /// assert!(!work.is_pending() && !work.is_running());
    /// # Ok::<(), nearq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Deadlock`] inside the item's own function; nothing is cancelled then.
    pub fn cancel_sync(&self) -> Result<bool, Error> {
        self.refuse_own(CANCEL_OWN)?;
        self.header().disable_for_now();
        let cancelled = self.header().cancel();
        self.wait_for_running();
        self.header().enable_after();
        Ok(cancelled)
    }

    /// Disables the item as [`disable`](Self::disable) does, and blocks until it does not run. Returns true if the item was pending. What
    /// its executions did is visible. To await that instead, call `disable`, and then await [`flushed`](Self::flushed).
    ///
    /// # Errors
    /// [`Error::Deadlock`] inside the item's own function; it is not disabled then.
    ///
    /// # Panics
    /// As [`disable`](Self::disable).
    pub fn disable_sync(&self) -> Result<bool, Error> {
        self.refuse_own(CANCEL_OWN)?;
        let cancelled = self.disable();
        self.wait_for_running();
        Ok(cancelled)
    }

    fn is_busy(&self) -> bool {
        self.header().current() & (PENDING | RUNNING) != 0
    }

    fn refuse_own(&self, why: &'static str) -> Result<(), Error> {
        if crate::base::executing::executes::<P>(self.item().as_raw().as_ptr().cast_const().cast())
        {
            Err(Error::Deadlock(why))
        } else {
            Ok(())
        }
    }
}

/// The caller's item, which has a place of a limit, waits for one that is held back by that limit.
///
/// If all that have a place wait like that, none of them can end: the items that they wait for are held back, or wait themselves. So the
/// last one that would begin to wait is refused. The number is that of the process in which it began to wait; a child of that process does
/// not count it.
pub(crate) struct Beside<P: Platform>(Option<(*const NodeActive<P>, u64)>);

impl<P: Platform> Beside<P> {
    /// Begins to wait for `item`; nothing if that would never end.
    pub(crate) fn begin(item: &Item<P>) -> Option<Self> {
        Self::in_domain(item.held_back_beside_caller())
    }

    /// Begins to wait for an item that is held back in `domain`, where the caller's item has a place.
    pub(crate) fn in_domain(domain: Option<*const NodeActive<P>>) -> Option<Self> {
        // SAFETY: it exists while the caller's item runs.
        if domain.is_some_and(|domain| !unsafe { &*domain }.begin_waiting()) {
            // No value is made, because its drop would end a wait that has not begun.
            return None;
        }
        Some(Beside(domain.map(|domain| (domain, P::fork_epoch()))))
    }
}

impl<P: Platform> Drop for Beside<P> {
    fn drop(&mut self) {
        if let Some((domain, _)) = self.0.filter(|(_, epoch)| *epoch == P::fork_epoch()) {
            // SAFETY: the item in which the wait began still runs, which keeps its queue alive, and so the domain.
            unsafe { &*domain }.end_waiting();
        }
    }
}

const FLUSH_OWN: &str = "an item's function cannot wait for the end of the item itself; let another item or thread wait for it";
const CANCEL_OWN: &str = "an item's function cannot wait for the end of the item itself; inside it, use `cancel` or `disable`, which do not wait";
const FLUSH_BEHIND: &str = "the item is held back by its queue's limit, and every item that is admitted by that limit waits like this one; let the caller end first, use two queues, or raise max_active";

/// A future that waits for an item; returned by [`Work::flushed`]. Its output is whether there was something to wait for.
///
/// [`JoinHandle`](crate::JoinHandle#wakers) says which thread calls its waker, and what applies if threads are refused.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Flushed<P: Platform = Linux> {
    /// Dropped before the item: a waker that is left is dropped here, and not where the last hold on the item's memory is given back.
    listener: Listener<P>,
    waiting: Option<Waiting<P>>,
    waited: bool,
}

impl<P: Platform> Unpin for Flushed<P> {}

impl<P: Platform> Future for Flushed<P> {
    type Output = Result<bool, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(waiting) = &this.waiting else { return Poll::Ready(Ok(this.waited)) };
        waiting.work.refuse_own(FLUSH_OWN)?;
        let waiters = &waiting.work.header().ext().waiters;
        if !this.listener.poll_until(waiters, context.waker(), || waiting.is_over()) {
            P::retry_now();
            return Poll::Pending;
        }
        this.waited = true;
        this.waiting = None;
        Poll::Ready(Ok(true))
    }
}

impl<P: Platform> core::fmt::Debug for Flushed<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let over = self.waiting.as_ref().is_none_or(Waiting::is_over);
        f.debug_struct("Flushed").field("over", &over).finish_non_exhaustive()
    }
}
