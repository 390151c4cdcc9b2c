//! The CPU quota of the limits, enforced as the kernel does it (`sched-bwc`).
//!
//! Every 100 ms the process gets its share of CPU time. Running CPUs take it from this share in pieces of 5 ms. A CPU that finds nothing
//! left is throttled: its thread goes back to the queue, and no thread runs on the CPU until the next period. A CPU that becomes idle gives
//! back what it has left. All threads count; no periods are started while all CPUs are idle.

use nearq_topology::Limits;

use crate::events::Timer;
use crate::trace::Kind;
use crate::world::World;

/// The period of the quota in nanoseconds, the kernel's default.
const PERIOD: u64 = 100_000_000;
/// The CPU time that a CPU takes at once, in nanoseconds (`sched_cfs_bandwidth_slice_us`).
const PIECE: u64 = 5_000_000;
/// The least share of a period that the kernel accepts, in nanoseconds.
const LEAST: u64 = 1_000_000;

/// The CPU time of each period, and what is left of the current one.
#[derive(Debug)]
pub(crate) struct Bandwidth {
    each_period: u64,
    left: u64,
}

impl World {
    /// Enforces the quota of the limits from now on.
    pub(crate) fn set_quota(&mut self, limits: &Limits, now: u64) {
        let each_period = limits
            .quota
            .as_ref()
            .map(|quota| ((quota.cpus * PERIOD as f64).round() as u64).max(LEAST));
        self.quota = each_period.map(|each_period| Bandwidth { each_period, left: each_period });
        self.events.clear_timer(Timer::Quota);
        for cpu in 0..self.cpus.len() {
            self.cpus[cpu].budget = 0;
            // CPUs that run threads must ask at once.
            self.set_leave(cpu);
            let at = &self.cpus[cpu];
            if let Some(slot) = at.current
                && self.threads.at(slot).piece.is_some()
            {
                self.settle(cpu, now);
                self.plan(cpu);
            }
        }
        self.release(now);
    }

    /// Whether a CPU may run a thread; takes a piece of the quota if it has none.
    pub(crate) fn has_budget(&mut self, cpu: usize) -> bool {
        let at = &mut self.cpus[cpu];
        let Some(quota) = &mut self.quota else { return true };
        if at.budget > 0 {
            return true;
        }
        if !self.events.is_set(Timer::Quota) {
            quota.left = quota.each_period;
            self.events.set_timer(Timer::Quota, at.clock + PERIOD);
        }
        at.budget = quota.left.min(PIECE);
        quota.left -= at.budget;
        at.budget > 0
    }

    /// A CPU that becomes idle gives back what it has left of the quota.
    pub(crate) fn return_budget(&mut self, cpu: usize) {
        let budget = std::mem::take(&mut self.cpus[cpu].budget);
        if let Some(quota) = &mut self.quota {
            quota.left = (quota.left + budget).min(quota.each_period);
        }
    }

    /// A CPU without a thread runs nothing until the next period.
    pub(crate) fn throttle(&mut self, cpu: usize) {
        self.cpus[cpu].throttled = true;
        let clock = self.cpus[cpu].clock;
        self.trace.record(clock, cpu, 0, Kind::Throttled, 0);
        self.set_busy(cpu, false, clock);
    }

    /// Whether threads may be waiting only for the quota.
    pub(crate) fn is_throttled(&self) -> bool {
        self.quota.is_some() && self.cpus.iter().any(|cpu| cpu.throttled)
    }

    /// A new period begins.
    pub(crate) fn new_period(&mut self, now: u64) {
        let used = self.busy > 0 || self.is_throttled();
        let Some(quota) = &mut self.quota else { return };
        quota.left = quota.each_period;
        if used {
            self.events.set_timer(Timer::Quota, now + PERIOD);
        }
        self.release(now);
    }

    /// The CPUs that were throttled go on.
    fn release(&mut self, now: u64) {
        for cpu in 0..self.cpus.len() {
            if std::mem::take(&mut self.cpus[cpu].throttled) && self.online.contains(cpu) {
                let at = &mut self.cpus[cpu];
                at.clock = at.clock.max(now);
                let clock = at.clock;
                self.set_busy(cpu, true, clock);
                self.go_on(cpu);
            }
        }
    }
}
