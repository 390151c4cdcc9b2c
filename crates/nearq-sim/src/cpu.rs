//! A simulated CPU: its clock, the thread on it, and the queue of those that wait for it.

use std::collections::BTreeMap;

/// Threads that wait for one CPU, the one with the least virtual time first.
#[derive(Debug, Default)]
pub(crate) struct RunQueue {
    waiting: BTreeMap<(u64, u64), usize>,
    added: u64,
    /// The virtual time that this CPU has reached; never falls.
    pub(crate) floor: u64,
}

impl RunQueue {
    /// Adds a thread; the key takes it out again.
    pub(crate) fn add(&mut self, virtual_time: u64, slot: usize) -> (u64, u64) {
        self.added += 1;
        let key = (virtual_time, self.added);
        self.waiting.insert(key, slot);
        key
    }

    pub(crate) fn remove(&mut self, key: (u64, u64)) -> Option<usize> {
        self.waiting.remove(&key)
    }

    pub(crate) fn pop_first(&mut self) -> Option<usize> {
        self.waiting.pop_first().map(|(_, slot)| slot)
    }

    /// The thread at a place, counted from the first.
    pub(crate) fn pop_at(&mut self, place: usize) -> Option<usize> {
        let key = *self.waiting.keys().nth(place)?;
        self.remove(key)
    }

    /// The virtual time of the first.
    pub(crate) fn first(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|(key, _)| key.0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.waiting.values().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// A simulated CPU.
#[derive(Debug, Default)]
pub(crate) struct Cpu {
    /// Up to when it has run.
    pub(crate) clock: u64,
    /// Counts the times given to it; an event with an older version is void.
    pub(crate) version: u64,
    /// The slot of the thread on it; none while idle.
    pub(crate) current: Option<usize>,
    /// The number of the thread that was on it last.
    pub(crate) last: u64,
    /// When its thread shall make room for others.
    pub(crate) slice_end: u64,
    /// The virtual time at which its thread's slice ends, for comparison with one that wakes up.
    pub(crate) virtual_deadline: u64,
    /// Its thread shall make room at the next opportunity.
    pub(crate) reschedule: bool,
    /// Its thread spends time in one piece since then, and may be interrupted.
    pub(crate) spending_since: Option<u64>,
    pub(crate) queue: RunQueue,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_virtual_time_first_then_first_come() {
        let mut queue = RunQueue::default();
        let key = queue.add(5, 1);
        for (virtual_time, slot) in [(5, 2), (3, 3), (9, 4)] {
            queue.add(virtual_time, slot);
        }
        assert_eq!((queue.first(), queue.len()), (Some(3), 4));
        assert_eq!(queue.pop_at(2), Some(2));
        assert_eq!(queue.remove(key), Some(1));
        assert_eq!(queue.remove(key), None);
        assert_eq!(
            (queue.pop_first(), queue.pop_first(), queue.pop_first()),
            (Some(3), Some(4), None)
        );
        assert!(queue.is_empty());
    }
}
