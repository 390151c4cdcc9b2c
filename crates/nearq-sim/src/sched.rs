//! The simulated kernel's scheduler: which thread runs where, and for how long.
//!
//! Small and fair, after the kernel's EEVDF in outline:
//! - **On one CPU** the thread with the least virtual time (CPU time divided by weight) goes next, and runs for a
//!   slice if others wait. A thread that slept keeps the distance to its queue that it had, within one slice.
//! - **A thread that wakes up** goes to its previous CPU if that is idle, else to an idle CPU that shares the
//!   last-level cache, else to one of the node, else to the least loaded (idle ones first). On a busy CPU it
//!   interrupts the thread there if its own slice would end earlier in virtual time: a heavier thread does,
//!   an equal one does not.
//! - **A CPU that runs out of work** pulls a waiting thread from the longest queue under its cache, in its node,
//!   on the machine. So no CPU is idle while a thread that may run there waits.
//!
//! There is no periodic balancing: queues of unequal length stay as they are while every CPU is busy.

use nearq_topology::CpuSet;

use crate::costs::NORMAL_WEIGHT;
use crate::events::What;
use crate::simulation::Schedule;
use crate::thread::{Entry, State};
use crate::trace::Kind;
use crate::world::World;

/// Under [`Schedule::Random`]: a thread is disturbed at one in so many steps.
const DISTURB: u64 = 16;
/// Under [`Schedule::Random`]: a disturbed thread stands still for less than this many nanoseconds.
const STANDSTILL: u64 = 5_000;

/// Why the thread that runs gives up control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Another CPU comes first.
    Order,
    /// Another thread gets the CPU, or this one another CPU.
    Preempted,
}

impl World {
    /// Whether the thread that runs must give up control before it may do something that others see.
    pub(crate) fn must_leave(&mut self) -> Option<Leave> {
        if self.schedule == Schedule::Random && self.rng.one_in(DISTURB) {
            let still = self.rng.below(STANDSTILL);
            self.cpus[self.cpu].clock += still;
            if !self.cpus[self.cpu].queue.is_empty() && self.rng.one_in(2) {
                return Some(Leave::Preempted);
            }
        }
        let cpu = &self.cpus[self.cpu];
        let due = cpu.reschedule || cpu.clock >= cpu.slice_end;
        if due && self.must_make_room() {
            return Some(Leave::Preempted);
        }
        let clock = self.now();
        // Past the limit the event loop shall see it, also if nobody else is there.
        let goes_on = self.events.is_first(clock, self.cpu) && clock <= self.time_limit;
        (!goes_on).then_some(Leave::Order)
    }

    /// At the end of a slice, or when asked to: does the thread that runs lose its CPU?
    fn must_make_room(&mut self) -> bool {
        if !self.me().allowed.contains(self.cpu) {
            return true;
        }
        self.count();
        let Entry { virtual_time, slice, weight, .. } = *self.me();
        let cpu = &mut self.cpus[self.cpu];
        let asked = std::mem::take(&mut cpu.reschedule);
        match cpu.queue.first() {
            Some(first) if asked || first < virtual_time => true,
            _ => {
                if cpu.clock >= cpu.slice_end {
                    cpu.slice_end = cpu.clock + slice;
                    cpu.virtual_deadline = virtual_time + slice * NORMAL_WEIGHT / weight;
                }
                false
            }
        }
    }

    /// Carries out what [`must_leave`](Self::must_leave) said.
    pub(crate) fn leave(&mut self, why: Leave) {
        match why {
            Leave::Order => self.schedule_event(self.cpu),
            Leave::Preempted => self.preempt(),
        }
    }

    /// Takes the CPU from the thread that runs, which stays ready.
    pub(crate) fn preempt(&mut self) {
        let (slot, cpu) = (self.slot, self.cpu);
        self.record(Kind::Preempted, self.cpus[cpu].queue.len() as u64);
        let now = self.now();
        self.take_off();
        self.go_on(cpu);
        let stays = self.threads.at(slot).allowed.contains(cpu);
        let target = if stays && !self.idle.intersects(&self.threads.at(slot).allowed) {
            cpu
        } else {
            self.place(slot)
        };
        self.assign(slot, target, now);
    }

    /// Lets a thread with less virtual time than the first that waits run later than that one.
    pub(crate) fn fall_behind(&mut self) -> bool {
        self.count();
        let Some(first) = self.cpus[self.cpu].queue.first() else { return false };
        let thread = self.threads.at_mut(self.slot);
        thread.virtual_time = thread.virtual_time.max(first + 1);
        true
    }

    /// Brings the books of the thread that runs up to date.
    pub(crate) fn count(&mut self) {
        let cpu = &mut self.cpus[self.cpu];
        let thread = self.threads.at_mut(self.slot);
        let ran = cpu.clock - thread.counted_to;
        thread.counted_to = cpu.clock;
        thread.cpu_time += ran;
        thread.virtual_time += ran * NORMAL_WEIGHT / thread.weight;
        let least =
            cpu.queue.first().map_or(thread.virtual_time, |first| first.min(thread.virtual_time));
        cpu.queue.floor = cpu.queue.floor.max(least);
    }

    /// Takes the thread that runs off its CPU, which then has none.
    pub(crate) fn take_off(&mut self) {
        self.count();
        let floor = self.cpus[self.cpu].queue.floor;
        let thread = self.threads.at_mut(self.slot);
        thread.lag = thread.virtual_time as i64 - floor as i64;
        self.cpus[self.cpu].current = None;
    }

    /// Finds a CPU for a thread that can run.
    pub(crate) fn make_ready(&mut self, slot: usize, now: u64) {
        let cpu = self.place(slot);
        self.assign(slot, cpu, now);
    }

    /// The CPU for a thread that can run.
    fn place(&mut self, slot: usize) -> usize {
        if self.schedule == Schedule::Random && self.rng.one_in(4) {
            let allowed = &self.threads.at(slot).allowed;
            let place = self.rng.below(allowed.len() as u64) as usize;
            return allowed.iter().nth(place).expect("a thread may run somewhere");
        }
        let thread = self.threads.at(slot);
        let previous = thread.cpu;
        if self.idle.contains(previous) && thread.allowed.contains(previous) {
            return previous;
        }
        let groups =
            [self.hardware.llc_cpus(previous), self.hardware.node_cpus(previous), &thread.allowed];
        if let Some(idle) =
            groups.iter().find_map(|group| first_common(&self.idle, &thread.allowed, group))
        {
            return idle;
        }
        let load =
            |cpu: usize| self.cpus[cpu].queue.len() + usize::from(self.cpus[cpu].current.is_some());
        let away = |cpu: usize| usize::from(cpu != previous);
        thread
            .allowed
            .iter()
            .min_by_key(|cpu| (load(*cpu), away(*cpu), *cpu))
            .expect("a thread may run somewhere")
    }

    /// Gives a thread that can run to a CPU.
    fn assign(&mut self, slot: usize, cpu: usize, now: u64) {
        if self.idle.remove(cpu) {
            let exit = self.jittered(self.costs.idle_exit);
            self.cpus[cpu].clock = now.max(self.cpus[cpu].clock) + exit;
            self.start(cpu, slot);
            return;
        }
        let virtual_time = self.arrive(slot, cpu);
        let key = self.cpus[cpu].queue.add(virtual_time, slot);
        self.crowded.insert(cpu);
        self.threads.at_mut(slot).state = State::Ready { key };
        let thread = self.threads.at(slot);
        let deadline = virtual_time + thread.slice * NORMAL_WEIGHT / thread.weight;
        if deadline < self.cpus[cpu].virtual_deadline {
            self.cpus[cpu].reschedule = true;
            self.interrupt(cpu, now);
        }
    }

    /// Puts a thread that comes from elsewhere on the scale of a CPU's queue.
    fn arrive(&mut self, slot: usize, cpu: usize) -> u64 {
        let floor = self.cpus[cpu].queue.floor;
        let thread = self.threads.at_mut(slot);
        thread.cpu = cpu;
        let most = (thread.slice * NORMAL_WEIGHT / thread.weight) as i64;
        thread.virtual_time = floor.saturating_add_signed(thread.lag.clamp(-most, most));
        thread.virtual_time
    }

    /// Takes a thread that waits for a CPU out of the queue.
    fn dequeue(&mut self, slot: usize) {
        let thread = self.threads.at_mut(slot);
        let State::Ready { key } = thread.state else {
            unreachable!("only a waiting thread is in a queue")
        };
        let cpu = thread.cpu;
        let queue = &mut self.cpus[cpu].queue;
        thread.lag = thread.virtual_time as i64 - queue.floor as i64;
        queue.remove(key);
        if queue.is_empty() {
            self.crowded.remove(cpu);
        }
    }

    /// A CPU without a thread takes the next one, from its own queue or another's, or becomes idle.
    pub(crate) fn go_on(&mut self, cpu: usize) {
        let own = match self.cpus[cpu].queue.len() {
            0 => None,
            waiting if self.schedule == Schedule::Random => {
                let place = self.rng.below(waiting as u64) as usize;
                self.cpus[cpu].queue.pop_at(place)
            }
            _ => self.cpus[cpu].queue.pop_first(),
        };
        if let Some(slot) = own {
            if self.cpus[cpu].queue.is_empty() {
                self.crowded.remove(cpu);
            }
            self.start(cpu, slot);
        } else if let Some(slot) = self.find_waiting(cpu) {
            self.dequeue(slot);
            self.arrive(slot, cpu);
            self.start(cpu, slot);
        } else {
            self.idle.insert(cpu);
            let clock = self.cpus[cpu].clock;
            self.trace.record(clock, cpu, 0, Kind::Idle, 0);
        }
    }

    /// A thread that waits for another CPU and may run on this one: from the longest queue, near before far.
    fn find_waiting(&self, cpu: usize) -> Option<usize> {
        if self.crowded.is_empty() {
            return None;
        }
        let groups = [self.hardware.llc_cpus(cpu), self.hardware.node_cpus(cpu), &self.crowded];
        groups.iter().find_map(|group| {
            let mut best: Option<(usize, usize)> = None;
            for other in group.iter().filter(|other| self.crowded.contains(*other)) {
                let queue = &self.cpus[other].queue;
                if best.is_some_and(|(len, _)| len >= queue.len()) {
                    continue;
                }
                let fits = queue.iter().find(|slot| self.threads.at(*slot).allowed.contains(cpu));
                best = fits.map(|slot| (queue.len(), slot)).or(best);
            }
            best.map(|(_, slot)| slot)
        })
    }

    /// Switches a CPU to a thread.
    fn start(&mut self, cpu: usize, slot: usize) {
        let switch = self.jittered(self.costs.context_switch);
        let thread = self.threads.at_mut(slot);
        let at = &mut self.cpus[cpu];
        let before = std::mem::replace(&mut at.last, thread.id);
        if before != thread.id {
            at.clock += switch;
        }
        if thread.cpu != cpu || !matches!(thread.state, State::Ready { .. }) {
            // From sleep or from elsewhere; one from this queue has its virtual time.
            self.arrive(slot, cpu);
        }
        let at = &mut self.cpus[cpu];
        let thread = self.threads.at_mut(slot);
        thread.state = State::Running;
        thread.counted_to = at.clock;
        at.current = Some(slot);
        at.reschedule = false;
        at.slice_end = at.clock + thread.slice;
        at.virtual_deadline = thread.virtual_time + thread.slice * NORMAL_WEIGHT / thread.weight;
        self.trace.record(at.clock, cpu, thread.id, Kind::Run, before);
        self.schedule_event(cpu);
    }

    /// Lets a CPU go on at its clock; an earlier event of it becomes void.
    pub(crate) fn schedule_event(&mut self, cpu: usize) {
        let at = &mut self.cpus[cpu];
        at.version += 1;
        let (time, version) = (at.clock, at.version);
        self.events.push(time, What::Cpu { cpu, version });
    }

    /// Ends the piece of time that a CPU's thread spends; it goes on at `now`.
    pub(crate) fn interrupt(&mut self, cpu: usize, now: u64) {
        let at = &mut self.cpus[cpu];
        if let Some(since) = at.spending_since
            && at.clock > now
        {
            at.clock = now.max(since);
            self.schedule_event(cpu);
        }
    }

    /// Sets where a thread may run, and gets it there. Without an allowed CPU the limits alone count.
    pub(crate) fn restrict(&mut self, slot: usize, now: u64) {
        let limits = self.limits.effective();
        let thread = self.threads.at_mut(slot);
        let both = thread.affinity.intersection(&limits);
        thread.allowed = if both.is_empty() { limits } else { both };
        let cpu = thread.cpu;
        match thread.state {
            State::Ready { .. } => {
                self.dequeue(slot);
                self.make_ready(slot, now);
            }
            State::Running if !thread.allowed.contains(cpu) => {
                self.cpus[cpu].reschedule = true;
                self.interrupt(cpu, now);
            }
            _ => {}
        }
    }
}

/// The first CPU that is in all three sets.
fn first_common(a: &CpuSet, b: &CpuSet, c: &CpuSet) -> Option<usize> {
    let words = a.as_words().iter().zip(b.as_words()).zip(c.as_words());
    words.enumerate().find_map(|(at, ((a, b), c))| {
        let common = a & b & c;
        (common != 0).then(|| at * 64 + common.trailing_zeros() as usize)
    })
}
