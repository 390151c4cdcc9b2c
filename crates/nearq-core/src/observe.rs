//! Observing items while they are queued and run: how long they wait and run, and single events.
//!
//! When off, this costs an issuer a check of a word of the pwq that it reads anyway, and a worker a load of the item's line. When on, only
//! some items of a queue are *samples*: a sample carries the time of its queueing (its *stamp*), and the worker that runs it reads the
//! clock before and after. The sampler decides how many are left out, for each queue separately (`sampler`).
//!
//! # What is observed
//! Readers (`readers`): `Timing`, which wants the times of all queues, and `Tracer`, which wants the events of one queue or of all. They
//! are counted under the lock of `readers`, a leaf. A thread that changes the readers goes through the queues afterwards
//! (`Queue::follow_readers`, with the queue's configuration locked). A new queue checks once more after it was put on the list, as for
//! freezing. The result for a queue is a bit of its pwqs, [`OBSERVED`](crate::limit::pool_workqueue::OBSERVED), and [`Observed`].
//!
//! For what a stamp is, see `stamp`. All else is counts, and Relaxed. A sample is lost if a stamp coincides with a change; no item is.
//!
//! # The folder
//! Imports `base` and `item`. `sampler`: which items are samples. `tape`: the events of tracers. `histogram`: times. The folder owns the
//! lock of `readers`, and the tape's words. Readers: `user/readers`.

pub(crate) mod histogram;
mod sampler;
mod tape;

use core::time::Duration;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, Instant, Ordering, Platform};

use crate::base::forked;
use crate::base::ids::QueueId;
use crate::item::stamp::Stamp;
use crate::observe::histogram::{QueueTimes, Recorder};

pub(crate) use sampler::shift_for;
use sampler::{Budget, Rate};
use tape::Tape;
pub use tape::{TraceEvent, TraceKind};

/// The readers, and what is the same for all queues.
pub(crate) struct Observation<P: Platform> {
    readers: Mutex<Readers, P>,
    pub(crate) budget: Budget<P>,
    /// Where events are recorded; null before the first tracer. Stays as long as the runtime.
    tape: P::AtomicPtr<Tape<P>>,
}

/// The readers.
struct Readers {
    /// The number of readers that want times.
    timing: u32,
    /// Readers that want events. Each has its number, the queue whose events it wants, and a power of two: one item of that many is enough.
    tracers: Vec<(u64, Option<QueueId>, u32)>,
    next: u64,
}

/// What the readers want of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wanted {
    any: bool,
    events: bool,
    /// One item of this many is enough, as a power of two.
    sample_shift: u32,
}

impl Readers {
    const fn none() -> Self {
        Readers { timing: 0, tracers: Vec::new(), next: 0 }
    }

    fn wanted_of(&self, queue: QueueId) -> Wanted {
        let tracers = self.tracers.iter().filter(|(_, of, _)| of.is_none_or(|of| of == queue));
        let sample_shift = tracers.map(|(_, _, sample_shift)| *sample_shift).min();
        let timing = self.timing != 0;
        Wanted {
            any: timing || sample_shift.is_some(),
            events: sample_shift.is_some(),
            sample_shift: if timing { 0 } else { sample_shift.unwrap_or(0) },
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

    /// Where events are recorded; none before the first tracer.
    pub(crate) fn tape(&self) -> Option<&Tape<P>> {
        // Acquire: pairs with the release in `make_tape`.
        // SAFETY: null, or a box that stays until this is dropped.
        unsafe { self.tape.load(Ordering::Acquire).as_ref() }
    }

    /// As [`tape`](Self::tape), which is made if there is none.
    pub(crate) fn make_tape(&self, cpus: usize) -> &Tape<P> {
        // A single maker: with the readers' lock.
        let _readers = self.readers.lock();
        if self.tape().is_none() {
            self.tape.store(Box::into_raw(Box::new(Tape::new(cpus))), Ordering::Release);
        }
        self.tape().expect("just made")
    }

    /// Adds a reader of times.
    pub(crate) fn add_timing(&self) {
        self.readers.lock().timing += 1;
    }

    /// Removes a reader of times.
    pub(crate) fn remove_timing(&self) {
        self.readers.lock().timing -= 1;
    }

    /// Adds a reader of the events of one queue or of all, one item of two to the power of `sample_shift`. Returns the number for
    /// [`remove_tracer`](Self::remove_tracer).
    pub(crate) fn add_tracer(&self, queue: Option<QueueId>, sample_shift: u32) -> u64 {
        let mut readers = self.readers.lock();
        readers.next += 1;
        let number = readers.next;
        readers.tracers.push((number, queue, sample_shift));
        number
    }

    /// Removes the tracer of that number.
    pub(crate) fn remove_tracer(&self, number: u64) {
        self.readers.lock().tracers.retain(|(other, ..)| *other != number);
    }

    /// Whether there is a reader.
    pub(crate) fn has_readers(&self) -> bool {
        let readers = self.readers.lock();
        readers.timing != 0 || !readers.tracers.is_empty()
    }

    /// Events that found no room on the tape.
    pub(crate) fn lost(&self) -> u64 {
        self.tape().map_or(0, Tape::lost)
    }

    /// Items that have been samples.
    pub(crate) fn samples(&self) -> u64 {
        self.budget.samples()
    }

    /// Drops all readers: there are none in the child of a fork.
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
            // SAFETY: from `make_tape`; the runtime has no thread any more, and tracers keep it alive.
            drop(unsafe { Box::from_raw(tape) });
        }
    }
}

/// What is observed of one queue.
pub(crate) struct Observed<P: Platform> {
    pub(crate) rate: Rate<P>,
    /// Stamps from before this count as none.
    since: P::AtomicU64,
    /// Whether events are wanted.
    pub(crate) events: P::AtomicU32,
    /// Null before the first reader; stays as long as the queue.
    times: P::AtomicPtr<TimesOfQueue<P>>,
}

/// How long a queue's items waited and ran.
pub(crate) struct TimesOfQueue<P: Platform> {
    pub(crate) wait: Recorder<P>,
    pub(crate) run: Recorder<P>,
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

    /// None before the first reader.
    pub(crate) fn times(&self) -> Option<&TimesOfQueue<P>> {
        // Acquire: pairs with the release in `follow`.
        // SAFETY: null, or a box that stays until this is dropped.
        unsafe { self.times.load(Ordering::Acquire).as_ref() }
    }

    /// One item of two to this power is a sample.
    pub(crate) fn sample_shift(&self) -> u32 {
        self.rate.sample_shift()
    }

    /// Follows the readers; returns whether the queue's pwqs must be observed. By the thread that holds the queue's configuration.
    pub(crate) fn follow(
        &self,
        observation: &Observation<P>,
        queue: QueueId,
        is_observed: bool,
    ) -> bool {
        let wanted = observation.readers.lock().wanted_of(queue);
        if !wanted.any {
            return false;
        }
        if self.times().is_none() {
            let times = TimesOfQueue { wait: Recorder::new(), run: Recorder::new() };
            self.times.store(Box::into_raw(Box::new(times)), Ordering::Release);
        }
        self.rate.set_least(wanted.sample_shift);
        self.events.store(u32::from(wanted.events), Ordering::Relaxed);
        if !is_observed {
            self.since.store(P::now().as_nanos(), Ordering::Relaxed);
        }
        true
    }

    /// Drops all readers: there are none in the child of a fork; its pwqs follow when they are next laid out.
    pub(crate) fn after_fork_in_child(&self) {
        forked::set(&self.events, 0);
    }

    /// How long items waited and ran; none before they were timed for the first time.
    pub(crate) fn read(&self) -> Option<QueueTimes> {
        let times = self.times()?;
        Some(QueueTimes { wait: times.wait.times(), run: times.run.times() })
    }

    /// How long an item with that stamp has waited, if it is a sample.
    pub(crate) fn waited(&self, stamp: Stamp, now: Instant) -> Option<Duration> {
        let known = stamp != Stamp::NONE && stamp.nanos() >= self.since.load(Ordering::Relaxed);
        known.then(|| Duration::from_nanos(now.as_nanos().saturating_sub(stamp.nanos())))
    }

    /// One item of this many is a sample now.
    pub(crate) fn every(&self) -> u64 {
        1 << self.rate.sample_shift()
    }
}

impl<P: Platform> Drop for Observed<P> {
    fn drop(&mut self) {
        let times = self.times.load(Ordering::Relaxed);
        if !times.is_null() {
            // SAFETY: from `follow`; nothing has the queue any more.
            drop(unsafe { Box::from_raw(times) });
        }
    }
}
