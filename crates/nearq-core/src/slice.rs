//! The vertical slice: one inbox, one worker, park and unpark, on every platform.
//!
//! It is the shortest way through the house that meets all walls, made of the runtime's own parts. The tests run it on
//! Linux, on the simulated machine and under the model checker; `examples/slice_cost.rs` counts its instructions
//! beside a version written by hand for Linux.

use core::ptr::NonNull;
use std::sync::Arc;

use nearq_platform::{Atomic, AtomicInt, Ordering, Parker, Platform, ThreadSpec};

use crate::item::inbox::Inbox;
use crate::item::{Epoch, Finished, Item, Started};
use crate::pool::idle::{Idle, Wakeup};
use crate::pool::worker::{Table, Worker};
use crate::task::work::Work;

/// One pool with one worker.
pub struct Slice<P: Platform> {
    inbox: Inbox<P>,
    idle: Idle<P>,
    table: Table<P>,
    epoch: Epoch,
}

impl<P: Platform> Slice<P> {
    /// A slice whose worker searches.
    ///
    /// # Panics
    /// Never: the table has room for one worker.
    pub fn new() -> Self {
        let table = Table::new();
        table.add(|index| Worker::new(index, core::ptr::null())).expect("the table is empty");
        let idle = Idle::new();
        idle.begin_search();
        Slice { inbox: Inbox::new(), idle, table, epoch: Epoch::now::<P>() }
    }

    fn worker(&self) -> &Worker<P> {
        self.table.get(0)
    }

    /// Queues the item; false if it is pending. Wakes the worker if it sleeps.
    #[inline]
    pub fn queue(&self, work: &Work<P>) -> bool {
        // SAFETY: the handle keeps the item alive.
        let Some(item) = (unsafe { Item::claim(work.item(), self.epoch) }) else {
            return false;
        };
        // SAFETY: as above.
        let header = unsafe { item.as_ref() };
        header.set_target(core::ptr::null(), crate::item::Spot::of_cpu(0));
        if header.publish() {
            self.push(item);
        }
        true
    }

    #[inline]
    fn push(&self, item: NonNull<Item<P>>) {
        self.inbox.push(item);
        if let Wakeup::Worker(worker) = self.idle.pop_to_wake(&self.table, || false) {
            worker.parker.unpark();
        }
    }

    /// The worker's part: runs what is there; returns how many items that was.
    #[inline]
    pub fn run(&self) -> usize {
        let mut items = self.inbox.take_all();
        let count = items.len();
        while let Some(item) = items.pop_front() {
            // SAFETY: it came off the list, so we have its PENDING, which keeps it alive.
            let header = unsafe { item.as_ref() };
            assert!(header.start() == Started::Yes, "nobody cancels or locks it");
            // SAFETY: its RUNNING is ours, and the table is the item's own.
            if unsafe { (header.table().execute)(item) }.deferred
                // SAFETY: as above.
                && unsafe { item.as_ref() }.finish_deferred(core::ptr::null()) == Finished::Deferred
            {
                self.push(item);
            }
        }
        count
    }

    /// The worker's part: sleeps until there is something.
    pub fn rest(&self) {
        let worker = self.worker();
        worker.set_idle();
        self.idle.settle(worker);
        if !self.inbox.is_empty()
            && let Wakeup::Worker(worker) = self.idle.pop_to_wake(&self.table, || false)
        {
            worker.parker.unpark();
        }
        while worker.is_idle() {
            worker.parker.park(None);
        }
    }

    /// Where the worker sleeps.
    pub fn parker(&self) -> &Parker<P> {
        &self.worker().parker
    }
}

impl<P: Platform> Default for Slice<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// Queues one item from `issuers` threads, `rounds` times each, while a worker runs it; checks that each successful queueing
/// led to an execution, and that what was written before it was visible.
///
/// # Panics
/// If not.
pub fn check<P: Platform>(issuers: u32, rounds: u32) {
    let slice = Arc::new(Slice::<P>::new());
    let queued = Arc::new(P::AtomicU32::new(0));
    let ran = Arc::new(P::AtomicU32::new(0));
    let announced = Arc::new(P::AtomicU32::new(0));
    let (count, seen) = (Arc::clone(&ran), Arc::clone(&announced));
    let done = Arc::new(P::AtomicU32::new(0));
    let last = Arc::new(P::AtomicU32::new(0));
    let noted = Arc::clone(&last);
    let work = Work::<P>::new_in(move |_: &Work<P>| {
        count.fetch_add(1, Ordering::Relaxed);
        noted.store(seen.load(Ordering::Relaxed), Ordering::Relaxed);
    });
    let server = {
        let (slice, done) = (Arc::clone(&slice), Arc::clone(&done));
        P::spawn(ThreadSpec::default(), move || {
            loop {
                if slice.run() != 0 {
                    continue;
                }
                if done.load(Ordering::Acquire) != 0 && slice.inbox.is_empty() {
                    return;
                }
                slice.rest();
            }
        })
        .expect("a thread can be started")
    };
    let spawned: Vec<_> = (0..issuers)
        .map(|_| {
            let (slice, work, queued) = (Arc::clone(&slice), work.clone(), Arc::clone(&queued));
            let announced = Arc::clone(&announced);
            P::spawn(ThreadSpec::default(), move || {
                for _ in 0..rounds {
                    // Whatever `queue` answers, an execution that is yet to come sees this.
                    announced.fetch_add(1, Ordering::Relaxed);
                    queued.fetch_add(u32::from(slice.queue(&work)), Ordering::Relaxed);
                }
            })
            .expect("a thread can be started")
        })
        .collect();
    for issuer in spawned {
        P::join(issuer);
    }
    // Release: pairs with the acquire in the server. The last item wakes it in any case.
    done.store(1, Ordering::Release);
    let end = Work::<P>::new_in(|_: &Work<P>| {});
    assert!(slice.queue(&end));
    P::join(server);
    // The server may have been gone before the last item came.
    slice.run();
    assert_eq!(
        ran.load(Ordering::Relaxed),
        queued.load(Ordering::Relaxed),
        "an execution for each queueing"
    );
    assert_eq!(
        last.load(Ordering::Relaxed),
        issuers * rounds,
        "the last execution saw everything announced"
    );
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn on_linux() {
        for _ in 0..20 {
            check::<nearq_platform::Linux>(2, if cfg!(miri) { 5 } else { 1000 });
        }
    }

    #[test]
    #[cfg(not(miri))] // its coroutines are assembler
    fn on_a_simulated_machine() {
        for seed in 0..20 {
            let machine = nearq_topology::Topology::from_synthetic("pack:1 l3:2 core:4 pu:1");
            nearq_sim::Simulation::new(machine.unwrap(), seed)
                .run(|| check::<nearq_sim::Sim>(4, 50))
                .expect();
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn under_the_model_checker() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(nearq_model::bound(2, 3));
        model.check(|| check::<nearq_model::Loom>(1, 2));
    }
}
