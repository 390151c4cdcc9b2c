//! The threads of one CPU in [`Fair`](super::Fair): their virtual times, and which of them is next.
//!
//! Virtual time is CPU time divided by weight. The queue's own virtual time is the weighted average of its threads' virtual times; a thread
//! that is behind it is owed CPU time (its lag is positive) and is eligible. Of the eligible threads, the one with the earliest virtual
//! deadline goes next.

use std::collections::BTreeMap;

use crate::costs::{IDLE_WEIGHT, NORMAL_WEIGHT};

/// A thread, as the fair scheduler knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Entity {
    pub(super) weight: u64,
    /// The slice that it asks for, in nanoseconds.
    pub(super) slice: u64,
    /// Its virtual time and deadline, on the scale of its CPU's queue.
    pub(super) virtual_time: u64,
    pub(super) deadline: u64,
    /// How far it was behind its queue when it left it.
    pub(super) lag: i64,
    /// The queue's virtual time at that moment, if other threads stayed in it.
    pub(super) left_at: Option<u64>,
    /// The CPU in whose queue it is or was last.
    pub(super) cpu: usize,
    /// Its key there, while it waits.
    pub(super) key: Option<(u64, u64)>,
    /// When it last was on a CPU.
    pub(super) ran_at: Option<u64>,
}

impl Entity {
    /// Nanoseconds of CPU time as virtual time.
    pub(super) fn as_virtual(&self, nanoseconds: u64) -> u64 {
        (u128::from(nanoseconds) * u128::from(NORMAL_WEIGHT) / u128::from(self.weight)) as u64
    }

    /// Whether it is of the idle class: no nice value has that weight.
    pub(super) fn is_idle_class(&self) -> bool {
        self.weight == IDLE_WEIGHT
    }

    /// Gives it a new deadline, a slice from its virtual time.
    pub(super) fn set_deadline(&mut self) {
        self.deadline = self.virtual_time + self.as_virtual(self.slice);
    }

    /// Nanoseconds of CPU time until its deadline.
    pub(super) fn until_deadline(&self) -> u64 {
        let left = self.deadline.saturating_sub(self.virtual_time);
        (u128::from(left) * u128::from(self.weight) / u128::from(NORMAL_WEIGHT)) as u64
    }
}

/// The threads of one CPU.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The waiting threads, by virtual deadline.
    pub(super) waiting: BTreeMap<(u64, u64), usize>,
    added: u64,
    /// The sum of the weights of the waiting threads, and the sum of their virtual times by weight.
    weight: u64,
    weighted: u128,
    /// The virtual time while the queue is empty.
    rest: u64,
    /// The slot of the thread on the CPU, and the time up to which it is counted.
    pub(super) current: Option<usize>,
    pub(super) counted_to: u64,
}

impl Queue {
    /// How many threads can run here.
    pub(super) fn runnable(&self) -> usize {
        self.waiting.len() + usize::from(self.current.is_some())
    }

    /// The weights of the threads that can run here.
    pub(super) fn load(&self, entities: &[Entity]) -> u64 {
        self.weight + self.current.map_or(0, |slot| entities[slot].weight)
    }

    /// Counts the time of the thread on the CPU up to `now`.
    pub(super) fn count(&mut self, entities: &mut [Entity], now: u64) {
        if let Some(slot) = self.current
            && now > self.counted_to
        {
            let ran = entities[slot].as_virtual(now - self.counted_to);
            entities[slot].virtual_time += ran;
            self.counted_to = now;
        }
    }

    /// The queue's virtual time.
    pub(super) fn virtual_time(&self, entities: &[Entity]) -> u64 {
        let (mut weight, mut weighted) = (self.weight, self.weighted);
        if let Some(slot) = self.current {
            weight += entities[slot].weight;
            weighted += u128::from(entities[slot].weight) * u128::from(entities[slot].virtual_time);
        }
        if weight == 0 { self.rest } else { (weighted / u128::from(weight)) as u64 }
    }

    /// Whether there are threads, and all of them are of the idle class: the CPU counts as idle for a thread of any other class.
    pub(super) fn is_as_good_as_idle(&self, entities: &[Entity]) -> bool {
        // No other weight is as low.
        self.weight == IDLE_WEIGHT * self.waiting.len() as u64
            && self.current.is_some_and(|slot| entities[slot].is_idle_class())
    }

    /// Whether no thread waits here; one may be on the CPU.
    pub(super) fn no_thread_waits(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a thread that waits, by its virtual time and deadline.
    pub(super) fn add(&mut self, slot: usize, entity: &mut Entity) {
        self.added += 1;
        let key = (entity.deadline, self.added);
        entity.key = Some(key);
        self.waiting.insert(key, slot);
        self.weight += entity.weight;
        self.weighted += u128::from(entity.weight) * u128::from(entity.virtual_time);
    }

    /// Takes out a thread that waits.
    pub(super) fn remove(&mut self, entities: &mut [Entity], slot: usize) {
        self.rest = self.virtual_time(entities);
        let entity = &mut entities[slot];
        let key = entity.key.take().expect("it waits");
        self.waiting.remove(&key);
        self.weight -= entity.weight;
        self.weighted -= u128::from(entity.weight) * u128::from(entity.virtual_time);
    }

    /// The thread that goes next: the one with the earliest deadline among the threads that the queue's virtual time has reached.
    pub(super) fn first(&self, entities: &[Entity]) -> Option<usize> {
        let now = self.virtual_time(entities);
        let mut waiting = self.waiting.values().copied();
        waiting
            .clone()
            .find(|slot| entities[*slot].virtual_time <= now)
            // All of them are ahead of the thread on the CPU.
            .or_else(|| waiting.next())
    }

    /// The thread on the CPU leaves it; virtual time stays where it is if no thread waits.
    pub(super) fn clear_current(&mut self, entities: &[Entity]) {
        self.rest = self.virtual_time(entities);
        self.current = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entity(weight: u64, virtual_time: u64) -> Entity {
        let mut entity = Entity { weight, slice: 1000, virtual_time, ..Entity::default() };
        entity.set_deadline();
        entity
    }

    #[test]
    fn the_eligible_thread_with_the_earliest_deadline_runs_next() {
        // The third thread has the earliest deadline because of its weight, but its virtual time is far ahead.
        let mut entities = [entity(1024, 100), entity(1024, 0), entity(4096, 700), entity(512, 0)];
        let mut queue = Queue::default();
        for (slot, entity) in entities.iter_mut().enumerate() {
            queue.add(slot, entity);
        }
        // (1024 * 100 + 4096 * 700) / (1024 + 1024 + 4096 + 512)
        assert_eq!(queue.virtual_time(&entities), 446);
        assert_eq!(queue.first(&entities), Some(1));
        queue.remove(&mut entities, 1);
        assert_eq!(queue.virtual_time(&entities), 527);
        assert_eq!(queue.first(&entities), Some(0));
        queue.remove(&mut entities, 0);
        assert_eq!(queue.first(&entities), Some(3), "the heavy one is still ahead");
        queue.remove(&mut entities, 3);
        assert_eq!((queue.first(&entities), queue.virtual_time(&entities)), (Some(2), 700));
        queue.remove(&mut entities, 2);
        assert_eq!((queue.first(&entities), queue.virtual_time(&entities)), (None, 700));
    }

    #[test]
    fn a_cpu_that_runs_only_the_idle_class_counts_as_idle() {
        let mut entities = [entity(IDLE_WEIGHT, 0), entity(IDLE_WEIGHT, 5), entity(15, 5)];
        let mut queue = Queue::default();
        assert!(!queue.is_as_good_as_idle(&entities), "no thread is there");
        queue.current = Some(0);
        assert!(queue.is_as_good_as_idle(&entities));
        queue.add(1, &mut entities[1]);
        assert!(queue.is_as_good_as_idle(&entities));
        queue.add(2, &mut entities[2]);
        assert!(!queue.is_as_good_as_idle(&entities), "nice 19 is not of that class");
        queue.remove(&mut entities, 2);
        queue.current = Some(2);
        assert!(!queue.is_as_good_as_idle(&entities));
    }

    #[test]
    fn a_heavier_thread_is_slower_in_virtual_time() {
        let mut entities = [entity(2048, 10), entity(1024, 10)];
        let mut queue = Queue { current: Some(0), counted_to: 50, ..Queue::default() };
        queue.count(&mut entities, 250);
        assert_eq!((entities[0].virtual_time, queue.counted_to), (110, 250));
        assert_eq!(entities[0].until_deadline(), 800);
        queue.count(&mut entities, 200);
        assert_eq!(entities[0].virtual_time, 110, "time does not run backwards");
        assert_eq!(queue.virtual_time(&entities), 110);
    }
}
