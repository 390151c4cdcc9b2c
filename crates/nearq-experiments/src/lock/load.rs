//! The loads by their names and places, one run of one of them, and what it measured.

use super::contestants::Roster;
use super::{Line, load};
use crate::harness::{Host, on_cpus};
use crate::scopes::mixed;
use crate::{Error, Machine};
use hdrhistogram::Histogram;
use nearq_platform::{Atomic as _, AtomicInt as _, Ordering};
use nearq_topology::{CpuSet, Topology};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

// What is done with the locks, by which threads and where: shapes, sections, writers, and the CPUs that they are pinned to.

/// What a run does with its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Locktorture with a short section.
    Short,
    /// Locktorture with a long section.
    Long,
    /// Adding to and waiting on the ready list of an epoll instance.
    Epoll,
    /// Fxmark's DWOM: every writer overwrites a block of one file.
    Dwom,
    /// Fxmark's MWRM: renames into one directory.
    Mwrm,
    /// Fxmark's MWUM: unlinks in one directory.
    Mwum,
}

impl Load {
    /// Its name, as it appears in the scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Long => "long",
            Self::Epoll => "epoll",
            Self::Dwom => "DWOM",
            Self::Mwrm => "MWRM",
            Self::Mwum => "MWUM",
        }
    }

    /// What it is, for people.
    pub(super) fn about(self) -> &'static str {
        match self {
            Self::Short => {
                "torture, short section: one increment on each of two cache lines that all share"
            }
            Self::Long => {
                "torture, long section: 100 increments on each of two cache lines that all share"
            }
            Self::Epoll => {
                "epoll: even writers put items of theirs on one ready list, odd ones take from it, under one lock"
            }
            Self::Dwom => {
                "DWOM: everybody overwrites a block of its own in one file, under the lock of the inode"
            }
            Self::Mwrm => {
                "MWRM: renames from one's own directory into a shared one and back, under the lock of all renames and those of \
                 both directories; a rename counts as one acquisition, and waits until it has all three"
            }
            Self::Mwum => "MWUM: links and unlinks in one shared directory, under its lock",
        }
    }
}

/// The scenario of a load and a number of writers, as it stands in the JSON.
pub fn scenario(load: Load, writers: usize) -> String {
    format!("{} {writers}", load.name())
}

/// The same for people.
pub(super) fn described(load: Load, writers: usize) -> String {
    format!("{}, {writers} {}", load.name(), if writers == 1 { "writer" } else { "writers" })
}

/// `--shape` and `--section`: which loads.
pub(super) fn loads(
    shape: Option<&str>,
    section: Option<&str>,
    quick: bool,
) -> Result<Vec<Load>, Error> {
    let shape = shape.unwrap_or("torture");
    if let ("epoll" | "shared-file" | "shared-dir", Some(section)) = (shape, section) {
        return Err(Error::input(format!(
            "--section {section:?}: --shape {shape} has no sections; leave it out, or give --shape torture"
        )));
    }
    Ok(match shape {
        "epoll" => vec![Load::Epoll],
        "shared-file" => vec![Load::Dwom],
        "shared-dir" => vec![Load::Mwrm, Load::Mwum],
        "torture" => match section.unwrap_or(if quick { "short" } else { "both" }) {
            "short" => vec![Load::Short],
            "long" => vec![Load::Long],
            "both" => vec![Load::Short, Load::Long],
            other => {
                return Err(Error::input(format!("--section {other:?}: give short, long or both")));
            }
        },
        other => {
            return Err(Error::input(format!(
                "--shape {other:?}: give torture, epoll, shared-file or shared-dir"
            )));
        }
    })
}

/// Which CPUs the writers are pinned to first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuPlacement {
    /// All cores of a last-level cache before those of the next.
    Compact,
    /// A core of each last-level cache in turn; the next cache is on another node.
    Spread,
}

impl CpuPlacement {
    pub(crate) fn named(name: Option<&str>) -> Result<Self, Error> {
        match name {
            None | Some("compact") => Ok(Self::Compact),
            Some("spread") => Ok(Self::Spread),
            Some(other) => Err(Error::input(format!("--place {other:?}: give compact or spread"))),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::Spread => "spread",
        }
    }

    /// The usable CPUs in the order in which writers take them; more writers begin at the front again. SMT siblings come when all
    /// cores have one.
    pub(crate) fn order(self, machine: &Machine) -> Vec<usize> {
        order(
            machine.topology(),
            machine.pods(nearq_topology::AffinityScope::System).remove(0),
            self,
        )
    }
}

fn order(topology: &Topology, usable: nearq_topology::CpuSet, place: CpuPlacement) -> Vec<usize> {
    // A property that is not known of a CPU counts as the same for all CPUs.
    let place_of = |cpu| {
        let (node, cache) = (topology.node_index(cpu), topology.llc_index(cpu));
        (node.unwrap_or(0), cache.unwrap_or(0), topology.core_index(cpu).unwrap_or(cpu), cpu)
    };
    let mut places: Vec<_> = usable.iter().map(place_of).collect();
    places.sort_unstable();
    let rank = |of: &mut BTreeMap<usize, usize>, key| {
        let next = of.entry(key).or_insert(0);
        *next += 1;
        *next - 1
    };
    let mut siblings = BTreeMap::new();
    let mut caches: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (node, cache, ..) in &places {
        let of_node = caches.entry(*node).or_default();
        if !of_node.contains(cache) {
            of_node.push(*cache);
        }
    }
    let (mut by_core, mut in_cache) = (Vec::new(), BTreeMap::new());
    for (node, cache, core, cpu) in places {
        by_core.push((rank(&mut siblings, core), node, cache, cpu));
    }
    by_core.sort_unstable();
    if place == CpuPlacement::Compact {
        return by_core.into_iter().map(|(.., cpu)| cpu).collect();
    }
    let mut spread: Vec<_> = by_core
        .into_iter()
        .map(|(sibling, node, cache, cpu)| {
            let nth = caches[&node].iter().position(|known| *known == cache).unwrap_or(0);
            (sibling, rank(&mut in_cache, cache), nth, node, cpu)
        })
        .collect();
    spread.sort_unstable();
    spread.into_iter().map(|(.., cpu)| cpu).collect()
}

/// One run of one lock.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is done.
    pub load: Load,
    /// Threads that do it.
    pub writers: usize,
    /// The CPUs that they are pinned to, in this order, round and round.
    pub cpus: Vec<usize>,
    /// The writers, for locks that have a record of each.
    pub roster: Arc<Roster>,
    /// Rounds of computing between two turns of a thread, without a lock.
    pub outside: u64,
    /// How long it goes on.
    pub duration: Duration,
    /// Which order the writers start in.
    pub seed: u64,
}

#[cfg(test)]
impl Plan {
    pub(super) fn for_test(writers: usize) -> Self {
        let duration = Duration::from_millis(5);
        let roster = Roster::new(writers, &[], super::contestants::DEPTH);
        Self { load: Load::Short, writers, cpus: vec![0], roster, outside: 0, duration, seed: 1 }
    }
}

// One run: threads pinned to their CPUs start together, take their locks again and again for a fixed time, and end.
//
// A lock that keeps an order hands itself on in the order in which its first waiters came, for as long as all of them come back in time. So
// threads start in an order that the seed chooses: in the order of the CPUs, each neighbour would hand over to the next, and no run would be
// like another program's.
//
// # Protocol
// Each thread announces itself (`there`), and waits until the run begins (`phase` from `WAITING` to `RUNNING`). The main thread sleeps for
// the run's duration, ends it (`OVER`), and waits for the threads to end. A thread checks the phase after each turn: turns that end while
// the phase is `RUNNING` are counted; the last turn of each thread is not. The measured time is between the main thread's two changes of
// the phase, however late it woke up.
//
// Each thread has its own tally until it has ended.

/// What threads do with locks.
pub(super) trait Shape<P: Host>: Send + Sync + 'static {
    /// The state at the start, for the writers of a plan.
    fn new(plan: &Plan) -> Self;

    /// One turn of a writer, its `turn`-th from 0 on; calls `acquired` once it has all the locks of it.
    fn step(&self, writer: usize, turn: u64, acquired: impl FnOnce());

    /// Checks that no change was lost, after that many turns of each writer. An error says what is missing: then two threads were inside at
    /// once.
    fn verify(&self, entered: &[u64]) -> Result<(), String>;
}

const WAITING: u32 = 0;
const RUNNING: u32 = 1;
const OVER: u32 = 2;

/// Where a run of several threads is.
pub(crate) struct Phase<P: Host> {
    there: Line<P::AtomicU32>,
    phase: Line<P::AtomicU32>,
}

impl<P: Host> Phase<P> {
    fn new() -> Self {
        Self { there: Line(P::AtomicU32::new(0)), phase: Line(P::AtomicU32::new(WAITING)) }
    }

    /// The caller announces itself, and waits until the run begins.
    pub(crate) fn await_begin(&self) {
        // Relaxed here and below: what threads share they share under the locks that are measured.
        self.there.0.fetch_add(1, Ordering::Relaxed);
        P::wake(&raw const self.there.0, 1);
        while self.phase.0.load(Ordering::Relaxed) == WAITING {
            P::wait(&self.phase.0, WAITING, None);
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase.0.load(Ordering::Relaxed) == OVER
    }

    /// Waits until that many threads have announced themselves.
    fn await_all(&self, threads: u32) {
        loop {
            let there = self.there.0.load(Ordering::Relaxed);
            if there == threads {
                return;
            }
            P::wait(&self.there.0, there, None);
        }
    }

    fn enter(&self, phase: u32) {
        self.phase.0.store(phase, Ordering::Relaxed);
        P::wake(&raw const self.phase.0, usize::MAX);
    }
}

/// Threads that run together: how many, where, for how long, and what they are called, one by one and as an option.
pub(crate) struct Together<'a> {
    pub(crate) threads: usize,
    pub(crate) cpus: &'a [usize],
    pub(crate) duration: Duration,
    pub(crate) seed: u64,
    pub(crate) name: &'static str,
    pub(crate) option: &'static str,
}

/// The numbers below `count`, in an order that the seed chooses.
pub(super) fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|number| mixed(mixed(seed) ^ *number as u64));
    order
}

/// Runs a body on each of the threads, which has their phase and its number. Returns what each returned, and how long the run was.
pub(crate) fn together<P: Host, T: Send + 'static>(
    run: &Together<'_>,
    body: impl Fn(&Phase<P>, usize) -> T + Send + Sync + 'static,
) -> Result<(Vec<T>, Duration), Error> {
    let count = run.threads;
    let results: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let shared = Arc::new((Phase::<P>::new(), results, body));
    let mut threads = Vec::with_capacity(count);
    for number in shuffled(count, run.seed) {
        let of_thread = Arc::clone(&shared);
        let spec = on_cpus(
            format!("{}/{number}", run.name),
            CpuSet::single(run.cpus[number % run.cpus.len()]),
        );
        let main = move || {
            let (phase, results, body) = &*of_thread;
            let result = body(phase, number);
            *results[number].lock().expect("no thread panics while holding it") = Some(result);
        };
        match P::spawn(spec, main) {
            Ok(thread) => threads.push(thread),
            Err(refused) => {
                shared.0.enter(OVER);
                let (option, started) = (run.option, threads.len());
                threads.into_iter().for_each(P::join);
                return Err(Error::input(format!(
                    "{option} {count}: only {started} threads could be started: {refused}; give at most {started}, or raise the limit",
                )));
            }
        }
    }
    shared.0.await_all(count as u32);
    let start = P::now();
    shared.0.enter(RUNNING);
    P::sleep(run.duration);
    shared.0.enter(OVER);
    let elapsed: Duration = P::now() - start;
    threads.into_iter().for_each(P::join);
    let results: Option<Vec<T>> =
        shared.1.iter().map(|result| result.lock().ok()?.take()).collect();
    let results =
        results.ok_or_else(|| Error::run("a thread ended without reporting its counts"))?;
    Ok((results, elapsed))
}

/// Takes turns until the run is over.
fn work<P: Host, S: Shape<P>>(phase: &Phase<P>, shape: &S, writer: usize, outside: u64) -> Tally {
    let mut tally = Tally { entered: 0, counted: 0, waits: Waits::new::<P>() };
    phase.await_begin();
    loop {
        let before = P::ticks();
        let mut after = before;
        shape.step(writer, tally.entered, || after = P::ticks());
        tally.entered += 1;
        tally.waits.note::<P>(after.saturating_sub(before));
        if outside > 0 {
            P::compute(outside);
        }
        if phase.is_over() {
            return tally;
        }
        tally.counted = tally.entered;
    }
}

/// Runs the plan once with fresh locks.
pub(super) fn measure<P: Host, S: Shape<P>>(plan: &Plan) -> Result<Sample, Error> {
    let shape = Arc::new(S::new(plan));
    let run = Together {
        threads: plan.writers,
        cpus: &plan.cpus,
        duration: plan.duration,
        seed: plan.seed,
        name: "writer",
        option: "--writers",
    };
    let (of_threads, outside) = (Arc::clone(&shape), plan.outside);
    let (tallies, elapsed) = together::<P, Tally>(&run, move |phase, writer| {
        work(phase, &*of_threads, writer, outside)
    })?;
    let entered: Vec<u64> = tallies.iter().map(|tally| tally.entered).collect();
    shape.verify(&entered).map_err(|wrong| {
        let load = load::described(plan.load, plan.writers);
        Error::run(format!("{load}: the lock failed to exclude other threads: {wrong}"))
    })?;
    Ok(Sample::of::<P>(&tallies, elapsed))
}

// The result of one run of one lock: how often each thread took it, and how long the threads waited.

/// Waits of at least this length are all kept, whatever the sampling.
pub const LONG: Duration = Duration::from_micros(20);
/// The longest wait that has a place of its own in the distribution.
const LONGEST: Duration = Duration::from_hours(1);
/// Significant digits of the distribution.
const DIGITS: u8 = 2;

/// How long threads waited: from before they asked for the lock until they had it.
#[derive(Clone, Debug)]
pub struct Waits {
    nanoseconds: Histogram<u64>,
    longest: u64,
    tick_ns: f64,
    /// [`LONG`], in ticks.
    long: u64,
    seen: u64,
}

impl Waits {
    pub(crate) fn new<P: Host>() -> Self {
        let tick_ns = P::tick_ns();
        let most = LONGEST.as_nanos() as u64;
        Self {
            nanoseconds: Histogram::new_with_bounds(1, most, DIGITS)
                .expect("the bounds are constants"),
            longest: 0,
            tick_ns,
            long: (LONG.as_nanos() as f64 / tick_ns) as u64,
            seen: 0,
        }
    }

    /// Notes a wait: each long one, and one in [`Host::EVERY`] of the others, with that weight.
    #[inline]
    pub(crate) fn note<P: Host>(&mut self, ticks: u64) {
        self.seen += 1;
        if ticks >= self.long {
            self.keep(ticks, 1);
        } else if self.seen.is_multiple_of(P::EVERY) {
            self.keep(ticks, P::EVERY);
        }
    }

    fn keep(&mut self, ticks: u64, weight: u64) {
        let nanoseconds = ((ticks as f64 * self.tick_ns) as u64).max(1);
        self.longest = self.longest.max(nanoseconds);
        self.nanoseconds.saturating_record_n(nanoseconds, weight);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.longest = self.longest.max(other.longest);
        self.seen += other.seen;
        self.nanoseconds.add(&other.nanoseconds).expect("both have the same bounds");
    }

    /// The wait that a share of all did not exceed, in microseconds.
    pub fn quantile_us(&self, share: f64) -> f64 {
        self.nanoseconds.value_at_quantile(share).min(self.longest) as f64 / 1000.0
    }

    /// The longest one, in microseconds.
    pub fn longest_us(&self) -> f64 {
        self.longest as f64 / 1000.0
    }
}

/// What one thread did.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// How often the thread had the lock.
    pub(super) entered: u64,
    /// How many of those turns were over before the run was.
    pub(super) counted: u64,
    pub(super) waits: Waits,
}

/// What all threads did.
#[derive(Clone, Debug)]
pub struct Sample {
    /// How often each thread had the lock within the run.
    pub acquisitions: Vec<u64>,
    /// How long the run lasted.
    pub elapsed: Duration,
    /// The waits of all threads.
    pub waits: Waits,
}

impl Sample {
    pub(super) fn of<P: Host>(tallies: &[Tally], elapsed: Duration) -> Self {
        let mut waits = Waits::new::<P>();
        for tally in tallies {
            waits.add(&tally.waits);
        }
        Self { acquisitions: tallies.iter().map(|tally| tally.counted).collect(), elapsed, waits }
    }

    /// Acquisitions of all threads in a second.
    pub fn per_second(&self) -> f64 {
        self.acquisitions.iter().sum::<u64>() as f64 / self.elapsed.as_secs_f64()
    }

    /// See [`fairness`].
    pub fn fairness(&self) -> Option<f64> {
        fairness(&self.acquisitions)
    }
}

/// How many nanoseconds one reading takes, for the report: the least of several means, because other programs on the machine make
/// it longer and never shorter.
pub(super) fn cost_of_reading<P: Host>() -> f64 {
    const READINGS: u32 = 10_000;
    let mean = |_| {
        let start = P::now();
        for _ in 0..READINGS {
            std::hint::black_box(P::ticks());
        }
        (P::now() - start).as_nanos() as f64 / f64::from(READINGS)
    };
    (0..20).map(mean).fold(f64::INFINITY, f64::min)
}

/// The share of the acquisitions that the busier half of the threads made: 0.5 if all made equally many, 1 if half of them made none. With
/// an odd number, the middle thread counts half. `None` for one thread, and if there was no acquisition.
pub fn fairness(acquisitions: &[u64]) -> Option<f64> {
    let all: u64 = acquisitions.iter().sum();
    if acquisitions.len() < 2 || all == 0 {
        return None;
    }
    let mut sorted = acquisitions.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let half = sorted.len() / 2;
    let busier: u64 = sorted[..half].iter().sum();
    let middle = if sorted.len() % 2 == 1 { sorted[half] as f64 / 2.0 } else { 0.0 };
    Some((busier as f64 + middle) / all as f64)
}

#[cfg(test)]
#[path = "tests/load.rs"]
mod load_tests;

#[cfg(test)]
#[path = "tests/sample.rs"]
mod sample_tests;
