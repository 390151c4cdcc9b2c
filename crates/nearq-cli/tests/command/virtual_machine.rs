//! Inside a virtual machine with several packages, caches and nodes: `nearq topo` shows what QEMU was asked for; the runtime follows
//! hotplugged CPUs, affinity, quota and cpuset (`examples/follow.rs`); and the kernel puts things at their homes (`examples/home.rs`).
//!
//! `nearq-command/tests/guest` lists the requirements; if something is missing, one line says so and nothing is tested.

#![cfg(target_arch = "x86_64")]

use crate::guest::{boot, boot_as, script, static_program};
use serde_json::{Value, json};

/// The machine that QEMU is asked for. CPUs are numbered consecutively through packages, caches, cores and threads, and nodes are equal
/// parts of them.
struct Preset {
    name: &'static str,
    packages: usize,
    caches_per_package: usize,
    cores_per_cache: usize,
    threads_per_core: usize,
    distances: &'static [&'static [u32]],
}

const FOUR_NODES: &[&[u32]] =
    &[&[10, 12, 20, 32], &[12, 10, 32, 20], &[20, 32, 10, 12], &[32, 20, 12, 10]];
/// The distance from node 1 to node 0 is greater than the reverse.
const NOT_SYMMETRIC: &[&[u32]] =
    &[&[10, 12, 20, 32], &[14, 10, 32, 20], &[20, 32, 10, 12], &[32, 20, 12, 10]];

const fn preset(
    name: &'static str,
    sizes: [usize; 4],
    distances: &'static [&'static [u32]],
) -> Preset {
    let [packages, caches_per_package, cores_per_cache, threads_per_core] = sizes;
    Preset { name, packages, caches_per_package, cores_per_cache, threads_per_core, distances }
}

const PRESETS: [Preset; 5] = [
    preset("A", [2, 2, 2, 1], &[&[10, 21], &[21, 10]]),
    preset("As", [2, 2, 1, 2], &[&[10, 21], &[21, 10]]),
    preset("B", [1, 4, 2, 2], &[&[10, 12], &[12, 10]]),
    preset("C", [2, 2, 2, 1], FOUR_NODES),
    preset("D", [2, 2, 2, 1], NOT_SYMMETRIC),
];

#[test]
fn topo_shows_the_machine_that_qemu_was_given() {
    let Some(script) = script() else { return };
    let arguments = ["--package", "nearq-cli", "--bin", "nearq"];
    let Some(program) = static_program(&arguments, "nearq") else { return };
    for preset in &PRESETS {
        let Some(output) = boot(&script, preset.name, &program, &["topo", "--json"]) else {
            return;
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {}\n{errors}", preset.name, output.status);
        let text = String::from_utf8_lossy(&output.stdout);
        let json: Value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error} in\n{text}\n{errors}", preset.name));
        preset.check(&json);
    }
}

#[test]
fn the_runtime_follows_cpus_affinity_quota_and_cpuset() {
    let Some(script) = script() else { return };
    let arguments = ["--package", "nearq-cli", "--example", "follow"];
    let Some(program) = static_program(&arguments, "examples/follow") else { return };
    let Some(output) = boot(&script, "A", &program, &[]) else { return };
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    for change in [
        "affinity shrunk",
        "affinity grown",
        "a CPU off",
        "the CPU on again",
        "a quota of 1.5 CPUs",
        "a quota of half a CPU",
        "no quota",
        "a cpuset of half the CPUs",
        "a cpuset of all CPUs",
    ] {
        assert!(text.contains(&format!("ok: {change}: ")), "{change} in\n{text}\n{errors}");
    }
}

/// Time is counted by instructions of the guest: an item that waits for 10 ms may leave its home, and if the guest's CPUs were threads of a
/// busy host, they would stand still for longer than that.
#[test]
fn homes_match_what_the_kernel_does() {
    let Some(script) = script() else { return };
    let arguments = ["--package", "nearq-cli", "--example", "home"];
    let Some(program) = static_program(&arguments, "examples/home") else { return };
    for preset in ["A", "C"] {
        let options = ["-T", "300", "-t", preset, "-a", "icount:1:5"];
        let Some(output) = boot_as(&script, &options, &[], &program, &[]) else { return };
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{preset}: {}\n{text}\n{errors}", output.status);
        let checked = text.lines().filter(|line| line.starts_with("ok: ")).count();
        assert_eq!(checked, 6, "{preset}: {text}\n{errors}");
    }
}

impl Preset {
    fn check(&self, json: &Value) {
        let name = self.name;
        let per_core = self.threads_per_core;
        let per_cache = per_core * self.cores_per_cache;
        let per_package = per_cache * self.caches_per_package;
        let cpus = per_package * self.packages;
        let nodes = self.distances.len();
        let per_node = cpus / nodes;
        for (array, size) in [
            ("cores", per_core),
            ("llcs", per_cache),
            ("packages", per_package),
            ("nodes", per_node),
        ] {
            assert_eq!(groups(&json[array]), parts(cpus, size), "{array} of {name}");
        }
        for (scope, size) in [
            ("cpu", 1),
            ("smt", per_core),
            ("cache_shard", per_cache),
            ("cache", per_cache),
            ("numa", per_node),
            ("system", cpus),
        ] {
            assert_eq!(
                groups(&json["pods"][scope]),
                parts(cpus, size),
                "pods of {scope} of {name}"
            );
        }
        for cpu in 0..cpus {
            let found = &json["cpus"][cpu];
            let place = ["cpu", "core", "llc", "package", "node"].map(|part| &found[part]);
            let asked =
                [1, per_core, per_cache, per_package, per_node].map(|size| json!(cpu / size));
            assert_eq!(place, asked.each_ref(), "place of CPU {cpu} of {name}");
            assert_eq!((&found["online"], &found["allowed"]), (&json!(true), &json!(true)));
        }
        assert_eq!(json["cpus"].as_array().map(Vec::len), Some(cpus), "CPUs of {name}");
        assert_eq!(json["distances"], json!(self.distances), "distances of {name}");
        assert!(
            json["llcs"].as_array().unwrap().iter().all(|llc| llc["level"] == 3),
            "the last-level caches of {name} are L3"
        );
        assert_eq!(json["limits"]["parallelism"], json!(cpus), "limits of {name}");
        assert_eq!(json["notes"], json!([]), "something about {name} is unknown");
    }
}

/// The CPUs of each element of an array.
fn groups(array: &Value) -> Vec<Value> {
    array.as_array().unwrap().iter().map(|group| group["cpus"].clone()).collect()
}

/// The CPUs below `cpus` in parts of `size`.
fn parts(cpus: usize, size: usize) -> Vec<Value> {
    (0..cpus / size)
        .map(|part| json!((part * size..(part + 1) * size).collect::<Vec<_>>()))
        .collect()
}
