//! What the process-wide runtime reports, and its settings: the target of a program that uses nearq.
//!
//! Everything is read while the workers continue, so counts in one answer may come from slightly different moments. Nothing here waits for
//! a worker, and only `GetDump` with `items` can make a worker wait.

mod dump;
pub(crate) mod settings;

use std::collections::{BTreeMap, HashSet};

use nearq_core::Runtime;
use nearq_core::inspect::{QueueId, QueueView};
use nearq_core::trace::{TimingGuard, TraceKind as CoreKind, Tracer};
use nearq_platform::{Instant, Linux, LockPlatform};

use crate::control_target::{ControlTarget, Tracing};
use crate::process::this_process;
use crate::protocol::{
    Bucket, Dump, GetDump, Histogram, PodStatistics, Process, QueueStatistics, Refusal, Settings,
    Statistics, Trace, TraceBatch, TraceEvent, TraceKind, TracedQueue,
};

/// A runtime, inspected and tuned from outside.
#[derive(Debug)]
pub struct RuntimeTarget {
    runtime: Runtime,
    since: Instant,
    timing: Option<TimingGuard>,
}

impl RuntimeTarget {
    /// Makes a target for `runtime`.
    pub fn new(runtime: Runtime) -> Self {
        RuntimeTarget { runtime, since: Linux::now(), timing: None }
    }
}

/// `percpu`, `ordered`, `unbound`, or `unbound,S` for a strict one, as in the kernel's tools.
fn kind(queue: &QueueView) -> &'static str {
    if queue.is_per_cpu() {
        "percpu"
    } else if queue.is_ordered() {
        "ordered"
    } else if queue.attributes().affinity_strict {
        "unbound,S"
    } else {
        "unbound"
    }
}

/// The queue with that name, or with that number after a `#`.
fn find<'a>(queues: &'a [QueueView], name: &str) -> Result<&'a QueueView, Refusal> {
    let number = name.strip_prefix('#').and_then(|number| number.parse::<u64>().ok());
    if let Some(queue) = queues.iter().find(|queue| Some(queue.id().into()) == number) {
        return Ok(queue);
    }
    let mut called = queues.iter().filter(|queue| queue.name() == name);
    match (called.next(), called.next()) {
        (Some(queue), None) => Ok(queue),
        (Some(_), Some(_)) => {
            let numbers = queues.iter().filter(|queue| queue.name() == name);
            let numbers = numbers.map(|queue| format!("#{}", queue.id())).collect();
            Err(Refusal::Ambiguous { queue: name.to_owned(), numbers })
        }
        (None, _) => {
            let queues = queues.iter().map(|queue| queue.name().to_owned()).collect();
            Err(Refusal::NoSuchQueue { queue: name.to_owned(), queues })
        }
    }
}

fn histogram(times: &nearq_core::trace::Histogram) -> Histogram {
    let classes = times.buckets.iter();
    let bucket = |class: &nearq_core::trace::Bucket| Bucket {
        below_ns: class.below_nanos,
        count: class.count,
    };
    Histogram {
        samples: times.samples,
        sum_ns: times.sum_nanos,
        buckets: classes.map(bucket).collect(),
    }
}

/// CPU time of the whole process.
fn cpu_time() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl RuntimeTarget {
    fn queue_statistics(&self, queue: &QueueView, pods: &mut [PodStatistics]) -> QueueStatistics {
        let rows = queue.statistics();
        for row in &rows {
            let pod = pods.iter_mut().find(|pod| pod.pool == u64::from(row.pool));
            if let Some(pod) = pod {
                pod.completed += row.completed;
                pod.cpu_ns += row.cpu_time.as_nanos() as u64;
            }
        }
        let sum = |of: fn(&nearq_core::inspect::PoolStatistics) -> u64| rows.iter().map(of).sum();
        let in_flight = queue.in_flight();
        let times = queue.times().filter(|_| self.timing.is_some());
        QueueStatistics {
            id: queue.id().into(),
            name: queue.name().to_owned(),
            kind: kind(queue).to_owned(),
            scope: queue.affinity_scope_in_words(),
            started: sum(|row| row.started),
            completed: sum(|row| row.completed),
            panicked: sum(|row| row.panicked),
            running: in_flight.running,
            waiting: in_flight.waiting,
            inactive: in_flight.inactive,
            cpu_ns: sum(|row| row.cpu_time.as_nanos() as u64),
            cpu_intensive: sum(|row| row.cpu_intensive),
            concurrency_wakeups: sum(|row| row.concurrency_wakeups),
            repatriated: sum(|row| row.repatriated),
            helped: sum(|row| row.helped),
            rescuer: queue.has_rescuer(),
            mayday: sum(|row| row.mayday),
            rescued: sum(|row| row.rescued),
            at_home: sum(|row| row.at_home),
            away: sum(|row| row.away),
            thieves: sum(|row| row.thieves),
            stolen: sum(|row| row.stolen),
            max_active: queue.max_active() as u64,
            wait: times.as_ref().map(|times| histogram(&times.wait)),
            run: times.as_ref().map(|times| histogram(&times.run)),
        }
    }
}

impl ControlTarget for RuntimeTarget {
    fn process(&self) -> Process {
        Process {
            runtime: true,
            queues: self.runtime.queues().len() as u64,
            workers: self.runtime.thread_count() as u64,
            ..this_process(Linux::now() - self.since)
        }
    }

    fn time_items(&mut self, on: bool) -> Result<(), Refusal> {
        self.timing = match self.timing.take() {
            Some(timing) if on => Some(timing),
            None if on => Some(self.runtime.time_items()),
            _ => None,
        };
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics, Refusal> {
        let at_ns = Linux::now().as_nanos();
        let mut pods: Vec<PodStatistics> = self
            .runtime
            .pools()
            .into_iter()
            .map(|pool| PodStatistics {
                pool: pool.id.into(),
                cpus: pool.pod.to_list(),
                nice: pool.nice.into(),
                workers: pool.workers as u64,
                idle: pool.sleeping as u64,
                ready: pool.ready as u64,
                ..PodStatistics::default()
            })
            .collect();
        let queues = self.runtime.queues();
        let queues = queues.iter().map(|queue| self.queue_statistics(queue, &mut pods)).collect();
        // Count the workers before pools that have not been used for a while are left out.
        let idle = pods.iter().map(|pod| pod.idle).sum();
        pods.retain(|pod| pod.workers != 0 || pod.ready != 0);
        Ok(Statistics {
            at_ns,
            cpu_ns: cpu_time(),
            // The server adds the CPU time of its own thread.
            control_cpu_ns: 0,
            workers: self.runtime.thread_count() as u64,
            idle,
            parallelism: self.runtime.parallelism() as u64,
            timing: self.timing.is_some(),
            samples: self.runtime.samples(),
            queues,
            pods,
        })
    }

    fn dump(&self, wanted: &GetDump) -> Result<Dump, Refusal> {
        Ok(dump::of(&self.runtime, wanted))
    }

    fn settings(&self, queue: Option<&str>) -> Result<Settings, Refusal> {
        let queues = self.runtime.queues();
        let Some(name) = queue else {
            let queues = queues.iter().map(|queue| settings::of_queue(&self.runtime, queue));
            let process = Some(settings::of_process(&self.runtime));
            return Ok(Settings { process, queues: queues.collect() });
        };
        let queue = settings::of_queue(&self.runtime, find(&queues, name)?);
        Ok(Settings { process: None, queues: vec![queue] })
    }

    fn set(
        &mut self,
        queue: Option<&str>,
        changes: &BTreeMap<String, String>,
    ) -> Result<Settings, Refusal> {
        let Some(name) = queue else {
            settings::set_process(&self.runtime, changes)?;
            let process = Some(settings::of_process(&self.runtime));
            return Ok(Settings { process, queues: Vec::new() });
        };
        let queues = self.runtime.queues();
        let queue = find(&queues, name)?;
        settings::set_queue(&self.runtime, queue, changes)?;
        let queue = settings::of_queue(&self.runtime, queue);
        Ok(Settings { process: None, queues: vec![queue] })
    }

    fn trace(&mut self, wanted: &Trace) -> Result<Box<dyn Tracing>, Refusal> {
        let queues = self.runtime.queues();
        let queue = wanted.queue.as_deref().map(|name| find(&queues, name)).transpose()?;
        let tracer = self.runtime.trace(queue.map(QueueView::id), wanted.every.unwrap_or(1));
        Ok(Box::new(RunningTrace { runtime: self.runtime.clone(), tracer, named: HashSet::new() }))
    }
}

/// A trace, and the queues that it has reported by name.
struct RunningTrace {
    runtime: Runtime,
    tracer: Tracer,
    named: HashSet<QueueId>,
}

impl Tracing for RunningTrace {
    fn take(&mut self, most: usize) -> TraceBatch {
        let events = self.tracer.take(most);
        let mut queues = Vec::new();
        if events.iter().any(|event| !self.named.contains(&event.queue)) {
            for queue in self.runtime.queues() {
                let id = queue.id();
                if events.iter().any(|event| event.queue == id) && self.named.insert(id) {
                    queues.push(TracedQueue { id: id.into(), name: queue.name().to_owned() });
                }
            }
            // Do not search again for queues that are gone.
            self.named.extend(events.iter().map(|event| event.queue));
        }
        let event = |event: nearq_core::trace::TraceEvent| TraceEvent {
            at_ns: event.at_nanos,
            kind: match event.kind {
                CoreKind::Queue => TraceKind::Queue,
                CoreKind::Start => TraceKind::Start,
                CoreKind::End => TraceKind::End,
                other => unreachable!("the protocol has no word for {other:?}"),
            },
            queue: event.queue.into(),
            item: event.item as u64,
            function: event.function().to_owned(),
            cpu: event.cpu as u64,
            thread: event.thread.unwrap_or(0),
            pool: event.pool.into(),
            took_ns: event.took.as_nanos() as u64,
        };
        TraceBatch {
            queues,
            dropped: self.tracer.dropped(),
            every: self.tracer.every(),
            events: events.into_iter().map(event).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
