//! The items, one run of them on a pool, and how long they take without any pool.

use super::ways::Block;
use crate::Error;
use crate::harness::{Host, Since, failed, on_cpus};
use nearq_platform::{Atomic, AtomicInt, Ordering, Parker};
use nearq_topology::CpuSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

// The items of a run, the same for every contestant: each computes, and some of them are blocked half-way.

/// What the items of a run share.
pub struct Items<P: Host> {
    count: usize,
    /// What an item computes.
    rounds: u64,
    /// One item in this many is blocked; 0 means none.
    every: usize,
    block: Arc<dyn Block>,
    /// Items that have not ended.
    left: P::AtomicU64,
    /// Where the issuer waits for the last one.
    done: Parker<P>,
    /// What went wrong first.
    failure: OnceLock<String>,
}

impl<P: Host> Items<P> {
    /// `count` items, none of which has run.
    pub fn new(count: usize, rounds: u64, every: usize, block: Arc<dyn Block>) -> Self {
        let (left, done) = (P::AtomicU64::new(count as u64), Parker::new());
        Self { count, rounds, every, block, left, done, failure: OnceLock::new() }
    }

    /// How many items there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether that item is blocked half-way.
    pub fn blocks(&self, number: usize) -> bool {
        self.every != 0 && number.is_multiple_of(self.every)
    }

    /// Runs an item.
    pub fn run(&self, number: usize) {
        self.run_around(number, |block| block());
    }

    /// Runs an item; if this item is blocked, `around` is called with the blocking function, and calls it.
    pub fn run_around(&self, number: usize, around: impl FnOnce(&dyn Fn())) {
        if self.blocks(number) {
            P::compute(self.rounds / 2);
            around(&|| {
                if let Err(error) = self.block.block() {
                    let _ = self.failure.set(error.to_string());
                }
            });
            P::compute(self.rounds - self.rounds / 2);
        } else {
            P::compute(self.rounds);
        }
        // AcqRel: the thread that ends last sees the others' failures, and the issuer sees them through the parker.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.unpark();
        }
    }

    /// Waits for the last item. Only for the issuer.
    pub fn wait(&self) -> Result<(), Error> {
        let mut before = self.left.load(Ordering::Acquire);
        while before != 0 && !self.done.park(Some(P::now() + P::LOST_AFTER)) {
            let left = self.left.load(Ordering::Acquire);
            if left == before && left != 0 {
                return Err(Error::run(format!(
                    "{left} of {} items have not ended, and none has ended for {} s",
                    self.count,
                    P::LOST_AFTER.as_secs()
                )));
            }
            before = left;
        }
        match self.failure.get() {
            None => Ok(()),
            Some(failure) => Err(Error::run(format!("an item could not block: {failure}"))),
        }
    }
}

// The contestants, and one run of one of them.

/// What must be done in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Items of a run.
    pub items: usize,
    /// How long an item computes, in time and in rounds of the calibrated loop.
    pub item: Duration,
    /// The same in rounds.
    pub rounds: u64,
    /// One item in this many is blocked.
    pub every: usize,
    /// For how long, if that is known.
    pub sleep: Duration,
    /// Workers of every pool.
    pub workers: usize,
    /// The CPUs that the workers may use: one for each worker.
    pub cpus: CpuSet,
}

impl Plan {
    /// How long all items take at best if no thread ever waits.
    pub fn nominal(&self) -> Duration {
        self.item * self.items as u32 / self.workers as u32
    }
}

/// What a run measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The time from the queueing of the first item to the end of the last one.
    pub elapsed: Duration,
    /// CPU time of the program during the run.
    pub cpu: Option<Duration>,
    /// Threads that the contestant had at most.
    pub threads: Option<u64>,
    /// Context switches during the run.
    pub switches: Option<u64>,
}

/// One row of a table.
pub struct Contestant<P: Host> {
    /// The row's name.
    pub row: &'static str,
    /// Whether it takes part in every way of blocking, or only in the plain sleep: some cannot distinguish the ways.
    pub always: bool,
    /// Starts the pool.
    pub start: Start<P>,
}

/// Starts a pool.
pub(super) type Start<P> = fn(&Plan) -> Result<Box<dyn Pool<P>>, Error>;

/// A pool that was started for one run.
pub trait Pool<P: Host> {
    /// Runs an item.
    fn issue(&self, items: &Arc<Items<P>>, number: usize);

    /// The most workers so far, if the pool counts them itself.
    fn threads(&self) -> Option<u64> {
        None
    }
}

/// Items before those that count, for each worker: some pools start their threads with the first items.
const WARM_UP: usize = 8;

/// One run of a contestant, with a pool that is started for it and stopped afterwards.
pub fn measure<P: Host>(
    contestant: &Contestant<P>,
    plan: &Plan,
    block: &Arc<dyn Block>,
) -> Result<Sample, Error> {
    let body = || {
        let sampler = P::sampler()?;
        let before = sampler.as_ref().map_or(0, |_| super::work::now());
        let pool = (contestant.start)(plan)?;
        issue(&*pool, plan, plan.workers * WARM_UP, 0, block)?;
        let since = Since::now::<P>();
        issue(&*pool, plan, plan.items, plan.every, block)?;
        let threads = match &sampler {
            Some(sampler) => Some(sampler.most().saturating_sub(before)),
            None => pool.threads(),
        };
        Ok(sample::<P>(&since, threads))
    };
    P::confined(&plan.cpus, || P::alone(body))
}

/// Queues items and waits for all of them.
fn issue<P: Host>(
    pool: &dyn Pool<P>,
    plan: &Plan,
    count: usize,
    every: usize,
    block: &Arc<dyn Block>,
) -> Result<(), Error> {
    let items = Arc::new(Items::new(count, plan.rounds, every, Arc::clone(block)));
    for number in 0..items.count() {
        pool.issue(&items, number);
    }
    items.wait()
}

/// What has been measured since then.
fn sample<P: Host>(since: &Since, threads: Option<u64>) -> Sample {
    let (elapsed, cpu) = (since.elapsed::<P>(), since.cpu::<P>());
    Sample { elapsed, cpu, threads, switches: since.switches::<P>() }
}

// How long the items take without any pool: the ideal, and the time that the machine and its scheduler add to it.

/// The row of threads that compute and nothing else.
pub const BARE: &str = "bare threads, no sleep";
/// The row of threads that compute and sleep: as many as are needed.
pub const ENOUGH: &str = "bare threads, enough";
/// The row of the ideal.
pub const IDEAL: &str = "ideal";

/// The time that plain threads took for all the computing, and the ideal: their CPU time divided by the CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bare {
    /// As measured, including other programs' use of the machine.
    pub sample: Sample,
    /// The CPU time of the threads divided by the CPUs: no thread waits for anything.
    pub ideal: Duration,
}

impl Bare {
    /// A sample that is not related to the ideal.
    pub(super) fn without(sample: Sample) -> Self {
        Self { sample, ideal: Duration::ZERO }
    }
}

/// Does all the computing on as many threads as workers, each on a CPU of its own and with its share of the items.
pub(super) fn measure_bare<P: Host>(plan: &Plan) -> Result<Bare, Error> {
    let workers = plan.workers;
    let body = || {
        let used = Arc::new(P::AtomicU64::new(0));
        let since = Since::now::<P>();
        let mut threads = Vec::new();
        for (at, cpu) in plan.cpus.iter().enumerate() {
            let items = plan.items / workers + usize::from(at < plan.items % workers);
            let (rounds, used) = (plan.rounds, Arc::clone(&used));
            let main = move || {
                (0..items).for_each(|_| P::compute(rounds));
                let cpu_time_used = P::cpu_time(P::current_thread()).unwrap_or_default();
                used.fetch_add(cpu_time_used.as_nanos() as u64, Ordering::Relaxed);
            };
            let spec = on_cpus("bare".into(), CpuSet::single(cpu));
            threads.push(P::spawn(spec, main).map_err(failed)?);
        }
        threads.into_iter().for_each(P::join);
        let sample = sample::<P>(&since, Some(workers as u64));
        let used = Duration::from_nanos(used.load(Ordering::Relaxed));
        Ok(Bare { sample, ideal: used / workers as u32 })
    };
    P::confined(&plan.cpus, || P::alone(body))
}

/// Runs all items on so many threads that some can compute while the others sleep. Each takes the next item as soon as it can, so no
/// blocking needs to be noticed: the excess over the ideal is due to the system's scheduler, and no pool can avoid it.
pub(super) fn measure_enough<P: Host>(
    plan: &Plan,
    block: &Arc<dyn Block>,
) -> Result<Sample, Error> {
    let threads = enough(plan);
    let body = || {
        let items =
            Arc::new(Items::<P>::new(plan.items, plan.rounds, plan.every, Arc::clone(block)));
        let next = Arc::new(P::AtomicU64::new(0));
        let since = Since::now::<P>();
        let mut started = Vec::new();
        for _ in 0..threads {
            let (items, next) = (Arc::clone(&items), Arc::clone(&next));
            let main = move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed) as usize;
                    if number >= items.count() {
                        return;
                    }
                    items.run(number);
                }
            };
            let spec = on_cpus("enough".into(), plan.cpus.clone());
            started.push(P::spawn(spec, main).map_err(failed)?);
        }
        items.wait()?;
        let sample = sample::<P>(&since, Some(threads as u64));
        started.into_iter().for_each(P::join);
        Ok(sample)
    };
    P::confined(&plan.cpus, || P::alone(body))
}

/// A thread for each CPU and one for each item that sleeps in the meantime, and half as many again, because the threads do not sleep in
/// turns.
fn enough(plan: &Plan) -> usize {
    let computing = plan.item * plan.every.max(1) as u32;
    let asleep = plan.sleep.as_secs_f64() / computing.as_secs_f64() * plan.workers as f64;
    ((plan.workers as f64 + asleep) * 1.5).ceil() as usize
}

#[cfg(test)]
#[path = "tests/items.rs"]
mod items_tests;

#[cfg(test)]
#[path = "tests/bare.rs"]
mod bare_tests;
