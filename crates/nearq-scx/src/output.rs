//! Output of this command that the shared code does not have: its name before each message, sizes and parts.

use std::fmt::Display;

pub(crate) use nearq_command::output::{flat, print, print_json, redraw};
pub(crate) use nearq_command::screen::{Side, columns, time};
pub(crate) use nearq_command::{Failure, RUN};

/// The command's name, with which its messages begin.
pub(crate) const NAME: &str = "nearq-scx";

/// Prints one line about what happens on standard error. A failed write does not matter.
pub(crate) fn print_notice(line: impl Display) {
    nearq_command::output::print_message(NAME, line);
}

/// Bytes in the unit that gives the shortest number.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

/// A part of a whole in percent; `-` if the whole is zero.
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
    fn numbers_are_abbreviated() {
        let sizes = [0, 1023, 4096, 5 << 20, 3 << 30].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "4 KiB", "5 MiB", "3.0 GiB"]);
        assert_eq!([percent(1, 3), percent(3, 3), percent(0, 0)], ["33.3%", "100.0%", "-"]);
    }
}
