//! `nearq run` in namespaces of its own: a PID namespace whose session and process group have their leaders outside, as when a container is
//! entered from outside, for both of which the kernel says 0 there; and a mount namespace whose files describe other CPUs.

use crate::PROGRAM;
use crate::common::{Folder, errors, skipped};
use std::collections::BTreeSet;
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

/// What `nearq run --verbose` prints of itself, and the slots and CPUs of three jobs, with these arguments where CPUs 0 and 1 are nodes of their own and `isolated` are isolated; `None`, after
/// a line that says why, if that cannot be shown.
fn run_with(isolated: &str, arguments: &str) -> Option<String> {
    let script = format!(
        "set -e; cd /sys/devices/system; mount -t tmpfs none node
         for n in 0 1; do mkdir node/node$n; echo $n > node/node$n/cpulist; echo 10 20 > node/node$n/distance; done
         for file in online possible has_cpu has_memory; do echo 0-1 > node/$file; done
         echo {isolated} > node/isolated; mount --bind node/isolated cpu/isolated
         exec taskset -c 0,1 {PROGRAM} run --verbose {arguments} -- \
         sh -c 'sleep .1; echo slot {{%}}; grep Cpus_allowed_list /proc/self/status' ::: a b c"
    );
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", &script]).stdin(Stdio::null());
    let output = command.output().unwrap();
    let stderr = errors(&output);
    let refusals = ["unshare:", "mount:", "taskset:"];
    if let Some(refusal) =
        stderr.lines().find(|line| refusals.iter().any(|at| line.starts_with(at)))
    {
        skipped("isolated CPUs", refusal, "run the tests on two CPUs, as root");
        return None;
    }
    Some(format!("{}{stderr}", String::from_utf8(output.stdout).unwrap()))
}

#[test]
fn jobs_get_no_isolated_cpus_unless_their_node_is_named() {
    for (isolated, arguments, homes, slots, cpus) in [
        ("", "--strict", "0 (CPUs 0), 1 (CPUs 1)", 2, &["0", "1"][..]),
        ("1", "", "all usable CPUs belong to one node", 1, &["0-1"]),
        ("1", "--strict --home 1", "node 1 for all jobs", 1, &["1"]),
        // They were given to the process on purpose.
        ("0-1", "--strict", "0 (CPUs 0), 1 (CPUs 1)", 2, &["0", "1"]),
    ] {
        let Some(printed) = run_with(isolated, arguments) else { return };
        let of = format!("isolated {isolated:?} {arguments}: {printed}");
        assert!(printed.contains(homes), "{of}");
        assert_eq!(
            (printed.contains("slot 1"), printed.contains("slot 2")),
            (true, slots == 2),
            "{of}"
        );
        let masks = printed.lines().filter_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
        let masks: BTreeSet<&str> = masks.collect();
        assert_eq!(masks, cpus.iter().copied().collect(), "{of}");
    }
}
