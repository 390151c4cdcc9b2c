//! Priorities of threads for [`Schedule::Pct`](crate::Schedule::Pct): drawing them, changing them, and holding back the
//! lower ones.

use crate::rng::Rng;
use crate::thread::State;
use crate::world::World;

/// A thread stands still for at most this many nanoseconds before a step.
const HELD: u64 = 1_000_000;
/// Change points are drawn below a power of two; its exponent is one of this many consecutive numbers, beginning with the least.
const LEAST_POWER: u64 = 7;
const POWERS: u64 = 10;
/// Makes the priorities' seed differ from the machine's.
const SEED: u64 = 0x9C7;

/// How priorities are drawn and when they change.
#[derive(Debug)]
pub(crate) struct Priorities {
    rng: Rng,
    steps: u64,
    /// Steps at which priorities fall, the last one first.
    changes: Vec<u64>,
    depth: u64,
}

impl Priorities {
    pub(crate) fn new(depth: u32, seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ SEED);
        let mut changes: Vec<u64> = (1..depth)
            .map(|_| {
                let power = LEAST_POWER + rng.below(POWERS);
                1 + rng.below(1 << power)
            })
            .collect();
        changes.sort_unstable_by(|a, b| b.cmp(a));
        Priorities { rng, steps: 0, changes, depth: u64::from(depth) }
    }

    /// Counts a step. Returns the priority that the thread has from then on, if it changes.
    fn step(&mut self) -> Option<u64> {
        self.steps += 1;
        if self.changes.last().is_none_or(|step| *step > self.steps) {
            return None;
        }
        self.changes.pop();
        // Each later priority falls below the earlier ones; all of them are below the drawn priorities.
        Some(self.changes.len() as u64)
    }
}

impl World {
    /// A new thread draws its priority.
    pub(crate) fn draw_priority(&mut self, slot: usize) {
        if let Some(priorities) = &mut self.priorities {
            let drawn = priorities.rng.next() >> 1;
            self.threads.at_mut(slot).priority = priorities.depth + drawn;
        }
    }

    /// Called when the running thread does a step. Returns whether it must give up control before the step.
    pub(crate) fn step_by_priority(&mut self) -> bool {
        let Some(priorities) = &mut self.priorities else { return false };
        if let Some(priority) = priorities.step() {
            self.me_mut().priority = priority;
            // Its CPU is now free for other threads.
            self.cpus[self.cpu].reschedule = true;
            let now = self.now();
            self.release_highest(now);
        }
        if self.highest() == Some(self.cpu) {
            return false;
        }
        let at = &mut self.cpus[self.cpu];
        at.held_since = Some(at.clock);
        at.clock += HELD;
        true
    }

    /// The CPU whose thread has the highest priority among those that do not spin.
    fn highest(&self) -> Option<usize> {
        let priority = |cpu: usize| {
            let thread = self.threads.at(self.cpus[cpu].current?);
            let spins = thread.piece.as_ref().is_some_and(|piece| piece.watch && !piece.over);
            (thread.state == State::Running && !spins).then_some((thread.priority, cpu))
        };
        (0..self.cpus.len()).filter_map(priority).max().map(|(_, cpu)| cpu)
    }

    /// Called when a thread has left its CPU or has a lower priority: the thread whose priority is now the highest is no longer held back.
    pub(crate) fn release_highest(&mut self, now: u64) {
        if self.priorities.is_none() {
            return;
        }
        if let Some(cpu) = self.highest() {
            self.release_held(cpu, now);
        }
    }

    /// The thread on a CPU is no longer held back.
    pub(crate) fn release_held(&mut self, cpu: usize, now: u64) {
        if self.events.has_cpu(cpu)
            && let Some(since) = self.cpus[cpu].held_since.take()
        {
            self.cpus[cpu].clock = since.max(now).min(self.cpus[cpu].clock);
            self.events.set_cpu(cpu, self.cpus[cpu].clock);
        }
    }
}
