//! What the command prints and writes besides plain text, and how an error of a measurement ends it.

use std::fs;
use std::path::Path;

pub(crate) use nearq_command::Failure;
pub(crate) use nearq_command::output::{print, try_print};

/// A machine that there is not, or a measurement that failed.
pub(crate) fn failed(error: nearq_report::Error) -> Failure {
    Failure::with_status(error.exit_status(), error)
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
