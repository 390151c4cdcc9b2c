//! The threads of one CPU under [`O1`](super::O1): two arrays of lists by priority, and what moves a thread's priority.

use std::collections::BTreeMap;

/// A priority: 0 is the best, that of nice -20 with the largest bonus; 39 is the worst.
const WORST: u64 = 39;
/// How much sleep counts at most, in nanoseconds (`MAX_SLEEP_AVG`).
const MOST_SLEEP: u64 = 10_000_000_000;
/// The range of the bonus for sleep: from half of it worse to half of it better (`PRIO_BONUS_RATIO` of the 40 priorities).
const BONUS: u64 = 10;
/// By how much better than its nice value a thread's priority must be at nice 0 for it to count as interactive (`INTERACTIVE_DELTA`).
const INTERACTIVE: i64 = 2;
/// The shortest and the longest time slice, in nanoseconds.
const SLICES: [u64; 2] = [10_000_000, 200_000_000];
/// For each thread of the queue, how long threads may wait in `expired` while interactive ones go back to `active`, in nanoseconds
/// (`STARVATION_LIMIT`).
const STARVATION: u64 = 10_000_000_000;
/// The tick of that kernel on Itanium, in nanoseconds: its unit of time slices.
const KERNEL_TICK: u64 = 1_000_000;
/// What a new thread inherits of its creator's sleep, in percent (`CHILD_PENALTY`).
const CHILD_PERCENT: u64 = 50;

/// A place in the arrays: which array by its number, the priority, and the order within a list.
pub(super) type Key = (u64, u64, i64);

/// Where in its list a thread is put that begins to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// First in its list of `active`: it was interrupted.
    Head,
    /// Last in its list of `active`.
    Tail,
    /// Last in its list of `expired`.
    Expired,
}

/// A thread.
#[derive(Debug)]
pub(super) struct Entity {
    /// The priority of its nice value.
    base: u64,
    /// How much of the recent time it slept, in nanoseconds.
    sleep: u64,
    /// What is left of its time slice, in nanoseconds; not 0 while it waits or begins to run.
    pub(super) slice: u64,
    /// Its CPU, or the CPU for which it waits.
    pub(super) cpu: usize,
    /// While it runs: up to when its time is counted.
    pub(super) counted_to: u64,
    /// When it last left a CPU.
    pub(super) stopped_at: u64,
    /// Its place while it waits.
    pub(super) key: Option<Key>,
    place: Place,
    /// The place of a thread that it has created since it got its CPU, and which goes first.
    behind: Option<Key>,
    /// Its priority, which is computed when it wakes up and when its slice is over.
    priority: u64,
}

impl Default for Entity {
    fn default() -> Self {
        let mut new = Entity {
            base: WORST / 2 + 1,
            sleep: 0,
            slice: 0,
            cpu: 0,
            counted_to: 0,
            stopped_at: 0,
            key: None,
            place: Place::Tail,
            behind: None,
            priority: 0,
        };
        new.slice = new.whole_slice();
        new.priority = new.effective();
        new
    }
}

impl Entity {
    pub(super) fn priority(&self) -> u64 {
        self.priority
    }

    /// The priority by nice value and sleep.
    fn effective(&self) -> u64 {
        let bonus = (BONUS * self.sleep / MOST_SLEEP).cast_signed() - (BONUS / 2).cast_signed();
        self.base.saturating_add_signed(-bonus).min(WORST)
    }

    fn whole_slice(&self) -> u64 {
        SLICES[0] + (SLICES[1] - SLICES[0]) * (WORST - self.base) / WORST
    }

    fn is_interactive(&self) -> bool {
        let nice = self.base.cast_signed() - 20;
        let least = nice * BONUS.cast_signed() / 40 + INTERACTIVE;
        self.priority.cast_signed() <= self.base.cast_signed() - least
    }

    pub(super) fn set_nice(&mut self, nice: i32) {
        self.base = (nice + 20).clamp(0, 39) as u64;
        self.priority = self.effective();
    }

    /// The thread has slept and can run again.
    pub(super) fn wake(&mut self, now: u64) {
        self.sleep = (self.sleep + now.saturating_sub(self.stopped_at)).min(MOST_SLEEP);
        self.priority = self.effective();
        self.place = Place::Tail;
    }

    /// The thread waits next at the end of its list of `active`.
    pub(super) fn waits_at_tail(&mut self) {
        self.place = Place::Tail;
    }

    /// The thread waits next at the head of its list of `active`.
    pub(super) fn waits_at_head(&mut self) {
        self.place = Place::Head;
    }

    /// The thread waits next right behind the one with that place, which it has created.
    pub(super) fn waits_behind(&mut self, child: Key) {
        self.behind = Some(child);
    }

    /// The thread waits next at the end of its list of `expired`.
    pub(super) fn waits_in_expired(&mut self) {
        self.place = Place::Expired;
    }

    /// Counts the time that it ran, up to now. It waits next at the head of its list, unless something else is said.
    pub(super) fn count(&mut self, now: u64) {
        let ran = now.saturating_sub(self.counted_to);
        self.counted_to = now;
        self.sleep = self.sleep.saturating_sub(ran);
        self.slice = self.slice.saturating_sub(ran);
    }

    /// Its slice is over: it gets a new one, and waits next in `expired`, or in `active` if it is interactive and no other thread starves.
    pub(super) fn refill(&mut self, starving: bool) {
        self.priority = self.effective();
        self.slice = self.whole_slice();
        let goes_on = self.is_interactive() && !starving;
        self.place = if goes_on { Place::Tail } else { Place::Expired };
    }

    /// A new thread, which gets half of this one's time slice, in ticks of that kernel, and a part of what sleep has earned it. This one's
    /// slice is over if it has none left.
    pub(super) fn split(&mut self, now: u64) -> Self {
        self.count(now);
        let ticks = self.slice.div_ceil(KERNEL_TICK);
        let half = ticks.div_ceil(2).max(1) * KERNEL_TICK;
        self.slice = (ticks / 2 * KERNEL_TICK).max(1);
        let sleep = self.sleep * CHILD_PERCENT / 100;
        let mut new = Entity { base: self.base, sleep, slice: half, ..Entity::default() };
        new.priority = new.effective();
        new
    }
}

/// The threads of one CPU.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The threads that wait, in the order of the arrays.
    waiting: BTreeMap<Key, usize>,
    /// How many threads of `waiting` are in `active`.
    active: usize,
    /// The number of the array that is `active`; `expired` has the next one.
    array: u64,
    /// For the order within the lists: the next number at the head, negative, and the next one at the end.
    heads: i64,
    tails: i64,
    /// The thread that runs.
    pub(super) current: Option<usize>,
    /// When the first thread of `expired` came there.
    expired_since: Option<u64>,
}

impl Queue {
    /// Threads that run or wait (`nr_running`).
    pub(super) fn runnable(&self) -> usize {
        self.waiting.len() + usize::from(self.current.is_some())
    }

    /// Whether a thread waits in `expired`.
    pub(super) fn has_expired(&self, entity: &Entity) -> bool {
        entity.key.is_some_and(|(array, ..)| array != self.array)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The threads that run or wait.
    pub(super) fn members(&self) -> impl Iterator<Item = usize> {
        self.current.into_iter().chain(self.waiting.values().copied())
    }

    /// Puts a thread where it waits.
    pub(super) fn add(&mut self, entities: &mut [Entity], slot: usize) {
        let entity = &mut entities[slot];
        let place = std::mem::replace(&mut entity.place, Place::Head);
        let expired = place == Place::Expired;
        let behind = entity.behind.take().filter(|(array, ..)| *array == self.array);
        let number = if place == Place::Head {
            // Every other number is free for a thread that goes behind the one it has created.
            self.heads -= 2;
            behind.map_or(self.heads, |(_, _, child)| child + 1)
        } else {
            self.tails += 1;
            self.tails
        };
        let key = (self.array + u64::from(expired), entity.priority, number);
        self.active += usize::from(!expired);
        self.waiting.insert(key, slot);
        entity.key = Some(key);
        entity.slice = entity.slice.max(1);
    }

    /// Takes a thread out that waits.
    pub(super) fn remove(&mut self, entity: &mut Entity) {
        let key = entity.key.take().expect("the thread waits");
        self.waiting.remove(&key);
        self.active -= usize::from(key.0 == self.array);
    }

    /// The next thread to run. The arrays change places if `active` is empty.
    pub(super) fn first(&mut self) -> Option<usize> {
        if self.active == 0 && !self.waiting.is_empty() {
            self.array += 1;
            self.active = self.waiting.len();
            self.expired_since = None;
        }
        self.waiting.values().next().copied()
    }

    /// The threads that wait, in the order in which a balancing CPU looks at them: first those of `expired`, the best priorities first, and
    /// the end of each list first.
    pub(super) fn in_order_of_taking(&self) -> Vec<usize> {
        let mut all: Vec<(&Key, &usize)> = self.waiting.iter().collect();
        all.sort_by_key(|((array, priority, number), _)| {
            (std::cmp::Reverse(*array), *priority, std::cmp::Reverse(*number))
        });
        all.into_iter().map(|(_, slot)| *slot).collect()
    }

    /// The CPU has no thread.
    pub(super) fn ran_out(&mut self) {
        self.expired_since = None;
    }

    /// A slice is over.
    pub(super) fn note_expiry(&mut self, now: u64) {
        self.expired_since.get_or_insert(now);
    }

    /// Whether threads have waited in `expired` for so long that interactive ones must go there too.
    pub(super) fn expired_starve(&self, now: u64) -> bool {
        let limit = STARVATION * self.runnable() as u64;
        self.expired_since.is_some_and(|since| now - since > limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entities(count: usize) -> Vec<Entity> {
        (0..count).map(|_| Entity::default()).collect()
    }

    /// The order in which the threads run; takes all out.
    fn order(queue: &mut Queue, all: &mut [Entity]) -> Vec<usize> {
        let mut order = Vec::new();
        while let Some(slot) = queue.first() {
            queue.remove(&mut all[slot]);
            order.push(slot);
        }
        order
    }

    #[test]
    fn a_thread_that_used_its_slice_waits_until_all_others_have_used_theirs() {
        let (mut all, mut queue) = (entities(3), Queue::default());
        all[0].refill(false);
        for slot in 0..3 {
            queue.add(&mut all, slot);
        }
        assert_eq!(order(&mut queue, &mut all), [1, 2, 0]);
    }

    #[test]
    fn a_thread_that_was_interrupted_goes_on_first_and_a_woken_one_last() {
        let (mut all, mut queue) = (entities(3), Queue::default());
        all[2].place = Place::Head;
        for slot in 0..3 {
            queue.add(&mut all, slot);
        }
        assert_eq!(queue.first(), Some(2));
        assert_eq!(queue.in_order_of_taking(), [1, 0, 2]);
    }

    #[test]
    fn sleep_makes_a_priority_better_by_at_most_five_and_running_worse_again() {
        let mut thread = Entity::default();
        assert_eq!((thread.priority(), thread.slice / 1_000_000), (25, 102));
        assert!(!thread.is_interactive());
        thread.wake(MOST_SLEEP / 2);
        assert_eq!(thread.priority(), 20);
        thread.wake(10 * MOST_SLEEP);
        assert!(thread.priority() == 15 && thread.is_interactive());
        thread.counted_to = 0;
        thread.count(3_000_000_000);
        thread.refill(false);
        assert_eq!(thread.priority(), 18, "seven of ten seconds are left");
        // Interactive threads stay in `active`, unless others starve.
        assert_eq!(thread.place, Place::Tail);
        thread.refill(true);
        assert_eq!(thread.place, Place::Expired);
        thread.set_nice(-20);
        assert_eq!(thread.whole_slice(), SLICES[1]);
        thread.set_nice(19);
        assert_eq!(thread.whole_slice(), SLICES[0]);
    }

    #[test]
    fn a_child_gets_half_of_what_is_left_of_its_creators_slice_and_goes_first() {
        let mut parent = Entity::default();
        let child = parent.split(0);
        assert_eq!([parent.slice, child.slice].map(|slice| slice / KERNEL_TICK), [51, 52]);
        parent.slice = KERNEL_TICK / 3;
        let last = parent.split(0);
        assert_eq!((parent.slice, last.slice), (1, KERNEL_TICK), "the parent's slice is over");
        // The parent has slot 0, its child 1, and another thread waits that was there before.
        let (mut all, mut queue) = (entities(3), Queue::default());
        all[2].place = Place::Head;
        queue.add(&mut all, 2);
        all[1].place = Place::Head;
        queue.add(&mut all, 1);
        let key = all[1].key.expect("it waits");
        all[0].waits_behind(key);
        all[0].waits_at_head();
        queue.add(&mut all, 0);
        assert_eq!(order(&mut queue, &mut all), [1, 0, 2]);
    }

    #[test]
    fn expired_threads_starve_after_ten_seconds_for_each_thread() {
        let (mut all, mut queue) = (entities(2), Queue::default());
        for slot in 0..2 {
            queue.add(&mut all, slot);
        }
        queue.note_expiry(5);
        queue.note_expiry(6);
        assert!(!queue.expired_starve(5 + 2 * STARVATION));
        assert!(queue.expired_starve(6 + 2 * STARVATION));
    }
}
