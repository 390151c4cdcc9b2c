//! Work that waits and does not get started: who is told of it, and what.
//!
//! A pool has *stalled* where work waits and nothing has been started for a period (30 s, if nothing else is said). That need not be
//! a fault: items may be long, or many. Most often it is one: items that wait for each other, a lock that nobody gives back, a
//! limit on threads. Nobody else would say anything, so the monitor does, once a period as long as it lasts.
//!
//! It looks a hundred times in a period while work waits, and knows what it has seen in its looks at the workers (`watch`): since when an item runs is
//! the time when it saw that first, so an item may have run for longer than is said. What it does not know of a thread (workers
//! that have said that they block are not watched) it asks the system when a stall is reported, and where threads sleep as well: that
//! takes some 10 us a thread.
//!
//! Belongs to the monitor's thread. The callback is foreign code that runs there: its panic ends with it. Where it forks, the monitor's
//! thread in the child ends as soon as it returns.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use nearq_platform::{Instant, Platform, RunState};
use nearq_topology::CpuSet;

use crate::by_pool::ByPool;
use crate::outcome::contain;
use crate::pool::Pool;
use crate::runtime::Inner;
use crate::watch::{Doing, Watcher};
use crate::worker::Worker;

/// The period if nothing is said, as in the kernel.
pub(crate) const STALL_AFTER: Duration = Duration::from_secs(30);
/// So many looks in a period.
const LOOKS: u32 = 100;
/// Workers that a report names: a person reads it, and each costs the monitor some 10 us.
const MOST_NAMED: usize = 64;
/// Workers that its text names.
const MOST_SHOWN: usize = 16;
/// Reported instead of a function's name for a worker that is in its start hook.
const START_HOOK: &str = "the hook on_worker_start";

/// What is told of stalls.
pub(crate) type OnStall = Arc<dyn Fn(&Stall) + Send + Sync>;

/// A pool that has work and started nothing for a period. See [`RuntimeBuilder::on_stall`](crate::RuntimeBuilder::on_stall).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// The pool's number, as in its workers' names.
    pub pool: u32,
    /// The CPUs of its pod.
    pub pod: CpuSet,
    /// Its workers' nice value as asked for.
    pub nice: i32,
    /// Since when it has started nothing, at least.
    pub lasts: Duration,
    /// Items that wait, at least.
    pub waiting: usize,
    /// Its workers that sleep for want of work, or of a CPU that is free.
    pub idle: usize,
    /// Whether the last worker that it wanted could not be started: limits on threads, or a want of memory.
    pub refused: bool,
    /// Set if the runtime's own [limit](crate::RuntimeBuilder::thread_limit) refused that worker.
    pub limit: Option<ThreadLimit>,
    /// The workers that are in the middle of an item or of their start hook; 64 at most.
    pub busy: Vec<BusyWorker>,
    /// How many there are beyond those.
    pub more_busy: usize,
}

/// The runtime's own limit on threads, where it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadLimit {
    /// The most worker threads that the runtime may have.
    pub threads: usize,
    /// The pools that have the threads, those with the most threads first; 16 pools at most. Workers that are about to end are not counted.
    pub pools: Vec<PoolThreads>,
}

/// How many threads a pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolThreads {
    /// The pool's number.
    pub pool: u32,
    /// Its threads.
    pub threads: usize,
    /// How many of them sleep for want of work or of a free CPU.
    pub idle: usize,
}

/// A worker in the middle of an item, or of its start hook.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BusyWorker {
    /// The thread's name.
    pub thread: String,
    /// The thread's number in the system's own tools.
    pub thread_id: Option<u64>,
    /// The name of the item's function; `the hook on_worker_start` if the worker is in [that hook](crate::RuntimeBuilder::on_worker_start).
    pub function: &'static str,
    /// What the item says of itself; see [`set_description`](crate::set_description).
    pub description: String,
    /// For how long it has run, at least: since it was seen first, in a look at the workers such as there is every few milliseconds while
    /// work waits. Not known of a worker that has [said that it blocks](crate::blocking).
    pub runs: Option<Duration>,
    /// What its thread does.
    pub activity: Activity,
    /// Where the thread sleeps, in the system's words, if it tells.
    pub place: Option<String>,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// It uses its CPU.
    Runs,
    /// It could run, and waits for a CPU: others have it, or the quota is used up.
    WaitsForCpu,
    /// It waits for something else: a lock, a device, another thread.
    Sleeps,
    /// The system does not tell.
    Unknown,
}

impl fmt::Display for Stall {
    /// One line, and one more for each worker that is busy; of those 16 at most.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stall { pool, pod, nice, lasts, waiting, idle, .. } = self;
        let items = if *waiting == 1 { "item waits" } else { "items wait" };
        write!(
            f,
            "pool {pool} (CPUs {pod}, nice {nice}) has started nothing for {lasts:.1?}, and at least {waiting} {items}"
        )?;
        if let Some(limit) = &self.limit {
            write!(f, "; no thread can be started: {limit}")?;
        } else if self.refused {
            f.write_str("; no thread can be started: a limit on threads, or a want of memory?")?;
        }
        if *idle != 0 {
            write!(f, "; {idle} of its workers sleep and have no CPU to run on")?;
        }
        if self.busy.is_empty() {
            f.write_str("; none of its workers runs an item")?;
        }
        for worker in self.busy.iter().take(MOST_SHOWN) {
            write!(f, "\n  {worker}")?;
        }
        let others = self.busy.len().saturating_sub(MOST_SHOWN) + self.more_busy;
        if others != 0 {
            write!(f, "\n  and {others} others")?;
        }
        Ok(())
    }
}

impl fmt::Display for ThreadLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the runtime's own limit of {} threads (thread_limit) is reached", self.threads)?;
        for (at, PoolThreads { pool, threads, idle }) in self.pools.iter().enumerate() {
            let before = if at == 0 { ":" } else { "," };
            write!(f, "{before} pool {pool} has {threads}")?;
            if *idle != 0 {
                write!(f, " ({idle} asleep)")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for BusyWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.thread)?;
        if let Some(id) = self.thread_id {
            write!(f, " (thread {id})")?;
        }
        write!(f, ": {}", self.function)?;
        if let Some(runs) = self.runs {
            write!(f, " for at least {runs:.1?}")?;
        }
        f.write_str(match self.activity {
            Activity::Runs => ", runs",
            Activity::WaitsForCpu => ", waits for a CPU",
            Activity::Sleeps => ", sleeps",
            Activity::Unknown => "",
        })?;
        if let Some(place) = &self.place {
            write!(f, " in {place}")?;
        }
        if !self.description.is_empty() {
            write!(f, ": {}", self.description)?;
        }
        Ok(())
    }
}

/// A pool in which work waits.
struct Seen {
    signature: u64,
    /// When something was started there last, or work was seen first.
    since: Instant,
    /// When that, or the last report, was.
    told: Instant,
}

/// What the monitor remembers of stalls.
pub(crate) struct Stalls {
    pools: ByPool<Option<Seen>>,
    /// When the next look is due.
    next: Option<Instant>,
}

impl Stalls {
    pub(crate) fn new() -> Self {
        Stalls { pools: ByPool::new(), next: None }
    }

    /// Looks whether anything has stalled, and tells of it. By the monitor. False where the callback has forked, and this is the child.
    pub(crate) fn look<P: Platform>(
        &mut self,
        inner: &Inner<P>,
        pools: &[Arc<Pool<P>>],
        watcher: &Watcher<P>,
        now: Instant,
    ) -> bool {
        let period = inner.stall_after();
        if period.is_zero() {
            return true;
        }
        if self.next.is_some_and(|next| now < next) {
            return true;
        }
        self.next = Some(now + period / LOOKS);
        for (pool, seen) in pools.iter().zip(self.pools.align(pools)) {
            if !pool.has_waiting() {
                *seen = None;
                continue;
            }
            let signature = pool.signature();
            let moved = seen.as_ref().is_none_or(|seen| seen.signature != signature);
            if moved {
                *seen = Some(Seen { signature, since: now, told: now });
                continue;
            }
            let Some(seen) = seen else { continue };
            if now - seen.told >= period {
                seen.told = now;
                let stall = describe(inner, pool, watcher, now - seen.since, now);
                if !tell(inner, &stall) {
                    return false;
                }
            }
        }
        true
    }
}

fn tell<P: Platform>(inner: &Inner<P>, stall: &Stall) -> bool {
    let epoch = P::fork_epoch();
    // A subscriber is foreign code too.
    let mut is_heard = false;
    contain(|| {
        tracing::warn!(target: "nearq", pool = stall.pool, waiting = stall.waiting, "{stall}");
        is_heard = tracing::enabled!(target: "nearq", tracing::Level::WARN);
    });
    match &inner.config.on_stall {
        Some(callback) => drop(contain(|| callback(stall))),
        // Nobody else would hear of it.
        None if !is_heard => P::warn(&stall.to_string()),
        None => {}
    }
    P::fork_epoch() == epoch
}

fn describe<P: Platform>(
    inner: &Inner<P>,
    pool: &Arc<Pool<P>>,
    watcher: &Watcher<P>,
    lasts: Duration,
    now: Instant,
) -> Stall {
    let of_pool = inner.table.iter().filter(|worker| {
        // The queue's rescuer as well, while it is there.
        worker.is_alive() && core::ptr::eq(worker.pool(), Arc::as_ptr(pool))
    });
    let (mut idle, mut busy, mut more_busy) = (0, Vec::new(), 0);
    for worker in of_pool {
        if worker.is_idle() {
            idle += usize::from(!worker.rescues());
        } else if let Some(function) = busy_with(worker) {
            if busy.len() < MOST_NAMED {
                busy.push(look_at(worker, function, watcher, now));
            } else {
                more_busy += 1;
            }
        }
    }
    Stall {
        pool: pool.id,
        pod: pool.key.pod.clone(),
        nice: pool.key.priority.nice,
        lasts,
        waiting: pool.count_waiting().max(1),
        idle,
        refused: pool.hardship.lasts(),
        limit: pool.hardship.is_by_limit().then(|| limit_of(inner)),
        busy,
        more_busy,
    }
}

fn limit_of<P: Platform>(inner: &Inner<P>) -> ThreadLimit {
    let of_pool = |pool: &Arc<Pool<P>>| {
        let (threads, idle) = pool.threads();
        PoolThreads { pool: pool.id, threads, idle }
    };
    let mut pools: Vec<_> = inner.pools_in_service().iter().map(of_pool).collect();
    pools.retain(|pool| pool.threads != 0);
    pools.sort_by_key(|pool| core::cmp::Reverse(pool.threads));
    pools.truncate(MOST_SHOWN);
    ThreadLimit { threads: inner.thread_limit() as usize, pools }
}

/// The name of what the worker runs.
fn busy_with<P: Platform>(worker: &Worker<P>) -> Option<&'static str> {
    if worker.is_in_hook() { Some(START_HOOK) } else { worker.function() }
}

fn look_at<P: Platform>(
    worker: &Worker<P>,
    function: &'static str,
    watcher: &Watcher<P>,
    now: Instant,
) -> BusyWorker {
    let thread = *worker.thread.lock();
    let seen = watcher.seen(worker);
    let mut activity = match seen.map_or(Doing::Unknown, |seen| seen.doing) {
        Doing::Runs => Activity::Runs,
        Doing::Waits => Activity::WaitsForCpu,
        Doing::Blocked => Activity::Sleeps,
        Doing::Unknown | Doing::Untold => Activity::Unknown,
    };
    if let (Activity::Unknown, Some(thread)) = (activity, thread)
        && P::run_state(thread) == Ok(RunState::Blocked)
    {
        activity = Activity::Sleeps;
    }
    let sleeping = thread.filter(|_| activity == Activity::Sleeps);
    BusyWorker {
        thread: worker.name(),
        thread_id: thread.map(P::thread_id),
        function,
        description: worker.description(),
        runs: if worker.is_in_hook() {
            Some(now.saturating_since(worker.began()))
        } else {
            seen.map(|seen| now - seen.since)
        },
        activity,
        place: sleeping.and_then(P::sleeps_in),
    }
}
