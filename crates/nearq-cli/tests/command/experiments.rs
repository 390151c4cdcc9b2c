//! `nearq bench` and `nearq sim`: another program replaces the command, and is built first under `cargo run`. Here the program and cargo
//! are scripts that print their arguments.

use crate::common::{Folder, errors};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Output, Stdio};

/// A copy of the command, in the target directory of a separate project.
struct Copy {
    folder: Folder,
}

impl Copy {
    /// Only one test may use `name`.
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        std::fs::create_dir_all(folder.path("target/fast")).unwrap();
        std::fs::write(folder.path("target/CACHEDIR.TAG"), "").unwrap();
        std::fs::hard_link(crate::PROGRAM, folder.path("target/fast/nearq")).unwrap();
        Self { folder }
    }

    /// Creates a script.
    fn script(&self, file: &str, text: &str) {
        // A shell writes it. If this process had it open for writing, a child of another test might inherit that until it executes its
        // program, and the script could not be executed meanwhile.
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod +x \"$0\"";
        let path = self.folder.path(file);
        let status = Command::new("sh").args(["-c", write, &path, text]).status();
        assert!(status.unwrap().success());
    }

    /// A `nearq-bench` that prints its arguments and exits with 7.
    fn bench(&self, file: &str) {
        self.script(file, "for word; do printf '[%s]' \"$word\"; done; exit 7");
    }

    /// The command, as a shell starts it, with the folder `bin` in PATH.
    fn nearq(&self) -> Command {
        let mut command = Command::new(self.folder.path("target/fast/nearq"));
        command.env_remove("CARGO").env_remove("CARGO_MANIFEST_DIR").stdin(Stdio::null());
        command.env("PATH", format!("{}:/usr/bin:/bin", self.folder.path("bin")));
        command
    }

    /// The command, as `cargo run` starts it; cargo is a script.
    fn under_cargo(&self, cargo: &str) -> Output {
        self.script("cargo", cargo);
        let mut command = self.nearq();
        command.env("CARGO", self.folder.path("cargo"));
        command.env("CARGO_MANIFEST_DIR", env!("CARGO_MANIFEST_DIR"));
        command.args(["bench", "scopes"]).output().unwrap()
    }
}

fn printed(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn arguments_and_exit_status_are_passed_through() {
    let copy = Copy::new("experiments-arguments");
    copy.bench("target/fast/nearq-bench");
    for (arguments, shown) in [
        (&["bench"][..], "[bench]"),
        (&["bench", "--help"], "[bench][--help]"),
        (
            &["bench", "nonsense", "--on", "pack:2 core:4", ""],
            "[bench][nonsense][--on][pack:2 core:4][]",
        ),
        (&["sim", "soak", "--", "-x"], "[sim][soak][--][-x]"),
        (&["sim", "--version", "topo"], "[sim][--version][topo]"),
        (&["help", "bench", "scopes"], "[help][bench][scopes]"),
        (&["help", "sim"], "[help][sim]"),
    ] {
        let output = copy.nearq().args(arguments).output().unwrap();
        assert_eq!(printed(&output), (Some(7), shown.into()), "{}", errors(&output));
        assert_eq!(errors(&output), "");
    }
    let no_text = OsStr::from_bytes(b"core:\xff");
    let output = copy.nearq().arg("bench").arg(no_text).output().unwrap();
    assert_eq!(output.stdout, b"[bench][core:\xff]");
    let help = copy.nearq().arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for line in [
        "  bench        Run an experiment",
        "  sim          Test the runtime on a simulated machine",
    ] {
        assert!(help.contains(line), "{line} is missing from\n{help}");
    }
}

#[test]
fn the_program_beside_the_command_comes_before_path() {
    let copy = Copy::new("experiments-path");
    std::fs::create_dir(copy.folder.path("bin")).unwrap();
    copy.script("bin/nearq-bench", "echo from PATH");
    let run = || printed(&copy.nearq().args(["sim", "soak"]).output().unwrap());
    assert_eq!(run(), (Some(0), "from PATH\n".into()));
    copy.script("target/fast/nearq-bench", "echo from beside");
    assert_eq!(run(), (Some(0), "from beside\n".into()));
}

#[test]
fn a_missing_program_is_reported_with_places_searched_and_advice() {
    let copy = Copy::new("experiments-missing");
    let output = copy.nearq().args(["bench", "scopes"]).output().unwrap();
    let line = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{line}");
    let beside = copy.folder.path("target/fast/nearq-bench");
    for part in ["nearq: ", &beside, "PATH", "cargo build --release --package nearq-bench"] {
        assert!(line.contains(part) && line.lines().count() == 1, "{part} is missing from {line}");
    }
    // A file that is not a program does not hide it.
    std::fs::write(&beside, "").unwrap();
    assert_eq!(errors(&copy.nearq().args(["bench", "scopes"]).output().unwrap()), line);
}

#[test]
fn under_cargo_run_the_program_is_built_first() {
    let copy = Copy::new("experiments-cargo");
    let bench = copy.folder.path("target/fast/nearq-bench");
    let log = copy.folder.path("log");
    copy.bench("ready");
    let ready = copy.folder.path("ready");
    let builds = format!(
        "echo \"$*\" > {log}\necho '   Compiling nearq-bench v0.1.0' >&2\ncp {ready} {bench}\necho '    Finished' >&2"
    );
    let output = copy.under_cargo(&builds);
    assert_eq!(printed(&output), (Some(7), "[bench][scopes]".into()), "{}", errors(&output));
    let note = "nearq: cargo builds nearq-bench, which `bench` and `sim` need\n";
    assert_eq!(errors(&output), format!("{note}   Compiling nearq-bench v0.1.0\n"));
    let log_text = std::fs::read_to_string(&log).unwrap();
    let target = copy.folder.path("target");
    for part in
        ["build ", "--package nearq-bench", "--profile fast", &format!("--target-dir {target}")]
    {
        assert!(log_text.contains(part), "{part} is missing from {log_text}");
    }
    assert!(!log_text.contains("--target "), "{log_text}");

    let output = copy.under_cargo("echo '    Finished `fast` profile' >&2");
    assert_eq!(printed(&output), (Some(7), "[bench][scopes]".into()));
    assert_eq!(errors(&output), "", "there was nothing to build");

    // An existing program is not run if the new one cannot be built: it is older than its sources.
    let output = copy.under_cargo("echo 'error: expected `;`' >&2; exit 101");
    assert_eq!(printed(&output), (Some(1), String::new()));
    let stderr = errors(&output);
    assert!(
        stderr.contains("error: expected `;`\n") && stderr.contains("is not built"),
        "{stderr}"
    );
}

#[test]
fn nothing_is_built_without_cargo_run() {
    let copy = Copy::new("experiments-no-cargo");
    copy.bench("target/fast/nearq-bench");
    copy.script("cargo", &format!("touch {}", copy.folder.path("was-run")));
    let cargo = copy.folder.path("cargo");
    let other = copy.folder.path("");
    for (cargo, manifest) in [(None, None), (Some(&cargo), None), (Some(&cargo), Some(&other))] {
        let mut command = copy.nearq();
        command.envs(cargo.map(|cargo| ("CARGO", cargo)));
        command.envs(manifest.map(|folder| ("CARGO_MANIFEST_DIR", folder)));
        let output = command.args(["bench", "scopes"]).output().unwrap();
        assert_eq!(printed(&output), (Some(7), "[bench][scopes]".into()), "{}", errors(&output));
    }
    assert!(!std::fs::exists(copy.folder.path("was-run")).unwrap());
}
