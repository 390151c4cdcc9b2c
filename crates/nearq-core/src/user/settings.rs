//! The settings of a workqueue before it exists.

use core::time::Duration;

use nearq_platform::{Linux, Platform};
use nearq_topology::{AffinityScope, CpuSet};

use crate::base::error::Error;
use crate::base::ids::QueueKind;
use crate::homes::{Home, MemoryPolicy};
use crate::layout::attributes::Attributes;
use crate::layout::domain::{Bounds, HIGHEST_MAX_ACTIVE};
use crate::layout::priority::{MOST_FAVOURED, Priority};
use crate::queue::runtime::Runtime;
use crate::queue::{Queue, QueueFlags};
use crate::user::workqueue::Workqueue;

/// Settings of a workqueue that is about to be built.
///
/// The kind, `freezable`, `cpu_intensive` and `rescuer` are fixed for the life of the queue. The other settings [can be
/// changed](crate::inspect::QueueView::change) while it runs.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{AffinityScope, Workqueue};
///
/// let queue = Workqueue::builder("encode")
///     .affinity_scope(AffinityScope::Numa)
///     .nice(5)
///     .max_active(16)
///     .build()?;
/// assert_eq!(queue.spawn(|| 2 + 3).join().unwrap(), 5);
/// # Ok::<(), nearq::Error>(())
/// ```
///
/// | setting | if not set |
/// |---|---|
/// | [`kind`](Self::kind), [`per_cpu`](Self::per_cpu), [`ordered`](Self::ordered) | unbound: an item may run on any CPU of a pod |
/// | [`affinity_scope`](Self::affinity_scope) | the runtime's default, which is `cache_shard` |
/// | [`affinity_strict`](Self::affinity_strict), [`localize`](Self::localize) | off |
/// | [`helping`](Self::helping), [`affinity_enabled`](Self::affinity_enabled) | on |
/// | [`cpumask`](Self::cpumask) | all CPUs that the process may use |
/// | [`nice`](Self::nice), [`highpri`](Self::highpri) | that of the thread that built the runtime |
/// | [`sched_idle`](Self::sched_idle), [`time_slice`](Self::time_slice) | off; the system's own |
/// | [`max_active`](Self::max_active), [`min_active`](Self::min_active) | 1024; 8 on each node, but not more than `max_active` |
/// | [`home`](Self::home), [`memory`](Self::memory) | no home; memory from the homes of items |
/// | [`freezable`](Self::freezable), [`cpu_intensive`](Self::cpu_intensive), [`rescuer`](Self::rescuer) | off |
#[derive(Debug)]
#[must_use = "a builder makes nothing until `build`"]
pub struct WorkqueueBuilder<P: Platform = Linux> {
    name: String,
    runtime: Option<Runtime<P>>,
    /// Where the runtime comes from if none is named.
    global: fn() -> Result<Runtime<P>, Error>,
    kind: QueueKind,
    flags: QueueFlags,
    attributes: Attributes,
    max_active: Option<usize>,
    min_active: Option<usize>,
    home: Option<Home<P>>,
}

impl<P: Platform> Runtime<P> {
    /// Returns a builder for a queue on this runtime.
    pub fn workqueue_builder(&self, name: impl Into<String>) -> WorkqueueBuilder<P> {
        let unused = || unreachable!("the runtime is named");
        WorkqueueBuilder::new(name.into(), Some(self.clone()), unused)
    }
}

#[cfg(target_os = "linux")]
impl Workqueue<Linux> {
    /// Returns a builder for a queue on the process-wide runtime, which is made when the first queue is built. Several queues may have the
    /// same name.
    pub fn builder(name: impl Into<String>) -> WorkqueueBuilder {
        WorkqueueBuilder::new(name.into(), None, || Runtime::try_global().cloned())
    }
}

impl<P: Platform> WorkqueueBuilder<P> {
    fn new(
        name: String,
        runtime: Option<Runtime<P>>,
        global: fn() -> Result<Runtime<P>, Error>,
    ) -> Self {
        WorkqueueBuilder {
            name,
            runtime,
            global,
            kind: QueueKind::default(),
            flags: QueueFlags::default(),
            attributes: Attributes::default(),
            max_active: None,
            min_active: None,
            home: None,
        }
    }

    /// Makes it a per-CPU queue: an item runs on the CPU that queued it, or on the CPU given to [`queue_on`](Workqueue::queue_on), and
    /// nowhere else while the process may use that CPU. For short items, and for data that belong to a CPU.
    ///
    /// Each CPU has one worker that runs, and another one if that worker blocks. They serve all per-CPU queues of their priority.
    /// `max_active` counts for each CPU separately. While a CPU is offline, its items run on any other.
    ///
    /// Of the other attributes, only `nice`, `sched_idle`, `time_slice` and `max_active` can be set.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Work, Workqueue};
    ///
    /// let queue = Workqueue::builder("percpu").per_cpu().build()?;
    /// queue.queue_on(0, &Work::new(|_| println!("on CPU 0")))?;
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn per_cpu(self) -> Self {
        self.kind(QueueKind::PerCpu)
    }

    /// Makes it an ordered queue: its items run one at a time, in the order in which they were queued, whichever CPUs queued them. That
    /// holds even while attributes such as the mask and the nice value are changed.
    ///
    /// If one call of [`queue`](Workqueue::queue) has returned before another one begins, the item of the first starts before that of the
    /// second. The same applies to closures. An item that queues itself again goes to the end.
    ///
    /// `max_active` is 1 and cannot be changed. (An ordinary queue with a `max_active` of 1 promises no order.) There is one pod, with all
    /// CPUs of the queue: the scope, strictness, helping and `affinity_enabled` have no effect.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    /// use std::sync::mpsc;
    ///
    /// let queue = Workqueue::builder("log").ordered().build()?;
    /// let (sender, receiver) = mpsc::channel();
    /// for line in 0..100 {
    ///     let sender = sender.clone();
    ///     queue.spawn(move || sender.send(line).unwrap());
    /// }
    /// drop(queue);
    /// drop(sender);
    /// assert!(receiver.iter().eq(0..100));
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn ordered(self) -> Self {
        self.kind(QueueKind::Ordered)
    }

    /// Sets the kind of the queue; unbound if not set. If it is set more than once, the last one counts.
    pub fn kind(self, kind: QueueKind) -> Self {
        WorkqueueBuilder { kind, ..self }
    }

    /// Makes it a freezable queue: [`Runtime::freeze`] holds its items back until [`Runtime::thaw`]. Available for every kind of queue.
    pub fn freezable(mut self) -> Self {
        self.flags.freezable = true;
        self
    }

    /// Declares that the items of this [per-CPU queue](Self::per_cpu) compute for long. They do not count as running, so other items of
    /// their CPU start beside them. [`max_active`](Self::max_active) limits how many of them run at once on a CPU.
    ///
    /// Without this setting, an item that computes for longer than [`cpu_intensive_after`](crate::RuntimeBuilder::cpu_intensive_after) is
    /// detected. No effect on other queues, where more than one worker runs anyway.
    pub fn cpu_intensive(mut self) -> Self {
        self.flags.cpu_intensive = true;
        self
    }

    /// Gives the queue a rescuer: a thread of its own, so that its items run even if no worker can be started. Available for every kind of
    /// queue.
    ///
    /// Workers are started when work comes. A limit on threads (of the runtime, the user or the control group) or a lack of memory may
    /// prevent that while all existing workers sleep inside their items. On most queues, work then waits until one of them wakes up. If the
    /// sleeping items wait for items that do not start, they wait for ever.
    ///
    /// Use a rescuer for work that must go on, such as work that frees memory or threads. Its thread is started with the queue. If no
    /// worker has been started 10 ms after the system refused one, the rescuer runs the queue's own items, **one at a time**, in the pool
    /// where they wait. It goes on until workers can be started again or none of the queue's items is left there.
    ///
    /// * It is one thread: an item of the queue that waits for another item of the same queue may wait for ever. If one step of such work
    ///   depends on another, give each step its own queue with a rescuer.
    /// * Its name is `nq/R-` and the queue's name. It is as favoured as the process is allowed to make it (nice -20 with the privilege),
    ///   and runs the hooks of workers ([`on_worker_start`](crate::RuntimeBuilder::on_worker_start)). It does not count as a worker,
    ///   neither against the limit of threads nor in [`Runtime::thread_count`].
    /// * Its executions are counted in [`rescued`](crate::inspect::PoolStatistics::rescued).
    /// * In the child of a fork, it is started again with the first worker.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    ///
    /// let queue = Workqueue::builder("writeback").rescuer().build()?;
    /// queue.spawn(|| println!("written")).join().unwrap();
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn rescuer(mut self) -> Self {
        self.flags.rescuer = true;
        self
    }

    /// Sets how CPUs are grouped into pods; the runtime's default scope if not set.
    pub fn affinity_scope(mut self, scope: impl Into<Option<AffinityScope>>) -> Self {
        self.attributes.affinity_scope = scope.into();
        self
    }

    /// Sets whether workers stay in their pod, even if CPUs elsewhere are idle. Off if not set: workers start each item in their pod, but
    /// the kernel may then move them to keep CPUs busy.
    pub fn affinity_strict(mut self, strict: bool) -> Self {
        self.attributes.affinity_strict = strict;
        self
    }

    /// Sets whether an item runs on exactly the CPU that queued it, if a worker can run there. Off if not set.
    ///
    /// A worker is sent to that CPU and waits there, although others may be idle. This seldom pays: `docs/scopes.md` has figures. If a
    /// scheduler receives hints, as nearq-scx does, there is only a hint at the wake-up: the worker runs on that CPU or near it, if one is
    /// idle there.
    pub fn localize(mut self, localize: bool) -> Self {
        self.attributes.localize = localize;
        self
    }

    /// Sets whether idle workers of other pods take items of this queue, those of the nearest pods first. On if not set; no effect with
    /// [`affinity_strict`](Self::affinity_strict).
    pub fn helping(mut self, helping: bool) -> Self {
        self.attributes.helping = helping;
        self
    }

    /// Sets whether the scope is used. Off: one pod of all CPUs, whatever the scope is. On if not set.
    pub fn affinity_enabled(mut self, on: bool) -> Self {
        self.attributes.affinity_enabled = on;
        self
    }

    /// Sets the CPUs that items may run on; all that the process may use if not set.
    pub fn cpumask(mut self, cpus: impl Into<Option<CpuSet>>) -> Self {
        self.attributes.cpumask = cpus.into();
        self
    }

    /// Sets the nice value of the workers, from -20 (most favoured) to 19. 0, the default, means the nice value of the thread that built
    /// the runtime; the other values are absolute.
    ///
    /// If a value is refused for lack of privilege, the queue is still built: its workers have the nearest value that is allowed, and,
    /// instead of a value below 0, a [time slice](Self::time_slice) of 0.1 ms. A warning on standard error says, once for each value, what
    /// would allow it. [`effective_nice`](crate::inspect::QueueView::effective_nice) returns what the workers have.
    pub fn nice(mut self, nice: i32) -> Self {
        self.attributes.nice = nice;
        self
    }

    /// Sets high priority: nice -20, in pools of its own. Shorthand for [`nice(-20)`](Self::nice).
    ///
    /// Queueing urgent items before others would not help an item whose worker itself waits for the CPU. Workers that the scheduler favours
    /// do help.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    ///
    /// let urgent = Workqueue::builder("urgent").highpri().build()?;
    /// assert_eq!(urgent.spawn(|| 2 + 3).join()?, 5);
    /// println!("its workers have nice {}", urgent.effective_nice());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn highpri(self) -> Self {
        self.nice(MOST_FAVOURED)
    }

    /// Puts the workers into the class `SCHED_IDLE`, which runs when nothing else wants the CPU. The nice value and the time slice have no
    /// effect then. Needs no privilege. If a container refuses the class, the workers have nice 19.
    ///
    /// Leaving the class needs `CAP_SYS_NICE`, or an `RLIMIT_NICE` that allows the thread's nice value. So, in a process without either,
    /// the first worker of another queue may be in the class as well. This happens if an item of this queue is the first to queue onto the
    /// other queue, because this item's worker then starts the other queue's worker. A warning on standard error says so. To avoid it,
    /// queue something onto the other queue from a thread of the program first.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    ///
    /// let queue = Workqueue::builder("sweep").sched_idle().build()?;
    /// assert_eq!(queue.spawn(|| 2 + 3).join()?, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sched_idle(mut self) -> Self {
        self.attributes.sched_idle = true;
        self
    }

    /// Sets how long a worker runs without a break while other threads want its CPU: 0.1 to 100 ms; the system's own if not set. With a
    /// shorter slice a worker runs sooner after a sleep, without any privilege and without a larger share of the CPU.
    ///
    /// Queues with different slices have different pools. Linux supports slices from 6.12 on; on older kernels they have no effect.
    ///
    /// Measured on one of two CPUs (Linux 6.18), as the time from queueing to start:
    ///
    /// | nice | other threads | figure | slice of 0.1 ms | system's slice |
    /// |---|---|---|---|---|
    /// | 0 | one busy thread | median / p99 | 0.03 / 0.07 ms | 5.7 / 12 ms |
    /// | 0 | 3000 threads that sleep 1 ms each time | median / p99 | 15 / 66 ms | 13 / 100 ms |
    /// | -20 | the same 3000 threads | p99 | 0.9 ms (1.8 ms with a slice of 1 ms) | 0.4 ms |
    ///
    /// So at nice -20 a short slice gains nothing and costs something. A slice is also the CPU time that a worker may use before it yields
    /// to threads that have had less than their share.
    pub fn time_slice(mut self, slice: impl Into<Option<Duration>>) -> Self {
        self.attributes.time_slice = slice.into();
        self
    }

    /// Sets how many items of the queue may be active at once, that is, wait for a worker or run; the others are held back. 1 to 2048; 0,
    /// or not set, means 1024.
    ///
    /// The number is for the whole queue, but counted by node, as in the kernel. A node gets its share of it in proportion to the queue's
    /// CPUs there, rounded up and not less than [`min_active`](Self::min_active). Pods that do not lie inside one node are counted
    /// separately. So on a machine with several nodes more items may be active: with 4 and the default `min_active`, 4 on each node.
    /// [`limits`](crate::inspect::QueueView::limits) returns the numbers.
    pub fn max_active(mut self, items: usize) -> Self {
        self.max_active = Some(items);
        self
    }

    /// Sets how many items may be active on each node even if the node's share of [`max_active`](Self::max_active) is smaller. That many
    /// items of the queue may depend on each other without a deadlock. 0 to `max_active`; the lesser of `max_active` and 8 if not set. Not
    /// for per-CPU and ordered queues.
    pub fn min_active(mut self, items: usize) -> Self {
        self.min_active = Some(items);
        self
    }

    /// Sets the home of items that have no [home](Home) of their own; none if not set. Not for per-CPU queues.
    ///
    /// Such items go to a pod of that node, as the queue's scope divides it. If no pod lies inside one node (the scope `system`, or an
    /// ordered queue), a worker moves to the node before it runs them, if it may.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Workqueue, home::Home};
    ///
    /// let queue = Workqueue::builder("tables").home(&Home::pick()?).build()?;
    /// assert_eq!(queue.spawn(|| 2 + 3).join().unwrap(), 5);
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn home(mut self, home: &Home<P>) -> Self {
        self.home = Some(home.clone());
        self
    }

    /// Sets the policy that decides on which node new memory of the items is allocated; on their homes if not set.
    pub fn memory(mut self, memory: MemoryPolicy) -> Self {
        self.attributes.memory = memory;
        self
    }

    /// Builds the queue. A [rescuer](Self::rescuer) is started now; workers are started when work comes.
    ///
    /// # Errors
    /// * An attribute cannot be applied, or this kind of queue does not have it; the error says what is possible.
    /// * The [rescuer](Self::rescuer) could not be started ([`Error::NoRescuer`]).
    /// * The runtime was [shut down](Runtime::shutdown) ([`Error::ShutDown`]).
    /// * The process-wide runtime cannot be made, because the machine cannot be described ([`Error::Machine`]).
    pub fn build(self) -> Result<Workqueue<P>, Error> {
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => (self.global)()?,
        };
        let inner = runtime.inner();
        let kind = self.kind;
        kind.check(&self.attributes)?;
        Priority::check(&self.attributes)?;
        if let Some(mask) = &self.attributes.cpumask {
            inner.machine_config().check_mask(mask)?;
        }
        let default = kind.default_bounds();
        // 0 is the default.
        let max_active = self.max_active.filter(|items| *items != 0).unwrap_or(default.max_active);
        let min_active = self.min_active.unwrap_or(default.min_active);
        let attributes = self.attributes.bounded(Bounds { max_active, min_active });
        let attributes = attributes.with_limit(kind, default, self.min_active.is_some())?;
        if kind == QueueKind::PerCpu && self.home.is_some() {
            return Err(Error::Unsupported { attribute: "a home", kind: QueueKind::PerCpu });
        }
        if max_active > HIGHEST_MAX_ACTIVE {
            inner.warn_max_active(max_active, HIGHEST_MAX_ACTIVE);
        }
        let queue = Queue::new(&runtime, self.name, kind, self.flags, attributes);
        queue.prepare_memory(queue.memory());
        queue.set_home(self.home.as_ref())?;
        inner.add_queue(&queue);
        // Before the queue was on the runtime's list, the runtime's defaults may have changed, or it may have been frozen.
        queue.relayout();
        let rescuer = queue.rescuer().map_or(Ok(()), |rescuer| rescuer.start(&queue));
        let queue = Workqueue::of(queue);
        // Checked after the queue was put on the list: if this check misses a shutdown, the thread that shuts the runtime down finds the
        // queue there.
        if inner.is_shut() {
            return Err(Error::ShutDown);
        }
        rescuer?;
        Ok(queue)
    }
}
