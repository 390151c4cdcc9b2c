//! The loads: floods, closures that are joined, closures from inside, closures from many threads, single items, and an issuer on each CPU.

use super::contestant::Plan;
use super::gauge::{Gauge, Latency, PROBES, Probes};
use crate::Error;
use crate::harness::{Host, Since, on_cpus};
use crate::peers::Peer;
use nearq_platform::{Atomic, AtomicInt, Instant, Ordering, Parker, Platform, ThreadSpec};
use nearq_topology::CpuSet;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

// The loads of the `dispatch` experiment, the same code for every contestant.

/// Items in flight, the same for every contestant.
pub const IN_FLIGHT: usize = 1024;
/// The issuer queues again when this many items are done: it must not read the counters for every item.
const QUARTER: u64 = IN_FLIGHT as u64 / 4;
/// One item in this many is a probe.
const PROBE_EVERY: u64 = 64;
/// Single items that are not counted: some pools start a thread for the first one.
const IDLE_WARM_UP: usize = 5;
/// Outside threads that spawn closures at once.
pub(super) const OUTSIDE_THREADS: usize = 64;
/// Time between two checks whether their closures have run. The thread that checks sleeps in between: it would take a CPU from the workers.
const CHECK_INTERVAL: Duration = Duration::from_micros(100);

/// What a load measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Wall time per item.
    pub ns_per_item: Option<f64>,
    /// CPUs that the process kept busy, on average.
    pub cpus_busy: Option<f64>,
    /// The latency of the call that queues.
    pub queue: Option<Latency>,
    /// The latency from queueing to start.
    pub start: Option<Latency>,
}

/// The sample of `items` items since the clocks were read.
fn sample<P: Host>(since: &Since, items: u64) -> Sample {
    let elapsed = since.elapsed::<P>();
    Sample {
        ns_per_item: Some(elapsed.as_nanos() as f64 / items as f64),
        cpus_busy: since.cpu::<P>().map(|used| used.as_secs_f64() / elapsed.as_secs_f64()),
        ..Sample::default()
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

/// Closures that are not waited for.
pub(super) struct Detached<'p, Q, P: Host> {
    /// The pool.
    pub pool: &'p Q,
    /// The gauge that the items touch.
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
    let (mut issued, mut free_slots, mut probes) = (0_u64, IN_FLIGHT as u64, Probes::new(gauge));
    let mut probe = 0;
    // This is done at least once, however late it already is.
    loop {
        for _ in 0..free_slots {
            // A plain item takes the place of a probe that is still in flight.
            if issued.is_multiple_of(PROBE_EVERY) && probes.send(probe, || feed.probe(probe)) {
                probe = (probe + 1) % PROBES;
            } else {
                feed.plain();
            }
            issued += 1;
        }
        let left = wait_until(gauge, base, issued, IN_FLIGHT as u64 - QUARTER, P::yield_now)?;
        free_slots = IN_FLIGHT as u64 - left;
        if start.elapsed::<P>() >= duration {
            break;
        }
    }
    wait_until(gauge, base, issued, 0, P::yield_now)?;
    let sample = sample::<P>(&start, issued);
    let (queue, started) = probes.finish();
    Ok(Sample { queue: Some(queue), start: Some(started), ..sample })
}

/// Pauses until at most `most` items are in flight, and returns how many are.
fn wait_until<P: Host>(
    gauge: &Gauge<P>,
    base: u64,
    issued: u64,
    most: u64,
    pause: impl Fn(),
) -> Result<u64, Error> {
    let mut since = None;
    loop {
        let completed = gauge.completed() - base;
        let in_flight = issued.checked_sub(completed).ok_or_else(|| {
            Error::run(format!("{} items ran more than once", completed - issued))
        })?;
        if in_flight <= most {
            return Ok(in_flight);
        }
        if P::now() - *since.get_or_insert_with(P::now) > P::LOST_AFTER {
            return Err(lost::<P>(in_flight));
        }
        pause();
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
    // This is done at least once, however late it already is.
    loop {
        while handles.len() < IN_FLIGHT {
            handles.push_back(pool.spawn(move || gauge.done()));
            issued += 1;
        }
        // The newest item of the oldest quarter comes first: the issuer sleeps once, and the other items are done by then.
        let newest = handles.swap_remove_front(QUARTER as usize - 1).expect("the ring is full");
        Q::join(newest);
        handles.drain(..QUARTER as usize - 1).for_each(|handle| Q::join(handle));
        if start.elapsed::<P>() >= duration {
            break;
        }
    }
    handles.drain(..).for_each(|handle| Q::join(handle));
    sample::<P>(&start, issued)
}

/// Makes a worker queue [`IN_FLIGHT`] closures, the last of which to end does so again, for `duration`.
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
    let sample = sample::<P>(&start, batches.items.load(Ordering::Relaxed));
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
        // Relaxed: each batch is begun by the closure that ended the batch before. At least one batch runs, however late it is by then.
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
                // The last closure of the batch has seen all others through this counter.
                if batches.running.fetch_sub(1, Ordering::AcqRel) == 1 {
                    batches.next();
                }
            });
        }
    }
}

/// Queues `samples` single items with a gap of `gap` between them, in which all threads have gone to sleep.
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

// The load of the kernel's own benchmark, `lib/test_workqueue.c`: a thread bound to each CPU queues one item, times
// the call that queues it, waits for the item, and does it again.
//
// As in that benchmark, the rate is over all issuers, from the first that begins to the last that ends, and the latency is that of the call
// alone. There are two differences: uncounted items run first, because these runs are shorter than the kernel's and the start of the
// workers would be visible; and each issuer uses two items in turn, whereas the kernel's initialises its item again each time, so that no
// item meets its own last execution.

/// Items of each issuer that are not counted, for one that is.
const WARM_UP_SHARE: usize = 10;

/// Items of each issuer before the counted ones, at least one for each item that it has.
pub(super) fn warm_up(items: usize) -> usize {
    (items / WARM_UP_SHARE).max(ITEMS)
}

/// The number of items that an issuer uses in turn.
const ITEMS: usize = 2;

/// An issuer's means to queue: each call queues the next one of its items.
pub(super) fn in_turn<P: Host, I: Send + 'static>(
    items: [I; ITEMS],
    queue: impl Fn(&I) -> bool + Send + 'static,
) -> impl FnMut() + Send + 'static {
    let mut next = 0;
    move || {
        insist::<P>(|| queue(&items[next]));
        next = (next + 1) % ITEMS;
    }
}

/// Queues an item. If it is still queued, because other items overtook it, waits for it.
#[inline]
pub(super) fn insist<P: Platform>(queue: impl Fn() -> bool) {
    while !queue() {
        P::yield_now();
    }
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
    let (cpus, items) = (plan.cpus.len(), plan.items);
    let spec = |cpu| on_cpus(format!("issuer/{cpu}"), CpuSet::single(cpu));
    let total = ((items + warm_up(items)) * cpus) as u64;
    let issuers = Issuers::start(gauge, total, plan.cpus.iter().map(spec).collect(), || {
        let done = Arc::new(Parker::new());
        let queue = make(Arc::clone(&done));
        move |start: &Start<P>| issue(queue, &done, start, items)
    })?;
    issuers.wait()?;
    issuers.begin();
    issuers.wait()?;
    let all = issuers.join()?.into_iter().reduce(Measured::add).expect("there is a CPU");
    let ns_per_item = Some((all.end - all.start).as_nanos() as f64 / (items * cpus) as f64);
    Ok(Sample { ns_per_item, queue: Latency::of_all(all.calls), ..Sample::default() })
}

/// The body of an issuer's thread.
fn issue<P: Host>(
    mut queue: impl FnMut(),
    done: &Parker<P>,
    shared: &Start<P>,
    items: usize,
) -> Measured {
    for _ in 0..warm_up(items) {
        queue();
        done.park(None);
    }
    shared.ready();
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

impl Measured {
    fn add(mut self, other: Self) -> Self {
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        self.calls.extend(other.calls);
        self
    }
}

/// Makes [`OUTSIDE_THREADS`] threads spawn `closures` each, from the same moment on, and wait for none. Measured is the time until all have
/// run; as many that are not counted run before.
pub(super) fn many_outside<Q: Peer, P: Host>(
    pool: Q,
    gauge: &'static Gauge<P>,
    closures: usize,
) -> Result<Sample, Error> {
    let spec = |number| ThreadSpec { name: format!("issuer/{number}"), ..ThreadSpec::default() };
    let (pool, items) = (Arc::new(pool), (OUTSIDE_THREADS * closures) as u64);
    let specs = (0..OUTSIDE_THREADS).map(spec).collect();
    let issuers = Issuers::start(gauge, 2 * items, specs, || {
        let pool = Arc::clone(&pool);
        move |start: &Start<P>| {
            let spawn_all = || (0..closures).for_each(|_| pool.detach(move || gauge.done()));
            spawn_all();
            start.ready();
            spawn_all();
        }
    })?;
    issuers.wait_for_items(items)?;
    let since = Since::now::<P>();
    issuers.begin();
    issuers.wait_for_items(2 * items)?;
    let sample = sample::<P>(&since, items);
    issuers.join()?;
    Ok(sample)
}

// Several issuers that begin at once.

/// The threads of the issuers, each with the place for its result.
struct Issuers<P: Host, T> {
    gauge: &'static Gauge<P>,
    /// What the gauge counted before they were started.
    before: u64,
    /// How many items they queue in all.
    total: u64,
    start: Arc<Start<P>>,
    threads: Vec<(P::JoinHandle, Slot<T>)>,
}

/// Where an issuer puts its result.
type Slot<T> = Arc<Mutex<Option<T>>>;

/// What all issuers share.
struct Start<P: Host> {
    issuers: usize,
    /// Issuers that are not yet, or no longer, at work.
    out: P::AtomicU32,
    /// Set when all issuers have warmed up.
    go: P::AtomicU32,
    /// The thread that waits for all issuers.
    all_out: Parker<P>,
}

impl<P: Host, T: Send + 'static> Issuers<P, T> {
    /// Starts a thread for each of `specs`. Its body warms up, calls [`Start::ready`], and queues what is counted.
    fn start<F: FnOnce(&Start<P>) -> T + Send + 'static>(
        gauge: &'static Gauge<P>,
        total: u64,
        specs: Vec<ThreadSpec>,
        make_body: impl Fn() -> F,
    ) -> Result<Self, Error> {
        let before = gauge.completed();
        let start = Arc::new(Start::<P> {
            issuers: specs.len(),
            out: P::AtomicU32::new(0),
            go: P::AtomicU32::new(0),
            all_out: Parker::new(),
        });
        let mut threads = Vec::with_capacity(specs.len());
        for spec in specs {
            let (name, body) = (spec.name.clone(), make_body());
            let result = Arc::new(Mutex::new(None));
            let (place, start) = (Arc::clone(&result), Arc::clone(&start));
            let main = move || {
                let measured = body(&start);
                *place.lock().expect("no thread panics while holding it") = Some(measured);
                start.arrive();
            };
            let handle = P::spawn(spec, main).map_err(|error| {
                Error::run(format!("the thread {name} cannot be started: {error}"))
            })?;
            threads.push((handle, result));
        }
        Ok(Self { gauge, before, total, start, threads })
    }

    /// Items that have not run; "negative" if too many have.
    fn left(&self) -> u64 {
        self.total.wrapping_sub(self.gauge.completed() - self.before)
    }

    /// Waits until all issuers have warmed up, or are done; an error if no item has run for too long.
    fn wait(&self) -> Result<(), Error> {
        let mut seen = self.gauge.completed();
        while !self.start.all_out.park(Some(P::now() + P::LOST_AFTER)) {
            let now = self.gauge.completed();
            if now == seen {
                return Err(lost::<P>(self.left()));
            }
            seen = now;
        }
        Ok(())
    }

    /// The same, and then until `items` in all have run.
    fn wait_for_items(&self, items: u64) -> Result<(), Error> {
        self.wait()?;
        wait_until(self.gauge, self.before, items, 0, || P::sleep(CHECK_INTERVAL)).map(drop)
    }

    /// Lets all issuers queue the items that are counted.
    fn begin(&self) {
        self.start.out.store(0, Ordering::Relaxed);
        // Release: pairs with the acquire in `ready`, so that an issuer that arrives again counts from zero.
        self.start.go.store(1, Ordering::Release);
        P::wake(&raw const self.start.go, usize::MAX);
    }

    /// Waits for the ends of the threads, and returns their results.
    fn join(mut self) -> Result<Vec<T>, Error> {
        let mut results = Vec::with_capacity(self.threads.len());
        for (thread, result) in self.threads.drain(..) {
            P::join(thread);
            // Its thread has ended: the lock is free, whatever the platform.
            let result = result.lock().expect("no thread panics while holding it").take();
            results.push(result.ok_or_else(|| Error::run("an issuer panicked"))?);
        }
        if self.left() != 0 {
            return Err(Error::run(format!(
                "{} of {} items did not run exactly once",
                self.left().cast_signed().unsigned_abs(),
                self.total
            )));
        }
        Ok(results)
    }
}

impl<P: Host> Start<P> {
    /// Records that one more issuer has warmed up, and waits until all begin.
    fn ready(&self) {
        self.arrive();
        // Acquire: pairs with the release in `begin`.
        while self.go.load(Ordering::Acquire) == 0 {
            P::wait(&self.go, 0, None);
        }
    }

    /// Records that one more issuer is done; the last one wakes the waiting thread.
    fn arrive(&self) {
        // AcqRel: the last issuer has seen what all others did.
        if self.out.fetch_add(1, Ordering::AcqRel) as usize + 1 == self.issuers {
            self.all_out.unpark();
        }
    }
}

#[cfg(test)]
#[path = "tests/load.rs"]
mod load_tests;
