//! Lines whose atomics were dropped, for new atomics: what an allocator does with memory that is given back.
//!
//! A CPU gets the line that it has given back last. If it has given none back, it gets the line that any CPU gave back the longest time ago:
//! where one thread allocates and another frees, the lines go round. Of one CPU, only as many lines are kept as its private cache holds; the
//! others have left it, so that they are memory like any other. All processes of the machine share the lines that are kept.

use std::collections::VecDeque;

/// By CPU: lines, oldest first, and the number of the giving back.
#[derive(Debug)]
pub(super) struct Freed<T> {
    by_cpu: Vec<VecDeque<(u64, T)>>,
    all: u64,
}

impl<T> Default for Freed<T> {
    fn default() -> Self {
        Freed { by_cpu: Vec::new(), all: 0 }
    }
}

impl<T> Freed<T> {
    /// A CPU gives a line back, and keeps `most` of those that it has given back.
    pub(super) fn add(&mut self, line: T, cpu: usize, most: usize) {
        if self.by_cpu.len() <= cpu {
            self.by_cpu.resize_with(cpu + 1, VecDeque::new);
        }
        let own = &mut self.by_cpu[cpu];
        own.push_back((self.all, line));
        self.all += 1;
        if own.len() > most {
            own.pop_front();
        }
    }

    /// A line for a new atomic on a CPU, if there is one.
    pub(super) fn take(&mut self, cpu: usize) -> Option<T> {
        let own = self.by_cpu.get_mut(cpu).and_then(VecDeque::pop_back);
        let (_, line) = own.or_else(|| {
            let others = self.by_cpu.iter_mut().filter(|of| !of.is_empty());
            others.min_by_key(|of| of[0].0).and_then(VecDeque::pop_front)
        })?;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_lines_come_back_newest_first_and_those_of_others_oldest_first() {
        let mut freed = Freed::default();
        assert_eq!(freed.take(0), None);
        for (line, cpu) in [("a", 1), ("b", 0), ("c", 1), ("d", 0)] {
            freed.add(line, cpu, 9);
        }
        assert_eq!((freed.take(0), freed.take(0)), (Some("d"), Some("b")));
        assert_eq!((freed.take(0), freed.take(7), freed.take(1)), (Some("a"), Some("c"), None));
    }

    #[test]
    fn what_a_private_cache_cannot_hold_is_memory() {
        let mut freed = Freed::default();
        (0..5).for_each(|line| freed.add(line, 0, 2));
        assert_eq!((freed.take(1), freed.take(1), freed.take(1)), (Some(3), Some(4), None));
    }
}
