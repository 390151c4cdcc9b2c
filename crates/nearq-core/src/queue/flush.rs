//! Waiting for a queue: until what was queued before has ended (flush), until nothing is left (drain).
//!
//! # Flush: the pwqs are the colour
//! A flush must not wait for what is queued after it began, or a busy queue would hold it up for ever. The kernel paints each item in one
//! of 16 colours. Here an item is counted on its pwq anyway, so there are several *sets* of pwqs for the same pools, and issuers use one of
//! them at a time. A flush leads them to another set, and waits until the pwqs of all others are drained (`pool_workqueue`). Newer items
//! proceed meanwhile, and no item pays for the flush.
//!
//! A set is used again once all its pwqs are drained; there are at most [`SETS`]. Each time, its *generation* is incremented: a thread that
//! waited for the set sees from the generation that the set was drained, whatever has been queued there since.
//!
//! # Steps of a round, under the queue's configuration lock
//! 1. Check which sets are drained. If the set in use is drained, no other is needed.
//! 2. Choose a drained set, or make one. Increment its generation, give its pwqs their age, stop watching them as past.
//! 3. Publish the CPU map that leads to it.
//! 4. Watch the old pwqs as past. Take back their credits, which are not used any more.
//! 5. Remember the generations of the sets that are not drained: the flush waits for these, without any lock.
//!
//! # Why it is right
//! What the caller queued before is on some set. If that set was drained in step 1, it has ended. Otherwise either the caller waits for
//! that set, or the set is the one chosen in step 2, and was drained.
//! *Stragglers*: an issuer may have read the old CPU map and be slow. If its call returned before the flush began, its item is counted on
//! its pwq by then. If not, the two calls are concurrent, and the flush may miss it; the next one will not, because it checks all sets. *A
//! set is used again while a thread still checks it*: some pwqs are drained, the next has new items. The generation was incremented before
//! these could come, so a thread that finds a pwq that is not drained reads the generation afterwards. *No waiter is forgotten*: a waiter
//! marks the wait queue, then checks (`wait_queue`). On pwqs that are watched, the wait queue is checked after each end of an item. A
//! thread that stops the watch, because the set is used again, notifies as well.
//!
//! # All sets are in use
//! Then a new flush waits until one is drained. Not all waiters need a round of their own: a round that began after their call serves them
//! as well. They know it from the number of rounds: the next one may have begun before their call, the one after that has not.
//!
//! # Drain
//! A thread that drains a queue marks all its pwqs and closes the ceilings (`node_active`), so that every issuer takes the slow path, where
//! all but the queue's own items are refused. Then it waits until the queue [is empty](Queue::is_empty), on all pwqs at one moment,
//! because the queue's items may queue others elsewhere.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use nearq_platform::{Atomic, AtomicInt, Instant, Linux, Ordering, Platform};

use crate::base::error::Error;
use crate::base::wait_queue::Listener;
use crate::limit::pool_workqueue::{DRAINING, PAST, PoolWorkqueue};
use crate::pool::context::wait_until;
use crate::queue::sets::SETS;
use crate::queue::{Config, Queue};

/// How long the activation items of an ending queue wait for a worker; then the thread that ends the queue executes them.
const ACTIVATE_AFTER: Duration = Duration::from_millis(10);
/// How long a drain may take before a warning; ten times longer each time after.
const FIRST_WARNING: Duration = Duration::from_secs(10);
/// The most warnings.
const WARNINGS: u32 = 3;

const WITHIN_FLUSH: &str = "an item cannot flush its own workqueue: it would wait for itself; \
     flush it from a thread or from an item of another workqueue";
const WITHIN_DRAIN: &str = "an item cannot drain its own workqueue: it would wait for itself; \
     drain it from a thread or from an item of another workqueue";

/// The sets that a flush waits for, by their generations.
#[derive(Debug, Default)]
struct Waited([Option<u64>; SETS]);

/// The progress of a flush.
#[derive(Debug, Default)]
pub(crate) struct Flush {
    /// The number of rounds before the flush began.
    begun: Option<u64>,
    waited: Option<Waited>,
}

impl Flush {
    /// Goes on as far as it can without waiting; returns whether it is done. Call it again after each notification of the queue's wait
    /// queue.
    fn advance<P: Platform>(&mut self, queue: &Queue<P>) -> bool {
        if self.waited.is_none() {
            if self.begun.is_none() {
                self.begun = Some(queue.flushing.rounds());
                // An idle queue is recognised without any write.
                if queue.pwqs_in_service().all(PoolWorkqueue::is_drained) {
                    self.waited = Some(Waited::default());
                    return true;
                }
            }
            self.waited = queue.begin_round(self.begun.unwrap_or(0));
        }
        let Some(Waited(generations)) = &mut self.waited else { return false };
        for (set, generation) in generations.iter_mut().enumerate() {
            if generation.is_some_and(|generation| queue.is_over(set, generation)) {
                *generation = None;
            }
        }
        generations.iter().all(Option::is_none)
    }
}

impl<P: Platform> Queue<P> {
    // ---- flush ---------------------------------------------------------------------------------------------

    /// Waits until everything that was queued before the call has ended.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        if crate::queue::serves(self) {
            return Err(Error::Deadlock(WITHIN_FLUSH));
        }
        let mut flush = Flush::default();
        wait_until(&self.flushing.waiters, None, || flush.advance(self));
        Ok(())
    }

    /// Whether the set has been drained at some time since it was at that generation.
    fn is_over(&self, set: usize, generation: u64) -> bool {
        self.flushing.generation(set) != generation
            || self.pwqs_in_service().filter(|pwq| pwq.set == set).all(PoolWorkqueue::is_drained)
            || self.flushing.generation(set) != generation
    }

    /// Leads issuers to another set if need be; returns the sets to wait for. `None` if no set is available: try again after a notification
    /// of the wait queue.
    fn begin_round(&self, begun: u64) -> Option<Waited> {
        let mut config = self.lock_config();
        let mut busy = [false; SETS];
        for pwq in self.pwqs_in_service() {
            busy[pwq.set] = busy[pwq.set] || !pwq.is_drained();
        }
        let (current, made) = (config.sets.current, config.sets.made);
        let mut reused = false;
        if busy[current] {
            if let Some(free) = (0..made).find(|set| !busy[*set]) {
                self.switch(&mut config, free);
                reused = true;
            } else if made < SETS {
                config.sets.made += 1;
                self.switch(&mut config, made);
            } else if self.flushing.rounds() >= begun + 2 {
                // The last of these rounds began after the caller's call, which has nothing on this set.
                busy[current] = false;
            } else {
                return None;
            }
        }
        let waited = core::array::from_fn(|set| busy[set].then(|| self.flushing.generation(set)));
        drop(config);
        if reused {
            // A thread that waits for that set may have missed that it was drained. After the lock: wakers are foreign code.
            self.flushing.waiters.notify();
        }
        Some(Waited(waited))
    }

    /// Leads issuers to a set that is drained.
    fn switch(&self, config: &mut Config<P>, to: usize) {
        let from = core::mem::replace(&mut config.sets.current, to);
        // SeqCst: before anything can be queued there; see `is_over` and `InactiveQueue`. The threads that wait for the set are notified
        // afterwards: Dekker's pattern with `WaitQueue::mark`. Likewise `rounds`: a thread that has queued something reads it afterwards
        // (`advance`); a round increments it, then checks for what was queued (`PoolWorkqueue::is_drained`).
        self.flushing.generations[to].fetch_add(1, Ordering::SeqCst);
        let age = self.flushing.rounds.fetch_add(1, Ordering::SeqCst) + 1;
        for pwq in self.pwqs_in_service().filter(|pwq| pwq.set == to) {
            pwq.set_age(age);
            pwq.unwatch(PAST);
        }
        self.use_set(config);
        for pwq in self.pwqs_in_service().filter(|pwq| pwq.set == from) {
            pwq.watch(PAST);
            pwq.node_active().give_back(u64::from(pwq.credits.withdraw()));
        }
    }

    // ---- drain ---------------------------------------------------------------------------------------------

    /// Refuses what does not come from the queue's own items, until [`end_drain`](Self::end_drain).
    fn begin_drain(&self) {
        let mut config = self.lock_config();
        config.sets.drainers += 1;
        // Before the check whether the queue is empty.
        self.pwqs_in_service().for_each(|pwq| pwq.watch(DRAINING));
        self.domains().for_each(crate::limit::node_active::NodeActive::begin_drain);
    }

    /// Drains the queue for good. Calling it again is harmless.
    pub(crate) fn shut(&self) {
        let mut config = self.lock_config();
        if core::mem::replace(&mut config.sets.shut, true) {
            return;
        }
        config.sets.drainers += 1;
        self.pwqs_in_service().for_each(|pwq| pwq.watch(DRAINING));
        self.domains().for_each(crate::limit::node_active::NodeActive::shut);
    }

    /// Waits until nothing is left on a queue that is shut. False if the deadline came first.
    pub(crate) fn wait_until_empty(&self, deadline: Instant) -> bool {
        wait_until(&self.flushing.waiters, Some(deadline), || self.is_empty())
    }

    fn end_drain(&self) {
        let mut config = self.lock_config();
        config.sets.drainers -= 1;
        if config.sets.drainers == 0 {
            self.pwqs_in_service().for_each(|pwq| pwq.unwatch(DRAINING));
        }
        self.domains().for_each(crate::limit::node_active::NodeActive::end_drain);
    }

    /// Waits until nothing is left; the queue works again afterwards.
    pub(crate) fn drain(&self) -> Result<(), Error> {
        if crate::queue::serves(self) {
            return Err(Error::Deadlock(WITHIN_DRAIN));
        }
        Draining::begin(self).wait();
        Ok(())
    }

    /// Waits until nothing is left and no thread touches the queue any more. It never works again.
    pub(crate) fn end(&self) {
        // It is closed; a thread that was inside has counted its item by the time it is quiet.
        crate::pool::context::blocking::<P, _>(|| self.rundown.wait_until_quiet());
        let mut draining = Draining::begin(self);
        draining.wait();
        core::mem::forget(draining);
        // All that is left is a few instructions of a worker that runs, or of one that is preempted in them.
        let inner = self.inner();
        let is_left = || self.is_left() || inner.has_ended();
        while !wait_until(&inner.services.departures, Some(P::now() + ACTIVATE_AFTER), is_left) {
            self.carry_out_activations();
        }
        // This also covers a thread that has just cancelled the last item: otherwise it could not be known whether that thread has left.
        while !self.close_if_unused() {
            P::sleep(Duration::from_micros(50));
        }
    }

    /// Warns, once, that something was refused because the queue drains.
    #[cold]
    pub(crate) fn warn_refused(&self) {
        if self.flushing.warned.swap(1, Ordering::Relaxed) == 0 {
            P::warn(&format!("{}; this is reported once per workqueue", self.refusal()));
        }
    }

    /// Whether the item was queued, for a caller that does not ask why it was not. A disabled item and a queue that has ended are no
    /// surprise to such a caller; any other refusal is warned of, once.
    pub(crate) fn queued_or_warn(&self, result: Result<bool, Error>) -> bool {
        match result {
            Ok(queued) => queued,
            Err(Error::Disabled | Error::Ended { .. }) => false,
            Err(_) => {
                self.warn_refused();
                false
            }
        }
    }
}

/// Whether the caller is an item of the queue that keeps its place while it waits. A future does not: it ends each time that it is not
/// ready.
fn blocks_itself<P: Platform>(queue: &Queue<P>) -> bool {
    crate::queue::serves(queue) && !crate::pool::context::is_polling::<P>()
}

/// A queue that is being drained while this lives.
struct Draining<'a, P: Platform> {
    queue: &'a Queue<P>,
    begun: Instant,
    warnings: u32,
    /// The time from which on the drain takes too long.
    next: Option<Instant>,
    /// The process that drains; its children do not drain.
    epoch: u64,
}

impl<'a, P: Platform> Draining<'a, P> {
    fn begin(queue: &'a Queue<P>) -> Self {
        queue.begin_drain();
        let begun = P::now();
        let next = Some(begun + FIRST_WARNING);
        Draining { queue, begun, warnings: 0, next, epoch: P::fork_epoch() }
    }

    /// Waits until the queue is empty.
    fn wait(&mut self) {
        let queue = self.queue;
        while !wait_until(&queue.flushing.waiters, self.next, || queue.is_empty()) {
            self.warn_if_late();
        }
    }

    fn warn_if_late(&mut self) {
        let now = P::now();
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        let taken = FIRST_WARNING * 10_u32.pow(self.warnings);
        P::warn(&format!(
            "draining workqueue `{}` has taken {} s; {} items are left",
            self.queue.name,
            taken.as_secs(),
            self.queue.left()
        ));
        self.warnings += 1;
        let next = FIRST_WARNING * 10_u32.pow(self.warnings);
        self.next = (self.warnings < WARNINGS).then(|| self.begun + next);
    }
}

impl<P: Platform> Drop for Draining<'_, P> {
    fn drop(&mut self) {
        // In the child of a fork no thread drains (`Sets::after_fork_in_child`).
        if self.epoch == P::fork_epoch() {
            self.queue.end_drain();
        }
    }
}

// ---- as futures ----------------------------------------------------------------------------------------------

/// A future that waits until what was queued before has ended; returned by [`Workqueue::flushed`](crate::Workqueue::flushed).
///
/// Dropping it before it is done is harmless. [`JoinHandle`](crate::JoinHandle#wakers) says which thread calls its waker, and what applies
/// if threads are refused.
#[must_use = "a future does nothing unless it is polled"]
pub struct FlushedQueue<'a, P: Platform = Linux> {
    queue: &'a Queue<P>,
    flush: Flush,
    listener: Listener<P>,
}

/// A future that drains a queue; returned by [`Workqueue::drained`](crate::Workqueue::drained).
///
/// The queue refuses items from the first poll on. Dropping the future before it is done lets the queue work again.
/// [`JoinHandle`](crate::JoinHandle#wakers) says which thread calls its waker, and what applies if threads are refused.
#[must_use = "a future does nothing unless it is polled"]
pub struct DrainedQueue<'a, P: Platform = Linux> {
    queue: &'a Queue<P>,
    draining: Option<Draining<'a, P>>,
    listener: Listener<P>,
}

impl<'a, P: Platform> FlushedQueue<'a, P> {
    pub(crate) fn new(queue: &'a Queue<P>) -> Self {
        FlushedQueue { queue, flush: Flush::default(), listener: Listener::new() }
    }
}

impl<'a, P: Platform> DrainedQueue<'a, P> {
    pub(crate) fn new(queue: &'a Queue<P>) -> Self {
        DrainedQueue { queue, draining: None, listener: Listener::new() }
    }
}

impl<P: Platform> Future for FlushedQueue<'_, P> {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let FlushedQueue { queue, flush, listener } = self.get_mut();
        if blocks_itself(queue) {
            return Poll::Ready(Err(Error::Deadlock(WITHIN_FLUSH)));
        }
        let waiters = &queue.flushing.waiters;
        if listener.poll_until(waiters, context.waker(), || flush.advance(queue)) {
            Poll::Ready(Ok(()))
        } else {
            P::retry_now();
            Poll::Pending
        }
    }
}

impl<P: Platform> Future for DrainedQueue<'_, P> {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let DrainedQueue { queue, draining, listener } = self.get_mut();
        // Also for a future: when it is woken because the queue is empty, the queue runs it.
        if crate::queue::serves(*queue) {
            return Poll::Ready(Err(Error::Deadlock(WITHIN_DRAIN)));
        }
        draining.take_if(|draining| draining.epoch != P::fork_epoch());
        let drained = draining.get_or_insert_with(|| Draining::begin(queue));
        let waiters = &queue.flushing.waiters;
        if listener.poll_until(waiters, context.waker(), || queue.is_empty()) {
            // The queue works again as soon as the answer is available.
            *draining = None;
            return Poll::Ready(Ok(()));
        }
        drained.warn_if_late();
        P::retry_now();
        Poll::Pending
    }
}

impl<P: Platform> core::fmt::Debug for FlushedQueue<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FlushedQueue").field("queue", &self.queue.name).finish_non_exhaustive()
    }
}

impl<P: Platform> core::fmt::Debug for DrainedQueue<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DrainedQueue").field("queue", &self.queue.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
