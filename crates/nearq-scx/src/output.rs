//! What the command prints, and how it ends when it cannot go on.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// The exit status for input that cannot be used, and for a machine that cannot do it.
pub(crate) const INPUT: u8 = 2;
/// The exit status for what was begun and went wrong.
pub(crate) const RUN: u8 = 1;

/// Why the command ends without having done what it was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    status: u8,
    text: String,
    /// A text of several lines is meant to have them.
    whole: bool,
}

impl Failure {
    /// What was asked for cannot be done; the text names the value and what is allowed.
    pub(crate) fn input(text: impl Display) -> Self {
        Self { status: INPUT, text: text.to_string(), whole: false }
    }

    /// It was begun and went wrong.
    pub(crate) fn run(text: impl Display) -> Self {
        Self { status: RUN, text: text.to_string(), whole: false }
    }

    /// The same with an exit status of its own.
    pub(crate) fn with_status(status: u8, text: impl Display) -> Self {
        Self { status, text: text.to_string(), whole: false }
    }

    /// Keeps the line breaks: this is a page of help.
    pub(crate) fn whole(self) -> Self {
        Self { whole: true, ..self }
    }

    /// Says so on standard error.
    pub(crate) fn report(self) -> ExitCode {
        let text = if self.whole { self.text } else { format!("nearq-scx: {}", flat(&self.text)) };
        // Nobody reads standard error any more: the exit status says the rest.
        let _ = writeln!(io::stderr(), "{text}");
        ExitCode::from(self.status)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// The text in one line: what the kernel or a command line says may have line breaks and worse in it.
pub(crate) fn flat(text: &str) -> String {
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.collect::<String>().trim_end().to_owned()
}

/// Tells one line of what happens, on standard error. Nobody need listen.
pub(crate) fn tell(line: impl Display) {
    let _ = writeln!(io::stderr(), "nearq-scx: {}", flat(&line.to_string()));
}

/// Prints to standard output. A reader that went away (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    try_print(text).map(drop)
}

/// Prints to standard output; says whether there is still a reader.
pub(crate) fn try_print(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::run(format!("standard output cannot be written: {error}"))),
    }
}

/// To which side a column's texts go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Rows in columns, two blanks apart, each as wide as it has to be. All is ASCII here.
pub(crate) fn columns(sides: &[Side], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..sides.len())
        .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).zip(sides).map(|((cell, &width), side)| match side {
            Side::Left => format!("{cell:<width$}"),
            Side::Right => format!("{cell:>width$}"),
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// A time in the unit in which it is short.
pub(crate) fn time(ns: u64) -> String {
    let value = ns as f64;
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns}ns"),
        1_000..1_000_000 => (value / 1e3, "us"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    if value < 9.95 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

/// Bytes in the unit in which they are short.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

/// A part of a whole in percent; `-` of nothing.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1}%", part as f64 * 100.0 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_whatever_the_argument_holds() {
        assert_eq!(flat("no file a\nb\u{1b}[31m\tc\n"), "no file a b [31m c");
    }

    #[test]
    fn numbers_are_short() {
        let times = [0, 999, 1_000, 9_940, 12_345, 1_500_000, 99_600_000, 2_000_000_000].map(time);
        assert_eq!(times, ["0ns", "999ns", "1.0us", "9.9us", "12us", "1.5ms", "100ms", "2.0s"]);
        let sizes = [0, 1023, 4096, 5 << 20, 3 << 30].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "4 KiB", "5 MiB", "3.0 GiB"]);
        assert_eq!([percent(1, 3), percent(3, 3), percent(0, 0)], ["33.3%", "100.0%", "-"]);
    }

    #[test]
    fn columns_are_as_wide_as_the_widest_cell_and_nothing_trails() {
        let row = |cells: [&str; 2]| cells.map(String::from).to_vec();
        let rows = [row(["PID", "NAME"]), row(["12345", ""])];
        assert_eq!(columns(&[Side::Right, Side::Left], &rows), "  PID  NAME\n12345\n");
    }
}
