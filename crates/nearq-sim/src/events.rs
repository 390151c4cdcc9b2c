//! What is to come: CPUs that go on at some time, and deadlines. The earliest first; ties are decided, never open.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// The deadline of a thread's wait; void if the thread waits for something else by now.
    Deadline { slot: usize, wait: u64 },
    /// A CPU goes on; void if the CPU was given another time since.
    Cpu { cpu: usize, version: u64 },
}

/// An event. Ordered by time, then by CPU (deadlines before CPUs), then by the order in which they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Event {
    pub(crate) time: u64,
    rank: usize,
    order: u64,
    pub(crate) what: What,
}

/// The queue of what is to come.
#[derive(Debug, Default)]
pub(crate) struct Events {
    heap: BinaryHeap<Reverse<Event>>,
    made: u64,
}

impl Events {
    pub(crate) fn push(&mut self, time: u64, what: What) {
        let rank = match what {
            What::Deadline { .. } => 0,
            What::Cpu { cpu, .. } => cpu + 1,
        };
        self.made += 1;
        self.heap.push(Reverse(Event { time, rank, order: self.made, what }));
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.heap.pop().map(|Reverse(event)| event)
    }

    /// Whether a CPU at `time` comes before everything here.
    pub(crate) fn is_first(&self, time: u64, cpu: usize) -> bool {
        self.heap.peek().is_none_or(|Reverse(event)| (time, cpu + 1) <= (event.time, event.rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_time_then_deadlines_then_cpus() {
        let mut events = Events::default();
        let cpu = |cpu| What::Cpu { cpu, version: 0 };
        let deadline = What::Deadline { slot: 9, wait: 0 };
        for (time, what) in [(5, cpu(1)), (5, cpu(0)), (5, deadline), (4, cpu(7))] {
            events.push(time, what);
        }
        assert!(events.is_first(4, 6) && events.is_first(3, 8) && !events.is_first(4, 8));
        let order: Vec<What> =
            std::iter::from_fn(|| events.pop()).map(|event| event.what).collect();
        assert_eq!(order, [cpu(7), deadline, cpu(0), cpu(1)]);
        assert!(events.is_first(100, 0));
    }
}
