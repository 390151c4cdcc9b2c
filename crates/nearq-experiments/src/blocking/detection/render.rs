//! The table and the picture of the detection.

use super::{CASES, Goal, Plan, SCENARIO};
use crate::plots::bars::{Bar, Bars, draw};
use nearq_report::metric::{self, Metric};
use nearq_report::{Environment, Report, Row, Table, find, rounded};

/// Everything for people.
pub(super) fn text(
    rows: &[Row],
    goals: Option<(&[Goal], Option<&str>)>,
    plan: &Plan,
    cpus: usize,
    environment: &Environment,
) -> String {
    let mut text = format!(
        "nearq bench blocking --detection\n{}\n{} rounds, medians, and the least and most of the rounds; {} blocks a round.\n\
         {cpus} items compute on {cpus} CPUs (on one CPU in the first row) and are all blocked at a known moment, while one more waits: time until that\n\
         one starts. The other workers are blocked all the time, or, where they are restless, sleep 20 ms and compute some 50 us in turn.\n\
         \"early\" are items that started before that, because more workers than CPUs were awake still; they are not in the times.\n\
         The monitor's CPU use is that of its thread while every CPU computes for {:.1} s and work waits.\n\n",
        environment.describe(),
        plan.rounds,
        plan.blocks,
        plan.window.as_secs_f64(),
    );
    let headings = ["busy", "ms p50", "p99", "max", "early (%)", "monitor CPU (%)", "turns/s"];
    let mut table = Table::new("From the block to the start of the next item", &headings);
    for case in &CASES {
        let cell = |metric: Metric| match find(rows, SCENARIO, case.row, metric) {
            Some(row) if row.summary.runs > 1 => format!(
                "{} ({}-{})",
                rounded(row.summary.median),
                rounded(row.summary.min),
                rounded(row.summary.max)
            ),
            Some(row) => rounded(row.summary.median),
            None => "-".into(),
        };
        table.row(vec![
            case.row.into(),
            cell(metric::DETECTION_P50),
            cell(metric::DETECTION_P99),
            cell(metric::DETECTION_MAX),
            cell(metric::EARLY_PERCENT),
            cell(metric::MONITOR_PERCENT),
            cell(metric::MONITOR_WAKES),
        ]);
    }
    text.push_str(&table.to_string());
    let Some((goals, too_small)) = goals else { return text };
    if let Some(why) = too_small {
        return text + &format!("\n{why}\n");
    }
    let mut table = Table::new("Targets: medians of the rounds", &["", "", "", "goal", ""]);
    for goal in goals {
        table.row(vec![
            goal.row.into(),
            goal.metric.into(),
            rounded(goal.value),
            format!("{:.0}", goal.goal),
            if goal.met { "met" } else { "missed" }.into(),
        ]);
    }
    text.push_str(&format!("\n{table}"));
    text
}

/// Latencies and cost at a glance.
pub(crate) fn picture(report: &Report, show_goals: bool) -> String {
    let (rows, environment) = (report.rows.as_slice(), &report.environment);
    let bar =
        |row: &str, metric: Metric| Some(Bar::median(&find(rows, SCENARIO, row, metric)?.summary));
    let groups = |metrics: &[Metric]| {
        let group = |case: &super::Case| {
            let bars = metrics.iter().map(|&metric| bar(case.row, metric)).collect();
            (case.row.to_owned(), bars)
        };
        CASES.iter().map(group).collect::<Vec<_>>()
    };
    let latency = Bars {
        title: "From the block to the start of the next item (shorter is better)".into(),
        axis: "milliseconds: median, least and most of the rounds".into(),
        series: vec!["p50".into(), "p99".into()],
        groups: groups(&[metric::DETECTION_P50, metric::DETECTION_P99]),
        lying: true,
        logarithmic: false,
        reference: show_goals.then(|| (super::GOALS_MS[1], "the goal for p99".into())),
        warning: environment.warning(),
    };
    let cost = Bars {
        title: "What the monitor's thread uses while work waits (shorter is better)".into(),
        axis: "percent of one CPU: median, least and most of the rounds".into(),
        series: vec![String::new()],
        groups: groups(&[metric::MONITOR_PERCENT]),
        lying: true,
        logarithmic: false,
        reference: None,
        warning: environment.warning(),
    };
    let model = environment.cpu_model.as_deref().unwrap_or("unknown CPU");
    draw(&format!("nearq bench blocking --detection: {model}"), &[latency, cost])
}
