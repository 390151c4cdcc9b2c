//! The pools that take part: ours, and the others.

use super::load::{Contestant, Items, Plan, Pool, Start};
use crate::Error;
use crate::harness::{Host, failed};
use crate::peers::{AsyncExecutor, Peer, Rayon, ThreadPool, Tokio};
use nearq::{Runtime, Workqueue};
use nearq_platform::{Atomic as _, AtomicInt as _, Linux, Ordering};
use std::sync::Arc;
use tokio::runtime::Builder;
use tokio::task::block_in_place;

// nearq as a contestant: apart from the files of the detection, this is the only file here that uses nearq's API.

/// Our rows.
pub const PLAIN: &str = "nearq";
/// The same, with the blocking part inside `nearq::block_in_place`.
pub const HINTED: &str = "nearq, blocking()";

/// A queue with default settings, or with items that announce their blocking.
pub(super) fn ours<P: Host>(hints: bool) -> Contestant<P> {
    let (row, start): (_, Start<P>) =
        if hints { (HINTED, |plan| queue(plan, true)) } else { (PLAIN, |plan| queue(plan, false)) };
    Contestant { row, always: true, start }
}

fn queue<P: Host>(plan: &Plan, hints: bool) -> Result<Box<dyn Pool<P>>, Error> {
    let tally = Arc::new(Tally::<P>::default());
    let (start, stop) = (Arc::clone(&tally), Arc::clone(&tally));
    let runtime = Runtime::<P>::builder_in()
        .on_worker_start(move |_| start.more())
        .on_worker_stop(move |_| stop.less())
        .build()
        .map_err(failed)?;
    let queue = runtime.workqueue_builder("blocking").cpumask(plan.cpus.clone()).build();
    let queue = queue.map_err(failed)?;
    Ok(Box::new(Queue { queue, runtime, tally, hints }))
}

struct Queue<P: Host> {
    queue: Workqueue<P>,
    runtime: Runtime<P>,
    tally: Arc<Tally<P>>,
    hints: bool,
}

impl<P: Host> Pool<P> for Queue<P> {
    fn issue(&self, items: &Arc<Items<P>>, number: usize) {
        let items = Arc::clone(items);
        if self.hints && items.blocks(number) {
            let runtime = self.runtime.clone();
            let hinted = move || items.run_around(number, |block| runtime.block_in_place(block));
            drop(self.queue.spawn(hinted));
        } else {
            drop(self.queue.spawn(move || items.run(number)));
        }
    }

    fn threads(&self) -> Option<u64> {
        Some(self.tally.most.load(Ordering::Relaxed))
    }
}

/// The current number of workers, and the most so far.
struct Tally<P: Host> {
    now: P::AtomicU64,
    most: P::AtomicU64,
}

impl<P: Host> Default for Tally<P> {
    fn default() -> Self {
        Self { now: P::AtomicU64::new(0), most: P::AtomicU64::new(0) }
    }
}

impl<P: Host> Tally<P> {
    fn more(&self) {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        let mut most = self.most.load(Ordering::Relaxed);
        while most < now {
            match self.most.compare_exchange(most, now, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => most = found,
            }
        }
    }

    fn less(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

// The other pools as contestants, each in its usual way of use. They are Linux programs.

/// A pool that takes closures.
fn closures<Q: Peer>() -> Contestant<Linux> {
    let start: Start<Linux> = |plan| Ok(Box::new(Started(Q::start(plan.workers)?)));
    Contestant { row: Q::NAME, always: false, start }
}

struct Started<Q>(Q);

impl<Q: Peer> Pool<Linux> for Started<Q> {
    fn issue(&self, items: &Arc<Items<Linux>>, number: usize) {
        let items = Arc::clone(items);
        self.0.detach(move || items.run(number));
    }
}

/// What tokio is told about blocking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockingHint {
    /// Nothing, so all items run on the threads for blocking, of which there are up to 512.
    Absent,
    /// Which items block, in advance: only these run on the threads for blocking.
    PerItem,
    /// Which part of an item blocks, inside the item: during that part the worker hands its tasks to another thread.
    PerBlock,
}

/// tokio, with this much information.
fn tokio(plan: &Plan, hint: BlockingHint) -> Result<Box<dyn Pool<Linux>>, Error> {
    let runtime = Builder::new_multi_thread().worker_threads(plan.workers).build();
    let runtime =
        runtime.map_err(|error| Error::run(format!("tokio cannot start its threads: {error}")))?;
    Ok(Box::new(TokioPool { runtime, hint }))
}

struct TokioPool {
    runtime: tokio::runtime::Runtime,
    hint: BlockingHint,
}

impl Pool<Linux> for TokioPool {
    fn issue(&self, items: &Arc<Items<Linux>>, number: usize) {
        let items = Arc::clone(items);
        let blocks = items.blocks(number);
        match self.hint {
            BlockingHint::Absent => drop(self.runtime.spawn_blocking(move || items.run(number))),
            BlockingHint::PerItem if blocks => {
                drop(self.runtime.spawn_blocking(move || items.run(number)));
            }
            BlockingHint::PerBlock if blocks => drop(self.runtime.spawn(async move {
                items.run_around(number, |block| block_in_place(block));
            })),
            BlockingHint::PerItem | BlockingHint::PerBlock => {
                drop(self.runtime.spawn(async move { items.run(number) }));
            }
        }
    }
}

/// All of them, in the order of the tables.
pub fn others() -> Vec<Contestant<Linux>> {
    let contestant = |row, start| Contestant { row, always: true, start };
    vec![
        closures::<Rayon>(),
        closures::<Tokio>(),
        closures::<AsyncExecutor>(),
        closures::<ThreadPool>(),
        contestant("tokio spawn_blocking, all", |plan| tokio(plan, BlockingHint::Absent)),
        contestant("tokio spawn_blocking, sleepers", |plan| tokio(plan, BlockingHint::PerItem)),
        contestant("tokio block_in_place", |plan| tokio(plan, BlockingHint::PerBlock)),
    ]
}
