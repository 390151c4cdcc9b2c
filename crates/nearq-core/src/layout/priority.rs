//! How the threads of a runtime are favoured: what queues ask for, what the system allows, and what was reached.
//!
//! A pool has one [`Priority`]; its workers take it before anything else (`ThreadSpec::scheduling`), then check what they got
//! (`Inner::arrive`). If a nice value is refused, they get the nearest that is allowed. If a value below 0 is refused, they take a short
//! slice as well: that needs no privilege, and lets a thread that wakes up run before others that are in the middle of a longer slice. The
//! first thread that is refused a nice value warns of it, once in a process for each value and cause.
//!
//! **The ordinary** priority is that of the caller that made the runtime: nice 0 in most programs, nice 10 under `nice`. That is what nice
//! 0 of a queue means; all other values are absolute. Each thread requests its priority: otherwise it would have that of the thread that
//! happens to start it, which may be running an item of another queue.
//!
//! **Threads that serve all queues** (`monitor`, `timer`) are as favoured as the most favoured queue. [`Favoured`] is that maximum. A
//! thread that makes a pool adds to it, then favours the monitor's thread if there is one; the monitor's thread stores its handle, then
//! reads the maximum. The lock of that handle orders the two: one of them sees the other.
//!
//! No function here waits: words are only read, written and compared.

use core::time::Duration;

use nearq_platform::{Atomic, Ordering, Platform, SchedPolicy, Scheduling};

/// The slice of workers that could not get their nice value below 0: the shortest that Linux gives.
pub(crate) const SHORT_SLICE: Duration = Duration::from_micros(100);
/// The shortest slice that Linux allows.
pub(crate) const SHORTEST_SLICE: Duration = Duration::from_micros(100);
pub(crate) const LONGEST_SLICE: Duration = Duration::from_millis(100);
/// The most favoured nice value.
pub(crate) const MOST_FAVOURED: i32 = -20;
pub(crate) const LEAST_FAVOURED: i32 = 19;

/// How the workers of a pool are favoured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Priority {
    pub(crate) nice: i32,
    /// They run when nothing else wants the CPU.
    pub(crate) idle: bool,
    pub(crate) slice: Option<Duration>,
}

/// The most favoured priority of several: the lowest nice value, and the shortest slice. One word: the nice value, counted from 0,
/// in the upper half, the slice in nanoseconds in the lower.
pub(crate) struct Favoured<P: Platform>(P::AtomicU64);

/// No slice was requested; longer than any.
const NO_SLICE: u64 = u32::MAX as u64;
/// The value while there is no queue: less favoured than the least favoured priority.
const NONE: u64 = 40 << 32 | NO_SLICE;

impl<P: Platform> Favoured<P> {
    pub(crate) fn new() -> Self {
        Favoured(P::AtomicU64::new(NONE))
    }

    /// Adds a priority, with an absolute nice value. True if that changes the maximum.
    #[inline]
    pub(crate) fn add(&self, priority: &Priority) -> bool {
        let slice = priority.slice.map_or(NO_SLICE, |slice| slice.as_nanos() as u64);
        let nice = number(priority.nice);
        let mut known = self.0.load(Ordering::Relaxed);
        loop {
            let more = (known >> 32).min(nice) << 32 | (known & NO_SLICE).min(slice);
            if more == known {
                return false;
            }
            // Relaxed: nothing but the value matters. What follows orders it before the read of `word` by the thread to be favoured: the
            // lock of the monitor's handle, or the permit of the timer's parker.
            match self.0.compare_exchange_weak(known, more, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => known = now,
            }
        }
    }

    /// The maximum as one number, which changes whenever `add` returns true.
    #[inline]
    pub(crate) fn word(&self) -> u64 {
        // Relaxed: nothing but the value matters. The lock of the monitor's handle, or the permit of the timer's parker, orders it after
        // `add`.
        self.0.load(Ordering::Relaxed)
    }

    /// Makes a thread that serves all queues as favoured as the most favoured of them, if it was less so, as far as that is allowed. Gives
    /// no warning: a worker reports what is refused.
    pub(crate) fn favour(&self, thread: P::Thread) {
        let Ok(has) = P::scheduling(thread) else { return };
        let Some(most) = self.beyond(has.nice) else { return };
        let wanted = Scheduling { policy: has.policy, nice: most.nice, slice: most.slice };
        if P::favour(thread, wanted).is_err() && most.nice < 0 && most.slice.is_none() {
            let nice = P::nice(thread).unwrap_or(has.nice);
            let _ = P::favour(thread, Scheduling { nice, slice: Some(SHORT_SLICE), ..wanted });
        }
    }

    /// The most favoured, if it is more favoured than a thread of that nice value without a slice of its own.
    fn beyond(&self, nice: i32) -> Option<Priority> {
        let word = self.word();
        let most = ((word >> 32) as i32 + MOST_FAVOURED).min(nice);
        let slice = Some(word & NO_SLICE).filter(|slice| *slice < NO_SLICE);
        let slice = slice.map(Duration::from_nanos);
        let more = most < nice || slice.is_some();
        more.then_some(Priority { nice: most, idle: false, slice })
    }
}

/// A nice value as a number from 0 on.
fn number(nice: i32) -> u64 {
    (nice.clamp(MOST_FAVOURED, LEAST_FAVOURED) - MOST_FAVOURED).unsigned_abs().into()
}

/// Nice values that fit into one word, at [`BITS`] each.
const IN_A_WORD: u64 = 10;
const BITS: u64 = 6;
const MASK: u64 = (1 << BITS) - 1;

/// What a runtime records of priorities.
pub(crate) struct Priorities<P: Platform> {
    /// The priority of the caller that made the runtime.
    ordinary: Scheduling,
    /// The nice value reached for each requested one, as last seen: 0 if not known, otherwise the `number` of that value plus 1.
    reached: [P::AtomicU64; 4],
    /// The maximum over all pools.
    pub(crate) favoured: Favoured<P>,
}

impl<P: Platform> Priorities<P> {
    pub(crate) fn new() -> Self {
        let ordinary = Scheduling { policy: SchedPolicy::Normal, nice: 0, slice: None };
        Priorities {
            ordinary: P::scheduling(P::current_thread()).unwrap_or(ordinary),
            reached: core::array::from_fn(|_| P::AtomicU64::new(0)),
            favoured: Favoured::new(),
        }
    }

    /// The least favoured priority that a thread which serves all queues may have.
    pub(crate) fn ordinary(&self) -> Scheduling {
        Scheduling { slice: None, ..self.ordinary }
    }

    /// What a thread of that priority requests from the system.
    pub(crate) fn scheduling(&self, priority: &Priority) -> Scheduling {
        Scheduling {
            policy: if priority.idle { SchedPolicy::Idle } else { self.ordinary.policy },
            nice: self.absolute(priority).nice,
            slice: priority.slice,
        }
    }

    /// The priority with an absolute nice value.
    pub(crate) fn absolute(&self, priority: &Priority) -> Priority {
        let nice = if priority.nice == 0 { self.ordinary.nice } else { priority.nice };
        Priority { nice, ..*priority }
    }

    fn reached(&self, nice: i32) -> Option<i32> {
        let (word, shift) = (number(nice) / IN_A_WORD, number(nice) % IN_A_WORD * BITS);
        // Relaxed: nothing but the value matters.
        let seen = self.reached[word as usize].load(Ordering::Relaxed) >> shift & MASK;
        (seen != 0).then(|| seen as i32 - 1 + MOST_FAVOURED)
    }

    pub(crate) fn note_reached(&self, nice: i32, reached: i32) {
        let (word, shift) = (number(nice) / IN_A_WORD, number(nice) % IN_A_WORD * BITS);
        let word = &self.reached[word as usize];
        let mut known = word.load(Ordering::Relaxed);
        loop {
            let new = known & !(MASK << shift) | (number(reached) + 1) << shift;
            if new == known {
                return;
            }
            match word.compare_exchange_weak(known, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => known = now,
            }
        }
    }

    /// The nice value that workers of that priority have; before there is such a worker, the value that the caller could get.
    pub(crate) fn effective_nice(&self, priority: &Priority) -> i32 {
        let wanted = self.scheduling(priority).nice;
        self.reached(wanted).unwrap_or_else(|| P::attainable_nice(wanted))
    }
}

/// Ensures that the caller, which has requested `wanted`, has that nice value or the nearest that is allowed, and warns once about what was
/// refused. Returns the caller's nice value; none if it is not known.
pub(crate) fn take<P: Platform>(wanted: Scheduling) -> Option<i32> {
    let me = P::current_thread();
    let has = P::scheduling(me).ok()?;
    if has.nice <= wanted.nice && has.policy == wanted.policy {
        return Some(has.nice);
    }
    // The caller's priority was inherited, or is the nearest that is allowed. This call tries again: it succeeds, or reports why not.
    let refused = P::favour(me, wanted).err();
    let has = P::scheduling(me).ok()?;
    let slice = wanted.slice.or((wanted.nice < 0).then_some(SHORT_SLICE));
    if has.nice > wanted.nice && slice != wanted.slice {
        let _ = P::favour(me, Scheduling { nice: has.nice, slice, ..wanted });
    }
    if let Some(refused) = refused {
        let slice = slice.map(|slice| format!(" and slices of {slice:?}"));
        let slice = slice.unwrap_or_default();
        let cause = format!("nice {}: {}", wanted.nice, refused.cause());
        let line = format!("{refused}; its workers have nice {}{slice} instead", has.nice);
        P::warn_once(&cause, &line);
    }
    Some(has.nice)
}

#[cfg(test)]
mod tests;
