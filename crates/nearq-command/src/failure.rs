//! How a command ends when it cannot continue: one line on standard error, and an exit status.

use std::fmt::{self, Display};
use std::process::ExitCode;

use crate::output::{flat, page};
use crate::patient::Patient;

/// The exit status for invalid input, and for a request that this machine does not support.
pub const INPUT: u8 = 2;
/// The exit status for something that was started and failed.
pub const RUN: u8 = 1;

/// Why the command ends without having done its work.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    status: u8,
    text: String,
    /// Whether the line breaks of the text are kept.
    whole: bool,
}

impl Failure {
    /// The request cannot be carried out; the text names the value and what is allowed.
    pub fn input(text: impl Display) -> Self {
        Self::with_status(INPUT, text)
    }

    /// The work was started and failed.
    pub fn run(text: impl Display) -> Self {
        Self::with_status(RUN, text)
    }

    /// A failure with another exit status.
    pub fn with_status(status: u8, text: impl Display) -> Self {
        Self { status, text: text.to_string(), whole: false }
    }

    /// Keeps the line breaks, for a page of help.
    #[must_use]
    pub fn whole(self) -> Self {
        Self { whole: true, ..self }
    }

    /// Prints it to standard error, prefixed with the command's name.
    pub fn report(self, command: &str) -> ExitCode {
        // If standard error is no longer read, the exit status still tells the result.
        Patient::write_stderr(&(self.message(command) + "\n"));
        ExitCode::from(self.status)
    }

    fn message(&self, command: &str) -> String {
        if self.whole {
            page(&self.text).into_owned()
        } else {
            format!("{command}: {}", flat(&self.text))
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_with_the_command_name_and_a_page_stays_a_page() {
        let failure = Failure::input("no file a\nb\u{1b}[31m\tc\n");
        assert_eq!(failure.message("nearq"), "nearq: no file a b\u{fffd}[31m c");
        assert_eq!(failure.to_string(), "no file a\nb\u{1b}[31m\tc\n");
        assert_eq!(failure.whole().message("nearq"), "no file a\nb\u{fffd}[31m\tc\n");
    }

    #[test]
    fn the_exit_status_depends_on_the_kind_of_failure() {
        assert_eq!(Failure::input("x").status, 2);
        assert_eq!(Failure::run("x").status, 1);
        assert_eq!(Failure::with_status(127, "x").whole().status, 127);
    }
}
