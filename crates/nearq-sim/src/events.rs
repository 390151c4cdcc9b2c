//! The pending events: CPUs that go on at some time, and timers. The earliest comes first; events at the same time have a defined order.
//!
//! A CPU has at most one time, and so has a timer; a new time replaces the old one. So no entry is ever stale, and the size depends only on
//! the existing CPUs and timers, however long a run takes. CPUs change their time at nearly every step and are kept in a winner tree,
//! timers in a heap that knows where each is.

use crate::machine::MOST_CPUS;

/// A timer of the machine. Its `id` is its place in the tables below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The scheduler's tick.
    Tick,
    /// A new period of the CPU quota.
    Quota,
    /// A fault takes a CPU away, or gives it back.
    CpuFault,
    /// A fault changes the limits.
    LimitsFault,
    /// The deadline of the thread in this slot: the end of its wait, or of its standstill.
    Deadline { slot: usize },
}

/// Timers that belong to no thread.
const OWN_TIMERS: usize = 4;

impl Timer {
    fn id(self) -> usize {
        match self {
            Timer::Tick => 0,
            Timer::Quota => 1,
            Timer::CpuFault => 2,
            Timer::LimitsFault => 3,
            Timer::Deadline { slot } => OWN_TIMERS + slot,
        }
    }

    fn of(id: usize) -> Self {
        match id {
            0 => Timer::Tick,
            1 => Timer::Quota,
            2 => Timer::CpuFault,
            3 => Timer::LimitsFault,
            _ => Timer::Deadline { slot: id - OWN_TIMERS },
        }
    }
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Timer(Timer),
    /// A CPU goes on.
    Cpu(usize),
}

/// All pending events. Among events at the same time, timers come first, in the order in which they were set; then CPUs by number.
#[derive(Debug)]
pub(crate) struct Events {
    cpus: Winners,
    timers: Timers,
}

impl Events {
    /// No events, for CPUs numbered below `numbers`.
    pub(crate) fn new(numbers: usize) -> Self {
        Events { cpus: Winners::new(numbers), timers: Timers::default() }
    }

    /// Makes a CPU go on at `time`, instead of any other time that it had.
    #[inline]
    pub(crate) fn set_cpu(&mut self, cpu: usize, time: u64) {
        self.cpus.set(cpu, Winners::key(time, cpu));
    }

    /// Whether the CPU has a time.
    pub(crate) fn has_cpu(&self, cpu: usize) -> bool {
        self.cpus.has(cpu)
    }

    /// Sets a timer, instead of any other time that it had.
    pub(crate) fn set_timer(&mut self, timer: Timer, time: u64) {
        self.timers.clear(timer.id());
        self.timers.set(timer.id(), time);
    }

    pub(crate) fn clear_timer(&mut self, timer: Timer) {
        self.timers.clear(timer.id());
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.timers.is_set(timer.id())
    }

    /// Takes out what comes next, with its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, What)> {
        let cpu = self.cpus.first_time();
        match (self.timers.first(), cpu) {
            (Some((time, id)), cpu) if cpu.is_none_or(|(cpu_time, _)| time <= cpu_time) => {
                self.timers.clear(id);
                Some((time, What::Timer(Timer::of(id))))
            }
            (_, Some((time, cpu))) => {
                self.cpus.set(cpu, NEVER);
                Some((time, What::Cpu(cpu)))
            }
            (_, None) => None,
        }
    }

    /// Whether a CPU at `time`, which is not among the events, comes before all of them.
    #[inline]
    pub(crate) fn is_first(&self, time: u64, cpu: usize) -> bool {
        time < self.timers.first_time && Winners::key(time, cpu) <= self.cpus.first()
    }

    /// Whether no CPU and no thread has a pending event: timers of the machine alone do not make any thread run.
    pub(crate) fn no_thread_will_run(&self) -> bool {
        self.cpus.first() == NEVER && self.timers.deadlines == 0
    }

    /// How many events are waiting.
    #[cfg(test)]
    fn len(&self) -> usize {
        let cpus = self.cpus.keys.len() / 2;
        self.timers.heap.len() + (0..cpus).filter(|cpu| self.cpus.has(*cpu)).count()
    }
}

/// A time that is never reached.
const NEVER: u64 = u64::MAX;

/// Bits of a CPU's number in a key.
const CPU_BITS: u32 = MOST_CPUS.ilog2();
const _: () = assert!(MOST_CPUS.is_power_of_two());

/// The latest time that a CPU can be given, 52 days: later times count as this one.
pub(crate) const LAST: u64 = (1 << (u64::BITS - CPU_BITS)) - 2;

/// A tree in which each place has the earlier of the two keys below. A key is a time followed by a CPU's number: so the lower number comes
/// first if times are equal, and a change is a series of minima, without a branch.
#[derive(Debug)]
struct Winners {
    /// Place 1 is the root; the places below `at` are `2 * at` and `2 * at + 1`; the last row holds the CPUs.
    keys: Vec<u64>,
}

impl Winners {
    fn new(numbers: usize) -> Self {
        let size = numbers.next_power_of_two().max(2);
        Winners { keys: vec![NEVER; 2 * size] }
    }

    fn key(time: u64, cpu: usize) -> u64 {
        time.min(LAST) << CPU_BITS | cpu as u64
    }

    /// The key of the first CPU.
    #[inline]
    fn first(&self) -> u64 {
        self.keys[1]
    }

    /// The time and the CPU of the first, if there is one.
    fn first_time(&self) -> Option<(u64, usize)> {
        let key = self.first();
        (key != NEVER).then_some((key >> CPU_BITS, (key & (MOST_CPUS as u64 - 1)) as usize))
    }

    fn has(&self, cpu: usize) -> bool {
        self.keys[self.keys.len() / 2 + cpu] != NEVER
    }

    #[inline]
    fn set(&mut self, cpu: usize, key: u64) {
        let (mut least, mut at) = (key, self.keys.len() / 2 + cpu);
        self.keys[at] = key;
        while at > 1 {
            least = least.min(self.keys[at ^ 1]);
            at /= 2;
            self.keys[at] = least;
        }
    }
}

/// The place of a timer that is not set.
const NOWHERE: u32 = u32::MAX;

/// A heap of timers that can be taken out from anywhere.
#[derive(Debug)]
struct Timers {
    /// Time, the order in which they were set, the timer's number.
    heap: Vec<(u64, u64, usize)>,
    /// Where each is in the heap.
    places: Vec<u32>,
    set: u64,
    first_time: u64,
    deadlines: usize,
}

impl Default for Timers {
    fn default() -> Self {
        Timers { heap: Vec::new(), places: Vec::new(), set: 0, first_time: NEVER, deadlines: 0 }
    }
}

impl Timers {
    fn first(&self) -> Option<(u64, usize)> {
        self.heap.first().map(|(time, _, id)| (*time, *id))
    }

    fn is_set(&self, id: usize) -> bool {
        self.places.get(id).is_some_and(|place| *place != NOWHERE)
    }

    fn set(&mut self, id: usize, time: u64) {
        if self.places.len() <= id {
            self.places.resize(id + 1, NOWHERE);
        }
        self.set += 1;
        self.deadlines += usize::from(id >= OWN_TIMERS);
        self.heap.push((time, self.set, id));
        self.rise(self.heap.len() - 1);
        self.first_time = self.heap[0].0;
    }

    fn clear(&mut self, id: usize) {
        if !self.is_set(id) {
            return;
        }
        let place = std::mem::replace(&mut self.places[id], NOWHERE) as usize;
        self.deadlines -= usize::from(id >= OWN_TIMERS);
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            // The last timer took its place, and belongs farther down or farther up.
            self.sink(place);
            self.rise(place);
        }
        self.first_time = self.heap.first().map_or(NEVER, |(time, ..)| *time);
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 && self.heap[place] < self.heap[(place - 1) / 2] {
            self.heap.swap(place, (place - 1) / 2);
            self.places[self.heap[place].2] = place as u32;
            place = (place - 1) / 2;
        }
        self.places[self.heap[place].2] = place as u32;
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let mut least = place;
            for below in [2 * place + 1, 2 * place + 2] {
                if below < self.heap.len() && self.heap[below] < self.heap[least] {
                    least = below;
                }
            }
            if least == place {
                break;
            }
            self.heap.swap(place, least);
            self.places[self.heap[place].2] = place as u32;
            place = least;
        }
        self.places[self.heap[place].2] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn events_are_ordered_by_time_then_timers_then_cpus() {
        let mut events = Events::new(10);
        events.set_cpu(1, 5);
        events.set_cpu(0, 5);
        events.set_timer(Timer::Deadline { slot: 9 }, 5);
        events.set_timer(Timer::Tick, 5);
        events.set_cpu(7, 4);
        assert!(events.is_first(4, 6) && events.is_first(3, 8) && !events.is_first(4, 8));
        let order: Vec<What> = std::iter::from_fn(|| events.pop()).map(|(_, what)| what).collect();
        let deadline = What::Timer(Timer::Deadline { slot: 9 });
        let expected =
            [What::Cpu(7), deadline, What::Timer(Timer::Tick), What::Cpu(0), What::Cpu(1)];
        assert_eq!(order, expected);
        assert!(events.is_first(100, 0));
    }

    #[test]
    fn setting_a_time_replaces_the_earlier_time() {
        let mut events = Events::new(3);
        events.set_cpu(2, 50);
        events.set_cpu(2, 7);
        events.set_timer(Timer::Deadline { slot: 3 }, 5);
        events.set_timer(Timer::Deadline { slot: 3 }, 9);
        events.set_timer(Timer::Quota, 8);
        assert!(!events.no_thread_will_run());
        assert_eq!(events.pop(), Some((7, What::Cpu(2))));
        events.clear_timer(Timer::Deadline { slot: 3 });
        assert!(events.no_thread_will_run(), "the quota's timer makes no thread run");
        assert_eq!(events.pop(), Some((8, What::Timer(Timer::Quota))));
        assert_eq!((events.pop(), events.len()), (None, 0));
    }

    /// The events are compared with a plain list, over many random changes.
    #[test]
    fn the_earliest_event_is_always_first() {
        let mut rng = Rng::new(4);
        let mut events = Events::new(21);
        let (mut cpus, mut timers) = ([NEVER; 21], [(NEVER, 0); 30]);
        for step in 1..20_000 {
            let time = rng.below(1000);
            match rng.below(4) {
                0 => {
                    let cpu = rng.below(21) as usize;
                    cpus[cpu] = time;
                    events.set_cpu(cpu, time);
                }
                1 => {
                    let slot = rng.below(30) as usize;
                    timers[slot] = (time, step);
                    events.set_timer(Timer::Deadline { slot }, time);
                }
                2 => {
                    let slot = rng.below(30) as usize;
                    timers[slot] = (NEVER, 0);
                    events.clear_timer(Timer::Deadline { slot });
                }
                _ => {
                    let cpu = (0..21)
                        .min_by_key(|cpu| (cpus[*cpu], *cpu))
                        .expect("there are CPUs and timers");
                    let timer = (0..30)
                        .min_by_key(|slot| timers[*slot])
                        .expect("there are CPUs and timers");
                    let expected = if timers[timer].0 <= cpus[cpu] && timers[timer].0 != NEVER {
                        let (time, _) = std::mem::replace(&mut timers[timer], (NEVER, 0));
                        Some((time, What::Timer(Timer::Deadline { slot: timer })))
                    } else if cpus[cpu] == NEVER {
                        None
                    } else {
                        Some((std::mem::replace(&mut cpus[cpu], NEVER), What::Cpu(cpu)))
                    };
                    assert_eq!(events.pop(), expected, "step {step}");
                }
            }
        }
    }
}
