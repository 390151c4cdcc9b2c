//! What happens to threads between their steps that is caused neither by them nor by the scheduler: a schedule's disturbances, and faults.

use crate::simulation::Schedule;
use crate::world::World;

/// Under [`Schedule::Random`]: a thread is disturbed at one step in this many.
const DISTURB: u64 = 16;
/// Under [`Schedule::Random`]: a disturbed thread stands still for less than this many nanoseconds.
const STANDSTILL: u64 = 5_000;

impl World {
    /// Whether the running thread may now do something that other threads see. Otherwise it must give up control.
    #[inline]
    pub(crate) fn may_go_on(&mut self) -> bool {
        if self.disturbed && self.disturb() {
            return false;
        }
        let at = &self.cpus[self.cpu];
        !at.must_check(at.clock)
            && self.events.is_first(at.clock, self.cpu)
            // Past the limit, control must return to the event loop, even if there is no other thread.
            && at.clock <= self.time_limit
    }

    /// Called at a step of the running thread, before other threads see the step. Returns whether the thread must give up control.
    #[cold]
    fn disturb(&mut self) -> bool {
        if self.schedule == Schedule::Random && self.rng.one_in(DISTURB) {
            let still = self.rng.below(STANDSTILL);
            let preempt = self.rng.one_in(2);
            let at = &mut self.cpus[self.cpu];
            at.clock += still;
            at.reschedule |= preempt;
        }
        if self.cpus[self.cpu].preemption_off {
            return false;
        }
        if let Some(nanoseconds) = self.standstill() {
            let at = &mut self.cpus[self.cpu];
            at.stall = Some(nanoseconds);
            at.reschedule = true;
            return true;
        }
        self.priorities.is_some() && self.step_by_priority()
    }
}
