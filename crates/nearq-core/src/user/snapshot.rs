//! What runs and what waits now, by the names of functions, for observers.
//!
//! *What runs* is read from the workers' entries: a worker records which function it runs and whose items it serves. The pwq that it
//! serves may be gone when it is read; so it is compared with those of the existing queues, and never followed.
//!
//! *What waits* is on lists that are taken only under a lock: a pool's inbox and list under `ready`, what is held back under the domain's
//! `inactive_queue`. A thread that holds the lock may walk the lists: a node on a list is alive (by `PENDING` or `STALE`), and stays there.
//! Pushers go on meanwhile, in front of what is walked. These locks are the workers': holding one stops the pool's workers from taking
//! more. So no more than [`MOST`](crate::item::wait_snapshot::MOST) nodes are read, nothing is allocated, and names are made afterwards.
//! What is in workers' batches is left out: it may be gone at any time.

use core::time::Duration;

use nearq_platform::{Instant, Platform};

use crate::base::ids::{PoolId, QueueId};
use crate::item::account::Account;
use crate::item::wait_snapshot::WaitSnapshot;
use crate::limit::pool_workqueue::PoolWorkqueue;
use crate::queue::Queue;
use crate::queue::runtime::{Inner, Runtime};
use std::sync::Arc;

/// A queue's number and name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueLabel {
    /// The queue's [number](crate::inspect::QueueView::id).
    pub id: QueueId,
    /// The queue's name.
    pub name: String,
}

impl QueueLabel {
    pub(crate) fn of<P: Platform>(queue: &Queue<P>) -> Self {
        QueueLabel { id: queue.id, name: queue.name.clone() }
    }
}

/// The items that wait; returned by [`Runtime::waiting`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Waiting {
    /// The items, grouped by pool, queue and function.
    pub items: Vec<WaitingItems>,
    /// Whether more items wait than were read.
    pub truncated: bool,
}

/// An item that runs; see [`Runtime::running`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunningItem {
    /// Its queue; `None` if the queue is about to end.
    pub queue: Option<QueueLabel>,
    /// The name of its function.
    pub function: &'static str,
    /// The description that it has set; see [`set_description`](crate::set_description).
    pub description: String,
    /// The name of the worker's thread.
    pub thread: String,
    /// The thread's number in the system's own tools (on Linux, its thread ID).
    pub thread_id: Option<u64>,
    /// The number of the worker's pool.
    pub pool: PoolId,
    /// Whether the worker is a queue's [rescuer](crate::WorkqueueBuilder::rescuer).
    pub rescuer: bool,
    /// The longest time for which it may have run. A worker takes several items at once only if they take less than 20 µs each; the time
    /// counts from there.
    pub at_most: Duration,
}

/// Items of one queue that have the same function and wait in the same pool.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitingItems {
    /// Their queue.
    pub queue: QueueLabel,
    /// The number of the pool whose workers will run them.
    pub pool: PoolId,
    /// The name of their function.
    pub function: &'static str,
    /// How many of the items that were read belong to this group.
    pub count: usize,
    /// Whether the queue's limit holds them back.
    pub inactive: bool,
    /// The longest time that one of them has waited, judged by those that are [timed](Runtime::time_items); `None` if none is.
    pub oldest: Option<Duration>,
}

/// The queue on which an item of that account waits or runs, and its pwq as the queue has it: the pointer is compared, not followed. The
/// pwqs on which nothing is left are not searched: there may be many thousands.
fn owner_of<P: Platform>(
    queues: &[Arc<Queue<P>>],
    account: *const Account<P>,
) -> Option<(&Queue<P>, &PoolWorkqueue<P>)> {
    queues.iter().find_map(|queue| {
        let own = queue.pwqs_in_service().find(|own| core::ptr::eq(own.account(), account))?;
        Some((&**queue, own))
    })
}

/// Groups what was seen in one place by queue and function.
fn fold<P: Platform>(
    snapshot: &WaitSnapshot<P>,
    queues: &[Arc<Queue<P>>],
    inactive: bool,
    pool: Option<PoolId>,
    now: Instant,
    into: &mut Vec<WaitingItems>,
) {
    let first = into.len();
    // Neighbours mostly belong to one queue.
    let mut last: Option<(&Queue<P>, &PoolWorkqueue<P>)> = None;
    for seen in &snapshot.seen {
        let known = last.filter(|(_, pwq)| core::ptr::eq(pwq.account(), seen.account));
        let found = known.or_else(|| owner_of(queues, seen.account));
        let Some((queue, pwq)) = found else { continue };
        last = found;
        let (pool, function) = (pool.unwrap_or(pwq.pool.id), seen.table.name.text());
        let waited = queue.observed.waited(seen.stamp, now);
        let rows = &mut into[first..];
        let same = rows
            .iter_mut()
            .find(|row| row.queue.id == queue.id && row.pool == pool && row.function == function);
        match same {
            Some(row) => {
                row.count += 1;
                row.oldest = row.oldest.max(waited);
            }
            None => into.push(WaitingItems {
                queue: QueueLabel::of(queue),
                pool,
                function,
                count: 1,
                inactive,
                oldest: waited,
            }),
        }
    }
}

impl<P: Platform> Runtime<P> {
    /// Returns the items that run now. Work goes on meanwhile, so an item that ends during the call may or may not be included.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Runtime, Workqueue};
    /// use std::{thread::sleep, time::Duration};
    ///
    /// let queue = Workqueue::builder("busy").build()?;
    /// let (begun, has_begun) = std::sync::mpsc::channel();
    /// let item = queue.spawn(move || {
    ///     begun.send(()).unwrap();
    ///     sleep(Duration::from_millis(50));
    /// });
    /// has_begun.recv().unwrap();
    /// for item in Runtime::global().running() {
    ///     println!("{} has run in {} for at most {:?}", item.function, item.thread, item.at_most);
    /// }
    /// item.join().unwrap();
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn running(&self) -> Vec<RunningItem> {
        let inner = self.inner();
        let queues = inner.live_queues();
        let now = P::now();
        let busy =
            inner.services.workers.iter().filter(|worker| worker.is_alive() && worker.is_in_item());
        busy.filter_map(|worker| {
            let began = worker.began();
            let account = worker.account();
            Some(RunningItem {
                queue: owner_of(&queues, account).map(|(queue, _)| QueueLabel::of(queue)),
                function: worker.function()?,
                description: worker.description(),
                thread: worker.name(),
                thread_id: worker.thread.lock().map(P::thread_id),
                pool: worker.pool().id,
                rescuer: worker.rescues(),
                at_most: now - began,
            })
        })
        .collect()
    }

    /// Returns the items that wait now, for workers or because a limit holds them back, grouped by function.
    ///
    /// At most 512 items are read in each pool, and in each [domain](crate::inspect::Domain) of each queue. Items that a worker has taken
    /// together with the one that it runs are left out. During the call, a worker that wants its next items may have to wait for some 10
    /// µs.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// for items in nearq::Runtime::global().waiting().items {
    ///     let why = if items.inactive { "is held back" } else { "waits for a worker" };
    ///     println!("{} of queue {} {why}, {} times", items.function, items.queue.name, items.count);
    /// }
    /// ```
    pub fn waiting(&self) -> Waiting {
        self.inner().waiting()
    }
}

impl<P: Platform> Inner<P> {
    fn waiting(&self) -> Waiting {
        let queues = self.live_queues();
        let now = P::now();
        let (mut rows, mut more) = (Vec::new(), false);
        for pool in self.pools_in_service() {
            let mut snapshot = WaitSnapshot::new();
            pool.see_waiting(&mut snapshot);
            more |= snapshot.is_full();
            fold(&snapshot, &queues, false, Some(pool.id), now, &mut rows);
        }
        for queue in &queues {
            for domain in queue.domains() {
                let mut snapshot = WaitSnapshot::new();
                domain.see_inactive(&mut snapshot);
                more |= snapshot.is_full();
                fold(&snapshot, &queues, true, None, now, &mut rows);
            }
        }
        Waiting { items: rows, truncated: more }
    }
}
