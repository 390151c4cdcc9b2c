//! Properties of the terminal, and text for it: columns and times.

use std::env;
use std::io::IsTerminal;
use std::os::fd::AsFd;

use terminal_size::{Width, terminal_size_of};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

pub use nearq_topology::safe_text::plain;

/// The width if standard output is not a terminal.
const ELSEWHERE: usize = 100;
/// A smaller width is treated as this one.
const NARROW: usize = 40;

/// Columns and lines of a terminal that does not know its size, as on serial lines and in some containers.
pub const UNKNOWN: (u16, u16) = (80, 24);

/// The width of the terminal.
pub fn width() -> usize {
    let out = std::io::stdout();
    let unknown = if out.is_terminal() { usize::from(UNKNOWN.0) } else { ELSEWHERE };
    terminal_size_of(out).map_or(unknown, |(Width(width), _)| usize::from(width)).max(NARROW)
}

/// The width of the terminal that `stream` is; `None` if it is none: a file or a pipe gets lines of any length.
pub fn width_of(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    let size = || terminal_size_of(stream).map_or(UNKNOWN.0, |(Width(width), _)| width);
    stream.is_terminal().then(|| usize::from(size()))
}

/// Whether `stream` is a terminal that can move its cursor and clear lines: not if TERM is `dumb` or not set.
pub fn is_steered(stream: &impl IsTerminal) -> bool {
    let term = env::var_os("TERM").unwrap_or_default();
    stream.is_terminal() && !term.is_empty() && term != "dumb"
}

/// The greatest width of a table's column: a longer text makes only its own row longer.
const WIDEST: usize = 256;

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// To the left, as texts do.
    Left,
    /// To the right, as numbers do.
    Right,
}

/// Text padded to a number of columns.
pub fn pad(text: &str, columns: usize, side: Side) -> String {
    let blanks = " ".repeat(columns.saturating_sub(text.width()));
    match side {
        Side::Left => format!("{text}{blanks}"),
        Side::Right => format!("{blanks}{text}"),
    }
}

/// A text, or a dash if there is none.
pub fn or_dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| text.to_string())
}

/// Blanks between two columns.
pub const GAP: usize = 2;

/// The width that each column needs.
pub fn widths<'a>(
    columns: usize,
    rows: impl IntoIterator<Item = &'a Vec<String>> + Clone,
) -> Vec<usize> {
    let widest = |column: usize| {
        let cells = rows.clone().into_iter().filter_map(move |row| row.get(column));
        cells.map(|cell: &String| cell.width()).max().unwrap_or(0)
    };
    (0..columns).map(|column| widest(column).min(WIDEST)).collect()
}

/// A row in columns of these widths, as a line.
pub fn row(sides: &[Side], widths: &[usize], cells: &[String]) -> String {
    let cells = cells.iter().zip(widths).zip(sides);
    let cells: Vec<String> = cells.map(|((cell, &width), &side)| pad(cell, width, side)).collect();
    cells.join(&" ".repeat(GAP)).trim_end().to_owned() + "\n"
}

/// Rows in columns, each as wide as it needs to be.
pub fn columns(sides: &[Side], rows: &[Vec<String>]) -> String {
    let widths = widths(sides.len(), rows);
    rows.iter().map(|cells| row(sides, &widths, cells)).collect()
}

/// Rows in columns, in lines of at most `width` columns if that is given. For that, whole columns are left out, those in `spare` one after
/// the other, and then the texts of the last column are cut.
pub fn fitted(
    sides: &[Side],
    rows: &[Vec<String>],
    spare: &[usize],
    width: Option<usize>,
) -> String {
    let Some(width) = width else { return columns(sides, rows) };
    let mut widths = widths(sides.len(), rows);
    let last = widths.len().saturating_sub(1);
    let is_cut = sides.last() == Some(&Side::Left);
    let mut least = widths.clone();
    if is_cut {
        least[last] = least[last].min(SHORTEST_CUT);
    }
    let kept = kept(&least, spare, width);
    if is_cut {
        let before = kept.iter().filter(|&&column| column != last);
        let before: usize = before.map(|&column| widths[column] + GAP).sum();
        widths[last] = widths[last].min(width.saturating_sub(before));
    }
    let of = |cells: &[String]| -> Vec<String> {
        kept.iter().filter_map(|&column| Some(head(cells.get(column)?, widths[column]))).collect()
    };
    let (sides, widths): (Vec<Side>, Vec<usize>) =
        kept.iter().map(|&column| (sides[column], widths[column])).unzip();
    rows.iter().map(|cells| row(&sides, &widths, &of(cells))).collect()
}

/// The columns of these widths that remain in lines of at most `width` columns: those in `spare` are left out one after the other, until the
/// others fit.
pub fn kept(widths: &[usize], spare: &[usize], width: usize) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..widths.len()).collect();
    for column in spare {
        if line_width(&kept, widths) <= width {
            break;
        }
        kept.retain(|kept| kept != column);
    }
    kept
}

/// How wide a line with the columns `kept` is.
pub fn line_width(kept: &[usize], widths: &[usize]) -> usize {
    let total: usize = kept.iter().map(|&column| widths[column]).sum();
    total + GAP * kept.len().saturating_sub(1)
}

/// The least width to which the last column is cut before other columns are left out.
const SHORTEST_CUT: usize = 16;

/// The text in at most `columns` columns; a longer one ends in dots.
fn head(text: &str, columns: usize) -> String {
    if text.width() <= columns || columns == WIDEST {
        return text.to_owned();
    }
    let dots = &"..."[..columns.min(3)];
    let mut left = columns - dots.len();
    let fits = |c: &char| {
        let rest = left.checked_sub(c.width().unwrap_or(0));
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    let cut: String = text.chars().take_while(fits).collect();
    cut + dots
}

/// A number and what it counts, in the plural if it is not one: `1 job`, `2 jobs`.
pub fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// The words after `head`, in lines of at most `width` columns; further lines are indented by the length of `head`.
pub fn wrapped(
    head: &str,
    words: impl IntoIterator<Item = impl AsRef<str>>,
    width: usize,
) -> String {
    let indent = head.width();
    let mut text = head.to_owned();
    let mut column = indent;
    for (index, word) in words.into_iter().enumerate() {
        let word = word.as_ref();
        let wide = word.width();
        if index != 0 && column + 1 + wide > width {
            text.truncate(text.trim_end().len());
            text.push('\n');
            text += &" ".repeat(indent);
            column = indent;
        } else if index != 0 {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += wide;
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// The text in lines of at most `width` columns, if that is given. A longer line is broken at blanks and continues below its last column, or
/// two columns further to the right than it began. A single word is not broken: the terminal does that, and what is copied stays whole.
pub fn folded(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let mut folded = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let rest = line.strip_suffix('\n').unwrap_or(line);
        fold(rest, width, &mut folded);
        folded.push_str(&line[rest.len()..]);
    }
    folded
}

/// Adds a line, in several lines if it is too long.
fn fold(line: &str, width: usize, folded: &mut String) {
    let begin = line.len() - line.trim_start().len();
    let column = last_gap(line).map_or(0, |end| line[..end].width());
    let indent = if column > begin { column } else { begin + 2 };
    let indent = if indent <= width / 2 { indent } else { (begin + 2).min(width / 2) };
    let (mut rest, mut from, mut room) = (line, begin, width);
    while let Some(end) = end_of_first(rest, from, room) {
        folded.push_str(rest[..end].trim_end());
        rest = rest[end..].trim_start();
        if rest.is_empty() {
            return;
        }
        folded.push('\n');
        folded.push_str(&" ".repeat(indent));
        (from, room) = (0, width - indent);
    }
    folded.push_str(rest);
}

/// Where the last gap of a line ends: two blanks or more between words.
pub(crate) fn last_gap(text: &str) -> Option<usize> {
    let at = text.trim_end().rfind("  ")?;
    Some(at + text[at..].len() - text[at..].trim_start().len())
}

/// The length of the first line of a text that does not fit into `width` columns: up to the last blank that is in them, or, if its first
/// word is longer, up to the first blank. The first `from` bytes do not count as blanks. `None` if the text fits, or is one word.
fn end_of_first(text: &str, from: usize, width: usize) -> Option<usize> {
    let (mut column, mut end) = (0, None);
    for (at, c) in text.char_indices() {
        if c == ' ' && at >= from && (column <= width || end.is_none()) {
            end = Some(at);
        }
        column += c.width().unwrap_or(0);
        if column > width && end.is_some() {
            return end;
        }
    }
    None
}

/// The text in at most `width` columns. Of a longer text the end is kept, after a mark, because names differ in their ends.
pub fn tail(text: &str, columns: usize, mark: char) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    // Measured from the end on, because a name may have thousands of letters. Letters together are no wider than the sum of their widths.
    let Some(mut left) = columns.checked_sub(1) else { return String::new() };
    let mut from = text.len();
    for (at, c) in text.char_indices().rev() {
        let Some(rest) = left.checked_sub(c.width().unwrap_or(0)) else { break };
        (left, from) = (rest, at);
    }
    format!("{mark}{}", &text[from..])
}

/// A time in the unit that makes it short.
pub fn time(ns: u64) -> String {
    let value = ns as f64;
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns}ns"),
        1_000..1_000_000 => (value / 1e3, "us"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    if value < 9.95 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let times =
            [0, 999, 1_000, 9_940, 12_345, 1_500_000, 99_600_000, 2_000_000_000, 3_600_000_000_000];
        let shown = times.map(time);
        assert_eq!(
            shown,
            ["0ns", "999ns", "1.0us", "9.9us", "12us", "1.5ms", "100ms", "2.0s", "3600s"]
        );
    }

    #[test]
    fn columns_fit_the_widest_cell_without_trailing_spaces() {
        let row = |cells: [&str; 3]| cells.map(String::from).to_vec();
        let rows = [row(["PID", "NAME", "REST"]), row(["12345", "äö", ""])];
        let text = columns(&[Side::Right, Side::Left, Side::Left], &rows);
        assert_eq!(text, "  PID  NAME  REST\n12345  äö\n");
        let long = "x".repeat(100_000);
        let rows = [row(["1", &long, "a"]), row(["2", "", "b"])];
        let text = columns(&[Side::Left; 3], &rows);
        assert!(text.ends_with(&format!("\n2  {}  b\n", " ".repeat(WIDEST))), "{}", text.len());
    }

    #[test]
    fn narrow_terminals_get_fewer_columns_and_no_longer_lines() {
        let row = |cells: [&str; 4]| cells.map(String::from).to_vec();
        let rows = [
            row(["PID", "USER", "JOBS", "COMMAND"]),
            row(["12345", "ann", "7", "日本 server --with many words"]),
        ];
        let sides = [Side::Right, Side::Left, Side::Right, Side::Left];
        let at = |width| fitted(&sides, &rows, &[2, 1], width);
        assert_eq!(at(None), columns(&sides, &rows));
        assert_eq!(at(Some(100)), columns(&sides, &rows));
        assert_eq!(
            at(Some(35)),
            "  PID  USER  JOBS  COMMAND\n12345  ann      7  日本 server -...\n"
        );
        assert_eq!(at(Some(30)), "  PID  USER  COMMAND\n12345  ann   日本 server --...\n");
        assert_eq!(at(Some(24)), "  PID  COMMAND\n12345  日本 server --...\n");
        for width in 12..100 {
            let text = at(Some(width));
            assert!(text.lines().all(|line| line.width() <= width), "{width}: {text}");
        }
        // A last column that is left out takes no room.
        let rows = [row(["A", "BBBB", "CCCC", "DDDDDDDDDD"])];
        let sides = [Side::Right; 4];
        assert_eq!(fitted(&sides, &rows, &[3, 2, 1], Some(13)), "A  BBBB  CCCC\n");
        assert_eq!(fitted(&sides, &rows, &[3, 2, 1], Some(12)), "A  BBBB\n");
        // A column of numbers is not cut.
        let numbers = fitted(
            &[Side::Left, Side::Right],
            &[vec!["name".into(), "123456".into()]],
            &[],
            Some(5),
        );
        assert_eq!(numbers, "name  123456\n");
    }

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "job")), ["0 jobs", "1 job", "2 jobs"]);
    }

    #[test]
    fn lines_are_broken_between_words() {
        let words: Vec<String> = (0..6).map(|n| format!("[{n}]=0")).collect();
        assert_eq!(
            wrapped("  head  ", &words, 26),
            "  head  [0]=0 [1]=0 [2]=0\n        [3]=0 [4]=0 [5]=0\n"
        );
        assert_eq!(wrapped("  none  ", [""; 0], 26), "  none\n");
    }

    #[test]
    fn long_lines_continue_below_their_last_column() {
        assert_eq!(folded("one two three", None), "one two three");
        assert_eq!(folded("one two\n\n  a\n", Some(7)), "one two\n\n  a\n");
        assert_eq!(folded("one two three\nfour\n", Some(9)), "one two\n  three\nfour\n");
        assert_eq!(
            folded("  cpu    4  0 | 1 | 2 | 3\n", Some(24)),
            "  cpu    4  0 | 1 | 2 |\n            3\n"
        );
        // The last column begins too far to the right.
        assert_eq!(folded("aaaa bbbb  cc dd ee", Some(14)), "aaaa bbbb  cc\n  dd ee");
        // A word is not broken, whether it comes first or later.
        assert_eq!(folded("/a/long/path b", Some(6)), "/a/long/path\n  b");
        assert_eq!(folded("b /a/long/path", Some(6)), "b\n  /a/long/path");
        assert_eq!(folded("日本 日本 日本", Some(10)), "日本 日本\n  日本");
        let text = "  word".repeat(100_000);
        let lines = folded(&text, Some(40));
        assert!(lines.lines().all(|line| line.width() <= 40));
        assert_eq!(lines.split_whitespace().count(), 100_000);
    }

    #[test]
    fn long_names_lose_their_beginning() {
        assert_eq!(tail("kcryptd/253:0", 13, '~'), "kcryptd/253:0");
        assert_eq!(tail("kcryptd/253:0", 6, '~'), "~253:0");
        assert_eq!(tail("ab", 1, '~'), "~");
        assert_eq!(tail("ab", 0, '~'), "");
        // Each is two columns wide.
        assert_eq!(tail("日本語", 5, '~'), "~本語");
    }
}
