//! The load of the kernel's own benchmark, `lib/test_workqueue.c`: a thread bound to each CPU queues one item, times
//! the call that queues it, waits for the item, and does it again.
//!
//! As there, the rate is over all issuers, from the first that begins to the last that ends, and the latency is that
//! of the call alone. What differs: items that are not counted go before, since these runs are shorter than the
//! kernel's and starting the workers would show; and each issuer has two items in turn, where the kernel's initialises
//! its item anew each time, so that none meets its own last execution.

use super::contestant::Plan;
use super::gauge::{Gauge, Latency};
use super::load::{Sample, lost};
use crate::Error;
use crate::harness::Host;
use nearq_platform::{Atomic, AtomicInt, Instant, Ordering, Parker, ThreadSpec};
use nearq_topology::CpuSet;
use std::sync::{Arc, Mutex};

/// Items of each issuer that are not counted, for one that is.
const WARM_UP_SHARE: usize = 10;

/// Items of each issuer before those that are counted, at least one for each item that it has.
pub(super) fn warm_up(items: usize) -> usize {
    (items / WARM_UP_SHARE).max(ITEMS)
}

/// Items that an issuer has in turn.
pub(super) const ITEMS: usize = 2;

/// What all issuers share.
struct Start<P: Host> {
    /// Issuers that are not yet, or no more, at work.
    out: P::AtomicU32,
    /// Set when all have warmed up.
    go: P::AtomicU32,
    /// The one who waits for all of them.
    all_out: Parker<P>,
}

/// What an issuer has measured.
struct Measured {
    start: Instant,
    end: Instant,
    /// How long each call took, in nanoseconds.
    calls: Vec<u64>,
}

/// Runs an issuer on each CPU of the plan. `make` makes an issuer's means to queue: a function that queues its next
/// item, which gives a permit to the parker when it runs.
pub fn issuers<P: Host, F: FnMut() + Send + 'static>(
    plan: &Plan,
    gauge: &'static Gauge<P>,
    make: impl Fn(Arc<Parker<P>>) -> F,
) -> Result<Sample, Error> {
    let cpus = plan.cpus.len();
    let before = gauge.completed();
    let start = Arc::new(Start::<P> {
        out: P::AtomicU32::new(0),
        go: P::AtomicU32::new(0),
        all_out: Parker::new(),
    });
    let mut threads = Vec::with_capacity(cpus);
    for cpu in &plan.cpus {
        let done = Arc::new(Parker::new());
        let queue = make(Arc::clone(&done));
        let result = Arc::new(Mutex::new(None));
        let (place, start, items) = (Arc::clone(&result), Arc::clone(&start), plan.items);
        let spec = ThreadSpec {
            name: format!("issuer/{cpu}"),
            affinity: Some([cpu].into_iter().collect::<CpuSet>()),
            ..ThreadSpec::default()
        };
        let main = move || {
            let measured = issue(queue, &done, &start, cpus, items);
            *place.lock().expect("nobody panics with it") = Some(measured);
            start.arrive(cpus);
        };
        let handle = P::spawn(spec, main).map_err(|error| {
            Error::run(format!("the issuer of CPU {cpu} cannot be started: {error}"))
        })?;
        threads.push((handle, result));
    }
    let total = ((plan.items + warm_up(plan.items)) * cpus) as u64;
    let left = || total - (gauge.completed() - before);
    start.wait_for_all(gauge).ok_or_else(|| lost::<P>(left()))?;
    start.out.store(0, Ordering::Relaxed);
    start.go.store(1, Ordering::Release);
    P::wake(&raw const start.go, usize::MAX);
    start.wait_for_all(gauge).ok_or_else(|| lost::<P>(left()))?;
    let mut all: Option<Measured> = None;
    for (thread, result) in threads {
        P::join(thread);
        // Its thread has ended: the lock is free, whatever the platform.
        let own = result.lock().expect("nobody panics with it").take();
        let own = own.ok_or_else(|| Error::run("an issuer panicked"))?;
        match &mut all {
            None => all = Some(own),
            Some(all) => all.add(own),
        }
    }
    if left() != 0 {
        return Err(Error::run(format!(
            "{} of {total} items did not run exactly once",
            left().cast_signed().unsigned_abs()
        )));
    }
    let all = all.expect("there is a CPU");
    let counted = (plan.items * cpus) as f64;
    let ns_per_item = Some((all.end - all.start).as_nanos() as f64 / counted);
    Ok(Sample { ns_per_item, queue: Latency::of_all(all.calls), ..Sample::default() })
}

/// An issuer's life.
fn issue<P: Host>(
    mut queue: impl FnMut(),
    done: &Parker<P>,
    shared: &Start<P>,
    issuers: usize,
    items: usize,
) -> Measured {
    for _ in 0..warm_up(items) {
        queue();
        done.park(None);
    }
    shared.arrive(issuers);
    while shared.go.load(Ordering::Acquire) == 0 {
        P::wait(&shared.go, 0, None);
    }
    let mut calls = Vec::with_capacity(items);
    let start = P::now();
    for _ in 0..items {
        let before = Gauge::<P>::now();
        queue();
        calls.push(Gauge::<P>::now() - before);
        done.park(None);
    }
    Measured { start, end: P::now(), calls }
}

impl<P: Host> Start<P> {
    /// One more issuer is out; the last of `issuers` says so.
    fn arrive(&self, issuers: usize) {
        // AcqRel: the last one has seen what all others did.
        if self.out.fetch_add(1, Ordering::AcqRel) as usize + 1 == issuers {
            self.all_out.unpark();
        }
    }

    /// Waits until all are out; none if no item has run for too long.
    fn wait_for_all(&self, gauge: &Gauge<P>) -> Option<()> {
        let mut seen = gauge.completed();
        while !self.all_out.park(Some(P::now() + P::LOST_AFTER)) {
            let now = gauge.completed();
            if now == seen {
                return None;
            }
            seen = now;
        }
        Some(())
    }
}

impl Measured {
    fn add(&mut self, other: Self) {
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        self.calls.extend(other.calls);
    }
}
