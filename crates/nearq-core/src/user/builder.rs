//! The builder of a runtime: settings, hooks, and what the environment adds.

use core::num::NonZeroUsize;
use core::time::Duration;
use std::sync::Arc;

use nearq_platform::Platform;
use nearq_topology::{AffinityScope, CpuSet, DEFAULT_SHARD_SIZE};

use crate::base::error::Error;
use crate::homes::HomeChoice;
use crate::layout::attributes::MachineConfig;
use crate::monitor::stall::STALL_AFTER;
use crate::queue::runtime::Runtime;
use crate::runtime::config::{Beginning, WorkerInfo};
use crate::runtime::report::Stall;
use crate::user::fork;
use crate::user::variables;

/// How long an item of a per-CPU queue may hold up the others, as in the kernel.
const CPU_INTENSIVE_AFTER: Duration = Duration::from_millis(10);
/// A worker that has slept this long ends, as in the kernel.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// How often a worker checks the inbox before it sleeps: some 15 us with the pauses between the checks, about as long as falling asleep and
/// being woken takes.
const SPIN: u32 = 512;
/// The default limit of threads of one runtime: lower than the usual limit of a user, higher than any machine's number of CPUs.
const THREAD_LIMIT: u32 = 4096;

/// Settings of a runtime that is about to be built: [`build`](Self::build) makes one of its own, [`build_global`](Self::build_global) the
/// process-wide one.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{AffinityScope, Runtime};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// let workers = Arc::new(AtomicUsize::new(0));
/// let (started, stopped) = (Arc::clone(&workers), Arc::clone(&workers));
/// let runtime = Runtime::builder()
///     .default_affinity_scope(AffinityScope::Cache)
///     .thread_limit(64)
///     .on_worker_start(move |worker| {
///         println!("{} starts on CPUs {}", worker.name, worker.pod);
///         started.fetch_add(1, Ordering::Relaxed);
///     })
///     .on_worker_stop(move |_| {
///         stopped.fetch_sub(1, Ordering::Relaxed);
///     })
///     .build()?;
/// let queue = runtime.workqueue_builder("crypt").build()?;
/// assert_eq!(queue.spawn(|| 2 + 3).join().unwrap(), 5);
/// assert!(workers.load(Ordering::Relaxed) >= 1);
///
/// // The drop of the last handle waits for the workers, and so for the hooks.
/// drop(queue);
/// drop(runtime);
/// assert_eq!(workers.load(Ordering::Relaxed), 0);
/// # Ok::<(), nearq::Error>(())
/// ```
///
/// | setting | if not set |
/// |---|---|
/// | [`default_affinity_scope`](Self::default_affinity_scope) | `NEARQ_DEFAULT_SCOPE`, or else `cache_shard` |
/// | [`affinity_enabled`](Self::affinity_enabled) | `NEARQ_AFFINITY`, or else on |
/// | [`cpumask`](Self::cpumask) | `NEARQ_CPUMASK`, or else all CPUs that the process may use, except isolated ones |
/// | [`cache_shard_size`](Self::cache_shard_size) | 8 cores |
/// | [`home_choice`](Self::home_choice) | `NEARQ_HOME_CHOICE`, or else `now` |
/// | [`inherits_homes`](Self::inherits_homes) | `NEARQ_HOME_INHERIT`, or else on |
/// | [`stall_after`](Self::stall_after), [`on_stall`](Self::on_stall) | `NEARQ_STALL_AFTER`, or else 30 s; a warning on standard error |
/// | [`abort_on_stall`](Self::abort_on_stall) | `NEARQ_ABORT_ON_STALL`, or else never |
/// | [`thread_limit`](Self::thread_limit), [`stack_size`](Self::stack_size) | 4096 threads; the system's stack size |
/// | [`idle_timeout`](Self::idle_timeout), [`spin`](Self::spin) | 5 minutes; 512 checks, some 15 µs |
/// | [`cpu_intensive_after`](Self::cpu_intensive_after) | 10 ms |
/// | [`on_worker_start`](Self::on_worker_start), [`on_worker_stop`](Self::on_worker_stop) | no hook |
#[must_use = "a builder makes nothing until `build`"]
pub struct RuntimeBuilder<P: Platform = nearq_platform::Linux> {
    pub(crate) beginning: Beginning,
    stall_after: Option<Duration>,
    abort_on_stall: Option<u32>,
    default_affinity_scope: Option<AffinityScope>,
    shard_size: usize,
    affinity: Option<bool>,
    cpumask: Option<CpuSet>,
    home_choice: Option<HomeChoice>,
    inherits_homes: Option<bool>,
    platform: core::marker::PhantomData<P>,
}

impl<P: Platform> Runtime<P> {
    /// Settings of a new runtime, on the platform given by the type.
    #[doc(hidden)]
    pub fn builder_in() -> RuntimeBuilder<P> {
        RuntimeBuilder::new()
    }
}

impl<P: Platform> core::fmt::Debug for RuntimeBuilder<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RuntimeBuilder")
            .field("thread_limit", &self.beginning.thread_limit)
            .field("default_affinity_scope", &self.default_affinity_scope)
            .field("stall_after", &self.stall_after)
            .finish_non_exhaustive()
    }
}

impl<P: Platform> RuntimeBuilder<P> {
    pub(crate) fn new() -> Self {
        RuntimeBuilder {
            beginning: Beginning {
                thread_limit: THREAD_LIMIT,
                spin: SPIN,
                idle_timeout: IDLE_TIMEOUT,
                cpu_intensive_after: CPU_INTENSIVE_AFTER,
                ..Beginning::default()
            },
            stall_after: None,
            abort_on_stall: None,
            default_affinity_scope: None,
            shard_size: DEFAULT_SHARD_SIZE,
            affinity: None,
            cpumask: None,
            home_choice: None,
            inherits_homes: None,
            platform: core::marker::PhantomData,
        }
    }

    /// Sets the stack size of every thread, in bytes; the system's default if not set (on Linux, usually 2 MiB).
    pub fn stack_size(mut self, bytes: usize) -> Self {
        // Zero means as small as the system allows.
        self.beginning.config.stack_size = NonZeroUsize::new(bytes).or(Some(NonZeroUsize::MIN));
        self
    }

    /// Sets a hook that each worker calls when it starts, before it searches for work.
    ///
    /// Until the hook has returned, the worker counts neither as awake nor as searching: other workers are woken or started instead, until
    /// as many workers are in their hooks as the pod has CPUs. So a hook must not wait for an item of this runtime, because all of these
    /// workers could wait for that item. A panic of the hook does not end the worker.
    pub fn on_worker_start(mut self, hook: impl Fn(&WorkerInfo) + Send + Sync + 'static) -> Self {
        self.beginning.config.on_start = Some(Arc::new(hook));
        self
    }

    /// Sets where the threads of workers come from: a function that is given the main function of a worker, and has one of its threads run
    /// it. There must be as many threads as [`thread_limit`](Self::thread_limit) allows; a main function may have to wait until another one
    /// has returned.
    #[doc(hidden)]
    pub fn threads_from(
        mut self,
        source: impl Fn(Box<dyn FnOnce() + Send>) + Send + Sync + 'static,
    ) -> Self {
        self.beginning.config.threads = Some(Arc::new(source));
        self
    }

    /// Sets a hook that each worker calls before it ends. By then the worker no longer counts under [`thread_limit`](Self::thread_limit).
    /// The thread that shuts the runtime down, or drops its last handle, waits for the hook.
    pub fn on_worker_stop(mut self, hook: impl Fn(&WorkerInfo) + Send + Sync + 'static) -> Self {
        self.beginning.config.on_stop = Some(Arc::new(hook));
        self
    }

    /// Sets how long a pool with waiting work may start nothing before this is reported as a stall. It is reported again after each further
    /// period. Zero means never; if not set, `NEARQ_STALL_AFTER` (in seconds), or else 30 s.
    ///
    /// The report goes to [`on_stall`](Self::on_stall) and, with the feature `tracing`, becomes an event of that crate (target `nearq`,
    /// level `WARN`). If neither is in use, it is a warning on standard error. No thread is started for it: the check is made by the thread
    /// that is awake anyway while work waits.
    pub fn stall_after(mut self, period: Duration) -> Self {
        self.stall_after = Some(period);
        self
    }

    /// Sets a callback for [stalls](Self::stall_after); its argument describes what the pool's workers are doing. A panic of the callback
    /// is caught.
    ///
    /// The thread that is responsible for waiting work (`nq/monitor`) calls it, and does nothing else until it has returned. So the
    /// callback should be short, and must not wait for items of this runtime.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Runtime;
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::builder()
    ///     .stall_after(Duration::from_secs(10))
    ///     .on_stall(|stall| eprintln!("{stall}"))
    ///     .build()?;
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn on_stall(mut self, callback: impl Fn(&Stall) + Send + Sync + 'static) -> Self {
        self.beginning.config.on_stall = Some(Arc::new(callback));
        self
    }

    /// Aborts the process at a [stall](Self::stall_after), so that a service that hangs is restarted and leaves a core dump. 1 aborts at the
    /// first stall, 3 at the third; zero means never. If not set, `NEARQ_ABORT_ON_STALL`, or else never. The kernel's `panic_on_stall`.
    ///
    /// The report comes first: [`on_stall`](Self::on_stall) has returned when the process is aborted. While this is set, reports are also
    /// warnings on standard error. Stalls of several pools that are reported by the same check count as one; a stall that lasts counts again
    /// after each further period.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Runtime;
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::builder().stall_after(Duration::from_secs(20)).abort_on_stall(3).build()?;
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn abort_on_stall(mut self, stalls: u32) -> Self {
        self.abort_on_stall = Some(stalls);
        self
    }

    /// Sets the most worker threads that this runtime may have; 4096 if not set. If the limit is reached and another pool needs a worker (a
    /// pool of another nice value, for example), an idle worker is ended to make space for it. A worker that runs an item does not end.
    ///
    /// Workers in their stop hooks, rescuers and the runtime's own threads do not count.
    pub fn thread_limit(mut self, threads: u32) -> Self {
        self.beginning.thread_limit = threads;
        self
    }

    /// Sets how many times a worker checks for work before it sleeps; 512 if not set, which takes some 15 µs. With 0 it sleeps at once. If
    /// the process may use only a single CPU, a worker does not spin, but lets other threads run between the checks.
    pub fn spin(mut self, checks: u32) -> Self {
        self.beginning.spin = checks;
        self
    }

    /// Sets how long a worker sleeps before it ends; 5 minutes if not set.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.beginning.idle_timeout = timeout;
        self
    }

    /// Sets how much CPU time an item of a [per-CPU queue](crate::WorkqueueBuilder::per_cpu) may use, since it began or last slept, while
    /// others wait for that CPU. An item that exceeds it no longer counts as running: another worker starts beside it. 10 ms if not set;
    /// zero means never.
    ///
    /// [`Runtime::cpu_hogs`] returns the functions that exceeded it. The first warning about a function comes at the fourth time; further
    /// ones become less and less frequent.
    pub fn cpu_intensive_after(mut self, limit: Duration) -> Self {
        self.beginning.cpu_intensive_after = limit;
        self
    }

    /// Sets the scope of queues that do not name one; if not set, `NEARQ_DEFAULT_SCOPE`, or else `cache_shard`.
    pub fn default_affinity_scope(mut self, scope: AffinityScope) -> Self {
        self.default_affinity_scope = Some(scope);
        self
    }

    /// Sets the average number of cores in a shard of the scope `cache_shard`; 8 if not set.
    pub fn cache_shard_size(mut self, cores: usize) -> Self {
        self.shard_size = cores.max(1);
        self
    }

    /// Sets whether scopes are used. Off: every queue has one pod of all its CPUs. If not set, `NEARQ_AFFINITY` (`off` or `on`), or else
    /// on.
    pub fn affinity_enabled(mut self, on: bool) -> Self {
        self.affinity = Some(on);
        self
    }

    /// Sets the CPUs that unbound and ordered queues may use; see [`Runtime::set_cpumask`]. If not set, `NEARQ_CPUMASK` (a list of CPUs), or
    /// else all that the process may use, except [isolated](nearq_topology::Limits::isolated) ones.
    pub fn cpumask(mut self, cpus: CpuSet) -> Self {
        self.cpumask = Some(cpus);
        self
    }

    /// Sets when the node of a [picked](crate::home::Home::pick) home is chosen. If not set, `NEARQ_HOME_CHOICE` (`now` or `first-run`), or
    /// else when the home is made.
    pub fn home_choice(mut self, choice: HomeChoice) -> Self {
        self.home_choice = Some(choice);
        self
    }

    /// Sets whether an item inherits the home of the item that queues it; see [`Runtime::inherits_homes`]. If not set, `NEARQ_HOME_INHERIT`
    /// (`on` or `off`), or else on.
    pub fn inherits_homes(mut self, inherits: bool) -> Self {
        self.inherits_homes = Some(inherits);
        self
    }

    /// Builds the runtime; it has no thread yet. If an environment variable has an unknown value, it counts as not set, and one warning
    /// says so.
    ///
    /// Its threads block the signals that the calling thread blocks now (see [`Work`](crate::Work#signals)).
    ///
    /// # Errors
    /// The machine cannot be described ([`Error::Machine`]); the limit allows no threads ([`Error::NoThreads`]); or the mask is not possible, as
    /// for [`Runtime::set_cpumask`].
    pub fn build(mut self) -> Result<Runtime<P>, Error> {
        if self.beginning.thread_limit == 0 {
            return Err(Error::NoThreads);
        }
        self.beginning.config.signals = P::signal_mask();
        let machine = P::machine().map_err(Error::Machine)?;
        let default_affinity_scope = match self.default_affinity_scope {
            Some(scope) => scope,
            None => variables::default_affinity_scope::<P>().unwrap_or(AffinityScope::CacheShard),
        };
        let affinity = match self.affinity {
            Some(on) => on,
            None => variables::affinity::<P>().unwrap_or(true),
        };
        let stall_after = match self.stall_after {
            Some(period) => period,
            None => variables::stall_after::<P>().unwrap_or(STALL_AFTER),
        };
        let mut machine_config = MachineConfig {
            topology: machine.topology,
            limits: machine.limits,
            default_affinity_scope,
            shard_size: self.shard_size,
            affinity,
            mask: None,
        };
        machine_config.mask = match self.cpumask {
            Some(mask) => machine_config.check_own_mask(&mask).map(|()| Some(mask))?,
            None => variables::cpumask::<P>(&machine_config),
        };
        let mut beginning = self.beginning;
        beginning.stall_after = stall_after;
        let abort_on_stall = self.abort_on_stall.or_else(variables::abort_on_stall::<P>);
        beginning.abort_on_stall = abort_on_stall.unwrap_or(0);
        if let Some(weights) = variables::home_weights::<P>(&beginning.weights) {
            beginning.weights = weights;
        }
        let home_choice = self.home_choice.or_else(variables::home_choice::<P>);
        beginning.home_choice = home_choice.unwrap_or_default();
        let inherits_homes = self.inherits_homes.or_else(variables::inherits_homes::<P>);
        beginning.inherits_homes = inherits_homes.unwrap_or(true);
        let runtime = Runtime::start(machine_config, beginning);
        fork::follow(runtime.inner());
        Ok(runtime)
    }
}
