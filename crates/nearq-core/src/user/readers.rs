//! Observers of items that are queued and run: they want times, or events (`observe`).

use nearq_platform::Platform;

use crate::base::ids::QueueId;
use crate::observe::TraceEvent;
#[cfg(feature = "observe")]
use crate::observe::shift_for;
use crate::queue::Queue;
use crate::queue::runtime::{Inner, Runtime};

impl<P: Platform> Inner<P> {
    /// Makes every queue follow the readers.
    fn readers_changed(&self) {
        self.live_queues().iter().for_each(|queue| queue.follow_readers());
    }
}

impl<P: Platform> Queue<P> {
    /// Follows the readers. In effect for the next item when it returns.
    fn follow_readers(&self) {
        let config = self.lock_config();
        self.observe_pwqs(&config);
    }
}

impl<P: Platform> Runtime<P> {
    /// Times items of all queues until the returned guard is dropped: how long they wait from queueing to start, and how long they run.
    /// Read the result with [`QueueView::times`](crate::inspect::QueueView::times).
    ///
    /// Only a sample of the items is timed: at most 20,000 a second over all queues of the runtime. Each queue has its share of that, so a
    /// queue with few items is timed completely even beside a queue with many.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Runtime, Workqueue};
    ///
    /// let queue = Workqueue::builder("timed").build()?;
    /// let timing = Runtime::global().time_items();
    /// queue.spawn(|| ());
    /// queue.flush()?; // A joined task is counted a moment after `join` has returned; a flushed one has been counted.
    /// let times = queue.times().unwrap();
    /// assert_eq!((times.wait.samples, times.run.samples), (1, 1));
    /// # Ok::<(), nearq::Error>(())
    /// ```
    ///
    /// Exists with the default feature `control` of the crate `nearq` (`observe` of `nearq-core`). Without it, nothing would be timed.
    #[cfg(feature = "observe")]
    pub fn time_items(&self) -> TimingGuard<P> {
        self.inner().observation.add_timing();
        self.inner().readers_changed();
        TimingGuard { runtime: self.clone(), epoch: P::fork_epoch() }
    }

    /// Records what happens to items from now on: to those of one queue, given by its [number](crate::inspect::QueueView::id), or to all.
    ///
    /// One item in `every` is recorded; `every` is rounded up to a power of two, 2^20 at most. More items are left out if there are more
    /// than 20,000 a second. The events are kept in buffers of a fixed size, at most 32768 in all. Events that are not
    /// [taken](Tracer::take) in time are overwritten, and [counted](Tracer::dropped).
    ///
    /// Exists with the default feature `control` of the crate `nearq` (`observe` of `nearq-core`). Without it, nothing would be traced.
    #[cfg(feature = "observe")]
    pub fn trace(&self, queue: Option<QueueId>, every: u32) -> Tracer<P> {
        let inner = self.inner();
        let observation = &inner.observation;
        let tape = observation.make_tape(self.topology().possible().len());
        let (cursors, lost) = (tape.ends(), tape.lost());
        let sample_shift = shift_for(every);
        let number = observation.add_tracer(queue, sample_shift);
        inner.readers_changed();
        let (dropped, epoch) = (0, P::fork_epoch());
        Tracer { runtime: self.clone(), number, queue, cursors, dropped, lost, epoch }
    }

    /// Returns the number of items that have been timed or traced.
    pub fn samples(&self) -> u64 {
        self.inner().observation.samples()
    }

    /// Returns whether items are timed or traced now.
    pub fn is_observed(&self) -> bool {
        self.inner().observation.has_readers()
    }
}

/// Without the feature, a program that would record nothing does not compile.
///
/// ```compile_fail,E0599
/// # use nearq_core as nearq;
/// let timing = nearq::Runtime::global().time_items();
/// ```
/// ```compile_fail,E0599
/// # use nearq_core as nearq;
/// let tracer = nearq::Runtime::global().trace(None, 1);
/// ```
#[cfg(all(doctest, not(feature = "observe")))]
pub struct NotRecorded;

/// Times items while it lives; returned by [`Runtime::time_items`].
#[must_use = "items are timed until it is dropped"]
#[derive(Debug)]
pub struct TimingGuard<P: Platform = nearq_platform::Linux> {
    runtime: Runtime<P>,
    epoch: u64,
}

impl<P: Platform> Drop for TimingGuard<P> {
    fn drop(&mut self) {
        if P::fork_epoch() == self.epoch {
            self.runtime.inner().observation.remove_timing();
            self.runtime.inner().readers_changed();
        }
    }
}

/// Records what happens to items while it lives; returned by [`Runtime::trace`].
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{Runtime, Workqueue};
///
/// let queue = Workqueue::builder("traced").build()?;
/// // Every item of this queue. The tracer records until it is dropped.
/// let mut tracer = Runtime::global().trace(Some(queue.id()), 1);
/// queue.spawn(|| 2 + 3);
/// queue.flush()?;
/// for event in tracer.take(1000) {
///     println!("{:?} of {} on CPU {} after {:?}", event.kind, event.function(), event.cpu, event.took);
/// }
/// assert_eq!(tracer.dropped(), 0);
/// # Ok::<(), nearq::Error>(())
/// ```
#[must_use = "events are written down until it is dropped"]
#[derive(Debug)]
pub struct Tracer<P: Platform = nearq_platform::Linux> {
    runtime: Runtime<P>,
    number: u64,
    queue: Option<QueueId>,
    /// How much was read of each part of the tape.
    cursors: Vec<u64>,
    dropped: u64,
    /// What the tape had lost before.
    lost: u64,
    epoch: u64,
}

impl<P: Platform> Tracer<P> {
    /// Returns the events since the last call: at most `most`, rounded up to a multiple of the number of buffers (at most 16). They are
    /// ordered by time, unless a thread was interrupted between reading the clock and recording its event. Empty in the child of a fork.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Runtime, Workqueue, trace::TraceKind};
    ///
    /// let queue = Workqueue::builder("traced").build()?;
    /// let mut tracer = Runtime::global().trace(None, 1);
    /// queue.spawn(|| ()).join().unwrap();
    /// drop(queue);
    /// let kinds: Vec<TraceKind> = tracer.take(1000).iter().map(|event| event.kind).collect();
    /// assert_eq!(kinds, [TraceKind::Queue, TraceKind::Start, TraceKind::End]);
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn take(&mut self, most: usize) -> Vec<TraceEvent> {
        if P::fork_epoch() != self.epoch {
            return Vec::new();
        }
        let Some(tape) = self.runtime.inner().observation.tape() else { return Vec::new() };
        let mut events = Vec::new();
        self.dropped += tape.read(&mut self.cursors, most, &mut events);
        if let Some(queue) = self.queue {
            events.retain(|event| event.queue == queue);
        }
        events.sort_by_key(|event| event.at_nanos);
        events
    }

    /// Returns the number of events since the trace began that were overwritten before they were taken, or for which there was no space.
    /// Some of them may belong to queues that are not traced.
    pub fn dropped(&self) -> u64 {
        let lost = self.runtime.inner().observation.lost();
        self.dropped + lost.saturating_sub(self.lost)
    }

    /// Returns how many items there are now for each one that is recorded: the largest such number of the queues that are traced.
    pub fn every(&self) -> u64 {
        let queues = self.runtime.inner().live_queues();
        let traced = queues.iter().filter(|queue| self.queue.is_none_or(|of| of == queue.id));
        traced.map(|queue| queue.observed.every()).max().unwrap_or(1)
    }
}

impl<P: Platform> Drop for Tracer<P> {
    fn drop(&mut self) {
        if P::fork_epoch() == self.epoch {
            self.runtime.inner().observation.remove_tracer(self.number);
            self.runtime.inner().readers_changed();
        }
    }
}
