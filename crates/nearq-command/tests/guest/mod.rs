//! Boots a virtual machine with several packages, caches and nodes, for the tests of both commands. They include this file by its path, so
//! that the folders named here belong to the crate under test.
//!
//! The folder with the script that boots a virtual machine (`vmrun.sh`) is `NEARQ_VM`, or else `../shared/vm` beside the project. It must
//! have been set up (`setup.sh` there), and the Rust target for static programs must be installed; if something is missing, one line says
//! so and nothing is tested. `NEARQ_VM_KERNEL` is the path of another kernel, with sched_ext, BTF and virtio's console.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MUSL: &str = "x86_64-unknown-linux-musl";

/// Boots a machine that runs `program`; `None` if QEMU does not start on this machine.
pub(crate) fn boot(
    script: &Path,
    preset: &str,
    program: &Path,
    arguments: &[&str],
) -> Option<Output> {
    boot_with(script, preset, &[], program, arguments)
}

/// As [`boot`], with more files in `/job`, the program's working directory.
pub(crate) fn boot_with(
    script: &Path,
    preset: &str,
    files: &[&Path],
    program: &Path,
    arguments: &[&str],
) -> Option<Output> {
    boot_as(script, &["-T", "150", "-t", preset], files, program, arguments)
}

/// As [`boot_with`], for a machine that the script's options describe.
pub(crate) fn boot_as(
    script: &Path,
    options: &[&str],
    files: &[&Path],
    program: &Path,
    arguments: &[&str],
) -> Option<Output> {
    let once = || {
        let mut command = Command::new("bash");
        command.arg(script).args(options);
        if let Some(kernel) = env::var_os("NEARQ_VM_KERNEL") {
            command.arg("-k").arg(kernel);
        }
        for file in files {
            command.arg("-f").arg(file);
        }
        command.arg("--").arg(program).args(arguments);
        command.output().expect("bash is there")
    };
    let mut output = once();
    // 125: the guest died before it could say how the program ended. On a loaded host that happens to an occasional boot.
    if output.status.code() == Some(125) {
        output = once();
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let no_qemu = ["error while loading shared libraries", "No such file"];
    if !output.status.success() && no_qemu.iter().any(|text| errors.contains(text)) {
        let why = errors.lines().next().unwrap_or_default();
        skipped(why, "install QEMU's libraries (Debian: qemu-system-x86)");
        return None;
    }
    Some(output)
}

/// The script that boots a virtual machine, if there is one and it has been set up.
pub(crate) fn script() -> Option<PathBuf> {
    let named = env::var_os("NEARQ_VM").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let folder = named
        .clone()
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vm"));
    let script = folder.join("vmrun.sh");
    if !script.exists() {
        assert_eq!(named, None, "NEARQ_VM: the folder holds no vmrun.sh");
        skipped("NEARQ_VM is not set", "set it to the folder that holds vmrun.sh");
        return None;
    }
    let set_up = env::var_os("VMLAB").map(PathBuf::from).or_else(|| {
        let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
        Some(cache?.join("numa-vm"))
    });
    if !set_up.is_some_and(|folder| folder.join("init").exists()) {
        skipped("the virtual machine is not set up", "run the setup.sh beside vmrun.sh");
        return None;
    }
    Some(script)
}

/// A program, linked statically because the virtual machine has no libraries. It is built in a separate folder and without optimisation,
/// which takes half a minute the first time.
pub(crate) fn static_program(arguments: &[&str], program: &str) -> Option<PathBuf> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let found = Command::new(rustc).args(["--print", "target-libdir", "--target", MUSL]).output();
    let folder = found.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    if !folder.is_some_and(|folder| Path::new(folder.trim()).is_dir()) {
        skipped(&format!("no {MUSL}"), &format!("rustup target add {MUSL}"));
        return None;
    }
    let quickly = ["--config", "profile.dev.package.\"*\".opt-level=0"];
    Some(build(MUSL, &[arguments, &quickly].concat(), None).join(program))
}

/// Runs cargo with these arguments for a target, in a separate folder, with the compiler's flags that are needed to link statically;
/// returns the folder with the programs.
pub(crate) fn build(target: &str, arguments: &[&str], flags: Option<&str>) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static");
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg("build").args(arguments).args(["--target", target]);
    command.args(["--config", "profile.dev.debug=false"]).arg("--target-dir").arg(&folder);
    // Flags for sanitizers and the like are meant for the test, not for the program.
    for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        command.env_remove(variable);
    }
    command.envs(flags.map(|flags| ("RUSTFLAGS", flags)));
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder.join(target).join("debug")
}

/// What a dynamically linked program needs in the virtual machine, and `/job/dash`, such a program; `None` if something is missing.
pub(crate) fn libraries() -> Option<Vec<PathBuf>> {
    let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
    let mut files = vec![(loader.to_owned(), "lib64/ld-linux-x86-64.so.2".to_owned())];
    for name in ["libc.so.6", "libgcc_s.so.1"] {
        let folders =
            ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"];
        let found =
            folders.iter().map(|folder| Path::new(folder).join(name)).find(|file| file.exists());
        let found = found.unwrap_or_else(|| Path::new(folders[0]).join(name));
        files.push((found, format!("lib/x86_64-linux-gnu/{name}")));
    }
    files.push((PathBuf::from("/bin/dash"), "job/dash".into()));
    if let Some((missing, _)) = files.iter().find(|(file, _)| !file.exists()) {
        skipped(&format!("no {}", missing.display()), "run the tests on Debian or its like");
        return None;
    }
    Some(files.iter().map(|(file, place)| placed(file, place)).collect())
}

/// A file of this machine and its path in the virtual one.
fn placed(file: &Path, place: &str) -> PathBuf {
    // The target of a link: the link itself would dangle there.
    let file = std::fs::canonicalize(file).expect("it exists");
    PathBuf::from(format!("{}:{place}", file.display()))
}

/// Reports that something could not be tested here, bypassing the test harness, which hides the output of passing tests. The line is
/// written in one call, so that no other output is mixed into it.
pub(crate) fn skipped(why: &str, how: &str) {
    let line = format!("skipped: virtual machines: {why}; to have it: {how}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
