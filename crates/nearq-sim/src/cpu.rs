//! A simulated CPU: its clock, the thread on it, and how fast that thread works.

use crate::hardware::FULL_CAPACITY;

/// Units of work a nanosecond of a CPU of full capacity that has its core to itself: capacity times percent.
pub(crate) const FULL_RATE: u64 = FULL_CAPACITY * 100;

/// A simulated CPU.
#[derive(Debug)]
pub(crate) struct Cpu {
    /// The time up to which it has run. While its thread is in a piece of work: the time at which the thread goes on, if nothing happens
    /// before.
    pub(crate) clock: u64,
    /// When it became idle last.
    pub(crate) idle_since: u64,
    /// Until when an interrupt keeps it out of its idle state.
    pub(crate) awake_until: u64,
    /// The slot of the thread on it; none while idle.
    pub(crate) current: Option<usize>,
    /// The number of the thread that was on it last.
    pub(crate) last: u64,
    /// Whether it is busy: it has a thread, or is switching to or from one.
    pub(crate) busy: bool,
    /// When its thread's slice is over.
    pub(crate) slice_end: u64,
    /// When its thread must be checked: at the end of the slice, or of the CPU's share of the quota.
    pub(crate) leave_at: u64,
    /// Whether its thread must leave it at the next opportunity.
    pub(crate) reschedule: bool,
    /// Whether its thread has preemption off: it leaves the CPU at the next opportunity after it turns preemption on again.
    pub(crate) preemption_off: bool,
    /// The time since which its thread has been held back for threads with a higher priority, if it is held back.
    pub(crate) held_since: Option<u64>,
    /// For how many nanoseconds a fault takes its thread off it, at the next opportunity.
    pub(crate) stall: Option<u64>,
    /// While its thread is in a piece of work: the time up to which the work is accounted.
    pub(crate) since: u64,
    /// Units of work a nanosecond.
    pub(crate) rate: u64,
    /// What it may still use of the quota, in nanoseconds.
    pub(crate) budget: u64,
    /// Whether it runs nothing until the quota's next period.
    pub(crate) throttled: bool,
    /// How long it has run threads, in nanoseconds.
    pub(crate) ran: u64,
    /// How long threads have waited for it, in nanoseconds.
    pub(crate) waited: u64,
}

impl Cpu {
    /// Whether its thread was asked to leave, and may.
    #[inline]
    pub(crate) fn must_leave(&self) -> bool {
        self.reschedule && !self.preemption_off
    }

    /// When its thread must be checked; never while preemption is off.
    #[inline]
    pub(crate) fn check_at(&self) -> u64 {
        if self.preemption_off { u64::MAX } else { self.leave_at }
    }

    /// Whether its thread must be checked at `clock`, its time: it was asked to leave, or its slice or share of the quota is over.
    #[inline]
    pub(crate) fn must_check(&self, clock: u64) -> bool {
        self.must_leave() || clock >= self.check_at()
    }

    /// An idle CPU that works at this rate.
    pub(crate) fn new(rate: u64) -> Self {
        Cpu {
            clock: 0,
            idle_since: 0,
            awake_until: 0,
            current: None,
            last: 0,
            busy: false,
            slice_end: 0,
            leave_at: u64::MAX,
            reschedule: false,
            preemption_off: false,
            held_since: None,
            stall: None,
            since: 0,
            rate,
            budget: 0,
            throttled: false,
            ran: 0,
            waited: 0,
        }
    }
}
