//! How a test says that something cannot be tested on this machine. Test programs of all crates include this file by its path.

#![allow(dead_code, reason = "a program may be built without the tests that say so")]

use std::fmt::Display;
use std::io::Write as _;

/// Bypasses the test harness, which withholds what passing tests print. Prints in one call, so that no other output is inside the
/// line.
pub(crate) fn skipped(what: &str, why: impl Display, how: &str) {
    let line = format!("skipped: {what}: {why}; to have it: {how}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
