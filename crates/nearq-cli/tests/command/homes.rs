//! `nearq homes`, and `nearq run --tree` if all CPUs belong to one node. Both are tested with several nodes in a virtual machine
//! (`virtual_machine_tree.rs`), and with simulated nodes in the tests of `nearq-tree`.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::skipped;

fn nearq(arguments: &[&str]) -> Output {
    Command::new(crate::PROGRAM).args(arguments).output().expect("it can be run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn has_one_node() -> bool {
    let nodes = fs::read_to_string("/sys/devices/system/node/has_cpu").unwrap_or_default();
    let one = !nodes.contains([',', '-']);
    if !one {
        skipped("one node", "this machine has several", "run the tests on a smaller one");
    }
    one
}

#[test]
fn homes_are_listed_as_text_and_as_json() {
    let output = nearq(&["homes"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("NODE  CPUS  BUSY"), "{shown}");
    let output = nearq(&["homes", "--all", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    let nodes = value["nodes"].as_array().expect("there are nodes");
    assert!(!nodes.is_empty() && nodes.iter().all(|node| node["cpus"].is_array()));
    let this_process = value["processes"].as_array().unwrap().iter();
    let this_process =
        this_process.filter(|process| process["pid"] == std::process::id()).collect::<Vec<_>>();
    assert_eq!(this_process.len(), 1, "{value}");
    assert!(this_process[0]["bytes"].as_array().is_some_and(|bytes| bytes.len() == nodes.len()));
}

#[test]
fn on_one_node_the_command_runs_unchanged() {
    if !has_one_node() {
        return;
    }
    let output = nearq(&[
        "run",
        "--tree",
        "--verbose",
        "--",
        "sh",
        "-c",
        "echo $LD_PRELOAD$NEARQ_TREE; exit 5",
    ]);
    assert_eq!((output.status.code(), text(&output.stdout).trim()), (Some(5), ""));
    assert_eq!(text(&output.stderr).matches("one node").count(), 1);
    let output = nearq(&["run", "--tree", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.signal(), Some(15));
    assert!(nearq(&["homes"]).stdout.starts_with(b"This machine has one node"));
}

#[test]
fn unusable_arguments_are_refused_in_one_line() {
    for (arguments, status, reason) in [
        (&["run", "--tree"][..], 2, "no command"),
        (&["run", "--tree", "--", "no-such-command-anywhere"], 127, "there is no such command"),
        (&["run", "--tree", "--", "/etc/passwd"], 126, "cannot be executed"),
        (&["run", "--tree", "--home", "4711", "--", "true"], 2, "there is no such node"),
        (&["run", "--tree", "--jobs", "3", "--", "true"], 2, "cannot be used with"),
        (&["run", "--choose", "fork", "true", ":::", "1"], 2, "--tree"),
        (&["run", "--tree", "--choose", "never", "--", "true"], 2, "exec, fork, lazy"),
    ] {
        let output = nearq(arguments);
        let complained = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {complained}");
        assert!(
            complained.contains(reason) && complained.lines().count() == 1,
            "{arguments:?}: {complained}"
        );
    }
}
