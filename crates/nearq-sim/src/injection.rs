//! Makes things go wrong, as [`Faults`] says. What goes wrong and when is decided by a separate stream of random
//! numbers, so that a run without faults is the same with or without this module.

use std::time::Duration;

use nearq_topology::{CpuSet, Limits, Quota};

use crate::events::Timer;
use crate::faults::{FaultCounts, Faults};
use crate::rng::Rng;
use crate::sched::Reason;
use crate::simulation::Schedule;
use crate::thread::State;
use crate::trace::Kind;
use crate::world::World;

/// Makes the faults' seed differ from the machine's.
const SEED: u64 = 0xFA17;
/// A thread that wakes up for no reason sleeps before that for less than this many nanoseconds.
const SPURIOUS_WITHIN: u64 = 1_000_000;

/// What goes wrong, and what has gone wrong.
#[derive(Debug)]
pub(crate) struct Injection {
    faults: Faults,
    rng: Rng,
    pub(crate) counts: FaultCounts,
    /// The CPU that is offline because of a fault.
    offline: Option<usize>,
    /// The limits as the program wants them, while a fault has shrunk them.
    original: Option<Limits>,
}

impl Injection {
    pub(crate) fn new(faults: Faults, seed: u64) -> Self {
        let counts = FaultCounts::default();
        Injection { faults, rng: Rng::new(seed ^ SEED), counts, offline: None, original: None }
    }

    /// Whether the states of threads are hidden.
    pub(crate) fn hides_states(&self) -> bool {
        self.faults.states_hidden
    }

    /// Decides by chance whether something happens.
    fn hits(&mut self, one_in: u64) -> bool {
        one_in > 0 && self.rng.one_in(one_in)
    }

    /// A time up to `most`.
    fn up_to(&mut self, most: Duration) -> u64 {
        self.rng.below(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX).saturating_add(1))
    }

    /// A time whose mean is `mean`; `None` if the mean is zero.
    fn about(&mut self, mean: Duration) -> Option<u64> {
        let mean = u64::try_from(mean.as_nanos()).unwrap_or(u64::MAX / 2).min(u64::MAX / 4);
        (mean > 0).then(|| mean / 2 + self.rng.below(mean))
    }
}

impl World {
    /// These things go wrong from now on.
    pub(crate) fn start_faults(&mut self, faults: Faults, seed: u64) {
        self.injection = Injection::new(faults, seed);
        self.disturbed = self.schedule != Schedule::Fair || faults.preempted_one_in > 0;
        self.next_cpu_fault(0);
        self.next_limits_fault(0);
    }

    /// These things go wrong from now on, and what went wrong before is undone.
    pub(crate) fn change_faults(&mut self, faults: Faults, now: u64) {
        self.stop_faults(now);
        self.injection.faults = faults;
        self.disturbed = self.schedule != Schedule::Fair || faults.preempted_one_in > 0;
        self.next_cpu_fault(now);
        self.next_limits_fault(now);
    }

    /// Nothing goes wrong any more, and what went wrong is undone: CPUs are online again, limits are as the program
    /// wants them, and threads that stood still go on.
    pub(crate) fn stop_faults(&mut self, now: u64) {
        self.injection.faults = Faults::NONE;
        self.disturbed = self.schedule != Schedule::Fair;
        self.events.clear_timer(Timer::CpuFault);
        self.events.clear_timer(Timer::LimitsFault);
        if let Some(cpu) = self.injection.offline.take() {
            self.set_online(cpu, true, now);
        }
        if let Some(limits) = self.injection.original.take() {
            self.apply_limits(limits, now);
        }
        for slot in self.threads.slots() {
            if self.threads.at(slot).state == State::StandingStill {
                self.events.clear_timer(Timer::Deadline { slot });
                self.go_on_after_standstill(slot, now);
            }
        }
    }

    /// The program has set limits: faults return to these limits.
    pub(crate) fn forget_shrunk_limits(&mut self) {
        self.injection.original = None;
    }

    /// Whether the creation of a thread is refused.
    pub(crate) fn refuses_spawn(&mut self) -> bool {
        let refused = self.injection.hits(self.injection.faults.spawn_refused_one_in);
        if refused {
            self.injection.counts.spawns_refused += 1;
            self.record(Kind::SpawnRefused, self.injection.counts.spawns_refused);
        }
        refused
    }

    /// The time at which a wait that would sleep now returns for no reason, if it does: this may be at once.
    pub(crate) fn wakes_for_no_reason(&mut self, now: u64) -> Option<u64> {
        if !self.injection.hits(self.injection.faults.spurious_wake_one_in) {
            return None;
        }
        let later = self.injection.rng.one_in(2);
        Some(if later { now + 1 + self.injection.rng.below(SPURIOUS_WITHIN) } else { now })
    }

    /// A wait of a thread returns for no reason.
    pub(crate) fn note_spurious(&mut self, slot: usize, now: u64) {
        self.injection.counts.spurious_wakes += 1;
        let thread = self.threads.at(slot);
        self.trace.record(now, thread.cpu, thread.id, Kind::SpuriousWake, thread.cpu as u64);
    }

    /// When a deadline is noticed.
    pub(crate) fn noticed(&mut self, deadline: u64) -> u64 {
        if !self.injection.hits(self.injection.faults.late_timer_one_in) {
            return deadline;
        }
        let late = self.injection.up_to(self.injection.faults.late_timer);
        self.injection.counts.late_timers += 1;
        self.record(Kind::LateTimer, late);
        deadline.saturating_add(late)
    }

    /// How long the running thread loses its CPU at this step, if it does.
    pub(crate) fn standstill(&mut self) -> Option<u64> {
        if !self.injection.hits(self.injection.faults.preempted_one_in) {
            return None;
        }
        Some(self.injection.up_to(self.injection.faults.preemption).max(1))
    }

    /// Takes a CPU's thread off it for that long. The CPU runs on when this returns.
    pub(crate) fn stand_still(&mut self, cpu: usize, nanoseconds: u64) {
        let slot = self.cpus[cpu].current.expect("only a CPU with a thread has a time");
        let now = self.cpus[cpu].clock;
        self.injection.counts.preemptions += 1;
        self.trace.record(now, cpu, self.threads.at(slot).id, Kind::StandsStill, nanoseconds);
        self.stop(cpu, false);
        self.threads.at_mut(slot).state = State::StandingStill;
        self.events.set_timer(Timer::Deadline { slot }, now + nanoseconds);
        self.go_on(cpu);
    }

    /// The standstill of a thread is over.
    pub(crate) fn go_on_after_standstill(&mut self, slot: usize, now: u64) {
        self.make_ready(slot, now, Reason::Woken);
    }

    // ---- CPUs and limits -------------------------------------------------------------------------------

    fn next_cpu_fault(&mut self, now: u64) {
        if let Some(time) = self.injection.about(self.injection.faults.offline_every) {
            self.events.set_timer(Timer::CpuFault, now + time);
        }
    }

    fn next_limits_fault(&mut self, now: u64) {
        if let Some(time) = self.injection.about(self.injection.faults.limits_every) {
            self.events.set_timer(Timer::LimitsFault, now + time);
        }
    }

    /// A CPU goes, or the one that went comes back.
    pub(crate) fn cpu_fault(&mut self, now: u64) {
        self.next_cpu_fault(now);
        if let Some(cpu) = self.injection.offline.take() {
            self.set_online(cpu, true, now);
            return;
        }
        // One of the usable CPUs, but not the last of them.
        if self.usable.len() < 2 {
            return;
        }
        let cpu = self.any_of(&self.usable.clone());
        self.injection.offline = Some(cpu);
        self.injection.counts.cpus_offline += 1;
        self.set_online(cpu, false, now);
    }

    /// The limits shrink, or are again what the program wants.
    pub(crate) fn limits_fault(&mut self, now: u64) {
        self.next_limits_fault(now);
        if let Some(limits) = self.injection.original.take() {
            self.apply_limits(limits, now);
            return;
        }
        let mut limits = self.limits.clone();
        let cpus = self.usable.clone();
        if cpus.len() > 1 && self.injection.rng.one_in(2) {
            let keep = 1 + self.injection.rng.below(cpus.len() as u64 - 1) as usize;
            let mut left = cpus;
            while left.len() > keep {
                let gone = self.any_of(&left);
                left.remove(gone);
            }
            limits.cpuset = Some(left);
        } else {
            // From a tenth to three quarters of the CPUs.
            let percent = 10 + self.injection.rng.below(66);
            let source = "a fault of the simulated machine";
            limits.quota = Some(Quota::new((cpus.len() as u64 * percent) as f64 / 100.0, source));
        }
        self.injection.original = Some(self.limits.clone());
        self.injection.counts.limits_shrunk += 1;
        self.apply_limits(limits, now);
    }

    fn any_of(&mut self, cpus: &CpuSet) -> usize {
        let place = self.injection.rng.below(cpus.len() as u64) as usize;
        cpus.iter().nth(place).expect("the place is below the length")
    }
}
