//! The kernel's own unbound workqueues, in outline, only on the simulated machine: written from descriptions of what they do, for comparison
//! with measurements on a real kernel.
//!
//! # What they do
//! - **A pool for each pod** of the scope: a list of items, and its idle workers, last in, first out. An item goes to the
//!   pool of the CPU that queues it.
//! - **A worker for each item.** Workers of unbound pools do not count as running: a thread that puts an item on the list, or takes one off
//!   it while others are left, wakes the worker that became idle last, however many run already. A worker that was woken stays on the idle
//!   list until it runs, and wake-ups before that wake the same worker. So wake-ups form a chain. Before it takes items, a worker ensures
//!   that one more is idle, and makes one if there is none; one worker of a pool does that at a time. Then it takes items until the list is
//!   empty.
//! - **Strict** workers may run only in their pod. **Other** workers may run anywhere; a worker that is woken while its last CPU is outside
//!   the pod is brought back, to the pod's CPUs in turn. In a **localised** queue, it is brought to the CPU that queued the item at the
//!   head of the list. Both are no more than the hint [`Sim::set_wake_cpu`] at the wake-up: a worker that goes on with the next item
//!   without sleeping stays where it is, and the scheduler may move any worker afterwards.
//! - **Never twice at once.** An item that is queued while it runs goes to the pool in which it runs, and the worker that
//!   takes it there hands it to the worker that runs it.
//! - **No more than `max_active` items** of the queue are on the pools' lists or run; other items wait until one of these ends. A node has its
//!   share of that number ([`active`]).
//!
//! # Locks and lines
//! A pool's state is under its lock, a queued spinlock, which is held with preemption off ([`SpinLock`]): by a thread that queues an item
//! while it puts the item on the list and wakes the worker, and by a worker while it takes an item, wakes the next worker, and notes the end
//! of an item. So a wake-up is as long a section as it is in the kernel. What these sections touch is on the lines on which the kernel has it
//! ([`Lines`]); the rest of the state costs nothing.
//!
//! The state of an item is under the lock of the pool that has it. The thread that set `pending` may change which pool that is; it looks
//! under the lock of the last one whether the item runs there.
//!
//! # What is left out
//! Idle workers in excess end after five minutes: no run is as long. Rescuers, flushing, freezing and hotplug are left out because the
//! experiments have none. A thread is made by its maker, not by `kthreadd`; if it cannot be made, the maker goes on without it, and the next
//! one tries again.

mod active;
mod spin_lock;

use crate::Error;
use crate::harness::{Census, Role};
use active::Active;
pub(crate) use active::Counting;
use nearq_platform::{
    Atomic as _, LockPlatform as _, Ordering, Parker, Placement as _, ThreadSpec, Threads as _,
};
use nearq_sim::{AtomicU32, JoinHandle, Sim, Thread};
use nearq_topology::{AffinityScope, CpuSet, DEFAULT_SHARD_SIZE};
use spin_lock::{Held, SpinLock, host};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// At the end of a queue: how often to check whether everything has run.
const CHECK_INTERVAL: Duration = Duration::from_micros(100);

/// Where the workers of a queue run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// How CPUs are grouped into pods.
    pub(crate) scope: AffinityScope,
    /// Whether workers may never leave their pod.
    pub(crate) strict: bool,
    /// Whether an item runs on the CPU that queued it if a worker can.
    pub(crate) localize: bool,
}

/// What the workers of a queue have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Items run.
    pub(crate) completed: u64,
    /// How often a worker was brought back into its pod before an item.
    pub(crate) repatriated: u64,
}

/// A queue. When it is dropped, it waits until everything has run, and its workers end.
pub(crate) struct KernelQueue(Arc<Pools>);

/// An item of a queue.
pub(crate) struct KernelItem {
    work: Arc<Work>,
    pools: Arc<Pools>,
}

impl KernelQueue {
    /// A queue that may have `most` active items, which are counted in that way. Its workers are counted too.
    ///
    /// # Errors
    /// A thread cannot be made.
    pub(crate) fn new(
        placement: Placement,
        limit: (usize, Counting),
        census: &Census<Sim>,
    ) -> Result<Self, Error> {
        Ok(Self(Pools::new(placement, limit, census)?.into()))
    }

    /// An item that runs `function` each time that it is queued.
    pub(crate) fn item(&self, function: Box<dyn FnMut() + Send>) -> KernelItem {
        let number = {
            let mut made = host(&self.0.items);
            *made += 1;
            *made
        };
        let work = Arc::new(Work {
            number,
            pending: AtomicU32::new(0),
            state: Mutex::default(),
            function: Mutex::new(function),
        });
        KernelItem { work, pools: Arc::clone(&self.0) }
    }

    /// What its workers have done so far.
    pub(crate) fn counts(&self) -> Counts {
        let add = |sum: Counts, pool: &Arc<Pool>| {
            let counts = pool.state.with(|state| state.counts);
            Counts {
                completed: sum.completed + counts.completed,
                repatriated: sum.repatriated + counts.repatriated,
            }
        };
        self.0.pools.iter().fold(Counts::default(), add)
    }
}

impl KernelItem {
    /// Queues the item from the calling thread. False means that it is queued already and has not started.
    pub(crate) fn queue(&self) -> bool {
        self.pools.queue(&self.work)
    }
}

/// An item.
struct Work {
    /// Which of the queue's items it is.
    number: usize,
    /// Not zero from the moment when it is queued until it starts.
    pending: AtomicU32,
    state: Mutex<WorkState>,
    /// Locked while it is called.
    function: Mutex<Box<dyn FnMut() + Send>>,
}

#[derive(Default)]
struct WorkState {
    /// The CPU that queued it last.
    issued_on: usize,
    /// The pool in which it was queued last: the pool in which it runs, if it runs.
    pool: Option<usize>,
    /// The worker that runs it.
    running: Option<Arc<Worker>>,
}

/// What other threads see of a worker.
struct Worker {
    parker: Parker<Sim>,
    /// Items that came while it ran them.
    again: Mutex<VecDeque<Arc<Work>>>,
    /// Set as soon as the worker is made.
    thread: Mutex<Option<Thread>>,
}

/// What the pool's lock protects.
#[derive(Default)]
struct PoolState {
    items: VecDeque<Arc<Work>>,
    /// The idle workers; the worker that became idle last is the last.
    idle: Vec<Arc<Worker>>,
    /// Whether a thread is making a worker.
    managed: bool,
    /// Workers made so far.
    workers: usize,
    /// The handles of all workers, for the end.
    handles: Vec<JoinHandle>,
    /// Whether the queue is gone: then workers end.
    over: bool,
    /// The place in the pod to which the next worker is brought back.
    turn: usize,
    counts: Counts,
}

/// Lines that the sections under a pool's lock touch besides that of the lock itself, which has the head of the list of items too
/// (`struct worker_pool` and `struct pool_workqueue` of Linux 6.6).
#[derive(Default)]
struct Lines {
    /// The idle workers.
    idle: Line,
    /// References and items in flight of the queue in this pool.
    in_flight: Line,
    /// The items that run, by a hash: 64 buckets of 8 bytes.
    busy: [Line; 8],
}

/// A line of its own.
#[repr(align(128))]
struct Line(AtomicU32);

impl Default for Line {
    fn default() -> Self {
        Line(AtomicU32::new(0))
    }
}

impl Line {
    fn read(&self) {
        // Relaxed, both: ordered by the pool's lock.
        self.0.load(Ordering::Relaxed);
    }

    fn write(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Workers for the items of one pod.
struct Pool {
    number: usize,
    pod: CpuSet,
    /// Where its workers may run.
    affinity: CpuSet,
    placement: Placement,
    state: SpinLock<PoolState>,
    lines: Lines,
    /// Shared by the pools of a node.
    active: Arc<Active>,
    census: Census<Sim>,
}

/// What a worker does next.
enum Next {
    Run(Arc<Work>),
    Sleep,
    End,
}

/// The pools of a queue.
struct Pools {
    pools: Arc<[Arc<Pool>]>,
    /// The pool of each CPU.
    by_cpu: Vec<usize>,
    /// Each once.
    active: Vec<Arc<Active>>,
    /// How many items were made.
    items: Mutex<usize>,
}

impl Pools {
    fn new(
        placement: Placement,
        limit: (usize, Counting),
        census: &Census<Sim>,
    ) -> Result<Self, Error> {
        let machine = Sim::machine().map_err(Error::run)?;
        let topology = &machine.topology;
        let usable = &machine.limits.effective() & topology.online();
        let pods = topology.pods_within(placement.scope, DEFAULT_SHARD_SIZE, &usable).pods;
        let numbers = topology.possible().iter().max().map_or(1, |last| last + 1);
        let mut by_cpu = vec![0; numbers];
        let shares = active::shares(topology, &usable, limit, numbers);
        let mut pools = Vec::new();
        for (number, pod) in pods.into_iter().enumerate() {
            pod.cpus.iter().for_each(|cpu| by_cpu[cpu] = number);
            pools.push(Arc::new(Pool {
                number,
                affinity: if placement.strict { pod.cpus.clone() } else { usable.clone() },
                active: Arc::clone(shares.of(topology, &pod.cpus)),
                pod: pod.cpus,
                placement,
                state: SpinLock::new(PoolState::default(), numbers),
                lines: Lines::default(),
                census: census.clone(),
            }));
        }
        let pools =
            Self { pools: pools.into(), by_cpu, active: shares.all(), items: Mutex::new(0) };
        pools.pools.iter().try_for_each(|pool| pool.make_worker(&pools.pools))?;
        Ok(pools)
    }

    /// Queues an item from the calling thread, unless it is queued.
    fn queue(&self, work: &Arc<Work>) -> bool {
        if work.pending.swap(1, Ordering::AcqRel) == 1 {
            return false;
        }
        let cpu = Sim::current_cpu();
        let last = {
            let mut state = host(&work.state);
            state.issued_on = cpu;
            state.pool
        };
        let own = &self.pools[self.by_cpu[cpu]];
        if let Some(last) =
            last.map(|last| &self.pools[last]).filter(|last| last.number != own.number)
        {
            let runs_there = last.state.hold(|pool| {
                last.lines.busy(work).read();
                let runs = host(&work.state).running.is_some();
                if runs {
                    last.insert(pool, work);
                }
                runs
            });
            if runs_there {
                return true;
            }
        }
        own.state.hold(|pool| own.insert(pool, work));
        true
    }

    /// How many items are active or wait to be.
    fn left(&self) -> usize {
        self.active.iter().map(|active| active.left()).sum()
    }
}

impl Drop for Pools {
    /// Ends the workers, when they have run what is left.
    fn drop(&mut self) {
        // A simulated thread cannot wait while a panic unwinds in it.
        if std::thread::panicking() {
            return;
        }
        while self.left() > 0 {
            Sim::sleep(CHECK_INTERVAL);
        }
        for pool in self.pools.iter() {
            let idle = pool.state.with(|state| {
                state.over = true;
                state.idle.clone()
            });
            for worker in idle {
                worker.parker.unpark();
            }
            while let Some(handle) = pool.state.with(|state| state.handles.pop()) {
                Sim::join(handle);
            }
        }
    }
}

impl Lines {
    /// The line of an item among those that run.
    fn busy(&self, work: &Work) -> &Line {
        &self.busy[work.number % self.busy.len()]
    }
}

impl Pool {
    /// Puts an item on the list and wakes a worker, or lets the item wait until others have ended. The caller holds the lock.
    fn insert(&self, pool: &Held<'_, PoolState>, work: &Arc<Work>) {
        host(&work.state).pool = Some(self.number);
        self.lines.in_flight.write();
        if self.active.admits(work) {
            self.activate(pool, Arc::clone(work));
        }
    }

    fn activate(&self, pool: &Held<'_, PoolState>, work: Arc<Work>) {
        pool.get().items.push_back(work);
        self.kick(pool);
    }

    /// Wakes a worker for the item at the head of the list, near where it must run. The caller holds the lock.
    fn kick(&self, pool: &Held<'_, PoolState>) {
        self.lines.idle.read();
        let (worker, issued_on) = {
            let state = pool.get();
            let (Some(first), Some(worker)) = (state.items.front(), state.idle.last()) else {
                return;
            };
            let issued_on = host(&first.state).issued_on;
            (Arc::clone(worker), issued_on)
        };
        let thread = *host(&worker.thread);
        // A worker that is being made has no thread yet, and will run anyway as soon as it has one.
        if let Some(thread) = thread {
            self.steer(pool, thread, issued_on);
        }
        worker.parker.unpark();
    }

    /// Tells the scheduler where a worker that is about to be woken for an item must run. The caller holds the lock.
    fn steer(&self, pool: &Held<'_, PoolState>, thread: Thread, issued_on: usize) {
        // A worker that has ended is not steered.
        let Ok(last) = Sim::wake_cpu(thread) else { return };
        let outside = !self.pod.contains(last);
        let cpu = if self.placement.localize {
            issued_on
        } else if outside && !self.placement.strict {
            let mut state = pool.get();
            state.turn += 1;
            self.pod.iter().nth(state.turn % self.pod.len()).expect("the place is in the pod")
        } else {
            return;
        };
        if Sim::set_wake_cpu(thread, cpu).is_ok() && outside {
            pool.get().counts.repatriated += 1;
        }
    }

    /// Makes a worker, which is idle until it runs.
    fn make_worker(self: &Arc<Self>, pools: &Arc<[Arc<Self>]>) -> Result<(), Error> {
        let worker = Arc::new(Worker {
            parker: Parker::new(),
            again: Mutex::default(),
            thread: Mutex::default(),
        });
        let number = self.state.with(|state| {
            state.idle.push(Arc::clone(&worker));
            state.workers += 1;
            state.workers - 1
        });
        let spec = ThreadSpec {
            name: format!("kworker/u{}:{number}", self.number),
            affinity: Some(self.affinity.clone()),
            nice: Some(0),
            ..ThreadSpec::default()
        };
        let (pool, pools, this_worker) = (Arc::clone(self), Arc::clone(pools), Arc::clone(&worker));
        match Sim::spawn(spec, move || pool.serve(&pools, &this_worker)) {
            Ok(handle) => {
                *host(&worker.thread) = Some(handle.thread());
                self.state.with(|state| state.handles.push(handle));
                Ok(())
            }
            Err(refused) => {
                self.state.with(|state| state.idle.retain(|one| !Arc::ptr_eq(one, &worker)));
                Err(Error::run(format!("kworker/u{}:{number}: {refused}", self.number)))
            }
        }
    }

    /// The body of a worker's thread.
    fn serve(self: &Arc<Self>, pools: &Arc<[Arc<Self>]>, worker: &Arc<Worker>) {
        self.census.enter(Role::Worker);
        loop {
            let mut next = self.begin(pools, worker);
            loop {
                match next {
                    Next::Run(work) => self.run(pools, worker, work),
                    Next::Sleep => break,
                    Next::End => return,
                }
                next = self.state.hold(|pool| self.next(pool, worker));
            }
            worker.parker.park(None);
        }
    }

    /// What a woken worker does first; it has made another one if none was idle.
    fn begin(self: &Arc<Self>, pools: &Arc<[Arc<Self>]>, worker: &Arc<Worker>) -> Next {
        loop {
            // Both are done under one hold of the lock: a thread that came in between would find no idle worker.
            let next = self
                .state
                .hold(|pool| (!self.leave_idle(pool, worker)).then(|| self.next(pool, worker)));
            if let Some(next) = next {
                return next;
            }
            let made = self.make_worker(pools);
            self.state.with(|state| state.managed = false);
            if made.is_err() {
                // The new worker was refused: the worker that is woken next tries again.
                return self.state.hold(|pool| self.next(pool, worker));
            }
            // Check again, because the worker that was made may have begun to run items by now.
        }
    }

    /// A worker runs. Returns whether it must make another one.
    fn leave_idle(&self, pool: &Held<'_, PoolState>, worker: &Arc<Worker>) -> bool {
        self.lines.idle.write();
        let mut state = pool.get();
        state.idle.retain(|other| !Arc::ptr_eq(other, worker));
        let makes = !state.items.is_empty() && state.idle.is_empty() && !state.managed;
        state.managed |= makes;
        makes
    }

    /// What a worker that runs nothing does next.
    fn next(&self, pool: &Held<'_, PoolState>, worker: &Arc<Worker>) -> Next {
        loop {
            let Some(work) = pool.get().items.pop_front() else { break };
            let running = host(&work.state).running.clone();
            if let Some(other) = running {
                host(&other.again).push_back(work);
                continue;
            }
            self.start(&work, worker);
            self.kick(pool);
            return Next::Run(work);
        }
        if pool.get().over {
            return Next::End;
        }
        self.lines.idle.write();
        pool.get().idle.push(Arc::clone(worker));
        Next::Sleep
    }

    /// A worker is about to run an item: it may be queued again from now on.
    fn start(&self, work: &Arc<Work>, worker: &Arc<Worker>) {
        host(&work.state).running = Some(Arc::clone(worker));
        self.lines.busy(work).write();
        work.pending.store(0, Ordering::Release);
    }

    /// Runs an item, and again what is queued while it runs.
    fn run(&self, pools: &[Arc<Self>], worker: &Arc<Worker>, work: Arc<Work>) {
        let mut next = Some(work);
        while let Some(work) = next {
            work.function.try_lock().expect("an item runs once at a time")();
            let admitted;
            (next, admitted) = self.state.hold(|pool| self.ran(pool, &work, worker));
            if let Some(admitted) = admitted {
                let number = host(&admitted.state).pool.expect("it was queued");
                let other = &pools[number];
                other.state.hold(|pool| other.activate(pool, admitted));
            }
        }
    }

    /// A worker has run an item. Returns the item that it goes on with because it was queued in the meantime, and the one that may be active
    /// in place of the one that has ended.
    fn ran(
        &self,
        pool: &Held<'_, PoolState>,
        work: &Arc<Work>,
        worker: &Arc<Worker>,
    ) -> (Option<Arc<Work>>, Option<Arc<Work>>) {
        host(&work.state).running = None;
        self.lines.busy(work).write();
        self.lines.in_flight.write();
        pool.get().counts.completed += 1;
        let admitted = self.active.ended();
        let again = host(&worker.again).pop_front();
        if let Some(again) = &again {
            self.start(again, worker);
        }
        (again, admitted)
    }
}

#[cfg(test)]
mod tests;
