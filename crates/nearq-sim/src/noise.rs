//! What a kernel and a CPU do besides running threads, off unless a machine's costs say otherwise: timers' interrupts and their slack, the
//! tick's work, and deep idle.
//!
//! - **Timers.** A sleep that ends by its deadline costs the CPU where the thread went to sleep an interrupt and the thread's wake-up. It
//!   may end late by up to the slack: the interrupt comes at the end of the first thread's slack, and wakes up every thread of that CPU
//!   whose deadline has passed by then.
//! - **The tick** takes time from each CPU that has a thread.
//! - **Deep idle.** A CPU that has been idle for long is in a deeper state, which takes longer to leave.

use std::collections::BTreeSet;

use crate::events::Timer;
use crate::machine::Machine;
use crate::running::TICK;
use crate::world::World;

/// The deadlines of threads that may sleep on for the slack, by the CPU where they went to sleep.
#[derive(Debug, Default)]
pub(crate) struct Slack {
    /// Deadline and slot.
    by_cpu: Vec<BTreeSet<(u64, usize)>>,
}

impl Slack {
    fn of(&mut self, cpu: usize) -> &mut BTreeSet<(u64, usize)> {
        if self.by_cpu.len() <= cpu {
            self.by_cpu.resize_with(cpu + 1, BTreeSet::new);
        }
        &mut self.by_cpu[cpu]
    }
}

/// The costs that are 0 by default, their values on a server, and the sources of these.
const NOISE: [(&str, u64, &str); 5] = [
    (
        "timer_interrupt",
        1_000,
        "an interrupt, the expiry of a timer and the setting of the next: a stated round input",
    ),
    ("timer_slack", 50_000, "the default of Linux: PR_SET_TIMERSLACK in prctl(2)"),
    ("tick", 2_000, "the work of a tick on a busy CPU: a stated round input"),
    (
        "deep_idle_exit",
        133_000,
        "C6 of Skylake servers: the table skx_cstates in Linux's drivers/idle/intel_idle.c",
    ),
    ("deep_idle_after", 600_000, "the target residency of the same state"),
];

impl Machine {
    /// The same machine with noise: timers' interrupts and slack, the work of ticks, and a deeper idle state. What a machine already has
    /// stays as it is.
    #[must_use]
    pub fn with_noise(self) -> Self {
        let off = |machine: &Self, name| machine.costs().get(name) == Some(0);
        NOISE.into_iter().fold(self, |machine, (name, value, text)| {
            if off(&machine, name) { machine.with_cost(name, value, text) } else { machine }
        })
    }
}

impl World {
    /// Sets the timer for the end of the running thread's sleep.
    pub(crate) fn arm(&mut self, deadline: u64) {
        let (slot, cpu) = (self.slot, self.cpu);
        let time = self.noticed(deadline);
        let slack = if self.me().exact { 0 } else { self.costs.timer_slack };
        if slack > 0 {
            self.slack.of(cpu).insert((time, slot));
            self.me_mut().slack_from = Some((time, cpu));
        }
        self.events.set_timer(Timer::Deadline { slot }, time.saturating_add(slack));
    }

    /// The thread's timer is no longer needed.
    pub(crate) fn disarm(&mut self, slot: usize) {
        self.events.clear_timer(Timer::Deadline { slot });
        if let Some((time, cpu)) = self.threads.at_mut(slot).slack_from.take() {
            self.slack.of(cpu).remove(&(time, slot));
        }
    }

    /// A timer of a sleeping thread has run out: the interrupt of that thread's CPU.
    pub(crate) fn timer_interrupt(&mut self, slot: usize, now: u64) {
        let entry = self.threads.at(slot);
        let (cpu, is_fault) = (entry.cpu, entry.spurious);
        if self.costs.timer_interrupt == 0 || is_fault {
            self.disarm(slot);
            self.time_out(slot, now);
            return;
        }
        let mut due = vec![slot];
        let late = self.slack.of(cpu).range(..=(now, usize::MAX));
        due.extend(late.map(|(_, slot)| *slot).filter(|other| *other != slot));
        let wake_ups = self.costs.wake_up * due.len() as u64;
        let mut cost = self.jittered(self.costs.timer_interrupt + wake_ups);
        if self.idle.contains(cpu) {
            // The interrupt ends the idle state, whether the CPU gets a thread or not.
            cost += self.idle_exit(cpu, now);
            let at = &mut self.cpus[cpu];
            (at.idle_since, at.awake_until) = (now + cost, now + cost);
        }
        self.take_from(cpu, now, cost);
        for slot in due {
            self.disarm(slot);
            self.time_out(slot, now);
        }
    }

    /// Every CPU that has a thread does the work of a tick.
    pub(crate) fn work_of_tick(&mut self, now: u64) {
        // At most half of the time: threads must get on.
        let work = self.costs.tick.min(TICK / 2);
        if work == 0 {
            return;
        }
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].current.is_some() {
                let cost = self.jittered(work).min(TICK / 2);
                self.take_from(cpu, now, cost);
            }
        }
    }

    /// How long a CPU takes to leave its idle state.
    pub(crate) fn idle_exit(&mut self, cpu: usize, now: u64) -> u64 {
        if now < self.cpus[cpu].awake_until {
            return 0;
        }
        let idle = now.saturating_sub(self.cpus[cpu].idle_since);
        let deep = self.costs.deep_idle_exit > 0 && idle >= self.costs.deep_idle_after;
        let exit = self.costs.idle_exit + if deep { self.costs.deep_idle_exit } else { 0 };
        self.jittered(exit)
    }
}
