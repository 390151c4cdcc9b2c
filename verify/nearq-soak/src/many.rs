//! Runs many seeds on all cores, and sums up.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::verdict::{SeedOptions, Verdict, run_seed};
use nearq_report::Progress;

/// How many seeds the quick tests run. Most planted variants fail within a few; one takes more than these
/// (`tests/soak_finds.rs`).
pub const QUICK_SEEDS: u64 = 500;

/// How many failing seeds are kept; after that many, no more seeds are run.
const MOST_FAILURES: usize = 10;

/// Which seeds are run, and how.
#[derive(Clone, Debug)]
pub struct ManyOptions {
    /// How many seeds.
    pub seeds: u64,
    /// The first of them.
    pub from: u64,
    /// Whether the run ends with the first seed that fails.
    pub until_failure: bool,
    /// The variant that the runtime must be, if variants are planted (`cargo xtask variants`).
    pub variant: Option<String>,
}

/// The result of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Seeds that were run.
    pub seeds: u64,
    /// Items and closures that ran.
    pub executions: u64,
    /// Virtual time that passed, over all seeds.
    pub virtual_time: Duration,
    /// Real time that passed.
    pub real_time: Duration,
    /// A hash of everything that happened with every seed. The same runtime has the same hash on every machine.
    pub trace_hash: u64,
    /// Faults that happened, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// The seeds that failed, the lowest first; ten at most.
    pub failures: Vec<Verdict>,
}

impl Summary {
    fn add(&mut self, verdict: Verdict) {
        self.seeds += 1;
        self.executions += verdict.executions;
        self.virtual_time += verdict.time;
        // Seeds end in any order.
        self.trace_hash = self.trace_hash.wrapping_add(verdict.trace_hash);
        for (kind, count) in &verdict.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        if !verdict.passed() {
            // The seed reproduces the trace and the program.
            self.failures.push(Verdict { trace: Vec::new(), ..verdict });
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} seeds, {} executions, {:.1} s of virtual time in {:.1} s; what happened has the hash {:016x}",
            self.seeds,
            self.executions,
            self.virtual_time.as_secs_f64(),
            self.real_time.as_secs_f64(),
            self.trace_hash
        )?;
        if !self.faults.is_empty() {
            let kinds: Vec<String> =
                self.faults.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            write!(f, "\nfaults: {}", kinds.join(", "))?;
        }
        match self.failures.len() {
            0 => write!(f, "\nevery promise was kept"),
            count => write!(f, "\n{count} seeds failed"),
        }
    }
}

/// Runs seeds on all cores. Each simulation stays on one real thread; they share nothing.
pub fn run_many(options: &ManyOptions, progress: &Progress) -> Summary {
    let begin = Instant::now();
    let (next, stop) = (AtomicU64::new(options.from), AtomicBool::new(false));
    let end = options.from.saturating_add(options.seeds);
    let summary = Mutex::new(Summary::default());
    let seed_options = SeedOptions { variant: options.variant.clone(), ..SeedOptions::default() };
    progress.begin(usize::try_from(options.seeds).unwrap_or(usize::MAX));
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return;
            }
            let verdict = run_seed(seed, &seed_options);
            let mut summary = summary.lock().expect("nobody panics with it");
            progress.step(format!("seed {seed}, {} executions", summary.executions));
            progress.done();
            summary.add(verdict);
            let enough = if options.until_failure { 1 } else { MOST_FAILURES };
            stop.fetch_or(summary.failures.len() >= enough, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        for _ in 1..thread::available_parallelism().map_or(1, NonZero::get) {
            // If no other thread can be started, this one does all the work.
            let builder = thread::Builder::new().name("soak".into());
            if builder.spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    progress.end();
    let mut summary = summary.into_inner().expect("nobody panics with it");
    summary.failures.sort_by_key(Verdict::seed);
    summary.real_time = begin.elapsed();
    summary
}
