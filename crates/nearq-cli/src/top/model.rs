//! Computes from two samples of a process: for each queue, its work between them per second and the history of that work; for each pool,
//! how busy its CPUs were.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use nearq_command::screen;
use nearq_control::protocol::{Dump, Histogram, PodStatistics, QueueStatistics, Statistics};
use nearq_topology::CpuSet;
use serde::Serialize;

/// How many intervals histories keep: as many as a wide terminal has columns.
const REMEMBERED: usize = 240;
/// How many queues have a history at most: the oldest ones.
const MOST_HISTORIES: usize = 10_000;

/// The counts of a queue, as totals or per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Counts<T> {
    /// Executions that have started.
    pub(super) started: T,
    /// Executions that have ended.
    pub(super) completed: T,
    /// Executions that ended in a panic.
    pub(super) panicked: T,
    /// Nanoseconds of CPU time.
    pub(super) cpu_ns: T,
    /// Items that used their CPU for too long: per-CPU queues only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_intensive: Option<T>,
    /// Workers woken because one slept inside an item: per-CPU queues only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) concurrency_wakeups: Option<T>,
    /// Workers moved back to their pod: not for per-CPU queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) repatriated: Option<T>,
    /// Executions by workers of other pods: not for per-CPU queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) helped: Option<T>,
    /// Calls of the queue's rescuer, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mayday: Option<T>,
    /// Executions by the queue's rescuer, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rescued: Option<T>,
    /// Executions that only ran closures of joins of other workers, if the queue's items fork.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thieves: Option<T>,
    /// Those closures, if the queue's items fork.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stolen: Option<T>,
}

impl Counts<u64> {
    fn of(queue: &QueueStatistics) -> Self {
        let per_cpu = queue.kind == "percpu";
        let forks = queue.thieves != 0;
        Counts {
            started: queue.started,
            completed: queue.completed,
            panicked: queue.panicked,
            cpu_ns: queue.cpu_ns,
            cpu_intensive: per_cpu.then_some(queue.cpu_intensive),
            concurrency_wakeups: per_cpu.then_some(queue.concurrency_wakeups),
            repatriated: (!per_cpu).then_some(queue.repatriated),
            helped: (!per_cpu).then_some(queue.helped),
            mayday: queue.rescuer.then_some(queue.mayday),
            rescued: queue.rescuer.then_some(queue.rescued),
            thieves: forks.then_some(queue.thieves),
            stolen: forks.then_some(queue.stolen),
        }
    }

    /// The increase since `earlier`, per second.
    fn per_second(&self, earlier: &Self, seconds: f64) -> Counts<f64> {
        let rate = |now: u64, before: u64| per_second(now, before, seconds);
        let optional = |now: Option<u64>, before: Option<u64>| {
            now.map(|now| rate(now, before.unwrap_or_default()))
        };
        Counts {
            started: rate(self.started, earlier.started),
            completed: rate(self.completed, earlier.completed),
            panicked: rate(self.panicked, earlier.panicked),
            cpu_ns: rate(self.cpu_ns, earlier.cpu_ns),
            cpu_intensive: optional(self.cpu_intensive, earlier.cpu_intensive),
            concurrency_wakeups: optional(self.concurrency_wakeups, earlier.concurrency_wakeups),
            repatriated: optional(self.repatriated, earlier.repatriated),
            helped: optional(self.helped, earlier.helped),
            mayday: optional(self.mayday, earlier.mayday),
            rescued: optional(self.rescued, earlier.rescued),
            thieves: optional(self.thieves, earlier.thieves),
            stolen: optional(self.stolen, earlier.stolen),
        }
    }
}

impl<T: Copy> Counts<T> {
    /// The two counts that wq_monitor shows in one column: only one of the two applies to a queue.
    pub(super) fn moves(&self) -> Option<T> {
        self.concurrency_wakeups.or(self.repatriated)
    }

    /// The counts with their names; none for a count that does not apply to the queue.
    pub(super) fn named(&self) -> [(&'static str, Option<T>); 11] {
        [
            ("started", Some(self.started)),
            ("ended", Some(self.completed)),
            ("panicked", Some(self.panicked)),
            ("hogs", self.cpu_intensive),
            ("woken up", self.concurrency_wakeups),
            ("repatriated", self.repatriated),
            ("helped", self.helped),
            ("mayday", self.mayday),
            ("rescued", self.rescued),
            ("thieves", self.thieves),
            ("stolen", self.stolen),
        ]
    }
}

fn per_second(now: u64, before: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 }
}

/// How long something took within the last interval; none if nothing was timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Times {
    /// Items that were timed.
    pub(super) samples: u64,
    /// Half of the items took no longer than this.
    pub(super) p50_ns: Option<u64>,
    /// 90 % of the items took no longer than this.
    pub(super) p90_ns: Option<u64>,
    /// 99 % of the items took no longer than this.
    pub(super) p99_ns: Option<u64>,
    /// All items took no longer than this.
    pub(super) max_ns: Option<u64>,
}

impl Times {
    fn between(before: Option<&Histogram>, now: Option<&Histogram>) -> Self {
        let Some(now) = now else { return Times::default() };
        let times = before.map_or_else(|| now.clone(), |before| now.since(before));
        if times.buckets.is_empty() {
            return Times::default();
        }
        let [p50_ns, p90_ns, p99_ns, max_ns] =
            [0.5, 0.9, 0.99, 1.0].map(|part| times.quantile(part));
        Times { samples: times.samples, p50_ns, p90_ns, p99_ns, max_ns }
    }
}

/// A queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    /// Its number.
    pub(super) id: u64,
    /// Its name.
    pub(super) name: String,
    /// `percpu`, `unbound`, `unbound,S` or `ordered`.
    pub(super) kind: String,
    /// Its scope in words.
    pub(super) scope: String,
    /// Its limit.
    pub(super) max_active: u64,
    /// Items that run.
    pub(super) running: u64,
    /// Items that wait for a worker.
    pub(super) waiting: u64,
    /// Items that wait because of the limit.
    pub(super) inactive: u64,
    /// Since the queue was created.
    pub(super) total: Counts<u64>,
    /// Within the last interval.
    pub(super) per_second: Counts<f64>,
    /// From queueing to start, within the last interval.
    pub(super) wait: Times,
    /// From start to end, within the last interval.
    pub(super) run: Times,
}

impl Row {
    fn between(before: Option<&QueueStatistics>, now: &QueueStatistics, seconds: f64) -> Self {
        let total = Counts::of(now);
        let earlier = before.map(Counts::of).unwrap_or_default();
        Row {
            id: now.id,
            name: screen::plain(&now.name),
            kind: now.kind.clone(),
            scope: now.scope.clone(),
            max_active: now.max_active,
            running: now.running,
            waiting: now.waiting,
            inactive: now.inactive,
            per_second: total.per_second(&earlier, seconds),
            total,
            wait: Times::between(before.and_then(|queue| queue.wait.as_ref()), now.wait.as_ref()),
            run: Times::between(before.and_then(|queue| queue.run.as_ref()), now.run.as_ref()),
        }
    }

    /// Items that wait, for any reason.
    pub(super) fn depth(&self) -> u64 {
        self.waiting.saturating_add(self.inactive)
    }
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Pod {
    /// Its number.
    pub(super) pool: u64,
    /// The CPUs of its pod.
    pub(super) cpus: String,
    /// Its workers' nice value.
    pub(super) nice: i64,
    /// The number of worker threads.
    pub(super) workers: u64,
    /// The number of workers that sleep.
    pub(super) idle: u64,
    /// Items that were taken off the inbox and have not started.
    pub(super) ready: u64,
    /// Executions that ended there, per second.
    pub(super) completed_per_second: f64,
    /// How many CPUs its workers used.
    pub(super) cpu: f64,
    /// The share of the pod's CPUs that its workers used, 0 to 1.
    pub(super) busy: f64,
}

impl Pod {
    fn between(before: Option<&PodStatistics>, now: &PodStatistics, seconds: f64) -> Self {
        let rate = |of: fn(&PodStatistics) -> u64| {
            per_second(of(now), before.map(of).unwrap_or_default(), seconds)
        };
        let cpu = rate(|pod| pod.cpu_ns) / 1e9;
        let cpus = CpuSet::parse_list(&now.cpus).map_or(0, |cpus| cpus.len());
        Pod {
            pool: now.pool,
            cpus: now.cpus.clone(),
            nice: now.nice,
            workers: now.workers,
            idle: now.idle,
            ready: now.ready,
            completed_per_second: rate(|pod| pod.completed),
            cpu,
            busy: (cpu / cpus.max(1) as f64).min(1.0),
        }
    }

    /// Whether anything happened in the pool.
    pub(super) fn active(&self) -> bool {
        self.completed_per_second > 0.0 || self.cpu > 0.0
    }
}

/// The history of a queue: its last intervals, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// Items that ended, per second.
    pub(super) completed: VecDeque<f64>,
    /// Items that waited.
    pub(super) depth: VecDeque<f64>,
    /// The 99th percentile of the waits, in nanoseconds; 0 if nothing was timed.
    pub(super) wait: VecDeque<f64>,
}

impl History {
    fn add(&mut self, row: &Row) {
        let wait = row.wait.p99_ns.unwrap_or_default() as f64;
        let values = [row.per_second.completed, row.depth() as f64, wait];
        for (line, value) in
            [&mut self.completed, &mut self.depth, &mut self.wait].into_iter().zip(values)
        {
            if line.len() == REMEMBERED {
                line.pop_front();
            }
            line.push_back(value);
        }
    }
}

/// The process as a whole, within the last interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Whole {
    /// When the later sample was taken.
    pub(super) at_ns: u64,
    /// The time between the two samples.
    pub(super) interval_ns: u64,
    /// How many CPUs it used.
    pub(super) cpu: f64,
    /// How many CPUs the thread that answers used.
    pub(super) control_cpu: f64,
    /// Worker threads.
    pub(super) workers: u64,
    /// The number of workers that sleep.
    pub(super) idle: u64,
    /// Workers that may run at once.
    pub(super) parallelism: u64,
    /// Whether items are timed.
    pub(super) timing: bool,
    /// Items that were timed, per second.
    pub(super) samples_per_second: f64,
}

/// A process that is watched.
#[derive(Debug, Default)]
pub(super) struct Model {
    last: Option<Statistics>,
    /// Whether there were two samples.
    pub(super) ready: bool,
    /// The process.
    pub(super) whole: Whole,
    /// The queues, oldest first.
    pub(super) rows: Vec<Row>,
    /// The pools, by number.
    pub(super) pods: Vec<Pod>,
    /// The histories, by a queue's number.
    pub(super) histories: BTreeMap<u64, History>,
    /// The last dump, if one was requested.
    pub(super) dump: Option<Dump>,
}

impl Model {
    /// Takes in another sample.
    pub(super) fn add_sample(&mut self, now: Statistics) {
        let Some(before) = self.last.replace(now) else { return };
        let Some(now) = &self.last else { return };
        let interval_ns = now.at_ns.saturating_sub(before.at_ns);
        let seconds = interval_ns as f64 / 1e9;
        let rate = |of: fn(&Statistics) -> u64| per_second(of(now), of(&before), seconds);
        self.whole = Whole {
            at_ns: now.at_ns,
            interval_ns,
            cpu: rate(|all| all.cpu_ns) / 1e9,
            control_cpu: rate(|all| all.control_cpu_ns) / 1e9,
            workers: now.workers,
            idle: now.idle,
            parallelism: now.parallelism,
            timing: now.timing,
            samples_per_second: rate(|all| all.samples),
        };
        let queues: BTreeMap<u64, &QueueStatistics> =
            before.queues.iter().map(|queue| (queue.id, queue)).collect();
        let row =
            |queue: &QueueStatistics| Row::between(queues.get(&queue.id).copied(), queue, seconds);
        self.rows = now.queues.iter().map(row).collect();
        let pods: BTreeMap<u64, &PodStatistics> =
            before.pods.iter().map(|pod| (pod.pool, pod)).collect();
        let pod = |pod: &PodStatistics| Pod::between(pods.get(&pod.pool).copied(), pod, seconds);
        self.pods = now.pods.iter().map(pod).collect();
        self.pods.sort_by_key(|pod| pod.pool);

        let current: BTreeSet<u64> =
            now.queues.iter().take(MOST_HISTORIES).map(|queue| queue.id).collect();
        self.histories.retain(|id, _| current.contains(id));
        for row in self.rows.iter().take(MOST_HISTORIES) {
            self.histories.entry(row.id).or_default().add(row);
        }
        self.ready = true;
    }

    /// The queue with that number.
    pub(super) fn row(&self, id: u64) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::invented;
    use nearq_control::protocol::Bucket;
    use nearq_platform::{Linux, Threads as _};

    fn queue(id: u64, started: u64) -> QueueStatistics {
        QueueStatistics { id, started, completed: started, ..QueueStatistics::default() }
    }

    fn statistics_at(seconds: u64, queues: &[QueueStatistics]) -> Statistics {
        Statistics {
            at_ns: seconds * 1_000_000_000,
            queues: queues.to_vec(),
            ..Statistics::default()
        }
    }

    #[test]
    fn rates_need_two_snapshots() {
        let mut model = Model::default();
        model.add_sample(statistics_at(10, &[queue(1, 100)]));
        assert!(!model.ready && model.rows.is_empty());
        model.add_sample(statistics_at(12, &[queue(1, 500)]));
        assert!(model.ready);
        assert_eq!((model.rows[0].per_second.completed, model.rows[0].total.started), (200.0, 500));
        assert_eq!(model.whole.interval_ns, 2_000_000_000);
    }

    #[test]
    fn queues_can_appear_and_disappear() {
        let mut model = Model::default();
        model.add_sample(statistics_at(1, &[queue(1, 100), queue(2, 0)]));
        model.add_sample(statistics_at(2, &[queue(2, 7), queue(3, 9)]));
        let rates: Vec<_> = model.rows.iter().map(|row| (row.id, row.per_second.started)).collect();
        assert_eq!(rates, [(2, 7.0), (3, 9.0)], "a new queue has done all of its work since");
        assert_eq!(model.histories.keys().copied().collect::<Vec<_>>(), [2, 3]);
        model.add_sample(statistics_at(3, &[queue(3, 9)]));
        assert_eq!(model.histories[&3].completed, [9.0, 0.0]);
        assert_eq!(model.histories.len(), 1);
    }

    #[test]
    fn no_rates_without_elapsed_time_or_with_decreasing_counts() {
        let mut model = Model::default();
        model.add_sample(statistics_at(1, &[queue(1, 100)]));
        model.add_sample(statistics_at(1, &[queue(1, 200)]));
        assert_eq!(model.rows[0].per_second.completed, 0.0);
        model.add_sample(statistics_at(2, &[queue(1, 50)]));
        assert_eq!(model.rows[0].per_second.completed, 0.0);
    }

    #[test]
    fn times_cover_only_the_last_interval() {
        let times = |count| {
            let buckets =
                vec![Bucket { below_ns: 1_000, count: 1000 }, Bucket { below_ns: 5_000, count }];
            Histogram { samples: 1000 + count, sum_ns: 0, buckets }
        };
        let with = |count| QueueStatistics { wait: Some(times(count)), ..queue(1, 0) };
        let mut model = Model::default();
        model.add_sample(statistics_at(1, &[with(0)]));
        model.add_sample(statistics_at(2, &[with(10)]));
        let wait = model.rows[0].wait;
        assert_eq!((wait.p50_ns, wait.max_ns, wait.samples), (Some(5_000), Some(5_000), 10));
        model.add_sample(statistics_at(3, &[with(10)]));
        assert_eq!(model.rows[0].wait, Times::default(), "nothing was timed since");
        assert_eq!(model.rows[0].run, Times::default(), "nothing was ever timed");
    }

    #[test]
    fn tens_of_thousands_of_queues_with_the_largest_values_can_be_shown() {
        let with =
            |id| QueueStatistics { waiting: u64::MAX, inactive: u64::MAX, ..queue(id, u64::MAX) };
        let queues: Vec<QueueStatistics> = (0..20_000).map(with).collect();
        let mut model = Model::default();
        let used = || Linux::cpu_time(Linux::current_thread()).unwrap();
        let begin = used();
        for seconds in 1..4 {
            model.add_sample(statistics_at(seconds, &queues));
        }
        assert_eq!((model.rows.len(), model.rows[0].depth()), (20_000, u64::MAX));
        assert_eq!(model.histories.len(), MOST_HISTORIES);
        // Time that grew with the square of their number would be ten times as much.
        let used = used().saturating_sub(begin);
        assert!(used.as_secs() < 2, "{used:?} of CPU time");
    }

    #[test]
    fn counters_that_a_queue_does_not_have_are_absent() {
        let mut model = Model::default();
        for call in 1..3 {
            model.add_sample(invented::statistics(call, true));
        }
        for row in &model.rows {
            assert_eq!(row.per_second.cpu_intensive.is_some(), row.kind == "percpu", "{row:?}");
            assert_eq!(row.per_second.helped.is_none(), row.kind == "percpu", "{row:?}");
            assert_eq!(row.total.mayday.is_some(), row.total.rescued.is_some());
        }
        assert!(model.rows.iter().any(|row| row.total.mayday.is_some()));
    }

    #[test]
    fn pools_are_as_busy_as_their_cpus() {
        let pod = |cpu_ns, completed| PodStatistics {
            pool: 3,
            cpus: "0-2,8".into(),
            cpu_ns,
            completed,
            ..PodStatistics::default()
        };
        let with = |seconds, pod: PodStatistics| Statistics {
            pods: vec![pod],
            ..statistics_at(seconds, &[])
        };
        let mut model = Model::default();
        model.add_sample(with(1, pod(0, 0)));
        model.add_sample(with(2, pod(2_000_000_000, 0)));
        assert_eq!((model.pods[0].cpu, model.pods[0].busy), (2.0, 0.5));
        model.add_sample(with(3, pod(9_000_000_000, 0)));
        assert_eq!(model.pods[0].busy, 1.0, "late CPU times do not exceed 100 %");
        model.add_sample(with(4, pod(9_000_000_000, 5)));
        assert_eq!((model.pods[0].busy, model.pods[0].active()), (0.0, true));
    }

    #[test]
    fn histories_drop_the_oldest_values() {
        let mut model = Model::default();
        for second in 0..=REMEMBERED as u64 + 5 {
            model.add_sample(statistics_at(second, &[queue(1, second * second)]));
        }
        let history = &model.histories[&1].completed;
        assert_eq!(history.len(), REMEMBERED);
        assert_eq!(history.back().copied(), Some(2.0 * (REMEMBERED as f64 + 5.0) - 1.0));
    }
}
