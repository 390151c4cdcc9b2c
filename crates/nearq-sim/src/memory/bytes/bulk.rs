//! Many accesses at once: at random places of a range, or in order, again and again.
//!
//! A program that walks over megabytes for a minute touches lines billions of times. Page by page, that is more than a
//! simulation can follow. So here a range is one object, and only the number of its bytes in each cache is known.
//!
//! # What a cache holds
//! After D. Thiébaut and H. Stone, "Footprints in the Cache", ACM Transactions on Computer Systems 5 (4), 1987: each line that comes into a
//! cache of S bytes replaces a random line. So when B bytes have come in, the cache holds exp(-B / S) of what it held of a range before; if
//! the bytes belong to the range itself, they have replaced that share of everything else. Lost bytes that were written go back to their
//! node's memory.
//!
//! # What it costs
//! - At random, an access hits each place in proportion to its share of the range, and waits for the access before: it takes
//!   the latency of the place. The latency of another cache and of a node's memory is known. For its own caches, the rate at
//!   which a CPU streams from them is known. Because the CPU has a fixed number of lines in flight, their latency is that of
//!   memory times the ratio of the rates (Little's law).
//! - In order, each share streams at its rate, as in `bytes`. A range that is larger than a cache of the CPU is not found there.
//! - What comes from beyond the last-level cache passes the shared servers of `bandwidth`, and so do the bytes that go back.
//!
//! # How it passes
//! Accesses are handled in runs of about a millisecond, with the shares at the beginning of the run.

use std::collections::BTreeMap;

use super::super::bandwidth::Bandwidth;
use super::super::caches::CpuPosition;
use super::super::{LINE, PAGE};
use super::{Bytes, End, RunCost, Toucher, pass};
use crate::context::Shared;
use crate::costs::Costs;
use crate::hardware::Hardware;
use crate::trace::Kind;
use crate::world::World;

/// Picoseconds that a run takes, about.
const RUN: f64 = 1e9;

/// Accesses to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accesses {
    /// This many accesses at random places, each of them a read and a write of the same bytes.
    AtRandom(u64),
    /// In order.
    InOrder {
        /// How many bytes.
        bytes: u64,
        /// Whether they are written.
        write: bool,
    },
}

impl Accesses {
    /// How many accesses, or bytes.
    fn amount(self) -> u64 {
        match self {
            Accesses::AtRandom(amount) | Accesses::InOrder { bytes: amount, .. } => amount,
        }
    }

    fn less(self, done: u64) -> Self {
        match self {
            Accesses::AtRandom(amount) => Accesses::AtRandom(amount - done),
            Accesses::InOrder { bytes, write } => Accesses::InOrder { bytes: bytes - done, write },
        }
    }

    fn writes(self) -> bool {
        !matches!(self, Accesses::InOrder { write: false, .. })
    }

    /// Bytes that a unit of the amount moves.
    fn unit(self) -> f64 {
        if matches!(self, Accesses::AtRandom(_)) { LINE as f64 } else { 1.0 }
    }
}

/// What a cache holds of a range.
#[derive(Clone, Copy, Debug)]
struct Held {
    cache: u32,
    bytes: f64,
    /// The time at which this was true, measured in bytes that had come into the cache.
    stamp: u64,
    /// Whether memory has older contents.
    written: bool,
}

/// A range as a whole.
#[derive(Debug)]
struct Footprint {
    process: u64,
    /// The value of [`Pages::changes`](super::Pages::changes) at the time when `homes` was counted.
    changes: u64,
    /// The share of its pages on each node.
    homes: Vec<f64>,
    held: Vec<Held>,
}

impl Footprint {
    /// The part that a cache holds now.
    fn held(&self, cache: u32) -> f64 {
        self.held.iter().find(|held| held.cache == cache).map_or(0.0, |held| held.bytes)
    }
}

/// All ranges that were accessed as a whole, by their first page and the one after the last.
#[derive(Debug, Default)]
pub(super) struct Footprints(BTreeMap<(usize, usize), Footprint>);

impl Footprints {
    /// Forgets ranges that have pages from `first` to below `end`, which are given back.
    pub(super) fn forget(&mut self, first: usize, end: usize) {
        if !self.0.is_empty() {
            self.0.retain(|range, _| range.1 <= first || end <= range.0);
        }
    }

    /// Forgets the ranges of a process.
    pub(super) fn forget_process(&mut self, process: u64) {
        self.0.retain(|_, footprint| footprint.process != process);
    }
}

/// What is left of a cache's content when `bytes` have come in: exp(-bytes / size), as the limit of many small steps, by
/// multiplication alone, so that it is the same number on every machine.
fn left(bytes: f64, size: u64) -> f64 {
    /// A power of two.
    const STEPS: u32 = 256;
    let step = (1.0 - bytes / (size.max(1) as f64 * f64::from(STEPS))).max(0.0);
    (0..STEPS.trailing_zeros()).fold(step, |power, _| power * power)
}

/// A place that lines come from, beyond the CPU's own caches.
#[derive(Clone, Copy, Debug)]
struct Source {
    from: End,
    latency: u64,
    share: f64,
    /// The cache, if it is one.
    cache: Option<u32>,
}

/// Where a range is, seen from a CPU.
#[derive(Debug)]
struct Shares {
    private: f64,
    /// In the last-level cache and not in the private one.
    llc: f64,
    beyond: Vec<Source>,
}

impl Shares {
    fn all_beyond(&self) -> f64 {
        self.beyond.iter().map(|source| source.share).sum()
    }

    /// Picoseconds for an access, or for a byte.
    fn cost(&self, accesses: Accesses, costs: &Costs) -> f64 {
        let picoseconds = |rate: u64| 1e6 / rate.max(1) as f64;
        let (l2, l3) = (picoseconds(costs.l2_stream), picoseconds(costs.l3_stream));
        let (stream, memory) = (picoseconds(costs.memory_stream), costs.memory.max(1) as f64);
        let beyond = |each: &dyn Fn(f64) -> f64| -> f64 {
            self.beyond.iter().map(|source| source.share * each(source.latency as f64)).sum()
        };
        match accesses {
            Accesses::AtRandom(_) => {
                // A latency in picoseconds by the rate, by Little's law.
                let near = |rate: f64| memory * 1e3 * rate / stream;
                self.private * near(l2) + self.llc * near(l3) + beyond(&|latency| latency * 1e3)
            }
            Accesses::InOrder { .. } => {
                let far = |latency: f64| l3.max(stream * latency / memory);
                self.private * l2 + self.llc * l3 + beyond(&far)
            }
        }
    }
}

impl Bytes {
    /// Makes a run of accesses to a range of `bytes` bytes. Returns the number of accesses, and their cost.
    fn run_of_many(
        &mut self,
        (start, bytes): (usize, usize),
        accesses: Accesses,
        toucher: &mut Toucher<'_>,
        hardware: &Hardware,
        costs: &Costs,
    ) -> (u64, RunCost) {
        let position = self.caches.position(toucher.cpu);
        let range = (start / PAGE, (start + bytes).div_ceil(PAGE));
        let mut took =
            RunCost { kernel: self.know(range, position, toucher, costs), ..RunCost::default() };
        let mut footprint = self.footprints.0.remove(&range).expect("it is known since just now");
        self.age(&mut footprint, toucher.now, costs);
        let shares =
            self.shares(&footprint, bytes as f64, accesses, position, toucher.cpu, hardware);
        let each = shares.cost(accesses, costs);
        let done = accesses.amount().min(((RUN / each.max(1e-3)) as u64).max(1));
        took.streaming = (each * done as f64) as u64;
        let moved = done as f64 * accesses.unit();
        let now = toucher.now.saturating_mul(1000);
        let port = End::Llc(position.llc, position.node);
        for source in &shares.beyond {
            let bytes = (moved * source.share) as u64;
            let through = self.bandwidth.send(source.from, port, bytes, now, costs);
            took.shared = took.shared.max(through - now);
            let held = footprint.held.iter_mut().find(|held| Some(held.cache) == source.cache);
            if let Some(held) = held {
                held.bytes = (held.bytes - bytes as f64).max(0.0);
            }
        }
        for (cache, brought) in [
            (position.private, moved * (1.0 - shares.private)),
            (position.llc, moved * shares.all_beyond()),
        ] {
            let most = bytes as f64;
            let lost = self.fill(&mut footprint, cache, brought, most, accesses.writes());
            if cache == position.llc {
                send_back(&mut self.bandwidth, &footprint.homes, lost, port, now, costs);
            }
        }
        self.send_what_leaves(port, now, costs);
        footprint.held.retain(|held| held.bytes >= 1.0);
        self.footprints.0.insert(range, footprint);
        (done, took)
    }

    /// Ensures that all pages of a range exist and are counted. Returns what their first touch costs.
    fn know(
        &mut self,
        range: (usize, usize),
        position: CpuPosition,
        toucher: &mut Toucher<'_>,
        costs: &Costs,
    ) -> u64 {
        let changes = self.pages.changes();
        if self.footprints.0.get(&range).is_some_and(|known| known.changes == changes) {
            return 0;
        }
        let mut kernel = 0;
        let mut homes = vec![0.0; self.nodes.len()];
        for page in range.0..range.1 {
            kernel += self.touch_first(page, position, toucher, costs);
            let home = self.pages.home(page).expect("it was touched just now");
            homes[home as usize] += 1.0;
        }
        let pages = (range.1 - range.0) as f64;
        for home in &mut homes {
            *home /= pages;
        }
        let held = self.footprints.0.remove(&range).map_or(Vec::new(), |known| known.held);
        let footprint = Footprint { process: toucher.process, changes, homes, held };
        self.footprints.0.insert(range, footprint);
        kernel
    }

    /// Removes what caches have lost of a range to later content, and sends back the written part of it.
    fn age(&mut self, footprint: &mut Footprint, now: u64, costs: &Costs) {
        for held in &mut footprint.held {
            let stamp = self.caches.stamp(held.cache);
            if stamp == held.stamp {
                continue;
            }
            let came = (stamp - held.stamp) as f64;
            let remains = held.bytes * left(came, self.caches.size(held.cache));
            let lost = held.bytes - remains;
            (held.bytes, held.stamp) = (remains, stamp);
            let (llc, node) = self.caches.llc_of(held.cache);
            if held.written && held.cache == llc {
                let (port, now) = (End::Llc(llc, node), now.saturating_mul(1000));
                send_back(&mut self.bandwidth, &footprint.homes, lost, port, now, costs);
            }
        }
    }

    /// Where a range of `bytes` bytes is.
    fn shares(
        &self,
        footprint: &Footprint,
        bytes: f64,
        accesses: Accesses,
        position: CpuPosition,
        cpu: usize,
        hardware: &Hardware,
    ) -> Shares {
        let in_order = matches!(accesses, Accesses::InOrder { .. });
        let of_own = |cache: u32| {
            let never = in_order && bytes > self.caches.size(cache) as f64;
            if never { 0.0 } else { (footprint.held(cache) / bytes).min(1.0) }
        };
        let private = of_own(position.private);
        let llc = (of_own(position.llc) - private).max(0.0);
        let mut rest = (1.0 - private - llc).max(0.0);
        let mut beyond = Vec::with_capacity(footprint.homes.len());
        for held in &footprint.held {
            let (llc, node) = self.caches.llc_of(held.cache);
            if !held.written || held.cache != llc || llc == position.llc {
                continue;
            }
            let share = (held.bytes / bytes).min(rest);
            rest -= share;
            let holder = self.caches.cpu_of(held.cache);
            let by_home = footprint.homes.iter().enumerate();
            let latency =
                by_home.map(|(home, share)| hardware.line(holder, cpu, home) as f64 * share);
            let latency = latency.sum::<f64>().round() as u64;
            let from = End::Llc(llc, node);
            beyond.push(Source { from, latency, share, cache: Some(held.cache) });
        }
        for (home, share) in footprint.homes.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            let (from, latency) =
                (End::Memory(home as u32), self.nodes.latency(position.node, home as u32));
            beyond.push(Source { from, latency, share: rest * share, cache: None });
        }
        Shares { private, llc, beyond }
    }

    /// Brings bytes of a range into a cache, where they replace everything else. Returns how many of them, and of the earlier bytes, must
    /// go back to memory because they no longer fit.
    fn fill(
        &mut self,
        footprint: &mut Footprint,
        cache: u32,
        brought: f64,
        bytes: f64,
        written: bool,
    ) -> f64 {
        let before = self.caches.stamp(cache);
        self.caches.bring(cache, brought as u64, &mut self.leaving);
        let after = self.caches.stamp(cache);
        let size = self.caches.size(cache);
        let others = left((after - before) as f64, size);
        let place = footprint.held.iter().position(|held| held.cache == cache);
        let place = place.unwrap_or_else(|| {
            footprint.held.push(Held { cache, bytes: 0.0, stamp: before, written: false });
            footprint.held.len() - 1
        });
        let held = &mut footprint.held[place];
        let size = size as f64;
        let most = bytes.min(size);
        let was = held.bytes;
        held.bytes = (size - (size - was) * others).min(most);
        held.written |= written;
        held.stamp = after;
        if held.written { (was + brought - held.bytes).max(0.0) } else { 0.0 }
    }
}

/// Sends written bytes of a range back to the range's nodes, by their shares.
fn send_back(
    bandwidth: &mut Bandwidth,
    homes: &[f64],
    lost: f64,
    port: End,
    now: u64,
    costs: &Costs,
) {
    for (home, share) in homes.iter().enumerate() {
        let bytes = (lost * share) as u64;
        if bytes > 0 {
            bandwidth.send(port, End::Memory(home as u32), bytes, now, costs);
        }
    }
}

// ---- for the running thread --------------------------------------------------------------------------

impl World {
    /// Makes the running thread perform a run of accesses. Returns how many, and nanoseconds until they are done.
    fn touch_many(&mut self, range: (usize, usize), accesses: Accesses) -> (u64, u64) {
        let (cpu, now) = (self.cpu, self.now());
        let entry = self.threads.at_mut(self.slot);
        let process = entry.process;
        let mut toucher = Toucher { cpu, process, placing: &mut entry.placing, now };
        let bytes = &mut self.memory.bytes;
        let (done, took) =
            bytes.run_of_many(range, accesses, &mut toucher, &self.hardware, &self.costs);
        self.record(if accesses.writes() { Kind::WriteBytes } else { Kind::ReadBytes }, done);
        let cpu_ns = self.jittered(took.kernel + took.streaming.div_ceil(1000));
        self.me_mut().kernel_time += took.kernel.min(cpu_ns);
        (done, cpu_ns.max(took.shared.div_ceil(1000)))
    }
}

/// Makes the caller access a range of addresses.
pub(crate) fn many(shared: &Shared, start: usize, bytes: usize, accesses: Accesses) {
    let mut left = accesses;
    while left.amount() > 0 && bytes > 0 {
        shared.sync();
        let (done, nanoseconds) = shared.world.borrow_mut().touch_many((start, bytes), left);
        pass(shared, nanoseconds);
        left = left.less(done);
    }
}
