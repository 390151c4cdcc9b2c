//! Cache lines of atomics: which CPU holds which, and what it costs to access one.
//!
//! A line has one owner, the CPU that wrote it last, and CPUs that have read it since. It has a home, the node of its memory, which is
//! asked for it: what a transfer costs depends on the two CPUs and on the home ([`Hardware::line`]).
//! - A CPU that has a line reads it at once. It executes several such accesses side by side, so they take less time each than one takes alone:
//!   `own_line_ps`. What is left of a nanosecond counts for the CPU's next access. A read-modify-write waits for the accesses before it.
//!   A CPU that does not have the line waits for it. Another CPU gets a copy from the owner, or from a reader of its own node that is nearer.
//! - Writing costs a transfer from the farthest CPU that has the line, because its copy must go, unless only the
//!   writer has it. A read-modify-write is a write, even a compare-exchange that fails.
//! - The transfers of a line happen one after the other: each starts when the earlier ones are over. So CPUs that write one line, however
//!   many, get one transfer after the other. Readers get their copies at the same time, and a writer that comes then waits for the last of
//!   them. A read-modify-write keeps the line until it is over: no other CPU gets the line between its read and its write.
//! - On a machine with far atomics (`far_atomic`), an update of a line that other CPUs have is executed at the line's home, which then has
//!   the line, and no CPU does. The next one takes `far_atomic` alone, whichever CPU wants it. A CPU that comes twice in a row gets the line.
//! - On a machine with `store_buffer`, a CPU does not wait for a line that it only stores to (`stores.rs`).
//! - On a machine with `capture`, a CPU keeps a line that it got for writing for that long (`capture.rs`).
//!
//! Lines are small: they do not count against the bandwidth of the paths that they take.
//!
//! # Memory that is used again
//! When an atomic is dropped, its line is given back, and is in the caches as the last accesses left it. The next new atomic is placed into
//! such a line, as an allocator does, which gives out again what was given back (`freed.rs`). Only if there is none does its line come from
//! memory.
//!
//! # Names
//! Two atomics share a line if they share 64 bytes of real memory. A line is *named* by the order in which lines were first touched; when
//! an atomic is dropped, the name ends, and which line is used again does not depend on addresses. One dependence remains: which small heap
//! objects share a line, which the allocator decides. [`LineAligned`](crate::LineAligned) removes this dependence as well.

use std::collections::hash_map::Entry;

use nearq_topology::CpuSet;

use super::capture::Capture;
use super::coming::Coming;
use super::freed::Freed;
use super::stores::Stores;
use super::{AddressMap, LINE};
use crate::costs::Costs;
use crate::hardware::Hardware;

/// How an atomic is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// A store that comes after all earlier stores of the CPU, and before all that follows.
    WriteInOrder,
    /// A compare-exchange: the CPU itself does it.
    ReadModifyWrite,
    /// A read-modify-write that may also be executed where the line is at home.
    Update,
}

#[derive(Debug)]
struct Line {
    /// Its position in the order in which lines were first touched.
    number: u64,
    owner: usize,
    /// No CPU has it, but its home: the owner's update was executed there.
    is_far: bool,
    /// The node of its memory.
    home: u32,
    /// Bits of the CPUs that have read it since the owner wrote it.
    readers: Vec<u64>,
    has_readers: bool,
    /// When the last transfer for writing is over, and the read-modify-write for which it was.
    free_at: u64,
    /// When the last transfer for reading is over.
    read_at: u64,
    capture: Capture,
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

    /// What the transfer from one CPU to another takes.
    fn transfer(&self, from: usize, to: usize, hardware: &Hardware) -> u64 {
        hardware.line(from, to, self.home as usize)
    }

    /// What the transfer from the owner to a CPU takes, or from the home of the line.
    fn owner_transfer(&self, cpu: usize, hardware: &Hardware) -> u64 {
        let transfer = self.transfer(self.owner, cpu, hardware);
        if self.is_far { transfer.max(hardware.same_llc()) } else { transfer }
    }

    /// Whether a CPU has the line for itself.
    fn is_exclusive(&self, cpu: usize) -> bool {
        self.owner == cpu && !self.has_readers && !self.is_far
    }

    /// Whether a CPU has what an access needs: a copy for reading, the line for itself for the rest.
    fn is_at(&self, cpu: usize, access: Access) -> bool {
        match access {
            Access::Read => (self.owner == cpu && !self.is_far) || self.is_reader(cpu),
            Access::Write | Access::WriteInOrder | Access::ReadModifyWrite | Access::Update => {
                self.is_exclusive(cpu)
            }
        }
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
                nearest = nearest.min(self.transfer(reader, cpu, hardware));
                rest &= rest - 1;
            }
        }
        if nearest == owner {
            // The remaining readers on the node are all equally far.
            let mut others = self.readers_among(hardware.node_cpus(cpu));
            if let Some((at, word)) = others.find(|(_, word)| *word != 0) {
                let reader = at * 64 + word.trailing_zeros() as usize;
                nearest = nearest.min(self.transfer(reader, cpu, hardware));
            }
        }
        (nearest < owner).then_some(nearest)
    }

    /// The readers among some CPUs, word by word.
    fn readers_among(&self, cpus: &CpuSet) -> impl Iterator<Item = (usize, u64)> {
        self.readers.iter().zip(cpus.as_words()).map(|(readers, cpus)| readers & cpus).enumerate()
    }

    /// A CPU that does not have the line gets a copy for reading. Returns how long that takes.
    fn copy_to(&mut self, cpu: usize, now: u64, hardware: &Hardware) -> u64 {
        let transfer = self.owner_transfer(cpu, hardware);
        let from_owner = self.free_at.saturating_sub(now) + transfer;
        let from_reader = self
            .nearest_reader(cpu, transfer, hardware)
            .map(|transfer| self.read_at.saturating_sub(now) + transfer);
        let cost = from_reader.map_or(from_owner, |cost| cost.min(from_owner));
        self.add_reader(cpu);
        self.read_at = self.read_at.max(now + cost);
        cost
    }

    /// The distance from `cpu` to the farthest CPU that has the line.
    fn farthest(&self, cpu: usize, hardware: &Hardware) -> u64 {
        let mut farthest = self.owner_transfer(cpu, hardware);
        let readers = if self.has_readers { &self.readers[..] } else { &[] };
        for (at, word) in readers.iter().enumerate() {
            let mut rest = *word;
            while rest != 0 {
                let reader = at * 64 + rest.trailing_zeros() as usize;
                farthest = farthest.max(self.transfer(reader, cpu, hardware));
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
    freed: Freed<Line>,
    stores: Stores,
    coming: Coming,
    /// By CPU: the picoseconds of its accesses to own lines that have not been charged yet, less than a nanosecond.
    left: Vec<u64>,
}

/// Picoseconds of a nanosecond.
const PS: u64 = 1_000;

/// Charges an access to an own line: whole nanoseconds.
fn own(left: &mut Vec<u64>, cpu: usize, costs: &Costs) -> u64 {
    if left.len() <= cpu {
        left.resize(cpu + 1, 0);
    }
    let all = left[cpu] + costs.own_line_ps;
    left[cpu] = all % PS;
    all / PS
}

impl Lines {
    /// Accesses the line of `address` from a CPU at a time. If nobody has touched it before, `place` says by its number where its home is,
    /// and how long it takes from there. Returns the line's number, and nanoseconds until the access is done.
    pub(crate) fn access(
        &mut self,
        address: usize,
        access: Access,
        (cpu, now): (usize, u64),
        hardware: &Hardware,
        costs: &Costs,
        place: impl FnOnce(u64) -> (u32, u64),
    ) -> (u64, u64) {
        let is_buffered = costs.store_buffer > 0 && access == Access::Write;
        let is_atomic = matches!(access, Access::ReadModifyWrite | Access::Update);
        let extra = if is_atomic { costs.read_modify_write } else { 0 };
        let line = match self.lines.entry(address / LINE) {
            Entry::Occupied(line) => line.into_mut(),
            Entry::Vacant(entry) => {
                self.touched += 1;
                if let Some(freed) = self.freed.take(cpu) {
                    entry.insert(Line { number: self.touched, ..freed })
                } else {
                    let (home, memory) = place(self.touched);
                    let there = now + memory + extra;
                    let free_at = if is_buffered { self.stores.add(cpu, there) } else { there };
                    entry.insert(Line {
                        number: self.touched,
                        owner: cpu,
                        is_far: false,
                        home,
                        readers: Vec::new(),
                        has_readers: false,
                        free_at,
                        read_at: 0,
                        capture: Capture::default(),
                    });
                    let took =
                        if is_buffered { own(&mut self.left, cpu, costs) } else { memory + extra };
                    return (self.touched, took);
                }
            }
        };
        let took = if access == Access::Read {
            if line.is_at(cpu, access) {
                let waited = self.coming.arrival(cpu, address / LINE, now) - now;
                waited + own(&mut self.left, cpu, costs)
            } else {
                line.copy_to(cpu, now, hardware)
            }
        } else if line.is_at(cpu, access) {
            if matches!(access, Access::Write | Access::WriteInOrder) {
                if is_buffered {
                    let seen = self.stores.seen(cpu, now);
                    if seen > now {
                        line.free_at = line.free_at.max(self.stores.add(cpu, seen));
                    }
                }
                own(&mut self.left, cpu, costs)
            } else {
                line.free_at = line.free_at.max(now + costs.own_line + extra);
                costs.own_line + extra
            }
        } else {
            let start = now.max(line.free_at).max(line.read_at);
            let is_only_at_home = line.is_far && !line.has_readers;
            let is_far = access == Access::Update
                && costs.far_atomic > 0
                && !(is_only_at_home && line.owner == cpu);
            let took = if is_far && is_only_at_home {
                costs.far_atomic
            } else if is_far {
                line.farthest(cpu, hardware) + costs.far_atomic
            } else {
                line.farthest(cpu, hardware) + extra
            };
            line.free_at = start + took;
            if is_buffered {
                line.free_at = self.stores.add(cpu, line.free_at);
            }
            if costs.capture > 0 && !is_far {
                line.capture.begin(line.free_at + costs.capture);
            }
            (line.owner, line.is_far) = (cpu, is_far);
            // Most lines that are written again and again are not read in between.
            if line.has_readers {
                line.readers.fill(0);
                line.has_readers = false;
            }
            if is_buffered { own(&mut self.left, cpu, costs) } else { line.free_at - now }
        };
        (line.number, took)
    }

    /// A CPU asks for a copy of the line of `address`, and does not wait for it.
    pub(crate) fn fetch_ahead(
        &mut self,
        address: usize,
        (cpu, now): (usize, u64),
        hardware: &Hardware,
    ) {
        if let Some(line) = self.lines.get_mut(&(address / LINE))
            && !line.is_at(cpu, Access::Read)
        {
            let arrives = now + line.copy_to(cpu, now, hardware);
            self.coming.add(cpu, address / LINE, now, arrives);
        }
    }

    /// When a CPU may do an access, for its stores: `now`, or when an entry of the buffer or all of it is free. For machines with
    /// `store_buffer`.
    pub(crate) fn ready(&mut self, access: Access, cpu: usize, now: u64, costs: &Costs) -> u64 {
        match access {
            Access::Read => now,
            Access::Write => self.stores.entry(cpu, now, costs.store_buffer),
            _ => self.seen(cpu, now),
        }
    }

    /// When all stores of a CPU have been seen; `now` if they have.
    #[inline]
    pub(crate) fn seen(&self, cpu: usize, now: u64) -> u64 {
        self.stores.seen(cpu, now)
    }

    /// When a CPU must try again to access the line of `address`, because another one has captured it; none if it need not wait. For
    /// machines with `capture`.
    pub(crate) fn wait(
        &mut self,
        address: usize,
        access: Access,
        (cpu, now): (usize, u64),
        hardware: &Hardware,
        costs: &Costs,
    ) -> Option<u64> {
        let line = self.lines.get_mut(&(address / LINE))?;
        if line.is_at(cpu, access) {
            line.capture.has(cpu);
            return None;
        }
        line.capture.wait(cpu, now, hardware.same_llc() + costs.capture)
    }

    /// The line's number, if it was touched.
    pub(crate) fn line(&self, address: usize) -> Option<u64> {
        self.lines.get(&(address / LINE)).map(|line| line.number)
    }

    /// Gives a line back: the atomic at `address` is dropped on that CPU.
    pub(crate) fn give_back(&mut self, address: usize, cpu: usize, costs: &Costs) {
        if let Some(line) = self.lines.remove(&(address / LINE)) {
            self.freed.add(line, cpu, costs.l2_size as usize / LINE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_topology::Topology;

    /// The home is the first node, whose memory is as near as any.
    fn at_home(costs: &Costs) -> impl FnOnce(u64) -> (u32, u64) {
        let memory = costs.memory;
        move |_| (0, memory)
    }

    #[test]
    fn cache_lines_move_are_shared_and_queue_up() {
        let costs = Costs::DEFAULT;
        let topology = Topology::from_synthetic("l3:2 core:2 pu:1").expect("well formed");
        let hardware = Hardware::new(topology, &costs);
        let mut memory = Lines::default();
        let mut go = |cpu, access, now| {
            memory.access(4096, access, (cpu, now), &hardware, &costs, at_home(&costs)).1
        };
        assert_eq!(go(0, Access::Write, 0), costs.memory, "no cache had it");
        let kept = costs.own_line + costs.read_modify_write;
        assert_eq!(go(0, Access::ReadModifyWrite, 1000), kept);
        assert_eq!(
            go(1, Access::Read, 1000),
            kept + costs.same_llc,
            "nobody gets it before the end"
        );
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
        memory.give_back(4096, 1, &costs);
        assert_eq!(memory.line(4096), None);
    }

    #[test]
    fn a_new_atomic_is_in_a_line_that_was_given_back_where_the_last_access_left_it() {
        let costs = Costs::DEFAULT;
        let topology = Topology::from_synthetic("core:2").expect("well formed");
        let hardware = Hardware::new(topology, &costs);
        let mut lines = Lines::default();
        let go = |lines: &mut Lines, cpu, address, now| {
            lines.access(address, Access::Write, (cpu, now), &hardware, &costs, at_home(&costs))
        };
        assert_eq!(go(&mut lines, 0, 4096, 0), (1, costs.memory));
        lines.give_back(4096, 0, &costs);
        lines.give_back(4096, 0, &costs);
        assert_eq!(go(&mut lines, 0, 8192, 1_000), (2, costs.own_line), "whatever its address");
        lines.give_back(8192, 0, &costs);
        assert_eq!(go(&mut lines, 1, 4096, 2_000), (3, costs.same_llc), "another CPU has it");
        assert_eq!(go(&mut lines, 1, 8192, 3_000), (4, costs.memory), "there was one");
    }

    #[test]
    fn accesses_to_own_lines_overlap_and_their_fractions_add_up() {
        let costs = Costs { own_line: 2, own_line_ps: 300, ..Costs::DEFAULT };
        let topology = Topology::from_synthetic("core:2").expect("well formed");
        let hardware = Hardware::new(topology, &costs);
        let mut lines = Lines::default();
        let mut go = |cpu, access| {
            lines.access(4096, access, (cpu, 9_000), &hardware, &costs, at_home(&costs)).1
        };
        go(0, Access::Write);
        let writes: Vec<u64> = (0..10).map(|_| go(0, Access::Write)).collect();
        assert_eq!(writes, [0, 0, 0, 1, 0, 0, 1, 0, 0, 1], "3 ns for ten");
        assert_eq!((0..10).map(|_| go(0, Access::Read)).sum::<u64>(), 3);
        let atomic = go(0, Access::ReadModifyWrite);
        assert_eq!(atomic, costs.own_line + costs.read_modify_write, "it waits for itself");
    }

    #[test]
    fn updates_of_a_contended_line_are_executed_at_its_home() {
        let costs = Costs { far_atomic: 9, ..Costs::DEFAULT };
        let topology = Topology::from_synthetic("core:4").expect("well formed");
        let hardware = Hardware::new(topology, &costs);
        let mut lines = Lines::default();
        let mut go = |cpu, access, now| {
            lines.access(4096, access, (cpu, now), &hardware, &costs, at_home(&costs)).1
        };
        let own = costs.own_line + costs.read_modify_write;
        go(0, Access::Update, 0);
        assert_eq!(go(0, Access::Update, 1_000), own, "its own line");
        assert_eq!(go(1, Access::Update, 2_000), costs.same_llc + 9, "taken home");
        assert_eq!(go(2, Access::Update, 3_000), 9, "no CPU has it");
        assert_eq!(
            (go(3, Access::Update, 4_000), go(0, Access::Update, 4_000)),
            (9, 18),
            "in turn"
        );
        assert_eq!(go(1, Access::Read, 5_000), costs.same_llc, "from home");
        assert_eq!(go(1, Access::Read, 6_000), costs.own_line);
        assert_eq!(go(1, Access::Update, 7_000), costs.same_llc + 9, "the home and CPU 1 had it");
        assert_eq!(
            go(1, Access::Update, 8_000),
            costs.same_llc + costs.read_modify_write,
            "a CPU that comes again gets it"
        );
        assert_eq!(go(1, Access::Update, 9_000), own);
        go(2, Access::Update, 10_000);
        let exchanged = costs.same_llc + costs.read_modify_write;
        assert_eq!(go(3, Access::ReadModifyWrite, 11_000), exchanged, "the CPU does it itself");
        assert_eq!(go(3, Access::ReadModifyWrite, 12_000), own);
    }

    #[test]
    fn transfers_of_one_line_wait_for_each_other_and_copies_for_none() {
        let costs = Costs::DEFAULT;
        let topology = Topology::from_synthetic("numa:2 l3:2 core:4 pu:2").expect("well formed");
        let hardware = Hardware::new(topology, &costs);
        let (near, far) = (costs.same_llc, costs.same_package);
        let mut lines = Lines::default();
        let mut go = |cpu, access, now| {
            lines.access(4096, access, (cpu, now), &hardware, &costs, at_home(&costs)).1
        };
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
