//! Looking on while items are queued and run: how long they wait and run, and what happens one by one.
//!
//! Off, this costs an issuer a look at a word of the link that it reads anyway, and a worker a load of the item's line. On, one item
//! of so many of a queue is a *sample*: it carries the time of its queueing (its *stamp*), and the worker that runs it
//! reads the clock before and after. How many are left out is for the sampler to say, for each queue by itself (`sampler`).
//!
//! # Who says what is looked at
//! Readers: [`Timing`], which wants the times of all queues, and [`Tracer`], which wants the events of one queue or of all. They are
//! counted under the lock of `readers`, a leaf. Who changes that goes through the queues afterwards (`Queue::follow_readers`, with
//! the queue's configuration locked), and a queue that is made looks once more after it was put on the list; as with the freezer.
//! What a queue is told is a bit of its links, [`OBSERVED`](crate::link::OBSERVED), and [`Observed`].
//!
//! What a stamp is, says `stamp`. All else is counts, and Relaxed. A sample is lost where a stamp meets a change; no item is.

mod sampler;
mod tape;

use core::time::Duration;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, Instant, Ordering, Platform};

use crate::forked;
use crate::histogram::{Histogram, Times};
use crate::item::{Item, ItemTable};
use crate::link::Link;
use crate::queue::Queue;
use crate::runtime::{Inner, Runtime};
use crate::stamp::Stamp;

use sampler::{Budget, Rate};
use tape::Tape;
pub use tape::{TraceEvent, TraceKind};

/// Who looks on, and what is the same for all queues.
pub(crate) struct Observation<P: Platform> {
    readers: Mutex<Readers, P>,
    budget: Budget<P>,
    /// Where events are written; null before the first tracer. Stays as long as the runtime.
    tape: P::AtomicPtr<Tape<P>>,
}

/// Who looks on.
struct Readers {
    /// Those who want times.
    timing: u32,
    /// Those who want events: their number, whose events, and how many items of which one is enough, as a power of two.
    tracers: Vec<(u64, Option<u64>, u32)>,
    next: u64,
}

/// What the readers want of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wanted {
    any: bool,
    events: bool,
    /// One item of so many is enough, as a power of two.
    power: u32,
}

impl Readers {
    const fn none() -> Self {
        Readers { timing: 0, tracers: Vec::new(), next: 0 }
    }

    fn wanted_of(&self, queue: u64) -> Wanted {
        let tracers = self.tracers.iter().filter(|(_, of, _)| of.is_none_or(|of| of == queue));
        let power = tracers.map(|(_, _, power)| *power).min();
        let timing = self.timing != 0;
        Wanted {
            any: timing || power.is_some(),
            events: power.is_some(),
            power: if timing { 0 } else { power.unwrap_or(0) },
        }
    }
}

impl<P: Platform> Observation<P> {
    pub(crate) fn new() -> Self {
        Observation {
            readers: Mutex::new_in(Readers::none()),
            budget: Budget::new(),
            tape: P::AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    fn tape(&self) -> Option<&Tape<P>> {
        // Acquire: pairs with the release in `make_tape`.
        // SAFETY: null, or a box that stays until this is dropped.
        unsafe { self.tape.load(Ordering::Acquire).as_ref() }
    }

    fn make_tape(&self, cpus: usize) -> &Tape<P> {
        // One maker: with the readers' lock.
        let _readers = self.readers.lock();
        if self.tape().is_none() {
            self.tape.store(Box::into_raw(Box::new(Tape::new(cpus))), Ordering::Release);
        }
        self.tape().expect("just made")
    }

    /// Nobody looks on in the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        // SAFETY: this is the only thread, and no user's code runs under the lock.
        unsafe { self.readers.renew(Readers::none()) };
        if let Some(tape) = self.tape() {
            tape.after_fork_in_child();
        }
    }
}

impl<P: Platform> Drop for Observation<P> {
    fn drop(&mut self) {
        let tape = self.tape.load(Ordering::Relaxed);
        if !tape.is_null() {
            // SAFETY: from `make_tape`; the runtime has no thread any more, and tracers hold it.
            drop(unsafe { Box::from_raw(tape) });
        }
    }
}

/// What is observed of one queue.
pub(crate) struct Observed<P: Platform> {
    rate: Rate<P>,
    /// Stamps from before count as none.
    since: P::AtomicU64,
    /// Whether events are wanted.
    events: P::AtomicU32,
    /// Null before the first reader; stays as long as the queue.
    times: P::AtomicPtr<TimesOfQueue<P>>,
}

struct TimesOfQueue<P: Platform> {
    wait: Histogram<P>,
    run: Histogram<P>,
}

impl<P: Platform> Observed<P> {
    pub(crate) fn new() -> Self {
        Observed {
            rate: Rate::new(),
            since: P::AtomicU64::new(0),
            events: P::AtomicU32::new(0),
            times: P::AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    fn times(&self) -> Option<&TimesOfQueue<P>> {
        // Acquire: pairs with the release in `follow`.
        // SAFETY: null, or a box that stays until this is dropped.
        unsafe { self.times.load(Ordering::Acquire).as_ref() }
    }

    /// One item of two to this power is a sample.
    pub(crate) fn power(&self) -> u32 {
        self.rate.power()
    }

    /// Follows the readers; whether the queue's links are to be observed. By who holds the queue's configuration.
    pub(crate) fn follow(&self, inner: &Inner<P>, queue: u64, is_observed: bool) -> bool {
        let wanted = inner.observation.readers.lock().wanted_of(queue);
        if !wanted.any {
            return false;
        }
        if self.times().is_none() {
            let times = TimesOfQueue { wait: Histogram::new(), run: Histogram::new() };
            self.times.store(Box::into_raw(Box::new(times)), Ordering::Release);
        }
        self.rate.set_least(wanted.power);
        self.events.store(u32::from(wanted.events), Ordering::Relaxed);
        if !is_observed {
            self.since.store(P::now().as_nanos(), Ordering::Relaxed);
        }
        true
    }

    /// Nobody looks on in the child of a fork; its links say so when they are laid out next.
    pub(crate) fn after_fork_in_child(&self) {
        forked::set(&self.events, 0);
    }

    /// How long items waited and ran; none before they were timed for the first time.
    pub(crate) fn read(&self) -> Option<(Times, Times)> {
        self.times().map(|times| (times.wait.times(), times.run.times()))
    }

    /// How long an item with that stamp has waited, if it is a sample.
    pub(crate) fn waited(&self, stamp: Stamp, now: Instant) -> Option<Duration> {
        let known = stamp != Stamp::NONE && stamp.nanos() >= self.since.load(Ordering::Relaxed);
        known.then(|| Duration::from_nanos(now.as_nanos().saturating_sub(stamp.nanos())))
    }

    /// One item of so many is a sample now.
    pub(crate) fn every(&self) -> u64 {
        1 << self.rate.power()
    }
}

impl<P: Platform> Drop for Observed<P> {
    fn drop(&mut self) {
        let times = self.times.load(Ordering::Relaxed);
        if !times.is_null() {
            // SAFETY: from `follow`; nobody has the queue any more.
            drop(unsafe { Box::from_raw(times) });
        }
    }
}

impl<P: Platform> Link<P> {
    /// Marks an item that is about to be queued here as a sample, or as none. The caller owns its `PENDING`, and the link is observed.
    #[inline]
    pub(crate) fn stamp(&self, item: &Item<P>, cpu: u32) {
        let power = self.power();
        // What has entered goes up by one with each item that is let in. The caller writes that word next, whatever becomes of this.
        if self.entered() & ((1 << power) - 1) == 0 {
            self.sample(item, cpu, power);
        } else {
            item.set_stamp(Stamp::NONE);
        }
    }

    /// Makes the item a sample if there may be one now, for two to that power.
    #[cold]
    #[inline(never)]
    fn sample(&self, item: &Item<P>, cpu: u32, power: u32) {
        let queue = self.queue();
        let now = P::now();
        let rate = &queue.observed.rate;
        let allowed = queue.inner().observation.budget.allows(rate, now);
        self.set_power(rate.power());
        if !allowed {
            item.set_stamp(Stamp::NONE);
            return;
        }
        item.set_stamp(Stamp::new(now, power));
        self.tell_of(TraceKind::Queue, item, item.table(), now, Duration::ZERO, Some(cpu));
    }

    /// Calls `execute`, and reads the clock before and after if the item is a sample.
    #[inline]
    pub(crate) fn time<R>(
        &self,
        item: &Item<P>,
        table: &'static ItemTable<P>,
        stamp: Stamp,
        execute: impl FnOnce() -> R,
    ) -> R {
        let observed = &self.queue().observed;
        let Some(times) = observed.times() else { return execute() };
        let begin = P::now();
        let Some(waited) = observed.waited(stamp, begin) else { return execute() };
        self.tell_of(TraceKind::Start, item, table, begin, waited, None);
        times.wait.record(waited.as_nanos() as u64, stamp.weight());
        let item = core::ptr::from_ref(item);
        let result = execute();
        let end = P::now();
        times.run.record((end - begin).as_nanos() as u64, stamp.weight());
        // The item may be gone; its address is still its number.
        self.tell_of(TraceKind::End, item, table, end, end - begin, None);
        result
    }

    fn tell_of(
        &self,
        kind: TraceKind,
        item: *const Item<P>,
        table: &'static ItemTable<P>,
        at: Instant,
        took: Duration,
        queued_on: Option<u32>,
    ) {
        let queue = self.queue();
        if queue.observed.events.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(tape) = queue.inner().observation.tape() else { return };
        let cpu = queued_on.map_or_else(P::current_cpu, |cpu| cpu as usize);
        tape.write(TraceEvent {
            at_nanos: at.as_nanos(),
            kind,
            queue: queue.id,
            item: item.addr(),
            name: table.name,
            cpu,
            thread: queued_on.is_none().then(|| P::thread_id(P::current_thread())),
            pool: self.pool.id,
            took,
        });
    }
}

impl<P: Platform> Inner<P> {
    /// Has every queue follow the readers.
    fn readers_changed(&self) {
        self.live_queues().iter().for_each(|queue| queue.follow_readers());
    }
}

impl<P: Platform> Queue<P> {
    /// Follows the readers. In effect for the next item when it returns.
    fn follow_readers(&self) {
        let config = self.lock_config();
        self.observe_links(&config);
    }
}

impl<P: Platform> Runtime<P> {
    /// Times items of all queues until the answer is dropped: how long they wait from queueing to start, and how long they run.
    /// [`QueueHandle::times`](crate::QueueHandle::times) has the result. One item of so many is timed, 20,000 a second at most
    /// over all queues of the runtime; each queue has its share of that, so that one with few items is timed whole beside one with
    /// many.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Runtime, Workqueue};
    ///
    /// let queue = Workqueue::builder("timed").build()?;
    /// let timing = Runtime::default().time_items();
    /// queue.spawn(|| ());
    /// queue.flush()?; // Who joins a task goes on a moment before it is counted.
    /// let timed = Runtime::default().queues().into_iter().find(|queue| queue.name() == "timed").unwrap();
    /// let (wait, run) = timed.times().unwrap();
    /// assert_eq!((wait.samples, run.samples), (1, 1));
    /// # Ok::<(), nearq::Error>(())
    /// ```
    ///
    /// It is there with the feature `observe`, which is on by default; without it nothing would be timed.
    #[cfg(feature = "observe")]
    pub fn time_items(&self) -> Timing<P> {
        self.inner().observation.readers.lock().timing += 1;
        self.inner().readers_changed();
        Timing { runtime: self.clone(), epoch: P::fork_epoch() }
    }

    /// Tells what happens to items from now on: those of one queue, by its [number](crate::QueueHandle::id), or of all. One item of
    /// `every` is enough, rounded up to a power of two, 2^20 at most; what is beyond 20,000 items a second is left out anyway.
    ///
    /// The events are kept in buffers of a fixed size, 32768 at most; what is not [taken](Tracer::take) in time is overwritten and
    /// counted.
    ///
    /// It is there with the feature `observe`, which is on by default; without it nothing would be traced.
    #[cfg(feature = "observe")]
    pub fn trace(&self, queue: Option<u64>, every: u32) -> Tracer<P> {
        let inner = self.inner();
        let observation = &inner.observation;
        let tape = observation.make_tape(self.topology().possible().len());
        let (cursors, lost) = (tape.ends(), tape.lost());
        let power = sampler::power_of(every);
        let number = {
            let mut readers = observation.readers.lock();
            readers.next += 1;
            let number = readers.next;
            readers.tracers.push((number, queue, power));
            number
        };
        inner.readers_changed();
        let (dropped, epoch) = (0, P::fork_epoch());
        Tracer { runtime: self.clone(), number, queue, cursors, dropped, lost, epoch }
    }

    /// Items that have been timed or traced.
    pub fn samples(&self) -> u64 {
        self.inner().observation.budget.samples()
    }

    /// Whether items are timed or traced now.
    pub fn is_observed(&self) -> bool {
        let readers = self.inner().observation.readers.lock();
        readers.timing != 0 || !readers.tracers.is_empty()
    }
}

/// Without the feature, a program that would record nothing is not compiled.
///
/// ```compile_fail,E0599
/// # use nearq_core as nearq;
/// let timing = nearq::Runtime::default().time_items();
/// ```
/// ```compile_fail,E0599
/// # use nearq_core as nearq;
/// let tracer = nearq::Runtime::default().trace(None, 1);
/// ```
#[cfg(all(doctest, not(feature = "observe")))]
pub struct NotRecorded;

/// As long as it lives, items are timed: see [`Runtime::time_items`].
#[must_use = "items are timed until it is dropped"]
#[derive(Debug)]
pub struct Timing<P: Platform = nearq_platform::Linux> {
    runtime: Runtime<P>,
    epoch: u64,
}

impl<P: Platform> Drop for Timing<P> {
    fn drop(&mut self) {
        if P::fork_epoch() == self.epoch {
            self.runtime.inner().observation.readers.lock().timing -= 1;
            self.runtime.inner().readers_changed();
        }
    }
}

/// As long as it lives, it is written down what happens to items: see [`Runtime::trace`].
#[must_use = "events are written down until it is dropped"]
#[derive(Debug)]
pub struct Tracer<P: Platform = nearq_platform::Linux> {
    runtime: Runtime<P>,
    number: u64,
    queue: Option<u64>,
    /// What was read of each part of the tape.
    cursors: Vec<u64>,
    dropped: u64,
    /// What the tape had lost before.
    lost: u64,
    epoch: u64,
}

impl<P: Platform> Tracer<P> {
    /// What has happened since the last call, `most` events at most, by time unless a thread was interrupted between looking at the
    /// clock and writing it down.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Runtime, TraceKind, Workqueue};
    ///
    /// let queue = Workqueue::builder("traced").build()?;
    /// let mut tracer = Runtime::default().trace(None, 1);
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

    /// Events that were overwritten before they were taken, or found no room, since the trace began. Some of them may be of queues
    /// that were not asked for.
    pub fn dropped(&self) -> u64 {
        let lost = self.runtime.inner().observation.tape().map_or(0, Tape::lost);
        self.dropped + lost.saturating_sub(self.lost)
    }

    /// One item of so many is told now: the largest such number of the queues that are traced.
    pub fn every(&self) -> u64 {
        let queues = self.runtime.inner().live_queues();
        let traced = queues.iter().filter(|queue| self.queue.is_none_or(|of| of == queue.id));
        traced.map(|queue| queue.observed.every()).max().unwrap_or(1)
    }
}

impl<P: Platform> Drop for Tracer<P> {
    fn drop(&mut self) {
        if P::fork_epoch() == self.epoch {
            let number = self.number;
            let observation = &self.runtime.inner().observation;
            observation.readers.lock().tracers.retain(|(other, ..)| *other != number);
            self.runtime.inner().readers_changed();
        }
    }
}
