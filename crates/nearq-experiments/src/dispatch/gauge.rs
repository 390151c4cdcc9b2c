//! The data that every item of the `dispatch` experiment touches: the cost must be small, and the same in every pool.
//!
//! An item adds one to a counter of the CPU that runs it, on a cache line that no other CPU writes: about 5 ns, and
//! no line moves between CPUs. The issuer adds the counters up only when it has used up the items that the last sum
//! allowed. Every 64th item is a probe: it also notes the time at which it started. Clocks are read only for
//! probes, so that measuring latency does not cost throughput.

use hdrhistogram::Histogram;
use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};
use std::time::Duration;

/// The number of probes that can be in flight at once: twice as many as a flood keeps in flight.
pub const PROBES: usize = 32;
/// Longest latency that a histogram holds; longer ones count as this long.
const LONGEST: Duration = Duration::from_mins(1);

/// A value alone on two cache lines, because CPUs fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

/// The counters and probes of an experiment. It lives as long as the process, so that closures need not count
/// references to it.
pub struct Gauge<P: Platform> {
    counters: Vec<Padded<P::AtomicU64>>,
    probes: Vec<Padded<P::AtomicU64>>,
}

impl<P: Platform> Gauge<P> {
    /// A gauge for the rest of the process's life, for CPUs with numbers below `cpus`. CPUs with higher numbers share these counters.
    pub fn leak(cpus: usize) -> &'static Self {
        let padded = |count| (0..count).map(|_| Padded(P::AtomicU64::new(0))).collect();
        Box::leak(Box::new(Self { counters: padded(cpus.max(1)), probes: padded(PROBES) }))
    }

    /// What every item does.
    #[inline]
    pub fn done(&self) {
        let counter = P::current_cpu() % self.counters.len();
        // Release: a thread that sees the sum also sees what the items did.
        self.counters[counter].0.fetch_add(1, Ordering::Release);
    }

    /// What a probe does first.
    #[inline]
    pub fn started(&self, probe: usize) {
        self.probes[probe].0.store(Self::now(), Ordering::Release);
    }

    /// Items done so far.
    pub fn completed(&self) -> u64 {
        self.counters.iter().map(|counter| counter.0.load(Ordering::Acquire)).sum()
    }

    /// Nanoseconds since some moment before all others; never zero.
    #[inline]
    pub fn now() -> u64 {
        P::now().as_nanos().max(1)
    }

    /// What reading the clock costs, in nanoseconds; both latencies include it once.
    pub fn clock_ns() -> f64 {
        const READS: u32 = 10_000;
        let start = Self::now();
        let end = (0..READS).fold(start, |_, _| Self::now());
        (end - start) as f64 / f64::from(READS)
    }

    /// When a probe started, once it has.
    fn start_of(&self, probe: usize) -> Option<u64> {
        Some(self.probes[probe].0.load(Ordering::Acquire)).filter(|&time| time != 0)
    }

    fn reset(&self, probe: usize) {
        self.probes[probe].0.store(0, Ordering::Relaxed);
    }
}

/// The issuer's side of the probes: when they were queued, and the latencies found.
pub(super) struct Probes<P: Platform> {
    gauge: &'static Gauge<P>,
    /// When each probe was queued; zero for a probe that is not in flight.
    queued: [u64; PROBES],
    queue: Histogram<u64>,
    start: Histogram<u64>,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Longest.
    pub max: f64,
}

impl<P: Platform> Probes<P> {
    /// A state without probes in flight.
    pub(super) fn new(gauge: &'static Gauge<P>) -> Self {
        let histogram = || {
            Histogram::new_with_max(LONGEST.as_nanos() as u64, 3).expect("the bounds are constants")
        };
        Self { gauge, queued: [0; PROBES], queue: histogram(), start: histogram() }
    }

    /// Queues a probe through `queue`, and notes how long that took. False if the probe is still in flight.
    pub(super) fn send(&mut self, probe: usize, queue: impl FnOnce()) -> bool {
        if !self.collect(probe) {
            return false;
        }
        self.gauge.reset(probe);
        let before = Gauge::<P>::now();
        queue();
        let after = Gauge::<P>::now();
        self.queued[probe] = before;
        self.queue.saturating_record(after - before);
        true
    }

    /// Notes the start of a probe; true if the probe is not, or no longer, in flight.
    pub(super) fn collect(&mut self, probe: usize) -> bool {
        if self.queued[probe] == 0 {
            return true;
        }
        let Some(start) = self.gauge.start_of(probe) else {
            return false;
        };
        self.start.saturating_record(start.saturating_sub(self.queued[probe]));
        self.queued[probe] = 0;
        true
    }

    /// Notes the starts of all probes, none of which is in flight any more. Returns the latencies of the queueing calls, and the latencies
    /// from queueing to start.
    pub(super) fn finish(mut self) -> (Latency, Latency) {
        for probe in 0..PROBES {
            let done = self.collect(probe);
            debug_assert!(done, "probe {probe} is still on its way");
        }
        (Latency::of(&self.queue), Latency::of(&self.start))
    }
}

/// Nanoseconds in microseconds.
fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| us(histogram.value_at_quantile(quantile));
        Self { p50: at(0.5), p90: at(0.9), p95: at(0.95), p99: at(0.99), max: us(histogram.max()) }
    }

    /// The latencies of these durations in nanoseconds; `None` if there are no durations.
    pub(super) fn of_all(mut ns: Vec<u64>) -> Option<Self> {
        ns.sort_unstable();
        let max = us(*ns.last()?);
        let at = |percent: usize| us(ns[(ns.len() * percent / 100).min(ns.len() - 1)]);
        Some(Self { p50: at(50), p90: at(90), p95: at(95), p99: at(99), max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_platform::Linux;
    use std::thread;

    #[test]
    fn every_cpu_counts_on_its_own_cache_line_and_the_sum_is_exact() {
        let gauge = Gauge::<Linux>::leak(4);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..10_000).for_each(|_| gauge.done()));
            }
        });
        assert_eq!(gauge.completed(), 30_000);
        assert_eq!(size_of_val(&gauge.counters[0]), 128);
    }

    #[test]
    fn a_probe_measures_from_before_its_queueing_to_its_start() {
        let gauge = Gauge::<Linux>::leak(1);
        let mut probes = Probes::new(gauge);
        assert!(probes.send(3, || thread::sleep(Duration::from_millis(2))));
        assert!(!probes.collect(3), "it has not started");
        assert!(!probes.send(3, || panic!("it is still on its way")));
        thread::sleep(Duration::from_millis(3));
        gauge.started(3);
        let (queue, start) = probes.finish();
        assert!(queue.p50 >= 2000.0 && queue.max < start.p50, "{queue:?}");
        assert!(start.p50 >= 5000.0 && start.p99 <= start.max, "{start:?}");
    }

    #[test]
    fn percentiles_of_durations_match_the_kernel() {
        let all = Latency::of_all((1..=100).rev().map(|us| us * 1000).collect()).unwrap();
        assert_eq!((all.p50, all.p90, all.p95, all.max), (51.0, 91.0, 96.0, 100.0));
        assert_eq!(Latency::of_all(Vec::new()), None);
    }
}
