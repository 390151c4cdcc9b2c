//! `nearq sim calibrate`: measures what things cost on this machine, and writes a machine file for `--on`.
//!
//! | file | has |
//! |---|---|
//! | `places` | the pairs of CPUs of each distance, and the CPUs of each cache and node |
//! | `meter` | how one quantity is measured: batches, samples, quartiles |
//! | `core`, `lines`, `memory`, `kernel` | the measurements; the head of each says what is measured, what is subtracted, and why |
//! | `noise` | what disturbed the measurement, and when that is too much |
//! | `costs` | which quantity gives which cost |
//! | `shape`, `file` | the machine's shape as text, the file, and the table |
//!
//! # Order
//! All quantities are measured one after the other, and then all of them again, until each has been the same twice in a row. The file has the
//! quartiles of these two times together; that their medians differ little is one of the signs that the machine was quiet. A noisy machine's
//! file is not written, unless the user accepts that; then the file says why.
//!
//! What the costs mean is nearq-sim's affair. The measurements are plain Linux code and use no part of the runtime that is simulated.

mod core;
mod costs;
mod file;
mod kernel;
mod lines;
mod memory;
mod meter;
mod noise;
pub(crate) mod places;
mod shape;

use crate::{Error, Machine, Progress};
use clap::Args;
use lines::Operation;
use meter::Samples;
use nearq_sim::{Calibration, Measurement};
use nearq_topology::{CpuSet, Topology};
use noise::Watcher;
use places::Class;
use std::path::{Path, PathBuf};

/// The options of `calibrate`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct CalibrateOptions {
    /// The file to write; its name ends in `.machine` or `.json`, so that --on takes it
    #[arg(short, long, value_name = "FILE.machine")]
    pub output: PathBuf,

    /// Write the file even if the machine was too noisy; the file says so, and why
    #[arg(long)]
    pub accept_noise: bool,

    /// A tenth of the samples, for a first look; the figures are less reliable
    #[arg(long)]
    pub quick: bool,
}

/// What the calibration gave.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// The measurements, for people.
    pub text: String,
    /// The machine file, or why there is none.
    pub file: Result<String, Error>,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Samples of most quantities, each time.
    samples: usize,
    /// Wake-ups over each distance.
    wake_ups: usize,
    /// The most bytes of a range in memory.
    most_bytes: usize,
}

const FULL: Size = Size { samples: 1000, wake_ups: 10_000, most_bytes: 1 << 30 };
const QUICK: Size = Size { samples: 100, wake_ups: 1000, most_bytes: 1 << 28 };

impl CalibrateOptions {
    /// Refuses a name that `--on` would not take.
    pub fn check(&self) -> Result<(), Error> {
        let ending = self.output.extension().and_then(|ending| ending.to_str());
        if matches!(ending, Some("machine" | "json")) {
            return Ok(());
        }
        Err(Error::input(format!(
            "--output {}: --on takes machine files whose names end in .machine or .json; give such a name",
            self.output.display()
        )))
    }
}

/// The costs of lines, with the units of a file, that bounces of that name give.
#[cfg(test)]
pub(crate) fn costs_of_lines<'b>(
    bounces: impl Iterator<Item = (&'b str, f64)>,
    topology: &Topology,
) -> Vec<(&'static str, u64)> {
    let measurement = |(name, median): (&str, f64)| Measurement {
        name: name.into(),
        unit: "ns".into(),
        quartiles: [median; 3],
        medians: [median; 2],
        samples: 1,
    };
    let measurements = bounces.map(measurement).collect();
    let calibration = Calibration { measurements, ..Calibration::default() };
    let all = costs::of(&calibration, topology).into_iter();
    all.filter(|cost| cost.unit != "bytes").map(|cost| (cost.name, cost.value)).collect()
}

/// Measures this machine.
pub fn calibrate(options: &CalibrateOptions, progress: &Progress) -> Result<Calibrated, Error> {
    options.check()?;
    let machine = Machine::here()?;
    let size = if options.quick { QUICK } else { FULL };
    let calibration = measure(&machine, size, Path::new("/"), progress);
    progress.end();
    Ok(settled(machine.topology(), calibration?, options.accept_noise))
}

/// The table and the file, unless the machine was too noisy for one.
fn settled(topology: &Topology, calibration: Calibration, accept_noise: bool) -> Calibrated {
    let text = file::table(topology, &calibration);
    let file = match calibration.noisy.split_first() {
        Some((first, others)) if !accept_noise => Err(Error::run(format!(
            "the machine was too noisy, so no file is written: {first}{}; at most {} % is allowed. Stop other programs and run it again, or give \
             --accept-noise for a file that is marked as noisy",
            match others.len() {
                0 => String::new(),
                1 => format!("; {}", others[0]),
                more => format!("; {}; and {} more reasons", others[0], more - 1),
            },
            noise::MOST_PERCENT
        ))),
        _ => file::text(topology, &calibration),
    };
    Calibrated { text, file }
}

/// How often everything is measured at the most: until each quantity from which a cost follows is the same twice in a row.
const MOST_TURNS: usize = 8;

/// Measures everything at least twice; `root` is where `/proc` is read.
fn measure(
    machine: &Machine,
    size: Size,
    root: &Path,
    progress: &Progress,
) -> Result<Calibration, Error> {
    let plan = Plan::new(machine, size);
    let mut watcher = Watcher::start(root, machine.parallelism());
    let mut turns: Vec<Vec<Samples>> = Vec::new();
    let of_costs = costs::names();
    let pairs = loop {
        progress.begin(plan.steps());
        let turn = turns.len() + 1;
        let mut meter = Meter { watcher: &mut watcher, progress, turn, all: Vec::new() };
        plan.carry_out(&mut meter)?;
        turns.push(meter.all);
        if turns.len() < 2 {
            continue;
        }
        let pairs: Vec<Pair> = (0..turns[0].len()).map(|at| steadiest(&turns, at)).collect();
        let drifts = |pair: &Pair| {
            of_costs.contains(&pair.measurement.name.as_str())
                && noise::has_drifted(&pair.measurement)
        };
        if turns.len() == MOST_TURNS || !pairs.iter().any(drifts) {
            break pairs;
        }
    };
    let preempted = pairs.iter().map(|pair| pair.preempted).sum();
    let counted = pairs.iter().map(|pair| pair.measurement.samples).sum();
    let (noise, environment, took) = watcher.finish(preempted, counted);
    let measurements: Vec<Measurement> = pairs.into_iter().map(|pair| pair.measurement).collect();
    Ok(Calibration {
        nearq: env!("CARGO_PKG_VERSION").into(),
        kernel: environment.kernel.unwrap_or_else(|| "unknown".into()),
        seconds: rounded(took.as_secs_f64()),
        noisy: noise::reasons(&noise, &measurements, &of_costs),
        noise,
        measurements,
    })
}

/// Two measurements of a quantity in turns that follow each other.
struct Pair {
    measurement: Measurement,
    /// Samples during which the thread lost its CPU.
    preempted: usize,
}

/// The first two turns in a row in which the quantity with that index does not drift; the last two, if it always does.
fn steadiest(turns: &[Vec<Samples>], at: usize) -> Pair {
    let pair = |of: &[Vec<Samples>]| {
        let mut samples = of[0][at].clone();
        samples.join(&of[1][at]);
        let measurement = Measurement {
            quartiles: samples.quartiles().map(rounded),
            medians: [of[0][at].median(), of[1][at].median()].map(rounded),
            samples: samples.values.len(),
            unit: samples.unit.into(),
            name: samples.name,
        };
        Pair { measurement, preempted: samples.preempted }
    };
    let steady = turns.windows(2).map(pair).find(|pair| !noise::has_drifted(&pair.measurement));
    steady.unwrap_or_else(|| pair(&turns[turns.len() - 2..]))
}

/// Three digits after the point are more than any quantity has.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// What is measured on a machine.
struct Plan<'m> {
    topology: &'m Topology,
    size: Size,
    cpu: usize,
    pairs: Vec<(Class, Vec<(usize, usize)>)>,
    cores: Vec<usize>,
}

/// One turn of all measurements.
struct Meter<'m> {
    watcher: &'m mut Watcher,
    progress: &'m Progress,
    turn: usize,
    all: Vec<Samples>,
}

impl Meter<'_> {
    /// Measures something that needs no more threads than there are CPUs.
    fn step(
        &mut self,
        what: &str,
        measure: impl FnOnce() -> Result<Vec<Samples>, Error>,
    ) -> Result<(), Error> {
        self.progress.step(format!("turn {}: {what}", self.turn));
        let samples = self.watcher.roomy(measure)?;
        self.add(samples);
        Ok(())
    }

    /// Measures something for which threads share a CPU.
    fn crowded(
        &mut self,
        what: &str,
        measure: impl FnOnce() -> Result<Vec<Samples>, Error>,
    ) -> Result<(), Error> {
        self.progress.step(format!("turn {}: {what}", self.turn));
        self.add(measure()?);
        Ok(())
    }

    fn add(&mut self, samples: Vec<Samples>) {
        debug_assert!(samples.iter().all(|one| !one.values.is_empty()));
        self.all.extend(samples);
        self.progress.done();
    }

    fn median(&self, name: &str) -> f64 {
        let found = self.all.iter().find(|samples| samples.name == name);
        found.map_or(0.0, Samples::median)
    }
}

impl<'m> Plan<'m> {
    fn new(machine: &'m Machine, size: Size) -> Self {
        let (topology, usable) = (machine.topology(), machine.usable());
        Self {
            topology,
            size,
            cpu: usable.first().expect("a process may use a CPU"),
            pairs: places::pairs(topology, usable),
            cores: places::one_of_each_core(topology, usable),
        }
    }

    /// How many steps a turn has.
    fn steps(&self) -> usize {
        let fixed = 7;
        let siblings = usize::from(self.siblings().is_some());
        let migration = usize::from(self.three().is_some());
        let moves = usize::from(!self.pairs.is_empty());
        let crowds = places::crowds(self.cores.len()).len();
        fixed + siblings + migration + moves + crowds + 2 * self.pairs.len() + self.memory_steps()
    }

    fn memory_steps(&self) -> usize {
        // Latencies, three streams, and the rates together.
        self.memories().len() + 3 + self.crowds_of_memory().len()
    }

    /// Two CPUs of one core.
    fn siblings(&self) -> Option<(usize, usize)> {
        let (_, pairs) = self.pairs.iter().find(|(class, _)| *class == Class::SameCore)?;
        pairs.first().copied()
    }

    /// Three CPUs of different cores.
    fn three(&self) -> Option<[usize; 3]> {
        self.cores.get(..3)?.try_into().ok()
    }

    fn carry_out(&self, meter: &mut Meter<'_>) -> Result<(), Error> {
        let (count, cpu) = (self.size.samples, self.cpu);
        meter.step("own lines", || core::own(cpu, count))?;
        meter.step("calls", || kernel::calls(cpu, count))?;
        let (clock, call) = (meter.median("clock"), meter.median("system call"));
        if let Some((cpu, sibling)) = self.siblings() {
            meter.step("siblings", || Ok(vec![core::smt_share(cpu, sibling, count)?]))?;
        }
        for (class, pairs) in &self.pairs {
            let each = count.div_ceil(pairs.len());
            meter.step("lines", || {
                let mut all = lines::bounces(self.topology, *class, pairs, each)?;
                all.push(lines::many(*class, pairs, each)?);
                Ok(all)
            })?;
        }
        for crowd in places::crowds(self.cores.len()) {
            let cpus = &self.cores[..crowd];
            let windows = count.div_ceil(4);
            let measure = |operation| lines::contended(operation, cpus, windows);
            meter.step("contended lines", || {
                Ok(vec![measure(Operation::FetchAdd)?, measure(Operation::CompareExchange)?])
            })?;
        }
        self.memory(meter)?;
        meter.step("first touches", || Ok(vec![memory::page_fault(cpu, count)?]))?;
        for (class, pairs) in &self.pairs {
            let (a, b) = pairs[0];
            let wake_ups = self.size.wake_ups;
            meter.step("wake-ups", || kernel::wakes(class.cost(), [a, b], clock, wake_ups))?;
        }
        let few = self.size.wake_ups / 10;
        meter.crowded("wake-ups", || Ok(vec![kernel::wake_here(cpu, clock, few)?]))?;
        meter.crowded("switches", || Ok(vec![kernel::context_switch(cpu, call, count)?]))?;
        if let Some([waker, a, b]) = self.three() {
            let wake_ups = self.size.wake_ups;
            meter.step("moves", || Ok(vec![kernel::migration(waker, [a, b], clock, wake_ups)?]))?;
        }
        if let Some((_, pairs)) = self.pairs.first() {
            let (a, b) = pairs[0];
            meter.step("moves", || Ok(vec![kernel::moves([a, b], count)?]))?;
        }
        // A new thread waits for a CPU until its creator has slept or it is put elsewhere.
        meter.crowded("threads", || Ok(vec![kernel::spawn(cpu, count)?]))?;
        let few = count.div_ceil(10);
        meter.step("the machine", || Ok(vec![kernel::read_machine(cpu, few)?]))
    }

    /// Bytes of a range that fits into no cache.
    fn range(&self) -> usize {
        let last = costs::cache_sizes(self.topology).1.unwrap_or(1 << 25) as usize;
        (4 * last).clamp(1 << 26, self.size.most_bytes)
    }

    /// The memories whose latency is measured: the name, and the node if the machine has several.
    fn memories(&self) -> Vec<(String, Option<usize>)> {
        let topology = self.topology;
        let nodes = topology.nodes();
        let own = topology.node_index(self.cpu);
        let id = |at: usize| Some(nodes[at].id).filter(|_| nodes.len() > 1);
        let mut all = vec![("memory latency".to_owned(), own.and_then(id))];
        let Some(own) = own else { return all };
        for class in [Class::SamePackage, Class::OtherPackage] {
            let is_class = |at: &usize| {
                let cpu = nodes[*at].cpus.first();
                cpu.is_some_and(|cpu| Class::of(topology, self.cpu, cpu) == class)
            };
            let others = (0..nodes.len()).filter(|at| *at != own).filter(is_class);
            if let Some(nearest) = others.min_by_key(|at| topology.distance(own, *at)) {
                all.push((format!("memory latency {}", class.cost()), id(nearest)));
            }
        }
        all
    }

    /// CPUs that read together: the name, the CPUs, and the node of the memory if it is another.
    fn crowds_of_memory(&self) -> Vec<(&'static str, Vec<usize>, Option<usize>)> {
        let topology = self.topology;
        let of = |cpus: &CpuSet| -> Vec<usize> {
            self.cores.iter().copied().filter(|cpu| cpus.contains(*cpu)).collect()
        };
        let mut all = Vec::new();
        if let Some(llc) = topology.llc_index(self.cpu) {
            all.push(("llc bandwidth", of(&topology.llcs()[llc].cpus), None));
        }
        if let Some(node) = topology.node_index(self.cpu) {
            let cpus = of(&topology.nodes()[node].cpus);
            let others = (0..topology.nodes().len()).filter(|other| *other != node);
            let other = others
                .filter(|at| !topology.nodes()[*at].cpus.is_empty())
                .min_by_key(|at| topology.distance(node, *at));
            all.push(("node bandwidth", cpus.clone(), None));
            if let Some(other) = other {
                all.push(("link bandwidth", cpus, Some(topology.nodes()[other].id)));
            }
        }
        all.retain(|(_, cpus, _)| !cpus.is_empty());
        all
    }

    fn memory(&self, meter: &mut Meter<'_>) -> Result<(), Error> {
        let (count, cpu, range) = (self.size.samples, self.cpu, self.range());
        for (name, node) in self.memories() {
            meter.step(&name, || Ok(vec![memory::latency(&name, cpu, node, range, count)?]))?;
        }
        let (l2, llc) = costs::cache_sizes(self.topology);
        let (l2, llc) = (l2.unwrap_or(1 << 20) as usize / 2, llc.unwrap_or(1 << 25) as usize / 4);
        let few = count.div_ceil(10).max(5);
        let streams =
            [("l2 stream", l2, count), ("l3 stream", llc, count), ("memory stream", range, few)];
        for (name, bytes, count) in streams {
            meter.step(name, || Ok(vec![memory::stream(name, cpu, bytes, count)?]))?;
        }
        for (name, cpus, node) in self.crowds_of_memory() {
            // All ranges together fit into no cache, and into the memory.
            let bytes = (range / cpus.len()).max(1 << 25);
            meter.step(name, || Ok(vec![memory::together(name, &cpus, node, bytes, few)?]))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
