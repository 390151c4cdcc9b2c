//! Settings from the environment, and warnings on standard error, in a process of their own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use nearq_platform::{Linux, LockPlatform};

/// Says which part of this file the child process runs; only the child has this variable.
const ROLE: &str = "NEARQ_TEST_ROLE";

/// Runs one test of this file in a process of its own, with `value` in the variable `NEARQ_TEST_VALUE`.
/// Returns what it writes to standard error.
fn errors_of(test: &str, value: &OsStr) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, test)
        .env("NEARQ_TEST_VALUE", value)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn is_child(test: &str) -> bool {
    std::env::var_os(ROLE).is_some_and(|role| role == test)
}

#[test]
fn a_warning_is_one_line_that_names_nearq() {
    const ME: &str = "settings_and_warnings::a_warning_is_one_line_that_names_nearq";
    if is_child(ME) {
        Linux::warn("nice -20 was refused");
        Linux::warn("two\nlines\n");
        return;
    }
    let written = errors_of(ME, OsStr::new(""));
    assert_eq!(written, "nearq: nice -20 was refused\nnearq: two lines\n");
}

#[test]
fn a_setting_is_read_whatever_it_contains() {
    const ME: &str = "settings_and_warnings::a_setting_is_read_whatever_it_contains";
    if is_child(ME) {
        Linux::warn(&format!("{:?}", Linux::setting("NEARQ_TEST_VALUE")));
        return;
    }
    let shown = |value: &[u8]| errors_of(ME, OsStr::from_bytes(value));
    assert_eq!(shown(b"read"), "nearq: Some(\"read\")\n");
    assert_eq!(shown(b""), "nearq: Some(\"\")\n");
    assert_eq!(shown(b"re\xffad"), "nearq: Some(\"re\u{fffd}ad\")\n");
}
