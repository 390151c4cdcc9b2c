//! Printing and writing of JSON and files, and the failure for an error of a measurement.

use std::path::Path;

pub(crate) use nearq_command::Failure;
pub(crate) use nearq_command::output::{
    escaped_json, print, print_aside, print_json, print_text, redraw, try_print, try_print_text,
};
use nearq_command::{Patient, file};

/// The failure for an unknown machine, or for a measurement that failed.
pub(crate) fn failed(error: nearq_report::Error) -> Failure {
    Failure::with_status(error.exit_status(), error)
}

/// Prints a value as JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print(&json_text(value)?)
}

/// A value as JSON without control sequences for a terminal.
pub(crate) fn json_text(value: &impl serde::Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::run)? + "\n";
    Ok(escaped_json(&text).into_owned())
}

/// A value whose keys are text, as JSON without line breaks and without control sequences for a terminal.
pub(crate) fn json_line(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string(value).expect("its keys are text");
    escaped_json(&text).into_owned()
}

/// Writes a value as JSON to a file that the option `option` names; `-` prints it.
pub(crate) fn json_to(
    option: &str,
    path: &Path,
    value: &impl serde::Serialize,
) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        return json(value);
    }
    write(option, path, &json_text(value)?)
}

/// Checks that standard output is open, for programs that inherit it. If it is closed, they would get the `/dev/null` that the standard
/// library opens in its place.
///
/// # Errors
/// Standard output is closed.
pub(crate) fn open() -> Result<(), Failure> {
    Patient::stdout().map(drop).map_err(|error| {
        Failure::run(format!(
            "standard output cannot be written: {error}; redirect it to a file, or to /dev/null"
        ))
    })
}

/// Writes a file that the option `option` names.
pub(crate) fn write(option: &str, path: &Path, text: &str) -> Result<(), Failure> {
    file::probe(path).map_err(|error| Failure::input(file::refusal(option, path, &error)))?;
    file::write(path, text.as_bytes()).map_err(|error| {
        let path = path.display();
        Failure::run(format!("{option} {path}: cannot be written: {error}"))
    })
}
