//! How many workers may be awake, from what the monitor sees of them.
//!
//! A worker that sleeps inside its item keeps its place of the concurrency limit and still counts as awake in its pool, because nothing
//! tells the runtime. So the monitor adds as many places (`ConcurrencyLimit::set_extra`) and raises `max_running` (`Pool::set_max_running`)
//! as workers *are away*: asleep or, in the pool of one CPU, hogging it. Then a worker is called, and that is all: nothing is undone when
//! the sleeper comes back. The sleeper goes on with its work, and most often another worker has fallen asleep meanwhile. So if items sleep
//! all the time, there soon are as many workers awake or asleep as needed, and nothing has to be detected any more.
//!
//! Places are taken away, and `max_running` is lowered, if at two checks in a row more workers could run than there are CPUs: half of the
//! excess that both saw. Then that many workers leave at the ends of their batches, if there still are too many (`Context::leave_if_over`).
//! Workers whose state the system does not report may be asleep: nothing is taken away for them.
//!
//! # Progress
//! Progress does not depend on any of this. A pool with waiting work that has started nothing for [`STUCK`] gets a place, one more in
//! `max_running`, and a call, whatever the states say. If the workers do use their CPUs, each further worker doubles the time until the
//! next one, up to [`PATIENCE`].
//!
//! The pool gets them in addition to the places that are taken, not to those that are allowed: workers may hold more places than there are
//! by now, because the excess is taken away while these workers go on. And nothing is taken away from the pool or its concurrency limit
//! before the pool has started something with what it got.
//!
//! That time is the sum of the times between checks, each counted as [`LONGEST_STEP`] at most: whatever keeps the monitor from checking
//! keeps the workers from running as well. If a check finds as many workers of the concurrency limit running, or ready to, as there are
//! CPUs, the pool waits for its turn: other programs have the CPUs, and one more thread would only be one more that waits. Then it takes
//! [`STUCK`] without such a check, or [`TURN`] in all, because a state may be misread.
//!
//! Belongs to the monitor's thread, like everything that the monitor remembers.

use core::time::Duration;
use std::sync::Arc;

use nearq_platform::{Instant, Platform};

use crate::monitor::by_pool::{ByPool, place_of};
use crate::monitor::watch::{Doing, Watcher};
use crate::pool::Pool;
use crate::pool::concurrency_limit::ConcurrencyLimit;
use crate::pool::homes::Noted;
use crate::pool::worker::Counted;
use crate::queue::runtime::Inner;

/// A pool that had work and started nothing for this long gets one more worker.
const STUCK: Duration = Duration::from_millis(10);
/// The same, while the concurrency limit is seen to be full of running workers.
const TURN: Duration = Duration::from_millis(100);
/// The longest time between two such workers.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most that the time between two checks counts.
const LONGEST_STEP: Duration = Duration::from_millis(5);
/// How many checks in a row must see too many workers that can run before places are taken away.
const SURPLUS: u32 = 2;

/// What workers are doing, counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Workers that have a place.
    placed: u32,
    /// Of these, the workers that do not use their place: asleep, or hogs.
    away: u32,
    /// Of these, the workers that are known to run, or that would run if other threads did not have their CPUs.
    ready: u32,
    /// Of these, the workers whose state the system does not report.
    unreported: u32,
}

impl Counts {
    fn runnable(self) -> u32 {
        self.placed - self.away
    }

    /// The number of workers beyond `cpus`, not counting any that may be asleep.
    fn beyond(self, cpus: u32) -> u32 {
        (self.runnable() - self.unreported).saturating_sub(cpus)
    }

    /// Workers that do not use their places, or may not be using them.
    fn maybe_away(self) -> u32 {
        self.away + self.unreported
    }
}

/// What is remembered of a pool.
#[derive(Debug, Default)]
struct OfPool {
    counts: Counts,
    surplus: Surplus,
    progress: Option<Progress>,
    /// What the monitor remembers if items with homes wait.
    noted: Option<Noted>,
}

/// How long nothing has been started at a pool where work waits.
#[derive(Debug)]
struct Progress {
    signature: u64,
    waited: Duration,
    /// The time since a check found the concurrency limit full of running workers.
    doubted: Duration,
    /// CPU time of the pool's workers, and when that was read: at the second check, because most often there is no second check.
    used: Option<(Instant, Duration)>,
    patience: Duration,
    /// Whether the pool has since got a place, and one more in `max_running`.
    given: bool,
    /// Whether that has lasted for [`STUCK`].
    stuck: bool,
}

/// What is remembered of a concurrency limit.
struct OfLimit<P: Platform> {
    concurrency: Arc<ConcurrencyLimit<P>>,
    counts: Counts,
    surplus: Surplus,
    /// Whether work waits at one of its pools.
    waiting: bool,
    /// Whether one of its pools may have too many running workers, and that is not known.
    unknown: bool,
    /// Whether one of its pools has got a place to ensure progress, and has started nothing since.
    given: bool,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Adjusted {
    /// Work waits somewhere.
    pub(crate) waiting: bool,
    /// A worker was called because another is asleep, or hogs its CPU.
    pub(crate) replaced: bool,
    /// Work waits at a pool that has started nothing for [`STUCK`].
    pub(crate) stuck: bool,
}

/// Places of the concurrency limits and `max_running` of the pools, as the monitor sets them.
pub(crate) struct Balance<P: Platform> {
    pools: ByPool<OfPool>,
    concurrency_limits: Vec<OfLimit<P>>,
    /// When it last checked.
    checked_at: Option<Instant>,
}

impl<P: Platform> Balance<P> {
    pub(crate) fn new() -> Self {
        Balance { pools: ByPool::new(), concurrency_limits: Vec::new(), checked_at: None }
    }

    /// Nothing waits any more. What was given stays for workers that are asleep now; the rest is taken back.
    pub(crate) fn settle(&mut self, pools: &[Arc<Pool<P>>]) {
        for of in &mut self.concurrency_limits {
            of.concurrency.set_extra(of.concurrency.extra().min(of.counts.maybe_away()));
            of.surplus = Surplus::default();
        }
        for (pool, of) in pools.iter().zip(self.pools.align(pools)) {
            pool.set_max_running(pool.max_running().min(pool.cpus() + of.counts.maybe_away()));
            (of.surplus, of.progress) = (Surplus::default(), None);
        }
    }

    /// Sets places and `max_running` after a check of the workers.
    pub(crate) fn adjust(
        &mut self,
        inner: &Inner<P>,
        pools: &[Arc<Pool<P>>],
        watcher: &mut Watcher<P>,
        now: Instant,
    ) -> Adjusted {
        let own: Vec<bool> = pools.iter().map(|pool| pool.has_waiting()).collect();
        // A helper may fall asleep in another pool's item, and is replaced as if the item were of its own pool.
        let waits = |pool: &Pool<P>| place_of(pools, pool).is_some_and(|place| own[place]);
        let helps = |(pool, own_waits): (&Arc<Pool<P>>, &bool)| *own_waits || pool.helps_any(waits);
        let waiting: Vec<bool> = pools.iter().zip(&own).map(helps).collect();
        self.count(inner, pools, &waiting, watcher, now);
        for of in self.concurrency_limits.iter_mut().filter(|of| of.waiting) {
            of.adjust();
        }
        let passed =
            now.saturating_since(self.checked_at.replace(now).unwrap_or(now)).min(LONGEST_STEP);
        let (mut replaced, mut stuck) = (false, false);
        let homes_are_used = inner.services.homes.are_used();
        for (index, pool) in pools.iter().enumerate() {
            let of = &mut self.pools.values()[index];
            if homes_are_used {
                pool.update_homed(&mut of.noted, own[index], now);
            }
            if !waiting[index] {
                (of.surplus, of.progress) = (Surplus::default(), None);
                continue;
            }
            pool.tidy();
            if of.adjust(pool, watcher.is_left_alone(pool)) {
                count_replaced(pool, watcher);
                replaced = true;
            }
            watcher.suspect(pool.id, of.may_have_surplus(pool));
            if own[index] {
                let full = self
                    .concurrency_limits
                    .iter()
                    .any(|of| Arc::ptr_eq(&of.concurrency, &pool.concurrency) && of.is_full());
                stuck |= of.see_to_progress(pool, now, passed, full);
            } else {
                of.progress = None;
            }
        }
        Adjusted { waiting: waiting.contains(&true), replaced, stuck }
    }

    fn count(
        &mut self,
        inner: &Inner<P>,
        pools: &[Arc<Pool<P>>],
        waiting: &[bool],
        watcher: &mut Watcher<P>,
        now: Instant,
    ) {
        let of_pools = self.pools.align(pools);
        for of in &mut *of_pools {
            of.counts = Counts::default();
        }
        for of in &mut self.concurrency_limits {
            (of.counts, of.waiting, of.unknown, of.given) = Default::default();
        }
        let limit = inner.cpu_intensive_after();
        for worker in inner.services.workers.iter() {
            let pool = worker.pool();
            let Some(index) = place_of(pools, pool) else { continue };
            let Some(seen) = watcher.seen_mut(worker) else { continue };
            let burst = seen.cpu_time.saturating_sub(seen.burst);
            if pool.key.bound
                && !seen.hog
                && limit != Duration::ZERO
                && burst >= limit
                && waiting[index]
            {
                seen.hog = true;
                worker.count(Counted::Hogged);
                inner.count_hog(worker.function(), limit);
            }
            // The worker is still in the same item. What is behind that item in its batch waits, unless another worker has nothing else to
            // do.
            if now.saturating_since(seen.since) >= STUCK
                && seen.item == worker.batch.signature()
                && worker.batch.len() != 0
            {
                pool.relieve(worker, false);
            }
            let counts = &mut of_pools[index].counts;
            counts.placed += 1;
            counts.away += u32::from(seen.hog || seen.doing == Doing::Blocked);
            counts.unreported += u32::from(!seen.hog && seen.doing == Doing::Unreported);
            counts.ready +=
                u32::from(!seen.hog && matches!(seen.doing, Doing::Runs | Doing::Waits));
        }
        for ((pool, of), waiting) in pools.iter().zip(of_pools).zip(waiting) {
            let concurrency = match self
                .concurrency_limits
                .iter_mut()
                .find(|of| Arc::ptr_eq(&of.concurrency, &pool.concurrency))
            {
                Some(concurrency) => concurrency,
                None => {
                    self.concurrency_limits.push(OfLimit {
                        concurrency: Arc::clone(&pool.concurrency),
                        counts: Counts::default(),
                        surplus: Surplus::default(),
                        waiting: false,
                        unknown: false,
                        given: false,
                    });
                    self.concurrency_limits.last_mut().expect("just pushed")
                }
            };
            concurrency.counts.placed += of.counts.placed;
            concurrency.counts.away += of.counts.away;
            concurrency.counts.unreported += of.counts.unreported;
            // If no worker's state was asked for, the clocks say that all the pool's CPUs are used.
            let unasked = watcher.is_left_alone(pool);
            let used = if unasked { pool.cpus().min(of.counts.placed) } else { 0 };
            concurrency.counts.ready += of.counts.ready.max(used);
            concurrency.waiting |= waiting;
            concurrency.unknown |= unasked;
            concurrency.given |= of.is_given();
        }
    }
}

/// The excess, check after check.
#[derive(Clone, Copy, Debug, Default)]
struct Surplus {
    /// Checks in a row with an excess.
    checks: u32,
    /// The smallest of these excesses.
    least: u32,
}

impl Surplus {
    /// How much to take away after a check that saw `now` too many: half of the excess in [`SURPLUS`] checks in a row.
    fn take(&mut self, now: u32) -> u32 {
        if now == 0 {
            *self = Surplus::default();
            return 0;
        }
        self.least = if self.checks == 0 { now } else { self.least.min(now) };
        self.checks += 1;
        if self.checks < SURPLUS {
            return 0;
        }
        self.checks = 0;
        self.least.div_ceil(2)
    }
}

impl<P: Platform> OfLimit<P> {
    /// Whether as many workers as should run do so, or would if other threads did not have their CPUs.
    fn is_full(&self) -> bool {
        self.counts.ready >= self.concurrency.limit()
    }

    fn adjust(&mut self) {
        let (extra, limit) = (self.concurrency.extra(), self.concurrency.limit());
        let runnable = self.counts.runnable();
        if runnable < limit && extra < self.counts.away {
            self.concurrency.set_extra(self.counts.away);
        } else if !self.unknown && !self.given {
            let take = self.surplus.take(self.counts.beyond(limit).min(extra));
            if take != 0 {
                self.concurrency.set_extra(extra - take);
            }
        }
    }
}

impl OfPool {
    /// Returns whether a worker was called because workers are away. `unknown`: too many may be running.
    fn adjust<P: Platform>(&mut self, pool: &Pool<P>, unknown: bool) -> bool {
        let (max_running, cpus) = (pool.max_running(), pool.cpus());
        let runnable = self.counts.runnable();
        let may_call = || !pool.concurrency.is_full() && !pool.idle().has_searching();
        if runnable < cpus {
            self.surplus = Surplus::default();
            let wanted = cpus + self.counts.away;
            if max_running < wanted {
                pool.set_max_running(wanted);
            }
            return may_call() && pool.call_hand() && self.counts.away != 0;
        }
        if !unknown && !self.is_given() {
            let take =
                self.surplus.take(self.counts.beyond(cpus).min(max_running.saturating_sub(cpus)));
            if take != 0 {
                pool.set_max_running(max_running - take);
            }
        }
        // Other CPUs may be free.
        if pool.key.helping && may_call() {
            pool.call_hand();
        }
        false
    }

    /// Whether it has got a place to ensure progress, and has started nothing since.
    fn is_given(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.given)
    }

    /// Whether more workers than CPUs may be running, and places could be taken away or `max_running` lowered.
    fn may_have_surplus<P: Platform>(&self, pool: &Pool<P>) -> bool {
        self.counts.runnable() > pool.cpus()
            && (pool.max_running() > pool.cpus() || pool.concurrency.extra() > 0)
    }

    /// Whether nothing has been started for [`STUCK`]. `passed` is the time since the last check, and `full` whether this check found the
    /// pool's concurrency limit full of running workers.
    fn see_to_progress<P: Platform>(
        &mut self,
        pool: &Pool<P>,
        now: Instant,
        passed: Duration,
        full: bool,
    ) -> bool {
        let signature = pool.signature();
        let start = |patience, given, stuck| Progress {
            signature,
            waited: Duration::ZERO,
            doubted: Duration::ZERO,
            used: None,
            patience,
            given,
            stuck,
        };
        let Some(progress) = self.progress.as_mut().filter(|of| of.signature == signature) else {
            let patience = self.progress.as_ref().map_or(STUCK, |of| of.patience);
            self.progress = Some(start(patience, false, false));
            return false;
        };
        progress.waited += passed;
        progress.stuck |= progress.waited >= STUCK;
        progress.doubted = if full { Duration::ZERO } else { progress.doubted + passed };
        if pool.has_short_runner() {
            // A worker that ran short items has come to a long one: pushers wake workers again.
            pool.wake_another();
        }
        let (begin, used) = *progress.used.get_or_insert_with(|| (now, pool.cpu_time()));
        let in_doubt = progress.doubted >= STUCK || progress.waited >= TURN;
        if progress.waited < progress.patience || !in_doubt {
            return progress.stuck;
        }
        if pool.waits_for_optional_only() {
            // The workers are busy, and nothing else waits.
            self.progress = Some(start(STUCK, false, false));
            return false;
        }
        // At least half a CPU's worth: the items are long, not asleep.
        let busy = begin < now && pool.cpu_time().saturating_sub(used) >= (now - begin) / 2;
        let (extra, max_running) = (pool.concurrency.extra(), pool.max_running());
        let taken = pool.concurrency.taken().saturating_sub(pool.concurrency.limit());
        pool.concurrency.set_extra(extra.max(taken) + 1);
        pool.set_max_running(max_running.max(pool.awake()) + 1);
        let was_in_line = pool.spawn_failure.is_in_line();
        let given = pool.call_hand();
        if !given {
            pool.concurrency.set_extra(extra);
            pool.set_max_running(max_running);
            if was_in_line {
                pool.want_thread_badly();
            }
        }
        let patience = if busy { (progress.patience * 2).min(PATIENCE) } else { STUCK };
        *progress = start(patience, given, progress.stuck);
        progress.stuck
    }
}

/// Counts the call for one of the pool's workers that are asleep.
fn count_replaced<P: Platform>(pool: &Pool<P>, watcher: &Watcher<P>) {
    let since = |worker| {
        watcher.seen(worker).filter(|seen| seen.doing == Doing::Blocked).map(|seen| seen.since)
    };
    // The worker whose item began last.
    let asleep = pool.entries().filter_map(|worker| Some((since(worker)?, worker)));
    if let Some((_, worker)) = asleep.max_by_key(|(since, _)| *since) {
        worker.count(Counted::Replaced);
    }
}
