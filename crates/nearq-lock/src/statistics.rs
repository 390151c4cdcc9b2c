//! What happens to the threads of a process that have to wait for a mutex, counted while that is wanted.
//!
//! Counted by domain, so that the counting stays within a cache; nothing is counted, and nothing is written, unless
//! [`Settings::count`](crate::Settings::count) says so. Taking a free mutex of which nobody waits is not counted at all: it
//! looks at nothing but the word.

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use crate::room::Room;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Contended,
    Turn,
    Within,
    Across,
    Reserved,
    SleptInTurn,
    SleptInQueue,
    GaveUp,
    Unqueued,
    Bound,
    Unbound,
    Moved,
}

const EVENTS: usize = Event::Moved as usize + 1;

/// One domain's counts.
#[repr(align(64))]
pub(crate) struct Counts<P: Platform>([P::AtomicU64; EVENTS]);

impl<P: Platform> Counts<P> {
    pub(crate) fn new() -> Self {
        Counts(core::array::from_fn(|_| P::AtomicU64::new(0)))
    }

    pub(crate) fn add(&self, event: Event) {
        // Relaxed: a count and nothing else.
        self.0[event as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// What happened to the threads of a process that found a mutex held.
///
/// ```
/// use nearq_lock::{Settings, Statistics};
/// use nearq_platform::Linux;
///
/// let mut settings = Settings::of_process::<Linux>();
/// settings.count = true;
/// settings.set_for_process::<Linux>();
/// let before = Statistics::of_process::<Linux>();
/// // ... work ...
/// assert!(Statistics::of_process::<Linux>().contended >= before.contended);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// How often a thread did not get a mutex by looking at it for a while, and had to queue up.
    pub contended: u64,
    /// How often one took the mutex in turn. The others of those above gave up, or found it free before they had a place.
    pub in_turn: u64,
    /// Hand-overs of a turn within a last-level cache.
    pub within: u64,
    /// Hand-overs of a turn to another last-level cache.
    pub across: u64,
    /// How often a mutex was kept for the one whose turn it was.
    pub reserved: u64,
    /// How often one whose turn it was slept.
    pub slept_in_turn: u64,
    /// How often one slept whose turn it was not.
    pub slept_in_queue: u64,
    /// Waits that ended at a deadline.
    pub gave_up: u64,
    /// Waits without a place in a queue.
    pub unqueued: u64,
    /// Changes to queues by cache.
    pub bound: u64,
    /// Changes back to one queue.
    pub unbound: u64,
    /// How often a thread that had waited for a condition was queued up for its mutex asleep. They take it in turn, and are not
    /// counted as contended.
    pub moved: u64,
}

impl Statistics {
    /// What was counted in the caller's process so far.
    pub fn of_process<P: Platform>() -> Self {
        let room = Room::<P>::get();
        // Relaxed: counts that go on meanwhile.
        let sum = |event: Event| {
            let all = room.counts.iter();
            all.map(|counts| counts.0[event as usize].load(Ordering::Relaxed)).sum()
        };
        Statistics {
            contended: sum(Event::Contended),
            in_turn: sum(Event::Turn),
            within: sum(Event::Within),
            across: sum(Event::Across),
            reserved: sum(Event::Reserved),
            slept_in_turn: sum(Event::SleptInTurn),
            slept_in_queue: sum(Event::SleptInQueue),
            gave_up: sum(Event::GaveUp),
            unqueued: sum(Event::Unqueued),
            bound: sum(Event::Bound),
            unbound: sum(Event::Unbound),
            moved: sum(Event::Moved),
        }
    }
}
