//! A tree of processes on a real kernel with two nodes: `nearq run --tree` inside a virtual machine, checked by its programs' reports on
//! where they have been (`examples/homebody.rs`), and `nearq homes` beside it.
//!
//! The programs there are dynamically linked, with the loader and the libraries of this machine.
//! `nearq-command/tests/guest` lists the other requirements; if something is missing, one line says so and nothing is tested.

#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

use crate::common::Folder;
use crate::guest::{boot_with, libraries, script, static_program};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn each_program_of_a_tree_runs_on_the_node_of_its_memory() {
    let Some(machine) = script() else { return };
    let Some(libraries) = libraries() else { return };
    let arguments = ["--package", "nearq-cli", "--bin", "nearq"];
    let Some(nearq) = static_program(&arguments, "nearq") else { return };
    let test = std::env::current_exe().expect("a test knows its file");
    let folder = test.ancestors().nth(2).expect("it is in a folder of a folder");
    let homebody = folder.join("examples/homebody");
    if !homebody.exists() {
        // If a single test is requested by name, examples are not built.
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build.args(["build", "--package", "nearq-cli", "--example", "homebody", "--target-dir"]);
        build.arg(folder.parent().expect("a folder of a profile"));
        let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
        assert!(built.expect("cargo is there").success());
    }
    assert!(homebody.exists(), "there is no {}", homebody.display());
    let work = Folder::new("tree-two");
    // Eight programs that work until all of them have been checked. The shell reads from the system which programs they are: it waits
    // without starting another process.
    let tree = "jobs=\n\
                for job in 1 2 3 4 5 6 7 8; do ./homebody 16 4 /tmp/homes > /tmp/said.$job & jobs=\"$jobs $!\"; done\n\
                for job in $jobs; do until read name < /proc/$job/comm && [ $name = homebody ]; do :; done; done\n\
                ./nearq homes --json > /tmp/looked; mv /tmp/looked /tmp/homes\nwait\ncat /tmp/said.*\n\
                echo HOMES; cat /tmp/homes; echo; echo END";
    fs::write(work.path("tree.sh"), tree).unwrap();
    let steps = "cd /job\n\
                 ./nearq run --tree --json /tmp/json -- ./dash tree.sh\necho STATUS $?\ncat /tmp/json; echo; echo LAST\n\
                 ./nearq run --tree -- ./dash -c 'exit 42'; echo STATUS $?\n\
                 grep -c memfd:nearq-tree /proc/*/maps | grep -v ':0' ; ps | grep steward | grep -v grep\n";
    fs::write(work.path("steps.sh"), steps).unwrap();
    let (tree, steps) = (PathBuf::from(work.path("tree.sh")), PathBuf::from(work.path("steps.sh")));
    let mut files = libraries;
    files.extend([nearq, homebody, tree, steps]);
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let Some(output) = boot_with(&machine, "A", &files, Path::new("sh"), &["/job/steps.sh"]) else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let part = |from: &str, to: &str| -> &str {
        let found = text.split_once(from).and_then(|(_, rest)| Some(rest.split_once(to)?.0));
        found.unwrap_or_else(|| panic!("{from} {to}:\n{text}\n{errors}"))
    };
    let json = |text: &str| -> Value {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}\n{errors}"))
    };
    let job_reports: Vec<Value> = text
        .lines()
        .take_while(|line| *line != "HOMES")
        .filter(|line| line.starts_with('{'))
        .map(json)
        .collect();
    assert_eq!(job_reports.len(), 8, "{text}\n{errors}");
    let mut at_home = [0, 0];
    for job in &job_reports {
        // As many homes as nodes, whatever else the machine does; and no home was chosen afterwards for a running process.
        let home = ["0-3", "4-7"].iter().position(|cpus| job["cpus"] == **cpus);
        let home = home.unwrap_or_else(|| panic!("{job}"));
        at_home[home] += 1;
        let kib = job["kib"].as_object().unwrap();
        let all: u64 = kib.values().filter_map(Value::as_u64).sum();
        let here = kib.get(&home.to_string()).and_then(Value::as_u64).unwrap_or(0);
        assert!(here * 100 >= all * 90, "memory at home: {job}");
        assert!(job["policies"].to_string().contains(&format!("prefer:{home}")), "{job}");
    }
    assert!(at_home.iter().all(|jobs| *jobs >= 2), "{at_home:?} {job_reports:?}");
    let homes = json(part("HOMES\n", "\nEND"));
    let living = homes["processes"].as_array().unwrap().iter();
    let why = |process: &&Value| process["why"].as_str().is_some_and(|why| why.starts_with("exec"));
    let living: Vec<_> = living.filter(why).collect();
    assert!(living.len() >= 8 && living.iter().all(|process| process["home"].is_u64()), "{homes}");
    assert_eq!(homes["nodes"].as_array().map(Vec::len), Some(2));
    let summary = json(part("STATUS 0\n", "\nLAST"));
    let chosen: u64 = summary["homes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|home| home["chosen"].as_u64())
        .sum();
    assert!(chosen >= 9, "{summary}");
    assert_eq!((&summary["memory_refused"], &summary["affinity_refused"]), (&0.into(), &0.into()));
    let (_, end) = text.split_once("LAST\n").unwrap();
    assert_eq!(end.trim(), "STATUS 42", "nothing is left behind: {errors}");
}
