//! The thread that queues an item again and again, and the latencies that it measures.

use crate::Error;
use crate::harness::{Host, on_cpus, on_thread};
use nearq_platform::{Atomic as _, Instant, Ordering};
use nearq_topology::CpuSet;
use std::sync::Arc;
use std::time::Duration;

// The issuer queues the same item again every interval, on a CPU of its own.
//
// The item only notes the time and notifies no thread, so that a row's worker does only what the row measures. The issuer reads the time at
// its next turn. As in the document, one item is measured at a time: an item that has not started when the interval is over is not queued
// again before the next one. So a long wait counts once, however many intervals it took; if every interval were counted, the slow rows
// would be even worse.

/// An item that has not started after this time never will.
const LOST_AFTER: Duration = Duration::from_mins(2);
/// Items before those that are counted: threads start, memory is touched.
const WARM_UP: usize = 5;

/// How a row is measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// The CPU that the crowd and the workers are on.
    pub(crate) cpu: usize,
    /// The CPU that the issuer is on.
    pub(crate) issuer_cpu: usize,
    /// How often the item is queued.
    pub(crate) interval: Duration,
    /// How long a row lasts.
    pub(crate) duration: Duration,
}

/// The place where an item notes its start.
pub(crate) struct Start<P: Host>(P::AtomicU64);

impl<P: Host> Start<P> {
    /// A place for an item that has not started.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(P::AtomicU64::new(NOT_STARTED)))
    }

    /// What an item does.
    #[inline]
    pub(crate) fn mark(&self) {
        // Relaxed: only the time is shared.
        self.0.store(P::now().as_nanos(), Ordering::Relaxed);
    }

    /// When the item started, if it has started since the last call that returned a time.
    fn take(&self) -> Option<Instant> {
        // Relaxed: the item is not queued while this is written, and queueing it orders both accesses.
        let at = self.0.load(Ordering::Relaxed);
        if at == NOT_STARTED {
            return None;
        }
        self.0.store(NOT_STARTED, Ordering::Relaxed);
        Some(Instant::from_nanos(at))
    }
}

/// No time.
const NOT_STARTED: u64 = 0;

/// The means that run the item.
pub(crate) trait Target<P: Host> {
    /// Queues the item, and says when its latency begins: now, or when a timer expires.
    fn send(&mut self, interval: Duration) -> Instant;
}

/// Favours the caller if that is allowed, then queues the item again and again. Called by the issuer's thread, whose other threads exist by
/// then or state their own priority.
pub(crate) fn measure<P: Host>(
    target: &mut dyn Target<P>,
    start: &Start<P>,
    plan: &Plan,
) -> Result<Samples, Error> {
    P::favour_issuer();
    P::wake_exactly();
    let mut clock = P::steal(plan.cpu);
    let mut samples = Samples::default();
    let mut stolen = P::stolen(&mut clock);
    let mut warm_up = WARM_UP;
    let mut next = P::now();
    let mut end = next;
    loop {
        let expected = target.send(plan.interval);
        let started = loop {
            next = following(next, plan.interval, P::now());
            P::sleep(next.saturating_since(P::now()));
            if let Some(started) = start.take() {
                break started;
            }
            if P::now().saturating_since(expected) > LOST_AFTER {
                return Err(Error::run(format!("an item did not start within {LOST_AFTER:?}")));
            }
        };
        let before = std::mem::replace(&mut stolen, P::stolen(&mut clock));
        if warm_up > 0 {
            warm_up -= 1;
            end = P::now() + plan.duration;
            continue;
        }
        samples.add(started.saturating_since(expected), stolen != before);
        // The last sample counts, however long it took: leaving it out could leave out the worst.
        if P::now() >= end {
            return Ok(samples);
        }
    }
}

/// The first moment after `now` that is a multiple of the interval after `last`.
fn following(last: Instant, interval: Duration, now: Instant) -> Instant {
    let passed = now.saturating_since(last).as_nanos() / interval.as_nanos().max(1);
    last + interval * u32::try_from(passed + 1).unwrap_or(u32::MAX)
}

/// Runs `body` on a thread of its own on the issuer's CPU, and returns its result.
pub(crate) fn as_issuer<P: Host, R: Send + 'static>(
    cpu: usize,
    body: impl FnOnce() -> Result<R, Error> + Send + 'static,
) -> Result<R, Error> {
    let spec = on_cpus("issuer".into(), CpuSet::single(cpu));
    on_thread::<P, R>(spec, body)
}

// The latencies of one row, and the figures that the document names.

/// The worst latencies that are averaged, as in the document.
pub const TOP: usize = 20;

/// One latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// From queueing, or from the expiry of the timer, to the item's first instruction, in nanoseconds.
    pub latency: u64,
    /// Whether the host took time from that CPU in the meantime.
    pub stolen: bool,
}

/// The latencies of one row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples(Vec<Sample>);

/// Figures about latencies, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// How many samples there are.
    pub samples: usize,
    /// How many samples coincided with time that the host took.
    pub stolen: usize,
    /// The longest.
    pub max: f64,
    /// The longest sample during which the host took no time; zero if there is none.
    pub max_unstolen: f64,
    /// The mean of the worst [`TOP`].
    pub top: f64,
    /// Their standard deviation.
    pub top_deviation: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
}

impl Samples {
    /// Adds one sample.
    pub fn add(&mut self, latency: Duration, stolen: bool) {
        let latency = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.push(Sample { latency, stolen });
    }

    /// Adds the samples of another run.
    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The figures; `None` if there are no samples.
    pub fn figures(&self) -> Option<Figures> {
        let sorted = self.sorted();
        let max = *sorted.last()?;
        let unstolen = self.0.iter().filter(|sample| !sample.stolen);
        let top = &sorted[sorted.len().saturating_sub(TOP)..];
        let mean = top.iter().sum::<f64>() / top.len() as f64;
        let squares: f64 = top.iter().map(|latency| (latency - mean).powi(2)).sum();
        let deviation = if top.len() > 1 { (squares / (top.len() - 1) as f64).sqrt() } else { 0.0 };
        let at = |share: f64| sorted[rank(share, sorted.len())];
        Some(Figures {
            samples: sorted.len(),
            stolen: self.0.iter().filter(|sample| sample.stolen).count(),
            max,
            max_unstolen: unstolen.map(|sample| milliseconds(sample.latency)).fold(0.0, f64::max),
            top: mean,
            top_deviation: deviation,
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
        })
    }

    /// For each of some latencies (in milliseconds) the share of samples that are at least as long: a falling curve that shows the worst as
    /// clearly as the middle. Each of the worst samples is a point of the curve; of the other samples, those at even steps of the share's
    /// logarithm are points.
    pub fn curve(&self) -> Vec<(f64, f64)> {
        /// Points for each factor of ten.
        const STEPS: f64 = 40.0;
        let sorted = self.sorted();
        let count = sorted.len();
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut step = i64::MAX;
        for (index, &latency) in sorted.iter().enumerate().rev() {
            let share = (count - index) as f64 / count as f64;
            let here = (-share.log10() * STEPS).floor() as i64;
            if here < step || count - index <= TOP {
                step = here;
                points.push((latency, share));
            }
        }
        points.reverse();
        points
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted: Vec<f64> =
            self.0.iter().map(|sample| milliseconds(sample.latency)).collect();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

/// The nearest rank: the least of `count` sorted values that at least this share of them does not exceed.
fn rank(share: f64, count: usize) -> usize {
    ((share * count as f64).ceil() as usize).clamp(1, count) - 1
}

#[cfg(test)]
#[path = "tests/issuer.rs"]
mod issuer_tests;

#[cfg(test)]
#[path = "tests/samples.rs"]
mod samples_tests;
