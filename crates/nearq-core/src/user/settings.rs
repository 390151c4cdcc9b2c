//! The settings of a workqueue before it exists.

use core::time::Duration;

use nearq_platform::{Linux, Platform};
use nearq_topology::{AffinityScope, CpuSet};

use crate::base::error::Error;
use crate::base::ids::QueueKind;
use crate::homes::{Home, MemoryPolicy};
use crate::layout::attributes::Attributes;
use crate::layout::domain::{Bounds, DEFAULT_MAX_ACTIVE, HIGHEST_MAX_ACTIVE};
use crate::layout::priority::{MOST_FAVOURED, Priority};
use crate::queue::runtime::Runtime;
use crate::queue::{Queue, QueueFlags};
use crate::user::workqueue::Workqueue;

/// Settings of a workqueue that is about to be made.
///
/// What a queue is for good takes no argument; what [can be changed](crate::inspect::QueueView::change) while it runs takes a value.
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
/// | [`kind`](Self::kind), [`per_cpu`](Self::per_cpu), [`ordered`](Self::ordered) | unbound |
/// | [`affinity_scope`](Self::affinity_scope) | the runtime's default, which is `cache_shard` |
/// | [`affinity_strict`](Self::affinity_strict), [`localize`](Self::localize) | off |
/// | [`helping`](Self::helping), [`affinity_enabled`](Self::affinity_enabled) | on |
/// | [`cpumask`](Self::cpumask) | all CPUs that the process may use |
/// | [`nice`](Self::nice), [`highpri`](Self::highpri), [`sched_idle`](Self::sched_idle), [`time_slice`](Self::time_slice) | as the thread that made the runtime |
/// | [`max_active`](Self::max_active), [`min_active`](Self::min_active) | 1024; 8 on each node |
/// | [`home`](Self::home), [`memory`](Self::memory) | no home; memory from the homes of items |
/// | [`freezable`](Self::freezable), [`cpu_intensive`](Self::cpu_intensive), [`rescuer`](Self::rescuer) | not |
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
    /// Settings of a new queue on this runtime.
    pub fn workqueue_builder(&self, name: impl Into<String>) -> WorkqueueBuilder<P> {
        let unused = || unreachable!("the runtime is named");
        WorkqueueBuilder::new(name.into(), Some(self.clone()), unused)
    }
}

#[cfg(target_os = "linux")]
impl Workqueue<Linux> {
    /// Settings of a new queue on the process-wide runtime, which is made when the first queue is.
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

    /// A per-CPU queue: an item runs on the CPU that queued it, or on that of [`queue_on`](Workqueue::queue_on), and nowhere else while the
    /// process may use that CPU. Each CPU has one worker that runs, and another if that blocks; they serve all per-CPU queues of their
    /// priority. `max_active` counts for each CPU by itself. For short items, and for data that belong to a CPU.
    ///
    /// Of its other attributes, only `nice`, `sched_idle`, `time_slice` and `max_active` can be set. While a CPU is offline, its items run
    /// on any other.
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

    /// An ordered queue: its items run one at a time, in the order in which they were queued, from whatever CPUs, even while attributes
    /// such as the mask and the nice value are changed. If one call of [`queue`](Workqueue::queue) has returned before another one begins,
    /// the item of the first starts before that of the second; so do closures. An item that queues itself again goes to the end.
    ///
    /// `max_active` is 1 and cannot be changed. (An ordinary queue with a `max_active` of 1 promises no order.) There is one pod, with all
    /// CPUs of the queue: the scope, strictness, helping and affinity have no effect.
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

    /// The kind of the queue; unbound if not set. If it is set more than once, the last one counts.
    pub fn kind(self, kind: QueueKind) -> Self {
        WorkqueueBuilder { kind, ..self }
    }

    /// [`Runtime::freeze`] holds the queue's items back until [`Runtime::thaw`]. Available for every kind of queue.
    pub fn freezable(mut self) -> Self {
        self.flags.freezable = true;
        self
    }

    /// For a [per-CPU queue](Self::per_cpu): its items compute for long, so they do not count as running, and others of their CPU start
    /// beside them. [`max_active`](Self::max_active) limits how many of its own run at once on a CPU. Without it, an item that
    /// computes for longer than [`cpu_intensive_after`](crate::RuntimeBuilder::cpu_intensive_after) is detected. No effect on other queues,
    /// where more than one worker runs anyway.
    pub fn cpu_intensive(mut self) -> Self {
        self.flags.cpu_intensive = true;
        self
    }

    /// A thread that is reserved for the queue, so that its items run even if no worker can be started. Available for every kind of queue.
    ///
    /// Workers are started when work comes. A limit on threads (of the runtime, the user or the control group) or a lack of memory may
    /// forbid that while all existing workers sleep inside their items. On most queues, work then waits until one comes back. If the very
    /// items that sleep wait for some that do not start, that is for ever. For work that must go on, such as work that frees memory or
    /// threads, this thread is started with the queue. 10 ms after a worker was refused, if nothing has been started since, it runs the
    /// queue's own items, **one at a time**, in the pool where they wait, until workers can be started again or none of the queue's items
    /// is left there.
    ///
    /// * It is one thread: an item of the queue that waits for another one of the same queue may wait for ever. If such work depends on
    ///   other such work, give each step a queue with a rescuer.
    /// * It is named `nq/R-` and the queue's name, is favoured as much as the process may (nice -20 with the privilege), and runs the hooks
    ///   of workers ([`on_worker_start`](crate::RuntimeBuilder::on_worker_start)). It does not count as a worker: neither under the limit
    ///   of threads, nor in [`Runtime::thread_count`].
    /// * Its work is counted ([`rescued`](crate::inspect::PoolStatistics::rescued)).
    /// * In the child of a fork it is started again with the first worker.
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

    /// How CPUs are grouped; the runtime's default scope if not set.
    pub fn affinity_scope(mut self, scope: impl Into<Option<AffinityScope>>) -> Self {
        self.attributes.affinity_scope = scope.into();
        self
    }

    /// Workers never leave their pod. Off if not set: they start an item there and may be moved when that keeps CPUs busy.
    pub fn affinity_strict(mut self, strict: bool) -> Self {
        self.attributes.affinity_strict = strict;
        self
    }

    /// An item runs on the CPU that queued it, if a worker can run there. Off if not set.
    pub fn localize(mut self, localize: bool) -> Self {
        self.attributes.localize = localize;
        self
    }

    /// Idle workers of other pods take items of this queue, nearest pods first. On if not set; no effect with `strict`.
    pub fn helping(mut self, helping: bool) -> Self {
        self.attributes.helping = helping;
        self
    }

    /// Off: one pod of all CPUs, whatever the scope. On if not set.
    pub fn affinity_enabled(mut self, on: bool) -> Self {
        self.attributes.affinity_enabled = on;
        self
    }

    /// The CPUs that items may run on; all that the process may use if not set.
    pub fn cpumask(mut self, cpus: impl Into<Option<CpuSet>>) -> Self {
        self.attributes.cpumask = cpus.into();
        self
    }

    /// The workers' nice value, -20 (most favoured) to 19. 0, or not set, is the nice value of the caller that made the runtime.
    ///
    /// A value that is refused for lack of privilege is no failure: the workers have the nearest that is allowed, and, in place of a value
    /// below 0, a [slice](Self::time_slice) of 0.1 ms. The platform's warning says once for each value what would allow it;
    /// [`Workqueue::effective_nice`](crate::inspect::QueueView::effective_nice) tells what the workers have.
    pub fn nice(mut self, nice: i32) -> Self {
        self.attributes.nice = nice;
        self
    }

    /// High priority: nice -20, in pools of their own.
    ///
    /// Being queued before other items does not help an item whose worker itself waits for the CPU; a pool of its own with workers that the
    /// scheduler favours does.
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

    /// Low priority: workers of the class `SCHED_IDLE`, which run when nothing else wants the CPU. The nice value and the slice have no
    /// effect then. Needs no privilege. If a container refuses the class, they have nice 19.
    ///
    /// Leaving the class does need the privilege. Suppose that, in a process without it, an item of this queue is the first to queue onto
    /// another one: then that queue's first worker may be in the class as well, because this item's worker starts it. The platform's
    /// warning says so. To avoid it, let a thread of the program use the other queue first.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    ///
    /// let queue = Workqueue::builder("sweep").sched_idle(true).build()?;
    /// assert_eq!(queue.spawn(|| 2 + 3).join()?, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sched_idle(mut self, sched_idle: bool) -> Self {
        self.attributes.sched_idle = sched_idle;
        self
    }

    /// How long a worker runs in one go while other threads want its CPU: 0.1 to 100 ms; the system's own if not set. With a shorter slice
    /// it runs sooner after a sleep, needs no privilege for that, and has no larger share of the CPU. Queues with different slices have
    /// different pools. Linux supports slices from 6.12 on; where they are not supported they have no effect.
    ///
    /// Measured on one of two CPUs (Linux 6.18), from queueing to start, with 0.1 ms and without. At nice 0: beside one busy thread median
    /// 0.03 and 5.7 ms, p99 0.07 and 12 ms; beside 3000 threads that sleep 1 ms each time median 15 and 13 ms, p99 66 and 100 ms. At nice
    /// -20 there is nothing to gain, and something to lose: beside those 3000 threads p99 0.9 ms with 0.1 ms, 1.8 with 1 ms, 0.4 without. A
    /// worker's slice is also what it may use before threads come first that have used less than their share.
    pub fn time_slice(mut self, slice: impl Into<Option<Duration>>) -> Self {
        self.attributes.time_slice = slice.into();
        self
    }

    /// The most items that may be on pools or running at once; others wait. 1 to 2048; 0, or not set, is 1024.
    ///
    /// The number is for the whole queue, but counted by node, as in the kernel: a node gets its share of it by the queue's CPUs there,
    /// rounded up and not less than [`min_active`](Self::min_active), and pods that do not lie inside one node are counted separately. So
    /// on a machine of several nodes slightly more may be active; [`Workqueue::limits`](crate::inspect::QueueView::limits) says how much.
    pub fn max_active(mut self, items: usize) -> Self {
        self.max_active = Some(items);
        self
    }

    /// The number of items that may be active on each node, whatever its share of [`max_active`](Self::max_active) is: that many items of
    /// the queue may wait for each other. 0 to `max_active`; the lesser of that and 8 if not set.
    pub fn min_active(mut self, items: usize) -> Self {
        self.min_active = Some(items);
        self
    }

    /// The home of items that have no [home](Home) of their own; none if not set. Not for a per-CPU queue.
    ///
    /// They go to a pod of that node, as the queue's scope divides it. If no pod lies inside one node (the scope `system`, an ordered
    /// queue), a worker goes there before it runs them, if it may.
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

    /// Where the memory that items touch first comes from; from their homes if not set.
    pub fn memory(mut self, memory: MemoryPolicy) -> Self {
        self.attributes.memory = memory;
        self
    }

    /// Makes the queue.
    ///
    /// # Errors
    /// An attribute cannot be applied; the error says which are possible. The [rescuer](Self::rescuer) could not be started. The runtime
    /// was [shut down](Runtime::shutdown). For the process-wide runtime: the machine cannot be described.
    pub fn build(self) -> Result<Workqueue<P>, Error> {
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => (self.global)()?,
        };
        let inner = runtime.inner();
        let kind = self.kind;
        Priority::check(&self.attributes)?;
        inner.check_mask(self.attributes.cpumask.as_ref())?;
        let max_active = self.max_active.unwrap_or(DEFAULT_MAX_ACTIVE);
        let attributes = match kind {
            QueueKind::Ordered if max_active > 1 && self.max_active.is_some() => {
                return Err(Error::Unsupported {
                    attribute: "max_active",
                    kind: QueueKind::Ordered,
                });
            }
            QueueKind::Ordered => self.attributes.bounded(Bounds::ONE),
            _ => Attributes { max_active, ..self.attributes },
        };
        if kind != QueueKind::Ordered && max_active > HIGHEST_MAX_ACTIVE {
            inner.warn_max_active(max_active, HIGHEST_MAX_ACTIVE);
        }
        let min_active = self.min_active.unwrap_or(attributes.min_active);
        let now = attributes.bounds();
        let attributes = Attributes { min_active, ..attributes };
        let attributes = attributes.with_limit(kind, now, self.min_active.is_some())?;
        kind.check(&attributes)?;
        if kind == QueueKind::PerCpu && self.home.is_some() {
            return Err(Error::Unsupported { attribute: "a home", kind: QueueKind::PerCpu });
        }
        let queue = Queue::new(&runtime, self.name, kind, self.flags, attributes);
        queue.prepare_memory(queue.memory());
        queue.set_home(self.home.as_ref())?;
        inner.add_queue(&queue);
        // The runtime's defaults may have changed, or it may have been frozen, before the queue was on its list.
        queue.relayout();
        let rescuer = queue.rescuer().map_or(Ok(()), |rescuer| rescuer.start(&queue));
        let queue = Workqueue::of(queue);
        // Checked after it was put on the list, where the thread that shuts the runtime down finds it if we do not find the shutdown.
        if inner.is_shut() {
            return Err(Error::ShutDown);
        }
        rescuer?;
        Ok(queue)
    }
}
