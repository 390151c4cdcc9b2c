//! A runtime: the pools, concurrency limits and queues of one process, and how they follow the machine.
//!
//! It knows its queues through a trait ([`KnownQueue`]): they are a higher layer. The handle that users have is in a higher layer as well
//! (`queue/runtime`).
//!
//! Locks here are taken when something is created or changed, never on an item's path. Order: a queue's `config`, then `pools`, then
//! `concurrency_limits`.
//!
//! # The folder
//! Imports `base`, `homes`, `layout`, `timer`, `observe` and `pool`.
//!
//! | file | what it holds |
//! |---|---|
//! | `pools` | pools and concurrency limits, made on first use |
//! | `threads`, `limit`, `retry` | which threads there may be; what happens at the limit; attempts that are repeated |
//! | `phase`, `orphans` | the phase of the runtime; queues that no thread waits for |
//! | `hosts` | the runtime as the timer and the homes call it |
//! | `config`, `report`, `hogs` | what is set when a runtime is built; stalls, as reports for people; functions that compute for too long |
//!
//! `runtime`, `phase`, `pools` and `retry` form a circle: parts of one record. The folder owns the locks `machine_config`, `pools`,
//! `concurrency_limits`, `siblings`, `queues`, `orphans` and that of the line for threads; the words `threads`, `leaving`, `reserved`,
//! `stopping` and `shut`.

use core::time::Duration;
use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, Instant, Ordering, Platform};
use nearq_topology::Topology;

use crate::base::arena::Arena;
use crate::layout::attributes::MachineConfig;
use crate::layout::priority::Priorities;
use crate::observe::Observation;
use crate::pool::Pool;
use crate::pool::concurrency_limit::ConcurrencyLimit;
use crate::pool::services::Services;
use crate::runtime::config::{Beginning, Config};
use crate::runtime::hogs::Hogs;
use crate::timer::Timer;
use phase::{Freezer, Shutdown};
use pools::Pools;

pub(crate) mod config;
pub(crate) mod hogs;
mod hosts;
mod limit;
mod orphans;
mod phase;
mod pools;
pub(crate) mod report;
mod retry;
mod threads;

pub(crate) use retry::until_retry;

/// The machine, affinity and quota are read again at most this often, and only while there is work.
const REFRESH_EVERY: Duration = Duration::from_secs(1);

/// A queue, as its runtime knows it.
pub(crate) trait KnownQueue: Send + Sync + 'static {
    /// Follows a change of the machine, or of a default.
    fn relayout(&self);

    /// Follows whether items may have homes.
    fn mark_pwqs(&self);

    /// Whether it takes part in a freeze.
    fn is_freezable(&self) -> bool;

    /// Called when it is put on the list of queues that no thread waits for. With the lock of that list.
    fn mark_orphaned(&self);

    /// Closes the queue if no thread touches it any more; then none ever will. By a thread that took the last handle.
    fn close_if_unused(&self) -> bool;
}

/// The inside of a runtime. It lives until the last handle is gone and the last thread has ended.
pub(crate) struct Core<P: Platform, Q: KnownQueue> {
    pub(crate) services: Services<P>,
    pub(crate) timer: Timer<P>,
    pub(crate) freezer: Freezer<P>,
    pub(crate) observation: Observation<P>,
    pub(crate) priorities: Priorities<P>,
    pub(crate) stopping: P::AtomicU32,
    pub(crate) shutdown: Shutdown<P>,
    pub(crate) machine_config: Mutex<Arc<MachineConfig>, P>,
    /// Whether the current machine configuration may not have reached every concurrency limit and queue.
    pub(crate) stale: P::AtomicU32,
    pub(crate) pools: Mutex<Pools<P>, P>,
    /// Lists of siblings, including replaced ones: a worker may be reading one.
    pub(crate) siblings: Mutex<Arena<Vec<*const Pool<P>>>, P>,
    pub(crate) concurrency_limits: Mutex<Vec<Arc<ConcurrencyLimit<P>>>, P>,
    /// Every queue whose end has not begun; a queue removes itself.
    pub(crate) queues: Mutex<Vec<std::sync::Weak<Q>>, P>,
    pub(crate) orphans: Mutex<Vec<Arc<Q>>, P>,
    pub(crate) has_orphans: P::AtomicU32,
    pub(crate) config: Config,
    /// Unique among the runtimes of the process: it tells which runtime a thread belongs to.
    pub(crate) number: u64,
    /// Threads of rescuers, which are no workers and do not count under the limit.
    pub(crate) reserved: P::AtomicU32,
    /// Worker threads that have ended while their stop hooks have not. They do not count under the limit.
    pub(crate) leaving: P::AtomicU32,
    /// When the last attempt was made to start rescuers again, in the child of a fork.
    pub(crate) rescuers_tried: P::AtomicU64,
    pub(crate) threads: P::AtomicU32,
    /// The number of worker threads that were started, to tell them apart; and the handle of the one that ended last.
    pub(crate) started: P::AtomicU32,
    pub(crate) last_ended: Mutex<Option<P::JoinHandle>, P>,
    pub(crate) thread_limit: P::AtomicU32,
    /// Pools that wait for a thread which the limit refuses.
    pub(crate) line: limit::Line<P>,
    pub(crate) spin: P::AtomicU32,
    /// No spinning if one CPU is allowed: the thread that is waited for could not run.
    may_spin: P::AtomicU32,
    pub(crate) idle_timeout: P::AtomicU64,
    pub(crate) last_refresh: P::AtomicU64,
    /// The scheduler that has received the homes of all workers; 0 is none. Relaxed: only one thread at a time checks.
    hint_receiver: P::AtomicU64,
    /// 1 while an attempt is left to the threads that wait for work; see `retry`.
    pub(crate) left: P::AtomicU32,
    next_pool: P::AtomicU32,
    next_queue: P::AtomicU64,
    default_max_active_warned: P::AtomicU32,
    /// Functions that used the CPU of a per-CPU pool for too long, and the limit for that.
    pub(crate) hogs: Hogs<P>,
    pub(crate) cpu_intensive_after: P::AtomicU64,
    pub(crate) stall_after: P::AtomicU64,
    pub(crate) abort_on_stall: P::AtomicU32,
    pub(crate) handles: P::AtomicU32,
}

// SAFETY: the raw pointers in `siblings` point to pools that `pools` keeps alive.
unsafe impl<P: Platform, Q: KnownQueue> Send for Core<P, Q> {}
// SAFETY: several threads may read the lists of `siblings` at once: pools are `Sync`, and so is everything else here.
unsafe impl<P: Platform, Q: KnownQueue> Sync for Core<P, Q> {}

/// How many runtimes the process has had.
#[allow(
    clippy::disallowed_types,
    reason = "a count, which no thread waits for and no model looks at"
)]
static RUNTIMES: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

impl<P: Platform, Q: KnownQueue> Drop for Core<P, Q> {
    fn drop(&mut self) {
        // Forks are followed for this runtime, unless it was never completely built.
        P::unfollow_forks(core::ptr::from_ref(self).cast());
    }
}

impl<P: Platform, Q: KnownQueue> Core<P, Q> {
    /// What a runtime is made of, with one handle and without threads, on a machine as described.
    pub(crate) fn new(
        machine_config: MachineConfig,
        beginning: Beginning,
        services: Services<P>,
        timer: Timer<P>,
    ) -> Self {
        let may_spin = machine_config.parallelism() > 1;
        Core {
            services,
            timer,
            freezer: Freezer::new(),
            observation: Observation::new(),
            priorities: Priorities::new(),
            stopping: P::AtomicU32::new(0),
            shutdown: Shutdown::new(),
            machine_config: Mutex::new_in(Arc::new(machine_config)),
            stale: P::AtomicU32::new(0),
            pools: Mutex::new_in(Pools::new()),
            siblings: Mutex::new_in(Arena::new()),
            concurrency_limits: Mutex::new_in(Vec::new()),
            queues: Mutex::new_in(Vec::new()),
            orphans: Mutex::new_in(Vec::new()),
            has_orphans: P::AtomicU32::new(0),
            config: beginning.config,
            number: RUNTIMES.fetch_add(1, core::sync::atomic::Ordering::Relaxed) + 1,
            reserved: P::AtomicU32::new(0),
            leaving: P::AtomicU32::new(0),
            rescuers_tried: P::AtomicU64::new(0),
            threads: P::AtomicU32::new(0),
            started: P::AtomicU32::new(0),
            last_ended: Mutex::new_in(None),
            thread_limit: P::AtomicU32::new(beginning.thread_limit),
            line: limit::Line::new(),
            spin: P::AtomicU32::new(beginning.spin),
            may_spin: P::AtomicU32::new(u32::from(may_spin)),
            idle_timeout: P::AtomicU64::new(nanos(beginning.idle_timeout)),
            last_refresh: P::AtomicU64::new(P::now().as_nanos()),
            hint_receiver: P::AtomicU64::new(0),
            left: P::AtomicU32::new(0),
            next_pool: P::AtomicU32::new(0),
            next_queue: P::AtomicU64::new(0),
            default_max_active_warned: P::AtomicU32::new(0),
            hogs: Hogs::new(),
            cpu_intensive_after: P::AtomicU64::new(nanos(beginning.cpu_intensive_after)),
            stall_after: P::AtomicU64::new(nanos(beginning.stall_after)),
            abort_on_stall: P::AtomicU32::new(beginning.abort_on_stall),
            handles: P::AtomicU32::new(1),
        }
    }

    /// Adds one reference.
    pub(crate) fn shared(&self) -> Arc<Self> {
        // SAFETY: the handle's `start` has put it into an exposed `Arc`, and the caller keeps it alive.
        unsafe { crate::base::shared::share(self) }
    }

    pub(crate) fn machine_config(&self) -> Arc<MachineConfig> {
        Arc::clone(&self.machine_config.lock())
    }

    #[inline]
    pub(crate) fn spin_budget(&self) -> u32 {
        self.spin.load(Ordering::Relaxed)
    }

    /// Whether another thread can change what this one reads while it spins.
    pub(crate) fn may_spin(&self) -> bool {
        self.may_spin.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        Duration::from_nanos(self.idle_timeout.load(Ordering::Relaxed))
    }

    // ---- queues ------------------------------------------------------------------------------------------

    /// A number for a new queue, from 1 on.
    pub(crate) fn number_queue(&self) -> u64 {
        self.next_queue.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn add_queue(&self, queue: &Arc<Q>) {
        self.queues.lock().push(Arc::downgrade(queue));
    }

    /// A queue ends.
    pub(crate) fn remove_queue(&self, queue: *const Q) {
        self.queues.lock().retain(|other| other.as_ptr() != queue);
    }

    pub(crate) fn live_queues(&self) -> Vec<Arc<Q>> {
        self.queues.lock().iter().filter_map(std::sync::Weak::upgrade).collect()
    }

    pub(crate) fn freezable_queues(&self) -> Vec<Arc<Q>> {
        self.live_queues().into_iter().filter(|queue| queue.is_freezable()).collect()
    }

    // ---- the machine ---------------------------------------------------------------------------------------

    /// Called by threads that are awake anyway: reads the machine again if the last time is long enough ago.
    #[inline]
    pub(crate) fn refresh_machine(&self, now: Instant) {
        if self.is_refresh_due(now) {
            self.refresh_machine_slow(now, self.last_refresh.load(Ordering::Relaxed));
        }
    }

    /// Whether the machine should be read again.
    #[inline]
    pub(crate) fn is_refresh_due(&self, now: Instant) -> bool {
        let last = self.last_refresh.load(Ordering::Relaxed);
        now.as_nanos().saturating_sub(last) >= REFRESH_EVERY.as_nanos() as u64
    }

    #[cold]
    fn refresh_machine_slow(&self, now: Instant, last: u64) {
        let claimed = self.last_refresh.compare_exchange(
            last,
            now.as_nanos(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if claimed.is_ok() {
            self.refresh();
            self.send_home_hints();
            self.timer.retry();
        }
    }

    pub(crate) fn refresh(&self) {
        // What cannot be read now may be readable in a second; until then the last result stays valid.
        let Ok(mut now) = P::reread_machine(|| self.machine_config()) else { return };
        now.limits.affinity = self.services.homes.unentered(now.limits.affinity);
        let known = self.machine_config();
        // Not only the online CPUs: a machine that was partly read before may be complete now.
        let is_known = |topology: &Topology| *topology == known.topology;
        let same = now.limits == known.limits && now.topology.as_ref().is_none_or(is_known);
        if same && self.stale.swap(0, Ordering::Relaxed) == 0 {
            return;
        }
        self.change_machine_config(|machine_config| {
            machine_config.limits = now.limits;
            if let Some(topology) = now.topology {
                machine_config.topology = topology;
            }
        });
    }

    pub(crate) fn change_machine_config(&self, change: impl FnOnce(&mut MachineConfig)) {
        {
            let mut current = self.machine_config.lock();
            let mut changed = MachineConfig::clone(&current);
            change(&mut changed);
            *current = Arc::new(changed);
        }
        let machine_config = self.machine_config();
        let parallelism = machine_config.parallelism();
        self.services.homes.set_machine(&machine_config.topology, &machine_config.allowed());
        self.may_spin.store(u32::from(parallelism > 1), Ordering::Relaxed);
        let concurrency_limits = self.concurrency_limits.lock().clone();
        for concurrency in concurrency_limits {
            concurrency.set_limit(parallelism);
        }
        for queue in self.live_queues() {
            queue.relayout();
        }
    }

    /// How long an item of a per-CPU queue may use its CPU before that is too long; zero is never.
    pub(crate) fn cpu_intensive_after(&self) -> Duration {
        Duration::from_nanos(self.cpu_intensive_after.load(Ordering::Relaxed))
    }

    /// How long work may wait while nothing starts before that is reported; zero is never.
    pub(crate) fn stall_after(&self) -> Duration {
        Duration::from_nanos(self.stall_after.load(Ordering::Relaxed))
    }

    /// At which stall the process is aborted; zero is never.
    pub(crate) fn abort_on_stall(&self) -> u32 {
        // Relaxed: a setting.
        self.abort_on_stall.load(Ordering::Relaxed)
    }

    /// A function has used the CPU of a per-CPU pool for longer than that.
    pub(crate) fn count_hog(&self, function: Option<&'static str>, limit: Duration) {
        let Some(function) = function else { return };
        if let Some(times) = self.hogs.count(function) {
            P::warn(&format!(
                "{function} occupied a CPU of a per-CPU queue for more than {limit:?} while other items waited, {times} times: \
                 consider an unbound queue, or cpu_intensive(true)"
            ));
        }
    }

    /// Reports a refused call once.
    pub(crate) fn warn_max_active(&self, asked: usize, taken: usize) {
        if self.default_max_active_warned.swap(1, Ordering::Relaxed) == 0 {
            P::warn(&format!("max_active {asked} is not between 1 and 2048; {taken} is used"));
        }
    }
}

/// The time as the runtime stores it; anything longer than five centuries is cut.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
