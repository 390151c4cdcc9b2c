//! The one who queues: on a CPU of its own, every interval, the same item again.
//!
//! The item's only act is to note the time; nobody is told, so that a row's worker does nothing but what the row is about. The
//! issuer looks at its next turn. That is one measurement of one item at a time, as in the document: an item that has not started
//! when the interval is over is not queued again before the next one. So a long wait counts once, however many intervals it took;
//! where every interval were counted, the slow rows would look worse still.

use super::samples::Samples;
use crate::Error;
use crate::harness::Host;
use nearq_platform::{Atomic as _, Instant, Ordering, ThreadSpec};
use nearq_topology::CpuSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An item that has not started for so long never will.
const LOST_AFTER: Duration = Duration::from_mins(2);
/// Items before those that are counted: threads start, memory is touched.
const WARM_UP: usize = 5;

/// How a row is measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// The CPU that the crowd and the workers are on.
    pub(crate) cpu: usize,
    /// The one that the issuer is on.
    pub(crate) issuer_cpu: usize,
    /// How often the item is queued.
    pub(crate) interval: Duration,
    /// How long.
    pub(crate) duration: Duration,
}

/// Where an item notes its start.
pub(crate) struct Start<P: Host>(P::AtomicU64);

impl<P: Host> Start<P> {
    /// Nothing has started.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(P::AtomicU64::new(NOT_STARTED)))
    }

    /// What an item does.
    #[inline]
    pub(crate) fn mark(&self) {
        // Relaxed: the time is all there is.
        self.0.store(P::now().as_nanos(), Ordering::Relaxed);
    }

    /// When the item started, if it has since the last call that said so.
    fn take(&self) -> Option<Instant> {
        // Relaxed: the item is not queued while this is written, and what queues it orders both.
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

/// Who runs the item.
pub(crate) trait Target<P: Host> {
    /// Queues the item, and says when its latency begins: now, or when a timer expires.
    fn send(&mut self, interval: Duration) -> Instant;
}

/// Queues, again and again. By the issuer's thread.
pub(crate) fn measure<P: Host>(
    target: &mut dyn Target<P>,
    start: &Start<P>,
    plan: &Plan,
) -> Result<Samples, Error> {
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
        // The last one counts however long it took: to leave it out would be to leave out the worst.
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

/// Runs `body` on a thread of its own on the issuer's CPU, favoured where that is allowed, and gives back what it returns.
pub(crate) fn as_issuer<P: Host, R: Send + 'static>(
    cpu: usize,
    body: impl FnOnce() -> Result<R, Error> + Send + 'static,
) -> Result<R, Error> {
    let spec = ThreadSpec {
        name: "issuer".into(),
        affinity: Some(CpuSet::single(cpu)),
        ..ThreadSpec::default()
    };
    on_thread::<P, R>(spec, || {
        P::favour_issuer();
        body()
    })
}

/// Runs `body` on a new thread, and gives back what it returns.
pub(crate) fn on_thread<P: Host, R: Send + 'static>(
    spec: ThreadSpec,
    body: impl FnOnce() -> Result<R, Error> + Send + 'static,
) -> Result<R, Error> {
    let place = Arc::new(Mutex::new(None));
    let result = Arc::clone(&place);
    let main = move || {
        let ended = body();
        *place.lock().expect("nobody panics with it") = Some(ended);
    };
    let thread = P::spawn(spec, main).map_err(|refused| Error::run(refused.to_string()))?;
    P::join(thread);
    let ended = result.lock().expect("nobody panics with it").take();
    ended.unwrap_or_else(|| Err(Error::run("a thread of the experiment panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_platform::{Linux, Platform as _};

    #[test]
    fn the_next_queueing_is_on_the_grid_however_late_the_last_one_was() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let interval = Duration::from_millis(4);
        assert_eq!(following(at(100), interval, at(100)), at(104));
        assert_eq!(following(at(100), interval, at(103)), at(104));
        assert_eq!(following(at(100), interval, at(104)), at(108));
        assert_eq!(following(at(100), interval, at(1001)), at(1004));
    }

    /// Starts at once, on the issuer's own thread.
    struct AtOnce(Arc<Start<Linux>>, usize);

    impl Target<Linux> for AtOnce {
        fn send(&mut self, _interval: Duration) -> Instant {
            let now = Linux::now();
            self.0.mark();
            self.1 += 1;
            now
        }
    }

    #[test]
    fn what_starts_at_once_has_no_latency_and_is_queued_every_interval() {
        let start = Start::new();
        let mut target = AtOnce(Arc::clone(&start), 0);
        let (interval, duration) = (Duration::from_millis(2), Duration::from_millis(41));
        let plan = Plan { cpu: 0, issuer_cpu: 0, interval, duration };
        let samples = measure(&mut target, &start, &plan).unwrap();
        let figures = samples.figures().unwrap();
        assert!((2..=22).contains(&figures.samples), "{figures:?}");
        assert_eq!(target.1, figures.samples + WARM_UP, "every item counts, the last one too");
        assert!(figures.p50 < 0.5, "{figures:?}");
    }

    #[test]
    fn a_thread_hands_back_its_result_and_its_end() {
        let run =
            |body: fn() -> Result<u32, Error>| on_thread::<Linux, u32>(ThreadSpec::default(), body);
        assert_eq!(run(|| Ok(7)), Ok(7));
        assert_eq!(run(|| Err(Error::run("no"))), Err(Error::run("no")));
        assert!(run(|| panic!("as expected")).unwrap_err().to_string().contains("panicked"));
    }
}
