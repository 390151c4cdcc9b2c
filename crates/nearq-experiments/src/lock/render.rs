//! The tables and the picture of `lock`.

use super::contestants::{AUTO, KERNEL_OSQ, NUMA, PLAIN, QSPINLOCK};
use super::goals::variation;
use super::load::{CpuPlacement, Load, described, scenario};
use super::published::{self, Compared};
use super::{Facts, Job, LONG};
use crate::harness::Host as _;
use crate::harness::table::{self, Column, counted, median, or_none, reached};
use crate::plots::curves::{Curve, Curves, stacked};
use crate::plots::gains::{Gain, Gains};
use nearq_platform::Linux;
use nearq_report::metric::{self, Metric};
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
        text.push_str(&format!("{}\n", other_gains(facts, load)));
        let compared = compared_of(facts, load);
        if !compared.is_empty() {
            text.push_str(&format!("{}\n", ratios(facts, load, &compared)));
        }
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
             Locks of other libraries are Linux programs: they do not run on simulated machines, and their rows are left out.\n"
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
    let told = |&writers: &usize| published_gain(facts, load, writers);
    let is_told = facts.plan.writers.iter().any(|writers| told(writers).is_some());
    let document = format!("document, {}", facts.machine.name());
    let mut headings = vec!["writers", "auto", "always-NUMA"];
    if is_told {
        headings.push(&document);
    }
    let title = format!("{}: gain over {PLAIN}, medians of the runs' gains", load.name());
    let mut table = Table::new(title, &headings);
    let percent = |gain: Option<f64>| or_none(gain, |gain| format!("{gain:+.1} %"));
    for writers in &facts.plan.writers {
        let gain = |row| Some(facts.of(&scenario(load, *writers), row, metric::GAIN)?.median);
        let mut cells = vec![writers.to_string(), percent(gain(AUTO)), percent(gain(NUMA))];
        if is_told {
            cells.push(percent(told(writers)));
        }
        table.row(cells);
    }
    for remark in published::remarks(facts.machine.name(), load) {
        table.remark(remark);
    }
    table
}

/// The document's gain, if the run is on one of its machines and the writers are placed as there.
fn published_gain(facts: &Facts<'_>, load: Load, writers: usize) -> Option<f64> {
    let compact = facts.plan.place == CpuPlacement::Compact;
    compact.then(|| published::gain(facts.machine.name(), load, writers, AUTO)).flatten()
}

/// What the other locks gain, each over the one that it is a change of.
fn other_gains(facts: &Facts<'_>, load: Load) -> Table {
    let counts: Vec<String> = facts.plan.writers.iter().map(ToString::to_string).collect();
    let headings: Vec<&str> =
        ["", "over"].into_iter().chain(counts.iter().map(String::as_str)).collect();
    let title = format!("{}: gain in percent, medians of the runs' gains", load.name());
    let mut table = Table::new(title, &headings);
    for &row in &facts.found.rows {
        let Some(base) = published::base(row).filter(|base| *base != PLAIN) else { continue };
        let gain = |&writers: &usize| {
            let gain = facts.of(&scenario(load, writers), row, metric::GAIN);
            or_none(gain, |gain| format!("{:+.1}", gain.median))
        };
        let names = [row, base].map(str::to_owned);
        table.row(names.into_iter().chain(facts.plan.writers.iter().map(gain)).collect());
    }
    table
}

/// The published ratios, for the JSON.
pub(super) fn compared(facts: &Facts<'_>) -> Vec<Compared> {
    facts.plan.loads.iter().flat_map(|&load| compared_of(facts, load)).collect()
}

fn compared_of(facts: &Facts<'_>, load: Load) -> Vec<Compared> {
    let Job { place, writers, .. } = &facts.plan;
    if *place != CpuPlacement::Compact {
        return Vec::new();
    }
    let (machine, rows) = (facts.machine.name(), &facts.found.rows);
    published::compare(&facts.rows, machine, load, writers, rows)
}

/// How far the run is from what was published.
fn ratios(facts: &Facts<'_>, load: Load, compared: &[Compared]) -> Table {
    let title = format!("{}: published ratios of throughputs", load.name());
    let headings = ["", "writers", "over", "writers", "published", "here", "error factor", ""];
    let mut table = Table::new(title, &headings);
    for of in compared {
        table.row(vec![
            of.row.into(),
            of.writers.to_string(),
            of.over.into(),
            of.over_writers.to_string(),
            format!("{:.2}", of.published),
            format!("{:.2}", of.measured),
            format!("{:.2}", of.error_factor),
            if of.reproduced { "reproduced" } else { "not reproduced" }.into(),
        ]);
    }
    let reproduced = compared.iter().filter(|of| of.reproduced).count();
    table.remark(format!(
        "{reproduced} of {} reproduced: the error factor is at most 2. It is the larger ratio over the smaller one; with the same writers \
         on both sides, the larger gain over the smaller one, and a gain below 5 % counts as 5 %. {} ns between two acquisitions; those \
         of the published runs are not known.",
        compared.len(),
        facts.plan.outside_ns,
    ));
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
    let mut table = Table::new(format!("Goals of {AUTO}, and of the simulation"), &headings);
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

/// Throughput over the number of writers, and gains.
pub(crate) fn picture(report: &Report) -> String {
    let machine = table::place(report, report.environment.cpus);
    let names = table::distinct(report.rows.iter().map(|row| row.row.as_str()));
    let place = report.parameters["place"].as_str().unwrap_or_default();
    // A scenario is named by the load and the number of writers.
    let writers = |row: &Row, load: &str| row.scenario.strip_prefix(load)?.trim().parse().ok();
    let of = |name: &str, metric: Metric| {
        let name = name.to_owned();
        report.rows.iter().filter(move |row| row.row == name && row.metric == metric.name)
    };
    let rates = |load: &str| {
        let curve = |name: &&str| {
            let rates = of(name, metric::ACQUISITIONS_PER_SECOND);
            let point = |row: &Row| Some((writers(row, load)?, row.summary.median / 1000.0));
            let mut points: Vec<(f64, f64)> = rates.filter_map(point).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Curve { name: (*name).to_owned(), points }
        };
        let curves = Curves {
            title: format!("nearq bench lock, {load}, {place}: {machine}"),
            across: "writers".into(),
            up: "thousands of acquisitions per second, median of the runs".into(),
            curves: names.iter().map(curve).filter(|of| !of.points.is_empty()).collect(),
            warning: report.environment.warning(),
        };
        curves.parts()
    };
    let gains = |load: &str, base: &str| {
        let gain = |name: &&str| {
            let mut gain = Gain { name: (*name).to_owned(), ..Gain::default() };
            for row in of(name, metric::GAIN) {
                let Some(writers) = writers(row, load) else { continue };
                let Summary { median, min, max, .. } = row.summary;
                gain.points.push((writers, [median, min, max]));
                gain.published.extend(row.published.map(|told| (writers, told)));
            }
            gain.points.sort_by(|a, b| a.0.total_cmp(&b.0));
            gain
        };
        let rows = names.iter().filter(|name| published::base(name) == Some(base));
        let gains: Vec<Gain> = rows.map(gain).filter(|of| !of.points.is_empty()).collect();
        let title = format!("{load}, {place}: gain over {base}");
        let up = "percent: median, least and greatest of the runs".into();
        let warning = report.environment.warning();
        (!gains.is_empty()).then(|| Gains { title, up, gains, warning }.parts())
    };
    let mut diagrams = Vec::new();
    for load in table::texts(report, "loads") {
        diagrams.push(rates(load));
        diagrams.extend([PLAIN, QSPINLOCK, KERNEL_OSQ].iter().filter_map(|base| gains(load, base)));
    }
    stacked(diagrams)
}
