//! What the command prints and writes besides plain text, and how an error of a measurement ends it.

use std::path::Path;

pub(crate) use nearq_command::Failure;
use nearq_command::file;
pub(crate) use nearq_command::output::{
    escaped_json, print, print_aside, print_json, redraw, try_print,
};

/// A machine that there is not, or a measurement that failed.
pub(crate) fn failed(error: nearq_report::Error) -> Failure {
    Failure::with_status(error.exit_status(), error)
}

/// Prints a value as JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::run)?;
    print_json(&(text + "\n"))
}

/// Writes a file that the option `option` names.
pub(crate) fn write(option: &str, path: &Path, text: &str) -> Result<(), Failure> {
    file::probe(path).map_err(|error| Failure::input(file::refusal(option, path, &error)))?;
    file::write(path, text.as_bytes()).map_err(|error| {
        let path = path.display();
        Failure::run(format!("{option} {path}: cannot be written: {error}"))
    })
}
