//! The command without any other file of its build: `nearq run --tree` uses the library that is inside.
//!
//! The machine of the test may have one cache and one node, and so no homes. In a mount namespace its files in /sys are covered by others,
//! by which each of two CPUs has a cache of its own.

use crate::PROGRAM;
use crate::common::{Folder, errors, skipped};
use std::fs;
use std::process::{Command, Output};

/// Covers what the system says about the last cache of the first two CPUs; and root's folder for the library, with an empty one.
const TWO_CACHES: &str = "for cpu in 0 1; do\n\
     cache=/sys/devices/system/cpu/cpu$cpu/cache/index3\n\
     echo $cpu > $1/list$cpu; printf '%x\\n' $((1 << cpu)) > $1/map$cpu; echo $cpu > $1/id$cpu\n\
     mount --bind $1/list$cpu $cache/shared_cpu_list && mount --bind $1/map$cpu $cache/shared_cpu_map &&\n\
     mount --bind $1/id$cpu $cache/id || exit 77\n\
     done\n\
     mount -t tmpfs tmpfs /var/cache || exit 77\n";

/// Runs a script with the command alone in `$1/bin`, and nothing in the environment; `None`, after a line that says why, where that cannot be.
fn with_two_caches(folder: &Folder, script: &str) -> Option<Output> {
    fs::create_dir_all(folder.path("bin")).unwrap();
    fs::create_dir_all(folder.path("home")).unwrap();
    fs::copy(PROGRAM, folder.path("bin/nearq")).unwrap();
    let script = format!("{TWO_CACHES}cd $1/bin\n{script}");
    let run = |way: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(way).args(["--mount", "taskset", "-c", "0,1", "sh", "-c", &script, "sh"]);
        command.arg(folder.path("")).env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
        command.env("HOME", folder.path("home"));
        command.output().ok().filter(|output| !matches!(output.status.code(), Some(1 | 77)))
    };
    let output = run(&[]).or_else(|| run(&["--map-root-user"]));
    if output.is_none() {
        let why = "two CPUs, a last cache of level 3, or a mount namespace are missing";
        skipped("the command alone", why, "run the tests as root on a machine with two CPUs");
    }
    output
}

#[test]
fn the_command_alone_in_a_folder_places_a_tree() {
    let folder = Folder::new("alone");
    let script = "./nearq run --tree --scope cache --json ../json -- \
                  sh -c 'grep -o \"/[^ ]*libnearq_tree.*\" /proc/self/maps | sort -u; grep Cpus_allowed_list /proc/self/status'";
    let Some(output) = with_two_caches(&folder, script) else { return };
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", errors(&output));
    assert_eq!(errors(&output), "");
    let [library, cpus] = printed.lines().collect::<Vec<_>>()[..] else { panic!("{printed}") };
    assert!(library.starts_with("/var/cache/nearq/libnearq_tree-"), "{library}");
    let cpu = cpus.strip_prefix("Cpus_allowed_list:\t").expect("it lists CPUs");
    assert!(cpu == "0" || cpu == "1", "it has a home: {cpus}");
    let json = fs::read_to_string(folder.path("json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let chosen = json["homes"].as_array().unwrap().iter().map(|home| home["chosen"].as_u64());
    assert!(chosen.flatten().sum::<u64>() >= 4, "the shell and its three programs: {json}");
}

#[test]
fn a_tree_without_a_folder_for_the_library_says_which_were_tried() {
    let folder = Folder::new("no-folder");
    let script = "mkdir ../open; chmod 777 ../open; umount /var/cache; mount -t tmpfs -o noexec tmpfs /var/cache\n\
                  export TMPDIR=$(realpath ../open); ./nearq run --tree --scope cache -- true; test $? = 1 && ls ../open /var/cache/nearq";
    let Some(output) = with_two_caches(&folder, script) else { return };
    let line = errors(&output);
    assert!(output.status.success(), "{}{line}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(line.lines().count(), 1, "{line}");
    for part in [
        "/var/cache/nearq: it is mounted noexec",
        "open: other users may write",
        "NEARQ_TREE_LIBRARY",
    ] {
        assert!(line.contains(part), "{part} is missing from {line}");
    }
}

#[test]
fn a_library_beside_the_command_comes_first() {
    let folder = Folder::new("beside");
    let script = "./nearq run --tree --scope cache -- true && cp /var/cache/nearq/libnearq_tree-*.so libnearq_tree.so &&\n\
                  ./nearq run --tree --scope cache -- sh -c 'grep -o \"/[^ ]*libnearq_tree.*\" /proc/self/maps | sort -u'";
    let Some(output) = with_two_caches(&folder, script) else { return };
    assert!(output.status.success(), "{}", errors(&output));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.trim_end().ends_with("/bin/libnearq_tree.so"), "{printed}");
}
