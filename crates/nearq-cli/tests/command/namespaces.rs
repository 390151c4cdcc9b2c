//! `nearq run` in a PID namespace whose session and process group have their leaders outside, as when a container is entered from outside.
//! The kernel says 0 for both numbers there.

use crate::PROGRAM;
use crate::common::{Folder, errors, skipped};
use std::process::{Command, Stdio};

/// Runs a shell script in such a namespace, and returns its output; `None`, after a line that says why, if there can be no such namespace.
fn printed_inside(script: &str) -> Option<String> {
    printed_with("--mount-proc", script)
}

/// As [`printed_inside`], with one more argument for `unshare`.
fn printed_with(argument: &str, script: &str) -> Option<String> {
    let ways: [&[&str]; 2] = [&[], &["--map-root-user"]];
    let inside = |way: &[&str], command: &[&str]| {
        let mut inside = Command::new("timeout");
        // The time limit of a minute and a half ends a script that hangs; `unshare` ignores other signals.
        inside.args(["-s", "KILL", "90", "unshare"]).args(way).args([
            "--pid",
            "--fork",
            "--kill-child",
        ]);
        inside.arg(argument).args(command).stdin(Stdio::null()).output()
    };
    let works = |way: &&[&str]| inside(way, &["true"]).is_ok_and(|tried| tried.status.success());
    let Some(way) = ways.into_iter().find(works) else {
        skipped("another PID namespace", "`unshare` may not make one", "run the tests as root");
        return None;
    };
    let output = inside(way, &["sh", "-c", script]).unwrap();
    assert!(output.status.success(), "{}: {}", output.status, errors(&output));
    assert_eq!(errors(&output), "");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn jobs_run_in_a_session_from_outside_the_namespace() {
    let Some(printed) = printed_inside(&format!("{PROGRAM} run -k echo ::: a b; exit $?")) else {
        return;
    };
    assert_eq!(printed, "a\nb\n");
}

#[test]
fn a_tree_joins_a_group_from_outside_the_namespace() {
    let script = format!("{PROGRAM} run --tree -- cat /proc/self/stat; exit $?");
    let Some(stat) = printed_inside(&script) else { return };
    assert_eq!(stat.split(' ').nth(4), Some("0"), "the group in {stat}");
}

#[test]
fn a_killed_run_leaves_nothing_in_a_session_from_outside_the_namespace() {
    let folder = Folder::new("namespace-killed");
    let pids = folder.path("pids");
    let job = format!("sleep 1000 & echo $! >> {pids}; echo $$ >> {pids}; wait");
    // The numbers mean nothing outside, so the shell inside checks. It is the first process there, and does not reap orphans.
    let script = format!(
        "{PROGRAM} run sh -c '{job}' ::: 1 & \
         until [ -s {pids} ] && [ $(wc -l < {pids}) = 2 ]; do sleep 0.01; done; \
         kill -9 $!; \
         for pid in $(cat {pids}); do \
             while grep -qs 'State:.[^ZX]' /proc/$pid/status; do sleep 0.01; done; echo ended; \
         done"
    );
    let Some(printed) = printed_inside(&script) else { return };
    assert_eq!(printed, "ended\nended\n");
}

#[test]
fn processes_of_another_namespace_are_left_alone() {
    // Mounts nothing: `/proc` is the outer namespace's. The engine is the first process, so in that folder its number belongs to the first
    // process of the machine or the container, whose descendants all others are.
    let script = format!("exec {PROGRAM} run sh -c 'sleep 1000 > /dev/null 2>&1 & echo $0' ::: a");
    let Some(printed) = printed_with("--mount", &script) else { return };
    assert_eq!(printed, "a\n");
}
