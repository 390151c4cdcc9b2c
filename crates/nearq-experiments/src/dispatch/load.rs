//! The loads of the `dispatch` experiment, the same code for every contestant.

use super::gauge::{Gauge, Latency, PROBES, Probes};
use crate::Error;
use crate::harness::Host;
use crate::peers::Peer;
use nearq_platform::{Atomic, AtomicInt, Instant, Ordering, Parker};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Items in flight, the same for everyone.
pub const IN_FLIGHT: usize = 1024;
/// The issuer queues again when this many are done: it must not look at the counters for every item.
const QUARTER: u64 = IN_FLIGHT as u64 / 4;
/// Every so many items, one is a probe.
const PROBE_EVERY: u64 = 64;
/// Single items that are not counted: some pools start a thread for the first one.
const IDLE_WARM_UP: usize = 5;

/// What a load measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Wall time per item.
    pub ns_per_item: Option<f64>,
    /// CPUs that the process kept busy, on average.
    pub cpus_busy: Option<f64>,
    /// Of the call that queues.
    pub queue: Option<Latency>,
    /// From queueing to start.
    pub start: Option<Latency>,
}

/// Wall time and CPU time since a moment.
struct Since {
    wall: Instant,
    cpu: Option<Duration>,
}

impl Since {
    /// Begins now.
    fn now<P: Host>() -> Self {
        Self { wall: P::now(), cpu: P::process_time() }
    }

    fn elapsed<P: Host>(&self) -> Duration {
        P::now() - self.wall
    }

    /// So many items since then.
    fn sample<P: Host>(&self, items: u64) -> Sample {
        let elapsed = self.elapsed::<P>();
        let used = P::process_time().zip(self.cpu).map(|(end, start)| end.saturating_sub(start));
        Sample {
            ns_per_item: Some(elapsed.as_nanos() as f64 / items as f64),
            cpus_busy: used.map(|used| used.as_secs_f64() / elapsed.as_secs_f64()),
            ..Sample::default()
        }
    }
}

/// The error of items that did not run.
pub(super) fn lost<P: Host>(items: u64) -> Error {
    Error::run(format!("{items} items have not run for {} s", P::LOST_AFTER.as_secs()))
}

/// How one contestant takes items from a single outside thread.
pub trait Feed {
    /// Queues an item that does `gauge.done()`.
    fn plain(&mut self);

    /// Queues an item that does `gauge.started(probe)`, then `gauge.done()`.
    fn probe(&mut self, probe: usize);
}

/// Closures that nobody waits for.
pub(super) struct Detached<'p, Q, P: Host> {
    /// The pool.
    pub pool: &'p Q,
    /// What the items touch.
    pub gauge: &'static Gauge<P>,
}

impl<Q: Peer, P: Host> Feed for Detached<'_, Q, P> {
    #[inline]
    fn plain(&mut self) {
        let gauge = self.gauge;
        self.pool.detach(move || gauge.done());
    }

    #[inline]
    fn probe(&mut self, probe: usize) {
        let gauge = self.gauge;
        self.pool.detach(move || {
            gauge.started(probe);
            gauge.done();
        });
    }
}

/// Keeps [`IN_FLIGHT`] items in flight for `duration`.
pub fn flood<P: Host>(
    feed: &mut impl Feed,
    gauge: &'static Gauge<P>,
    duration: Duration,
) -> Result<Sample, Error> {
    let (base, start) = (gauge.completed(), Since::now::<P>());
    let (mut issued, mut room, mut probes) = (0_u64, IN_FLIGHT as u64, Probes::new(gauge));
    let mut probe = 0;
    // At least once, however late it is by then.
    loop {
        for _ in 0..room {
            // A probe that is still on its way is passed over for a plain item.
            if issued.is_multiple_of(PROBE_EVERY) && probes.send(probe, || feed.probe(probe)) {
                probe = (probe + 1) % PROBES;
            } else {
                feed.plain();
            }
            issued += 1;
        }
        let left = wait_until(gauge, base, issued, IN_FLIGHT as u64 - QUARTER)?;
        room = IN_FLIGHT as u64 - left;
        if start.elapsed::<P>() >= duration {
            break;
        }
    }
    wait_until(gauge, base, issued, 0)?;
    let sample = start.sample::<P>(issued);
    let (queue, started) = probes.finish();
    Ok(Sample { queue: Some(queue), start: Some(started), ..sample })
}

/// Gives way to the workers until at most `most` items are in flight, and says how many are.
fn wait_until<P: Host>(gauge: &Gauge<P>, base: u64, issued: u64, most: u64) -> Result<u64, Error> {
    let mut since = None;
    loop {
        let in_flight = issued - (gauge.completed() - base);
        if in_flight <= most {
            return Ok(in_flight);
        }
        if P::now() - *since.get_or_insert_with(P::now) > P::LOST_AFTER {
            return Err(lost::<P>(in_flight));
        }
        P::yield_now();
    }
}

/// Keeps [`IN_FLIGHT`] closures in flight for `duration`, and waits for the result of each.
pub(super) fn joined<Q: Peer, P: Host>(
    pool: &Q,
    gauge: &'static Gauge<P>,
    duration: Duration,
) -> Sample {
    let (start, mut issued) = (Since::now::<P>(), 0_u64);
    let mut handles = VecDeque::with_capacity(IN_FLIGHT);
    // At least once, however late it is by then.
    loop {
        while handles.len() < IN_FLIGHT {
            handles.push_back(pool.spawn(move || gauge.done()));
            issued += 1;
        }
        // The newest of the oldest quarter first: the issuer sleeps once, and the others are done by then.
        let newest = handles.swap_remove_front(QUARTER as usize - 1).expect("the ring is full");
        Q::join(newest);
        handles.drain(..QUARTER as usize - 1).for_each(|handle| Q::join(handle));
        if start.elapsed::<P>() >= duration {
            break;
        }
    }
    handles.drain(..).for_each(|handle| Q::join(handle));
    start.sample::<P>(issued)
}

/// Has a worker queue [`IN_FLIGHT`] closures, of which the last to end does it again, for `duration`.
pub(super) fn inside<Q: Peer, P: Host>(
    pool: Q,
    gauge: &'static Gauge<P>,
    duration: Duration,
) -> Result<Sample, Error> {
    let start = Since::now::<P>();
    let batches = Arc::new(Batches::<Q, P> {
        pool,
        gauge,
        running: P::AtomicU64::new(0),
        items: P::AtomicU64::new(0),
        end: P::now() + duration,
        finished: Parker::new(),
    });
    let first = Arc::clone(&batches);
    batches.pool.detach(move || first.next());
    if !batches.finished.park(Some(P::now() + duration + P::LOST_AFTER)) {
        return Err(lost::<P>(batches.running.load(Ordering::Relaxed)));
    }
    let sample = start.sample::<P>(batches.items.load(Ordering::Relaxed));
    // The pool must not be dropped by one of its own workers.
    let patience = P::now() + P::LOST_AFTER;
    while Arc::strong_count(&batches) > 1 && P::now() < patience {
        P::yield_now();
    }
    Ok(sample)
}

struct Batches<Q, P: Host> {
    pool: Q,
    gauge: &'static Gauge<P>,
    running: P::AtomicU64,
    items: P::AtomicU64,
    end: Instant,
    finished: Parker<P>,
}

impl<Q: Peer, P: Host> Batches<Q, P> {
    fn next(self: Arc<Self>) {
        // Relaxed: each batch is begun by the one that ended the batch before. At least one, however late it is by then.
        if self.items.load(Ordering::Relaxed) != 0 && P::now() >= self.end {
            self.finished.unpark();
            return;
        }
        self.items.fetch_add(IN_FLIGHT as u64, Ordering::Relaxed);
        self.running.store(IN_FLIGHT as u64, Ordering::Relaxed);
        for _ in 0..IN_FLIGHT {
            let batches = Arc::clone(&self);
            self.pool.detach(move || {
                batches.gauge.done();
                // The last one of the batch has seen all others through this counter.
                if batches.running.fetch_sub(1, Ordering::AcqRel) == 1 {
                    batches.next();
                }
            });
        }
    }
}

/// Queues `samples` single items with a gap of `gap` between them, in which everybody has gone to sleep.
pub fn idle<P: Host>(
    feed: &mut impl Feed,
    gauge: &'static Gauge<P>,
    samples: usize,
    gap: Duration,
) -> Result<Sample, Error> {
    let mut probes = Probes::new(gauge);
    for sample in 0..samples + IDLE_WARM_UP {
        if sample == IDLE_WARM_UP {
            probes = Probes::new(gauge);
        }
        let sent = P::now();
        probes.send(0, || feed.probe(0));
        P::sleep(gap);
        while !probes.collect(0) {
            if P::now() - sent > P::LOST_AFTER {
                return Err(lost::<P>(1));
            }
            P::sleep(gap);
        }
    }
    let (queue, start) = probes.finish();
    Ok(Sample { queue: Some(queue), start: Some(start), ..Sample::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{Bounded, Rayon, Tokio};
    use nearq_platform::Linux;
    use std::time::Instant;

    const SHORT: Duration = Duration::from_millis(30);

    #[test]
    fn a_flood_counts_every_item_once() {
        let gauge = Gauge::<Linux>::leak(2);
        let pool = Bounded::start(2).unwrap();
        let started = Instant::now();
        let sample = flood(&mut Detached { pool: &pool, gauge }, gauge, SHORT).unwrap();
        let items = gauge.completed() as f64;
        let ns = sample.ns_per_item.unwrap();
        assert!(
            ns * items >= SHORT.as_nanos() as f64
                && ns * items <= started.elapsed().as_nanos() as f64
        );
        let (queue, start) = (sample.queue.unwrap(), sample.start.unwrap());
        assert!(queue.p50 > 0.0 && queue.p50 <= start.max && start.p50 <= start.p99, "{sample:?}");
    }

    #[test]
    fn joined_and_inside_run_every_closure() {
        let gauge = Gauge::<Linux>::leak(2);
        assert!(joined(&Tokio::start(2).unwrap(), gauge, SHORT).ns_per_item.unwrap() > 0.0);
        let joined = gauge.completed();
        assert!(joined >= IN_FLIGHT as u64 && joined.is_multiple_of(QUARTER));
        assert!(inside(Rayon::start(2).unwrap(), gauge, SHORT).unwrap().ns_per_item.unwrap() > 0.0);
        let inside = gauge.completed() - joined;
        assert!(inside >= IN_FLIGHT as u64 && inside.is_multiple_of(IN_FLIGHT as u64));
    }

    #[test]
    fn idle_items_start_after_they_are_queued() {
        let gauge = Gauge::<Linux>::leak(2);
        let pool = Tokio::start(1).unwrap();
        let sample =
            idle(&mut Detached { pool: &pool, gauge }, gauge, 5, Duration::from_millis(2)).unwrap();
        assert_eq!(gauge.completed(), 5 + IDLE_WARM_UP as u64);
        assert!(sample.start.unwrap().p50 > 0.0 && sample.ns_per_item.is_none());
    }
}
