//! The tables and the picture of `blocking`.

use super::Facts;
use super::bare::{BARE, ENOUGH, IDEAL};
use super::ours::{HINTED, PLAIN};
use super::ways::Way;
use crate::plots::bars::{Bar, Bars, draw};
use nearq_report::metric::{self, Metric};
use nearq_report::{Environment, HERE, Report, Row, Table, find, rounded};

/// The rows of a scenario: as they came, the ideal last.
fn names(rows: &[Row], way: Way) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.scenario == way.name()) {
        if !names.contains(&row.row.as_str()) {
            names.push(&row.row);
        }
    }
    let last = |name: &&str| {
        [ENOUGH, BARE, IDEAL].iter().position(|last| last == name).map_or(0, |at| at + 1)
    };
    names.sort_by_key(last);
    names
}

/// What an item's pause of so many milliseconds is, for a title; the other number is what a read of the disk takes.
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

fn table(rows: &[Row], way: Way, facts: &Facts<'_>) -> Option<Table> {
    let names = names(rows, way);
    if names.is_empty() {
        return None;
    }
    let pause = pause(way, facts.plan.sleep.as_secs_f64() * 1e3, facts.read_us);
    let title = format!("One item in {} {pause}", facts.plan.every);
    let headings =
        ["", "s", "to ideal", "least", "most", "CPU s", "CPU (%)", "threads", "switches"];
    let mut table = Table::new(title, &headings);
    for name in names {
        let found = |metric: Metric| find(rows, way.name(), name, metric).map(|row| row.summary);
        let median = |metric| found(metric).map_or("-".into(), |summary| rounded(summary.median));
        let seconds = found(metric::ELAPSED).map_or("-".into(), |summary| {
            format!("{:.3} ±{:.3}", summary.median, summary.deviation)
        });
        let ratio = |pick: fn(nearq_report::Summary) -> f64| {
            found(metric::RATIO).map_or("-".into(), |summary| format!("{:.2}", pick(summary)))
        };
        table.row(vec![
            name.into(),
            seconds,
            ratio(|summary| summary.median),
            ratio(|summary| summary.min),
            ratio(|summary| summary.max),
            median(metric::CPU_SECONDS),
            median(metric::CPU_PERCENT),
            median(metric::THREADS),
            median(metric::SWITCHES),
        ]);
    }
    Some(table)
}

impl Facts<'_> {
    /// Everything for people: what was done, the tables, the targets.
    pub(super) fn text(&self, rows: &[Row], environment: &Environment) -> String {
        let plan = self.plan;
        let (items, workers, us) = (plan.items, plan.workers, plan.item.as_secs_f64() * 1e6);
        let mut text = match self.model {
            None => format!(
                "nearq bench blocking\n{}\n{} rounds in alternating order, medians; every pool starts with {workers} workers on {workers} CPUs, \
                 for each round anew.\n",
                environment.describe(),
                self.rounds,
            ),
            Some(model) => format!(
                "nearq bench blocking, on the simulated {} ({}), {workers} of its CPUs\n\
                 {} rounds, each with a seed of its own, medians; all times are virtual; each row has a fresh machine.\n\
                 The other pools are Linux programs: they do not run on simulated machines, and their rows are left out.\n",
                model.name(),
                model.about(),
                self.rounds,
            ),
        };
        text.push_str(&format!(
            "{items} items, queued from one thread outside of the pool; each computes for {us} us, and one in {} is blocked half-way.\n",
            plan.every,
        ));
        match self.nanoseconds_per_round {
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
            if let Some(table) = table(rows, way, self) {
                text.push_str(&format!("\n{table}"));
            }
        }
        for (way, reason) in self.left_out {
            text.push_str(&format!("\nLeft out: {}: {reason}\n", way.name()));
        }
        if self.show_goals {
            text.push_str(&self.targets());
        }
        text
    }

    fn targets(&self) -> String {
        if let Some(why) = &self.too_small {
            return format!("\n{why}\n");
        }
        let headings = ["", "", "ratio", "goal", ""];
        let mut table = Table::new("Targets: medians of the ratios to the ideal", &headings);
        for goal in self.goals {
            table.row(vec![
                goal.scenario.into(),
                goal.row.into(),
                format!("{:.2}", goal.ratio),
                format!("{:.2}", goal.goal),
                if goal.met { "met" } else { "missed" }.into(),
            ]);
        }
        let tail = self.plan.sleep.as_secs_f64() / self.plan.nominal().as_secs_f64();
        if tail > 0.03 {
            table.remark(format!(
                "With so few items, the last one that sleeps alone adds up to {tail:.2} to the ratio of everybody."
            ));
        }
        format!("\n{table}")
    }
}

/// The ratios at a glance.
pub(crate) fn picture(report: &Report) -> String {
    let (rows, environment) = (report.rows.as_slice(), &report.environment);
    let parameter = |name: &str| &report.parameters[name];
    let bar = |way: Way, row: &str| {
        Some(Bar::median(&find(rows, way.name(), row, metric::RATIO)?.summary))
    };
    let diagram = |title: String, series: Vec<String>, groups| Bars {
        title,
        axis: "ratio to the ideal: median, least and most of the rounds".into(),
        series,
        groups,
        lying: true,
        logarithmic: false,
        reference: Some((1.0, "the ideal".into())),
        warning: environment.warning(),
    };
    let ways: Vec<Way> = Way::ALL.into_iter().filter(|&way| !names(rows, way).is_empty()).collect();
    let mut diagrams = Vec::new();
    if let Some(&first) = ways.first() {
        let rows_of_first = names(rows, first).into_iter().filter(|name| *name != IDEAL);
        let ms = parameter("sleep_ms").as_f64().unwrap_or_default();
        let title = format!(
            "Time for {} items of which one in {} {} (shorter is better)",
            parameter("items"),
            parameter("every"),
            pause(first, ms, parameter("disk_read_us").as_f64())
        );
        let groups = rows_of_first.map(|name| (name.to_owned(), vec![bar(first, name)])).collect();
        diagrams.push(diagram(title, vec![String::new()], groups));
    }
    if ways.len() > 1 {
        let group = |&name: &&str| {
            (name.to_owned(), ways.iter().map(|&way| bar(way, name)).collect::<Vec<_>>())
        };
        let title = "The same for every way to be blocked".to_owned();
        let series = ways.iter().map(|way| way.name().to_owned()).collect();
        diagrams.push(diagram(title, series, [PLAIN, HINTED].iter().map(group).collect()));
    }
    let title = if report.machine == HERE {
        let model = environment.cpu_model.as_deref().unwrap_or("unknown CPU");
        format!("nearq bench blocking: {model}, {} CPUs", parameter("workers"))
    } else {
        format!("nearq bench blocking: simulated {}", report.machine)
    };
    draw(&title, &diagrams)
}
