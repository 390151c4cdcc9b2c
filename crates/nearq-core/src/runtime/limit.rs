//! What happens when pools need more threads than the runtime's limit on threads allows.
//!
//! A worker that has nothing to do sleeps, and ends after a long time. While it sleeps, its thread counts against the limit, and a worker
//! of another pool may need that room (a pool of another nice value, or of a pod that no other pool helps). So when the limit refuses to
//! start a worker, an idle worker of another pool is *retired*, and the thread that ends calls a worker for the pool that was refused. If
//! all workers are busy, the first one of another pool that goes to sleep is retired.
//!
//! # Steps
//! * If a pool is refused a worker that it needs (a spare one is not needed), the thread that tried to start it puts the pool into the line
//!   (WANT), and tries once more (TRY). If it is refused again, it looks for a worker to retire (SCAN).
//! * In the pool with the most sleeping workers, the worker that took its last items longest ago is retired. Its status goes from `IDLE` to
//!   `LEAVING`, by the compare-exchange that decides between all threads that want a sleeping worker (`worker`); then it is woken. So it is
//!   certain to end. No worker is retired from a pool where work waits, or that is in the line. At most as many workers are on their way
//!   out as pools are in the line (but see below): `leaving` counts the retired workers that have not ended.
//! * A thread that ends decrements the count (END), reads the line (LOOK), takes the first pool off it, and calls a worker for that pool,
//!   as a pusher does: perhaps none is needed any more. If the limit refuses again, the pool goes to the end of the line.
//! * A worker that goes to sleep (SETTLE) reads the line (LOOK). If there is a pool in it, it retires a worker, possibly itself.
//!
//! # No wake-up is lost
//! Dekker's pattern, three times, all `SeqCst`:
//! * WANT, then TRY, which reads `threads`; END, which writes `threads`, then LOOK, which reads `wanting`. Either the pool's second try
//!   finds room under the limit, or the thread that ended finds the pool in the line.
//! * WANT, then SCAN, which reads each pool's word of sleepers (`idle`); SETTLE, which writes that word, then LOOK. Either the thread that
//!   scans finds the sleeper, or the sleeper finds the pool in the line.
//! * If the pool is in the line, a pusher relies on the line to call a worker: it pushes, then reads the pool's mark. The thread that takes
//!   a pool off the line clears the mark, then checks whether something waits there. Either it finds the item, or the pusher finds no mark.
//!
//! A thread that the system refuses has been counted for a moment, and that may have kept another pool from starting one: the monitor tries
//! again while work waits. If a retired worker spends long in its stop hook, the monitor retires one more each time that it finds that the
//! pool has started nothing for a while (`balance`).
//!
//! The line's lock is taken only when a pool is in the line, or when a retired thread ends. No thread is started or woken while it is held.

use std::collections::VecDeque;
use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use super::{Core, KnownQueue};
use crate::pool::Pool;
use crate::pool::worker::Worker;

/// Which pools wait for a thread that the limit refuses.
pub(crate) struct Line<P: Platform> {
    /// How many pools `waiting` has: changed under its lock, read without it.
    wanting: P::AtomicU32,
    waiting: Mutex<Waiting<P>, P>,
}

struct Waiting<P: Platform> {
    /// First come, first served.
    pools: VecDeque<Arc<Pool<P>>>,
    /// Workers that were retired and have not ended.
    leaving: usize,
}

/// How many workers to retire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retire {
    /// One worker, unless as many workers are about to end as pools are in the line.
    One,
    /// One worker, however many workers are about to end.
    OneMore,
}

/// Workers that sleep at a pool.
struct Sleepers<'a, P: Platform> {
    pool: &'a Pool<P>,
    count: u32,
    /// Of these, the worker that took its last items longest ago.
    longest: &'a Worker<P>,
}

impl<P: Platform> Line<P> {
    pub(crate) fn new() -> Self {
        Line { wanting: P::AtomicU32::new(0), waiting: Mutex::new_in(Waiting::new()) }
    }

    /// Resets it to no pool in the line, and no worker about to end. In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        crate::base::forked::set(&self.wanting, 0);
        // SAFETY: this is the only thread, and no user's code runs while it holds the lock. The old contents of the line leak.
        unsafe { self.waiting.renew(Waiting::new()) };
    }

    /// Whether a pool is in the line. SeqCst: LOOK. The caller has a `model_fence` between what it wrote and this.
    fn has_any(&self) -> bool {
        self.wanting.load(Ordering::SeqCst) != 0
    }

    /// Takes the first pool off, if there is one.
    fn pop(&self, waiting: &mut Waiting<P>) -> Option<Arc<Pool<P>>> {
        let pool = waiting.pools.pop_front()?;
        self.wanting.fetch_sub(1, Ordering::SeqCst);
        pool.spawn_failure.leave_line();
        P::model_fence();
        Some(pool)
    }

    /// Takes off the pools that need no thread any more.
    fn prune(&self, waiting: &mut Waiting<P>) {
        waiting.pools.retain(|pool| {
            // As in `pop`: clear the mark first, then check. Meanwhile the pool stays counted, so that no LOOK misses it.
            pool.spawn_failure.leave_line();
            P::model_fence();
            // If another thread puts it into the line again, that thread counts it once more.
            let stays = pool.needs_thread() && pool.spawn_failure.enter_line();
            if !stays {
                self.wanting.fetch_sub(1, Ordering::SeqCst);
            }
            stays
        });
    }
}

impl<P: Platform> Waiting<P> {
    fn new() -> Self {
        Waiting { pools: VecDeque::new(), leaving: 0 }
    }
}

/// The most workers that are retired for a pool at once: they may be in their stop hooks for long.
const MOST_LEAVING: usize = 4;

impl<P: Platform, Q: KnownQueue> Core<P, Q> {
    /// How many threads there may be.
    pub(crate) fn thread_limit(&self) -> u32 {
        self.thread_limit.load(Ordering::Relaxed)
    }

    /// Whether the limit would refuse another thread.
    fn is_at_limit(&self) -> bool {
        P::model_fence();
        self.threads.load(Ordering::SeqCst) >= self.thread_limit()
    }

    /// The limit has refused a worker that the pool needs.
    #[cold]
    pub(crate) fn want_thread(&self, pool: &Pool<P>) {
        if !pool.spawn_failure.enter_line() {
            // The thread that takes it off the line will see what waits there.
            return;
        }
        let mut waiting = self.line.waiting.lock();
        waiting.pools.push_back(pool.shared());
        // WANT.
        self.line.wanting.fetch_add(1, Ordering::SeqCst);
        drop(waiting);
        // TRY. The pool stays in the line; the thread that takes it off checks whether it still needs a worker.
        if self.is_at_limit() || !pool.start_worker(false) {
            self.retire(Retire::One);
        }
    }

    /// As [`want_thread`](Self::want_thread), when the worker that was retired takes long to end: retires one more. By the monitor.
    pub(crate) fn want_thread_badly(&self, pool: &Pool<P>) {
        self.want_thread(pool);
        self.retire(Retire::OneMore);
    }

    /// A worker has gone to sleep. Called after [`Idle::settle`](crate::pool::idle::Idle::settle).
    #[inline]
    pub(crate) fn settled(&self) {
        // LOOK.
        if self.line.has_any() {
            self.retire(Retire::One);
        }
    }

    /// Retires a sleeping worker, if there is one that may end.
    #[cold]
    fn retire(&self, how: Retire) {
        let mut waiting = self.line.waiting.lock();
        self.line.prune(&mut waiting);
        let enough = match how {
            Retire::One => waiting.leaving >= waiting.pools.len(),
            Retire::OneMore => waiting.leaving >= MOST_LEAVING * waiting.pools.len(),
        };
        while !enough && self.is_at_limit() {
            // SCAN.
            let Some(worker) = self.longest_asleep(&waiting.pools) else { return };
            // The count first: a pusher that finds the worker retired may have to start another one.
            let pool = worker.pool();
            pool.worker_ended();
            if worker.retire() {
                if !core::ptr::eq(pool, worker.pool()) {
                    // The worker had ended meanwhile, and its entry belongs to another pool.
                    pool.count_worker();
                    worker.pool().worker_ended();
                }
                waiting.leaving += 1;
                drop(waiting);
                worker.parker.unpark();
                return;
            }
            // Another thread has woken it.
            pool.count_worker();
        }
    }

    /// The worker to retire: of the pools where nothing waits, the one with the most sleepers gives up the worker that took its last items
    /// longest ago.
    fn longest_asleep(&self, line: &VecDeque<Arc<Pool<P>>>) -> Option<&Worker<P>> {
        let mut pools: Vec<Sleepers<'_, P>> = Vec::new();
        for worker in self.services.workers.iter().filter(|worker| !worker.rescues()) {
            let pool = worker.pool();
            // SeqCst: `has_idle` reads the word that SETTLE wrote; the worker's status was written before that.
            if !pool.idle().has_idle() || !worker.is_idle() {
                continue;
            }
            match pools.iter_mut().find(|known| core::ptr::eq(known.pool, pool)) {
                Some(known) => {
                    known.count += 1;
                    if worker.began() < known.longest.began() {
                        known.longest = worker;
                    }
                }
                None if pool.has_waiting() => {}
                None if line.iter().any(|other| core::ptr::eq(Arc::as_ptr(other), pool)) => {}
                None => pools.push(Sleepers { pool, count: 1, longest: worker }),
            }
        }
        pools.into_iter().max_by_key(|pool| pool.count).map(|pool| pool.longest)
    }

    /// The calling thread, which was a worker's, ends; `retired` says whether it was retired to make room for another pool.
    pub(crate) fn thread_ended(&self, retired: bool) {
        // END.
        self.threads.fetch_sub(1, Ordering::SeqCst);
        P::model_fence();
        // LOOK.
        if retired || self.line.has_any() {
            self.serve_line(retired);
        }
    }

    #[cold]
    fn serve_line(&self, retired: bool) {
        let mut waiting = self.line.waiting.lock();
        if retired {
            waiting.leaving = waiting.leaving.saturating_sub(1);
        }
        // Each pool once: one that is refused again goes to the end.
        for _ in 0..waiting.pools.len() {
            if self.is_at_limit() || self.is_stopping() {
                return;
            }
            let Some(pool) = self.line.pop(&mut waiting) else { return };
            drop(waiting);
            if pool.has_waiting() {
                pool.call_worker();
            }
            waiting = self.line.waiting.lock();
        }
    }
}

#[cfg(test)]
mod tests;
