//! nearq as a contestant: the only file here, beside the detection's, that knows how its library is called.

use super::contestant::{Contestant, Plan, Pool};
use super::items::Items;
use crate::Error;
use crate::harness::Host;
use nearq::{Runtime, Workqueue};
use nearq_platform::{Atomic as _, AtomicInt as _, Ordering};
use std::sync::Arc;

/// Our rows.
pub const PLAIN: &str = "nearq";
/// The same with what blocks inside `nearq::blocking`.
pub const HINTED: &str = "nearq, blocking()";

/// A workqueue that is default in all but its CPUs, on a runtime of its own.
#[derive(Debug)]
pub(super) struct Nearq {
    /// Whether items say when they block.
    pub(super) hints: bool,
}

impl<P: Host> Contestant<P> for Nearq {
    fn row(&self) -> &'static str {
        if self.hints { HINTED } else { PLAIN }
    }

    fn always(&self) -> bool {
        true
    }

    fn start(&self, plan: &Plan) -> Result<Box<dyn Pool<P>>, Error> {
        let failed = |error: nearq::Error| Error::run(error.to_string());
        let tally = Arc::new(Tally::<P>::default());
        let (start, stop) = (Arc::clone(&tally), Arc::clone(&tally));
        let runtime = Runtime::<P>::builder_in()
            .on_worker_start(move |_| start.more())
            .on_worker_stop(move |_| stop.less())
            .build()
            .map_err(failed)?;
        let queue = runtime.workqueue("blocking").cpumask(plan.cpus.clone()).build_in();
        let queue = queue.map_err(failed)?;
        Ok(Box::new(Queue { queue, runtime, tally, hints: self.hints }))
    }
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
            let hinted = move || items.run_around(number, |block| runtime.blocking(block));
            drop(self.queue.spawn(hinted));
        } else {
            drop(self.queue.spawn(move || items.run(number)));
        }
    }

    fn threads(&self) -> Option<u64> {
        Some(self.tally.most.load(Ordering::Relaxed))
    }
}

/// Workers that are there, and that were at most.
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
