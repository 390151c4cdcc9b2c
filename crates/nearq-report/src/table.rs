//! Tables in plain text: columns that line up, whatever the width of their numbers.

use nearq_command::screen::plain;
use std::fmt;

/// A table in plain text; in its cells is no character that would steer a terminal. The first column is aligned to the left, the others to the right.
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

/// What stands between two columns.
const GAP: &str = "  ";

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

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.headings.iter().map(|text| width(text)).collect();
        for line in &self.lines {
            if let Line::Cells(cells) = line {
                for (widest, cell) in widths.iter_mut().zip(cells) {
                    *widest = (*widest).max(width(cell));
                }
            }
        }
        widths
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn write_cells(f: &mut fmt::Formatter<'_>, cells: &[String], widths: &[usize]) -> fmt::Result {
    let mut line = String::new();
    for (index, (cell, &width)) in cells.iter().zip(widths).enumerate() {
        if index == 0 {
            line.push_str(&format!("{cell:<width$}"));
        } else {
            line.push_str(&format!("{GAP}{cell:>width$}"));
        }
    }
    writeln!(f, "{}", line.trim_end())
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        if !self.title.is_empty() {
            writeln!(f, "{}\n", self.title)?;
        }
        write_cells(f, &self.headings, &widths)?;
        let total = widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
        writeln!(f, "{}", "-".repeat(total))?;
        for line in &self.lines {
            match line {
                Line::Cells(cells) => write_cells(f, cells, &widths)?,
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

/// A number with as many digits as a reader can use: three significant ones, at most two after the point.
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
    fn numbers_keep_three_digits() {
        assert_eq!(rounded(1234.56), "1235");
        assert_eq!(rounded(-12.34), "-12.3");
        assert_eq!(rounded(0.014), "0.01");
        assert_eq!(plus_minus(1159.4, 1.336), "1159.40 ±1.34");
    }
}
