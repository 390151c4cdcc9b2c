//! What has happened on each queue: counters, and how long items waited and ran.

use serde::{Deserialize, Serialize};

use super::bounds::{self, MOST_BUCKETS, MOST_ROWS};

/// Counts of a process at one moment. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// The moment, on the clock `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// CPU time of the whole process.
    pub cpu_ns: u64,
    /// CPU time of the thread that answers.
    pub control_cpu_ns: u64,
    /// The number of worker threads.
    pub workers: u64,
    /// How many of them sleep.
    pub idle: u64,
    /// How many workers of one nice value may run at once: the number of CPUs that the process may use, or its CPU quota, rounded up, if
    /// that is less.
    pub parallelism: u64,
    /// Whether items are timed.
    pub timing: bool,
    /// The number of items that were timed, over all queues.
    pub samples: u64,
    /// The queues that have not ended, oldest first.
    #[serde(deserialize_with = "bounds::most::<MOST_ROWS, _, _>")]
    pub queues: Vec<QueueStatistics>,
    /// The pools that have workers or work, by number.
    #[serde(deserialize_with = "bounds::most::<MOST_ROWS, _, _>")]
    pub pods: Vec<PodStatistics>,
}

/// Counts of one queue, over all its pools, earlier ones included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueStatistics {
    /// The queue's number; no other queue of the process ever has it.
    pub id: u64,
    /// Its name.
    #[serde(deserialize_with = "bounds::name")]
    pub name: String,
    /// `percpu`, `unbound`, `unbound,S` (strict) or `ordered`.
    #[serde(deserialize_with = "bounds::name")]
    pub kind: String,
    /// The scope in words: `cache`, `default (cache_shard)`, ...
    #[serde(deserialize_with = "bounds::name")]
    pub scope: String,
    /// Executions that have begun.
    pub started: u64,
    /// Executions that have ended.
    pub completed: u64,
    /// Executions that ended in a panic.
    pub panicked: u64,
    /// Items that run.
    pub running: u64,
    /// Items that wait for a worker.
    pub waiting: u64,
    /// Items that the limit holds back.
    pub inactive: u64,
    /// CPU time of workers while they served the queue.
    pub cpu_ns: u64,
    /// How often an item of a per-CPU queue used its CPU for too long.
    pub cpu_intensive: u64,
    /// How often another worker was called because one slept inside an item.
    pub concurrency_wakeups: u64,
    /// How often a worker was brought back into its pod.
    pub repatriated: u64,
    /// Executions by workers of other pods.
    pub helped: u64,
    /// Whether it has a rescuer.
    pub rescuer: bool,
    /// How often the rescuer was called, because no worker could be started.
    pub mayday: u64,
    /// Executions by the rescuer.
    pub rescued: u64,
    /// Executions of items with a home that began at home.
    #[serde(default)]
    pub at_home: u64,
    /// Executions of items with a home that began elsewhere.
    #[serde(default)]
    pub away: u64,
    /// Executions that only ran closures of a `join` of other workers.
    #[serde(default)]
    pub thieves: u64,
    /// Closures of a `join` that another worker than the caller ran.
    #[serde(default)]
    pub stolen: u64,
    /// The limit: how many items may be active at once.
    pub max_active: u64,
    /// How long items waited from queueing to start, while they are timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Histogram>,
    /// How long items ran, while they are timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Histogram>,
}

/// How often each length of time was measured, since items were first timed. Each timed item also counts for the items near it that were
/// not timed, so the counts are approximately those of all items.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "HistogramOnWire", into = "HistogramOnWire")]
pub struct Histogram {
    /// The number of items that were timed.
    pub samples: u64,
    /// The sum of all times.
    pub sum_ns: u64,
    /// The buckets that are not empty, shortest times first. Each is about 6 % wide.
    pub buckets: Vec<Bucket>,
}

/// A histogram as it is sent: hundreds of queues have tens of thousands of buckets, which take a third of the bytes in this form.
#[derive(Serialize, Deserialize)]
struct HistogramOnWire {
    samples: u64,
    sum_ns: u64,
    #[serde(deserialize_with = "bounds::most::<MOST_BUCKETS, _, _>")]
    below_ns: Vec<u64>,
    #[serde(deserialize_with = "bounds::most::<MOST_BUCKETS, _, _>")]
    counts: Vec<u64>,
}

impl From<HistogramOnWire> for Histogram {
    fn from(wire: HistogramOnWire) -> Self {
        let buckets = wire.below_ns.into_iter().zip(wire.counts);
        let buckets = buckets.map(|(below_ns, count)| Bucket { below_ns, count }).collect();
        Histogram { samples: wire.samples, sum_ns: wire.sum_ns, buckets }
    }
}

impl From<Histogram> for HistogramOnWire {
    fn from(histogram: Histogram) -> Self {
        let Histogram { samples, sum_ns, buckets } = histogram;
        let (below_ns, counts) =
            buckets.into_iter().map(|bucket| (bucket.below_ns, bucket.count)).unzip();
        HistogramOnWire { samples, sum_ns, below_ns, counts }
    }
}

/// A range of times, and how many items fell into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// The end of the range: the shortest time above the range.
    pub below_ns: u64,
    /// How many items took a time in this range.
    pub count: u64,
}

impl Histogram {
    /// Returns the number of items that are counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum: u64, bucket| sum.saturating_add(bucket.count))
    }

    /// Returns what has been added since `earlier`, an older state of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut before = earlier.buckets.iter().peekable();
        let mut buckets = Vec::new();
        for bucket in &self.buckets {
            while before.next_if(|other| other.below_ns < bucket.below_ns).is_some() {}
            let known = before.next_if(|other| other.below_ns == bucket.below_ns);
            let count = bucket.count.saturating_sub(known.map_or(0, |other| other.count));
            if count != 0 {
                buckets.push(Bucket { count, ..*bucket });
            }
        }
        Histogram {
            samples: self.samples.saturating_sub(earlier.samples),
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
            buckets,
        }
    }

    /// Returns the time that a part of the items (0 to 1) did not exceed, in nanoseconds, as the upper end of its bucket; `None` if nothing
    /// is counted.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let count = self.count();
        let wanted = ((part * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen: u64 = 0;
        self.buckets.iter().find_map(|bucket| {
            seen = seen.saturating_add(bucket.count);
            (seen >= wanted).then_some(bucket.below_ns)
        })
    }
}

/// One pool, as it is now: the workers of a pod for one priority.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodStatistics {
    /// The pool's number.
    pub pool: u64,
    /// The CPUs of its pod.
    #[serde(deserialize_with = "bounds::list")]
    pub cpus: String,
    /// The nice value of its workers.
    pub nice: i64,
    /// The number of its workers.
    pub workers: u64,
    /// How many of them sleep.
    pub idle: u64,
    /// Items that wait for a worker; the newest are not counted yet.
    pub ready: u64,
    /// Executions that have ended in this pool, for the queues that exist.
    pub completed: u64,
    /// CPU time of its workers, for the queues that exist.
    pub cpu_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(buckets: &[(u64, u64)]) -> Histogram {
        let buckets = buckets.iter().map(|&(below_ns, count)| Bucket { below_ns, count });
        Histogram { samples: 1, sum_ns: 10, buckets: buckets.collect() }
    }

    #[test]
    fn quantiles_are_upper_bounds_of_buckets() {
        let times = histogram(&[(10, 50), (20, 49), (400, 1)]);
        let at = [0.0, 0.5, 0.51, 0.99, 0.991, 1.0].map(|part| times.quantile(part).unwrap());
        assert_eq!(at, [10, 10, 20, 20, 400, 400]);
        assert_eq!(histogram(&[]).quantile(0.5), None);
    }

    #[test]
    fn the_difference_of_histograms_is_what_was_added() {
        let before = histogram(&[(10, 5), (30, 1)]);
        let after = histogram(&[(10, 5), (20, 2), (30, 4), (50, 1)]);
        assert_eq!(after.since(&before).buckets, histogram(&[(20, 2), (30, 3), (50, 1)]).buckets);
        assert_eq!(after.since(&Histogram::default()).buckets, after.buckets);
    }
}
