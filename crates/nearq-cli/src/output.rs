//! What the command prints and writes, and how it ends when it cannot go on.

use std::fmt::Display;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

/// The exit status for input that cannot be used.
const INPUT: u8 = 2;
/// The exit status for a run that failed.
const RUN: u8 = 1;

/// Why the command ends without having done what it was asked for.
#[derive(Debug)]
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
        let text = if self.whole { self.text } else { format!("nearq: {}", flat(&self.text)) };
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

impl From<nearq_experiments::Error> for Failure {
    fn from(error: nearq_experiments::Error) -> Self {
        Self { status: error.exit_status(), text: error.to_string(), whole: false }
    }
}

/// The text in one line: a file's name or an argument may have line breaks and worse in it.
fn flat(text: &str) -> String {
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.collect::<String>().trim_end().to_owned()
}

/// Prints to standard output. A reader that went away (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    try_print(text).map(drop)
}

/// Prints what need not be a text.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    try_print_bytes(bytes).map(drop)
}

/// Prints to standard output; says whether there is still a reader.
pub(crate) fn try_print(text: &str) -> Result<bool, Failure> {
    try_print_bytes(text.as_bytes())
}

fn try_print_bytes(bytes: &[u8]) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::run(format!("standard output cannot be written: {error}"))),
    }
}

/// Prints a value as JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::run)?;
    print(&(text + "\n"))
}

/// Writes a file that the option `option` names.
pub(crate) fn write(option: &str, path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| {
        Failure::input(format!(
            "{option} {}: cannot be written: {error}; give a file in a folder that you may write",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_whatever_the_argument_holds() {
        assert_eq!(flat("no file a\nb\u{1b}[31m\tc\n"), "no file a b [31m c");
    }
}
