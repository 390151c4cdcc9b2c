//! The stores that a CPU has executed while their lines were still on their way: off unless the machine's costs have `store_buffer`.
//!
//! A CPU does not wait for a line that it only stores to. The store waits in the CPU's *store buffer* until the line has come, and the CPU
//! goes on with what follows. Other CPUs see its stores in the order of the program (x86's total store order): a store to a line that the
//! CPU has waits for the earlier ones, too. The lines themselves come side by side, because the CPU asks for each at once.
//!
//! A CPU waits if the buffer is full, and, until it is empty, before a read-modify-write, a `SeqCst` store or fence, and the entry into the
//! kernel.

use std::collections::VecDeque;

/// The stores of each CPU that others cannot see yet.
#[derive(Debug, Default)]
pub(super) struct Stores {
    /// By CPU: when each is seen, in order.
    by_cpu: Vec<VecDeque<u64>>,
}

impl Stores {
    /// When all earlier stores of a CPU have been seen; `now` if they have.
    pub(super) fn seen(&self, cpu: usize, now: u64) -> u64 {
        self.by_cpu.get(cpu).and_then(VecDeque::back).map_or(now, |last| now.max(*last))
    }

    /// When a CPU has an entry for one more store, of that many entries.
    pub(super) fn entry(&mut self, cpu: usize, now: u64, entries: u64) -> u64 {
        let Some(stores) = self.by_cpu.get_mut(cpu) else { return now };
        while stores.front().is_some_and(|seen| *seen <= now) {
            stores.pop_front();
        }
        match stores.len().checked_sub(entries as usize) {
            None => now,
            Some(excess) => stores[excess],
        }
    }

    /// A CPU has executed a store whose line is there at that time. Returns when the store is seen: not before the earlier ones.
    pub(super) fn add(&mut self, cpu: usize, there: u64) -> u64 {
        if self.by_cpu.len() <= cpu {
            self.by_cpu.resize_with(cpu + 1, VecDeque::new);
        }
        let seen = self.seen(cpu, there);
        self.by_cpu[cpu].push_back(seen);
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_leave_in_order_and_a_full_buffer_makes_the_cpu_wait() {
        let mut stores = Stores::default();
        assert_eq!(stores.seen(1, 5), 5);
        assert_eq!(stores.entry(1, 10, 2), 10);
        assert_eq!(stores.add(1, 100), 100);
        assert_eq!(stores.entry(1, 20, 2), 20);
        assert_eq!(stores.add(1, 150), 150);
        assert_eq!((stores.seen(1, 20), stores.seen(0, 20)), (150, 20));
        assert_eq!(stores.entry(1, 30, 2), 100, "when the first has left");
        assert_eq!(stores.entry(1, 100, 2), 100, "it has");
        assert_eq!(stores.add(1, 120), 150, "not before the earlier one");
        assert_eq!((stores.seen(1, 100), stores.seen(1, 200)), (150, 200));
    }
}
