//! A call that the operating system refused, in words that help.

use core::fmt;
use std::borrow::Cow;

/// The operating system refused a call.
///
/// Says what was tried, why it was refused, and what would allow it.
#[derive(Clone, PartialEq, Eq)]
pub struct OsError {
    what: String,
    errno: i32,
    remedy: Cow<'static, str>,
}

impl OsError {
    /// `what` was tried ("set nice -20 for thread 17"), the kernel answered `errno`, and `remedy` says what
    /// would allow it (empty if nothing would).
    pub fn new(what: impl Into<String>, errno: i32, remedy: impl Into<Cow<'static, str>>) -> Self {
        OsError { what: what.into(), errno, remedy: remedy.into() }
    }

    /// The error number, as in `errno.h`.
    pub fn errno(&self) -> i32 {
        self.errno
    }

    /// The same text for all calls of one kind that are refused with the same error: what was tried up to the first number in it, and the
    /// error's number.
    pub fn cause(&self) -> String {
        let kind = self.what.split(|letter: char| letter.is_ascii_digit()).next();
        format!("{}: {}", kind.unwrap_or_default(), self.errno)
    }

    /// What would allow the call; empty if nothing would.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

impl fmt::Display for OsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = std::io::Error::from_raw_os_error(self.errno);
        write!(f, "could not {}: {reason}", self.what)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

nearq_topology::debug_as_display!(OsError);

impl std::error::Error for OsError {}
