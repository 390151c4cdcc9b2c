//! What goes wrong on a simulated machine, and how often. Which faults happen, and when, is a function of the seed.

use std::time::Duration;

/// What goes wrong, and how often. [`Faults::NONE`] is the default of a simulation.
///
/// A `one_in` of 0 means never; otherwise each chance is taken once in that many times, at random. An `every` of zero
/// means never; otherwise it is the mean of the virtual time between two such events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Faults {
    /// One creation of a thread in this many is refused.
    pub spawn_refused_one_in: u64,
    /// One wait on a word in this many returns although no thread woke it.
    pub spurious_wake_one_in: u64,
    /// One deadline in this many is noticed late, by up to `late_timer`.
    pub late_timer_one_in: u64,
    /// The longest delay.
    pub late_timer: Duration,
    /// In one platform call in this many, the calling thread is preempted for up to `preemption`, even while it holds a lock. Its CPU runs
    /// other threads in the meantime.
    pub preempted_one_in: u64,
    /// The longest preemption.
    pub preemption: Duration,
    /// How often a CPU goes offline; it comes back after about the same time.
    pub offline_every: Duration,
    /// How often the mask or the quota of the process shrinks, or grows again.
    pub limits_every: Duration,
    /// Whether the system does not report what threads do. Not set in [`ALL`](Self::ALL): it is not an event, and it changes what a program
    /// may expect.
    pub states_hidden: bool,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Faults = Faults {
        spawn_refused_one_in: 0,
        spurious_wake_one_in: 0,
        late_timer_one_in: 0,
        late_timer: Duration::ZERO,
        preempted_one_in: 0,
        preemption: Duration::ZERO,
        offline_every: Duration::ZERO,
        limits_every: Duration::ZERO,
        states_hidden: false,
    };

    /// Everything goes wrong, often enough that a run of some milliseconds sees most of it.
    pub const ALL: Faults = Faults {
        spawn_refused_one_in: 8,
        spurious_wake_one_in: 16,
        late_timer_one_in: 8,
        late_timer: Duration::from_millis(20),
        preempted_one_in: 200,
        preemption: Duration::from_millis(5),
        offline_every: Duration::from_millis(20),
        limits_every: Duration::from_millis(20),
        states_hidden: false,
    };
}

impl Default for Faults {
    fn default() -> Self {
        Self::NONE
    }
}

/// How often something went wrong in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultCounts {
    /// Threads that were refused.
    pub spawns_refused: u64,
    /// Waits that returned although no thread woke them.
    pub spurious_wakes: u64,
    /// Deadlines that were noticed late.
    pub late_timers: u64,
    /// Threads that were preempted inside a platform call.
    pub preemptions: u64,
    /// CPUs that went offline.
    pub cpus_offline: u64,
    /// Limits that shrank.
    pub limits_shrunk: u64,
}
