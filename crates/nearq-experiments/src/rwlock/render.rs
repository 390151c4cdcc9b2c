//! The tables and the picture of `rwlock`.

use super::contestant::AUTO;
use super::{Facts, Job, scenario};
use crate::harness::table::{self, Column, counted, median, or_none, reached};
use crate::plots::curves::{Curve, Curves, draw_all};
use nearq_report::metric;
use nearq_report::{Report, Row, Summary, Table, rounded};

/// Thousands a second, the median.
fn thousands(rate: Summary) -> String {
    rounded(rate.median / 1000.0)
}

/// The columns of the table of a mix and a number of threads.
const COLUMNS: [Column; 7] = [
    ("1000/s", metric::ACQUISITIONS_PER_SECOND, thousands),
    ("reads", metric::READS_PER_SECOND, thousands),
    ("writes", metric::WRITES_PER_SECOND, thousands),
    ("reader p99.99 (us)", metric::READ_WAIT_P9999, median),
    ("max", metric::READ_WAIT_MAX, median),
    ("writer p99.99 (us)", metric::WRITE_WAIT_P9999, median),
    ("max", metric::WRITE_WAIT_MAX, median),
];

/// Everything for people.
pub(super) fn text(facts: &Facts<'_>) -> String {
    let mut text = preface(facts);
    for &writes in &facts.plan.writes {
        text.push_str(&format!("\n{}\n", overview(facts, writes)));
        for &threads in &facts.plan.threads {
            text.push_str(&format!("{}\n", details(facts, writes, threads)));
        }
    }
    if facts.show_goals() {
        text.push_str(&goals(facts));
    }
    text
}

fn preface(facts: &Facts<'_>) -> String {
    let job = &facts.plan;
    let (ms, runs) = (job.duration.as_secs_f64() * 1e3, counted(job.runs, "run"));
    let mut text = facts.heading("");
    text.push_str(&match facts.model() {
        None => format!(
            "{runs} of {ms} ms for each row, which take turns within each run, forwards and backwards.\n"
        ),
        Some(_) => format!(
            "{runs} of {ms} ms of virtual time for each row, each on a fresh machine with a seed of its own. The locks of others are Linux \
             programs; beside ours run two designs: the kernel's rw_semaphore, and BRAVO (Dice, Kogan, 2019) over that.\n"
        ),
    });
    text.push_str(&format!(
        "Threads are pinned, {}. Each takes the lock, computes for {} ns, gives it back and computes for {} ns. \"One word\" is our lock \
         without counting readers by cache (lock_mode=plain); our mutex serves readers and writers alike.\n\
         A wait is the time from before the call until the thread has the lock. Percentiles and longest waits are medians over the runs.\n",
        job.place.name(),
        job.inside_ns,
        job.outside_ns,
    ));
    text
}

/// The rates of all rows, by the number of threads.
fn overview(facts: &Facts<'_>, writes: usize) -> Table {
    let title =
        format!("{writes} % writes: thousands of uses a second, medians, by the number of threads");
    let Job { threads, .. } = &facts.plan;
    let counts: Vec<String> = threads.iter().map(ToString::to_string).collect();
    let headings: Vec<&str> =
        std::iter::once("").chain(counts.iter().map(String::as_str)).collect();
    let mut table = Table::new(title, &headings);
    for &row in &facts.found {
        let rate = |&threads: &usize| {
            let found = facts.of(&scenario(writes, threads), row, metric::ACQUISITIONS_PER_SECOND);
            or_none(found, thousands)
        };
        table.row(std::iter::once(row.to_owned()).chain(threads.iter().map(rate)).collect());
    }
    table
}

/// All figures of a mix and a number of threads.
fn details(facts: &Facts<'_>, writes: usize, threads: usize) -> Table {
    let headings = table::headings(&[""], &COLUMNS);
    let title = format!("{writes} % writes, {}", counted(threads, "thread"));
    let mut table = Table::new(title, &headings);
    for &row in &facts.found {
        table.row(facts.cells(row, &scenario(writes, threads), row, &COLUMNS));
    }
    table
}

fn goals(facts: &Facts<'_>) -> String {
    if let Some(why) = &facts.too_small {
        return format!("{why}\n");
    }
    let headings = ["", "", "reached", "threads", "goal", ""];
    let mut table = Table::new(format!("Goals of {AUTO}"), &headings);
    for goal in &facts.verdict {
        let bound = if goal.at_most { "<=" } else { ">=" };
        table.row(vec![
            format!("{} % writes", goal.writes),
            goal.what.clone(),
            format!("{:.3}", goal.reached),
            goal.threads.to_string(),
            format!("{bound} {:.3}", goal.goal),
            reached(goal.met),
        ]);
    }
    let missed = facts.verdict.iter().filter(|goal| !goal.met).count();
    table.remark(format!(
        "{} of {} reached. Ratios are those within a run, and their median over the runs; of several numbers of threads the worst is shown.",
        facts.verdict.len() - missed,
        facts.verdict.len()
    ));
    table.to_string()
}

/// Throughput over the number of threads, for each mix.
pub(crate) fn picture(report: &Report) -> String {
    let machine = table::place(report, report.environment.cpus);
    let names = table::distinct(report.rows.iter().map(|row| row.row.as_str()));
    let diagram = |mix: u64| {
        let start = format!("{mix}% ");
        let curve = |name: &&str| {
            let rates = report.rows.iter().filter(|row| {
                row.row == *name && row.metric == metric::ACQUISITIONS_PER_SECOND.name
            });
            let point = |row: &Row| {
                let threads = row.scenario.strip_prefix(&start)?.parse().ok()?;
                Some((threads, row.summary.median / 1000.0))
            };
            let mut points: Vec<(f64, f64)> = rates.filter_map(point).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Curve { name: (*name).to_owned(), points }
        };
        Curves {
            title: format!("nearq bench rwlock, {mix} % writes: {machine}"),
            across: "threads".into(),
            up: "thousands of uses per second, median of the runs".into(),
            curves: names.iter().map(curve).filter(|of| !of.points.is_empty()).collect(),
            warning: report.environment.warning(),
        }
    };
    let mixes = report.parameters["writes_percent"].as_array();
    let mixes = mixes.into_iter().flatten().filter_map(serde_json::Value::as_u64);
    draw_all(&mixes.map(diagram).collect::<Vec<_>>())
}
