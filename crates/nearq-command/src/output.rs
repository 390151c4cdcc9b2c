//! What a command prints, and what it tells while it goes on.

use std::fmt::Display;
use std::io::{self, Write};

use crate::Failure;

/// The text in one line: a file's name, an argument or what the kernel says may have line breaks and worse in it.
pub fn flat(text: &str) -> String {
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.collect::<String>().trim_end().to_owned()
}

/// Tells one line of what happens, on standard error, in the name of the command. Nobody need listen.
pub fn tell(command: &str, line: impl Display) {
    let _ = writeln!(io::stderr(), "{command}: {}", flat(&line.to_string()));
}

/// Prints to standard output. A reader that went away (`| head`) is no failure.
///
/// # Errors
/// Standard output cannot be written, for another reason.
pub fn print(text: &str) -> Result<(), Failure> {
    try_print(text).map(drop)
}

/// Prints what need not be a text.
///
/// # Errors
/// As of [`print()`].
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    write_to(&mut io::stdout().lock(), bytes).map(drop)
}

/// Prints to standard output; says whether there is still a reader.
///
/// # Errors
/// As of [`print()`].
pub fn try_print(text: &str) -> Result<bool, Failure> {
    write_to(&mut io::stdout().lock(), text.as_bytes())
}

/// Writes it all at once; says whether there is still a reader.
fn write_to(out: &mut impl Write, bytes: &[u8]) -> Result<bool, Failure> {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::run(format!("standard output cannot be written: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes nothing, for a reason.
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
    fn a_line_is_one_whatever_is_in_it() {
        assert_eq!(flat("no file a\nb\u{1b}[31m\tc\n"), "no file a b [31m c");
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure_and_a_full_disk_is_one() {
        let mut out = Vec::new();
        assert_eq!(write_to(&mut out, b"\xff\n"), Ok(true));
        assert_eq!(out, b"\xff\n");
        assert_eq!(write_to(&mut Refuses(io::ErrorKind::BrokenPipe), b"x"), Ok(false));
        let failure = write_to(&mut Refuses(io::ErrorKind::StorageFull), b"x").unwrap_err();
        assert!(
            failure.to_string().starts_with("standard output cannot be written: "),
            "{failure}"
        );
    }
}
