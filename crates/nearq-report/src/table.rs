//! Tables in plain text: columns that line up, whatever the width of their numbers.

use nearq_command::screen::{self, Side, plain};
use std::fmt;

/// A table in plain text; its cells contain no control characters for a terminal. The first column is aligned to the left, the others to
/// the right.
#[derive(Clone, Debug, Default)]
pub struct Table {
    title: String,
    headings: Vec<String>,
    lines: Vec<Line>,
}

#[derive(Clone, Debug)]
enum Line {
    Cells(Vec<String>),
    Remark(String),
}

impl Table {
    /// An empty table under `title`.
    pub fn new(title: impl Into<String>, headings: &[&str]) -> Self {
        Self {
            title: title.into(),
            headings: headings.iter().map(ToString::to_string).collect(),
            lines: Vec::new(),
        }
    }

    /// Adds a line of cells, one for each heading; missing ones are empty.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert!(cells.len() <= self.headings.len(), "more cells than headings");
        self.lines.push(Line::Cells(cells.iter().map(|cell| plain(cell)).collect()));
    }

    /// Adds a line that belongs to no column: the name at the left, then free text.
    pub fn remark(&mut self, text: impl Into<String>) {
        self.lines.push(Line::Remark(text.into()));
    }
}

impl Table {
    /// The text in lines of at most `width` columns if that is given: for that, whole columns are left out, those in `spare` one after the
    /// other.
    pub fn fitted(&self, spare: &[usize], width: Option<usize>) -> String {
        let rows = self.lines.iter().filter_map(|line| match line {
            Line::Cells(cells) => Some(cells),
            Line::Remark(_) => None,
        });
        let widths = screen::widths(self.headings.len(), rows.chain([&self.headings]));
        let kept = screen::kept(&widths, spare, width.unwrap_or(usize::MAX));
        let side = |column: usize| if column == 0 { Side::Left } else { Side::Right };
        let sides: Vec<Side> = kept.iter().map(|&column| side(column)).collect();
        let kept_widths: Vec<usize> = kept.iter().map(|&column| widths[column]).collect();
        let row = |cells: &[String]| {
            let of = |&column: &usize| cells.get(column).cloned().unwrap_or_default();
            screen::row(&sides, &kept_widths, &kept.iter().map(of).collect::<Vec<_>>())
        };
        let mut text = String::new();
        if !self.title.is_empty() {
            text += &format!("{}\n\n", self.title);
        }
        text += &row(&self.headings);
        text += &format!("{}\n", "-".repeat(screen::line_width(&kept, &widths)));
        for line in &self.lines {
            match line {
                Line::Cells(cells) => text += &row(cells),
                Line::Remark(remark) => text += &format!("{remark}\n"),
            }
        }
        text
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fitted(&[], None))
    }
}

/// `mean ±deviation`, as the documents print it.
pub fn plus_minus(mean: f64, deviation: f64) -> String {
    format!("{mean:.2} ±{deviation:.2}")
}

/// A number with as many digits as a reader can use: three significant digits, at most two after the point.
pub fn rounded(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_by_characters_not_bytes() {
        let mut table = Table::new("HIGH", &["", "MiB/s", "CPU"]);
        table.row(vec!["system".into(), "1159.40 ±1.34".into(), "99".into()]);
        table.row(vec!["cache".into(), "5".into()]);
        table.remark("numa          = system");
        let expected = "HIGH\n\n                MiB/s  CPU\n\
                        --------------------------\n\
                        system  1159.40 ±1.34   99\n\
                        cache               5\n\
                        numa          = system\n";
        assert_eq!(table.to_string(), expected);
        assert_eq!(table.fitted(&[2, 1], Some(26)), expected);
        let narrow = "HIGH\n\n                MiB/s\n\
                      ---------------------\n\
                      system  1159.40 ±1.34\n\
                      cache               5\n\
                      numa          = system\n";
        assert_eq!(table.fitted(&[2, 1], Some(25)), narrow);
        assert!(table.fitted(&[2, 1], Some(5)).starts_with("HIGH\n\n\n------\nsystem\n"));
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        assert_eq!(rounded(1234.56), "1235");
        assert_eq!(rounded(-12.34), "-12.3");
        assert_eq!(rounded(0.014), "0.01");
        assert_eq!(plus_minus(1159.4, 1.336), "1159.40 ±1.34");
    }
}
