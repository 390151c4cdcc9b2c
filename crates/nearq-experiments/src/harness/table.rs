//! Figures as cells of tables and bars of pictures, and what the texts of several experiments have in
//! common.

use super::{Experiment, Facts};
use crate::plots::bars::Bar;
use nearq_report::metric::Metric;
use nearq_report::{HERE, Report, Row, Summary, find, rounded};
use std::fmt::Display;

/// The text about contestants that a simulated machine cannot run.
pub(crate) const OTHERS_LEFT_OUT: &str = "The other pools are Linux programs: they do not run on simulated machines, and their rows are left out.\n";

/// A column of figures: its heading, its metric, and how the runs are shown.
pub(crate) type Column = (&'static str, Metric, fn(Summary) -> String);

/// The median, in three digits.
pub(crate) fn median(of: Summary) -> String {
    rounded(of.median)
}

/// The mean with `DIGITS` digits after the point.
pub(crate) fn mean<const DIGITS: usize>(of: Summary) -> String {
    format!("{:.DIGITS$}", of.mean)
}

/// A cell, or the sign that there is no figure.
pub(crate) fn or_none<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or("-".into(), show)
}

/// Whether a goal is met.
pub(crate) fn met(is: bool) -> String {
    if is { "met" } else { "missed" }.into()
}

/// Whether a goal is reached.
pub(crate) fn reached(is: bool) -> String {
    if is { "reached" } else { "missed" }.into()
}

/// `1 run`, `2 runs`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Each item once, in the order in which they first appear.
pub(crate) fn distinct<'r>(names: impl Iterator<Item = &'r str>) -> Vec<&'r str> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

/// The rows of a scenario.
pub(crate) fn names<'r>(rows: &'r [Row], scenario: &str) -> Vec<&'r str> {
    distinct(rows.iter().filter(|row| row.scenario == scenario).map(|row| row.row.as_str()))
}

/// The headings of a table.
pub(crate) fn headings(first: &[&'static str], columns: &[Column]) -> Vec<&'static str> {
    first.iter().copied().chain(columns.iter().map(|(heading, ..)| *heading)).collect()
}

impl<E: Experiment> Facts<'_, E> {
    /// The first line of a text, and the conditions.
    pub(crate) fn heading(&self, on_simulated: &str) -> String {
        match self.model() {
            None => format!("nearq bench {}\n{}\n", E::NAME, self.environment.describe()),
            Some(model) => format!(
                "nearq bench {}, on the simulated {} ({}){on_simulated}{}\n",
                E::NAME,
                model.name(),
                model.about(),
                self.experiment.common().more(),
            ),
        }
    }

    /// The cells of a row: `first`, and its figures.
    pub(crate) fn cells(
        &self,
        first: impl Into<String>,
        scenario: &str,
        row: &str,
        columns: &[Column],
    ) -> Vec<String> {
        let cell = |&(_, metric, show): &Column| or_none(self.of(scenario, row, metric), show);
        std::iter::once(first.into()).chain(columns.iter().map(cell)).collect()
    }

    /// What the document published for a figure, as a cell.
    pub(crate) fn published(&self, scenario: &str, row: &str, metric: Metric) -> Option<f64> {
        find(&self.rows, scenario, row, metric)?.published
    }
}

/// The machine of a report, for the title of its picture.
pub(crate) fn place(report: &Report, cpus: impl Display) -> String {
    if report.machine == HERE {
        format!("{}, {cpus} CPUs", model(report))
    } else {
        format!("simulated {}", report.machine)
    }
}

/// The CPU of a report's machine.
pub(crate) fn model(report: &Report) -> &str {
    report.environment.cpu_model.as_deref().unwrap_or("unknown CPU")
}

/// The bar of a figure: its mean or median, in the form that `bar` takes.
pub(crate) fn bar(
    report: &Report,
    scenario: &str,
    row: &str,
    metric: Metric,
    bar: fn(&Summary) -> Bar,
) -> Option<Bar> {
    Some(bar(&report.find(scenario, row, metric)?.summary))
}

/// The texts in a list of a report's parameters.
pub(crate) fn texts<'r>(report: &'r Report, name: &str) -> Vec<&'r str> {
    let list = report.parameters[name].as_array();
    list.into_iter().flatten().filter_map(serde_json::Value::as_str).collect()
}
