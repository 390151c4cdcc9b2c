//! The table and the picture of `lines`.

use super::published::Use;
use super::{Case, addition_row, bounce_row};
use crate::plots::bars::{Bar, Bars};
use crate::plots::differences::{Differences, Dot};
use crate::plots::{Diagram, draw};
use nearq_report::{Report, Row, Table, rounded};

/// The text for people.
pub(super) fn text(cases: &[Case], rows: &[Row]) -> String {
    let mut text = "nearq sim lines: what a cache line costs on simulated machines\n\
                    A bounce is half of a round trip of a line that two CPUs take by turns with a compare-exchange: the median of a few pairs.\n\
                    fetch_add: CPUs add to one word without a pause; from one addition to the next, whichever CPU did it.\n\
                    `home` is the node of the line's memory; without a remark it is that of one of the two CPUs.\n\
                    An input gave the machine one of its costs; a prediction gave it none.\n"
        .to_owned();
    for case in cases {
        let name = case.machine.name();
        let about = case.machine.model().map_or("", |model| model.about());
        let headings: &[&str] = match case.published {
            Some(_) => &["ns", "simulated", "published", "error %", ""],
            None => &["ns", "simulated"],
        };
        let mut table = Table::new(format!("{name}: {about}"), headings);
        for of in rows.iter().filter(|row| row.scenario == name) {
            let mut cells = vec![of.row.clone(), rounded(of.summary.median)];
            if let Some(published) = of.published {
                let error = error_percent(of.summary.median, published);
                cells.extend([rounded(published), format!("{error:+.1}"), usage(case, &of.row)]);
            }
            table.row(cells);
        }
        text.push_str(&format!("\n{table}"));
        if let Some(published) = case.published {
            text.push_str(&format!("published: {}\n", published.source));
        }
    }
    text
}

/// By how much a simulated figure is above the published one.
pub(super) fn error_percent(simulated: f64, published: f64) -> f64 {
    (simulated / published - 1.0) * 100.0
}

/// Whether a figure was an input.
fn usage(case: &Case, name: &str) -> String {
    let Some(of) = case.published else { return String::new() };
    let bounces = of.bounces.iter().map(|(class, home, _, used)| (bounce_row(*class, *home), used));
    let additions = of.additions.iter().map(|(cpus, _, used)| (addition_row(*cpus), used));
    let found = bounces.chain(additions).find(|(row, _)| row == name);
    match found.map(|(_, used)| used) {
        Some(Use::Input) => "input".into(),
        Some(Use::Prediction) => "prediction".into(),
        None => String::new(),
    }
}

/// By how much simulated figures differ from published ones. Machines without published figures are drawn as bars.
pub(crate) fn picture(report: &Report) -> String {
    let (compared, alone): (Vec<_>, Vec<_>) =
        report.rows.iter().partition(|row| row.published.is_some());
    let mut diagrams: Vec<Bars> = Vec::new();
    for row in alone {
        if diagrams.last().is_none_or(|last| last.title != row.scenario) {
            let (title, axis) = (row.scenario.clone(), row.unit.into());
            diagrams.push(Bars { title, axis, ..Bars::lying(report) });
        }
        let bars = vec![Some(Bar::median(&row.summary))];
        diagrams.last_mut().expect("just made").groups.push((row.row.clone(), bars));
    }
    let mut diagrams: Vec<Diagram> = diagrams.iter().map(Bars::diagram).collect();
    if !compared.is_empty() {
        diagrams.push(differences(report, &compared).diagram());
    }
    draw("What a cache line costs", diagrams)
}

fn differences(report: &Report, rows: &[&Row]) -> Differences {
    let row = |row: &&Row| {
        let measured = row.published.map(|published| {
            let Bar { value, low, high } = Bar::median(&row.summary);
            let [value, low, high] = [value, low, high].map(|of| error_percent(of, published));
            Bar { value, low, high }
        });
        (format!("{}, {}", row.scenario, row.row), vec![Dot::measured(measured)])
    };
    Differences {
        title: "Simulated figures, above or below the published ones".into(),
        axis:
            "difference from the published figure in percent: median, least and most of the pairs"
                .into(),
        rows: rows.iter().map(row).collect(),
        ..Differences::of(report)
    }
}
