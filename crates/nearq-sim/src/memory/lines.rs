//! Cache lines of atomics: which CPU holds which, and what it costs to access one.
//!
//! A line has one owner, the CPU that wrote it last, and CPUs that have read it since.
//! - A CPU that has a line reads it at once. Another CPU gets a copy from the owner, or from a reader of its own node that is nearer.
//! - Writing costs a transfer from the farthest CPU that has the line, because its copy must go, unless only the
//!   writer has it. A read-modify-write is a write, even a compare-exchange that fails.
//! - The transfers of a line happen one after the other: each starts when the earlier ones are over. So CPUs that write one line, however
//!   many, get one transfer after the other. Readers get their copies at the same time, and a writer that comes then waits for the last of
//!   them.
//!
//! Lines are small: they do not count against the bandwidth of the paths that they take.
//!
//! # Names
//! Two atomics share a line if they share 64 bytes of real memory. A line is *named* by the order in which lines were first touched; when
//! an atomic is dropped, its line is forgotten. One dependence remains: which small heap objects share a line, which the allocator decides.
//! [`LineAligned`](crate::LineAligned) removes this dependence as well.

use std::collections::hash_map::Entry;

use nearq_topology::CpuSet;

use super::{AddressMap, LINE};
use crate::costs::Costs;
use crate::hardware::Hardware;

/// How an atomic is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    ReadModifyWrite,
}

#[derive(Debug)]
struct Line {
    /// Its position in the order in which lines were first touched.
    number: u64,
    owner: usize,
    /// Bits of the CPUs that have read it since the owner wrote it.
    readers: Vec<u64>,
    has_readers: bool,
    /// When the last transfer for writing is over.
    free_at: u64,
    /// When the last transfer for reading is over.
    read_at: u64,
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

    /// The distance from `cpu` to the nearest reader, if one is nearer than the owner and on the node of `cpu`.
    fn nearest_reader(&self, cpu: usize, owner: u64, hardware: &Hardware) -> Option<u64> {
        if !self.has_readers {
            return None;
        }
        let mut nearest = owner;
        for (at, mut rest) in self.readers_among(hardware.llc_cpus(cpu)) {
            while rest != 0 {
                let reader = at * 64 + rest.trailing_zeros() as usize;
                nearest = nearest.min(hardware.transfer(reader, cpu));
                rest &= rest - 1;
            }
        }
        if nearest == owner {
            // The remaining readers on the node are all equally far.
            let mut others = self.readers_among(hardware.node_cpus(cpu));
            if let Some((at, word)) = others.find(|(_, word)| *word != 0) {
                let reader = at * 64 + word.trailing_zeros() as usize;
                nearest = nearest.min(hardware.transfer(reader, cpu));
            }
        }
        (nearest < owner).then_some(nearest)
    }

    /// The readers among some CPUs, word by word.
    fn readers_among(&self, cpus: &CpuSet) -> impl Iterator<Item = (usize, u64)> {
        self.readers.iter().zip(cpus.as_words()).map(|(readers, cpus)| readers & cpus).enumerate()
    }

    /// The distance from `cpu` to the farthest CPU that has the line.
    fn farthest(&self, cpu: usize, hardware: &Hardware) -> u64 {
        let mut farthest = hardware.transfer(self.owner, cpu);
        let readers = if self.has_readers { &self.readers[..] } else { &[] };
        for (at, word) in readers.iter().enumerate() {
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
pub(crate) struct Lines {
    lines: AddressMap<Line>,
    touched: u64,
}

impl Lines {
    /// Accesses the line of `address` at time `now`. Returns the line's number, and nanoseconds until the access is
    /// done.
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
            Entry::Occupied(line) => line.into_mut(),
            Entry::Vacant(line) => {
                self.touched += 1;
                line.insert(Line {
                    number: self.touched,
                    owner: cpu,
                    readers: Vec::new(),
                    has_readers: false,
                    free_at: now + costs.memory,
                    read_at: 0,
                });
                return (self.touched, costs.memory + extra);
            }
        };
        let cost = if access == Access::Read {
            if line.owner == cpu || line.is_reader(cpu) {
                costs.own_line
            } else {
                let transfer = hardware.transfer(line.owner, cpu);
                let from_owner = line.free_at.saturating_sub(now) + transfer;
                let from_reader = line
                    .nearest_reader(cpu, transfer, hardware)
                    .map(|transfer| line.read_at.saturating_sub(now) + transfer);
                let cost = from_reader.map_or(from_owner, |cost| cost.min(from_owner));
                line.add_reader(cpu);
                line.read_at = line.read_at.max(now + cost);
                cost
            }
        } else if line.owner == cpu && !line.has_readers {
            costs.own_line
        } else {
            let start = now.max(line.free_at).max(line.read_at);
            line.free_at = start + line.farthest(cpu, hardware);
            line.owner = cpu;
            // Most lines that are written again and again are not read in between.
            if line.has_readers {
                line.readers.fill(0);
                line.has_readers = false;
            }
            line.free_at - now
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
    fn cache_lines_move_are_shared_and_queue_up() {
        let costs = Costs::DEFAULT;
        let topology = Topology::from_synthetic("l3:2 core:2 pu:1").expect("well formed");
        let hardware = Hardware::new(topology, &costs);
        let mut memory = Lines::default();
        let mut go = |cpu, access, now| memory.access(4096, cpu, access, now, &hardware, &costs).1;
        assert_eq!(go(0, Access::Write, 0), costs.memory, "no cache had it");
        assert_eq!(go(0, Access::ReadModifyWrite, 1000), costs.own_line + costs.read_modify_write);
        assert_eq!(go(1, Access::Read, 1000), costs.same_llc);
        assert_eq!(go(1, Access::Read, 2000), costs.own_line, "the reader has a copy now");
        assert_eq!(go(2, Access::Read, 2000), costs.other_llc);
        assert_eq!(
            go(0, Access::Write, 3000),
            costs.other_llc,
            "the copies are invalidated, and the farthest decides the cost"
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

    #[test]
    fn transfers_of_one_line_wait_for_each_other_and_copies_for_none() {
        let costs = Costs::DEFAULT;
        let topology = Topology::from_synthetic("numa:2 l3:2 core:4 pu:2").expect("well formed");
        let hardware = Hardware::new(topology, &costs);
        let (near, far) = (costs.same_llc, costs.same_package);
        let mut lines = Lines::default();
        let mut go = |cpu, access, now| lines.access(4096, cpu, access, now, &hardware, &costs).1;
        go(0, Access::Write, 0);
        // Two readers at once; a writer waits for the later one, a reader for the writer, another writer as well.
        assert_eq!(go(2, Access::Read, 1000), near);
        assert_eq!(go(16, Access::Read, 1000), far);
        assert_eq!(go(4, Access::Write, 1010), far - 10 + far);
        assert_eq!(go(6, Access::Read, 1020), 2 * far - 20 + near);
        assert_eq!(go(0, Access::Write, 1030), 2 * far - 30 + near + near);
        // However readers and writers are mixed, only the writers come one after the other.
        let start = 10_000;
        let ends: Vec<u64> = (1..8)
            .map(|at| {
                go(at * 2 % 8 + 16, Access::Read, start);
                start + go(at * 2 % 8, Access::ReadModifyWrite, start)
            })
            .collect();
        assert!(ends.windows(2).all(|pair| pair[1] >= pair[0] + near), "{ends:?}");
        // A copy comes from the sibling, from under the same cache, from the node, or from the owner.
        let start = 20_000;
        go(0, Access::Write, start);
        for (at, (cpu, cost)) in [
            (16, far),
            (24, costs.other_llc),
            (26, near),
            (27, costs.same_core),
            (17, costs.same_core),
        ]
        .into_iter()
        .enumerate()
        {
            let now = start + 1000 * (at as u64 + 1);
            assert_eq!(go(cpu, Access::Read, now), cost, "CPU {cpu}");
        }
    }
}
