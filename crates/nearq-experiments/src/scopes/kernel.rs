//! The kernel's own unbound pools, in outline, only on the simulated machine: written from descriptions of what they do, for comparison
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
//! - **No more than `max_active` items** of the queue are on the pools' lists or run; other items wait until one of these ends.
//!
//! # What is left out
//! Idle workers in excess end after five minutes: no run is as long. Rescuers, flushing, freezing and hotplug are left out because the
//! experiment has none. `max_active` is counted for the queue, not for each node. A thread is made by its maker, not by `kthreadd`; if it
//! cannot be made, the maker goes on without it, and the next one tries again.
//!
//! # Locks
//! The kernel holds the pool's lock with preemption off. Here everything under the lock happens in one moment of virtual time, so no thread
//! is preempted while holding it, and no thread waits for it; getting its line from the CPU that had it last costs as much as for any lock.
//! No thread calls the platform while holding it.

use super::executor::{Counts, Executor, Item, MOST_ACTIVE, Placement};
use crate::Error;
use crate::harness::{Census, Role};
use nearq_platform::{
    Atomic as _, LockPlatform as _, Ordering, Parker, Placement as _, ThreadSpec, Threads as _,
};
use nearq_sim::{AtomicU32, JoinHandle, Sim, Thread};
use nearq_topology::{CpuSet, DEFAULT_SHARD_SIZE};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// At the end of a queue: how often to check whether everything has run.
const CHECK_INTERVAL: Duration = Duration::from_micros(100);

/// A queue like the kernel's, whose workers are counted.
pub(super) fn queue(
    placement: Placement,
    census: &Census<Sim>,
) -> Result<Box<dyn Executor>, Error> {
    Ok(Box::new(KernelQueue(Pools::new(placement, MOST_ACTIVE, census)?.into())))
}

/// A value under a lock as the head of this file describes it.
struct Guarded<T> {
    word: AtomicU32,
    value: Mutex<T>,
}

impl<T> Guarded<T> {
    fn new(value: T) -> Self {
        Self { word: AtomicU32::new(0), value: Mutex::new(value) }
    }

    /// Does something under the lock. `what` must not call the platform.
    fn with<R>(&self, what: impl FnOnce(&mut T) -> R) -> R {
        // The line is the caller's now. Other threads get it when they ask, and no thread acts before `what` is over.
        self.word.swap(1, Ordering::Acquire);
        let result = what(&mut host(&self.value));
        self.word.store(0, Ordering::Release);
        result
    }
}

/// A lock of the host, never contended: a simulated machine is one thread, and no thread calls the platform while holding
/// it.
fn host<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.try_lock().expect("no thread calls the platform while holding it")
}

/// An item.
struct Work {
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
    pool: usize,
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

/// Workers for the items of one pod.
struct Pool {
    number: usize,
    pod: CpuSet,
    /// Where its workers may run.
    affinity: CpuSet,
    placement: Placement,
    state: Guarded<PoolState>,
    /// Shared by the pools of the queue.
    admission: Arc<Guarded<Admission>>,
    census: Census<Sim>,
}

/// How many items may be active, and those that must wait.
struct Admission {
    most: usize,
    active: usize,
    inactive: VecDeque<Arc<Work>>,
}

/// The worker to wake, by a thread that no longer has the lock.
struct Kick {
    worker: Arc<Worker>,
    /// The CPU that queued the item at the head of the list.
    issued_on: usize,
}

/// What a worker does next.
enum Next {
    /// It runs this item, and wakes a worker for the rest.
    Run(Arc<Work>, Option<Kick>),
    Sleep,
    End,
}

impl PoolState {
    /// The worker to wake, if there are items and a worker is idle.
    fn kick(&self) -> Option<Kick> {
        let (first, worker) = (self.items.front()?, self.idle.last()?);
        let issued_on = host(&first.state).issued_on;
        Some(Kick { worker: Arc::clone(worker), issued_on })
    }

    /// A worker runs. Returns whether it must make another one.
    fn leave_idle(&mut self, worker: &Arc<Worker>) -> bool {
        self.idle.retain(|other| !Arc::ptr_eq(other, worker));
        let makes = !self.items.is_empty() && self.idle.is_empty() && !self.managed;
        self.managed |= makes;
        makes
    }

    /// What a worker that runs nothing does next.
    fn next(&mut self, worker: &Arc<Worker>) -> Next {
        while let Some(work) = self.items.pop_front() {
            let running = host(&work.state).running.clone();
            if let Some(other) = running {
                host(&other.again).push_back(work);
                continue;
            }
            host(&work.state).running = Some(Arc::clone(worker));
            return Next::Run(work, self.kick());
        }
        if self.over {
            return Next::End;
        }
        self.idle.push(Arc::clone(worker));
        Next::Sleep
    }

    /// A worker has run an item. Returns the item that it goes on with because it was queued in the meantime.
    fn ran(&mut self, work: &Work, worker: &Arc<Worker>) -> Option<Arc<Work>> {
        host(&work.state).running = None;
        self.counts.completed += 1;
        let again = host(&worker.again).pop_front()?;
        host(&again.state).running = Some(Arc::clone(worker));
        Some(again)
    }
}

/// The pools of a queue.
struct Pools {
    pools: Arc<[Arc<Pool>]>,
    /// The pool of each CPU.
    by_cpu: Vec<usize>,
    admission: Arc<Guarded<Admission>>,
}

impl Pools {
    /// The pools of a queue that may have `most` active items.
    fn new(placement: Placement, most: usize, census: &Census<Sim>) -> Result<Self, Error> {
        let machine = Sim::machine().map_err(Error::run)?;
        let usable = &machine.limits.effective() & machine.topology.online();
        let pods = machine.topology.pods_within(placement.scope, DEFAULT_SHARD_SIZE, &usable).pods;
        let mut by_cpu =
            vec![0; machine.topology.possible().iter().max().map_or(1, |last| last + 1)];
        let admission = Admission { most, active: 0, inactive: VecDeque::new() };
        let admission = Arc::new(Guarded::new(admission));
        let mut pools = Vec::new();
        for (number, pod) in pods.into_iter().enumerate() {
            pod.cpus.iter().for_each(|cpu| by_cpu[cpu] = number);
            pools.push(Arc::new(Pool {
                number,
                affinity: if placement.strict { pod.cpus.clone() } else { usable.clone() },
                pod: pod.cpus,
                placement,
                state: Guarded::new(PoolState::default()),
                admission: Arc::clone(&admission),
                census: census.clone(),
            }));
        }
        let pools = Self { pools: pools.into(), by_cpu, admission };
        pools.pools.iter().try_for_each(|pool| pool.make_worker(&pools.pools))?;
        Ok(pools)
    }

    /// Queues an item from the calling thread, unless it is queued.
    fn queue(&self, work: &Arc<Work>) -> bool {
        if work.pending.swap(1, Ordering::AcqRel) == 1 {
            return false;
        }
        let cpu = Sim::current_cpu();
        let pool = {
            let mut state = host(&work.state);
            state.issued_on = cpu;
            if state.running.is_none() {
                state.pool = self.by_cpu[cpu];
            }
            state.pool
        };
        if self.admission.with(|admission| admission.admits(work)) {
            self.pools[pool].put(Arc::clone(work));
        }
        true
    }
}

impl Drop for Pools {
    /// Ends the workers, when they have run what is left.
    fn drop(&mut self) {
        // A simulated thread cannot wait while a panic unwinds in it.
        if std::thread::panicking() {
            return;
        }
        while self.admission.with(|admission| admission.active) > 0 {
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

impl Admission {
    /// Whether an item may go to its pool now; otherwise the item is kept here.
    fn admits(&mut self, work: &Arc<Work>) -> bool {
        let admitted = self.active < self.most;
        if admitted {
            self.active += 1;
        } else {
            self.inactive.push_back(Arc::clone(work));
        }
        admitted
    }

    /// An item has ended. Returns the item that may go to its pool in its place.
    fn ended(&mut self) -> Option<Arc<Work>> {
        let next = self.inactive.pop_front();
        self.active -= usize::from(next.is_none());
        next
    }
}

/// A queue.
struct KernelQueue(Arc<Pools>);

impl Executor for KernelQueue {
    fn item(&self, function: Box<dyn FnMut() + Send>) -> Box<dyn Item> {
        let work = Arc::new(Work {
            pending: AtomicU32::new(0),
            state: Mutex::default(),
            function: Mutex::new(function),
        });
        Box::new(KernelItem { work, pools: Arc::clone(&self.0) })
    }

    fn counts(&self) -> Option<Counts> {
        let add = |sum: Counts, pool: &Arc<Pool>| {
            let pool_counts = pool.state.with(|state| state.counts);
            Counts {
                completed: sum.completed + pool_counts.completed,
                helped: 0,
                repatriated: sum.repatriated + pool_counts.repatriated,
            }
        };
        Some(self.0.pools.iter().fold(Counts::default(), add))
    }
}

/// An item of a queue.
struct KernelItem {
    work: Arc<Work>,
    pools: Arc<Pools>,
}

impl Item for KernelItem {
    fn queue(&self) -> bool {
        self.pools.queue(&self.work)
    }
}

impl Pool {
    /// Puts an item on the list, and wakes a worker.
    fn put(&self, work: Arc<Work>) {
        let kick = self.state.with(|state| {
            state.items.push_back(work);
            state.kick()
        });
        self.wake(kick);
    }

    /// Wakes a worker, near where it must run.
    fn wake(&self, kick: Option<Kick>) {
        let Some(Kick { worker, issued_on }) = kick else { return };
        let thread = *host(&worker.thread);
        // A worker that is being made has no thread yet, and will run anyway as soon as it has one.
        if let Some(thread) = thread {
            self.steer(thread, issued_on);
        }
        worker.parker.unpark();
    }

    /// Tells the scheduler where a worker that is about to be woken for an item must run.
    fn steer(&self, thread: Thread, issued_on: usize) {
        // A worker that has ended is not steered.
        let Ok(last) = Sim::wake_cpu(thread) else { return };
        let outside = !self.pod.contains(last);
        let cpu = if self.placement.localize {
            issued_on
        } else if outside && !self.placement.strict {
            let turn = self.state.with(|state| {
                state.turn += 1;
                state.turn
            });
            self.pod.iter().nth(turn % self.pod.len()).expect("the place is in the pod")
        } else {
            return;
        };
        if Sim::set_wake_cpu(thread, cpu).is_ok() && outside {
            self.state.with(|state| state.counts.repatriated += 1);
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
                    Next::Run(work, kick) => {
                        self.wake(kick);
                        self.run(pools, worker, work);
                    }
                    Next::Sleep => break,
                    Next::End => return,
                }
                next = self.state.with(|state| state.next(worker));
            }
            worker.parker.park(None);
        }
    }

    /// What a woken worker does first; it has made another one if none was idle.
    fn begin(self: &Arc<Self>, pools: &Arc<[Arc<Self>]>, worker: &Arc<Worker>) -> Next {
        loop {
            // Both are done under one hold of the lock: a thread that came in between would find no idle worker.
            let next =
                self.state.with(|state| (!state.leave_idle(worker)).then(|| state.next(worker)));
            if let Some(next) = next {
                return next;
            }
            let made = self.make_worker(pools);
            self.state.with(|state| state.managed = false);
            if made.is_err() {
                // The new worker was refused: the worker that is woken next tries again.
                return self.state.with(|state| state.next(worker));
            }
            // Check again, because the worker that was made may have begun to run items by now.
        }
    }

    /// Runs an item, and again what is queued while it runs.
    fn run(&self, pools: &[Arc<Self>], worker: &Arc<Worker>, work: Arc<Work>) {
        let mut next = Some(work);
        while let Some(work) = next {
            work.pending.store(0, Ordering::Release);
            work.function.try_lock().expect("an item runs once at a time")();
            next = self.state.with(|state| state.ran(&work, worker));
            if let Some(admitted) = self.admission.with(Admission::ended) {
                let pool = host(&admitted.state).pool;
                pools[pool].put(admitted);
            }
        }
    }
}

#[cfg(test)]
mod tests;
