//! What an item computes, calibrated, and how many threads the process has.

use crate::Error;
use nearq_platform::{Linux, Threads as _};
use nearq_report::Summary;
use nearq_topology::CpuSet;
use std::fs;
use std::hint::black_box;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

// The computing of an item: a fixed amount of work, measured once in CPU time.
//
// If an item spun until the clock had advanced by 50 us, waiting for a CPU would count as work: two items on one CPU would be done in the
// time of one. So an item does a fixed number of rounds of a loop, each step of which needs the result of the step before.

/// How long one measured stretch takes.
const STRETCH: Duration = Duration::from_millis(2);
/// How many stretches each thread measures.
const STRETCHES: usize = 25;
/// Rounds of the first guess.
const FIRST: u64 = 10_000;

/// Does that many rounds.
#[inline(never)]
pub(crate) fn compute(rounds: u64) {
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..rounds {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// CPU time of that many rounds on the calling thread.
fn cpu_time_of(rounds: u64) -> Result<Duration, Error> {
    let clock = || {
        Linux::cpu_time(Linux::current_thread())
            .map_err(|refused| Error::run(format!("a thread's CPU time: {refused}")))
    };
    let start = clock()?;
    compute(rounds);
    Ok(clock()?.saturating_sub(start))
}

/// Nanoseconds of CPU time that a round takes while all of `cpus` are measured: the median of many stretches, and their spread.
///
/// All CPUs are measured at once, because CPUs that share a core or a clock are slower together than alone.
pub(crate) fn nanoseconds_per_round(cpus: &CpuSet) -> Result<Summary, Error> {
    let measure = || -> Result<Vec<f64>, Error> {
        let mut rounds = FIRST;
        loop {
            let taken = cpu_time_of(rounds)?;
            if taken >= STRETCH / 2 {
                let each = taken.as_nanos() as f64 / rounds as f64;
                rounds = (STRETCH.as_nanos() as f64 / each) as u64;
                break;
            }
            rounds *= 2;
        }
        let each = |_| Ok(cpu_time_of(rounds)?.as_nanos() as f64 / rounds as f64);
        (0..STRETCHES).map(each).collect()
    };
    let all: Result<Vec<Vec<f64>>, Error> = thread::scope(|scope| {
        let threads: Vec<_> = cpus.iter().map(|_| scope.spawn(measure)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| Error::run("the calibration panicked"))?)
            .collect()
    });
    Summary::of(&all?.concat()).ok_or_else(|| Error::run("no CPU to calibrate on"))
}

/// The rounds that take `time`.
pub(crate) fn rounds_for(time: Duration, nanoseconds_per_round: f64) -> u64 {
    ((time.as_nanos() as f64 / nanoseconds_per_round).round() as u64).max(2)
}

// How many threads the process has at most while something runs, counted every few milliseconds.
//
// The folder of a process's threads has a link for each of them (and two of its own), so one `stat` counts them: a few
// microseconds with the wake-up, a thousandth of one CPU.

/// The pause between two counts.
const PAUSE: Duration = Duration::from_millis(3);

/// The number of threads of this process now.
pub(super) fn now() -> u64 {
    // Without /proc nothing is counted.
    fs::metadata("/proc/self/task").map_or(0, |data| data.nlink().saturating_sub(2))
}

/// The thread that counts.
#[derive(Debug)]
pub struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    most: AtomicU64,
    stop: AtomicBool,
}

impl Sampler {
    /// Begins to count.
    pub fn start() -> Result<Self, Error> {
        let shared = Arc::new(Shared::default());
        let thread_shared = Arc::clone(&shared);
        let body = move || {
            while !thread_shared.stop.load(Ordering::Relaxed) {
                thread_shared.most.fetch_max(now(), Ordering::Relaxed);
                thread::sleep(PAUSE);
            }
        };
        let thread = thread::Builder::new()
            .name("sampler".into())
            .spawn(body)
            .map_err(|error| Error::run(format!("no thread to count threads: {error}")))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The most threads so far, this one included.
    pub fn most(&self) -> u64 {
        self.shared.most.fetch_max(now(), Ordering::Relaxed);
        self.shared.most.load(Ordering::Relaxed)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
#[path = "tests/work.rs"]
mod work_tests;

#[cfg(test)]
#[path = "tests/threads.rs"]
mod threads_tests;
