//! Booting a virtual machine of several packages, caches and nodes, for tests.
//!
//! The folder with the script that boots one (`vmrun.sh`) is `NEARQ_VM`, or else `../shared/vm` beside the project. It must
//! have been set up (`setup.sh` there), and the Rust target for static programs must be installed; where something is
//! missing, one line says so and nothing is tested.

#![allow(dead_code, reason = "each test binary uses its part")]

use crate::common::skipped;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const TARGET: &str = "x86_64-unknown-linux-musl";
const WHAT: &str = "virtual machines";

/// Boots a machine that runs `program`; nothing where QEMU does not start on this one.
pub(crate) fn boot(
    script: &Path,
    preset: &str,
    program: &Path,
    arguments: &[&str],
) -> Option<Output> {
    boot_with(script, preset, &[], program, arguments)
}

/// The same with more files in `/job`, the folder that the program begins in.
pub(crate) fn boot_with(
    script: &Path,
    preset: &str,
    files: &[&Path],
    program: &Path,
    arguments: &[&str],
) -> Option<Output> {
    let once = || {
        let mut command = Command::new("bash");
        command.arg(script).args(["-T", "150", "-t", preset]);
        for file in files {
            command.arg("-f").arg(file);
        }
        command.arg("--").arg(program).args(arguments);
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
pub(crate) fn script() -> Option<PathBuf> {
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
pub(crate) fn static_program(arguments: &[&str], program: &str) -> Option<PathBuf> {
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
