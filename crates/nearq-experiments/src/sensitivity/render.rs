//! The tables and the picture of `sensitivity`: cost by conclusion.

use super::findings::{Cell, Findings, Line, Verdict};
use super::variation::difference;
use crate::report::heat::{Heat, draw};
use crate::report::{Table, rounded};

/// What the columns of a table stand for: less, and more.
const COLUMNS: [u64; 2] = [50, 150];
/// Costs are whole numbers: percentages that differ by so little need not be told.
const ROUNDING: u64 = 5;
/// Lines of a picture at most: what moves less than all these cannot be seen either.
const MOST_LINES: usize = 16;

/// Everything for people.
pub(super) fn text(all: &[Findings], runs: usize, quick: bool) -> String {
    let quick = if quick { "short runs, " } else { "" };
    let mut text = format!(
        "nearq sim sensitivity: which conclusions hang on which cost of the simulated machine\n\
         Every cost is halved and raised by half, one at a time; {quick}{runs} {} each, medians.\n",
        if runs == 1 { "seed" } else { "seeds" },
    );
    for findings in all {
        text.push_str(&format!("\n{}", section(findings)));
    }
    text
}

/// `C1`, `C2`, ...
fn number(conclusion: usize) -> String {
    format!("C{}", conclusion + 1)
}

fn section(findings: &Findings) -> String {
    let mut text = format!("{} on {}\n\n", findings.experiment, findings.machine);
    for (at, conclusion) in findings.conclusions.iter().enumerate() {
        text.push_str(&format!(
            "  {}  {}: {} ({}), {}\n",
            number(at),
            conclusion.name,
            rounded(findings.base.values[at]),
            conclusion.bound,
            fate(findings, at),
        ));
    }
    text.push_str(&format!("\n{}", table(findings)));
    text
}

/// What becomes of a conclusion, in words.
fn fate(findings: &Findings, conclusion: usize) -> String {
    match findings.verdict(conclusion) {
        Verdict::Survives => "holds, and survives every change".into(),
        Verdict::Fails => "fails as it is".into(),
        Verdict::Falls => {
            format!("holds, and falls with {}", findings.falls_with(conclusion).join(", "))
        }
    }
}

fn table(findings: &Findings) -> Table {
    let count = findings.conclusions.len();
    let mut headings = vec![String::new()];
    for at in 0..count {
        headings.extend(COLUMNS.map(|percent| format!("{} {}", number(at), difference(percent))));
    }
    headings.push("moves".into());
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let title =
        "The value of each conclusion, and whether it holds; what moves a value most comes first";
    let mut table = Table::new(title, &headings);
    let mut cells = vec!["as it is".to_owned()];
    for at in 0..count {
        cells.extend([verdict(&findings.base, at), String::new()]);
    }
    table.row(cells);
    let spread = findings.spread();
    let mut within_spread = false;
    for line in findings.lines.iter().filter(|line| line.used) {
        if !within_spread && line.moves < spread {
            within_spread = true;
            table.remark(format!(
                "seeds alone move a value by {:.1} %; what follows moves less than that:",
                spread * 100.0
            ));
        }
        table.row(row(line, count));
    }
    let unused: Vec<&str> = findings.unused().collect();
    if !unused.is_empty() {
        table.remark(format!("not used, the same run to the last event: {}", unused.join(", ")));
    }
    table
}

fn row(line: &Line, conclusions: usize) -> Vec<String> {
    let mut cells = vec![line.factor.describe()];
    for at in 0..conclusions {
        cells.extend([0, 1].map(|column| {
            let Some(cell) = &line.cells[column] else { return "-".into() };
            let exact = if cell.percent.abs_diff(COLUMNS[column]) <= ROUNDING {
                String::new()
            } else {
                format!(" ({})", difference(cell.percent))
            };
            format!("{}{exact}", verdict(cell, at))
        }));
    }
    cells.push(format!("{:.1} %", line.moves * 100.0));
    cells
}

/// `5.11 holds`.
fn verdict(cell: &Cell, conclusion: usize) -> String {
    let word = if cell.holds(conclusion) { "holds" } else { "fails" };
    format!("{} {word}", rounded(cell.values[conclusion]))
}

/// Margins in colour: one diagram for each experiment.
pub(super) fn picture(all: &[Findings]) -> String {
    let diagrams: Vec<Heat> = all.iter().map(heat).collect();
    draw("nearq sim sensitivity: what each conclusion hangs on", &diagrams)
}

fn heat(findings: &Findings) -> Heat {
    let count = findings.conclusions.len();
    let columns = (0..count)
        .flat_map(|at| COLUMNS.map(|percent| format!("{} {}", number(at), difference(percent))));
    let used: Vec<&Line> = findings.lines.iter().filter(|line| line.used).collect();
    let shown = &used[..used.len().min(MOST_LINES)];
    let row = |line: &&Line| {
        let margins = (0..count).flat_map(|at| {
            // Where there is no less, nothing changes.
            line.cells.each_ref().map(|cell| cell.as_ref().unwrap_or(&findings.base).margin(at))
        });
        (line.factor.describe(), margins.collect())
    };
    let base = (0..count).flat_map(|at| [findings.base.margin(at); 2]).collect();
    let mut rows = vec![("as it is".to_owned(), base)];
    rows.extend(shown.iter().map(row));
    let mut notes: Vec<String> = findings
        .conclusions
        .iter()
        .enumerate()
        .map(|(at, one)| format!("{}: {} ({})", number(at), one.name, one.bound))
        .collect();
    if shown.len() < used.len() {
        notes.push(format!("{} costs that move less are not shown", used.len() - shown.len()));
    }
    Heat {
        title: format!(
            "{} on {}: margin of each conclusion",
            findings.experiment, findings.machine
        ),
        scale: "blue: holds by that much; red: fails by that much".into(),
        columns: columns.collect(),
        rows,
        notes,
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings::tests::sample;
    use super::*;

    #[test]
    fn the_table_says_what_holds_where() {
        let text = text(&[sample()], 2, true);
        for part in [
            "short runs, 2 seeds each",
            "dispatch on grace-72",
            "C1  shards pay: 2.10 (at least 1.5), holds, and falls with same_llc -50 %",
            "as it is",
            "not used, the same run to the last event: fork",
        ] {
            assert!(text.contains(part), "{part} is missing from\n{text}");
        }
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        let words: Vec<_> = line("same_llc = 40").split_whitespace().skip(3).collect();
        assert_eq!(words, ["1.10", "fails", "3.10", "holds", "47.6", "%"]);
        let order = ["same_llc", "seeds alone move", "clock", "not used"]
            .map(|name| text.lines().position(|line| line.starts_with(name)).unwrap());
        assert!(order.is_sorted(), "{order:?} in\n{text}");
    }

    #[test]
    fn the_picture_has_a_row_for_each_cost_that_is_used() {
        let svg = picture(&[sample()]);
        for word in ["same_llc = 40", "clock = 40", "C1 -50 %", "C1 +50 %", "as it is"] {
            assert!(svg.contains(&format!(">{word}<")), "{word} is missing");
        }
        assert!(!svg.contains("fork"), "a cost that is not used is not drawn");
    }
}
