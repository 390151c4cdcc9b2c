//! What happens to the threads of a process that have to wait for a mutex, counted for all mutexes together, if that is enabled.
//!
//! Counted by domain, so that the counting stays within a cache. Nothing is counted, and nothing is written, unless
//! [`Settings::count`](crate::Settings::count) is set. Taking a free mutex that no thread waits for is never counted: that reads only the
//! word.

use nearq_platform::{Atomic, AtomicInt, Linux, LockPlatform, Ordering};

use crate::process_state::ProcessState;

/// The events that are counted.
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
    /// For tests, which check that it happens: a thread left the front of a queue before the next one had linked.
    #[cfg(test)]
    NotLinked,
    /// Likewise: a message was sent to a record whose thread had left.
    #[cfg(test)]
    SentToLeft,
    /// Likewise: a thread that gave up took over the record of another thread that had left ahead of it.
    #[cfg(test)]
    TakenOver,
    /// Likewise: a thread that queued up in a slot found that the slot was no longer the mutex's.
    #[cfg(test)]
    Anew,
    /// Likewise: a reader slept for a reader-writer lock.
    #[cfg(test)]
    ReaderSlept,
    /// Likewise: a writer or an upgradable reader slept for a reader-writer lock, as the head or while it upgraded.
    #[cfg(test)]
    WriterSlept,
    /// Likewise: a reader whose deadline came had been let in.
    #[cfg(test)]
    LetInLate,
}

const EVENTS: usize = Event::Moved as usize + 1;

/// One domain's counts.
#[repr(align(64))]
pub(crate) struct Counts<P: LockPlatform>([P::AtomicU64; EVENTS]);

impl<P: LockPlatform> Counts<P> {
    pub(crate) fn new() -> Self {
        Counts(core::array::from_fn(|_| P::AtomicU64::new(0)))
    }

    /// Starts again from zero.
    pub(crate) fn clear(&self) {
        // Relaxed: counts and nothing else.
        self.0.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    pub(crate) fn add(&self, event: Event) {
        // Relaxed: a count and nothing else.
        self.0[event as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// What happens on an OS thread, for tests, whether counting is enabled or not. Under the model checker, that is all threads in all runs of
/// a model, and counting is not a step of any of them.
#[cfg(test)]
pub(crate) mod seen {
    use core::cell::Cell;

    use super::Event;

    /// The events that are observed.
    #[cfg(not(any(miri, tsan)))]
    pub(crate) const ALL: [Event; COUNT] = [
        Event::Contended,
        Event::Turn,
        Event::Within,
        Event::Across,
        Event::Reserved,
        Event::SleptInTurn,
        Event::SleptInQueue,
        Event::GaveUp,
        Event::Unqueued,
        Event::Bound,
        Event::Unbound,
        Event::Moved,
        Event::NotLinked,
        Event::SentToLeft,
        Event::TakenOver,
        Event::Anew,
        Event::ReaderSlept,
        Event::WriterSlept,
        Event::LetInLate,
    ];
    const COUNT: usize = Event::LetInLate as usize + 1;

    std::thread_local! {
        static SEEN: Cell<[u64; COUNT]> = const { Cell::new([0; COUNT]) };
    }

    pub(crate) fn note(event: Event) {
        let mut seen = SEEN.get();
        seen[event as usize] += 1;
        SEEN.set(seen);
    }

    /// How often that has happened since it was last cleared.
    #[cfg(not(any(miri, tsan)))]
    pub(crate) fn count(event: Event) -> u64 {
        SEEN.get()[event as usize]
    }

    #[cfg(not(any(miri, tsan)))]
    pub(crate) fn clear() {
        SEEN.set([0; COUNT]);
    }
}

/// What happened to the threads that found a mutex held, counted for all mutexes of a process together. Counts only grow; to measure a
/// period, subtract.
///
/// Nothing is counted unless [`Settings::count`](crate::Settings::count) is set, and a mutex that is taken at once is never counted.
///
/// ```
/// use nearq_lock::{Settings, Statistics};
///
/// let mut settings = Settings::of_process();
/// settings.count = true;
/// settings.set_for_process();
/// let before = Statistics::of_process();
/// // ... work ...
/// assert!(Statistics::of_process().contended >= before.contended);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// How often a thread spun on a mutex for a while without getting it, and had to queue up.
    pub contended: u64,
    /// How often a thread took the mutex in turn. The other threads that are counted as `contended` gave up, or found the mutex free before
    /// they had a place in a queue.
    pub in_turn: u64,
    /// Hand-overs of a turn within a last-level cache.
    pub within: u64,
    /// Hand-overs of a turn to another last-level cache.
    pub across: u64,
    /// How often the thread that had the turn reserved the mutex for itself.
    pub reserved: u64,
    /// How often a thread that had the turn slept.
    pub slept_in_turn: u64,
    /// How often a thread that did not have the turn slept in a queue.
    pub slept_in_queue: u64,
    /// Waits that ended at a deadline.
    pub gave_up: u64,
    /// Waits without a place in a queue.
    pub unqueued: u64,
    /// Changes of a mutex to queues by cache.
    pub bound: u64,
    /// Changes of a mutex back to one queue.
    pub unbound: u64,
    /// How often a thread that had waited for a condition was queued up for its mutex while asleep. Such threads take the mutex in turn,
    /// and are not counted as contended.
    pub moved: u64,
}

impl Statistics {
    /// What was counted in this process so far. In the child of a fork, only what was counted in the child.
    pub fn of_process() -> Self {
        Self::of_process_in::<Linux>()
    }

    /// As [`of_process`](Self::of_process), on any platform.
    #[doc(hidden)]
    pub fn of_process_in<P: LockPlatform>() -> Self {
        Self::of(&ProcessState::<P>::get().counts)
    }

    /// What was counted in all domains.
    pub(crate) fn of<P: LockPlatform>(counts: &[Counts<P>]) -> Self {
        // Relaxed: counts that continue to change.
        let sum = |event: Event| {
            counts.iter().map(|counts| counts.0[event as usize].load(Ordering::Relaxed)).sum()
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
