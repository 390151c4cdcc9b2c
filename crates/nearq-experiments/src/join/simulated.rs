//! The scenario of simulated machines: a program that gains if its parts stay within a cache.
//!
//! It is a recursive repeated map, as in H. V. Simhadri et al., "Experimental Analysis of Space-Bounded Schedulers", SPAA 2014: three times
//! over, it reads one array and writes another, each time in parallel; then it divides both arrays into halves and does the same with each
//! half, down to pieces. The arrays together are as large as all last-level caches, so each cache has room for its share of them. A part
//! that fits into a cache is read many times: from that cache if the CPUs under it do the part, otherwise from other caches and memory.
//!
//! The work is declared: the reads and the writes, whose cost the simulator determines, and a cycle for eight bytes. Each fork notes its
//! thread and its CPU, so that it is known which closures were stolen, and whether across caches.

use super::program::Size;
use super::stealing::Stealing;
use crate::harness::{failed, simulate};
use crate::{DeclaredMemory, Error, Machine};
use nearq::{Runtime, Workqueue};
use nearq_platform::{LockPlatform as _, Threads};
use nearq_sim::Sim;
use nearq_topology::AffinityScope;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The name of the scenario.
pub(super) const SCENARIO: &str = "cache-sized";
/// Our row with the scope `cache`.
pub(crate) const CACHE: &str = "nearq, cache";
/// Our row with the scope `system`.
pub(super) const SYSTEM: &str = "nearq, system";
/// The pool that steals at random.
pub(super) const RANDOM: &str = "random stealing";

/// The rows for a machine, in their order: with one last-level cache both scopes are the same.
pub(super) fn rows(machine: &Machine) -> Vec<&'static str> {
    let several = machine.topology().llcs().len() > 1;
    [CACHE, SYSTEM, RANDOM].into_iter().filter(|row| several || *row != SYSTEM).collect()
}

/// Bytes of a piece, half of them in each array: a fraction of a private cache. On large machines pieces are larger.
const PIECE: usize = 128 << 10;
/// Most pieces, and most of a quick run.
const MOST_PIECES: [usize; 2] = [8192, 1024];
/// Pieces of a test.
const FEW_PIECES: usize = 16;
/// How often a part is mapped before it is divided.
const REPEATS: u32 = 3;
/// Bytes that are computed in a cycle.
const BYTES_PER_CYCLE: u64 = 8;
/// Virtual time that a run may take: much longer than any does.
const LIMIT: Duration = Duration::from_mins(10);

/// What is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Declared {
    /// Pieces of both arrays.
    pub(super) pieces: usize,
    /// Bytes of a piece.
    pub(super) piece_bytes: usize,
    /// How often a part is mapped before it is divided.
    pub(super) repeats: u32,
    /// What computing a piece takes, in nanoseconds.
    pub(super) compute_ns: u64,
}

impl Declared {
    /// The work for a machine: its arrays are as large as its last-level caches.
    pub(super) fn on(machine: &nearq_sim::Machine, size: Size) -> Self {
        let topology = machine.topology();
        let size_of = |llc: &nearq_topology::Llc| {
            let cache = llc.cache_index.and_then(|cache| topology.caches()[cache].size);
            cache.unwrap_or(machine.costs().llc_size)
        };
        let bytes = topology.llcs().iter().map(size_of).sum::<u64>() as usize;
        let piece_bytes = PIECE.max(bytes / MOST_PIECES[usize::from(size != Size::Usual)]);
        let pieces = if size == Size::Tiny { FEW_PIECES } else { (bytes / piece_bytes).max(1) };
        let cycles = piece_bytes as u64 / 2 / BYTES_PER_CYCLE;
        let compute_ns = cycles * 1000 / machine.clock_mhz().max(1);
        Self { pieces, piece_bytes, repeats: REPEATS, compute_ns }
    }
}

/// What a run has shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) elapsed: Duration,
    /// Closures that another thread ran.
    pub(super) stolen: u64,
    /// Those of them that it ran under the same last-level cache.
    pub(super) within: u64,
}

/// Does the work in a pool, on a fresh machine.
pub(super) fn run(
    machine: &Machine,
    row: &'static str,
    declared: Declared,
    seed: u64,
) -> Result<Sample, Error> {
    Ok(run_and_hash(machine, row, declared, seed)?.0)
}

/// The times of the rows on a machine, for code that varies other parameters, and the hash of what happened.
pub(crate) fn times(
    machine: &Machine,
    quick: bool,
    seed: u64,
) -> Result<Vec<(&'static str, Duration, u64)>, Error> {
    let model = machine.model().ok_or_else(|| {
        Error::input(format!(
            "join compares scopes on simulated machines only, not on {}",
            machine.name()
        ))
    })?;
    let declared = Declared::on(model, if quick { Size::Quick } else { Size::Usual });
    let time = |row| {
        let (sample, hash) = run_and_hash(machine, row, declared, seed)?;
        Ok((row, sample.elapsed, hash))
    };
    rows(machine).into_iter().map(time).collect()
}

fn run_and_hash(
    machine: &Machine,
    row: &'static str,
    declared: Declared,
    seed: u64,
) -> Result<(Sample, u64), Error> {
    let topology = machine.topology();
    let last = topology.possible().last().map_or(0, |last| last + 1);
    let llcs = (0..last).map(|cpu| topology.llc_index(cpu)).collect();
    let cpus = machine.parallelism();
    let ended = simulate(machine, seed, LIMIT, move || {
        let program = Arc::new(Program::new(declared, llcs));
        match row {
            CACHE => queue(&program, AffinityScope::Cache)?,
            SYSTEM => queue(&program, AffinityScope::System)?,
            _ => Stealing::run(&program, cpus)?,
        }
        program.sample()
    })?;
    Ok((ended.result?, ended.trace_hash))
}

/// Does the work in a queue of that scope.
fn queue(program: &Program, scope: AffinityScope) -> Result<(), Error> {
    let runtime = Runtime::<Sim>::builder_in().build().map_err(failed)?;
    let queue = runtime.workqueue_builder("join").affinity_scope(scope).build().map_err(failed)?;
    queue.install(|| program.all(&queue));
    Ok(())
}

/// A pool that runs two tasks, possibly at the same time.
pub(super) trait Forks {
    /// Runs both. The second is [`Program::second`], with where the fork was made.
    fn both(&self, program: &Program, first: Task, second: Task, at: Origin);
}

impl Forks for Workqueue<Sim> {
    fn both(&self, program: &Program, first: Task, second: Task, at: Origin) {
        self.join(|| program.run(first, self), || program.second(second, at, self));
    }
}

/// Where a fork was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    thread: <Sim as Threads>::Thread,
    cpu: usize,
}

/// What is done with the pieces of a part.
#[derive(Clone, Copy, Debug)]
enum What {
    /// All pages are touched, so that the system has provided them.
    Touch,
    /// One array is read, and the other written.
    Map,
    /// This part is mapped several times; then each half of it.
    Repeat,
}

/// A part of the work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    what: What,
    from: usize,
    to: usize,
}

impl Task {
    /// The halves of a part of several pieces.
    fn halves(self) -> (Self, Self) {
        let middle = self.from.midpoint(self.to);
        (Self { to: middle, ..self }, Self { from: middle, ..self })
    }
}

/// The work, and what was counted.
pub(super) struct Program {
    declared: Declared,
    /// The last-level cache of each CPU.
    llcs: Vec<Option<usize>>,
    /// Pieces of both arrays. Only one task has a piece at any time.
    pieces: Vec<Mutex<[DeclaredMemory; 2]>>,
    stolen: AtomicU64,
    within: AtomicU64,
    /// Pieces that were mapped.
    mapped: AtomicU64,
    elapsed: Mutex<Duration>,
}

impl Program {
    fn new(declared: Declared, llcs: Vec<Option<usize>>) -> Self {
        let array = || DeclaredMemory::new(declared.piece_bytes / 2);
        let pieces = (0..declared.pieces).map(|_| Mutex::new([array(), array()])).collect();
        Self {
            declared,
            llcs,
            pieces,
            stolen: AtomicU64::new(0),
            within: AtomicU64::new(0),
            mapped: AtomicU64::new(0),
            elapsed: Mutex::default(),
        }
    }

    /// Does all the work. Runs in the pool.
    pub(super) fn all(&self, forks: &impl Forks) {
        let task = |what| Task { what, from: 0, to: self.declared.pieces };
        self.run(task(What::Touch), forks);
        self.stolen.store(0, Ordering::Relaxed);
        self.within.store(0, Ordering::Relaxed);
        let began = Sim::now();
        self.run(task(What::Repeat), forks);
        *self.elapsed.lock().expect("no thread panics while holding it") = Sim::now() - began;
    }

    /// Does a task.
    pub(super) fn run(&self, task: Task, forks: &impl Forks) {
        if let What::Repeat = task.what {
            for _ in 0..self.declared.repeats {
                self.run(Task { what: What::Map, ..task }, forks);
            }
            if task.to - task.from == 1 {
                return;
            }
        }
        if task.to - task.from == 1 {
            return self.piece(task);
        }
        let (first, second) = task.halves();
        let at = Origin { thread: Sim::current_thread(), cpu: Sim::current_cpu() };
        forks.both(self, first, second, at);
    }

    /// Does the second task of a fork that was made there.
    pub(super) fn second(&self, task: Task, at: Origin, forks: &impl Forks) {
        if Sim::current_thread() != at.thread {
            self.stolen.fetch_add(1, Ordering::Relaxed);
            let same = self.llcs[Sim::current_cpu()] == self.llcs[at.cpu];
            self.within.fetch_add(u64::from(same), Ordering::Relaxed);
        }
        self.run(task, forks);
    }

    fn piece(&self, task: Task) {
        let mut piece = self.pieces[task.from].try_lock().expect("one task has it");
        let [source, target] = &mut *piece;
        if let What::Touch = task.what {
            Sim::write(source);
        } else {
            Sim::read(source);
            Sim::charge(Duration::from_nanos(self.declared.compute_ns));
            self.mapped.fetch_add(1, Ordering::Relaxed);
        }
        Sim::write(target);
    }

    /// What was counted, or an error if not all the work was done.
    fn sample(&self) -> Result<Sample, Error> {
        let (done, expected) = (self.mapped.load(Ordering::Relaxed), self.declared.maps());
        if done != expected {
            return Err(Error::run(format!("{done} pieces were mapped, not {expected}")));
        }
        Ok(Sample {
            elapsed: *self.elapsed.lock().expect("no thread panics while holding it"),
            stolen: self.stolen.load(Ordering::Relaxed),
            within: self.within.load(Ordering::Relaxed),
        })
    }
}

impl Declared {
    /// How many pieces are mapped in all.
    fn maps(&self) -> u64 {
        fn below(pieces: usize) -> u64 {
            let deeper =
                if pieces > 1 { below(pieces / 2) + below(pieces - pieces / 2) } else { 0 };
            pieces as u64 + deeper
        }
        u64::from(self.repeats) * below(self.pieces)
    }
}
