//! The limit on threads, where pools want more of them than there may be.
//!
//! A worker that has nothing to do sleeps, and ends after a long time. Under the limit it holds a place that a worker of another pool
//! may need (of another nice value, of a pod that nobody else helps). So a start that the limit refuses *retires* a worker that sleeps at
//! another pool, and the thread that ends calls a worker for the pool that was refused. Where all workers are busy, the first of another
//! pool that goes to sleep is retired.
//!
//! # Steps
//! * A pool that was refused a worker which it needs (a spare one is none) puts itself onto the line (WANT), and tries once more (TRY). If
//!   it is refused again, it looks for somebody to be retired (SCAN).
//! * Retired is, of the pool with most workers asleep, the one that took its last items first. Its status goes from `IDLE` to `LEAVING`, by
//!   the compare-exchange that decides between all that want a sleeper (`worker`); then it is woken. So it ends, for certain. Pools where
//!   work waits, and those in the line, keep theirs. As many are retired as pools are in the line: `leaving` counts those that have not
//!   ended.
//! * A thread that ends takes itself off the count (END), looks at the line (LOOK), takes the first pool off it, and calls a worker for
//!   it, as a pusher does: it may be that none is needed any more. Where the limit refuses again, the pool goes to the line's end.
//! * A worker that goes to sleep (SETTLE) looks at the line (LOOK), and retires somebody, maybe itself.
//!
//! # No wake-up is lost
//! Dekker's pattern, three times, all `SeqCst`:
//! * WANT, then TRY, which reads `threads`; END, which writes `threads`, then LOOK, which reads `wanting`. Either the pool's second try
//!   finds the place, or the thread that ended finds the pool.
//! * WANT, then SCAN, which reads each pool's word of sleepers (`idle`); SETTLE, which writes that word, then LOOK. Either who wants finds
//!   the sleeper, or the sleeper finds who wants.
//! * A push onto a pool in the line leaves the calling to the line: PUSH, then a look at the pool's mark. Who takes a pool off takes the
//!   mark away, then looks whether something waits there: it finds that, or the pusher finds no mark.
//!
//! A place that is counted for a thread which the system then refuses is found by the monitor, which tries again as long as work waits.
//! Where a retired worker is in its stop hook for long, the monitor has one more retired each time that it finds that the pool has
//! started nothing for a while (`balance`).
//!
//! The line's lock is taken where the limit was reached only, and by threads that end. No thread is started and none is woken under it.

use std::collections::VecDeque;
use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use super::Inner;
use crate::pool::Pool;
use crate::worker::Worker;

/// Which pools wait for a thread that the limit refuses.
pub(crate) struct Line<P: Platform> {
    /// Pools in `waiting`: changed under its lock, read without.
    wanting: P::AtomicU32,
    waiting: Mutex<Waiting<P>, P>,
}

struct Waiting<P: Platform> {
    /// First come, first served.
    pools: VecDeque<Arc<Pool<P>>>,
    /// Workers that were retired and have not ended.
    leaving: usize,
}

/// How many are to be retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retire {
    /// One, unless as many are about to end as pools are in the line.
    One,
    /// One, however many are about to end.
    OneMore,
}

/// Workers that sleep at a pool.
struct Sleepers<'a, P: Platform> {
    pool: &'a Pool<P>,
    count: u32,
    /// The one that took its last items first.
    longest: &'a Worker<P>,
}

impl<P: Platform> Line<P> {
    pub(crate) fn new() -> Self {
        Line { wanting: P::AtomicU32::new(0), waiting: Mutex::new_in(Waiting::new()) }
    }

    /// Nobody waits, and nobody ends. In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        crate::fork::set(&self.wanting, 0);
        // SAFETY: this is the only thread, and no user's code runs while it holds the lock. What the line had leaks.
        unsafe { self.waiting.renew(Waiting::new()) };
    }

    /// Whether a pool is in the line. SeqCst: LOOK. The caller has a model's fence between this and what it wrote before.
    fn has_any(&self) -> bool {
        self.wanting.load(Ordering::SeqCst) != 0
    }

    /// Takes the first pool off, if there is one.
    fn pop(&self, waiting: &mut Waiting<P>) -> Option<Arc<Pool<P>>> {
        let pool = waiting.pools.pop_front()?;
        self.wanting.fetch_sub(1, Ordering::SeqCst);
        pool.hardship.leave_line();
        P::model_fence();
        Some(pool)
    }

    /// Takes those off that need nobody any more.
    fn prune(&self, waiting: &mut Waiting<P>) {
        waiting.pools.retain(|pool| {
            // As in `pop`: first the mark, then the look. Meanwhile it counts, so that no LOOK misses it.
            pool.hardship.leave_line();
            P::model_fence();
            // Where somebody else puts it onto the line again, that one counts it once more.
            let stays = pool.needs_thread() && pool.hardship.enter_line();
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

impl<P: Platform> Inner<P> {
    /// How many threads there may be.
    pub(crate) fn thread_limit(&self) -> u32 {
        self.thread_limit.load(Ordering::Relaxed)
    }

    /// Whether the limit would refuse another thread.
    fn is_at_limit(&self) -> bool {
        P::model_fence();
        self.threads.load(Ordering::SeqCst) >= self.thread_limit()
    }

    /// The pool was refused a worker by the limit, although it needs one.
    #[cold]
    pub(crate) fn want_thread(&self, pool: &Pool<P>) {
        if !pool.hardship.enter_line() {
            // Who comes to it in the line sees what waits there.
            return;
        }
        // SAFETY: every pool is in an Arc, made by `Inner::pool`; this adds the reference that the line holds.
        let own = unsafe {
            Arc::increment_strong_count(pool);
            Arc::from_raw(pool)
        };
        let mut waiting = self.line.waiting.lock();
        waiting.pools.push_back(own);
        // WANT.
        self.line.wanting.fetch_add(1, Ordering::SeqCst);
        drop(waiting);
        // TRY. It stays in the line; who comes to it there finds that it needs nobody.
        if self.is_at_limit() || !pool.start_worker(false) {
            self.retire(Retire::One);
        }
    }

    /// As [`want_thread`](Self::want_thread), where whoever was retired has not ended for long: one more is. By the monitor.
    pub(crate) fn want_thread_badly(&self, pool: &Pool<P>) {
        self.want_thread(pool);
        self.retire(Retire::OneMore);
    }

    /// A worker has gone to sleep: after [`Idle::settle`](crate::idle::Idle::settle).
    #[inline]
    pub(crate) fn settled(&self) {
        // LOOK.
        if self.line.has_any() {
            self.retire(Retire::One);
        }
    }

    /// Retires a worker that sleeps, if there is one that may go.
    #[cold]
    fn retire(&self, how: Retire) {
        let mut waiting = self.line.waiting.lock();
        self.line.prune(&mut waiting);
        let enough = match how {
            Retire::One => waiting.leaving >= waiting.pools.len(),
            Retire::OneMore => waiting.pools.is_empty(),
        };
        while !enough && self.is_at_limit() {
            // SCAN.
            let Some(worker) = self.longest_asleep(&waiting.pools) else { return };
            // First the count: a pusher that finds it retired may have to start another one.
            worker.pool().worker_ended();
            if worker.retire() {
                waiting.leaving += 1;
                drop(waiting);
                worker.parker.unpark();
                return;
            }
            // Somebody has woken it.
            worker.pool().count_worker();
        }
    }

    /// The worker that may go: it sleeps, and nothing waits at its pool.
    fn longest_asleep(&self, line: &VecDeque<Arc<Pool<P>>>) -> Option<&Worker<P>> {
        let mut pools: Vec<Sleepers<'_, P>> = Vec::new();
        for worker in self.table.iter().filter(|worker| !worker.rescues()) {
            let pool = worker.pool();
            // SeqCst: the word that SETTLE wrote; the worker's status was written before that.
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

    /// The calling thread, which was a worker's, ends; `retired` says whether it has to for the sake of another pool.
    pub(super) fn thread_ended(&self, retired: bool) {
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
        // Each once: who is refused again goes to the end.
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
