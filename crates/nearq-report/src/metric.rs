//! The names of the metrics that measurements report, with their units. A metric is a column of a table; the names are
//! fixed, as programs read them.

/// A metric's name and unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Metric {
    /// The name, as it stands in the JSON.
    pub name: &'static str,
    /// The unit, as it stands in the JSON.
    pub unit: &'static str,
}

const fn metric(name: &'static str, unit: &'static str) -> Metric {
    Metric { name, unit }
}

/// Wall time per item.
pub const NS_PER_ITEM: Metric = metric("ns_per_item", "ns");
/// Items per second of wall time.
pub const ITEMS_PER_SECOND: Metric = metric("items_per_second", "1/s");
/// CPU time of the workers for an item.
pub const CPU_PER_ITEM: Metric = metric("cpu_us_per_item", "us");
/// Duration of the call that queues, median.
pub const QUEUE_LATENCY_P50: Metric = metric("queue_latency_us_p50", "us");
/// Duration of the call that queues, 90th percentile.
pub const QUEUE_LATENCY_P90: Metric = metric("queue_latency_us_p90", "us");
/// Duration of the call that queues, 95th percentile.
pub const QUEUE_LATENCY_P95: Metric = metric("queue_latency_us_p95", "us");
/// Duration of the call that queues, 99th percentile.
pub const QUEUE_LATENCY_P99: Metric = metric("queue_latency_us_p99", "us");
/// Duration of the call that queues, longest.
pub const QUEUE_LATENCY_MAX: Metric = metric("queue_latency_us_max", "us");
/// From before the call that queues to the item's first instruction, median.
pub const START_LATENCY_P50: Metric = metric("start_latency_us_p50", "us");
/// From before the call that queues to the item's first instruction, 99th percentile.
pub const START_LATENCY_P99: Metric = metric("start_latency_us_p99", "us");
/// From before the call that queues to the item's first instruction, longest.
pub const START_LATENCY_MAX: Metric = metric("start_latency_us_max", "us");
/// Latencies that were measured.
pub const SAMPLES: Metric = metric("samples", "1");
/// The measured latencies during which the host took time from the CPU.
pub const SAMPLES_STOLEN: Metric = metric("samples_stolen", "1");
/// From queueing to start: longest.
pub const LATENCY_MAX: Metric = metric("latency_ms_max", "ms");
/// From queueing to start: longest of those during which the host took nothing.
pub const LATENCY_MAX_UNSTOLEN: Metric = metric("latency_ms_max_unstolen", "ms");
/// From queueing to start: mean of the longest twenty.
pub const LATENCY_TOP20: Metric = metric("latency_ms_top20", "ms");
/// From queueing to start: standard deviation of the longest twenty.
pub const LATENCY_TOP20_DEVIATION: Metric = metric("latency_ms_top20_deviation", "ms");
/// From queueing to start: median.
pub const LATENCY_P50: Metric = metric("latency_ms_p50", "ms");
/// From queueing to start: 99th percentile.
pub const LATENCY_P99: Metric = metric("latency_ms_p99", "ms");
/// From queueing to start: 99.9th percentile.
pub const LATENCY_P999: Metric = metric("latency_ms_p999", "ms");
/// Data that passed through all steps and verified, per second of wall time.
pub const THROUGHPUT: Metric = metric("throughput_mib_s", "MiB/s");
/// By how much a conclusion holds; negative if it fails.
pub const MARGIN: Metric = metric("margin", "ratio");
/// CPU time of the process, in percent of the CPUs that it may use.
pub const CPU_PERCENT: Metric = metric("cpu_percent", "%");
/// CPU time of an issuer, in percent of the time.
pub const ISSUER_CPU_PERCENT: Metric = metric("issuer_cpu_percent", "%");
/// Items that workers of another pod ran, in percent of all.
pub const HELPED_PERCENT: Metric = metric("helped_percent", "%");
/// Times that a worker was brought back into its pod, in percent of the items.
pub const REPATRIATED_PERCENT: Metric = metric("repatriated_percent", "%");
/// Wall time of everything that was to be done.
pub const ELAPSED: Metric = metric("elapsed_s", "s");
/// That time as a multiple of the ideal one.
pub const RATIO: Metric = metric("ratio_to_ideal", "ratio");
/// CPU time beyond that of the sequential program, for each join.
pub const PER_JOIN: Metric = metric("per_join_ns", "ns");
/// Closures that another thread than the forking one ran.
pub const STEALS: Metric = metric("steals", "1");
/// Those of them that ran under the same last-level cache, in percent.
pub const STEALS_WITHIN_PERCENT: Metric = metric("steals_within_cache_percent", "%");
/// CPU time in user mode of everything that was to be done, or all CPU time if user mode is not distinguished.
pub const USER: Metric = metric("user_s", "s");
/// The same, mean of the tasks.
pub const AVERAGE_USER: Metric = metric("average_user_s", "s");
/// CPU time in the kernel of everything that was to be done.
pub const SYSTEM: Metric = metric("system_s", "s");
/// CPU time on the node where the memory is, in percent of all.
pub const HOME_PERCENT: Metric = metric("home_percent", "%");
/// How often tasks continued on another node.
pub const CROSSINGS: Metric = metric("node_crossings", "1");
/// The number of such moves for each time that a task left its home: two mean there and back.
pub const CROSSINGS_EACH: Metric = metric("node_crossings_each", "1");
/// The time from leaving home to being back, mean of all times.
pub const RETURN: Metric = metric("return_s", "s");
/// Tasks that were not back at home at the end.
pub const STRAYS: Metric = metric("strays", "tasks");
/// How much less wall time a row took than without homes, in the same run.
pub const ELAPSED_GAIN: Metric = metric("elapsed_gain_percent", "%");
/// The gain of this row as a share of the gain of the ideal row.
pub const GAP_CLOSED: Metric = metric("gap_closed_percent", "%");
/// CPU time as a multiple of that without homes, in the same run.
pub const CPU_RATIO: Metric = metric("cpu_seconds_ratio", "ratio");
/// CPU time of the process meanwhile.
pub const CPU_SECONDS: Metric = metric("cpu_seconds", "s");
/// Threads that a contestant had at most.
pub const THREADS: Metric = metric("threads_max", "threads");
/// Context switches of the process.
pub const SWITCHES: Metric = metric("context_switches", "switches");
/// From the moment at which the last running worker is blocked to the start of the next item, median.
pub const DETECTION_P50: Metric = metric("detection_ms_p50", "ms");
/// The same, 99th percentile.
pub const DETECTION_P99: Metric = metric("detection_ms_p99", "ms");
/// The same, longest.
pub const DETECTION_MAX: Metric = metric("detection_ms_max", "ms");
/// Items that started before the last running worker was blocked, in percent: more were awake than CPUs.
pub const EARLY_PERCENT: Metric = metric("early_percent", "%");
/// CPU time of the monitor's thread while work waits, in percent of one CPU.
pub const MONITOR_PERCENT: Metric = metric("monitor_cpu_percent", "%");
/// Half of a round trip of a line that two CPUs take by turns.
pub const BOUNCE: Metric = metric("bounce_ns", "ns");
/// From one addition to a contended word to the next, whichever CPU did it.
pub const ADDITION: Metric = metric("addition_ns", "ns");
/// How often a lock was taken, by all threads together.
pub const ACQUISITIONS_PER_SECOND: Metric = metric("acquisitions_per_second", "1/s");
/// Share of the acquisitions that the busier half of the threads made.
pub const FAIRNESS: Metric = metric("fairness", "share");
/// From before a lock was requested until it was acquired, median.
pub const WAIT_P50: Metric = metric("wait_us_p50", "us");
/// The same, 99th percentile.
pub const WAIT_P99: Metric = metric("wait_us_p99", "us");
/// The same, 99.99th percentile.
pub const WAIT_P9999: Metric = metric("wait_us_p9999", "us");
/// The same, longest.
pub const WAIT_MAX: Metric = metric("wait_us_max", "us");
/// Acquisitions beyond those of our plain mutex in the same run.
pub const GAIN: Metric = metric("gain_percent", "%");
/// The standard error of that gain, over all runs.
pub const GAIN_ERROR: Metric = metric("gain_standard_error", "points");
/// Acquisitions of one lock as a multiple of those of another lock in the same run.
pub const ACQUISITIONS_RATIO: Metric = metric("acquisitions_ratio", "ratio");
/// The 99th percentile of the waits in relation to that of another row.
pub const WAIT_RATIO_P99: Metric = metric("wait_ratio_p99", "ratio");
/// The 99.99th percentile of one lock's waits as a multiple of that of the other lock in the same run.
pub const WAIT_RATIO_P9999: Metric = metric("wait_ratio_p9999", "ratio");
/// The same for the longest waits.
pub const WAIT_RATIO_MAX: Metric = metric("wait_ratio_max", "ratio");
/// How often a lock was taken by readers, by all threads together.
pub const READS_PER_SECOND: Metric = metric("reads_per_second", "1/s");
/// The same by writers.
pub const WRITES_PER_SECOND: Metric = metric("writes_per_second", "1/s");
/// From before a reader requested a lock until it had it, 99.99th percentile.
pub const READ_WAIT_P9999: Metric = metric("read_wait_us_p9999", "us");
/// The same, longest.
pub const READ_WAIT_MAX: Metric = metric("read_wait_us_max", "us");
/// From before a writer requested a lock until it had it, 99.99th percentile.
pub const WRITE_WAIT_P9999: Metric = metric("write_wait_us_p9999", "us");
/// The same, longest.
pub const WRITE_WAIT_MAX: Metric = metric("write_wait_us_max", "us");
/// The longest wait of a reader for one lock as a multiple of that for another lock in the same run.
pub const READ_WAIT_RATIO_MAX: Metric = metric("read_wait_ratio_max", "ratio");
/// The same of a writer.
pub const WRITE_WAIT_RATIO_MAX: Metric = metric("write_wait_ratio_max", "ratio");
/// How often the monitor's thread was put on a CPU in a second while work waits.
pub const MONITOR_WAKES: Metric = metric("monitor_wakes_per_second", "1/s");
