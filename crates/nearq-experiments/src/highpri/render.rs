//! The tables and the picture of `highpri`.

use super::conclusions::{self, Compared, LEAST_SAMPLES, SOURCE};
use super::contestant::Contestant;
use super::{CROWD_WORK, Facts, Samples, crowd, scenario};
use crate::harness::published as error_factor;
use crate::harness::table::{self, Column, met, or_none};
use crate::plots::curves::{Curve, Curves, draw};
use nearq_report::metric::{self, Metric};
use nearq_report::{Summary, Table};

/// The columns.
const COLUMNS: [Column; 9] = [
    ("samples", metric::SAMPLES, |of| format!("{:.0}", of.median)),
    ("stolen", metric::SAMPLES_STOLEN, |of| format!("{:.0}", of.median)),
    ("p50", metric::LATENCY_P50, median),
    ("p99", metric::LATENCY_P99, median),
    ("p99.9", metric::LATENCY_P999, median),
    ("top 20", metric::LATENCY_TOP20, median),
    ("deviation", metric::LATENCY_TOP20_DEVIATION, median),
    ("max", metric::LATENCY_MAX, median),
    ("max unstolen", metric::LATENCY_MAX_UNSTOLEN, median),
];

/// Columns for which the document has figures.
const PUBLISHED: [(&str, Metric); 3] = [
    ("published top 20", metric::LATENCY_TOP20),
    ("deviation", metric::LATENCY_TOP20_DEVIATION),
    ("max", metric::LATENCY_MAX),
];

/// How many characters a machine's name and description may have in the title of the picture.
const LONGEST: usize = 80;

/// Milliseconds with as many digits as a reader can use: these go from microseconds to seconds.
fn rounded(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn median(of: Summary) -> String {
    rounded(of.median)
}

/// Everything for people.
pub(super) fn text(facts: &Facts<'_>) -> String {
    let (task, plan) = (&facts.plan, &facts.plan.plan);
    let mut text =
        facts.heading(&format!(", {}", table::counted(facts.machine.parallelism(), "CPU")));
    if facts.model().is_some() {
        text.push_str(
            "All times are virtual; each row has a fresh machine, with noise (--noise): timers are the load here. Other pools are Linux \
             programs: their rows are left out.\n",
        );
    }
    text.push_str(&format!(
        "{} threads at nice 0 sleep {} ms in a loop on CPU {}{}; from CPU {} an item is queued every {} ms, at most one at a time; \
         {} s a row{}.\n\
         A latency is the time from before the call that queues to the item's first instruction, in ms. \
         \"top 20\" is the mean of the longest 20.\n\
         \"stolen\": samples during which the host took time from the CPU; they are in all other columns but the last.\n",
        task.threads,
        crowd::SLEEP.as_secs_f64() * 1000.0,
        plan.cpu,
        crowd(facts),
        plan.issuer_cpu,
        plan.interval.as_secs_f64() * 1000.0,
        plan.duration.as_secs_f64(),
        if task.runs > 1 { format!(", {} runs, medians", task.runs) } else { String::new() },
    ));
    if plan.cpu == plan.issuer_cpu {
        text.push_str(
            "There is one CPU: the issuer is on it too, and its own waiting sets the pace.\n",
        );
    }
    text.push_str(&format!("\n{}", table(facts)));
    text.push_str(&format!("\n{}", ratios(facts)));
    let published = conclusions::published(&facts.rows, &scenario(facts.plan.threads));
    if !published.is_empty() {
        text.push_str(&format!("\n{}", beside_published(&published)));
    }
    text
}

fn crowd(facts: &Facts<'_>) -> String {
    match (facts.found.wake_ups, facts.model()) {
        (Some(rate), _) => format!(" ({rate:.0} wake-ups a second, all together)"),
        (None, Some(_)) => {
            format!(", work {} us after each (a stated input)", CROWD_WORK.as_secs_f64() * 1e6)
        }
        (None, None) => String::new(),
    }
}

fn table(facts: &Facts<'_>) -> Table {
    let published = facts.rows.iter().any(|row| row.published.is_some());
    let mut headings = table::headings(&[""], &COLUMNS);
    if published {
        headings.push("|");
        headings.extend(PUBLISHED.map(|(heading, _)| heading));
    }
    let scenario = scenario(facts.plan.threads);
    let mut table = Table::new(format!("From queueing to start, in ms, {scenario}"), &headings);
    for (contestant, _) in &facts.found.all {
        let name = contestant.row;
        let mut cells = facts.cells(name, &scenario, name, &COLUMNS);
        if published {
            let of_document =
                |(_, metric)| or_none(facts.published(&scenario, name, metric), rounded);
            cells.push("|".into());
            cells.extend(PUBLISHED.map(of_document));
        }
        table.row(cells);
    }
    for remark in facts.found.all.iter().map(|(contestant, _)| about(contestant)) {
        table.remark(remark);
    }
    facts.found.remarks.iter().for_each(|line| table.remark(line.clone()));
    if published {
        table.remark(format!("published: {SOURCE}"));
    }
    table
}

/// The published figures and the measured ones.
fn beside_published(all: &[Compared]) -> Table {
    let headings = ["", "", "published ms", "here", "error factor", ""];
    let mut table = Table::new("The published figures, and those of this run", &headings);
    for one in all {
        table.row(vec![
            one.row.into(),
            one.metric.trim_start_matches("latency_ms_").into(),
            rounded(one.published_ms),
            rounded(one.measured_ms),
            format!("{:.2}", one.error_factor),
            error_factor::word(one.error_factor).into(),
        ]);
    }
    table.remark(format!(
        "reproduced: the error factor, the larger figure over the smaller one, is at most {}.",
        error_factor::MOST
    ));
    table
}

fn ratios(facts: &Facts<'_>) -> Table {
    let headings = ["", "", "ms", "ms", "ratio", "published", "error factor", "goal", ""];
    // The last two are about goals.
    let judged = facts.show_goals() && facts.too_small.is_none();
    let shown = if judged { headings.len() } else { headings.len() - 2 };
    let title = "How many times as long the first waits as the second";
    let mut table = Table::new(title, &headings[..shown]);
    for ratio in &facts.verdict {
        let what = ratio.metric.trim_start_matches("latency_ms_");
        let mut cells = vec![
            format!("{} / {}", ratio.slow, ratio.fast),
            what.into(),
            rounded(ratio.slow_ms),
            rounded(ratio.fast_ms),
            rounded(ratio.ratio),
            or_none(ratio.published, rounded),
            or_none(ratio.error_factor, |factor| format!("{factor:.2}")),
            or_none(ratio.goal, |goal| format!("{goal:.0}")),
            match (ratio.goal, ratio.met) {
                (Some(_), None) => format!("not judged: fewer than {LEAST_SAMPLES} samples"),
                (_, judged) => judged.map_or(String::new(), met),
            },
        ];
        cells.truncate(shown);
        table.row(cells);
    }
    if let Some(why) = facts.too_small.as_ref().filter(|_| facts.show_goals()) {
        table.remark(why);
    }
    table
}

/// The share of samples that wait at least a given time, row by row.
pub(super) fn picture(facts: &Facts<'_>) -> String {
    let curve = |(contestant, samples): &(Contestant, Samples)| Curve {
        name: contestant.row.into(),
        points: samples.curve(),
    };
    let title = match facts.model() {
        Some(model) => {
            let (name, about) = (model.name(), model.about());
            // What is too long for the picture is in the table's heading.
            let about = if name.len() + about.len() > LONGEST { "" } else { about };
            let about = if about.is_empty() { String::new() } else { format!(" ({about})") };
            format!("nearq bench highpri: simulated {name}{about}")
        }
        None => {
            let model = facts.environment.cpu_model.as_deref().unwrap_or("unknown CPU");
            format!(
                "nearq bench highpri: {model}, Linux {}",
                facts.environment.kernel.as_deref().unwrap_or("unknown")
            )
        }
    };
    let curves = Curves {
        title: format!("{title}, {}", scenario(facts.plan.threads)),
        across: "latency from queueing to start, in ms (by factors of ten)".into(),
        up: "share of samples that wait at least as long".into(),
        curves: facts.found.all.iter().map(curve).collect(),
        warning: facts.environment.warning(),
    };
    draw(&curves)
}

fn about(contestant: &Contestant) -> String {
    format!("{}: {}", contestant.row, contestant.about)
}
