//! Bad input for the experiments: one clear line that names the value and what is allowed, exit status 2, and nothing half-done.

use crate::common::{Folder, errors, nearq, refuses};
use std::fs;

/// The file of a built-in machine of one node.
const GRACE: &str = include_str!("../../../nearq-sim/machines/grace-72.json");

/// Checks that the line names all of `parts`.
fn names(arguments: &[&str], parts: &[&str]) {
    let line = refuses(arguments);
    for part in parts {
        assert!(line.contains(part), "nearq {arguments:?} does not name {part}: {line}");
    }
}

#[test]
fn no_command_shows_the_help() {
    for arguments in [&[][..], &["bench"], &["sim"]] {
        let output = nearq().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(errors(&output).contains("Usage: nearq"), "{}", errors(&output));
    }
}

#[test]
fn unknown_commands_and_options() {
    let commands = ["`bench scopes`", "`bench dispatch`"];
    names(&["frobnicate"], &["'frobnicate'", commands[0], commands[1]]);
    names(&["bench", "luck"], &["'luck'", commands[0], commands[1]]);
    names(&["bench", "scopes", "--quick=yes"], &["'yes'", "`nearq bench scopes --help`"]);
}

#[test]
fn files_that_cannot_be_written() {
    let missing = "/no such folder/file";
    for experiment in ["scopes", "dispatch"] {
        for option in ["--json", "--svg"] {
            names(
                &["bench", experiment, "--quick", option, missing],
                &[option, missing, "cannot be written"],
            );
        }
    }
    names(&["bench", "scopes", "--file", missing], &["--file", missing, "cannot be written"]);
}

#[test]
fn numbers_of_the_experiments() {
    for (experiment, option, values) in [
        ("scopes", "--issuers", &["0", "-1", "4097", "x"][..]),
        ("scopes", "--in-flight", &["0", "-1", "4097", ""]),
        ("scopes", "--item-work", &["-1", "x", ""]),
        ("scopes", "--runs", &["0", "1001", "two"]),
        ("scopes", "--duration", &["0", "-1", "3601", "NaN", "inf", "1e300", "2s"]),
        ("dispatch", "--idle-samples", &["0", "100001", "1.5"]),
        ("dispatch", "--items", &["0", "-5", "1000001", "many"]),
        ("dispatch", "--runs", &["0", "-7", "99999999999999999999"]),
        ("lock", "--writers", &["0", "-1", "4097", "x", ""]),
        ("lock", "--outside", &["-1", "1000001", "x"]),
        ("lock", "--runs", &["0", "1001"]),
        ("rwlock", "--threads", &["0", "-1", "4097", "x", ""]),
        ("rwlock", "--writes", &["-1", "101", "x"]),
        ("rwlock", "--inside", &["-1", "1000001", "x"]),
        ("home", "--tasks", &["0", "-1", "4097", "x", ""]),
        ("home", "--problem-size", &["0", "999", "1000000001", "x"]),
        ("home", "--passes", &["0", "-1", "1000001", "all"]),
        ("home", "--duration", &["5"]),
    ] {
        for value in values {
            names(&["bench", experiment, option, value], &[option, value, "give "]);
        }
    }
}

#[test]
fn words_of_the_lock_experiment() {
    let refused = |arguments: &[&str], parts: &[&str]| {
        names(&[&["bench", "lock"], arguments].concat(), parts);
    };
    refused(&["--writers", "1,2,0"], &["--writers 0", "from 1 to 4096"]);
    refused(&["--writers", "2,x"], &["'x'", "--writers"]);
    refused(&["--writers", "4,2,4"], &["--writers 4", "each number once"]);
    refused(&["--section", "wide"], &["--section \"wide\"", "short, long or both"]);
    refused(&["--place", "here"], &["--place \"here\"", "compact or spread"]);
    refused(&["--shape", "tree"], &["--shape \"tree\"", "torture", "epoll", "shared-dir"]);
    refused(&["--shape", "epoll", "--section", "long"], &["--section \"long\"", "no sections"]);
    refused(&["--on", "cray-1"], &["--on \"cray-1\"", "here", "epyc-7551-2s"]);
}

#[test]
fn words_of_the_home_experiment() {
    let refused = |arguments: &[&str], parts: &[&str]| {
        names(&[&["bench", "home"], arguments].concat(), parts);
    };
    refused(&["--scenario", "storm"], &["--scenario \"storm\"", "numa-test, displace or overload"]);
    refused(&["--tasks", "4,8,4"], &["--tasks 4", "each number once"]);
    refused(&["--on", "cray-1"], &["--on \"cray-1\"", "here", "tx7-itanium2"]);
    names(&["bench", "home-child", "{}"], &["home-child is only for `nearq bench home`"]);
}

#[test]
fn experiments_refuse_invalid_machines() {
    for experiment in ["scopes", "dispatch"] {
        for name in ["cray-1", "nosuch.xml", "", "sysfs:/no/such/folder", "core:0", "core:99999"] {
            names(&["bench", experiment, "--on", name], &["--on", name]);
        }
        names(&["bench", experiment, "--on", "cray-1"], &["here", "ryzen-3900x", "sysfs:DIR"]);
        names(&["bench", experiment, "--on", "core:99999"], &["4096"]);
    }
}

#[test]
fn invalid_machine_files_are_refused() {
    let folder = Folder::new("machine-files");
    let file = folder.path("machine.json");
    let mut whole: serde_json::Value = serde_json::from_str(GRACE).unwrap();
    let mut shapeless = whole.clone();
    shapeless.as_object_mut().unwrap().remove("shape");
    whole["costs"]["memory"]["value"] = 0.into();
    for (text, parts) in [
        ("", &["line 1"][..]),
        ("{\"about\": \"\"}", &["missing field `clock_mhz`"]),
        (&shapeless.to_string(), &["missing field `shape`", "SHAPE@FILE"]),
        ("{\"cpus\": 2}", &["`cpus`", "`about`", "`shape`"]),
        (&whole.to_string(), &["memory: value 0", "from 1 to 1000000000"]),
    ] {
        fs::write(&file, text).unwrap();
        for command in [&["bench", "dispatch"][..], &["sim", "sensitivity"]] {
            let arguments = [command, &["--on", &file]].concat();
            names(&arguments, &["--on", &file, "docs/machines.md"]);
            names(&arguments, parts);
        }
    }
    names(&["bench", "dispatch", "--on", "nosuch.json"], &["nosuch.json", "a path that exists"]);
}

#[test]
fn sensitivity_refuses_what_it_cannot_do() {
    let refused = |arguments: &[&str], parts: &[&str]| {
        names(&[&["sim", "sensitivity"], arguments].concat(), parts);
    };
    refused(&["--experiment", "luck"], &["--experiment luck", "dispatch", "all"]);
    refused(&["--on", "here"], &["--on here", "simulated", "grace-72"]);
    refused(&["--on", "cray-1"], &["cray-1", "grace-72"]);
    refused(&["--on", "core:2", "--experiment", "dispatch"], &["core:2", "no conclusions"]);
    refused(&["--costs", "same_llc,luck"], &["--costs luck", "same_llc", "wake_up", "wake rule"]);
    for runs in ["0", "-1", "1001", "many"] {
        refused(&["--runs", runs], &["--runs", runs, "give "]);
    }
    refused(&["--json", "/no such folder/file"], &["--json /no such folder", "cannot be written"]);
    names(&["sim", "weather"], &["'weather'", "`sim sensitivity`"]);
}

#[test]
fn a_refused_experiment_leaves_no_file_and_changes_none() {
    let folder = Folder::new("refused");
    let (new, old) = (folder.path("new.json"), folder.path("old.svg"));
    fs::write(&old, "as it was").unwrap();
    refuses(&["bench", "scopes", "--issuers", "0", "--json", &new, "--svg", &old]);
    assert!(!fs::exists(&new).unwrap());
    assert_eq!(fs::read_to_string(&old).unwrap(), "as it was");
}

#[test]
fn options_without_effect_are_refused() {
    for (line, option) in [
        ("blocking --detection --way futex", "--way"),
        ("blocking --detection --duration 1", "--duration"),
        ("blocking --way futex --folder /tmp", "--folder"),
        ("home --scenario displace --tasks 4", "--tasks"),
        ("home --scenario overload --passes 4", "--passes"),
        ("home --scenario displace --problem-size 4000", "--problem-size"),
    ] {
        let arguments: Vec<&str> = ["bench"].into_iter().chain(line.split(' ')).collect();
        names(&arguments, &[option]);
    }
}

#[test]
fn a_foreign_machine_file_sends_no_control_sequences() {
    let folder = Folder::new("hostile");
    let hostile = "a\u{1b}[2J\u{9b}31m\u{202e}b.xml";
    let [machine, json, svg] = [hostile, "out.json", "out.svg"].map(|name| folder.path(name));
    names(&["bench", "dispatch", "--on", &machine], &["a\u{fffd}[2J\u{fffd}31m\u{fffd}b.xml"]);
    let core = "<object type=\"Core\" cpuset=\"0x1\" os_index=\"0\"><object type=\"PU\" cpuset=\"0x1\" os_index=\"0\"/></object>";
    let text = format!(
        "<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" cpuset=\"0x1\">\
         <info name=\"CPUModel\" value=\"model&#x9b;31m&#x202e;\"/>{core}</object></topology>"
    );
    fs::write(&machine, text).unwrap();
    let mut file: serde_json::Value = serde_json::from_str(GRACE).unwrap();
    file["about"] = "about\u{1b}[2J\u{9b}31m\u{202e}".into();
    (file["shape"], file["model"]) = ("core:2".into(), file["about"].clone());
    file["costs"]["same_core"] = serde_json::json!({"value": 4});
    let described = folder.path("a\u{1b}[2J.json");
    fs::write(&described, file.to_string()).unwrap();
    for machine in [machine, described] {
        let arguments =
            ["bench", "dispatch", "--quick", "--runs", "1", "--items", "1", "--on", &machine];
        let output =
            nearq().args(arguments).args(["--json", &json, "--svg", &svg]).output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        let texts =
            [output.stdout, output.stderr, fs::read(&json).unwrap(), fs::read(&svg).unwrap()];
        for text in texts.map(|text| String::from_utf8(text).unwrap()) {
            let steers = |c: char| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}';
            assert!(!text.contains(steers), "{text:?}");
        }
    }
}

#[test]
fn a_full_disk_is_named() {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let dispatch =
        ["bench", "dispatch", "--quick", "--runs", "1", "--items", "1", "--on", "core:1"];
    for (arguments, named) in [
        (&["--json", "-"][..], "standard output cannot be written"),
        (&[], "standard output cannot be written"),
    ] {
        let output = nearq().args(dispatch).args(arguments).stdout(full()).output().unwrap();
        let message = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {message}");
        assert!(message.contains(named), "{arguments:?}: {message}");
    }
    let output = nearq().args(dispatch).args(["--svg", "/dev/full"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("/dev/full: cannot be written"), "{}", errors(&output));
    for arguments in [&["sim", "soak", "--seeds", "1"][..], &["bench", "--help"]] {
        let output = nearq().args(arguments).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", errors(&output));
    }
}
