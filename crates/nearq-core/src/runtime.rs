//! A runtime: the pools, levels and queues of one process, and how they follow the machine.
//!
//! A [`Runtime`] is a handle; the last one's drop ends every thread. Queues hold a handle each. The process-wide
//! default runtime (`default`) is never dropped.
//!
//! Locks here are taken when something is created or changed, never on an item's way. Order: a queue's `config`, then
//! `pools`, then `levels`.

use core::time::Duration;
use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, Instant, Ordering, Platform};
use nearq_topology::{CpuSet, Scope, Topology};

use crate::attributes::{Attributes, Kind, Layout, Surroundings};
use crate::broken::Variant;
use crate::config::{Beginning, Config};
use crate::error::Error;
use crate::event::Event;
use crate::hogs::Hogs;
use crate::home::Homes;
use crate::kept::Kept;
use crate::level::Level;
use crate::monitor::Monitor;
use crate::observe::Observation;
use crate::pool::Pool;
use crate::priority::Priorities;
use crate::queue::Queue;
use crate::timer::Timer;
use crate::worker::{Table, Worker};
use phase::{Freezer, Shutdown};
use pools::Pools;

mod limit;
mod orphans;
mod phase;
mod pools;
mod retry;
mod threads;

pub(crate) use retry::until_retry;
pub(crate) use threads::Entry;

/// The machine, affinity and quota are looked at again at most this often, and only while there is work.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The runtime's inside. Lives until the last handle is gone and the last thread has ended.
pub(crate) struct Inner<P: Platform> {
    pub(crate) table: Table<P>,
    pub(crate) monitor: Monitor<P>,
    pub(crate) timer: Timer<P>,
    pub(crate) freezer: Freezer<P>,
    pub(crate) observation: Observation<P>,
    pub(crate) homes: Arc<Homes<P>>,
    pub(crate) priorities: Priorities<P>,
    pub(crate) stopping: P::AtomicU32,
    pub(crate) shutdown: Shutdown<P>,
    pub(crate) broken: Variant,
    pub(crate) surroundings: Mutex<Arc<Surroundings>, P>,
    /// What the surroundings say may not have reached every level and queue.
    pub(crate) stale: P::AtomicU32,
    pub(crate) pools: Mutex<Pools<P>, P>,
    /// Lists of siblings, replaced ones included: a worker may be reading one.
    pub(crate) siblings: Mutex<Kept<Vec<*const Pool<P>>>, P>,
    pub(crate) levels: Mutex<Vec<Arc<Level<P>>>, P>,
    /// Every queue whose end has not begun; a queue takes itself off.
    pub(crate) queues: Mutex<Vec<std::sync::Weak<Queue<P>>>, P>,
    pub(crate) orphans: Mutex<Vec<Arc<Queue<P>>>, P>,
    pub(crate) has_orphans: P::AtomicU32,
    pub(crate) config: Config,
    /// No other runtime of the process has it: by this its threads know whose they are.
    pub(crate) number: u64,
    /// Threads of rescuers, which are no workers and do not count under the limit.
    pub(crate) reserved: P::AtomicU32,
    /// Threads of workers that have ended, and their stop hooks have not. They do not count under the limit.
    pub(crate) leaving: P::AtomicU32,
    /// In the child of a fork: rescuers are to be started anew; and when that was tried last.
    pub(crate) rescuers_missing: P::AtomicU32,
    pub(crate) rescuers_tried: P::AtomicU64,
    pub(crate) threads: P::AtomicU32,
    /// Workers' threads that were started, to tell them apart; and the handle of the one that has ended last.
    started: P::AtomicU32,
    pub(crate) last_ended: Mutex<Option<P::JoinHandle>, P>,
    /// Whether there was ever a pool that no queue used.
    pub(crate) has_unused: P::AtomicU32,
    thread_limit: P::AtomicU32,
    /// Pools that wait for a thread which the limit refuses.
    pub(crate) line: limit::Line<P>,
    spin: P::AtomicU32,
    /// No spinning where one CPU is allowed: whoever is waited for could not run.
    may_spin: P::AtomicU32,
    idle_timeout: P::AtomicU64,
    last_look: P::AtomicU64,
    /// Who has heard where all workers are at home; 0 is nobody. Relaxed: it is the turn of one thread at a time to look.
    heard: P::AtomicU64,
    /// 1 while an attempt is left to the threads that wait for work; see `retry`.
    pub(crate) left: P::AtomicU32,
    next_pool: P::AtomicU32,
    next_queue: P::AtomicU64,
    default_max_active_warned: P::AtomicU32,
    /// Functions that used the CPU of a per-CPU pool for too long, and from when on that is so.
    pub(crate) hogs: Hogs<P>,
    cpu_intensive_after: P::AtomicU64,
    stall_after: P::AtomicU64,
    /// A worker has let go of the queue that it served; for who wants to free one.
    pub(crate) departures: Event<P>,
    handles: P::AtomicU32,
}

// SAFETY: the raw pointers in `siblings` lead to pools that `pools` keeps.
unsafe impl<P: Platform> Send for Inner<P> {}
// SAFETY: as above; everything else is `Sync` by itself.
unsafe impl<P: Platform> Sync for Inner<P> {}

/// A runtime. Handles are cheap to clone and name the same runtime.
///
/// `Runtime::default()` is the process-wide one; most programs never build another.
///
/// In the child of a fork every handle works: its runtime has no threads and nothing queued, and starts afresh with the first use.
///
/// When the last handle goes (each [`Workqueue`](crate::Workqueue) has one), the workers end; the drop waits for them. Two runtimes of which
/// each runs an item that drops the last handle of the other wait for each other for ever: let a thread of the program drop one of them.
pub struct Runtime<P: Platform = nearq_platform::Linux> {
    inner: Arc<Inner<P>>,
    /// Whether its drop waits for the threads, if it is the last handle. Not where a queue has it: any thread may be the last to let
    /// go of a queue, in the middle of anything.
    waits: bool,
}

/// Runtimes that the process has had.
#[allow(
    clippy::disallowed_types,
    reason = "a count, which no thread waits for and no model looks at"
)]
static RUNTIMES: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

impl<P: Platform> core::fmt::Debug for Runtime<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Runtime")
            .field("threads", &self.inner.threads.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl<P: Platform> Clone for Runtime<P> {
    fn clone(&self) -> Self {
        // As `Arc`: leaked handles must not wrap the count. Each of half the range would have to be leaked at this very moment to pass the
        // rest.
        if self.inner.handles.fetch_add(1, Ordering::Relaxed) > u32::MAX / 2 {
            std::process::abort();
        }
        Runtime { inner: Arc::clone(&self.inner), waits: true }
    }
}

impl<P: Platform> Runtime<P> {
    /// A handle for a queue.
    pub(crate) fn tie(&self) -> Self {
        let mut tie = self.clone();
        tie.waits = false;
        tie
    }
}

impl<P: Platform> Drop for Runtime<P> {
    fn drop(&mut self) {
        // AcqRel: what every handle did comes before the end.
        if self.inner.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            if self.waits {
                self.inner.stop();
            } else {
                self.inner.tell_to_stop();
            }
        }
    }
}

impl<P: Platform> Drop for Inner<P> {
    fn drop(&mut self) {
        // `fork` follows it, unless it never came so far.
        P::unfollow_forks(core::ptr::from_ref(self).cast());
    }
}

impl<P: Platform> Runtime<P> {
    /// A runtime without threads, on a machine as described.
    pub(crate) fn start(surroundings: Surroundings, beginning: Beginning, broken: Variant) -> Self {
        let may_spin = surroundings.parallelism() > 1;
        let homes = Homes::new(&surroundings.topology, &surroundings.allowed(), beginning.weights);
        homes.set_choice(beginning.home_choice);
        homes.set_inherits(beginning.inherits_homes);
        let inner = Inner {
            homes: Arc::new(homes),
            table: Table::new(),
            monitor: Monitor::new(),
            timer: Timer::new(),
            freezer: Freezer::new(),
            observation: Observation::new(),
            priorities: Priorities::new(),
            stopping: P::AtomicU32::new(0),
            shutdown: Shutdown::new(),
            broken,
            surroundings: Mutex::new_in(Arc::new(surroundings)),
            stale: P::AtomicU32::new(0),
            pools: Mutex::new_in(Pools::new()),
            siblings: Mutex::new_in(Kept::new()),
            levels: Mutex::new_in(Vec::new()),
            queues: Mutex::new_in(Vec::new()),
            orphans: Mutex::new_in(Vec::new()),
            has_orphans: P::AtomicU32::new(0),
            config: beginning.config,
            number: RUNTIMES.fetch_add(1, core::sync::atomic::Ordering::Relaxed) + 1,
            reserved: P::AtomicU32::new(0),
            leaving: P::AtomicU32::new(0),
            rescuers_missing: P::AtomicU32::new(0),
            rescuers_tried: P::AtomicU64::new(0),
            threads: P::AtomicU32::new(0),
            started: P::AtomicU32::new(0),
            last_ended: Mutex::new_in(None),
            has_unused: P::AtomicU32::new(0),
            thread_limit: P::AtomicU32::new(beginning.thread_limit),
            line: limit::Line::new(),
            spin: P::AtomicU32::new(beginning.spin),
            may_spin: P::AtomicU32::new(u32::from(may_spin)),
            idle_timeout: P::AtomicU64::new(nanos(beginning.idle_timeout)),
            last_look: P::AtomicU64::new(P::now().as_nanos()),
            heard: P::AtomicU64::new(0),
            left: P::AtomicU32::new(0),
            next_pool: P::AtomicU32::new(0),
            next_queue: P::AtomicU64::new(0),
            default_max_active_warned: P::AtomicU32::new(0),
            hogs: Hogs::new(),
            cpu_intensive_after: P::AtomicU64::new(nanos(beginning.cpu_intensive_after)),
            stall_after: P::AtomicU64::new(nanos(beginning.stall_after)),
            departures: Event::new(),
            handles: P::AtomicU32::new(1),
        };
        let inner = crate::shared::exposed(inner);
        inner.monitor.set_runtime(Arc::as_ptr(&inner));
        inner.timer.set_runtime(Arc::as_ptr(&inner));
        inner.homes.set_runtime(&inner);
        Runtime { inner, waits: true }
    }

    pub(crate) fn inner(&self) -> &Inner<P> {
        &self.inner
    }

    /// The machine as this runtime sees it.
    pub fn topology(&self) -> Topology {
        self.inner.surroundings().topology.clone()
    }

    /// The CPUs that the runtime's queues may use: those that the process may use, as last read, within the
    /// [mask](Self::set_cpumask).
    pub fn allowed(&self) -> CpuSet {
        self.inner.surroundings().allowed()
    }

    /// How many workers of one nice value run at once at most: the CPUs allowed, or the quota rounded up.
    pub fn parallelism(&self) -> usize {
        self.inner.surroundings().parallelism() as usize
    }

    /// Switches all scopes off, or on again, for every queue; in effect for the next item.
    pub fn set_affinity(&self, on: bool) {
        self.inner.change_surroundings(|surroundings| surroundings.affinity = on);
    }

    /// Whether scopes are heeded.
    pub fn affinity(&self) -> bool {
        self.inner.surroundings().affinity
    }

    /// Changes the scope of every queue that names none; in effect for the next item.
    pub fn set_default_scope(&self, scope: Scope) {
        self.inner.change_surroundings(|surroundings| surroundings.default_scope = scope);
    }

    /// The scope of queues that name none.
    pub fn default_scope(&self) -> Scope {
        self.inner.surroundings().default_scope
    }

    /// Cores of a shard of the scope `cache_shard`, on average.
    pub fn cache_shard_size(&self) -> usize {
        self.inner.surroundings().shard_size
    }

    /// Changes how long a worker looks for work before it sleeps, in looks.
    pub fn set_spin(&self, looks: u32) {
        self.inner.spin.store(looks, Ordering::Relaxed);
    }

    /// Looks at the machine, the affinity and the quota now, instead of within a second of work. On Linux a look reads a dozen files,
    /// however large the machine is. Everything is read only if other CPUs or nodes are online than before, or if the machine could not be
    /// read whole. [`Topology::reread`] says what such a look does not see.
    pub fn refresh(&self) {
        self.inner.refresh();
    }

    /// Worker threads that are alive.
    pub fn threads(&self) -> usize {
        self.inner.threads.load(Ordering::Acquire) as usize
    }

    /// The number, in the system's own tools, of the monitor: the thread that sees to it that work which waits gets started. None before
    /// it was needed for the first time.
    pub fn monitor_thread_id(&self) -> Option<u64> {
        self.inner.monitor.thread().map(P::thread_id)
    }

    /// Changes from when on an item of a per-CPU queue uses its CPU for too long; zero is never. See
    /// [`cpu_intensive_after`](crate::RuntimeBuilder::cpu_intensive_after).
    pub fn set_cpu_intensive_after(&self, limit: Duration) {
        self.inner.cpu_intensive_after.store(nanos(limit), Ordering::Relaxed);
    }

    /// From when on an item of a per-CPU queue uses its CPU for too long; zero is never.
    pub fn cpu_intensive_after(&self) -> Duration {
        self.inner.cpu_intensive_after()
    }

    /// Changes after how long it is reported that work waits and nothing starts; zero is never. See
    /// [`stall_after`](crate::RuntimeBuilder::stall_after).
    pub fn set_stall_after(&self, period: Duration) {
        self.inner.stall_after.store(nanos(period), Ordering::Relaxed);
    }

    /// After how long it is reported that work waits and nothing starts; zero is never.
    pub fn stall_after(&self) -> Duration {
        self.inner.stall_after()
    }

    /// Changes the CPUs that queues may use, within what the process may use; `None` is all of that. Where nothing of the mask can be used
    /// any more, it stands for all. Per-CPU queues do not heed it. In effect for the next item.
    ///
    /// # Errors
    /// The mask is empty, names a CPU that the machine has not, or has none that the process may use.
    pub fn set_cpumask(&self, cpus: impl Into<Option<CpuSet>>) -> Result<(), Error> {
        let cpus = cpus.into();
        self.inner
            .check_mask_within(cpus.as_ref(), |surroundings| surroundings.limits.effective())?;
        self.inner.change_surroundings(|surroundings| surroundings.mask = cpus);
        Ok(())
    }

    /// The CPUs that queues may use, as it was set.
    pub fn cpumask(&self) -> Option<CpuSet> {
        self.inner.surroundings().mask.clone()
    }

    /// Looks at its inbox that a worker takes before it sleeps.
    pub fn spin(&self) -> u32 {
        self.inner.spin_budget()
    }

    /// The functions that used the CPU of a per-CPU pool for too long while others waited for it, and how often, most often first.
    pub fn cpu_hogs(&self) -> Vec<(&'static str, u64)> {
        self.inner.hogs.list()
    }

    /// Somebody who knows what threads do (a program that the kernel calls when it switches them, say) tells that the thread has
    /// fallen asleep, by its number in the system's own tools. If it is a worker, and work waits, another one takes its place
    /// at once instead of within some milliseconds. What is told is not relied upon: the runtime asks the system itself.
    pub fn note_blocked(&self, thread_id: u64) {
        let named = |worker: &&Worker<P>| {
            worker.is_placed()
                && worker.thread.lock().is_some_and(|thread| P::thread_id(thread) == thread_id)
        };
        if let Some(worker) = self.inner.table.iter().find(named) {
            worker.hint();
            self.inner.monitor.hurry();
        }
    }
}

impl<P: Platform> Inner<P> {
    /// One reference more.
    pub(crate) fn shared(&self) -> Arc<Self> {
        // SAFETY: `Runtime::start` has made it so, and the caller keeps it alive.
        unsafe { crate::shared::share(self) }
    }

    fn surroundings(&self) -> Arc<Surroundings> {
        Arc::clone(&self.surroundings.lock())
    }

    #[inline]
    pub(crate) fn spin_budget(&self) -> u32 {
        self.spin.load(Ordering::Relaxed)
    }

    /// Whether another thread can change what this one looks at, meanwhile.
    pub(crate) fn may_spin(&self) -> bool {
        self.may_spin.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        Duration::from_nanos(self.idle_timeout.load(Ordering::Relaxed))
    }

    // ---- attributes --------------------------------------------------------------------------------------

    /// Whether a mask, if there is one, can be carried out here.
    pub(crate) fn check_mask(&self, mask: Option<&CpuSet>) -> Result<(), Error> {
        self.check_mask_within(mask, Surroundings::allowed)
    }

    fn check_mask_within(
        &self,
        mask: Option<&CpuSet>,
        allowed: impl FnOnce(&Surroundings) -> CpuSet,
    ) -> Result<(), Error> {
        let Some(mask) = mask else { return Ok(()) };
        if mask.is_empty() {
            return Err(Error::EmptyMask);
        }
        let surroundings = self.surroundings();
        let possible = surroundings.topology.possible();
        if let Some(cpu) = mask.difference(possible).first() {
            return Err(Error::NoSuchCpu { cpu, possible: possible.clone() });
        }
        let allowed = allowed(&surroundings);
        if !mask.intersects(&allowed) {
            return Err(Error::MaskNotAllowed { mask: mask.clone(), allowed });
        }
        Ok(())
    }

    pub(crate) fn layout(&self, kind: Kind, attributes: &Attributes) -> Layout {
        self.surroundings().layout(kind, attributes)
    }

    // ---- queues ------------------------------------------------------------------------------------------

    /// A number for a new queue, from 1 on.
    pub(crate) fn number_queue(&self) -> u64 {
        self.next_queue.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn add_queue(&self, queue: &Arc<Queue<P>>) {
        self.queues.lock().push(Arc::downgrade(queue));
    }

    /// A queue ends.
    pub(crate) fn remove_queue(&self, queue: *const Queue<P>) {
        self.queues.lock().retain(|other| other.as_ptr() != queue);
    }

    pub(crate) fn live_queues(&self) -> Vec<Arc<Queue<P>>> {
        self.queues.lock().iter().filter_map(std::sync::Weak::upgrade).collect()
    }

    pub(crate) fn freezable_queues(&self) -> Vec<Arc<Queue<P>>> {
        self.live_queues().into_iter().filter(|queue| queue.nature.freezable).collect()
    }

    // ---- the machine ---------------------------------------------------------------------------------------

    /// Called by threads that are awake anyway: looks at the machine again if the last time is long enough ago.
    #[inline]
    pub(crate) fn look_at_machine(&self, now: Instant) {
        if self.is_look_due(now) {
            self.look_at_machine_slow(now, self.last_look.load(Ordering::Relaxed));
        }
    }

    /// Whether the machine should be looked at again.
    #[inline]
    pub(crate) fn is_look_due(&self, now: Instant) -> bool {
        let last = self.last_look.load(Ordering::Relaxed);
        now.as_nanos().saturating_sub(last) >= LOOK_EVERY.as_nanos() as u64
    }

    #[cold]
    fn look_at_machine_slow(&self, now: Instant, last: u64) {
        let turn = self.last_look.compare_exchange(
            last,
            now.as_nanos(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if turn.is_ok() {
            self.refresh();
            self.tell_homes();
            self.timer.retry();
        }
    }

    fn refresh(&self) {
        // What cannot be read now may be readable in a second; until then the last answer stands.
        let Ok(mut now) = P::look_again(|| self.surroundings()) else { return };
        now.limits.affinity = self.homes.unentered(now.limits.affinity);
        let known = self.surroundings();
        // Not only the online CPUs: a machine that was read in part before may be whole now.
        let is_known = |topology: &Topology| *topology == known.topology;
        let same = now.limits == known.limits && now.topology.as_ref().is_none_or(is_known);
        if same && self.stale.swap(0, Ordering::Relaxed) == 0 {
            return;
        }
        self.change_surroundings(|surroundings| {
            surroundings.limits = now.limits;
            if let Some(topology) = now.topology {
                surroundings.topology = topology;
            }
        });
    }

    pub(crate) fn change_surroundings(&self, change: impl FnOnce(&mut Surroundings)) {
        {
            let mut current = self.surroundings.lock();
            let mut changed = Surroundings::clone(&current);
            change(&mut changed);
            *current = Arc::new(changed);
        }
        let surroundings = self.surroundings();
        let parallelism = surroundings.parallelism();
        self.homes.set_machine(&surroundings.topology, &surroundings.allowed());
        self.may_spin.store(u32::from(parallelism > 1), Ordering::Relaxed);
        let levels = self.levels.lock().clone();
        for level in levels {
            level.set_limit(parallelism);
        }
        for queue in self.live_queues() {
            queue.relayout();
        }
    }

    /// From when on an item of a per-CPU queue uses its CPU for too long; zero is never.
    pub(crate) fn cpu_intensive_after(&self) -> Duration {
        Duration::from_nanos(self.cpu_intensive_after.load(Ordering::Relaxed))
    }

    /// Where work waits and nothing starts for so long, that is reported; zero is never.
    pub(crate) fn stall_after(&self) -> Duration {
        Duration::from_nanos(self.stall_after.load(Ordering::Relaxed))
    }

    /// A function has used the CPU of a per-CPU pool for longer than that.
    pub(crate) fn count_hog(&self, function: Option<&'static str>, limit: Duration) {
        let Some(function) = function else { return };
        if let Some(times) = self.hogs.count(function) {
            P::warn(&format!(
                "{function} kept a CPU of a per-CPU queue for more than {limit:?} while others waited, {times} times: consider an \
                 unbound queue, or cpu_intensive(true)"
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

/// As the runtime keeps it; what is longer than five centuries is cut.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
