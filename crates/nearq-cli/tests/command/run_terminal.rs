//! `nearq run` on a terminal, with jobs that use it.

use super::run_ends::wait_for;
use crate::common::{Folder, refuses, skipped, with_signals};
use std::fs;
use std::io::Write as _;
use std::process::{Child, Output, Stdio};

/// Starts a shell command line on a separate terminal; `$NEARQ` is the command.
fn start_on_terminal(line: &str) -> Option<Child> {
    let mut script = with_signals("script");
    script.args(["-qec", line, "/dev/null"]).env("NEARQ", crate::PROGRAM).env("SHELL", "/bin/sh");
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = script.spawn().ok();
    if child.is_none() {
        skipped("jobs on a terminal", "no `script`", "install util-linux");
    }
    child
}

/// Runs a shell command line there. `typed` is typed into the terminal.
fn on_terminal(line: &str, typed: &str) -> Option<Output> {
    let mut child = start_on_terminal(line)?;
    child.stdin.as_mut().unwrap().write_all(typed.as_bytes()).unwrap();
    Some(child.wait_with_output().unwrap())
}

#[test]
fn a_job_that_stops_for_the_terminal_is_reported() {
    // A shell's child is stopped with the shell; other jobs do not use the terminal.
    for job in [
        "read x < /dev/tty; true",
        "sh -c \"read x < /dev/tty\"; true",
        "stty -echo < /dev/tty; true",
    ] {
        let line = format!("\"$NEARQ\" run -j1 --shell '[ {{}} = 2 ] && exit; {job}' ::: 1 2");
        let Some(output) = on_terminal(&line, "") else { return };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            text.contains("job 1 is ended: it was stopped because it tried to use the terminal"),
            "{text}"
        );
        assert!(text.contains("--tty"), "{text}");
        assert_eq!(output.status.code(), Some(1), "{text}");
    }
}

#[test]
fn with_tty_jobs_have_the_terminal_one_at_a_time() {
    let line =
        "\"$NEARQ\" run --tty sh -c 'read x; read y < /dev/tty; echo \"got:$0:$x:$y\"' ::: 1 2";
    let Some(output) = on_terminal(line, "a\nb\nc\nd\n") else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("got:1:a:b") && text.contains("got:2:c:d"), "{text}");
    assert_eq!(output.status.code(), Some(0), "{text}");
}

#[test]
fn tty_is_refused_where_it_makes_no_sense() {
    let line = refuses(&["run", "--tty", "-j2", "true", ":::", "1"]);
    assert!(line.contains("one at a time"), "{line}");
    let line = refuses(&["run", "--tty", "-k", "true", ":::", "1"]);
    assert!(line.contains("--keep-order"), "{line}");
}

#[test]
fn with_tty_an_interrupt_from_the_terminal_reaches_a_job_once() {
    let folder = Folder::new("run-tty");
    let (ready, mark) = (folder.path("ready"), folder.path("mark"));
    let job = format!(
        "trap \"echo int >> {mark}\" INT; touch {ready}; until [ -e {mark} ]; do sleep 0.02; done; sleep 0.1"
    );
    let line = format!("exec \"$NEARQ\" run --tty sh -c '{job}' ::: 1 2");
    let Some(mut child) = start_on_terminal(&line) else { return };
    wait_for("the job begins", || fs::metadata(&ready).ok());
    child.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(128 + libc::SIGINT), "{text}");
    assert!(text.contains("ended by SIGINT; jobs: 0 ended, 1 stopped, 1 not begun"), "{text}");
    assert_eq!(fs::read_to_string(&mark).unwrap(), "int\n", "once");
}
