//! Those who take part, and one run of one of them.

use super::items::Items;
use super::ways::Block;
use crate::Error;
use crate::harness::Host;
use nearq_platform::Instant;
use nearq_topology::CpuSet;
use std::sync::Arc;
use std::time::Duration;

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Items of a run.
    pub items: usize,
    /// What one computes, in time and in rounds of the calibrated loop.
    pub item: Duration,
    /// The same in rounds.
    pub rounds: u64,
    /// One item in so many is blocked.
    pub every: usize,
    /// For how long, where that can be said.
    pub sleep: Duration,
    /// Workers of every pool.
    pub workers: usize,
    /// The CPUs that they may use: as many.
    pub cpus: CpuSet,
}

impl Plan {
    /// How long all items take at best if nobody ever waits.
    pub fn nominal(&self) -> Duration {
        self.item * self.items as u32 / self.workers as u32
    }
}

/// What a run measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// From the first item queued to the last one's end.
    pub elapsed: Duration,
    /// CPU time of the program meanwhile.
    pub cpu: Option<Duration>,
    /// Threads that the contestant had at most.
    pub threads: Option<u64>,
    /// Context switches meanwhile.
    pub switches: Option<u64>,
}

/// One row of a table.
pub trait Contestant<P: Host> {
    /// The row's name.
    fn row(&self) -> &'static str;

    /// Whether it takes part wherever items are blocked, or in the plain sleep alone: some cannot tell the ways apart.
    fn always(&self) -> bool;

    /// Starts the pool.
    fn start(&self, plan: &Plan) -> Result<Box<dyn Pool<P>>, Error>;
}

/// A pool that was started for one run.
pub trait Pool<P: Host> {
    /// Has an item run.
    fn issue(&self, items: &Arc<Items<P>>, number: usize);

    /// Workers at most so far, where the pool counts them itself.
    fn threads(&self) -> Option<u64> {
        None
    }
}

/// Items before those that count, for each worker: some pools start their threads with the first.
const WARM_UP: usize = 8;

/// One run of a contestant, with a pool that is started for it and is gone afterwards.
pub fn measure<P: Host>(
    contestant: &(dyn Contestant<P> + Sync),
    plan: &Plan,
    block: &Arc<dyn Block>,
) -> Result<Sample, Error> {
    let body = || {
        let sampler = P::sampler()?;
        let before = sampler.as_ref().map_or(0, |_| super::threads::now());
        let pool = contestant.start(plan)?;
        issue(&*pool, plan, plan.workers * WARM_UP, 0, block)?;
        let since = Since::<P>::now();
        issue(&*pool, plan, plan.items, plan.every, block)?;
        let threads = match &sampler {
            Some(sampler) => Some(sampler.most().saturating_sub(before)),
            None => pool.threads(),
        };
        Ok(Sample { threads, ..since.sample() })
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

/// The clocks and counts at a moment.
pub(super) struct Since<P> {
    wall: Instant,
    cpu: Option<Duration>,
    switches: Option<u64>,
    platform: std::marker::PhantomData<fn() -> P>,
}

impl<P: Host> Since<P> {
    /// Begins now.
    pub(super) fn now() -> Self {
        let (cpu, switches) = (P::process_time(), P::switches());
        Self { wall: P::now(), cpu, switches, platform: std::marker::PhantomData }
    }

    /// What has been measured since then.
    pub(super) fn sample(&self) -> Sample {
        Sample {
            elapsed: P::now() - self.wall,
            cpu: P::process_time().zip(self.cpu).map(|(end, start)| end.saturating_sub(start)),
            threads: None,
            switches: P::switches().zip(self.switches).map(|(end, start)| end - start),
        }
    }
}
