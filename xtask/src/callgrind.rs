//! Instructions of an example program, counted by callgrind.

use crate::metadata::cargo;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The two counts of rounds that are compared: what the program does only once cancels out in the difference.
const ROUNDS: [u64; 2] = [10_000, 110_000];

/// The line that says that `what` cannot be counted because there is no valgrind.
pub(crate) fn skipped(what: &str) -> Result<Option<String>, String> {
    match Command::new("valgrind").arg("--version").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some(format!(
            "skipped: instructions of {what}: there is no valgrind; to have it: apt-get install valgrind"
        ))),
        Err(error) => Err(format!("valgrind cannot be run: {error}")),
        Ok(_) => Ok(None),
    }
}

/// Builds an example and finds where cargo put it.
pub(crate) fn build(package: &str, example: &str, features: &str) -> Result<PathBuf, String> {
    let output = cargo()
        .args(["build", "--release", "--package", package, "--features", features])
        .args(["--example", example, "--message-format", "json-render-diagnostics"])
        .output()
        .map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim_end().into());
    }
    executable(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| format!("cargo does not say where {example} is"))
}

/// The path of the last executable in cargo's messages.
fn executable(messages: &str) -> Option<PathBuf> {
    let path = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message["executable"].as_str()?))
    };
    messages.lines().rev().find_map(path)
}

/// The number of instructions in one round of `PROGRAM MODE ROUNDS`, in all of its threads together.
pub(crate) fn per_round(program: &Path, mode: &str) -> Result<f64, String> {
    let [few, many] = ROUNDS;
    let more = instructions(program, mode, many)?.checked_sub(instructions(program, mode, few)?);
    match more {
        Some(more @ 1..) => Ok(more as f64 / (many - few) as f64),
        _ => Err(format!(
            "{} {mode} takes no longer for {many} rounds than for {few}",
            program.display()
        )),
    }
}

fn instructions(program: &Path, mode: &str, rounds: u64) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([mode, &rounds.to_string()])
        .output()
        .map_err(|error| format!("valgrind cannot be run: {error}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let failed =
        || format!("{} {mode} {rounds} under valgrind:\n{}", program.display(), errors.trim_end());
    if !output.status.success() {
        return Err(failed());
    }
    collected(&errors).ok_or_else(failed)
}

/// The figure of `==123== Collected : 4567`.
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("Collected"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_in_what_valgrind_prints() {
        let text = "==7== Events    : Ir\n==7== Collected : 25147310\n==7== \n";
        assert_eq!(collected(text), Some(25_147_310));
        assert_eq!(collected("==7== nothing"), None);
    }

    #[test]
    fn the_program_is_found_in_what_cargo_prints() {
        let text = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
                    {\"reason\":\"compiler-artifact\",\"executable\":\"/t/examples/item_cost\"}\n\
                    {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(executable(text), Some("/t/examples/item_cost".into()));
    }
}
