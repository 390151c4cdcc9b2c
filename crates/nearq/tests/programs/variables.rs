//! No environment variable keeps a program from its work: a value that is not understood causes one warning, and the program goes
//! on.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::process::Command;

use nearq::{Runtime, Workqueue};
use nearq_control::settings_table;
use nearq_control::variables::{Reader, VARIABLES};

/// Set only in processes that run such a program.
const CHILD: &str = "NEARQ_TEST_CHILD";

/// The variables that programs with nearq read.
fn variables() -> Vec<&'static str> {
    let names = settings_table::all().map(|desc| desc.environment).filter(|name| !name.is_empty());
    let others = VARIABLES.iter().filter(|variable| variable.reader == Reader::Program);
    names.chain(others.map(|variable| variable.name)).collect()
}

/// Runs a program in which all these variables have that value. Returns the complaints that it prints.
fn complaints(test: &str, value: &OsString) -> String {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", test, "--nocapture"]).env(CHILD, "1");
    let output = program.envs(variables().into_iter().map(|name| (name, value))).output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{value:?}: {} {complaints}", output.status);
    complaints
}

/// Uses everything that reads variables: the process's runtime, one of its own, homes, mutexes, and the control socket.
fn program() {
    // This reads the variable like a thread that must wait for a mutex.
    assert!(!nearq_control::locks::settings().is_empty());
    assert_eq!(nearq::system::unbound().spawn(|| 7).join().unwrap(), 7);
    for _ in 0..2 {
        let runtime = Runtime::builder().build().unwrap();
        let queue = runtime.workqueue_builder("own").build().unwrap();
        assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
    }
    let queue =
        Workqueue::builder("homely").home(&nearq::home::Home::pick().unwrap()).build().unwrap();
    assert_eq!(queue.spawn(|| 7).join().unwrap(), 7);
}

#[test]
fn bad_values_of_variables_are_warned_of_once_and_the_program_works() {
    if std::env::var_os(CHILD).is_some() {
        program();
        let status = nearq::control::status();
        return assert!(matches!(status, nearq::control::Status::Off(_)), "{status}");
    }
    let test = "variables::bad_values_of_variables_are_warned_of_once_and_the_program_works";
    let hostile = [
        b"garbage".to_vec(),
        b"\xff\xfe\x80".to_vec(),
        b"-1".to_vec(),
        b" ,=, ".to_vec(),
        b"1e999".to_vec(),
        b"9".repeat(400),
        b"x=".repeat(50_000),
        b"\x1b[2J\x07\nnearq: NEARQ_LOCK is `fake`".to_vec(),
    ];
    for value in hostile.map(OsString::from_vec) {
        let complaints = complaints(test, &value);
        for name in variables() {
            let warning = format!("nearq: {name} is `");
            let warnings = complaints.lines().filter(|line| line.starts_with(&warning)).count();
            assert_eq!(warnings, 1, "{name}: {complaints:.4000}");
        }
        assert!(
            !complaints.contains(['\x1b', '\x07']) && complaints.len() < 20_000,
            "{complaints:.4000}"
        );
    }
}

#[test]
fn an_empty_variable_counts_as_unset() {
    if std::env::var_os(CHILD).is_some() {
        program();
        let status = nearq::control::status();
        return assert!(matches!(status, nearq::control::Status::Listening { .. }), "{status}");
    }
    for value in ["", "  "] {
        let complaints = complaints("variables::an_empty_variable_counts_as_unset", &value.into());
        assert!(!complaints.contains("nearq: "), "{complaints}");
    }
}

#[test]
fn valid_words_are_not_warned_of() {
    if std::env::var_os(CHILD).is_some() {
        return program();
    }
    let switches = ["NEARQ_AFFINITY", "NEARQ_HOME_INHERIT", "NEARQ_CONTROL", "NEARQ_LOCK"];
    for value in ["0", " 1 ", "ON", "off", "Yes", "no", "true", "False"] {
        let test = "variables::valid_words_are_not_warned_of";
        let complaints = complaints(test, &value.into());
        for name in switches {
            assert!(!complaints.contains(&format!("{name} is")), "{value}: {complaints}");
        }
    }
}
