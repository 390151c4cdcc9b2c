//! Results and progress messages of a command. No text printed here contains control characters for the terminal; see
//! [`nearq_topology::safe_text::plain`].

use std::fmt::Display;
use std::io::{self, Write};

pub use nearq_topology::safe_text::{escaped_json, page, plain};

use crate::Failure;
use crate::patient::Patient;
use crate::screen::{folded, width_of};

/// The text in one line: a file's name, an argument or a message of the kernel may contain line breaks and worse.
pub fn flat(text: &str) -> String {
    plain(text.replace(['\n', '\r', '\t'], " ").trim_end())
}

/// Prints one line about progress to standard error, prefixed with the command's name. It is not an error if nothing reads the line.
pub fn print_message(command: &str, line: impl Display) {
    Patient::write_stderr(&format!("{command}: {}\n", flat(&line.to_string())));
}

/// Prints to standard output. A reader that is gone (`| head`) is not a failure.
///
/// # Errors
/// Standard output cannot be written, for another reason.
pub fn print(text: &str) -> Result<(), Failure> {
    try_print(text).map(drop)
}

/// Prints text for people: on a terminal, in lines that fit its width. Elsewhere no line is broken.
///
/// # Errors
/// The same as of [`print()`].
pub fn print_text(text: &str) -> Result<(), Failure> {
    try_print_text(text).map(drop)
}

/// Prints text for people, as [`print_text`] does; returns whether there is still a reader.
///
/// # Errors
/// The same as of [`print()`].
pub fn try_print_text(text: &str) -> Result<bool, Failure> {
    // What steers a terminal counts as no column, so it is taken out before the lines are measured.
    try_print(&folded(&page(text), width_of(&io::stdout())))
}

/// Prints JSON.
///
/// # Errors
/// The same as of [`print()`].
pub fn print_json(json: &str) -> Result<(), Failure> {
    print(&escaped_json(json))
}

/// Prints to standard output; returns whether there is still a reader.
///
/// # Errors
/// The same as of [`print()`].
pub fn try_print(text: &str) -> Result<bool, Failure> {
    write_to(Patient::stdout(), page(text).as_bytes())
}

/// Prints a part of the result to standard error, in lines that fit if that is a terminal; if it is not read, it is lost.
pub fn print_aside(text: &str) {
    Patient::write_stderr(&folded(&page(text), width_of(&io::stderr())));
}

/// Prints a page over the previous one if the terminal can do that; otherwise after it. Returns whether there is still a reader.
///
/// # Errors
/// The same as of [`print()`].
pub fn redraw(text: &str) -> Result<bool, Failure> {
    let mut text = folded(&page(text), width_of(&io::stdout()));
    if crate::screen::is_steered(&io::stdout()) {
        // Move the cursor home, clear each line to its end, then clear everything below.
        text = format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n"));
    }
    write_to(Patient::stdout(), text.as_bytes())
}

/// Writes everything at once; returns whether there is still a reader.
fn write_to(out: io::Result<impl Write>, bytes: &[u8]) -> Result<bool, Failure> {
    match out.and_then(|mut out| out.write_all(bytes)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::run(format!("standard output cannot be written: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that always fails, with an error.
    struct Refuses(io::ErrorKind);

    impl Write for Refuses {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_stays_one_line_whatever_it_contains() {
        assert_eq!(
            flat("no file a\nb\u{1b}[31m\tc\u{202e}\u{9b}\n"),
            "no file a b\u{fffd}[31m c\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn a_closed_pipe_is_no_failure_but_a_full_disk_is() {
        let mut out = Vec::new();
        assert_eq!(write_to(Ok(&mut out), b"\xff\n"), Ok(true));
        assert_eq!(out, b"\xff\n");
        assert_eq!(write_to(Ok(Refuses(io::ErrorKind::BrokenPipe)), b"x"), Ok(false));
        let failure = write_to(Ok(Refuses(io::ErrorKind::StorageFull)), b"x").unwrap_err();
        assert!(
            failure.to_string().starts_with("standard output cannot be written: "),
            "{failure}"
        );
    }
}
