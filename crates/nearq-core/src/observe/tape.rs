//! Where events are recorded: rings of a fixed size, like those of the kernel's tracers. The CPUs whose numbers have the same residue share
//! a ring.
//!
//! A writer tries the lock of its CPU's ring, and then that of the next one: a worker never waits for a reader, or for a thread that was
//! preempted while it wrote. If it gets neither, the event is lost, and counted. A full ring is overwritten; each reader has its own place
//! in each ring and knows from the numbers what it has missed.

use core::fmt;
use core::time::Duration;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use crate::base::ids::{PoolId, QueueId};
use crate::base::pad::Padded;
use crate::item::Name;

/// Events that are kept, over all rings.
const EVENTS: usize = 32 * 1024;
/// The most rings.
const RINGS: usize = 16;

/// What has happened to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TraceKind {
    /// It was queued.
    Queue,
    /// Its function begins.
    Start,
    /// Its function has ended.
    End,
}

/// Something that has happened to an item; returned by [`Tracer::take`](crate::trace::Tracer::take).
#[derive(Clone)]
#[non_exhaustive]
pub struct TraceEvent {
    /// When it happened, in nanoseconds on the clock `CLOCK_MONOTONIC`. Only differences mean something.
    pub at_nanos: u64,
    /// What happened.
    pub kind: TraceKind,
    /// The queue's [number](crate::inspect::QueueView::id).
    pub queue: QueueId,
    /// The item's address: the same for all events of an item. A later item may have the same address.
    pub item: usize,
    pub(crate) name: Name,
    /// The CPU on which it happened.
    pub cpu: usize,
    /// The number of the thread in the system's own tools; `None` for a queueing.
    pub thread: Option<u64>,
    /// The number of the pool that the item goes to.
    pub pool: PoolId,
    /// For a start, the time since queueing; for an end, the time since the start; for a queueing, zero.
    pub took: Duration,
}

impl TraceEvent {
    /// Returns the name of the item's function.
    pub fn function(&self) -> &'static str {
        self.name.text()
    }
}

impl fmt::Debug for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceEvent")
            .field("at_nanos", &self.at_nanos)
            .field("kind", &self.kind)
            .field("queue", &self.queue)
            .field("function", &self.function())
            .finish_non_exhaustive()
    }
}

/// The last events, for readers that read them in time.
pub(crate) struct Tape<P: Platform> {
    rings: Box<[Padded<Mutex<Ring, P>>]>,
    lost: P::AtomicU64,
}

struct Ring {
    /// The number of events written; the next one is stored at this index, modulo the size.
    written: u64,
    events: Vec<Option<TraceEvent>>,
}

impl Ring {
    fn new(size: usize) -> Self {
        Ring { written: 0, events: (0..size).map(|_| None).collect() }
    }

    fn place(&self, number: u64) -> usize {
        (number % self.events.len() as u64) as usize
    }
}

impl<P: Platform> Tape<P> {
    pub(crate) fn new(cpus: usize) -> Self {
        let rings = cpus.clamp(1, RINGS).next_power_of_two();
        let ring = || Padded(Mutex::new_in(Ring::new(EVENTS / rings)));
        Tape { rings: (0..rings).map(|_| ring()).collect(), lost: P::AtomicU64::new(0) }
    }

    pub(crate) fn write(&self, event: TraceEvent) {
        let first = event.cpu;
        let tried = [first, first + 1].map(|cpu| cpu & (self.rings.len() - 1));
        let Some(mut ring) = tried.into_iter().find_map(|index| self.rings[index].try_lock())
        else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let place = ring.place(ring.written);
        ring.events[place] = Some(event);
        ring.written += 1;
    }

    /// A place in each ring: whatever is written from now on comes after it.
    pub(crate) fn ends(&self) -> Vec<u64> {
        self.rings.iter().map(|ring| ring.lock().written).collect()
    }

    /// Reads on from these places, `most` events at most; returns how many events were overwritten before they were read.
    pub(crate) fn read(&self, cursors: &mut [u64], most: usize, into: &mut Vec<TraceEvent>) -> u64 {
        let mut missed = 0;
        // The same number of events from each ring, so that no ring waits for another.
        let share = most.div_ceil(self.rings.len());
        for (ring, cursor) in self.rings.iter().zip(cursors) {
            let ring = ring.lock();
            let kept = ring.written.saturating_sub(ring.events.len() as u64);
            missed += kept.saturating_sub(*cursor);
            *cursor = kept.max(*cursor);
            let end = ring.written.min(cursor.saturating_add(share as u64));
            into.extend(
                (*cursor..end).filter_map(|number| ring.events[ring.place(number)].clone()),
            );
            *cursor = end;
        }
        missed
    }

    /// Events that no ring had room for.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Resets the rings: no thread reads or writes in the child of a fork, where a ring may be half written.
    pub(crate) fn after_fork_in_child(&self) {
        for ring in &self.rings {
            // SAFETY: this is the only thread, and no user's code runs under the lock.
            unsafe { ring.renew(Ring::new(EVENTS / self.rings.len())) };
        }
    }
}
