//! `nearq topo`: text, JSON and pictures of this machine and of others.

use crate::common::{Folder, errors, length, nearq, prints, skipped, topo_json};
use serde_json::{Value, json};
use std::io::Read as _;
use std::process::Stdio;

#[test]
fn this_machine_is_shown_with_usable_cpus_and_the_reason() {
    let text = prints(&["topo"]);
    let scopes = ["cpu", "smt", "cache_shard", "cache", "numa", "system"];
    for part in
        scopes.iter().chain(&["affinity mask", "cpuset", "CPU quota", "so this process may use"])
    {
        assert!(text.contains(part), "{part} is missing from\n{text}");
    }
    let json = topo_json(&[]);
    assert!(json["limits"]["parallelism"].as_u64().unwrap() >= 1);
    let cpus = json["cpus"].as_array().unwrap();
    let allowed: Vec<&Value> =
        cpus.iter().filter(|cpu| cpu["allowed"] == true).map(|cpu| &cpu["cpu"]).collect();
    assert_eq!(json!(allowed), json["limits"]["effective"]);
    assert_eq!(topo_json(&["--on", "here"])["cpus"], json["cpus"]);
}

#[test]
fn an_affinity_mask_is_respected() {
    let json = topo_json(&[]);
    let first = json["limits"]["effective"][0].to_string();
    let output = std::process::Command::new("taskset")
        .args(["-c", &first, crate::PROGRAM, "topo", "--json"])
        .output();
    let Ok(output) = output else {
        skipped("an affinity mask", "there is no taskset", "install util-linux");
        return;
    };
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["limits"]["affinity"].to_string(), format!("[{first}]"));
    assert_eq!(json["limits"]["parallelism"], 1);
}

/// The output and the messages of `nearq topo --json` after `mounts` was run in a mount namespace; `None`, with a line that says so, if
/// there can be no such namespace.
fn with_mounts(what: &str, mounts: &str) -> Option<(Value, String)> {
    let script = format!("{{ {mounts}; }} 2>/dev/null || exit 77; exec \"$0\" topo --json");
    let output = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", &script, crate::PROGRAM])
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let json = serde_json::from_slice(&output.stdout).expect("JSON");
            Some((json, errors(&output)))
        }
        Ok(output) if output.status.code() != Some(77) && !errors(&output).contains("unshare") => {
            panic!("{what}: {}", errors(&output))
        }
        _ => {
            skipped(what, "no mount namespace may be made", "run the tests as root");
            None
        }
    }
}

#[test]
fn without_sys_the_usable_cpus_are_the_same_and_one_warning_is_printed() {
    let expected = topo_json(&[])["limits"]["effective"].clone();
    let Some((json, stderr)) = with_mounts("a system without /sys", "mount -t tmpfs none /sys")
    else {
        return;
    };
    assert_eq!(json["limits"]["effective"], expected);
    assert_eq!((length(&json, "nodes"), length(&json, "llcs")), (1, 1));
    assert!(stderr.lines().count() == 1 && stderr.contains("/sys/devices/system/cpu"), "{stderr}");
}

#[test]
fn a_made_up_list_of_online_cpus_hides_no_usable_cpu() {
    let expected = topo_json(&[]);
    let file = Folder::new("made-up-list");
    std::fs::write(file.path("online"), "0\n").unwrap();
    let mount = format!(
        "mount --make-rprivate / && mount --bind {} /sys/devices/system/cpu/online",
        file.path("online")
    );
    let Some((json, stderr)) = with_mounts("a list of CPUs that a container made up", &mount)
    else {
        return;
    };
    for key in ["effective", "parallelism", "online"] {
        assert_eq!(json["limits"][key], expected["limits"][key], "{key}");
    }
    assert_eq!((&json["cpus"], &json["pods"]), (&expected["cpus"], &expected["pods"]));
    assert_eq!(stderr, "");
}

#[test]
fn a_synthetic_machine_has_every_array_and_no_limits() {
    let json = topo_json(&["--on", "pack:2 numa:2 l3:2 core:4 pu:2"]);
    let lengths = ["cpus", "cores", "llcs", "nodes", "distances"].map(|name| length(&json, name));
    assert_eq!(lengths, [64, 32, 8, 4, 4]);
    let pods = &json["pods"];
    let scopes = ["cpu", "smt", "cache_shard", "cache", "numa", "system"];
    assert_eq!(scopes.map(|scope| length(pods, scope)), [64, 32, 8, 8, 4, 1]);
    assert_eq!(pods["cache"][1]["cpus"], json!([8, 9, 10, 11, 12, 13, 14, 15]));
    assert_eq!(json["limits"], Value::Null);
    assert!(
        json["distances"].as_array().unwrap().iter().all(|row| row.as_array().unwrap().len() == 4)
    );
    let text = prints(&["topo", "--on", "pack:2 numa:2 l3:2 core:4 pu:2"]);
    assert!(text.contains("2 packages, 4 nodes, 8 last-level caches, 32 cores, 64 CPUs"), "{text}");
    assert!(!text.contains("affinity mask"), "another machine has no limits here\n{text}");
}

#[test]
fn a_built_in_machine_is_shown_with_its_costs() {
    let json = topo_json(&["--on", "ryzen-3900x"]);
    assert_eq!(["cpus", "cores", "llcs", "nodes"].map(|name| length(&json, name)), [24, 12, 4, 1]);
    let text = prints(&["topo", "--on", "ryzen-3900x", "--costs"]);
    assert!(text.contains("24 CPUs") && text.contains("Ryzen 9 3900X"), "{text}");
    assert!(text.contains("context switch") && text.contains("MHz"), "{text}");
    let plain = prints(&["topo", "--on", "ryzen-3900x"]);
    assert!(!plain.contains("context switch"), "costs are shown only on request\n{plain}");
    let help = prints(&["topo", "--help"]);
    for name in ["here", "ryzen-3900x", "epyc-7551-2s", "grace-72", "sysfs:DIR", "4096"] {
        assert!(help.contains(name), "{name} is missing from\n{help}");
    }
}

#[test]
fn shards_have_the_requested_size() {
    let shards = |arguments: &[&str]| {
        let json = topo_json(&[&["--on", "l3:1 core:12 pu:2"], arguments].concat());
        length(&json["pods"], "cache_shard")
    };
    assert_eq!(shards(&[]), 2);
    assert_eq!(shards(&["--shard-size", "4"]), 3);
    assert_eq!(shards(&["--shard-size", "1"]), 12);
    assert_eq!(shards(&["--shard-size", "4096"]), 1);
}

#[test]
fn the_live_machine_through_its_sysfs_is_the_same_machine() {
    let [here, there] = [topo_json(&[]), topo_json(&["--on", "sysfs:/"])];
    for name in ["possible", "online", "cores", "llcs", "caches", "pods", "distances"] {
        assert_eq!(here[name], there[name], "{name}");
    }
    assert_eq!(there["limits"], Value::Null);
}

#[test]
fn an_xml_file_can_be_read() {
    let folder = Folder::new("xml");
    let path = folder.path("machine.xml");
    let xml = r#"<?xml version="1.0" encoding="UTF-8"?>
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000000f" nodeset="0x00000001" gp_index="1">
    <object type="NUMANode" os_index="0" cpuset="0x0000000f" nodeset="0x00000001" local_memory="1048576" gp_index="2"/>
    <object type="L3Cache" cpuset="0x0000000f" nodeset="0x00000001" cache_size="1048576" depth="3" cache_linesize="64" cache_type="0" gp_index="3">
      <object type="Core" os_index="0" cpuset="0x00000003" nodeset="0x00000001" gp_index="4">
        <object type="PU" os_index="0" cpuset="0x00000001" nodeset="0x00000001" gp_index="5"/>
        <object type="PU" os_index="1" cpuset="0x00000002" nodeset="0x00000001" gp_index="6"/>
      </object>
      <object type="Core" os_index="1" cpuset="0x0000000c" nodeset="0x00000001" gp_index="7">
        <object type="PU" os_index="2" cpuset="0x00000004" nodeset="0x00000001" gp_index="8"/>
        <object type="PU" os_index="3" cpuset="0x00000008" nodeset="0x00000001" gp_index="9"/>
      </object>
    </object>
  </object>
</topology>
"#;
    std::fs::write(&path, xml).unwrap();
    let json = topo_json(&["--on", &path]);
    assert_eq!(["cpus", "cores", "llcs", "nodes"].map(|name| length(&json, name)), [4, 2, 1, 1]);
    assert_eq!(json["pods"]["smt"][1]["cpus"], json!([2, 3]));
}

#[test]
fn a_picture_can_be_written_along_with_text_and_json() {
    let folder = Folder::new("picture");
    let path = folder.path("machine.svg");
    let text = prints(&["topo", "--on", "numa:2 core:4", "--svg", &path, "--scope", "numa"]);
    assert!(text.contains("Pods of every scope"), "{text}");
    let by_node = std::fs::read_to_string(&path).unwrap();
    assert!(by_node.starts_with("<svg") && by_node.trim_end().ends_with("</svg>"), "{by_node}");
    let json = topo_json(&["--on", "numa:2 core:4", "--svg", &path, "--scope", "cpu"]);
    assert_eq!(length(&json, "nodes"), 2);
    assert_ne!(std::fs::read_to_string(&path).unwrap(), by_node, "the scope colours the pods");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    for arguments in [
        &["topo", "--on", "pack:4 numa:4 l3:8 core:8 pu:2", "--json"][..],
        &["topo", "--help"],
        &["--version"],
    ] {
        let mut child = nearq()
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut first = [0];
        let mut pipe = child.stdout.take().unwrap();
        pipe.read_exact(&mut first).unwrap();
        drop(pipe);
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), errors(&output)),
            (Some(0), String::new()),
            "{arguments:?}"
        );
    }
}

#[test]
fn lost_output_is_a_failure() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = nearq().arg("topo").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors(&output).starts_with("nearq: standard output cannot be written"),
        "{}",
        errors(&output)
    );
}

#[test]
fn help_and_version() {
    assert_eq!(prints(&["--version"]), concat!("nearq ", env!("CARGO_PKG_VERSION"), "\n"));
    for arguments in [&["--help"][..], &["topo", "--help"]] {
        let text = prints(arguments);
        assert!(text.contains("Usage: nearq") && text.contains("Examples:"), "{text}");
    }
}
