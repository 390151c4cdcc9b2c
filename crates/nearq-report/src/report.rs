//! A report, and the collector of its numbers.

use crate::metric::Metric;
use crate::summary::quantile;
use crate::{Environment, Error, Summary};
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// The figure of the published document, if it has one.
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
    /// The parameters of the experiment, and what it found out about the machine beforehand.
    pub parameters: Value,
    /// The numbers.
    pub rows: Vec<Row>,
    /// The first and the third quartile of each number, in the order of the rows; none in a report that was read from JSON.
    #[serde(skip)]
    pub quartiles: Vec<[f64; 2]>,
    /// The same for people: tables and remarks, ready to print.
    #[serde(skip)]
    pub text: String,
    /// The picture.
    #[serde(skip)]
    pub svg: String,
}

/// A row as it is read. Names live as long as the program, which reads few reports.
#[derive(Deserialize)]
struct WrittenRow {
    scenario: String,
    row: String,
    metric: String,
    unit: String,
    #[serde(flatten)]
    summary: Summary,
    published: Option<f64>,
}

/// A report as it is read.
#[derive(Deserialize)]
struct Written {
    experiment: String,
    machine: String,
    environment: Environment,
    parameters: Value,
    rows: Vec<WrittenRow>,
}

impl From<Written> for Report {
    fn from(written: Written) -> Self {
        let Written { experiment, machine, environment, parameters, rows } = written;
        let row = |WrittenRow { scenario, row, metric, unit, summary, published }| {
            let (metric, unit) = (String::leak(metric), String::leak(unit));
            Row { scenario, row, metric, unit, summary, published }
        };
        let rows = rows.into_iter().map(row).collect();
        let (experiment, text, svg) = (experiment.leak(), String::new(), String::new());
        let quartiles = Vec::new();
        Report { experiment, machine, environment, parameters, rows, quartiles, text, svg }
    }
}

impl Report {
    /// Parses the output of [`to_json`](Self::to_json). The parts that are only for people are missing.
    ///
    /// # Errors
    /// The text is something else.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let written: Result<Written, _> = serde_json::from_str(text);
        written.map(Self::from).map_err(|error| {
            Error::input(format!(
                "not the JSON of an experiment: {error}; give a file written by --json"
            ))
        })
    }

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

    /// Sets the figure that the document published for a number.
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

    /// The first and the third quartile of each row of [`rows`](Self::rows).
    pub fn quartiles(&self) -> Vec<[f64; 2]> {
        let numbers = self.numbers.iter().filter(|number| !number.runs.is_empty());
        numbers.map(|number| [0.25, 0.75].map(|share| quantile(&number.runs, share))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Watch, metric};
    use std::collections::BTreeSet;

    fn keys(value: &Value) -> BTreeSet<&str> {
        value.as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn the_json_has_a_fixed_shape() {
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
            quartiles: collector.quartiles(),
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
        assert_eq!(report.quartiles, [[12.5, 17.5], [99.0, 99.0]]);
        assert_eq!(
            (&rows[0]["median"], &rows[0]["published"]),
            (&Value::from(15.0), &Value::from(1166.4))
        );
        assert_eq!((&rows[1]["published"], &rows[1]["runs"]), (&Value::Null, &Value::from(1)));
        assert_eq!(report.find("HIGH", "cache", metric::THROUGHPUT).unwrap().summary.runs, 2);
        assert!(report.find("LOW", "cache", metric::THROUGHPUT).is_none());
        let again = Report::from_json(&report.to_json()).unwrap();
        assert_eq!((again.rows, again.environment), (report.rows, report.environment));
        assert!(Report::from_json("{}").unwrap_err().to_string().contains("--json"));
    }
}
