//! The tables and the picture of `sensitivity`: what is varied by conclusion.

use super::findings::{Cell, Findings, Line, Verdict};
use super::question::Bound;
use super::variation::{Change, Kind, difference};
use crate::plots::heat::{Heat, draw};
use nearq_report::{Table, rounded};
use std::ops::Range;

/// What the columns of a table stand for: less, and more.
const COLUMNS: [u64; 2] = [50, 150];
/// Costs are whole numbers: percentages that differ this little are not worth reporting.
const ROUNDING: u64 = 5;
/// Changes that are named for one conclusion; the table has all.
const MOST_NAMED: usize = 4;
/// Conclusions side by side in one table.
const MOST_COLUMNS: usize = 7;
/// For up to this many conclusions a picture shows less and more side by side; for more, the worse
/// of the two.
const MOST_PAIRS: usize = 5;
/// Lines of a picture at most: what has less effect than all these would not be visible either.
const MOST_LINES: usize = 16;

/// Everything for people.
pub(super) fn text(all: &[Findings], left_out: &[String], runs: usize, quick: bool) -> String {
    let quick = if quick { "short runs, " } else { "" };
    let mut text = format!(
        "nearq sim sensitivity: which conclusions hang on which cost, and which rule, of the simulated machine\n\
         Every cost is halved and raised by half, every rule replaced, one at a time; {quick}{runs} {} each, medians.\n",
        if runs == 1 { "seed" } else { "seeds" },
    );
    for findings in all {
        text.push_str(&format!("\n{}", section(findings)));
    }
    for (at, why) in left_out.iter().enumerate() {
        let gap = if at == 0 { "\n" } else { "" };
        text.push_str(&format!("{gap}Left out: {why}\n"));
    }
    text
}

/// `C1`, `C2`, ...
fn number(conclusion: usize) -> String {
    format!("C{}", conclusion + 1)
}

fn section(findings: &Findings) -> String {
    let Findings { experiment, machine, size, .. } = findings;
    let mut text = format!("{experiment} on {machine}: {size}\n");
    if let Some(why) = &findings.too_small {
        text.push_str(&format!("{why}\n"));
    }
    text.push('\n');
    for (at, conclusion) in findings.conclusions.iter().enumerate() {
        text.push_str(&format!(
            "  {}  {}: {} ({}), {}\n",
            number(at),
            conclusion.name,
            value(findings.base.values[at]),
            conclusion.bound,
            verdict_text(findings, at),
        ));
    }
    let count = findings.conclusions.len();
    for first in (0..count).step_by(MOST_COLUMNS) {
        let table = table(findings, first..count.min(first + MOST_COLUMNS));
        text.push_str(&format!("\n{table}"));
    }
    for (what, varied) in [
        ("not used, the same run to the last event", true),
        ("nothing to vary on this machine", false),
    ] {
        let lines = findings.lines.iter().filter(|line| !line.used && line.is_varied() == varied);
        let names: Vec<&str> = lines.map(|line| line.factor.name).collect();
        if !names.is_empty() {
            text.push_str(&format!("{what}: {}\n", names.join(", ")));
        }
    }
    text
}

/// What becomes of a conclusion, in words.
fn verdict_text(findings: &Findings, conclusion: usize) -> String {
    let base = &findings.base;
    let margins = &base.margins[conclusion];
    let agree = margins.iter().filter(|&&margin| (margin >= 0.0) == base.holds(conclusion)).count();
    let seeds = if agree == margins.len() {
        String::new()
    } else {
        format!(" (with {agree} of {} seeds)", margins.len())
    };
    match findings.verdict(conclusion) {
        Verdict::Unjudged => "not judged".into(),
        Verdict::Survives => format!("holds{seeds}, and survives every change"),
        Verdict::Fails => format!("fails as it is{seeds}"),
        Verdict::Falls => {
            let mut with = findings.falls_with(conclusion);
            let more = with.len().saturating_sub(MOST_NAMED);
            with.truncate(MOST_NAMED);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            format!("holds{seeds}, and falls with {}{more}", with.join(", "))
        }
    }
}

/// The table of some of the conclusions.
fn table(findings: &Findings, conclusions: Range<usize>) -> Table {
    let mut headings = vec![String::new()];
    headings.extend(conclusions.clone().map(number));
    headings.push("moves".into());
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let judged = findings.too_small.is_none();
    let marked = if judged { ", `!` where it fails" } else { "" };
    let title = format!(
        "The value of each conclusion with less and with more of a cost, or with the other rule{marked}; what moves a value most \
         comes first"
    );
    let mut table = Table::new(title, &headings);
    let mut cells = vec!["as it is".to_owned()];
    cells.extend(conclusions.clone().map(|at| verdict(&findings.base, at, judged)));
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
        table.row(row(line, conclusions.clone(), judged));
    }
    table
}

fn row(line: &Line, conclusions: Range<usize>, judged: bool) -> Vec<String> {
    let mut name = line.factor.describe();
    for (change, usual) in line.factor.changes.iter().zip(COLUMNS) {
        if let Some(Change::Percent(percent)) = change
            && percent.abs_diff(usual) > ROUNDING
        {
            name.push_str(&format!(" ({})", difference(*percent)));
        }
    }
    let mut cells = vec![name];
    cells.extend(conclusions.map(|at| {
        let [less, more] = line
            .cells
            .each_ref()
            .map(|cell| cell.as_ref().map_or("-".into(), |cell| verdict(cell, at, judged)));
        if is_rule(line) { more } else { format!("{less} / {more}") }
    }));
    cells.push(format!("{:.1} %", line.moves * 100.0));
    cells
}

/// Whether there is one other rule, and no less and more.
fn is_rule(line: &Line) -> bool {
    matches!(line.factor.kind, Kind::Rule(_))
}

/// `5.11`, or `1.02!` where the conclusion fails, if it is judged.
fn verdict(cell: &Cell, conclusion: usize, judged: bool) -> String {
    let mark = if cell.holds(conclusion) || !judged { "" } else { "!" };
    format!("{}{mark}", value(cell.values[conclusion]))
}

/// Ratios need a digit more than other numbers: some bounds lie close to 1.
fn value(ratio: f64) -> String {
    if ratio.abs() < 10.0 { format!("{ratio:.3}") } else { rounded(ratio) }
}

/// Margins in colour: one diagram for each experiment that is judged.
pub(super) fn picture(all: &[Findings]) -> String {
    let judged = all.iter().filter(|findings| findings.too_small.is_none());
    let diagrams: Vec<Heat> = judged.map(heat).collect();
    draw("nearq sim sensitivity: what each conclusion hangs on", &diagrams)
}

fn heat(findings: &Findings) -> Heat {
    let count = findings.conclusions.len();
    let pairs = count <= MOST_PAIRS;
    let columns = (0..count).flat_map(|at| {
        let both = COLUMNS.map(|percent| format!("{} {}", number(at), difference(percent)));
        if pairs { Vec::from(both) } else { vec![number(at)] }
    });
    let used: Vec<&Line> = findings.lines.iter().filter(|line| line.used).collect();
    let shown = &used[..used.len().min(MOST_LINES)];
    let percent = |cell: &Cell, at: usize| {
        let (Bound::AtLeast(bound) | Bound::AtMost(bound)) = findings.conclusions[at].bound;
        cell.margin(at) / bound * 100.0
    };
    let margins = |cells: [&Cell; 2]| -> Vec<f64> {
        let of = |at: usize| {
            let both = cells.map(|cell| percent(cell, at));
            if pairs { Vec::from(both) } else { vec![both[0].min(both[1])] }
        };
        (0..count).flat_map(of).collect()
    };
    let row = |line: &&Line| {
        let [less, more] =
            line.cells.each_ref().map(|cell| cell.as_ref().unwrap_or(&findings.base));
        // The other rule stands in both columns. If a cost has no less, nothing changes there.
        let less = if is_rule(line) { more } else { less };
        (line.factor.describe(), margins([less, more]))
    };
    let mut rows = vec![("as it is".to_owned(), margins([&findings.base; 2]))];
    rows.extend(shown.iter().map(row));
    let mut notes: Vec<String> = findings
        .conclusions
        .iter()
        .enumerate()
        .map(|(at, one)| format!("{}: {} ({})", number(at), one.name, one.bound))
        .collect();
    if shown.len() < used.len() {
        notes.push(format!("{} rows that move less are not shown", used.len() - shown.len()));
    }
    let which = if pairs { "" } else { ", the worse of less and more" };
    Heat {
        title: format!(
            "{} on {}: margin of each conclusion, in percent of its bound{which}",
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
        let text =
            text(&[sample(false)], &["join has none".into(), "nor has numa".into()], 2, false);
        for part in [
            "replaced, one at a time; 2 seeds each",
            "dispatch on grace-72: 60 items\n",
            "C1  shards pay: 2.100 (at least 1.5), holds, and falls with same_llc -50 %, wake rule: within the cache",
            "as it is",
            "not used, the same run to the last event: fork\n",
            "nothing to vary on this machine: interrupt\n",
            "\n\nLeft out: join has none\nLeft out: nor has numa\n",
        ] {
            assert!(text.contains(part), "{part} is missing from\n{text}");
        }
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        let words: Vec<_> = line("same_llc = 40").split_whitespace().skip(3).collect();
        assert_eq!(words, ["1.100!", "/", "3.100", "47.6", "%"]);
        let words: Vec<_> =
            line("wake rule: within the cache").split_whitespace().skip(5).collect();
        assert_eq!(words, ["1.400!", "33.3", "%"]);
        let order = ["same_llc", "wake rule", "seeds alone move", "clock", "not used"]
            .map(|name| text.lines().position(|line| line.starts_with(name)).unwrap());
        assert!(order.is_sorted(), "{order:?} in\n{text}");
    }

    #[test]
    fn what_is_too_small_is_neither_judged_nor_drawn() {
        let text = text(&[sample(true)], &[], 1, true);
        for part in [
            "short runs, 1 seed each",
            "dispatch on grace-72: 4 items\nToo small to judge: --runs 2. Give --runs 3, or more.\n",
            "C1  shards pay: 2.100 (at least 1.5), not judged\n",
        ] {
            assert!(text.contains(part), "{part} is missing from\n{text}");
        }
        assert!(!text.contains('!') && !text.contains("Left out"), "{text}");
        let drawn = |all: &[Findings]| picture(all).matches(">clock = 40<").count();
        assert_eq!((drawn(&[sample(true), sample(false)]), drawn(&[sample(true)])), (1, 0));
    }

    #[test]
    fn the_picture_has_a_row_for_each_factor_that_is_used() {
        let svg = picture(&[sample(false)]);
        for word in [
            "same_llc = 40",
            "clock = 40",
            "wake rule: within the cache",
            "C1 -50 %",
            "C1 +50 %",
            "as it is",
        ] {
            assert!(svg.contains(&format!(">{word}<")), "{word} is missing");
        }
        assert!(!svg.contains("fork"), "a cost that is not used is not drawn");
    }
}
