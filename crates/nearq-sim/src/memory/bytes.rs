//! Declared bytes: what it costs a CPU to read or write a range.
//!
//! # What it costs
//! A line comes from the nearest place that has it: the CPU's private cache, its last-level cache, another
//! last-level cache, its node's memory. Memory has it unless a cache holds newer content.
//! - From its own caches a CPU streams at their known rate (`l2_stream`, `l3_stream`).
//! - From anywhere else it streams at `memory_stream * memory / latency`, at most at `l3_stream`. A CPU has a fixed
//!   number of lines in flight, so that by Little's law its rate falls as the latency grows; `memory_stream` is its
//!   rate at the latency of its own node's memory. The latency is that of a line's transfer from another cache, or
//!   that of memory on its node.
//! - Writing takes a line away from all other caches, and goes at the rate for the farthest of them.
//! - Bytes from beyond the last-level cache pass the shared servers of `bandwidth`: the port of that cache, the port of the other cache or
//!   the memory of the node, and the links of both nodes. They take as long as the slowest server.
//! - Written bytes that leave a last-level cache pass these servers as well, on their way back to their node's memory. No thread waits for
//!   this, but later accesses queue behind it.
//! - The first touch of a page costs a page fault on top.
//!
//! A thread is busy for that time and may be preempted in the meantime. The time is on the memory's clock: a busy sibling or a slow core
//! does not lengthen it.
//!
//! # How it passes
//! The range is handled in runs of some pages: each run is looked up and charged as a whole, at its time. Many accesses to one range are
//! followed not by page but by the share of the range that each cache holds (`bulk`).

mod bulk;

use core::ops::Range;

use nearq_platform::{MemoryPolicy, OsError, Residency};
use nearq_topology::Topology;

use self::bulk::Footprints;
pub(crate) use self::bulk::{Accesses, many};
use super::PAGE;
use super::bandwidth::{self, Bandwidth, End};
use super::caches::{Caches, CpuPosition};
use super::pages::{self, Pages};
use super::placement::{Nodes, Placing, Policy, Ranges};
use crate::context::Shared;
use crate::costs::Costs;
use crate::cpu::FULL_RATE;
use crate::hardware::Hardware;
use crate::trace::Kind;
use crate::world::World;

/// Pages a run.
const RUN: usize = 16;

/// What touches memory.
#[derive(Debug)]
pub(super) struct Toucher<'a> {
    pub(super) cpu: usize,
    pub(super) process: u64,
    pub(super) placing: &'a mut Placing,
    pub(super) now: u64,
}

/// The rate at which lines come, and their source if that is beyond the CPU's own caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Private,
    Llc,
    /// At the rate of a latency. Without an end nothing is transferred: the other caches only drop their copies.
    Far(u64, Option<End>),
}

/// The total cost of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunCost {
    /// Nanoseconds in the kernel.
    kernel: u64,
    /// Picoseconds that the CPU streams.
    streaming: u64,
    /// Picoseconds from now until the shared servers are through.
    shared: u64,
}

/// All declared memory, and the hardware under it.
#[derive(Debug)]
pub(crate) struct Bytes {
    pages: Pages,
    ranges: Ranges,
    nodes: Nodes,
    caches: Caches,
    bandwidth: Bandwidth,
    footprints: Footprints,
    /// Bytes on their way back to their nodes' memory; empty between runs.
    leaving: Vec<(u32, u64)>,
}

impl Bytes {
    pub(super) fn new(topology: &Topology, costs: &Costs) -> Self {
        let caches = Caches::new(topology, costs);
        let nodes = Nodes::new(topology, costs);
        Bytes {
            pages: Pages::new(nodes.len()),
            ranges: Ranges::default(),
            bandwidth: Bandwidth::new(caches.llcs(), nodes.len()),
            nodes,
            caches,
            footprints: Footprints::default(),
            leaving: Vec::new(),
        }
    }

    /// Touches the addresses from `start` to at most `end`. Returns how far it got, and what that costs.
    pub(super) fn run(
        &mut self,
        start: usize,
        end: usize,
        write: bool,
        toucher: &mut Toucher<'_>,
        hardware: &Hardware,
        costs: &Costs,
    ) -> (usize, RunCost) {
        let position = self.caches.position(toucher.cpu);
        let end = end.min((start / PAGE + RUN) * PAGE);
        let mut took = RunCost::default();
        let mut leg = (Way::Private, 0);
        let mut at = start;
        while at < end {
            let stop = end.min((at / PAGE + 1) * PAGE);
            took.kernel += self.touch_first(at / PAGE, position, toucher, costs);
            let ways = self.touch_page(
                at / PAGE,
                pages::lines(at, stop),
                write,
                toucher.cpu,
                position,
                hardware,
            );
            for (way, lines) in ways {
                if lines == 0 {
                    continue;
                }
                if way != leg.0 {
                    self.finish(leg, position, toucher.now, &mut took, costs);
                    leg = (way, 0);
                }
                leg.1 += pages::bytes(lines);
            }
            at = stop;
        }
        self.finish(leg, position, toucher.now, &mut took, costs);
        let port = End::Llc(position.llc, position.node);
        self.send_what_leaves(port, toucher.now.saturating_mul(1000), costs);
        (end, took)
    }

    /// Sends what no longer fits in a cache back to its nodes' memory, at a time in picoseconds.
    fn send_what_leaves(&mut self, port: End, now: u64, costs: &Costs) {
        for (node, bytes) in self.leaving.drain(..) {
            if bytes > 0 {
                self.bandwidth.send(port, End::Memory(node), bytes, now, costs);
            }
        }
    }

    /// Gives a page its node, unless it has one. Returns the cost.
    fn touch_first(
        &mut self,
        page: usize,
        position: CpuPosition,
        toucher: &mut Toucher<'_>,
        costs: &Costs,
    ) -> u64 {
        if self.pages.get_mut(page).is_some() {
            return 0;
        }
        let bound = if self.ranges.is_empty() { None } else { self.ranges.get(page) };
        let home = match bound {
            Some(bound) => self.nodes.choose(bound.policy(), position.node, || bound.turn(page)),
            None => self.nodes.choose(&toucher.placing.policy, position.node, || {
                toucher.placing.turn += 1;
                toucher.placing.turn - 1
            }),
        };
        self.pages.add(page, home, toucher.process);
        costs.page_fault
    }

    /// Gets lines of a page to a CPU. Returns the paths by which they come.
    fn touch_page(
        &mut self,
        page: usize,
        mask: u64,
        write: bool,
        cpu: usize,
        position: CpuPosition,
        hardware: &Hardware,
    ) -> [(Way, u64); 5] {
        let caches = &mut self.caches;
        let page = self.pages.get_mut(page).expect("it was touched just now");
        let home = page.home() as usize;
        let found = page
            .find(mask, position, caches, |cache| hardware.line(caches.cpu_of(cache), cpu, home));
        let own_lines = found.private | found.llc;
        let beyond = mask & !own_lines;
        let memory = self.nodes.latency(position.node, page.home());
        let (nearest, cache) = found.nearest;
        // Either all lines come from caches or none does, because this is so for the lines of nearly every page.
        let from_caches = write || beyond & found.newer != 0 || nearest <= memory;
        let cached = if from_caches { beyond & found.elsewhere } else { 0 };
        let (llc, node) = caches.llc_of(cache);
        // A writer waits for the farthest cache, and makes its neighbours drop their copies through the last-level cache.
        let (reach, taken, neighbour) = if write {
            (found.farthest, own_lines & found.elsewhere, found.neighbour)
        } else {
            (nearest, 0, 0)
        };
        let private = found.private & !neighbour & !taken;
        let ways = [
            (Way::Private, private),
            (Way::Llc, own_lines & !private & !taken),
            (Way::Far(reach, None), taken),
            (Way::Far(reach, Some(End::Llc(llc, node))), cached),
            (Way::Far(memory, Some(End::Memory(page.home()))), beyond & !cached),
        ];
        if write {
            page.take_away(mask, position, caches);
        }
        page.bring(mask, position.private, false, caches, &mut self.leaving);
        page.bring(mask, position.llc, write, caches, &mut self.leaving);
        ways
    }

    /// Adds the cost of a leg of a run: bytes that come by the same path.
    fn finish(
        &mut self,
        (way, bytes): (Way, u64),
        position: CpuPosition,
        now: u64,
        took: &mut RunCost,
        costs: &Costs,
    ) {
        let near = bandwidth::time(bytes, costs.l3_stream);
        took.streaming += match way {
            Way::Private => bandwidth::time(bytes, costs.l2_stream),
            Way::Llc => near,
            Way::Far(latency, _) => near
                .max(bandwidth::time(bytes, costs.memory_stream) * latency / costs.memory.max(1)),
        };
        if let Way::Far(_, Some(from)) = way {
            let now = now.saturating_mul(1000);
            let done =
                self.bandwidth.send(from, End::Llc(position.llc, position.node), bytes, now, costs);
            took.shared = took.shared.max(done - now);
        }
    }

    /// Gives a range a policy of its own, which applies to those of its pages that have not been touched.
    fn bind(&mut self, range: &[u8], process: u64, policy: Policy) {
        if let Some((first, end)) = inner(range) {
            self.ranges.set(first, end, process, policy);
        }
    }

    /// Moves the pages from `first` to below `end` to where their policy wants them. Returns how many had to be
    /// moved.
    fn move_pages(&mut self, first: usize, end: usize, cpu: usize) -> u64 {
        let local = self.caches.position(cpu).node;
        let mut moved = 0;
        for page in first..end {
            if let (Some(home), Some(bound)) = (self.pages.home(page), self.ranges.get(page))
                && !bound.is_met(home, local)
            {
                let home = self.nodes.choose(bound.policy(), local, || bound.turn(page));
                self.pages.change_home(page, home, &mut self.caches);
                moved += 1;
            }
        }
        moved
    }

    /// The home of the line of that number, which a CPU of `node` touches first, and how long the line takes from memory. The thread's policy
    /// applies to the line alone, because which objects share a page depends on their addresses; it takes nodes in turn by the number.
    pub(super) fn place_line(&self, node: u32, policy: &Policy, number: u64) -> (u32, u64) {
        let home = self.nodes.choose(policy, node, || number as usize);
        (home, self.nodes.latency(node, home))
    }

    /// A policy in the simulation's terms.
    ///
    /// # Errors
    /// If the policy leaves no node.
    pub(crate) fn resolve(&self, policy: &MemoryPolicy, what: &str) -> Result<Policy, OsError> {
        self.nodes.resolve(policy, what)
    }

    /// On which nodes at most `samples` pages of a range are, spread evenly.
    pub(crate) fn residency(&self, range: Range<usize>, samples: usize) -> Residency {
        let mut counts = vec![0; self.nodes.len()];
        let mut absent = 0;
        if !range.is_empty() {
            let first = range.start / PAGE;
            let pages = (range.end - 1) / PAGE - first + 1;
            let taken = pages.min(samples);
            for index in 0..taken {
                // As `index * pages / taken`, for ranges of any size.
                let page = (index as u128 * pages as u128 / taken as u128) as usize;
                match self.pages.home(first + page) {
                    Some(home) => counts[home as usize] += 1,
                    None => absent += 1,
                }
            }
        }
        Residency::counted(self.nodes.by_id(&counts), absent, PAGE)
    }

    /// A policy in the platform's terms.
    pub(crate) fn describe(&self, policy: &Policy) -> MemoryPolicy {
        self.nodes.describe(policy)
    }

    /// How many pages of a process are on each node, by the operating system's number.
    pub(crate) fn resident(&self, process: u64) -> Vec<usize> {
        self.nodes.by_id(&self.pages.resident(process))
    }

    /// Forgets the whole pages of memory that is given back.
    pub(crate) fn forget(&mut self, start: usize, bytes: usize) {
        let (first, end) = (start.div_ceil(PAGE), (start + bytes) / PAGE);
        if first < end {
            self.pages.forget(first, end, &mut self.caches);
            self.footprints.forget(first, end);
            if !self.ranges.is_empty() {
                self.ranges.remove(first, end);
            }
        }
    }

    /// Forgets the memory of a process.
    pub(crate) fn forget_process(&mut self, process: u64) {
        self.pages.forget_process(process, &mut self.caches);
        self.footprints.forget_process(process);
        self.ranges.remove_process(process);
    }
}

/// The pages that are inside a range as a whole: the first, and one more than the last.
fn inner(range: &[u8]) -> Option<(usize, usize)> {
    let start = range.as_ptr().addr();
    let (first, end) = (start.div_ceil(PAGE), (start + range.len()) / PAGE);
    (first < end).then_some((first, end))
}

// ---- for the running thread --------------------------------------------------------------------------

impl World {
    /// Makes the running thread touch a run of addresses. Returns how far it got, and nanoseconds until it has them.
    fn touch_run(&mut self, start: usize, end: usize, write: bool) -> (usize, u64) {
        let (cpu, now) = (self.cpu, self.now());
        let entry = self.threads.at_mut(self.slot);
        let process = entry.process;
        let mut toucher = Toucher { cpu, process, placing: &mut entry.placing, now };
        let bytes = &mut self.memory.bytes;
        let (stop, took) = bytes.run(start, end, write, &mut toucher, &self.hardware, &self.costs);
        let kind = if write { Kind::WriteBytes } else { Kind::ReadBytes };
        self.record(kind, (stop - start) as u64);
        let cpu_ns = self.jittered(took.kernel + took.streaming.div_ceil(1000));
        self.me_mut().kernel_time += took.kernel.min(cpu_ns);
        (stop, cpu_ns.max(took.shared.div_ceil(1000)))
    }
}

/// Makes the caller read or write a range of addresses.
pub(crate) fn stream(shared: &Shared, start: usize, bytes: usize, write: bool) {
    let (mut at, end) = (start, start + bytes);
    while at < end {
        shared.sync();
        let (stop, nanoseconds) = shared.world.borrow_mut().touch_run(at, end, write);
        pass(shared, nanoseconds);
        at = stop;
    }
}

/// Gives a range a policy, and moves its pages if asked to.
pub(crate) fn bind(shared: &Shared, range: &[u8], policy: Policy, move_pages: bool) {
    {
        let mut world = shared.world.borrow_mut();
        let process = world.me().process;
        world.memory.bytes.bind(range, process, policy);
    }
    let Some((mut at, end)) = inner(range).filter(|_| move_pages) else { return };
    while at < end {
        shared.sync();
        let stop = end.min(at + RUN);
        let cost = {
            let mut world = shared.world.borrow_mut();
            let cpu = world.cpu;
            let cost = world.memory.bytes.move_pages(at, stop, cpu) * world.costs.page_move;
            let cost = world.jittered(cost);
            world.me_mut().kernel_time += cost;
            cost
        };
        pass(shared, cost);
        at = stop;
    }
}

/// Lets time pass in which the caller waits for memory: it is on its CPU and may be preempted.
fn pass(shared: &Shared, nanoseconds: u64) {
    // No longer than a second at a time, so that the units fit.
    let mut left = nanoseconds;
    while left > 0 {
        let piece = left.min(1_000_000_000);
        shared.work(piece * FULL_RATE, false, None, || true);
        left -= piece;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::{Sim, Simulation, context};
    use nearq_platform::LockPlatform;

    #[test]
    fn freed_memory_is_forgotten() {
        let machine = Topology::from_synthetic("numa:2 l3:2 core:2").expect("well formed");
        let known = || {
            let shared = context::expect("a test");
            let bytes = &shared.world.borrow().memory.bytes;
            (bytes.pages.len(), bytes.ranges.is_empty())
        };
        let main = move || {
            let mut blocks: Vec<Box<[u8]>> =
                (1..64).map(|pages| vec![0; pages * PAGE].into()).collect();
            for block in &mut blocks {
                Sim::write(block);
                Sim::bind_memory(block, &MemoryPolicy::Preferred(1), true).expect("exists");
            }
            assert_eq!(known(), (63 * 64 / 2, false));
            blocks.truncate(10);
            assert_eq!(known(), (10 * 11 / 2, false));
            blocks.clear();
            known()
        };
        assert_eq!(Simulation::new(machine, 1).run(main).expect(), (0, true));
    }

    /// Reads, writes, moves and forgets at random, on caches that are much too small for it.
    #[test]
    fn random_operations_keep_the_bookkeeping_consistent() {
        let machine = "numa:2 l3:2(size=64KiB) l2:2(size=8KiB) core:1 pu:2";
        let topology = Topology::from_synthetic(machine).expect("well formed");
        let costs = Costs::DEFAULT;
        let hardware = Hardware::new(topology.clone(), &costs);
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut bytes = Bytes::new(&topology, &costs);
            let mut placing = Placing::default();
            for now in 0..4000 {
                let start = PAGE * 10 + rng.below(60 * PAGE as u64) as usize;
                let end = start + 1 + rng.below(3 * PAGE as u64) as usize;
                let cpu = rng.below(16) as usize;
                let what = rng.below(40);
                let (first, last) = (start / PAGE, end / PAGE);
                match what {
                    0 => bytes.forget(start, end - start),
                    1 => bytes.forget_process(rng.below(3)),
                    2 => {
                        let policy = Policy::Preferred(rng.below(2) as u32);
                        bytes.ranges.set(first, last + 1, rng.below(3), policy);
                        bytes.move_pages(first, last + 1, cpu);
                    }
                    _ => {
                        let process = rng.below(3);
                        let mut toucher = Toucher { cpu, process, placing: &mut placing, now };
                        let mut touch =
                            |write| bytes.run(start, end, write, &mut toucher, &hardware, &costs).1;
                        let took = touch(what.is_multiple_of(2));
                        assert!(
                            took.streaming > 0 && took.kernel % costs.page_fault == 0,
                            "{took:?}"
                        );
                        assert_eq!(touch(what.is_multiple_of(2)).kernel, 0, "no page is new twice");
                    }
                }
                let known = bytes.pages.len();
                let counted: usize = (0..3).flat_map(|process| bytes.resident(process)).sum();
                assert_eq!(known, counted);
                if now % 16 == 0 {
                    bytes.pages.check(&bytes.caches);
                }
            }
        }
    }

    #[test]
    fn freeing_many_megabytes_leaves_no_records() {
        let machine = Topology::from_synthetic("core:1").expect("well formed");
        let main = || {
            let mut block = vec![0; 8192 * PAGE];
            Sim::write(&mut block);
            drop(block);
            let shared = context::expect("a test");
            shared.world.borrow().memory.bytes.pages.capacity()
        };
        assert!(Simulation::new(machine, 1).run(main).expect() < 1024);
    }
}
