//! The exported metrics, grouped by what they belong to: names, meanings, and how to get the value.

use crate::protocol::{Histogram, PodStatistics, QueueStatistics, Statistics};

/// A metric of a `T`.
pub(super) struct Metric<T: 'static> {
    /// Its name, without the suffixes that its kind and unit add.
    pub(super) name: &'static str,
    /// Its meaning, in a sentence.
    pub(super) help: &'static str,
    /// Whether it is a time: nanoseconds here, seconds outside.
    pub(super) seconds: bool,
    read: Read<T>,
}

/// How to get the value.
enum Read<T: 'static> {
    /// Counters, which only grow.
    Counter(fn(&T) -> Option<u64>),
    /// Gauges, which also fall.
    Gauge(fn(&T) -> Option<u64>),
    /// Times.
    Histogram(fn(&T) -> Option<&Histogram>),
}

/// A value.
pub(super) enum Value<'a> {
    Counter(u64),
    Gauge(u64),
    Histogram(&'a Histogram),
}

/// The kind of a value.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl<T> Metric<T> {
    /// Its value; `None` if it does not apply.
    pub(super) fn of<'a>(&self, one: &'a T) -> Option<Value<'a>> {
        match self.read {
            Read::Counter(read) => read(one).map(Value::Counter),
            Read::Gauge(read) => read(one).map(Value::Gauge),
            Read::Histogram(read) => read(one).map(Value::Histogram),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self.read {
            Read::Counter(_) => Kind::Counter,
            Read::Gauge(_) => Kind::Gauge,
            Read::Histogram(_) => Kind::Histogram,
        }
    }
}

const fn counter<T>(
    name: &'static str,
    help: &'static str,
    read: fn(&T) -> Option<u64>,
) -> Metric<T> {
    Metric { name, help, seconds: false, read: Read::Counter(read) }
}

const fn gauge<T>(
    name: &'static str,
    help: &'static str,
    read: fn(&T) -> Option<u64>,
) -> Metric<T> {
    Metric { name, help, seconds: false, read: Read::Gauge(read) }
}

const fn in_seconds<T>(metric: Metric<T>) -> Metric<T> {
    Metric { seconds: true, ..metric }
}

const fn times<T>(
    name: &'static str,
    help: &'static str,
    read: fn(&T) -> Option<&Histogram>,
) -> Metric<T> {
    Metric { name, help, seconds: true, read: Read::Histogram(read) }
}

/// Name and meaning of the metric whose labels describe a queue.
pub(super) const QUEUE_INFO: (&str, &str) =
    ("nearq_queue", "What a queue is: percpu, unbound, unbound,S (strict) or ordered; its scope.");

/// The metrics of the process.
pub(super) const PROCESS: &[Metric<Statistics>] = &[
    in_seconds(counter("nearq_process_cpu", "CPU time of the whole process.", |all| {
        Some(all.cpu_ns)
    })),
    in_seconds(counter("nearq_control_cpu", "CPU time of the thread that answers tools.", |all| {
        // Unknown if the thread did not report it.
        Some(all.control_cpu_ns).filter(|ns| *ns != 0)
    })),
    gauge("nearq_workers", "Worker threads.", |all| Some(all.workers)),
    gauge("nearq_idle_workers", "Worker threads that sleep.", |all| Some(all.idle)),
    gauge("nearq_parallelism", "Workers that run at once at most.", |all| Some(all.parallelism)),
    gauge("nearq_timing", "1 while items are timed, else 0.", |all| Some(u64::from(all.timing))),
    counter("nearq_timed_items", "Items that were timed.", |all| Some(all.samples)),
];

/// The metrics of a queue.
pub(super) const QUEUE: &[Metric<QueueStatistics>] = &[
    counter("nearq_queue_items_started", "Executions that have begun.", |one| Some(one.started)),
    counter("nearq_queue_items_completed", "Executions that have ended.", |one| {
        Some(one.completed)
    }),
    counter("nearq_queue_items_panicked", "Executions that ended in a panic.", |one| {
        Some(one.panicked)
    }),
    gauge("nearq_queue_running_items", "Items that run.", |one| Some(one.running)),
    gauge("nearq_queue_waiting_items", "Items that wait for a worker.", |one| Some(one.waiting)),
    gauge("nearq_queue_inactive_items", "Items that max_active holds back.", |one| {
        Some(one.inactive)
    }),
    gauge("nearq_queue_max_active", "The limit of active items.", |one| Some(one.max_active)),
    in_seconds(counter("nearq_queue_cpu", "CPU time of workers that served the queue.", |one| {
        Some(one.cpu_ns)
    })),
    counter("nearq_queue_cpu_intensive", "Times an item used its CPU for too long.", |one| {
        (one.kind == "percpu").then_some(one.cpu_intensive)
    }),
    counter(
        "nearq_queue_concurrency_wakeups",
        "Times another worker was called because one slept inside an item.",
        |one| Some(one.concurrency_wakeups),
    ),
    counter("nearq_queue_repatriations", "Times a worker was brought back into its pod.", |one| {
        Some(one.repatriated)
    }),
    counter("nearq_queue_items_helped", "Executions by workers of other pods.", |one| {
        Some(one.helped)
    }),
    counter("nearq_queue_maydays", "Times the rescuer was called.", |one| {
        one.rescuer.then_some(one.mayday)
    }),
    counter("nearq_queue_items_rescued", "Executions by the rescuer.", |one| {
        one.rescuer.then_some(one.rescued)
    }),
    counter(
        "nearq_queue_thieves",
        "Executions that ran joins' closures of other workers.",
        |one| (one.thieves != 0).then_some(one.thieves),
    ),
    counter("nearq_queue_closures_stolen", "Closures of joins that another worker ran.", |one| {
        (one.thieves != 0).then_some(one.stolen)
    }),
    times("nearq_queue_wait", "Time from queueing to start, of timed items.", |one| {
        one.wait.as_ref()
    }),
    times("nearq_queue_run", "Time from start to end, of timed items.", |one| one.run.as_ref()),
];

/// The metrics of a pool. A sum over queues drops when a queue is destroyed, so it is not a counter.
pub(super) const POOL: &[Metric<PodStatistics>] = &[
    gauge("nearq_pool_workers", "Worker threads.", |one| Some(one.workers)),
    gauge("nearq_pool_idle_workers", "Worker threads that sleep.", |one| Some(one.idle)),
    gauge("nearq_pool_ready_items", "Items that workers have fetched and not begun.", |one| {
        Some(one.ready)
    }),
    gauge(
        "nearq_pool_completed_items",
        "Executions that have ended, of queues that exist.",
        |one| Some(one.completed),
    ),
    in_seconds(gauge("nearq_pool_cpu", "CPU time of its workers, for queues that exist.", |one| {
        Some(one.cpu_ns)
    })),
];
