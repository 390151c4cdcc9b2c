//! What an experiment hands over: one shape of JSON for all of them, tables in plain text, and a picture.

pub mod curves;
mod environment;
pub mod heat;
mod output;
pub mod plot;
mod summary;
mod table;

pub use environment::{Environment, Watch};
pub use output::{Outputs, Target};
pub use summary::Summary;
pub use table::{Table, plus_minus, rounded};

use serde::Serialize;
use serde_json::Value;

/// The names of the metrics that these experiments report, with their units. A metric is a column of a table;
/// the names are fixed, as programs read them.
pub mod metric {
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
    /// Those of them during which the host took time from the CPU.
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
    /// Data that went the whole way and verified, per second of wall time.
    pub const THROUGHPUT: Metric = metric("throughput_mib_s", "MiB/s");
    /// By how much a conclusion holds; negative where it fails.
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
    /// CPU time in user mode of everything that was to be done, or all of it where that is not told apart.
    pub const USER: Metric = metric("user_s", "s");
    /// The same, mean of the tasks.
    pub const AVERAGE_USER: Metric = metric("average_user_s", "s");
    /// CPU time in the kernel of everything that was to be done.
    pub const SYSTEM: Metric = metric("system_s", "s");
    /// CPU time on the node where the memory is, in percent of all.
    pub const HOME_PERCENT: Metric = metric("home_percent", "%");
    /// How often tasks went on on another node.
    pub const CROSSINGS: Metric = metric("node_crossings", "1");
    /// The same for each time that a task left its home: two are there and back.
    pub const CROSSINGS_EACH: Metric = metric("node_crossings_each", "1");
    /// From leaving home to being back, mean of all times.
    pub const RETURN: Metric = metric("return_s", "s");
    /// Tasks that were not back at the end.
    pub const STRAYS: Metric = metric("strays", "tasks");
    /// By how much less wall time it took than without homes, in the same run.
    pub const ELAPSED_GAIN: Metric = metric("elapsed_gain_percent", "%");
    /// The share of what the ideal row gains that this one gains.
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
    /// How often a lock was taken, by all threads together.
    pub const ACQUISITIONS_PER_SECOND: Metric = metric("acquisitions_per_second", "1/s");
    /// Share of the acquisitions that the busier half of the threads made.
    pub const FAIRNESS: Metric = metric("fairness", "share");
    /// From before a lock was asked for until it was had, median.
    pub const WAIT_P50: Metric = metric("wait_us_p50", "us");
    /// The same, 99th percentile.
    pub const WAIT_P99: Metric = metric("wait_us_p99", "us");
    /// The same, 99.99th percentile.
    pub const WAIT_P9999: Metric = metric("wait_us_p9999", "us");
    /// The same, longest.
    pub const WAIT_MAX: Metric = metric("wait_us_max", "us");
    /// Acquisitions beyond those of our plain mutex in the same run.
    pub const GAIN: Metric = metric("gain_percent", "%");
    /// Acquisitions of one lock as a multiple of those of another one in the same run.
    pub const ACQUISITIONS_RATIO: Metric = metric("acquisitions_ratio", "ratio");
    /// The 99.99th percentile of one lock's waits as a multiple of the other one's in the same run.
    pub const WAIT_RATIO_P9999: Metric = metric("wait_ratio_p9999", "ratio");
    /// The same of the longest waits.
    pub const WAIT_RATIO_MAX: Metric = metric("wait_ratio_max", "ratio");
    /// How often the monitor's thread was put on a CPU in a second while work waits.
    pub const MONITOR_WAKES: Metric = metric("monitor_wakes_per_second", "1/s");
}

use metric::Metric;

/// One number of the result: a metric of a row in a scenario, over several runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The load, for example `HIGH` or `idle`.
    pub scenario: String,
    /// The contestant or configuration, for example `rayon` or `cache+strict`.
    pub row: String,
    /// The metric's name.
    pub metric: &'static str,
    /// The metric's unit.
    pub unit: &'static str,
    /// The runs.
    #[serde(flatten)]
    pub summary: Summary,
    /// The figure of the published document, where it has one.
    pub published: Option<f64>,
}

/// The result of an experiment; serialised, it is the JSON that all experiments share.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The experiment's name.
    pub experiment: &'static str,
    /// The machine that it ran on; `here` for the real one.
    pub machine: String,
    /// The conditions.
    pub environment: Environment,
    /// What the experiment was told to do, and what it found out about the machine beforehand.
    pub parameters: Value,
    /// The numbers.
    pub rows: Vec<Row>,
    /// The same for people: tables and remarks, ready to print.
    #[serde(skip)]
    pub text: String,
    /// The picture.
    #[serde(skip)]
    pub svg: String,
}

impl Report {
    /// The summary of one number.
    pub fn find(&self, scenario: &str, row: &str, metric: Metric) -> Option<&Row> {
        find(&self.rows, scenario, row, metric)
    }

    /// The JSON, indented.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report has text keys and finite numbers only")
    }
}

/// The summary of one number among `rows`.
pub fn find<'r>(rows: &'r [Row], scenario: &str, row: &str, metric: Metric) -> Option<&'r Row> {
    rows.iter()
        .find(|found| found.scenario == scenario && found.row == row && found.metric == metric.name)
}

/// Collects the runs of every number, in the order in which the numbers first appear.
#[derive(Debug, Default)]
pub struct Collector {
    numbers: Vec<Number>,
}

#[derive(Debug)]
struct Number {
    scenario: String,
    row: String,
    metric: Metric,
    runs: Vec<f64>,
    published: Option<f64>,
}

impl Collector {
    /// Adds one run of a number.
    pub fn add(&mut self, scenario: &str, row: &str, metric: Metric, value: f64) {
        self.number(scenario, row, metric).runs.push(value);
    }

    /// Says what the document published for a number.
    pub fn publish(&mut self, scenario: &str, row: &str, metric: Metric, value: f64) {
        self.number(scenario, row, metric).published = Some(value);
    }

    fn number(&mut self, scenario: &str, row: &str, metric: Metric) -> &mut Number {
        let at = self
            .numbers
            .iter()
            .position(|n| n.scenario == scenario && n.row == row && n.metric == metric);
        let at = at.unwrap_or_else(|| {
            let (scenario, row) = (scenario.to_owned(), row.to_owned());
            self.numbers.push(Number { scenario, row, metric, runs: Vec::new(), published: None });
            self.numbers.len() - 1
        });
        &mut self.numbers[at]
    }

    /// The rows of a report; numbers without a run are left out.
    pub fn rows(&self) -> Vec<Row> {
        let row = |number: &Number| {
            Some(Row {
                scenario: number.scenario.clone(),
                row: number.row.clone(),
                metric: number.metric.name,
                unit: number.metric.unit,
                summary: Summary::of(&number.runs)?,
                published: number.published,
            })
        };
        self.numbers.iter().filter_map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn keys(value: &Value) -> BTreeSet<&str> {
        value.as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn the_json_has_the_one_shape() {
        let mut collector = Collector::default();
        collector.add("HIGH", "cache", metric::THROUGHPUT, 10.0);
        collector.add("HIGH", "cache", metric::THROUGHPUT, 20.0);
        collector.publish("HIGH", "cache", metric::THROUGHPUT, 1166.4);
        collector.add("HIGH", "cache_shard", metric::CPU_PERCENT, 99.0);
        collector.publish("HIGH", "never run", metric::CPU_PERCENT, 1.0);
        let report = Report {
            experiment: "scopes",
            machine: "here".into(),
            environment: Watch::start(2).finish(),
            parameters: serde_json::json!({"quick": true}),
            rows: collector.rows(),
            text: "for people".into(),
            svg: "<svg/>".into(),
        };
        let json: Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(
            keys(&json),
            BTreeSet::from(["experiment", "machine", "environment", "parameters", "rows"])
        );
        assert_eq!(
            keys(&json["environment"]),
            BTreeSet::from([
                "kernel",
                "cpu_model",
                "cpus",
                "governor",
                "boost",
                "steal_percent",
                "others_percent",
                "load"
            ])
        );
        let rows = json["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2);
        let expected = [
            "scenario",
            "row",
            "metric",
            "unit",
            "median",
            "mean",
            "deviation",
            "min",
            "max",
            "runs",
            "published",
        ];
        assert_eq!(keys(&rows[0]), BTreeSet::from(expected));
        assert_eq!(keys(&rows[1]), BTreeSet::from(expected));
        assert_eq!(rows[0]["metric"], "throughput_mib_s");
        assert_eq!(
            (&rows[0]["median"], &rows[0]["published"]),
            (&Value::from(15.0), &Value::from(1166.4))
        );
        assert_eq!((&rows[1]["published"], &rows[1]["runs"]), (&Value::Null, &Value::from(1)));
        assert_eq!(report.find("HIGH", "cache", metric::THROUGHPUT).unwrap().summary.runs, 2);
        assert!(report.find("LOW", "cache", metric::THROUGHPUT).is_none());
    }
}
