//! Inside a virtual machine of several packages, caches and nodes: what `nearq topo` says is what QEMU was asked for, and
//! the runtime follows CPUs that go and come, affinity, quota and cpuset (`examples/follow.rs`).
//!
//! The folder with the script that boots one (`vmrun.sh`) is `NEARQ_VM`, or else `../shared/vm` beside the project. It must
//! have been set up (`setup.sh` there), and the Rust target for static programs must be installed; where something is
//! missing, one line says so and nothing is tested.

#![cfg(target_arch = "x86_64")]

mod common;

use common::skipped;
use serde_json::{Value, json};
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const TARGET: &str = "x86_64-unknown-linux-musl";
const WHAT: &str = "virtual machines";

/// What QEMU is asked for. CPUs are numbered straight through packages, caches, cores and threads, and nodes are equal
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
/// From node 1 to node 0 it is farther than back.
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
fn topo_says_what_was_asked_of_qemu() {
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
        assert_eq!(json["notes"], json!([]), "everything about {name} is known");
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

/// Boots a machine that runs `program`; nothing where QEMU does not start on this one.
fn boot(script: &Path, preset: &str, program: &Path, arguments: &[&str]) -> Option<Output> {
    let once = || {
        let mut command = Command::new("bash");
        command.arg(script).args(["-T", "150", "-t", preset, "--"]).arg(program).args(arguments);
        command.output().expect("bash is there")
    };
    let mut output = once();
    // 125: the guest died before it could say how the program ended. A loaded host does that to one boot of many.
    if output.status.code() == Some(125) {
        output = once();
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let no_qemu = ["error while loading shared libraries", "No such file"];
    if !output.status.success() && no_qemu.iter().any(|text| errors.contains(text)) {
        let why = errors.lines().next().unwrap_or_default();
        skipped(WHAT, why, "install QEMU's libraries (Debian: qemu-system-x86)");
        return None;
    }
    Some(output)
}

/// The script that boots a virtual machine, where there is one and it has been set up.
fn script() -> Option<PathBuf> {
    let named = env::var_os("NEARQ_VM").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let folder = named
        .clone()
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vm"));
    let script = folder.join("vmrun.sh");
    if !script.exists() {
        assert_eq!(named, None, "NEARQ_VM: the folder holds no vmrun.sh");
        skipped(WHAT, "NEARQ_VM is not set", "set it to the folder that holds vmrun.sh");
        return None;
    }
    let set_up = env::var_os("VMLAB").map(PathBuf::from).or_else(|| {
        let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
        Some(cache?.join("numa-vm"))
    });
    if !set_up.is_some_and(|folder| folder.join("init").exists()) {
        skipped(WHAT, "the virtual machine is not set up", "run the setup.sh beside vmrun.sh");
        return None;
    }
    Some(script)
}

/// A program, linked statically, since the virtual machine has no libraries. Built in a folder of its own and without
/// optimisation, which takes half a minute the first time.
fn static_program(arguments: &[&str], program: &str) -> Option<PathBuf> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let found = Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]).output();
    let folder = found.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    if !folder.is_some_and(|folder| Path::new(folder.trim()).is_dir()) {
        skipped(WHAT, &format!("no {TARGET}"), &format!("rustup target add {TARGET}"));
        return None;
    }
    let target_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static");
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .arg("build")
        .args(arguments)
        .args(["--target", TARGET])
        .args(["--config", "profile.dev.package.\"*\".opt-level=0"])
        .args(["--config", "profile.dev.debug=false"])
        .arg("--target-dir")
        .arg(&target_dir)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        // Sanitizers and the like are for the test, not for the program.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("cargo is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(target_dir.join(TARGET).join("debug").join(program))
}
