//! The tables and the picture of `numa`, beside what was published in 2013.

use super::{
    COMPARED, Declared, Facts, HOMES, Job, NUMA, SCENARIO, SYSTEM, TREE, TREE_HOMES, WRITEBACK,
    WRITEBACK_NUMA, error_of_difference, in_errors,
};
use crate::harness::published as error_factor;
use crate::harness::table::{self, Column};
use crate::plots::bars::Bar;
use crate::plots::differences::{Differences, Dot};
use crate::plots::draw;
use nearq_report::{HERE, Report, Summary, Table, metric, rounded};

/// Seconds of a kernel build (allmodconfig, -j20, two Opterons) before the change of 2013: five runs.
pub(super) const PUBLISHED_BEFORE: [f64; 5] = [1396.126, 1397.621, 1399.636, 1397.463, 1395.543];
/// The same after it.
pub(super) const PUBLISHED_AFTER: [f64; 5] = [1394.763, 1394.965, 1394.738, 1398.162, 1393.670];

const ROWS: [&str; 7] = [SYSTEM, NUMA, HOMES, WRITEBACK, WRITEBACK_NUMA, TREE, TREE_HOMES];

fn about(row: &str) -> &'static str {
    match row {
        SYSTEM => "items of an unbound queue, scope system",
        NUMA => "items of an unbound queue, scope numa",
        HOMES => "the same, each item with a home",
        WRITEBACK => "output written away by items of scope system",
        WRITEBACK_NUMA => "the same, scope numa",
        TREE => "nearq run --tree --home none",
        _ => "nearq run --tree --home auto",
    }
}

/// Everything for people.
pub(super) fn text(facts: &Facts<'_>) -> String {
    let (files, jobs, runs) = (facts.plan.files, facts.plan.jobs, facts.plan.runs);
    let mut text = facts.heading("");
    text.push_str(&if facts.model().is_some() {
        let Declared { input, heap, passes, compute_us, output, write_us } = Declared::USUAL;
        format!(
            "{runs} runs, each with a seed of its own and a fresh machine; all times are virtual.\n\
             {files} compilations, {jobs} at a time: each reads {} KiB that its issuer has written, goes over {} KiB of its own {passes} \
             times,\ncomputes for {compute_us} us meanwhile, and writes {} KiB that its issuer reads. In the rows `writeback` each is a \
             thread,\nwhich makes its own input, and an item reads the output and computes for {write_us} us.\n",
            input >> 10,
            heap >> 10,
            output >> 10,
        )
    } else {
        format!(
            "{runs} runs of every row, in alternating order; {files} files, {jobs} at a time: {}\n",
            facts.found.job.as_deref().map_or_else(String::new, Job::command_line),
        )
    });
    if facts.machine.topology().nodes().len() == 1 {
        text.push_str("This machine has one node: there is nothing to gain, and what is shown is that nothing is lost.\n");
    }
    text.push_str(&format!("\n{}", table(facts)));
    match &facts.too_small {
        Some(why) => text.push_str(&format!("\n{why}\n")),
        None => text.push_str(&format!("\n{}", compared(facts))),
    }
    for (row, reason) in &facts.found.left_out {
        text.push_str(&format!("\nLeft out: {row}: {reason}\n"));
    }
    text
}

fn compared(facts: &Facts<'_>) -> Table {
    let headings = ["", "", "seconds", "%", "deviations", "errors", ""];
    let mut table = Table::new("What is gained, of the means", &headings);
    for difference in &facts.verdict {
        table.row(vec![
            difference.before.into(),
            format!("-> {}", difference.after),
            format!("{:+.4}", difference.gain_s),
            format!("{:+.2}", difference.gain_percent),
            format!("{:+.1}", difference.sigmas),
            format!("{:+.1}", difference.errors),
            if difference.exceeds { "exceeds both deviations" } else { "within the deviations" }
                .into(),
        ]);
    }
    let [before, after] = [PUBLISHED_BEFORE, PUBLISHED_AFTER].map(|runs| summary(&runs));
    table.row(vec![
        "2013, a kernel build".into(),
        "-> numa".into(),
        format!("{:+.4}", before.mean - after.mean),
        format!("{:+.2}", (before.mean - after.mean) / before.mean * 100.0),
        format!("{:+.1}", (before.mean - after.mean) / before.deviation),
        format!("{:+.1}", in_errors(&before, &after)),
        "\"isn't completely conclusive\"".into(),
    ]);
    let ours = facts.verdict.iter().find(|of| of.before == WRITEBACK && of.after == WRITEBACK_NUMA);
    if let (Some(ours), Some(_)) = (ours, facts.model()) {
        // The published gain is not known better than to its standard error.
        let gain = (before.mean - after.mean) / before.mean;
        let error = error_of_difference(&before, &after) / before.mean;
        let factor = error_factor::of_gains_above(error, gain, ours.gain_percent / 100.0);
        let found = if error_factor::is_a_gain(gain, error) {
            error_factor::word(factor)
        } else {
            error_factor::NO_GAIN
        };
        table.remark(format!(
            "{WRITEBACK} -> {WRITEBACK_NUMA} beside the published gain: {factor:.2} times it. That gain is {:.2} % with a standard error of \
             {:.2} %: {found}.",
            gain * 100.0,
            error * 100.0
        ));
    }
    table.remark(
        "deviations: the gain in standard deviations of what was before, as the document has it; errors: in standard errors of the \
         difference, which more runs make smaller.",
    );
    table
}

/// What is gained at a glance, each with its standard error, and what was published for the same comparison.
pub(crate) fn picture(report: &Report) -> String {
    let elapsed = |row: &str| Some(report.find(SCENARIO, row, metric::ELAPSED)?.summary);
    // The document's job is written back.
    let told = [WRITEBACK_NUMA, NUMA].into_iter().find(|row| elapsed(row).is_some());
    let row = |(before, after): (&str, &str)| {
        let measured = gain(&elapsed(before)?, &elapsed(after)?);
        let [was, became] = [PUBLISHED_BEFORE, PUBLISHED_AFTER].map(|runs| summary(&runs));
        let published = (told == Some(after)).then(|| gain(&was, &became));
        let dot = Dot { measured: Some(measured), published };
        Some((format!("{before} -> {after}"), vec![dot]))
    };
    let differences = Differences {
        title: "Time gained until the job is done (more is better)".into(),
        axis: "percent of the time before the arrow, with its standard error".into(),
        rows: COMPARED.into_iter().filter_map(row).collect(),
        ..Differences::of(report)
    };
    let (files, jobs) = (&report.parameters["files"], &report.parameters["jobs"]);
    let place = if report.machine == HERE { "this machine" } else { &report.machine };
    draw(&format!("{files} files, {jobs} at a time, on {place}"), vec![differences.diagram()])
}

/// What is gained, in percent of the time before, from one standard error below it to one above it.
fn gain(before: &Summary, after: &Summary) -> Bar {
    let percent = |seconds: f64| seconds / before.mean * 100.0;
    let value = percent(before.mean - after.mean);
    let error = percent(error_of_difference(before, after));
    Bar { value, low: value - error, high: value + error }
}

fn summary(runs: &[f64]) -> Summary {
    Summary::of(runs).expect("there are runs")
}

/// A mean and its deviation, with a digit more than the deviation needs.
fn seconds(summary: Summary) -> String {
    let digits = (1.0 - summary.deviation.max(1e-6).log10().floor()).clamp(1.0, 6.0) as usize;
    format!("{:.digits$} ±{:.digits$}", summary.mean, summary.deviation)
}

const COLUMNS: [Column; 5] = [
    ("elapsed (s)", metric::ELAPSED, seconds),
    ("least", metric::ELAPSED, |of| rounded(of.min)),
    ("most", metric::ELAPSED, |of| rounded(of.max)),
    ("user (s)", metric::USER, seconds),
    ("system (s)", metric::SYSTEM, seconds),
];

fn table(facts: &Facts<'_>) -> Table {
    let headings = table::headings(&["", ""], &COLUMNS);
    let mut table = Table::new("Until all is done", &headings);
    for name in ROWS {
        if facts.of(SCENARIO, name, metric::ELAPSED).is_some() {
            let mut cells = facts.cells(name, SCENARIO, name, &COLUMNS);
            cells.insert(1, about(name).into());
            table.row(cells);
        }
    }
    for (name, runs) in [("2013: before", PUBLISHED_BEFORE), ("2013: after", PUBLISHED_AFTER)] {
        let of = summary(&runs);
        let mut cells =
            vec![name.into(), "kernel build, -j20, two Opterons: writeback".into(), seconds(of)];
        cells.extend([rounded(of.min), rounded(of.max), "-".into(), "-".into()]);
        table.row(cells);
    }
    table.remark(format!(
        "Mean and standard deviation of the runs; compared are {}.",
        COMPARED.map(|(before, after)| format!("{before} with {after}")).join(", ")
    ));
    table
}

#[cfg(test)]
#[path = "tests/render.rs"]
mod render_tests;
