//! Work that waits and does not get started: what is reported, and to whom.
//!
//! A pool has *stalled* if work waits and nothing has been started for a period (30 s by default). That need not be a fault: items may be
//! long, or many. Most often it is a fault: items that wait for each other, a lock that is never given back, a limit on threads. Nothing
//! else would report it, so the monitor does, once a period for as long as it lasts.
//!
//! It checks a hundred times in a period while work waits, and knows what it has seen when it checked the workers (`watch`). An item's
//! running time is counted from when the monitor first saw it, so the item may have run for longer than reported. When a stall is reported,
//! the monitor asks the system what it does not know about a thread (workers that have declared that they block are not watched), and where
//! threads sleep. That takes some 10 us for each thread.
//!
//! If [`abort_on_stall`](crate::RuntimeBuilder::abort_on_stall) is set, stalls are counted, and the process is aborted at the one that it
//! names. All reports of that check have been made by then, and they are on standard error too, where the reason is looked for.
//! Checks in which something is reported are counted, not reports, as in the kernel: ten pools may wait for the same lock.
//!
//! Belongs to the monitor's thread. The callback is foreign code that runs there: its panic goes no further. If it forks, the monitor's
//! thread in the child ends as soon as it returns.

use core::time::Duration;
use std::sync::Arc;

use nearq_platform::{Instant, Platform, RunState};

use crate::base::outcome::contain;
use crate::monitor::by_pool::ByPool;
use crate::monitor::watch::{Doing, Watcher};
use crate::pool::Pool;
use crate::pool::worker::Worker;
use crate::queue::runtime::Inner;
use crate::runtime::report::{Activity, BusyWorker, MOST_SHOWN, PoolThreads, Stall, ThreadLimit};

/// The default period, as in the kernel.
pub(crate) const STALL_AFTER: Duration = Duration::from_secs(30);
/// The number of checks in a period.
const CHECKS: u32 = 100;
/// The most workers that a report names: reports are read by people, and each worker costs the monitor some 10 us.
const MOST_NAMED: usize = 64;
/// Reported instead of a function's name for a worker that is in its start hook.
const START_HOOK: &str = "the hook on_worker_start";

/// A pool in which work waits.
struct Seen {
    signature: u64,
    /// When something was last started there, or work was first seen.
    since: Instant,
    /// When that, or the last report, was.
    reported_at: Instant,
}

/// What the monitor remembers of stalls.
pub(crate) struct Stalls {
    pools: ByPool<Option<Seen>>,
    /// When the next check is due.
    next: Option<Instant>,
    /// Checks that reported a stall, since they are counted.
    counted: Counted,
}

/// How many stalls there were while the process was to be aborted at one.
#[derive(Default)]
struct Counted(u32);

impl Counted {
    /// Counts a stall; true if it is that at which the process is aborted. `at` may have changed since the last one; zero is never.
    fn is_last(&mut self, at: u32) -> bool {
        self.0 = if at == 0 { 0 } else { self.0.saturating_add(1) };
        at != 0 && self.0 >= at
    }
}

impl Stalls {
    pub(crate) fn new() -> Self {
        Stalls { pools: ByPool::new(), next: None, counted: Counted::default() }
    }

    /// Checks whether anything has stalled, and reports it. By the monitor. False if the callback has forked, and this is the child.
    pub(crate) fn check<P: Platform>(
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
        self.next = Some(now + period / CHECKS);
        let mut reported = false;
        for (pool, seen) in pools.iter().zip(self.pools.align(pools)) {
            if !pool.has_waiting() {
                *seen = None;
                continue;
            }
            let signature = pool.signature();
            let moved = seen.as_ref().is_none_or(|seen| seen.signature != signature);
            if moved {
                *seen = Some(Seen { signature, since: now, reported_at: now });
                continue;
            }
            let Some(seen) = seen else { continue };
            if now - seen.reported_at >= period {
                seen.reported_at = now;
                if pool.waits_for_optional_only() {
                    continue;
                }
                let stall = describe(inner, pool, watcher, now - seen.since, now);
                if !report(inner, &stall) {
                    return false;
                }
                reported = true;
            }
        }
        if reported && self.counted.is_last(inner.abort_on_stall()) {
            P::warn(&format!(
                "{} stalls, the number set by NEARQ_ABORT_ON_STALL or the program (abort_on_stall): the process is aborted",
                self.counted.0
            ));
            std::process::abort();
        }
        true
    }
}

/// Reports to a subscriber of the crate `tracing`; false if there is none.
#[cfg(feature = "tracing")]
fn report_to_subscriber(stall: &Stall) -> bool {
    // A subscriber is foreign code too.
    let mut is_received = false;
    contain(|| {
        tracing::warn!(target: "nearq", pool = stall.pool.0, waiting = stall.waiting, "{stall}");
        is_received = tracing::enabled!(target: "nearq", tracing::Level::WARN);
    });
    is_received
}

#[cfg(not(feature = "tracing"))]
fn report_to_subscriber(_: &Stall) -> bool {
    false
}

fn report<P: Platform>(inner: &Inner<P>, stall: &Stall) -> bool {
    let epoch = P::fork_epoch();
    let is_received = report_to_subscriber(stall);
    let callback = inner.config.on_stall.as_ref();
    // Without this warning, the stall would not be reported at all, or not before the end of the process.
    if inner.abort_on_stall() != 0 || callback.is_none() && !is_received {
        P::warn(&stall.to_string());
    }
    if let Some(callback) = callback {
        let _ = contain(|| callback(stall));
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
    let of_pool = inner.services.workers.iter().filter(|worker| {
        // The queue's rescuer is included while it is at the pool.
        worker.is_alive() && core::ptr::eq(worker.pool(), Arc::as_ptr(pool))
    });
    let (mut idle, mut busy, mut more_busy) = (0, Vec::new(), 0);
    for worker in of_pool {
        if worker.is_idle() {
            idle += usize::from(!worker.rescues());
        } else if let Some(function) = busy_with(worker) {
            if busy.len() < MOST_NAMED {
                busy.push(describe_worker(worker, function, watcher, now));
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
        refused: pool.spawn_failure.lasts(),
        limit: pool.spawn_failure.is_by_limit().then(|| limit_of(inner)),
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

fn describe_worker<P: Platform>(
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
        Doing::Unknown | Doing::Unreported => Activity::Unknown,
    };
    if let (Activity::Unknown, Some(thread)) = (activity, thread) {
        if P::run_state(thread) == Ok(RunState::Blocked) {
            activity = Activity::Sleeps;
        }
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

#[cfg(test)]
mod tests {
    use super::Counted;

    #[test]
    fn the_stall_that_aborts_is_counted_from_when_it_was_set() {
        let mut counted = Counted::default();
        assert!(![0, 0, 0].map(|never| counted.is_last(never)).contains(&true));
        assert_eq!([3, 3, 3].map(|at| counted.is_last(at)), [false, false, true]);
        let mut counted = Counted::default();
        assert_eq!([5, 5, 2].map(|at| counted.is_last(at)), [false, false, true], "it was lowered");
        let mut counted = Counted::default();
        assert_eq!([2, 0, 2, 1].map(|at| counted.is_last(at)), [false, false, false, true]);
    }
}
