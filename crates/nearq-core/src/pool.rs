//! A pool: the workers that serve one pod with one set of attributes, and the items that wait for them.
//!
//! # Which thread may do what
//! * Any thread pushes onto `inbox` and wakes a worker (`idle`), without a lock.
//! * A worker takes items under `ready`'s lock, a batch at a time: first from the list, and if that is empty, all of the inbox. The
//!   runtime's own items, which check limits (`activation_item`), come before all others, because items of this and of other pools wait for
//!   them.
//! * A worker that finds neither takes back what other workers of the pool have in their batches. If there is always something to do, no
//!   worker gets that far; so a worker that declares that it blocks puts its batch back first, and the monitor does it for a worker that
//!   has been in one item for long (`relieve`).
//! * Workers of sibling pools (same nice, same mask, other pod) help: they take from the list, nearest pool first. A machine has many
//!   pools, and each line that helpers read is taken from the threads that write it. So they read two lines of a pool: its inbox, and what
//!   is written once a batch (`listed`). They read batches only if a worker has taken several items at once (`loaded`).
//!
//! # How many workers
//! `max_running` is the number of workers that may be awake at once: the CPUs of the pod, and one more for each worker that the monitor
//! sees asleep inside its item (`balance`; only the monitor changes it). Workers that have declared that they block count as asleep
//! already; there may be one more thread for each of them (`away`). No worker is woken while as many are awake as may be. If there are
//! more, because one has come back, one of them leaves at the end of its batch. A leaving worker decrements `awake`, then reads the inbox;
//! a pusher pushes, then reads `awake`. All are `SeqCst`.
//!
//! A worker that begins a batch ensures that one more worker exists, asleep, until there are as many threads as may be awake: so a pusher
//! finds a worker to wake, and starts a thread itself only in a pool that has none.
//!
//! Pools live as long as the runtime. The threads of a pool that no queue uses any more end soon, and are not called to help other pools
//! (`threads`); if there are many such pools, the monitor does not check them (`service`).
//!
//! # The folder
//! Imports `base`, `homes`, `layout` and `item`; calls the runtime through a trait (`services`). README.md in the folder lists the races.
//!
//! | file | what it holds |
//! |---|---|
//! | `calling`, `siblings`, `homes` | which worker a pusher wakes; pools that help; helpers for items with homes |
//! | `threads`, `members`, `hooks`, `spawn_failure` | a pool's threads and entries; start hooks; what to do if none can be started |
//! | `worker`, `worker_slab`, `context`, `affinity` | a worker as other threads see it; all of them; a worker as it sees itself; where it may run |
//! | `idle`, `concurrency_limit` | which workers sleep, and which is woken; how many run at once |
//! | `service`, `services`, `alarm` | whether the monitor checks the pool; what all pools share; what wakes the monitor |
//! | `homed` | how many items with homes wait |
//! | `forking` | the deques of workers whose items fork; whether only optional items wait |
//!
//! `pool`, `worker`, `worker_slab`, `idle`, `concurrency_limit` and `services` form a circle, because each of them takes part in deciding
//! which workers are awake. The folder owns the lock of the list (`ready`), those of a concurrency limit and of a worker's entry; the words
//! `awake`, `max_running`, `short_runners` and `queued_at_level`, the stack of idle workers, a worker's status, and `armed`.

pub(crate) mod affinity;
pub(crate) mod alarm;
mod calling;
pub(crate) mod concurrency_limit;
pub(crate) mod context;
mod forking;
mod homed;
pub(crate) mod homes;
mod hooks;
pub(crate) mod idle;
mod members;
mod service;
pub(crate) mod services;
mod siblings;
pub(crate) mod spawn_failure;
mod threads;
mod wake;
pub(crate) mod worker;
pub(crate) mod worker_slab;

use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use crate::base::forked;
use crate::base::ids::PoolId;
use crate::base::pad::Padded;
use crate::item::account::Account;
use crate::item::batch::CAPACITY;
use crate::item::inbox::Inbox;
use crate::item::list::List;
use crate::item::owned::Pending;
use crate::item::wait_snapshot::WaitSnapshot;
use crate::item::{Item, Started};
use crate::layout::attributes::PoolKey;
use crate::pool::concurrency_limit::{ConcurrencyLimit, leave};
use crate::pool::idle::Idle;
use crate::pool::worker::Worker;

use homed::Homed;
use members::Members;
use services::Services;
use spawn_failure::SpawnFailure;

/// The monitor checks the pool (`service`).
const IN_SERVICE: u32 = 0;

/// This many cancelled nodes may be on a pool's lists even if there are fewer others: some 100 KiB.
const MANY_STALE: usize = 1024;

/// The workers of one pod, and their work.
pub(crate) struct Pool<P: Platform> {
    pub(crate) id: PoolId,
    pub(crate) key: PoolKey,
    /// The number of CPUs of its pod, and of cores.
    cpus: u32,
    cores: u32,
    /// The number of the node that its pod lies in; none if the pod does not lie in one node.
    pub(crate) node: Option<u32>,
    pub(crate) concurrency: Arc<ConcurrencyLimit<P>>,
    services: *const Services<P>,
    arrivals: Padded<Arrivals<P>>,
    idle: Padded<Idle<P>>,
    listed: Padded<Listed<P>>,
    called: Padded<Called<P>>,
    homed: Padded<Homed<P>>,
    /// Threads that belong to the pool.
    workers: P::AtomicU32,
    /// Workers that have declared that they block: there may be that many more threads than `max_running`.
    away: P::AtomicU32,
    /// Workers in their start hooks.
    hooked: P::AtomicU32,
    /// Workers whose items fork.
    forking: P::AtomicU32,
    /// Queues whose items come here now (`threads`).
    users: P::AtomicU32,
    /// Whether the monitor checks the pool (`service`).
    service: P::AtomicU32,
    /// Nodes that were cancelled while they were on its lists, since those were last tidied. Too high if workers have taken some of them
    /// off.
    stale: P::AtomicU32,
    /// Whether its workers can be started.
    pub(crate) spawn_failure: SpawnFailure<P>,
    /// The entries that it has used, newest first (`threads`).
    members: Members<P, Worker<P>>,
    /// The pools that it helps, nearest first. Replaced when a pool is added; the old ones are kept by the runtime.
    siblings: P::AtomicPtr<Vec<*const Pool<P>>>,
}

/// What pushers write.
struct Arrivals<P: Platform> {
    inbox: Inbox<P>,
    /// The runtime's own items.
    activations: Inbox<P>,
}

/// What workers write once a batch.
struct Listed<P: Platform> {
    /// Items taken off the inbox and not yet into a batch.
    ready: Mutex<List<P>, P>,
    /// The list's length, written under its lock, for threads that do not hold the lock.
    len: P::AtomicU32,
    /// Workers that have taken several items at once and have not run them all.
    loaded: P::AtomicU32,
    /// Items that went into batches, written under the lock: changes while the pool makes progress.
    taken: P::AtomicU64,
}

/// What every pusher reads.
struct Called<P: Platform> {
    /// Whether the pool waits for a place of its concurrency limit.
    queued_for_place: P::AtomicU32,
    /// Workers that run short items one after the other; see "Workers that run short items" in `calling`.
    short_runners: P::AtomicU32,
    /// Workers that have a place of the concurrency limit: they run items or search for some.
    awake: P::AtomicU32,
    /// How many may be awake at once. Written by the monitor only.
    max_running: P::AtomicU32,
    /// Whether a localised queue has used the pool, and the place in the pod near which the next worker wakes up that is brought back:
    /// see `wake`.
    localised: P::AtomicU32,
    wake_turn: P::AtomicU32,
}

// SAFETY: several threads may follow the pointers at once: they point to the runtime, which owns the pool, and to what the runtime shares
// by design.
unsafe impl<P: Platform> Sync for Pool<P> {}
// SAFETY: the runtime, which owns the pool, keeps what the pointers point to alive as long as itself, whichever thread has the pool.
unsafe impl<P: Platform> Send for Pool<P> {}

impl<P: Platform> Pool<P> {
    pub(crate) fn new(
        id: PoolId,
        key: PoolKey,
        cores: usize,
        node: Option<u32>,
        concurrency: Arc<ConcurrencyLimit<P>>,
        services: *const Services<P>,
    ) -> Self {
        let cpus = key.pod.len().max(1) as u32;
        Pool {
            id,
            key,
            cpus,
            cores: cores.max(1) as u32,
            node,
            concurrency,
            services,
            arrivals: Padded(Arrivals { inbox: Inbox::new(), activations: Inbox::new() }),
            idle: Padded(Idle::new()),
            listed: Padded(Listed {
                ready: Mutex::new_in(List::new()),
                len: P::AtomicU32::new(0),
                loaded: P::AtomicU32::new(0),
                taken: P::AtomicU64::new(0),
            }),
            called: Padded(Called {
                queued_for_place: P::AtomicU32::new(0),
                short_runners: P::AtomicU32::new(0),
                awake: P::AtomicU32::new(0),
                max_running: P::AtomicU32::new(cpus),
                localised: P::AtomicU32::new(0),
                wake_turn: P::AtomicU32::new(0),
            }),
            homed: Padded(Homed::new()),
            workers: P::AtomicU32::new(0),
            away: P::AtomicU32::new(0),
            hooked: P::AtomicU32::new(0),
            forking: P::AtomicU32::new(0),
            users: P::AtomicU32::new(0),
            service: P::AtomicU32::new(IN_SERVICE),
            stale: P::AtomicU32::new(0),
            spawn_failure: SpawnFailure::new(),
            members: Members::new(),
            siblings: P::AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// What it shares with all pools of the runtime.
    pub(crate) fn services(&self) -> &Services<P> {
        // SAFETY: they are a part of the runtime, which owns its pools, and a thread that has a pool keeps the runtime alive.
        unsafe { &*self.services }
    }

    // ---- pushing ---------------------------------------------------------------------------------------

    /// Puts an item on the pool and ensures that a worker comes for it.
    #[inline]
    pub(crate) fn push(&self, item: Pending<P>) {
        self.arrivals.inbox.push(item);
        self.call_worker();
    }

    /// As [`push`](Self::push), of an item of the runtime itself, which comes before all others.
    pub(crate) fn push_activation(&self, item: Pending<P>) {
        self.arrivals.activations.push(item);
        self.call_worker();
    }

    /// Whether as many workers are awake as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.called.awake.load(Ordering::SeqCst) >= self.called.max_running.load(Ordering::SeqCst)
    }

    // ---- which workers are awake ------------------------------------------------------------------------

    /// A worker has got a place of the concurrency limit, or has lost it.
    pub(crate) fn change_awake(&self, more: bool) {
        if more {
            self.called.awake.fetch_add(1, Ordering::SeqCst);
        } else {
            // SeqCst: Dekker's pattern with a pusher; the caller reads the inbox afterwards.
            self.called.awake.fetch_sub(1, Ordering::SeqCst);
            P::model_fence();
        }
    }

    /// Whether more are awake than may be.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.called.awake.load(Ordering::Relaxed) > self.max_running()
    }

    /// Stops counting the caller as awake if more are awake than may be.
    pub(crate) fn leave_if_over(&self) -> bool {
        leave::<P>(&self.called.awake, || self.max_running())
    }

    /// How many may be awake at once.
    pub(crate) fn max_running(&self) -> u32 {
        self.called.max_running.load(Ordering::Relaxed)
    }

    /// Workers that are awake.
    pub(crate) fn awake(&self) -> u32 {
        self.called.awake.load(Ordering::Relaxed)
    }

    /// Sets how many may be awake at once; a caller that raises it calls a worker afterwards. By the monitor only.
    pub(crate) fn set_max_running(&self, max_running: u32) {
        self.called.max_running.store(max_running, Ordering::SeqCst);
        P::model_fence();
    }

    /// CPUs of the pod.
    pub(crate) fn cpus(&self) -> u32 {
        self.cpus
    }

    /// The caller begins to run short items one after the other, or stops doing so; then it reads the inbox.
    pub(crate) fn change_short_runners(&self, runs_short: bool) {
        if runs_short {
            self.called.short_runners.fetch_add(1, Ordering::SeqCst);
        } else {
            self.called.short_runners.fetch_sub(1, Ordering::SeqCst);
            P::model_fence();
        }
    }

    /// Whether pushers wake no worker because one runs short items.
    pub(crate) fn has_short_runner(&self) -> bool {
        self.called.short_runners.load(Ordering::SeqCst) != 0
    }

    /// Items on the list, not counting the inbox.
    pub(crate) fn listed(&self) -> u32 {
        self.listed.len.load(Ordering::Relaxed)
    }

    // ---- taking ----------------------------------------------------------------------------------------

    /// Whether something waits on the inbox or the list.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.arrivals.inbox.is_empty()
            || self.listed.len.load(Ordering::SeqCst) != 0
            || !self.arrivals.activations.is_empty()
    }

    /// Moves waiting items into `worker`'s empty batch, at most `limit`, leaving the other workers their share.
    pub(crate) fn take(&self, worker: &Worker<P>, limit: usize) -> usize {
        if !self.has_work() {
            return 0;
        }
        let listed = &*self.listed;
        let mut ready = listed.ready.lock();
        if ready.is_empty() {
            *ready = self.arrivals.inbox.take_all();
        }
        self.put_activations_first(&mut ready);
        let share = ready.len().div_ceil(self.cpus as usize);
        let moved = worker.fill(&mut ready, share.min(limit).max(1));
        listed.len.store(ready.len() as u32, Ordering::SeqCst);
        listed.taken.store(listed.taken.load(Ordering::Relaxed) + moved as u64, Ordering::Relaxed);
        moved
    }

    /// Moves everything from the inbox onto the list.
    fn gather(&self, ready: &mut List<P>) {
        ready.append(&mut self.arrivals.inbox.take_all());
        self.put_activations_first(ready);
    }

    /// Moves the runtime's own items to the front of the list.
    fn put_activations_first(&self, ready: &mut List<P>) {
        if !self.arrivals.activations.is_empty() {
            let mut activations = self.arrivals.activations.take_all();
            activations.append(ready);
            core::mem::swap(&mut activations, ready);
        }
    }

    /// Takes items that another worker of this pool has not started into `worker`'s empty batch.
    pub(crate) fn take_back(&self, worker: &Worker<P>) -> usize {
        for other in self.entries() {
            if core::ptr::eq(other, worker) || other.batch.len() == 0 {
                continue;
            }
            let mut items = List::new();
            if other.steal(self, &mut items) != 0 {
                return worker.fill(&mut items, CAPACITY);
            }
        }
        0
    }

    /// Takes the first item that is wanted, for a rescuer. Wanted items are first on the list from now on, and what was in batches is on
    /// the list. Not counted as taken: see `run/rescue`.
    pub(crate) fn take_one(&self, wanted: impl Fn(&Item<P>) -> bool) -> Option<Pending<P>> {
        if !self.has_waiting() {
            return None;
        }
        let listed = &*self.listed;
        let mut ready = listed.ready.lock();
        for worker in self.entries() {
            self.unbatch(worker, &mut ready);
        }
        self.gather(&mut ready);
        if !ready.front().is_some_and(&wanted) {
            ready.prefer(&wanted);
        }
        let item = if ready.front().is_some_and(&wanted) { ready.pop_front() } else { None };
        listed.len.store(ready.len() as u32, Ordering::SeqCst);
        item
    }

    /// Moves what is in the worker's batch to the front of the list.
    fn unbatch(&self, worker: &Worker<P>, ready: &mut List<P>) {
        let mut batch = List::new();
        let mut half = List::new();
        // The youngest half comes first.
        while worker.steal(self, &mut half) != 0 {
            half.append(&mut batch);
            core::mem::swap(&mut half, &mut batch);
        }
        batch.append(ready);
        core::mem::swap(ready, &mut batch);
    }

    /// Puts back what the worker, which has been in an item for long, has not started, so that other workers find it. True if there was
    /// something. Does nothing if the list is in use, unless the caller may `wait` for that.
    #[cold]
    pub(crate) fn relieve(&self, worker: &Worker<P>, wait: bool) -> bool {
        let listed = &*self.listed;
        let guard = if wait { Some(listed.ready.lock()) } else { listed.ready.try_lock() };
        let Some(mut ready) = guard else { return false };
        let before = ready.len();
        self.unbatch(worker, &mut ready);
        let moved = ready.len() != before;
        listed.len.store(ready.len() as u32, Ordering::SeqCst);
        drop(ready);
        if moved {
            self.call_worker();
        }
        moved
    }

    /// Counts the node of a cancelled queueing, which stays on one of the lists until a worker takes it off or the lists are tidied.
    pub(crate) fn count_stale(&self) {
        self.stale.fetch_add(1, Ordering::Relaxed);
    }

    /// Throws cancelled nodes away if there are many: workers that are busy for long take none off, and an item that is cancelled and
    /// queued again leaves one each time. By the monitor. It may pass as many other nodes as cancelled ones.
    pub(crate) fn tidy(&self) {
        let listed = &*self.listed;
        let stale = self.stale.load(Ordering::Relaxed) as usize;
        if stale < MANY_STALE.max(listed.len.load(Ordering::Relaxed) as usize / 2) {
            return;
        }
        // A worker that holds it is about to take something.
        let Some(mut ready) = listed.ready.try_lock() else { return };
        self.stale.store(0, Ordering::Relaxed);
        self.gather(&mut ready);
        let all = ready.len();
        let mut thrown = ready.extract(Item::is_stale, all, all);
        listed.len.store(ready.len() as u32, Ordering::SeqCst);
        drop(ready);
        while let Some(item) = thrown.pop_front() {
            match item.start() {
                Started::Free(item) => item.free(),
                Started::Cancelled => {}
                _ => unreachable!("a cancelled node is not made fresh again"),
            }
        }
        if self.has_work() {
            // A thread that checked in between has seen neither.
            self.call_again();
        }
    }

    /// Records what waits; see `snapshot`.
    pub(crate) fn see_waiting(&self, snapshot: &mut WaitSnapshot<P>) {
        let ready = self.listed.ready.lock();
        // SAFETY: the lists keep their items alive; only the thread that has the lock takes some, and this one has it.
        unsafe { snapshot.note(ready.nodes().chain(self.arrivals.inbox.nodes())) };
    }

    /// Whether a worker may have more in its batch than the item that it runs. A worker that is asleep in an item may have been relieved of
    /// the rest.
    pub(super) fn has_loaded(&self) -> bool {
        self.listed.loaded.load(Ordering::Relaxed) != 0
    }

    /// A worker takes several items at once, or has run or lost all of them.
    pub(crate) fn change_loaded(&self, more: bool) {
        if more {
            self.listed.loaded.fetch_add(1, Ordering::Relaxed);
        } else {
            self.listed.loaded.fetch_sub(1, Ordering::Relaxed);
        }
    }

    // ---- sleeping and waking ---------------------------------------------------------------------------

    pub(crate) fn idle(&self) -> &Idle<P> {
        &self.idle
    }

    /// Spins until the inbox has something.
    pub(crate) fn spin(&self, budget: u32) -> bool {
        self.arrivals.inbox.spin(budget)
    }

    // ---- what is seen from outside ---------------------------------------------------------------------

    /// Workers that serve the account now.
    pub(crate) fn workers_of(&self, account: *const Account<P>) -> u64 {
        let serves =
            |worker: &&Worker<P>| worker.account() == account && worker.function().is_some();
        self.entries().filter(serves).count() as u64
    }

    /// A worker is about to block, or has come back from blocking: another one may take its place meanwhile.
    pub(crate) fn change_away(&self, more: bool) {
        if more {
            self.away.fetch_add(1, Ordering::SeqCst);
        } else {
            self.away.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether anything waits here, batches included.
    pub(crate) fn has_waiting(&self) -> bool {
        self.has_work() || self.has_batches()
    }

    /// Whether a worker's batch has items that it has not started.
    fn has_batches(&self) -> bool {
        self.entries().any(|worker| worker.batch.len() != 0)
    }

    /// A number that changes while items are started here.
    pub(crate) fn signature(&self) -> u64 {
        self.entries().fold(self.listed.taken.load(Ordering::Relaxed), |sum, worker| {
            sum.wrapping_mul(31).wrapping_add(worker.batch.signature())
        })
    }

    /// CPU time of the workers' threads.
    pub(crate) fn cpu_time(&self) -> core::time::Duration {
        let threads = self.entries().filter_map(|worker| *worker.thread.lock());
        threads.filter_map(|thread| P::cpu_time(thread).ok()).sum()
    }

    /// Threads of the pool, and how many of them sleep.
    pub(crate) fn threads(&self) -> (usize, usize) {
        let alive = self.entries().filter(|worker| worker.is_alive()).count();
        let idle = self.entries().filter(|worker| worker.is_idle()).count();
        (alive, idle)
    }

    /// Items that wait on the list and in batches. Those on the inbox are not counted, because that would mean walking it.
    pub(crate) fn ready(&self) -> usize {
        let batches: usize = self.entries().map(|worker| worker.batch.len()).sum();
        self.listed.len.load(Ordering::Relaxed) as usize + batches
    }

    /// A lower bound of the number of items that wait. By the monitor, seldom: it moves the inbox onto the list to count it.
    pub(crate) fn count_waiting(&self) -> usize {
        // A worker that holds it is about to take something.
        if let Some(mut ready) = self.listed.ready.try_lock() {
            self.gather(&mut ready);
            self.listed.len.store(ready.len() as u32, Ordering::SeqCst);
        }
        if self.has_work() {
            // A thread that checked in between has seen neither.
            self.call_again();
        }
        self.ready()
    }

    /// Resets the pool to no threads and nothing waiting: both are the parent's. After the workers' entries, in the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        forked::set(&self.forking, 0);
        self.arrivals.inbox.after_fork_in_child();
        self.arrivals.activations.after_fork_in_child();
        self.idle.after_fork_in_child();
        // SAFETY: this is the only thread, and it is not in the middle of `take`: no user's code runs there.
        unsafe { self.listed.ready.renew(List::new()) };
        forked::set(&self.listed.len, 0);
        forked::set(&self.stale, 0);
        forked::set(&self.listed.loaded, 0);
        forked::set(&self.called.queued_for_place, 0);
        forked::set(&self.called.short_runners, 0);
        forked::set(&self.called.awake, 0);
        forked::set(&self.called.max_running, self.cpus);
        forked::set(&self.workers, 0);
        forked::set(&self.away, 0);
        forked::set(&self.hooked, 0);
        self.homed.after_fork_in_child();
        self.spawn_failure.after_fork_in_child();
    }
}

#[cfg(test)]
mod tests;
