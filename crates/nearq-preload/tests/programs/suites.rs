//! Tests the script that decides when a third-party test counts as worse under the preload.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "the tests run programs")]
use std::path::Path;
use std::process::Command;

fn verdict(with: u32, without: u32, runs: u32) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suites/verdict.sh");
    let numbers = [with, without, runs].map(|number| number.to_string());
    let output = Command::new(script).args(numbers).output().expect("there is a shell");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it prints words").trim_end().to_owned()
}

#[test]
fn a_test_that_fails_more_often_with_the_preload_is_worse() {
    for (with, without, runs, expected) in [
        // Failures only with the preload: always, often, rarely, once among many, and never again.
        (10, 0, 10, "wrong"),
        (6, 0, 10, "again"),
        (1, 0, 10, "again"),
        (1, 0, 30, "again"),
        (1, 0, 100, "wrong"),
        (0, 0, 10, "again"),
        (0, 0, 100, "once"),
        // Failures on both sides: as often with the preload, or more often than by chance.
        (2, 2, 10, "flaky"),
        (10, 10, 10, "flaky"),
        (3, 1, 10, "again"),
        (3, 1, 100, "flaky"),
        (7, 1, 100, "wrong"),
        (27, 10, 100, "wrong"),
        (6, 1, 100, "flaky"),
        (0, 1, 100, "flaky"),
        (100, 100, 100, "flaky"),
    ] {
        assert_eq!(verdict(with, without, runs), expected, "{with} and {without} of {runs}");
    }
}
