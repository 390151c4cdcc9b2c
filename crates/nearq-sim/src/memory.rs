//! Cache lines: who holds which, and what it costs to get at one.
//!
//! A line has one owner, the CPU that wrote it last, and CPUs that have read it since. Reading costs a transfer
//! for a CPU that does not have it; writing costs one unless the writer has it alone. Writers of one line queue
//! up: a transfer starts when the one before is over.
//!
//! # Lines and addresses
//! Two atomics share a line if they share 64 bytes of real memory, so the layout of the program's own structures
//! counts, as it does on a real machine. The address itself must not count. Therefore: the table is looked up by
//! address and never walked; a line is *named* by the order in which lines were touched first; and when an atomic
//! is dropped its line is forgotten, so that memory that is used again starts as new. What remains is which small
//! heap objects happen to lie side by side, which the allocator decides; [`LineAligned`](crate::LineAligned)
//! takes that away as well.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::costs::Costs;
use crate::hardware::Hardware;

/// Bytes of a line.
const LINE: usize = 64;

/// How an atomic is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    ReadModifyWrite,
}

/// Spreads the bits of an address or a number; the same in every process.
#[derive(Default)]
pub(crate) struct FixedHasher(u64);

impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }
    fn write_usize(&mut self, value: usize) {
        let mixed = (self.0 ^ value as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// A map that is looked up and never walked: its order depends on addresses.
pub(crate) type AddressMap<T> = HashMap<usize, T, BuildHasherDefault<FixedHasher>>;

#[derive(Debug)]
struct Line {
    /// The how-manieth line it was to be touched.
    number: u64,
    owner: usize,
    /// Bits of the CPUs that have read it since the owner wrote it.
    readers: Vec<u64>,
    has_readers: bool,
    /// When the last transfer for writing is over.
    free_at: u64,
}

impl Line {
    fn is_reader(&self, cpu: usize) -> bool {
        self.has_readers
            && self.readers.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    fn add_reader(&mut self, cpu: usize) {
        if self.readers.len() <= cpu / 64 {
            self.readers.resize(cpu / 64 + 1, 0);
        }
        self.readers[cpu / 64] |= 1 << (cpu % 64);
        self.has_readers = true;
    }

    /// What the farthest of those that have the line is away from `cpu`.
    fn farthest(&self, cpu: usize, hardware: &Hardware) -> u64 {
        let mut farthest = hardware.transfer(self.owner, cpu);
        for (at, word) in self.readers.iter().enumerate() {
            let mut rest = *word;
            while rest != 0 {
                farthest =
                    farthest.max(hardware.transfer(at * 64 + rest.trailing_zeros() as usize, cpu));
                rest &= rest - 1;
            }
        }
        farthest
    }
}

/// All lines that were touched.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    lines: AddressMap<Line>,
    touched: u64,
}

impl Memory {
    /// Accesses the line of `address` at time `now`: the line's number, and nanoseconds until it is done.
    pub(crate) fn access(
        &mut self,
        address: usize,
        cpu: usize,
        access: Access,
        now: u64,
        hardware: &Hardware,
        costs: &Costs,
    ) -> (u64, u64) {
        let extra = if access == Access::ReadModifyWrite { costs.read_modify_write } else { 0 };
        let line = match self.lines.entry(address / LINE) {
            std::collections::hash_map::Entry::Occupied(line) => line.into_mut(),
            std::collections::hash_map::Entry::Vacant(line) => {
                self.touched += 1;
                line.insert(Line {
                    number: self.touched,
                    owner: cpu,
                    readers: Vec::new(),
                    has_readers: false,
                    free_at: now + costs.memory,
                });
                return (self.touched, costs.memory + extra);
            }
        };
        let waited = line.free_at.saturating_sub(now);
        let cost = if access == Access::Read {
            if line.owner == cpu || line.is_reader(cpu) {
                costs.own_line
            } else {
                line.add_reader(cpu);
                waited + hardware.transfer(line.owner, cpu)
            }
        } else if line.owner == cpu && !line.has_readers {
            costs.own_line
        } else {
            let transfer = line.farthest(cpu, hardware);
            line.owner = cpu;
            line.readers.fill(0);
            line.has_readers = false;
            line.free_at = now + waited + transfer;
            waited + transfer
        };
        (line.number, cost + extra)
    }

    /// The line's number, if it was touched.
    pub(crate) fn line(&self, address: usize) -> Option<u64> {
        self.lines.get(&(address / LINE)).map(|line| line.number)
    }

    /// Forgets a line: the atomic at `address` is gone.
    pub(crate) fn forget(&mut self, address: usize) {
        self.lines.remove(&(address / LINE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_topology::Topology;

    #[test]
    fn lines_move_are_shared_and_queue_up() {
        let costs = Costs::DEFAULT;
        let topology = Topology::from_synthetic("l3:2 core:2 pu:1").expect("well formed");
        let hardware = Hardware::new(topology, &costs);
        let mut memory = Memory::default();
        let mut go = |cpu, access, now| memory.access(4096, cpu, access, now, &hardware, &costs).1;
        assert_eq!(go(0, Access::Write, 0), costs.memory, "nobody had it");
        assert_eq!(go(0, Access::ReadModifyWrite, 1000), costs.own_line + costs.read_modify_write);
        assert_eq!(go(1, Access::Read, 1000), costs.same_llc);
        assert_eq!(go(1, Access::Read, 2000), costs.own_line, "has a copy now");
        assert_eq!(go(2, Access::Read, 2000), costs.other_llc);
        assert_eq!(
            go(0, Access::Write, 3000),
            costs.other_llc,
            "the copies must go, the farthest counts"
        );
        assert_eq!(
            go(1, Access::Write, 3000),
            costs.other_llc + costs.same_llc,
            "behind the transfer before"
        );
        assert_eq!(memory.line(4100), Some(1));
        memory.forget(4100);
        assert_eq!(memory.line(4096), None);
    }
}
