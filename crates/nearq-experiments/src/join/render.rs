//! The tables and the pictures of `join`.

use super::Facts;
use super::load::CONTESTANTS;
use super::pools::{Pool as _, Rayon, Sequential};
use super::program::{Kind, SCENARIOS, Scenario};
use super::simulated::SCENARIO;
use crate::harness::table::{self, Column, OTHERS_LEFT_OUT, median, met, or_none};
use crate::plots::bars::{Bar, Bars, draw};
use nearq_report::metric::{self, Metric};
use nearq_report::{Report, Row, Table, find, rounded};

/// The columns of every table, in milliseconds.
const MS: [Column; 3] = [
    ("ms", metric::ELAPSED, |of| {
        format!("{} ±{}", rounded(of.median * 1e3), rounded(of.deviation * 1e3))
    }),
    ("least", metric::ELAPSED, |of| rounded(of.min * 1e3)),
    ("most", metric::ELAPSED, |of| rounded(of.max * 1e3)),
];
/// The same in microseconds.
const US: [Column; 3] = [
    ("us", metric::ELAPSED, |of| {
        format!("{} ±{}", rounded(of.median * 1e6), rounded(of.deviation * 1e6))
    }),
    ("least", metric::ELAPSED, |of| rounded(of.min * 1e6)),
    ("most", metric::ELAPSED, |of| rounded(of.max * 1e6)),
];
/// CPU time.
const CPU: [Column; 1] = [("CPU ms", metric::CPU_SECONDS, |of| rounded(of.median * 1e3))];
/// That of programs without a cut-off.
const PER_JOIN: [Column; 1] =
    [("ns per join", metric::PER_JOIN, |of| format!("{:.1} ±{:.1}", of.median, of.deviation))];
/// Those of a simulated machine.
const STEALS: [Column; 2] = [
    ("stolen", metric::STEALS, median),
    ("within a cache (%)", metric::STEALS_WITHIN_PERCENT, median),
];

/// Everything for people: what was done, the tables, the targets.
pub(super) fn text(facts: &Facts<'_>) -> String {
    let mut text = facts.heading(&format!(", {} CPUs", facts.plan.cpus.len()));
    text.push_str(&match facts.found.declared {
        None => here(facts),
        Some(_) => simulated(facts),
    });
    if facts.show_goals() {
        text.push_str(&targets(facts));
    }
    text
}

fn here(facts: &Facts<'_>) -> String {
    let plan = &facts.plan;
    let mut text = format!(
        "{} rounds in alternating order, medians; every pool has {} threads, the calling one included if it takes part, and is started\n\
         for each round. In a round it runs the program once uncounted and then for {} s; the median of these times counts. Every result\n\
         is compared with that of the sequential program, which is the same code with both closures in turn.\n",
        plan.rounds,
        plan.cpus.len(),
        plan.time.as_secs_f64(),
    );
    for kind in Kind::ALL {
        if let Some(table) = table(facts, kind) {
            text.push_str(&format!("\n{table}"));
        }
    }
    text
}

fn title(kind: Kind) -> &'static str {
    match kind {
        Kind::Joins => "Programs without a cut-off",
        Kind::Programs => "Programs with a grain",
        Kind::Latency => "A small program in a pool that was idle for 1 ms",
    }
}

fn table(facts: &Facts<'_>, kind: Kind) -> Option<Table> {
    let plan = &facts.plan;
    let of_kind = |(scenario, _): &(&&Scenario, &u64)| scenario.kind == kind;
    let mut scenarios = plan.scenarios.iter().zip(&facts.found.joins).filter(of_kind).peekable();
    scenarios.peek()?;
    let columns = match kind {
        Kind::Joins => [MS.as_slice(), &CPU, &PER_JOIN].concat(),
        Kind::Programs => [MS.as_slice(), &CPU].concat(),
        Kind::Latency => US.to_vec(),
    };
    let mut headings = table::headings(&["", "", "to rayon"], &columns);
    headings.swap(2, 3);
    let mut table = Table::new(title(kind), &headings);
    for (scenario, joins) in scenarios {
        let size = format!("{}, {} {}", scenario.name, scenario.size(plan.size), scenario.unit);
        for (number, contestant) in CONTESTANTS.iter().enumerate() {
            let mut cells = facts.cells(contestant.row, scenario.name, contestant.row, &columns);
            let ratio = ratio(&facts.rows, scenario.name, contestant.row, Rayon::NAME);
            cells.insert(2, or_none(ratio, |ratio| format!("{ratio:.2}")));
            let first = match number {
                0 => size.clone(),
                1 => format!("  {joins} joins"),
                _ => String::new(),
            };
            cells.insert(0, first);
            table.row(cells);
        }
    }
    if kind == Kind::Joins {
        table.remark(
            "ns per join: CPU time beyond that of the sequential program, searching and waiting awake included, for each join",
        );
    }
    Some(table)
}

/// The median time of a row as a multiple of that of another one.
fn ratio(rows: &[Row], scenario: &str, row: &str, other: &str) -> Option<f64> {
    let median = |row| Some(find(rows, scenario, row, metric::ELAPSED)?.summary.median);
    Some(median(row)? / median(other)?)
}

fn simulated(facts: &Facts<'_>) -> String {
    let declared = facts.found.declared.expect("a simulated machine has it");
    let mut text = format!(
        "{} rounds, each with a seed of its own, medians; all times are virtual; each row has a fresh machine.\n{OTHERS_LEFT_OUT}\
         Random stealing is a plain pool: idle threads take the oldest job of a random other thread.\n\
         A recursive repeated map: {} times over, one array is read and another written in parallel; then the same is done with each half,\n\
         down to {} pieces of {} KiB. The arrays together are as large as all last-level caches.\n",
        facts.plan.rounds,
        declared.repeats,
        declared.pieces,
        declared.piece_bytes >> 10,
    );
    let columns = [MS.as_slice(), &STEALS].concat();
    let mut table =
        Table::new("A program whose parts fit into a cache", &table::headings(&[""], &columns));
    for row in table::names(&facts.rows, SCENARIO) {
        table.row(facts.cells(row, SCENARIO, row, &columns));
    }
    if facts.machine.topology().llcs().len() == 1 {
        table.remark(
            "The machine has one last-level cache: the scope system is the same as cache there.",
        );
    }
    text.push_str(&format!("\n{table}"));
    text
}

fn targets(facts: &Facts<'_>) -> String {
    if let Some(why) = &facts.too_small {
        return format!("\n{why}\n");
    }
    let headings = ["", "to", "ratio", "goal at most", ""];
    let mut table =
        Table::new("Targets: ratios of the medians of nearq to those of another row", &headings);
    for goal in &facts.verdict {
        table.row(vec![
            goal.name.clone(),
            goal.other.into(),
            or_none(goal.ratio, |ratio| format!("{ratio:.2}")),
            format!("{:.2}", goal.goal),
            met(goal.met),
        ]);
    }
    format!("\n{table}")
}

/// The figures at a glance.
pub(crate) fn picture(report: &Report) -> String {
    let place = table::place(report, &report.parameters["threads"]);
    let title = format!("nearq bench join: {place}");
    if report.parameters["declared"].is_object() {
        return draw(&title, &[times(report), within(report)]);
    }
    let diagrams = Kind::ALL.into_iter().filter_map(|kind| diagram(report, kind));
    draw(&title, &diagrams.collect::<Vec<_>>())
}

/// The diagram of a kind of scenarios, if one was measured.
fn diagram(report: &Report, kind: Kind) -> Option<Bars> {
    let (title, axis) = match kind {
        Kind::Joins => (
            "CPU time per join beyond the sequential program (shorter is better)",
            "ns: median, least and most of the rounds",
        ),
        Kind::Programs => (
            "Time of programs as a multiple of rayon's (shorter is better)",
            "multiple of rayon's median: median, least and most of the rounds",
        ),
        Kind::Latency => (
            "A tree of 1023 nodes in a pool that was idle (shorter is better)",
            "us: median, least and most of the rounds",
        ),
    };
    let rows = || CONTESTANTS.iter().map(|one| one.row).filter(|row| *row != Sequential::NAME);
    let group = |scenario: &Scenario| {
        let elapsed =
            |row: &str| table::bar(report, scenario.name, row, metric::ELAPSED, Bar::median);
        let bar = |row: &str| match kind {
            Kind::Joins => table::bar(report, scenario.name, row, metric::PER_JOIN, Bar::median),
            Kind::Programs => Some(elapsed(row)?.over(elapsed(Rayon::NAME)?.value)),
            Kind::Latency => Some(elapsed(row)?.over(1e-6)),
        };
        (scenario.name.to_owned(), rows().map(bar).collect::<Vec<_>>())
    };
    let of_kind = |scenario: &&Scenario| {
        scenario.kind == kind && report.find(scenario.name, Rayon::NAME, metric::ELAPSED).is_some()
    };
    let groups: Vec<_> = SCENARIOS.iter().filter(of_kind).map(group).collect();
    (!groups.is_empty()).then(|| Bars {
        title: title.into(),
        axis: axis.into(),
        series: rows().map(str::to_owned).collect(),
        groups,
        ..Bars::of(report)
    })
}

/// How long the program takes on a simulated machine.
fn times(report: &Report) -> Bars {
    Bars {
        title: "A program whose parts fit into a cache (shorter is better)".into(),
        axis: "ms: median, least and most of the rounds".into(),
        groups: by_row(report, metric::ELAPSED, 1e-3),
        ..Bars::lying(report)
    }
}

/// Where closures were stolen.
fn within(report: &Report) -> Bars {
    Bars {
        title: "Stolen closures that ran under the same last-level cache".into(),
        axis: "% of all stolen ones: median, least and most of the rounds".into(),
        groups: by_row(report, metric::STEALS_WITHIN_PERCENT, 1.0),
        ..Bars::lying(report)
    }
}

/// A bar for each row, in that unit.
fn by_row(report: &Report, metric: Metric, unit: f64) -> Vec<(String, Vec<Option<Bar>>)> {
    let bar = |row: &str| table::bar(report, SCENARIO, row, metric, Bar::median);
    let group = |row: &str| (row.to_owned(), vec![bar(row).map(|bar| bar.over(unit))]);
    table::names(&report.rows, SCENARIO).into_iter().map(group).collect()
}
