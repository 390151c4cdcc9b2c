//! `nearq run --near` on this machine: what is refused, and how often a command runs. `virtual_machine_near` has the nodes.

use crate::common::{errors, nearq, prints, refuses, skipped, topo_json};

/// A device of this machine whose node is known.
fn device() -> Option<String> {
    let json = topo_json(&[]);
    let devices = json["devices"].as_array().unwrap();
    let known = devices.iter().find(|device| !device["node_ids"].as_array().unwrap().is_empty());
    let Some(device) = known else {
        skipped(
            "a command near a device",
            "this machine shows no device",
            "a machine with a disk or a network interface",
        );
        return None;
    };
    Some(format!("{}:{}", device["kind"].as_str().unwrap(), device["name"].as_str().unwrap()))
}

#[test]
fn devices_that_lead_to_no_node_are_refused_with_those_that_exist() {
    let error = refuses(&["run", "--near", "netdev:nosuch0", "true"]);
    assert!(error.contains("network interface") && error.contains("this machine has"), "{error}");
    let error = refuses(&["run", "--near", "gpus", "true"]);
    assert!(error.contains("give gpu:0, pci:0000:41:00.0"), "{error}");
    for (arguments, reason) in [
        (&["--near", "file:/proc/version", "true"][..], "in memory and on no disk"),
        (&["--near", "file:/nonexistent", "true"], "give a file that exists"),
        (&["--near", "ip:127.0.0.1", "true"], "this machine itself"),
        (&["--near", "gpu", "--near", "gpu:0", "true"], "each process has the node of its own GPU"),
        (&["--near", "gpu:0", "--home", "0", "true"], "cannot be used with"),
    ] {
        let error = refuses(&[&["run"], arguments].concat());
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn without_inputs_the_command_runs_once_in_the_place_of_nearq() {
    let Some(device) = device() else { return };
    let command = nearq()
        .args(["run", "--near", &device, "--", "sh", "-c", "echo $$; exit 7"])
        .stdout(std::process::Stdio::piped())
        .spawn();
    let command = command.unwrap();
    let process = command.id();
    let output = command.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), String::from_utf8_lossy(&output.stdout).trim()),
        (Some(7), process.to_string().as_str())
    );
    // As a job of its own, which has the name of its device.
    assert_eq!(
        prints(&["run", "--near", &device, "--tag", "--", "echo", "{}"]),
        format!("{device}\t{device}\n")
    );
    assert_eq!(prints(&["run", "--near", &device, "--ungroup", "--", "echo"]), "\n");
    let missing = nearq().args(["run", "--near", &device, "--", "/nonexistent"]).output().unwrap();
    assert!(
        missing.status.code() == Some(127) && errors(&missing).contains("/nonexistent"),
        "{missing:?}"
    );
}

#[test]
fn with_inputs_there_is_a_job_for_each() {
    let Some(device) = device() else { return };
    assert_eq!(prints(&["run", "--near", &device, "-k", "echo", ":::", "a", "b"]), "a\nb\n");
    assert_eq!(prints(&["run", "--near", &device, "-k", "-0", "echo"]), "");
    let told = nearq().args(["run", "--near", &device, "--verbose", "true"]).output().unwrap();
    assert!(
        errors(&told).starts_with(&format!("nearq: {device} is {device}")),
        "{}",
        errors(&told)
    );
}
