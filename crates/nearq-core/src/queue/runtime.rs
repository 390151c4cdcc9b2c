//! The runtime with the type of its queues, and the handle that users have.
//!
//! A [`Runtime`] is a handle; the last one's drop ends every thread. Queues hold a handle each. The process-wide
//! default runtime (`default`) is never dropped.

use core::time::Duration;
use std::sync::{Arc, Weak};

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};
use nearq_topology::{AffinityScope, CpuSet, Topology};

use super::Queue;
use crate::base::error::Error;
use crate::homes::Homes;
use crate::layout::attributes::MachineConfig;
use crate::pool::alarm::Alarm;
use crate::pool::services::Services;
use crate::runtime::config::Beginning;
use crate::runtime::hogs::CpuHog;
use crate::runtime::{Core, KnownQueue, nanos};
use crate::timer::Timer;

/// What a runtime of queues is made of.
pub(crate) type Inner<P> = Core<P, Queue<P>>;

/// A runtime: the worker threads that a set of queues share, and their settings. This is a handle; clones are cheap and name the same
/// runtime.
///
/// [`Runtime::global`] is the process-wide one, which [`Workqueue::builder`](crate::Workqueue::builder) uses; most programs never build
/// another. Build one to have workers with hooks or limits of their own, or to end them all with [`shutdown`](Self::shutdown).
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::Runtime;
/// use std::time::Duration;
///
/// let runtime = Runtime::builder().thread_limit(8).build()?;
/// let queue = runtime.workqueue_builder("plugin").build()?;
/// let sum = queue.spawn(|| 2 + 3);
/// println!("{} workers, of which at most {} run at once", runtime.thread_count(), runtime.parallelism());
/// runtime.shutdown(Duration::from_secs(10))?;
/// assert_eq!(sum.join()?, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Dropping it
/// When the last handle is dropped, the workers end; the drop blocks until they have. Each [`Workqueue`](crate::Workqueue) has a handle. So
/// has each queue that has ended, while it has a [`Handle`](crate::Handle), a [`QueueView`](crate::inspect::QueueView) or a
/// [`JoinSet`](crate::JoinSet): if the last of these is dropped last, the workers end then, and that drop does not block.
///
/// If each of two runtimes runs an item that drops the last handle of the other, they wait for each other for ever. To avoid that, let a
/// thread of the program drop one of them.
///
/// # Forks
/// In the child of a fork every handle works: its runtime has no threads and nothing queued there, and starts threads with its first use.
pub struct Runtime<P: Platform = nearq_platform::Linux> {
    inner: Arc<Inner<P>>,
    /// Whether its drop waits for the threads, if it is the last handle. A queue's handle does not: any thread may be the last to let go of
    /// a queue, in the middle of anything.
    waits: bool,
}

impl<P: Platform> core::fmt::Debug for Runtime<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Runtime")
            .field("threads", &self.inner.threads.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl<P: Platform> Clone for Runtime<P> {
    fn clone(&self) -> Self {
        // As in `Arc`: leaked handles must not wrap the count. To pass the other half of the range, that many threads would have to leak a
        // handle at this very moment.
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
                self.inner.ask_to_stop();
            }
        }
    }
}

impl<P: Platform> Runtime<P> {
    /// A runtime without threads, on a machine as described.
    pub(crate) fn start(machine_config: MachineConfig, beginning: Beginning) -> Self {
        let inner = Arc::new_cyclic(|own: &Weak<Inner<P>>| {
            // The parts of the runtime call it through these. The runtime does not exist before the closure has returned; none of these
            // parts calls it until then.
            let host: *const Inner<P> = own.as_ptr();
            let homes = Homes::new(
                &machine_config.topology,
                &machine_config.allowed(),
                beginning.weights.clone(),
                Some(Weak::<Inner<P>>::clone(own)),
            );
            homes.set_choice(beginning.home_choice);
            homes.set_inherits(beginning.inherits_homes);
            let services = Services::new(host, Alarm::new(host), Arc::new(homes));
            let timer = Timer::new(Some(Weak::<Inner<P>>::clone(own)));
            Core::new(machine_config, beginning, services, timer)
        });
        let inner = crate::base::shared::expose(inner);
        Runtime { inner, waits: true }
    }

    pub(crate) fn inner(&self) -> &Inner<P> {
        &self.inner
    }

    /// Runs `f`, which may block, as the function [`block_in_place`](crate::block_in_place) does, on the platform of this runtime.
    ///
    /// # Panics
    /// If `f` does.
    pub fn block_in_place<R>(&self, f: impl FnOnce() -> R) -> R {
        crate::pool::context::blocking::<P, R>(f)
    }

    /// Returns the CPUs, caches and nodes of the machine, as this runtime last read them.
    pub fn topology(&self) -> Topology {
        self.inner.machine_config().topology.clone()
    }

    /// Returns the CPUs that queues without a mask of their own use: the runtime's [mask](Self::set_cpumask) within those that the process
    /// may use, as last read; without a mask, all of these except [isolated](nearq_topology::Limits::isolated) ones.
    pub fn allowed_cpus(&self) -> CpuSet {
        self.inner.machine_config().allowed()
    }

    /// Returns how many workers of one nice value run at once at most: the number of CPUs that the process may use, or its CPU quota,
    /// rounded up, if that is less.
    pub fn parallelism(&self) -> usize {
        self.inner.machine_config().parallelism() as usize
    }

    /// Switches the scopes of all queues off, or on again. While they are off, every queue has one pod of all its CPUs. In effect for the
    /// next item.
    pub fn set_affinity_enabled(&self, on: bool) {
        self.inner.change_machine_config(|machine_config| machine_config.affinity = on);
    }

    /// Returns whether scopes are in use.
    pub fn is_affinity_enabled(&self) -> bool {
        self.inner.machine_config().affinity
    }

    /// Changes the scope of every queue that does not name one. In effect for the next item.
    pub fn set_default_affinity_scope(&self, scope: AffinityScope) {
        self.inner
            .change_machine_config(|machine_config| machine_config.default_affinity_scope = scope);
    }

    /// Returns the scope of queues that do not name one.
    pub fn default_affinity_scope(&self) -> AffinityScope {
        self.inner.machine_config().default_affinity_scope
    }

    /// Returns the average number of cores in a shard of the scope `cache_shard`.
    pub fn cache_shard_size(&self) -> usize {
        self.inner.machine_config().shard_size
    }

    /// Changes how many times a worker checks for work before it sleeps; 512 checks take some 15 µs. In effect the next time that a worker
    /// finds no work. See [`RuntimeBuilder::spin`](crate::RuntimeBuilder::spin).
    pub fn set_spin(&self, checks: u32) {
        self.inner.spin.store(checks, Ordering::Relaxed);
    }

    /// Reads the machine, the affinity and the CPU quota now; otherwise the runtime reads them within a second of work. Call it after a
    /// change that should be in effect at once.
    ///
    /// On Linux this reads a dozen files, however large the machine is. Everything is read only if other CPUs or nodes are online than
    /// before, or if the machine could not be read completely. [`Topology::reread`] says what this does not detect.
    pub fn refresh(&self) {
        self.inner.refresh();
    }

    /// Returns the number of worker threads that are alive.
    pub fn thread_count(&self) -> usize {
        self.inner.threads.load(Ordering::Acquire) as usize
    }

    /// Returns the number, in the system's own tools, of the monitor: the thread that ensures that waiting work gets started. `None` before
    /// it was needed for the first time.
    pub fn monitor_thread_id(&self) -> Option<u64> {
        self.inner.services.alarm.thread.thread().map(P::thread_id)
    }

    /// Changes how much CPU time an item of a per-CPU queue may use before another worker starts beside it; zero is never. See
    /// [`RuntimeBuilder::cpu_intensive_after`](crate::RuntimeBuilder::cpu_intensive_after).
    pub fn set_cpu_intensive_after(&self, limit: Duration) {
        self.inner.cpu_intensive_after.store(nanos(limit), Ordering::Relaxed);
    }

    /// Returns how much CPU time an item of a per-CPU queue may use before another worker starts beside it; zero is never.
    pub fn cpu_intensive_after(&self) -> Duration {
        self.inner.cpu_intensive_after()
    }

    /// Changes how long work may wait while nothing starts before that is reported; zero is never. See
    /// [`RuntimeBuilder::stall_after`](crate::RuntimeBuilder::stall_after).
    pub fn set_stall_after(&self, period: Duration) {
        self.inner.stall_after.store(nanos(period), Ordering::Relaxed);
    }

    /// Returns how long work may wait while nothing starts before that is reported; zero is never.
    pub fn stall_after(&self) -> Duration {
        self.inner.stall_after()
    }

    /// Changes at which stall the process is aborted, counted from now on if it was never; zero is never. See
    /// [`RuntimeBuilder::abort_on_stall`](crate::RuntimeBuilder::abort_on_stall).
    pub fn set_abort_on_stall(&self, stalls: u32) {
        self.inner.abort_on_stall.store(stalls, Ordering::Relaxed);
    }

    /// Returns at which stall the process is aborted; zero is never.
    pub fn abort_on_stall(&self) -> u32 {
        self.inner.abort_on_stall()
    }

    /// Changes the CPUs that queues may use, within what the process may use; `None` is all of that except isolated CPUs. If no CPU of the
    /// mask can be used any more, all that the process may use are used. Per-CPU queues ignore the mask. In effect for the next item.
    ///
    /// # Errors
    /// The mask is empty ([`Error::EmptyMask`]), names a CPU that the machine does not have, or has none that the process may use.
    pub fn set_cpumask(&self, cpus: impl Into<Option<CpuSet>>) -> Result<(), Error> {
        let cpus = cpus.into();
        if let Some(mask) = &cpus {
            self.inner.machine_config().check_own_mask(mask)?;
        }
        self.inner.change_machine_config(|machine_config| machine_config.mask = cpus);
        Ok(())
    }

    /// Returns the CPUs that queues may use, as set by [`set_cpumask`](Self::set_cpumask), the builder or `NEARQ_CPUMASK`.
    pub fn cpumask(&self) -> Option<CpuSet> {
        self.inner.machine_config().mask.clone()
    }

    /// Returns how many times a worker checks for work before it sleeps.
    pub fn spin(&self) -> u32 {
        self.inner.spin_budget()
    }

    /// Returns the functions whose items used the CPU of a per-CPU queue for [too long](Self::cpu_intensive_after) while others waited for
    /// it, and how often, the most frequent first.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// for hog in nearq::Runtime::global().cpu_hogs() {
    ///     println!("{} took too long {} times", hog.function, hog.count);
    /// }
    /// ```
    pub fn cpu_hogs(&self) -> Vec<CpuHog> {
        self.inner.hogs.list()
    }
}

impl<P: Platform> KnownQueue for Queue<P> {
    fn relayout(&self) {
        Queue::relayout(self);
    }

    fn mark_pwqs(&self) {
        self.observe_pwqs(&self.lock_config());
    }

    fn is_freezable(&self) -> bool {
        self.flags.freezable
    }

    fn mark_orphaned(&self) {
        self.rundown.mark_orphaned();
    }

    fn close_if_unused(&self) -> bool {
        Queue::close_if_unused(self)
    }
}
