//! How one quantity is measured: in samples, each of which is the mean of a batch, on a thread that is bound to a CPU.
//!
//! A batch repeats the operation often enough to last [`BATCH`], so that reading the clock does not count. The quartiles of the samples are
//! the result: a few samples during which the thread lost its CPU do not change them. Such samples are counted, because many of them do.

use crate::Error;
use nearq_platform::{Linux, MemoryPolicy, Placement as _, Threads as _};
use nearq_report::quantile;
use nearq_topology::CpuSet;
use std::time::{Duration, Instant};

/// How long a batch lasts.
const BATCH: Duration = Duration::from_micros(200);
/// The most repetitions of a batch.
const MOST: u64 = 1 << 24;

/// The samples of one quantity.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Samples {
    /// The quantity.
    pub(crate) name: String,
    /// What it is counted in.
    pub(crate) unit: &'static str,
    /// One number for each batch.
    pub(crate) values: Vec<f64>,
    /// How often the thread lost its CPU during a batch.
    pub(crate) preempted: usize,
}

impl Samples {
    pub(crate) fn new(name: impl Into<String>, unit: &'static str) -> Self {
        Self { name: name.into(), unit, ..Self::default() }
    }

    pub(crate) fn add(&mut self, value: f64, preempted: bool) {
        self.values.push(value);
        self.preempted += usize::from(preempted);
    }

    /// Adds the samples of the same quantity.
    pub(crate) fn join(&mut self, other: &Self) {
        self.values.extend_from_slice(&other.values);
        self.preempted += other.preempted;
    }

    /// The first quartile, the median and the third quartile. There must be a sample.
    pub(crate) fn quartiles(&self) -> [f64; 3] {
        [0.25, 0.5, 0.75].map(|share| quantile(&self.values, share))
    }

    pub(crate) fn median(&self) -> f64 {
        quantile(&self.values, 0.5)
    }
}

/// Counts how often the calling thread lost its CPU, and how often it gave it up by a yield.
pub(crate) fn switches_of_thread() -> i64 {
    // SAFETY: rusage is made of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes into a live rusage; the calling thread exists.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nivcsw
}

/// Binds the calling thread to a CPU.
pub(crate) fn bind(cpu: usize) -> Result<(), Error> {
    Linux::set_affinity(Linux::current_thread(), &CpuSet::single(cpu))
        .map_err(|refused| Error::run(format!("CPU {cpu}: {refused}")))
}

/// Runs `body` on a thread that is bound to `cpu`, and returns its result.
pub(crate) fn on<R: Send>(
    cpu: usize,
    body: impl FnOnce() -> Result<R, Error> + Send,
) -> Result<R, Error> {
    std::thread::scope(|scope| {
        let bound = move || {
            bind(cpu)?;
            body()
        };
        let thread = std::thread::Builder::new().name(format!("calibrate/{cpu}"));
        let thread = thread.spawn_scoped(scope, bound).map_err(no_thread)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

pub(crate) fn no_thread(error: std::io::Error) -> Error {
    Error::run(format!("no thread to measure with: {error}; raise the limit (ulimit -u, pids.max)"))
}

/// Measures an operation on the calling thread: `repeat` does it that many times. Nanoseconds for each.
pub(crate) fn batches(name: &str, count: usize, mut repeat: impl FnMut(u64)) -> Samples {
    let mut timed = |times: u64| {
        let before = switches_of_thread();
        let start = Instant::now();
        repeat(times);
        (start.elapsed(), switches_of_thread() != before)
    };
    let mut times = 1;
    while times < MOST && timed(times).0 < BATCH {
        times *= 2;
    }
    let mut samples = Samples::new(name, "ns");
    for _ in 0..count {
        let (taken, preempted) = timed(times);
        samples.add(taken.as_nanos() as f64 / times as f64, preempted);
    }
    samples
}

/// As [`batches`], on a thread that is bound to `cpu`.
pub(crate) fn batches_on(
    cpu: usize,
    name: &str,
    count: usize,
    repeat: impl FnMut(u64) + Send,
) -> Result<Samples, Error> {
    on(cpu, || Ok(batches(name, count, repeat)))
}

/// Memory of its own pages, on a node if one is named. It is given back at the end.
pub(crate) struct Pages {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the memory belongs to the value, and no thread has a claim on it.
unsafe impl Send for Pages {}
// SAFETY: shared access gives pointers only; those who use them say why they may.
unsafe impl Sync for Pages {}

impl Pages {
    /// That many bytes, not touched yet, of pages of the usual size or, if `huge`, of large ones if the kernel has some.
    pub(crate) fn new(bytes: usize, node: Option<usize>, huge: bool) -> Result<Self, Error> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of the program.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::run(format!(
                "{} MiB of memory: {}; free some, or raise the limit (ulimit -v)",
                bytes >> 20,
                std::io::Error::last_os_error()
            )));
        }
        let pages = Self { start: start.cast(), bytes };
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: advice about a mapping that was made just now. A refusal changes nothing that counts.
        unsafe { libc::madvise(start, bytes, advice) };
        if let Some(node) = node {
            // SAFETY: the mapping is alive, zeroed, and nobody else has it.
            let range = unsafe { std::slice::from_raw_parts(pages.start, bytes) };
            <Linux as nearq_platform::LockPlatform>::bind_memory(
                range,
                &MemoryPolicy::Bind(vec![node]),
                false,
            )
            .map_err(|refused| Error::run(format!("memory of node {node}: {refused}")))?;
        }
        Ok(pages)
    }

    /// As words, all zero at first.
    pub(crate) fn words(&mut self) -> &mut [u64] {
        // SAFETY: the mapping is aligned to pages, zeroed, alive as long as `self`, and borrowed with it.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.bytes / 8) }
    }

    /// The first word, as an atomic.
    pub(crate) fn first(&self) -> &std::sync::atomic::AtomicU64 {
        // SAFETY: aligned, zeroed and alive as long as `self`; all access to it while it is shared is through this function.
        unsafe { std::sync::atomic::AtomicU64::from_ptr(self.start.cast()) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference outlives the value.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_the_numbers_in_proportion() {
        let samples = Samples { values: vec![4.0, 1.0, 3.0, 2.0, 10.0], ..Samples::new("", "ns") };
        assert_eq!(samples.quartiles(), [2.0, 3.0, 4.0]);
        assert_eq!(quantile(&[1.0, 2.0], 0.25), 1.25);
    }

    #[test]
    fn a_batch_gives_the_time_of_one_operation() {
        let sleep = |times| std::thread::sleep(Duration::from_micros(300) * times as u32);
        let median = batches("sleep", 9, sleep).median();
        assert!((300_000.0..30_000_000.0).contains(&median), "{median}");
    }

    #[test]
    fn pages_are_zeroed_and_bound_to_a_node() {
        let mut pages = Pages::new(1 << 16, None, false).unwrap();
        assert!(pages.words().iter().all(|word| *word == 0));
        let refused = Pages::new(1 << 16, Some(1000), false).err().unwrap().to_string();
        assert!(refused.contains("node 1000"), "{refused}");
    }
}
