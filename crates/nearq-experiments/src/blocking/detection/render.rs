//! The table and the picture of the detection.

use super::{CASES, Facts, GOALS_MS, SCENARIO};
use crate::harness::table::{self, Column, met};
use crate::plots::bars::{Bar, Bars, draw};
use nearq_report::metric::{self, Metric};
use nearq_report::{Report, Summary, Table, rounded};

/// The median, and the least and the most if there are several rounds.
fn range(of: Summary) -> String {
    if of.runs > 1 {
        format!("{} ({}-{})", rounded(of.median), rounded(of.min), rounded(of.max))
    } else {
        rounded(of.median)
    }
}

const COLUMNS: [Column; 6] = [
    ("ms p50", metric::DETECTION_P50, range),
    ("p99", metric::DETECTION_P99, range),
    ("max", metric::DETECTION_MAX, range),
    ("early (%)", metric::EARLY_PERCENT, range),
    ("monitor CPU (%)", metric::MONITOR_PERCENT, range),
    ("turns/s", metric::MONITOR_WAKES, range),
];

/// Everything for people.
pub(super) fn text(facts: &Facts<'_, '_>) -> String {
    let (plan, cpus) = (&facts.plan, facts.found.len());
    let mut text = format!(
        "nearq bench blocking --detection\n{}\n{} rounds, medians, and the least and most of the rounds; {} blocks a round.\n\
         {cpus} items compute on {cpus} CPUs (on one CPU in the first row) and are all blocked at a known moment, while one more waits: time until that\n\
         one starts. The other workers are blocked all the time, or, where they are restless, sleep 20 ms and compute some 50 us in turn.\n\
         \"early\" are items that started before that, because more workers than CPUs were awake still; they are not in the times.\n\
         The monitor's CPU use is that of its thread while every CPU computes for {:.1} s and work waits.\n\n",
        facts.environment.describe(),
        plan.rounds,
        plan.blocks,
        plan.window.as_secs_f64(),
    );
    let title = "From the block to the start of the next item";
    let mut table = Table::new(title, &table::headings(&["busy"], &COLUMNS));
    for case in &CASES {
        table.row(facts.cells(case.row, SCENARIO, case.row, &COLUMNS));
    }
    text.push_str(&table.to_string());
    if !facts.show_goals() {
        return text;
    }
    if let Some(why) = &facts.too_small {
        return text + &format!("\n{why}\n");
    }
    let mut table = Table::new("Targets: medians of the rounds", &["", "", "", "goal", ""]);
    for goal in &facts.verdict {
        table.row(vec![
            goal.row.into(),
            goal.metric.into(),
            rounded(goal.value),
            format!("{:.0}", goal.goal),
            met(goal.met),
        ]);
    }
    text + &format!("\n{table}")
}

/// Latencies and cost at a glance.
pub(crate) fn picture(report: &Report, show_goals: bool) -> String {
    let groups = |metrics: &[Metric]| {
        let group = |case: &super::Case| {
            let bar = |&metric| table::bar(report, SCENARIO, case.row, metric, Bar::median);
            (case.row.to_owned(), metrics.iter().map(bar).collect())
        };
        CASES.iter().map(group).collect()
    };
    let latency = Bars {
        title: "From the block to the start of the next item (shorter is better)".into(),
        axis: "milliseconds: median, least and most of the rounds".into(),
        series: vec!["p50".into(), "p99".into()],
        groups: groups(&[metric::DETECTION_P50, metric::DETECTION_P99]),
        reference: show_goals.then(|| (GOALS_MS[1], "the goal for p99".into())),
        ..Bars::lying(report)
    };
    let cost = Bars {
        title: "What the monitor's thread uses while work waits (shorter is better)".into(),
        axis: "percent of one CPU: median, least and most of the rounds".into(),
        groups: groups(&[metric::MONITOR_PERCENT]),
        ..Bars::lying(report)
    };
    let title = format!("nearq bench blocking --detection: {}", table::model(report));
    draw(&title, &[latency, cost])
}
