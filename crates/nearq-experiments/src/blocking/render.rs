//! The tables and the picture of `blocking`.

use super::Facts;
use super::load::{BARE, ENOUGH, IDEAL};
use super::pools::{HINTED, PLAIN};
use super::ways::Way;
use crate::harness::table::{self, Column, OTHERS_LEFT_OUT, median, met};
use crate::plots::bars::Bar;
use crate::plots::differences::{Differences, Dot};
use crate::plots::draw;
use nearq_report::{Report, Row, Table, metric, rounded};

/// The rows of a scenario in their order, the ideal last.
fn names(rows: &[Row], way: Way) -> Vec<&str> {
    let mut names = table::names(rows, way.name());
    let last = |name: &&str| {
        [ENOUGH, BARE, IDEAL].iter().position(|last| last == name).map_or(0, |at| at + 1)
    };
    names.sort_by_key(last);
    names
}

/// Describes an item's pause of `ms` milliseconds, for a title; `read_us` is how long a read of the disk takes.
fn pause(way: Way, ms: f64, read_us: Option<f64>) -> String {
    match way {
        Way::Sleep => format!("sleeps for {ms} ms"),
        Way::Futex => format!("waits in a futex, and is woken by another thread after {ms} ms"),
        Way::Pipe => format!("reads from a pipe, into which another thread writes after {ms} ms"),
        Way::Disk => {
            let us = read_us.map_or_else(String::new, |us| {
                format!(", which takes {} us where nothing else goes on", rounded(us))
            });
            format!("reads 4 KiB of a file with O_DIRECT{us}")
        }
    }
}

/// The columns of a way's table.
const COLUMNS: [Column; 8] = [
    ("s", metric::ELAPSED, |of| format!("{:.3} ±{:.3}", of.median, of.deviation)),
    ("to ideal", metric::RATIO, |of| format!("{:.2}", of.median)),
    ("least", metric::RATIO, |of| format!("{:.2}", of.min)),
    ("most", metric::RATIO, |of| format!("{:.2}", of.max)),
    ("CPU s", metric::CPU_SECONDS, median),
    ("CPU (%)", metric::CPU_PERCENT, median),
    ("threads", metric::THREADS, median),
    ("switches", metric::SWITCHES, median),
];

fn table(facts: &Facts<'_>, way: Way) -> Option<Table> {
    let (names, plan) = (names(&facts.rows, way), &facts.plan.0);
    let pause = pause(way, plan.sleep.as_secs_f64() * 1e3, facts.found.read_us);
    let title = format!("One item in {} {pause}", plan.every);
    let mut table = Table::new(title, &table::headings(&[""], &COLUMNS));
    for name in &names {
        table.row(facts.cells(*name, way.name(), name, &COLUMNS));
    }
    (!names.is_empty()).then_some(table)
}

/// Everything for people: what was done, the tables, the targets.
pub(super) fn text(facts: &Facts<'_>) -> String {
    let ((plan, rounds), found) = (&facts.plan, &facts.found);
    let (items, workers, us) = (plan.items, plan.workers, plan.item.as_secs_f64() * 1e6);
    let mut text = facts.heading(&format!(", {workers} of its CPUs"));
    text.push_str(&match facts.model() {
        None => format!(
            "{rounds} rounds in alternating order, medians; every pool starts with {workers} workers on {workers} CPUs, \
             for each round anew.\n",
        ),
        Some(_) => format!(
            "{rounds} rounds, each with a seed of its own, medians; all times are virtual; each row has a fresh machine.\n\
             {OTHERS_LEFT_OUT}",
        ),
    });
    text.push_str(&format!(
        "{items} items, queued from one thread outside of the pool; each computes for {us} us, and one in {} is blocked half-way.\n",
        plan.every,
    ));
    match found.nanoseconds_per_round {
        Some(ns) => text.push_str(&format!(
            "An item's computing is a fixed number of rounds of a loop ({}, of {:.3} ns each when it was measured), so that waiting for a\n\
             CPU does not count as computing. The ideal is the CPU time of threads that do nothing else, over the CPUs, in the same\n\
             round; what those threads took includes what else went on on the machine. \"enough\" are so many plain threads that some\n\
             can always compute: what the system's scheduler makes of that.\n",
            plan.rounds, ns,
        )),
        None => text.push_str(
            "The ideal is the CPU time of threads that do nothing else, over the CPUs.\n",
        ),
    }
    for way in Way::ALL {
        if let Some(table) = table(facts, way) {
            text.push_str(&format!("\n{table}"));
        }
    }
    for (way, reason) in &found.left_out {
        text.push_str(&format!("\nLeft out: {}: {reason}\n", way.name()));
    }
    if facts.show_goals() {
        text.push_str(&targets(facts));
    }
    text
}

fn targets(facts: &Facts<'_>) -> String {
    if let Some(why) = &facts.too_small {
        return format!("\n{why}\n");
    }
    let headings = ["", "", "ratio", "goal", ""];
    let mut table = Table::new("Targets: medians of the ratios to the ideal", &headings);
    for goal in &facts.verdict {
        table.row(vec![
            goal.scenario.into(),
            goal.row.into(),
            format!("{:.2}", goal.ratio),
            format!("{:.2}", goal.goal),
            met(goal.met),
        ]);
    }
    let tail = facts.plan.0.sleep.as_secs_f64() / facts.plan.0.nominal().as_secs_f64();
    if tail > 0.03 {
        table.remark(format!(
            "With so few items, the last one that sleeps alone adds up to {tail:.2} to the ratio of everybody."
        ));
    }
    format!("\n{table}")
}

/// The time beyond the ideal at a glance.
pub(crate) fn picture(report: &Report) -> String {
    let rows = report.rows.as_slice();
    let parameter = |name: &str| &report.parameters[name];
    let dot = |way: Way, row: &str| {
        let ratio = table::bar(report, way.name(), row, metric::RATIO, Bar::median);
        Dot::measured(ratio.map(|ratio| ratio.beyond(1.0)))
    };
    let diagram = |title: String, series: Vec<String>, rows| Differences {
        title,
        axis: "percent above the ideal: median, least and most of the rounds".into(),
        series,
        rows,
        ..Differences::of(report)
    };
    let ways: Vec<Way> = Way::ALL.into_iter().filter(|&way| !names(rows, way).is_empty()).collect();
    let mut diagrams = Vec::new();
    if let Some(&first) = ways.first() {
        let rows_of_first = names(rows, first).into_iter().filter(|name| *name != IDEAL);
        let ms = parameter("sleep_ms").as_f64().unwrap_or_default();
        let title = format!(
            "Time for {} items of which one in {} {} (less is better)",
            parameter("items"),
            parameter("every"),
            pause(first, ms, parameter("disk_read_us").as_f64())
        );
        let dots = rows_of_first.map(|name| (name.to_owned(), vec![dot(first, name)])).collect();
        diagrams.push(diagram(title, vec![String::new()], dots).diagram());
    }
    if ways.len() > 1 {
        let row = |&name: &&str| {
            (name.to_owned(), ways.iter().map(|&way| dot(way, name)).collect::<Vec<_>>())
        };
        let title = "The same for every way to be blocked".to_owned();
        let series = ways.iter().map(|way| way.name().to_owned()).collect();
        let dots = [PLAIN, HINTED].iter().map(row).collect();
        diagrams.push(diagram(title, series, dots).diagram());
    }
    let place = table::place(report, parameter("workers"));
    draw(&format!("nearq bench blocking: {place}"), diagrams)
}
