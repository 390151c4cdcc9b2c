//! The picture of `scopes`, beside the document's figures.

use super::configuration::of_document;
use super::scenario::published;
use crate::harness::table;
use crate::plots::bars::{Bar, Bars, draw};
use nearq_report::metric::{self, Metric};
use nearq_report::{Report, find};

/// Bandwidth and CPU use at a glance, the kernel's policy apart.
pub(crate) fn picture(report: &Report) -> String {
    let (bandwidth, cpu) = (
        ("MiB/s: mean, least, most", metric::THROUGHPUT),
        ("% of the CPUs: mean, least, most", metric::CPU_PERCENT),
    );
    let verified = "Data encrypted, stored, decrypted and verified";
    let mut diagrams = vec![
        bars(report, false, &format!("{verified} (higher is better)"), bandwidth),
        bars(report, false, "CPU time used (higher: fewer CPUs idle while work waits)", cpu),
    ];
    if !names(report, true).is_empty() {
        diagrams.push(bars(report, true, &format!("{verified}: the kernel's policy"), bandwidth));
        diagrams.push(bars(report, true, "CPU time used: the kernel's policy", cpu));
    }
    let judgements = report.parameters["judgements"].as_array();
    if judgements.is_some_and(|all| all.iter().any(|one| !one["published"].is_null())) {
        diagrams.extend(shares(report, true));
        diagrams.extend(shares(report, false));
    }
    let (model, cpus) = (table::model(report), report.environment.cpus);
    draw(&format!("nearq bench scopes: {model}, {cpus} CPUs"), &diagrams)
}

/// Whether a row has the policy of the kernel's pools.
fn is_kernel(row: &str) -> bool {
    of_document(row) != row
}

/// The rows of our queues, or of the kernel's.
fn names(report: &Report, kernel: bool) -> Vec<&str> {
    let rows = report.rows.iter().map(|row| row.row.as_str());
    table::distinct(rows.filter(|row| is_kernel(row) == kernel))
}

fn scenarios(report: &Report) -> Vec<&str> {
    table::distinct(report.rows.iter().map(|row| row.scenario.as_str()))
}

/// One metric of a policy's rows.
fn bars(report: &Report, kernel: bool, title: &str, (axis, metric): (&str, Metric)) -> Bars {
    let names = names(report, kernel);
    let group = |scenario: &str| {
        let bar = |name: &&str| table::bar(report, scenario, name, metric, Bar::mean);
        let load = &report.parameters["scenarios"][scenario];
        let what = format!("{scenario} ({} x {})", load["issuers"], load["in_flight"]);
        (what, names.iter().map(bar).collect())
    };
    Bars {
        title: title.into(),
        axis: axis.into(),
        series: names.iter().map(|name| with_those_that_coincide(report, name)).collect(),
        groups: scenarios(report).into_iter().map(group).collect(),
        ..Bars::of(report)
    }
}

/// A row's name for the legend.
fn with_those_that_coincide(report: &Report, name: &str) -> String {
    let others = report.parameters["coincide"].as_object();
    let same = others.into_iter().flatten().filter(|(_, other)| other["same_as"] == name);
    let same: Vec<&str> = same.map(|(same, _)| same.as_str()).collect();
    if same.is_empty() { name.into() } else { format!("{name} (= {})", same.join(", ")) }
}

/// Bandwidth of a policy's rows as a share of its `system`'s, beside the published share; none where nothing was published.
fn shares(report: &Report, kernel: bool) -> Option<Bars> {
    let names = names(report, kernel);
    let base = names.iter().find(|name| of_document(name) == "system")?;
    let mut groups = Vec::new();
    for scenario in scenarios(report) {
        let mean = |row: &str| Some(find(&report.rows, scenario, row, metric::THROUGHPUT)?.summary);
        let of = published(scenario, "system")?;
        let base = mean(base)?;
        for name in &names {
            if let (Some(own), Some(document)) = (mean(name), published(scenario, name)) {
                let share = |value: f64| value / base.mean * 100.0;
                let own = Bar { value: share(own.mean), low: share(own.min), high: share(own.max) };
                let value = document.throughput.0 / of.throughput.0 * 100.0;
                let document = Bar::exactly(value);
                groups.push((
                    format!("{scenario} {}", of_document(name)),
                    vec![Some(own), Some(document)],
                ));
            }
        }
    }
    let whose = if kernel { "the kernel's policy" } else { "our queues, nobody helps" };
    Some(Bars {
        title: format!("Bandwidth as a share of system's: {whose}"),
        axis: "% of system".into(),
        series: vec!["simulated".into(), "published".into()],
        groups,
        reference: Some((100.0, "system".into())),
        ..Bars::lying(report)
    })
}
