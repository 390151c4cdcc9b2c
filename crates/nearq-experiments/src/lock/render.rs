//! The tables and the picture of `lock`.

use super::contestant::{AUTO, NUMA, PLAIN};
use super::goals::variation;
use super::load::{CpuPlacement, Load, described, scenario};
use super::{Facts, Job, LONG, goals as published};
use crate::harness::Host as _;
use crate::harness::table::{self, Column, counted, median, or_none, reached};
use crate::plots::curves::{Curve, Curves, draw_all};
use nearq_platform::Linux;
use nearq_report::metric;
use nearq_report::{Report, Row, Summary, Table, rounded};

/// Thousands of acquisitions a second, the median.
fn thousands(rate: Summary) -> String {
    rounded(rate.median / 1000.0)
}

/// The columns of a scenario's table.
const COLUMNS: [Column; 8] = [
    ("1000/s", metric::ACQUISITIONS_PER_SECOND, thousands),
    ("CV (%)", metric::ACQUISITIONS_PER_SECOND, |rate| {
        if rate.runs > 1 { format!("{:.1}", variation(&rate)) } else { "-".into() }
    }),
    ("fairness", metric::FAIRNESS, |of| format!("{:.3}", of.median)),
    ("p50 (us)", metric::WAIT_P50, median),
    ("p99", metric::WAIT_P99, median),
    ("p99.99", metric::WAIT_P9999, median),
    ("max", metric::WAIT_MAX, median),
    ("worst", metric::WAIT_MAX, |of| rounded(of.max)),
];

/// Everything for people.
pub(super) fn text(facts: &Facts<'_>) -> String {
    let mut text = preface(facts);
    for &load in &facts.plan.loads {
        text.push_str(&format!("\n{}\n{}\n", overview(facts, load), gains(facts, load)));
        for &writers in &facts.plan.writers {
            text.push_str(&format!("{}\n", table(facts, load, writers)));
        }
    }
    for line in &facts.found.left_out {
        text.push_str(&format!("Left out: {line}\n"));
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
            "{runs} of {ms} ms of virtual time for each row, each on a fresh machine with a seed of its own.\n\
             The other locks are Linux programs: they do not run on simulated machines, and their rows are left out.\n"
        ),
    });
    let order: Vec<String> = job.cpus.iter().take(8).map(ToString::to_string).collect();
    let more = if job.cpus.len() > order.len() { ", ..." } else { "" };
    text.push_str(&format!(
        "Writers are pinned, {} ({}{more}), more writers than CPUs from the front again, and start together. Each takes the lock, does \
         its part, gives it back and computes for {} ns.\n\
         Fairness is the share of the acquisitions that the busier half of the writers made: 0.5 is fair.\n",
        job.place.name(),
        order.join(", "),
        job.outside_ns,
    ));
    match facts.found.reading_ns {
        Some(reading) => text.push_str(&format!(
            "A wait is the time from before the call to after it, by a counter of the CPU (a reading takes {reading:.0} ns, twice a turn, for \
             every row alike). One wait in {} goes into the distribution, with that weight, and every one of {} us or more.\n",
            Linux::EVERY,
            LONG.as_micros(),
        )),
        None => text.push_str(
            "A wait is the time from before the call to after it; all are in the distribution, and looking at the clock costs nothing.\n",
        ),
    }
    text.push_str(
        "Percentiles and longest waits are medians over the runs; \"worst\" is the longest wait of all runs.\n\
         UnixBench and the real fxmark and perf bench epoll exercise the kernel's own locks, which no mutex of user space replaces: the shapes \
         here are their lock patterns alone, and the document's figures stand beside ours for the order of magnitude.\n",
    );
    text
}

/// The rates of all rows, by the number of writers.
fn overview(facts: &Facts<'_>, load: Load) -> Table {
    let title = format!(
        "{}\nThousands of acquisitions a second, medians, by the number of writers",
        load.about()
    );
    let Job { writers, .. } = &facts.plan;
    let counts: Vec<String> = writers.iter().map(ToString::to_string).collect();
    let headings: Vec<&str> =
        std::iter::once("").chain(counts.iter().map(String::as_str)).collect();
    let mut table = Table::new(title, &headings);
    for &row in &facts.found.rows {
        let rate = |&writers: &usize| {
            let scenario = scenario(load, writers);
            or_none(facts.of(&scenario, row, metric::ACQUISITIONS_PER_SECOND), thousands)
        };
        table.row(std::iter::once(row.to_owned()).chain(writers.iter().map(rate)).collect());
    }
    table
}

/// What queues by cache gain.
fn gains(facts: &Facts<'_>, load: Load) -> Table {
    let headings = ["writers", "auto", "always-NUMA", "document, 2x EPYC 7551"];
    let title = format!("{}: gain over {PLAIN}, medians of the runs' gains", load.name());
    let mut table = Table::new(title, &headings);
    let percent = |gain: Option<f64>| or_none(gain, |gain| format!("{gain:+.1} %"));
    for &writers in &facts.plan.writers {
        let gain = |row| Some(facts.of(&scenario(load, writers), row, metric::GAIN)?.median);
        table.row(vec![
            writers.to_string(),
            percent(gain(AUTO)),
            percent(gain(NUMA)),
            percent(published::gain(load, writers)),
        ]);
    }
    table.remark(published::remark(load));
    table.remark(format!("{}.", published::SOURCE));
    table
}

/// All figures of a scenario.
fn table(facts: &Facts<'_>, load: Load, writers: usize) -> Table {
    let headings = table::headings(&[""], &COLUMNS);
    let mut table = Table::new(described(load, writers), &headings);
    let scenario = scenario(load, writers);
    for &row in &facts.found.rows {
        let ran = facts.of(&scenario, row, metric::ACQUISITIONS_PER_SECOND).is_some();
        let columns = if ran { &COLUMNS[..] } else { &COLUMNS[..1] };
        table.row(facts.cells(row, &scenario, row, columns));
    }
    table
}

fn goals(facts: &Facts<'_>) -> String {
    if let Some(why) = &facts.too_small {
        return format!("{why}\n");
    }
    if facts.verdict.is_empty() {
        let why = match (facts.model(), facts.plan.place) {
            (Some(_), CpuPlacement::Spread) => "spread placement is shown without goals",
            (Some(_), CpuPlacement::Compact) => {
                "on a simulated machine there are goals for the short section"
            }
            (None, _) => "they are about torture",
        };
        return format!("No goals: {why}.\n");
    }
    let headings = ["", "", "reached", "writers", "goal", ""];
    let mut table = Table::new(format!("Goals of {AUTO}"), &headings);
    for goal in &facts.verdict {
        let least = if goal.at_most { "<=" } else { ">=" };
        let figure = |value: f64| match goal.unit {
            "" => format!("{value:.3}"),
            unit => format!("{value:+.1}{unit}"),
        };
        table.row(vec![
            goal.load.into(),
            goal.what.clone(),
            figure(goal.reached),
            goal.writers.map_or("all".into(), |writers| writers.to_string()),
            format!("{least} {}", figure(goal.goal)),
            reached(goal.met),
        ]);
    }
    let missed = facts.verdict.iter().filter(|goal| !goal.met).count();
    table.remark(format!(
        "{} of {} reached. Ratios are those within a run, and their median over the runs, which also decides which of two is the better; \
         of several numbers of writers the worst is shown.",
        facts.verdict.len() - missed,
        facts.verdict.len()
    ));
    if facts.model().is_none() && facts.plan.outside_ns > 0 {
        table.remark(format!(
            "One thread's ratio is that of whole turns, the {} ns between two of them included; --outside 0 leaves them out.",
            facts.plan.outside_ns
        ));
    }
    table.to_string()
}

/// Throughput over the number of writers.
pub(crate) fn picture(report: &Report) -> String {
    let machine = table::place(report, report.environment.cpus);
    let names = table::distinct(report.rows.iter().map(|row| row.row.as_str()));
    let diagram = |load: &str| {
        let curve = |name: &&str| {
            let rates = report.rows.iter().filter(|row| {
                row.row == *name && row.metric == metric::ACQUISITIONS_PER_SECOND.name
            });
            // A scenario is named by the load and the number of writers.
            let point = |row: &Row| {
                let writers = row.scenario.strip_prefix(load)?.trim().parse().ok()?;
                Some((writers, row.summary.median / 1000.0))
            };
            let mut points: Vec<(f64, f64)> = rates.filter_map(point).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Curve { name: (*name).to_owned(), points }
        };
        let place = report.parameters["place"].as_str().unwrap_or_default();
        Curves {
            title: format!("nearq bench lock, {load}, {place}: {machine}"),
            across: "writers".into(),
            up: "thousands of acquisitions per second, median of the runs".into(),
            curves: names.iter().map(curve).filter(|of| !of.points.is_empty()).collect(),
            warning: report.environment.warning(),
        }
    };
    let diagrams: Vec<Curves> = table::texts(report, "loads").into_iter().map(diagram).collect();
    draw_all(&diagrams)
}
