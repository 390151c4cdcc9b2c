//! Tests the command from beginning to end, in a virtual machine with several nodes and a stock kernel.
//!
//! `nearq-command/tests/guest` says what must be installed; instead of a Rust target these tests need libelf and zlib for static linking.
//! If something is missing, one line says so and nothing is tested.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a Linux program")]

#[path = "../../nearq-command/tests/guest/mod.rs"]
mod guest;

use guest::{build, script, skipped};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The compiler's flags for static linking.
const STATIC: &str = "-C target-feature=+crt-static";

#[test]
fn the_command_from_beginning_to_end() {
    let Some((script, programs)) = prepared() else { return };
    let Some(text) = boot(&script, &["-t", "A"], programs, "command.sh", "") else { return };
    let passed = text.lines().filter(|line| line.starts_with("ok: ")).count();
    assert_eq!(passed, 16, "{text}");
}

#[test]
fn homes_told_by_the_library_and_the_command_are_inherited() {
    let Some((script, programs)) = prepared() else { return };
    let how = ["-t", "A"];
    let Some(text) = boot_with(&script, &how, programs, &workspace_programs(), "tell.sh", "")
    else {
        return;
    };
    let passed = text.lines().filter(|line| line.starts_with("ok: ")).count();
    assert_eq!(passed, 8, "{text}");
}

/// The programs of the tree are linked dynamically: the library that chooses their homes is one that their loader loads.
#[test]
fn programs_of_a_tree_tell_their_homes() {
    let Some((script, programs)) = prepared() else { return };
    let Some(libraries) = guest::libraries() else { return };
    let more: Vec<PathBuf> = workspace_programs().into_iter().chain(libraries).collect();
    let how = ["-t", "A"];
    let Some(text) = boot_with(&script, &how, programs, &more, "tree.sh", "") else { return };
    let passed = text.lines().filter(|line| line.starts_with("ok: ")).count();
    assert_eq!(passed, 3, "{text}");
}

/// At least one boot in three must be in time: if the host is busy, the guest's CPUs may stand still for a long time.
#[test]
fn pages_and_tasks_meet_within_five_seconds() {
    let Some((script, programs)) = prepared() else { return };
    let mut outputs = Vec::new();
    for _ in 0..3 {
        let Some(text) = boot(&script, &["-t", "A"], programs, "memory.sh", "") else { return };
        let after = text.lines().filter_map(|line| {
            line.strip_prefix("together after ")?.split(' ').next()?.parse::<u64>().ok()
        });
        let after: Vec<u64> = after.collect();
        assert_eq!(after.len(), 2, "{text}");
        println!("together after {after:?} ms");
        assert!(text.contains("there is room for it on node"), "why it went: {text}");
        assert!(text.contains("its memory is being moved to its home"), "{text}");
        if after.iter().all(|after| *after <= 5000) {
            return;
        }
        outputs.push(text);
    }
    panic!("{}", outputs.join("\n"));
}

/// Runs for half a minute on each shape of a machine, or for `NEARQ_STRESS_SECONDS` on the shapes that `NEARQ_STRESS_SHAPES` names.
#[test]
fn a_heavy_load_runs_on_machines_of_many_shapes() {
    let Some((script, programs)) = prepared() else { return };
    let seconds: u64 =
        env::var("NEARQ_STRESS_SECONDS").map_or(30, |text| text.parse().expect("seconds"));
    let shapes = env::var("NEARQ_STRESS_SHAPES").unwrap_or("A As B C".into());
    for preset in shapes.split_whitespace() {
        let settings = format!("SECONDS_OF_LOAD={seconds}\n");
        let limit = (seconds + 400).to_string();
        let Some(text) =
            boot(&script, &["-t", preset, "-T", &limit], programs, "hard.sh", &settings)
        else {
            return;
        };
        let count = |what: &str| figure(&text, what);
        for what in ["forks", "execs", "exchanges", "sleeps", "masks", "hotplugs", "classes"] {
            assert!(count(what) > 0.0, "{preset}: no {what}: {text}");
        }
        // By node.
        let events = |event: &str| -> Vec<u64> {
            let counter = format!("nearq_scx_{event}_total{{");
            let lines = text.lines().filter(|line| line.starts_with(&counter));
            lines.filter_map(|line| line.rsplit_once(' ')?.1.parse().ok()).collect()
        };
        let (homes, returned) = (events("home_exec"), events("returned"));
        println!(
            "{preset}: programs that began, by their home's node: {homes:?}; strays that returned: {returned:?}"
        );
        let nodes = if preset == "C" { 4 } else { 2 };
        // On a busy host few programs begin, and a node may have had none by chance.
        let (all, used) = (homes.iter().sum::<u64>(), homes.iter().filter(|count| **count > 0));
        let least = if all >= 16 * nodes as u64 { nodes } else { 2 };
        assert!(homes.len() == nodes && used.count() >= least, "{preset}: {text}");
        assert!(returned.iter().sum::<u64>() > 0, "{preset}: {text}");
    }
}

/// The output is the same to the byte each time: it tests decisions, not speed. The tasks of an overloaded home use as much CPU time as
/// without homes.
#[test]
fn no_cpu_is_idle_while_a_home_is_overloaded() {
    let Some((script, programs)) = prepared() else { return };
    let how = ["-t", "2:1:2:1:2", "-a", "icount:1:5"];
    let Some(text) = boot(&script, &how, programs, "compare.sh", "LOAD='overload 3000 0-1'\n")
    else {
        return;
    };
    let (stock, home) = text.split_once("scheduler home").expect("both were run");
    let cpu_ms = |text: &str| -> f64 {
        let cpu_ms = text.lines().filter_map(|line| line.strip_prefix("had_ms "));
        cpu_ms.map(|number| number.parse::<f64>().expect("a number")).sum()
    };
    let ratio = cpu_ms(home) / cpu_ms(stock);
    println!("CPU time while a home is overloaded, to stock: {ratio:.3}");
    assert!(ratio >= 0.99, "{ratio}: {text}");
}

/// Messages between tasks on one node, in instructions and context switches.
#[test]
fn one_node_is_no_slower_than_with_the_stock_scheduler() {
    let Some((script, programs)) = prepared() else { return };
    let how = ["-t", "1:1:2:1:1", "-a", "icount:1:5"];
    let Some(text) = boot(&script, &how, programs, "compare.sh", "LOAD=wakes\n") else { return };
    let (stock, home) = text.split_once("scheduler home").expect("both were run");
    for what in ["crowd_us", "crowd_switches", "few_us", "few_switches"] {
        let ratio = figure(home, what) / figure(stock, what);
        println!("{what}, to stock: {ratio:.3}");
        assert!(ratio <= 1.05, "{what} {ratio}: {text}");
    }
}

/// The number after a word.
fn figure(text: &str, what: &str) -> f64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(what)?.strip_prefix(' '));
    let number = lines.next().unwrap_or_else(|| panic!("no {what}: {text}"));
    number.trim().parse().expect("a number")
}

/// Boots a machine that runs a script of `tests/guest` with settings, and returns what it printed; `None` if QEMU does not start on this
/// machine.
fn boot(
    script: &Path,
    how: &[&str],
    programs: &Path,
    name: &str,
    settings: &str,
) -> Option<String> {
    boot_with(script, how, programs, &[], name, settings)
}

/// The same with more files beside the script.
fn boot_with(
    script: &Path,
    how: &[&str],
    programs: &Path,
    more: &[PathBuf],
    name: &str,
    settings: &str,
) -> Option<String> {
    let folder = format!("{name}.{}", how.join("").replace(':', "-"));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    std::fs::create_dir_all(&file).expect("a folder of our own");
    let file = file.join("settings");
    std::fs::write(&file, settings).expect("a folder of our own");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest");
    let scripts = [name, "common.sh"].map(|name| folder.join(name));
    let ours = ["nearq-scx", "examples/walker", "examples/stress"].map(|name| programs.join(name));
    let files = ours.iter().chain(more).chain(&scripts).chain([&file]);
    let files: Vec<&Path> = files.map(PathBuf::as_path).collect();
    let options = [&["-T", "400"], how].concat();
    let command = format!("/job/{name}");
    let output = guest::boot_as(script, &options, &files, Path::new("sh"), &[&command])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    assert!(text.trim_end().ends_with("all is well"), "{text}\n{errors}");
    Some(text)
}

/// The script that boots, and the folder with the programs; `None` if either is not available.
fn prepared() -> Option<(PathBuf, &'static Path)> {
    static PROGRAMS: OnceLock<Option<PathBuf>> = OnceLock::new();
    let script = script()?;
    let programs = PROGRAMS.get_or_init(programs).as_deref()?;
    Some((script, programs))
}

/// The command and the examples, linked statically because the virtual machine has no libraries.
fn programs() -> Option<PathBuf> {
    for library in ["libelf.a", "libz.a", "libc.a"] {
        let named = Command::new("cc").arg(format!("-print-file-name={library}")).output().ok()?;
        // The compiler prints the name itself if it does not find the file.
        if String::from_utf8_lossy(&named.stdout).trim() == library {
            let how = "install it (Debian: apt-get install libelf-dev zlib1g-dev libc6-dev)";
            skipped(&format!("there is no {library}"), how);
            return None;
        }
    }
    Some(build(TARGET, &["--bins", "--examples"], Some(STATIC)))
}

/// The command `nearq` and an example of the library, from the workspace above.
fn workspace_programs() -> [PathBuf; 2] {
    let what = ["--manifest-path", "../../Cargo.toml", "--package", "nearq-cli"];
    let what = [&what[..], &["--bin", "nearq", "--example", "home_hints"]].concat();
    let built = build(TARGET, &what, Some(STATIC));
    ["nearq", "examples/home_hints"].map(|name| built.join(name))
}
