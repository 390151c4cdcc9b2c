//! Tables in plain text: columns that line up, whatever the width of their numbers.

use nearq_command::screen::{self, GAP, Side, plain};
use std::{fmt, iter};

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

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sides = iter::once(Side::Left).chain(iter::repeat(Side::Right));
        let sides: Vec<Side> = sides.take(self.headings.len()).collect();
        let rows = self.lines.iter().filter_map(|line| match line {
            Line::Cells(cells) => Some(cells),
            Line::Remark(_) => None,
        });
        let widths = screen::widths(sides.len(), rows.chain([&self.headings]));
        if !self.title.is_empty() {
            writeln!(f, "{}\n", self.title)?;
        }
        f.write_str(&screen::row(&sides, &widths, &self.headings))?;
        let total = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        writeln!(f, "{}", "-".repeat(total))?;
        for line in &self.lines {
            match line {
                Line::Cells(cells) => f.write_str(&screen::row(&sides, &widths, cells))?,
                Line::Remark(text) => writeln!(f, "{text}")?,
            }
        }
        Ok(())
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
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        assert_eq!(rounded(1234.56), "1235");
        assert_eq!(rounded(-12.34), "-12.3");
        assert_eq!(rounded(0.014), "0.01");
        assert_eq!(plus_minus(1159.4, 1.336), "1159.40 ±1.34");
    }
}
