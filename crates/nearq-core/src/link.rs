//! A link: one workqueue on one pool. Where an item is counted.
//!
//! A queue's links are never freed before the queue: a change of attributes that comes back to an earlier pool finds
//! its link again, so their number is bounded by the pools that the queue has ever used, and an issuer that read the
//! old table a moment ago still counts in the right place.

use core::time::Duration;
use std::sync::Arc;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use crate::admission::Admission;
use crate::credits::Credits;
use crate::inbox::Inbox;
use crate::item::Item;
use crate::pad::Padded;
use crate::pool::Pool;
use crate::queue::Queue;

/// Counters are spread over this many cache lines at most, so that workers of one pool seldom share one.
const STRIPES: usize = 8;

/// What the workers of one stripe have counted.
struct Stripe<P: Platform> {
    completed: P::AtomicU64,
    panicked: P::AtomicU64,
    helped: P::AtomicU64,
    repatriated: P::AtomicU64,
    cpu_nanos: P::AtomicU64,
}

/// One workqueue on one pool.
pub(crate) struct Link<P: Platform> {
    pub(crate) queue: *const Queue<P>,
    /// The domain of the queue in which its items are counted.
    admission: *const Admission<P>,
    pub(crate) pool: Arc<Pool<P>>,
    /// Items run on the CPU that queued them, where a worker can.
    localize: P::AtomicU32,
    /// Items that may be let in without a look at the domain's limit.
    pub(crate) credits: Padded<Credits<P>>,
    /// Items beyond the domain's limit.
    pub(crate) inactive: Padded<Inbox<P>>,
    stripes: Box<[Padded<Stripe<P>>]>,
    /// Items that were let in, and cancelled before they ran.
    cancelled: P::AtomicU64,
    /// The queue's next link; see `Queue::links`.
    pub(crate) next: P::AtomicPtr<Link<P>>,
    /// The domain's next link; see `Admission::links`.
    pub(crate) next_of_domain: P::AtomicPtr<Link<P>>,
}

// SAFETY: `queue` points to the queue that owns the link and outlives it, `admission` to a part of that queue; the rest is
// `Sync` by itself.
unsafe impl<P: Platform> Sync for Link<P> {}
// SAFETY: as above.
unsafe impl<P: Platform> Send for Link<P> {}

impl<P: Platform> Link<P> {
    pub(crate) fn new(
        queue: *const Queue<P>,
        admission: *const Admission<P>,
        pool: Arc<Pool<P>>,
    ) -> Self {
        let stripes = pool.key.pod.len().next_power_of_two().clamp(1, STRIPES);
        let stripe = || {
            Padded(Stripe {
                completed: P::AtomicU64::new(0),
                panicked: P::AtomicU64::new(0),
                helped: P::AtomicU64::new(0),
                repatriated: P::AtomicU64::new(0),
                cpu_nanos: P::AtomicU64::new(0),
            })
        };
        Link {
            queue,
            admission,
            pool,
            localize: P::AtomicU32::new(0),
            credits: Padded(Credits::new()),
            inactive: Padded(Inbox::new()),
            stripes: (0..stripes).map(|_| stripe()).collect(),
            cancelled: P::AtomicU64::new(0),
            next: P::AtomicPtr::new(core::ptr::null_mut()),
            next_of_domain: P::AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// The queue that the link belongs to.
    #[inline]
    pub(crate) fn queue(&self) -> &Queue<P> {
        // SAFETY: a queue outlives its links, and whoever has the link keeps the queue from being freed: by a handle,
        // by an item that is queued there, or by `Worker::set_link`.
        unsafe { &*self.queue }
    }

    /// The domain in which its items are counted.
    #[inline]
    pub(crate) fn admission(&self) -> &Admission<P> {
        // SAFETY: domains live as long as their queue; as `queue`.
        unsafe { &*self.admission }
    }

    #[inline]
    fn stripe(&self, worker: u32) -> &Stripe<P> {
        &self.stripes[worker as usize & (self.stripes.len() - 1)]
    }

    /// Counts one execution that has ended, as the last thing that is done for it.
    #[inline]
    pub(crate) fn count_completed(&self, worker: u32) {
        // SeqCst: Dekker's pattern with `Admission::close`. Release: whoever reads the sum sees what the item did.
        self.stripe(worker).completed.fetch_add(1, Ordering::SeqCst);
    }

    #[cold]
    pub(crate) fn count_panicked(&self, worker: u32) {
        self.stripe(worker).panicked.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn count_helped(&self, worker: u32) {
        self.stripe(worker).helped.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn count_repatriated(&self, worker: u32) {
        self.stripe(worker).repatriated.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn count_cpu_time(&self, worker: u32, nanos: u64) {
        self.stripe(worker).cpu_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Counts one item that was let in and cancelled.
    pub(crate) fn count_cancelled(&self) {
        // SeqCst: as in `count_completed`.
        self.cancelled.fetch_add(1, Ordering::SeqCst);
    }

    /// Items that were let in and are over: executions that have ended, and what was cancelled. Never more than there were,
    /// and those counted before a `SeqCst` fence or operation of the caller are in it.
    pub(crate) fn completed(&self) -> u64 {
        let stripes = self.stripes.iter();
        stripes.map(|stripe| stripe.completed.load(Ordering::SeqCst)).sum::<u64>()
            + self.cancelled.load(Ordering::SeqCst)
    }

    #[inline]
    pub(crate) fn localizes(&self) -> bool {
        self.localize.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn set_localize(&self, localize: bool) {
        self.localize.store(u32::from(localize), Ordering::Relaxed);
    }

    /// Puts an item that is admitted onto the pool. The caller has its `PENDING`, and its target is this link.
    #[inline]
    pub(crate) fn push(&self, item: core::ptr::NonNull<Item<P>>) {
        self.pool.push(item);
    }

    /// The counters, for a reader.
    pub(crate) fn statistics(&self) -> LinkStatistics {
        let sum = |counter: fn(&Stripe<P>) -> &P::AtomicU64| {
            self.stripes.iter().map(|stripe| counter(stripe).load(Ordering::Relaxed)).sum::<u64>()
        };
        // First what has ended, then what runs: an item that ends in between counts twice for a moment, never not at all.
        let completed = sum(|stripe| &stripe.completed);
        let running = self.pool.workers_of(core::ptr::from_ref(self));
        LinkStatistics {
            pool: self.pool.id,
            pod: self.pool.key.pod.clone(),
            started: completed + running,
            completed,
            panicked: sum(|stripe| &stripe.panicked),
            cpu_time: Duration::from_nanos(sum(|stripe| &stripe.cpu_nanos)),
            repatriated: sum(|stripe| &stripe.repatriated),
            helped: sum(|stripe| &stripe.helped),
        }
    }
}

/// What has happened on one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStatistics {
    /// The pool's number, as in its workers' names.
    pub pool: u32,
    /// The CPUs of the pod.
    pub pod: nearq_topology::CpuSet,
    /// Executions that have begun; may count one too many for a moment per worker.
    pub started: u64,
    /// Executions that have ended.
    pub completed: u64,
    /// Executions that ended in a panic; they count as completed too.
    pub panicked: u64,
    /// CPU time of the workers while they served this link. Counted when a worker pauses, at the latest every
    /// 10 ms between two items; a worker that served several links in that time divides it by the number of items.
    pub cpu_time: Duration,
    /// How often a worker was brought back into its pod before an item.
    pub repatriated: u64,
    /// Executions by workers of other pods.
    pub helped: u64,
}
