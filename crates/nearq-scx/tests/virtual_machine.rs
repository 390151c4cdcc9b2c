//! In a virtual machine of several nodes, with a stock kernel: the command from beginning to end.
//!
//! The folder with the script that boots one (`vmrun.sh`) is `NEARQ_VM`, or else `../shared/vm` beside the project; it must have been
//! set up (`setup.sh` there), and libelf and zlib must be there for static linking. Where something is missing, one line says so
//! and nothing is tested.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a Linux program")]

use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const TARGET: &str = "x86_64-unknown-linux-gnu";

#[test]
fn the_command_from_beginning_to_end() {
    let Some((script, programs)) = prepared() else { return };
    let text = boot(&script, &["-t", "A"], programs, "command.sh", "");
    let passed = text.lines().filter(|line| line.starts_with("ok: ")).count();
    assert_eq!(passed, 14, "{text}");
}

#[test]
fn told_homes_are_inherited_and_the_library_and_the_command_tell_theirs() {
    let Some((script, programs)) = prepared() else { return };
    let ours = theirs(programs);
    let text = boot_with(&script, &["-t", "A"], programs, &ours, "tell.sh", "");
    let passed = text.lines().filter(|line| line.starts_with("ok: ")).count();
    assert_eq!(passed, 6, "{text}");
}

/// Of three boots one must do it in time: where the host is busy the guest's CPUs stand still for long.
#[test]
fn pages_and_tasks_come_together_within_five_seconds() {
    let Some((script, programs)) = prepared() else { return };
    let mut told = Vec::new();
    for _ in 0..3 {
        let text = boot(&script, &["-t", "A"], programs, "memory.sh", "");
        let after = text.lines().filter_map(|line| {
            line.strip_prefix("together after ")?.split(' ').next()?.parse::<u64>().ok()
        });
        let after: Vec<u64> = after.collect();
        assert_eq!(after.len(), 2, "{text}");
        assert!(text.contains("there is room for it on node"), "why it went: {text}");
        assert!(text.contains("its memory is brought to its home"), "{text}");
        if after.iter().all(|after| *after <= 5000) {
            return;
        }
        told.push(text);
    }
    panic!("{}", told.join("\n"));
}

/// Half a minute on each shape of a machine, or as long as `NEARQ_STRESS_SECONDS` says.
#[test]
fn a_hard_load_is_borne_on_machines_of_many_shapes() {
    let Some((script, programs)) = prepared() else { return };
    let seconds: u64 =
        env::var("NEARQ_STRESS_SECONDS").map_or(30, |text| text.parse().expect("seconds"));
    for preset in ["A", "As", "B", "C"] {
        let settings = format!("SECONDS_OF_LOAD={seconds}\n");
        let limit = (seconds + 400).to_string();
        let text = boot(&script, &["-t", preset, "-T", &limit], programs, "hard.sh", &settings);
        let count = |what: &str| figure(&text, what);
        for what in ["forks", "execs", "exchanges", "sleeps", "masks", "hotplugs"] {
            assert!(count(what) > 0.0, "{preset}: no {what}: {text}");
        }
        // Those of all nodes together.
        let events = |event: &str| -> u64 {
            let lines = text.lines().filter(|line| line.contains(&format!("\"{event}\"")));
            lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
        };
        assert!(events("home_exec") > 0 && events("returned") > 0, "{preset}: {text}");
    }
}

/// Repeatable to the byte: decisions, not speed. The tasks of an overloaded home use the CPU time that they use without homes.
#[test]
fn no_cpu_is_idle_while_a_home_is_overloaded() {
    let Some((script, programs)) = prepared() else { return };
    let how = ["-t", "2:1:2:1:2", "-a", "icount:1:5"];
    let text = boot(&script, &how, programs, "compare.sh", "LOAD='overload 3000 0-1'\n");
    let (stock, home) = text.split_once("scheduler home").expect("both were run");
    let had = |text: &str| -> f64 {
        let had = text.lines().filter_map(|line| line.strip_prefix("had_ms "));
        had.map(|number| number.parse::<f64>().expect("a number")).sum()
    };
    let ratio = had(home) / had(stock);
    println!("CPU time while a home is overloaded, to stock: {ratio:.3}");
    assert!(ratio >= 0.99, "{ratio}: {text}");
}

/// Messages between tasks on one node, in instructions and context switches.
#[test]
fn one_node_is_not_harmed() {
    let Some((script, programs)) = prepared() else { return };
    let how = ["-t", "1:1:2:1:1", "-a", "icount:1:5"];
    let text = boot(&script, &how, programs, "compare.sh", "LOAD=wakes\n");
    let (stock, home) = text.split_once("scheduler home").expect("both were run");
    for (what, most) in
        [("crowd_us", 1.10), ("crowd_switches", 1.05), ("few_us", 1.05), ("few_switches", 1.05)]
    {
        let ratio = figure(home, what) / figure(stock, what);
        println!("{what}, to stock: {ratio:.3}");
        assert!(ratio <= most, "{what} {ratio}: {text}");
    }
}

/// The number behind a word.
fn figure(text: &str, what: &str) -> f64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(what)?.strip_prefix(' '));
    let number = lines.next().unwrap_or_else(|| panic!("no {what}: {text}"));
    number.trim().parse().expect("a number")
}

/// Boots a machine that runs a script of `tests/guest` with settings, and gives what it printed.
fn boot(script: &Path, how: &[&str], programs: &Path, name: &str, settings: &str) -> String {
    boot_with(script, how, programs, &[], name, settings)
}

/// The same with more files beside the script.
fn boot_with(
    script: &Path,
    how: &[&str],
    programs: &Path,
    files: &[PathBuf],
    name: &str,
    settings: &str,
) -> String {
    let folder = format!("{name}.{}", how.join("").replace(':', "-"));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    std::fs::create_dir_all(&file).expect("a folder of our own");
    let file = file.join("settings");
    std::fs::write(&file, settings).expect("a folder of our own");
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest").join(name);
    let once = || -> Output {
        let mut command = Command::new("bash");
        command.arg(script).args(["-T", "400"]).args(how);
        let [walker, stress] =
            ["walker", "stress"].map(|name| programs.join("examples").join(name));
        for file in [&programs.join("nearq-scx"), &walker, &stress, &file, &guest] {
            command.arg("-f").arg(file);
        }
        for file in files {
            command.arg("-f").arg(file);
        }
        command.args(["--", "sh", &format!("/job/{name}")]).output().expect("bash is there")
    };
    let mut output = once();
    // 125: the guest died before it could say how the program ended. A loaded host does that to one boot of many.
    if output.status.code() == Some(125) {
        output = once();
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    assert!(text.trim_end().ends_with("all is well"), "{text}\n{errors}");
    text
}

/// The script that boots, and the folder with the programs; nothing where either is not to be had.
fn prepared() -> Option<(PathBuf, &'static Path)> {
    static PROGRAMS: OnceLock<Option<PathBuf>> = OnceLock::new();
    let script = script()?;
    let programs = PROGRAMS.get_or_init(programs).as_deref()?;
    Some((script, programs))
}

fn script() -> Option<PathBuf> {
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

/// The command and the examples, linked statically, as the virtual machine has no libraries.
fn programs() -> Option<PathBuf> {
    for library in ["libelf.a", "libz.a", "libc.a"] {
        let named = Command::new("cc").arg(format!("-print-file-name={library}")).output().ok()?;
        // The compiler says the name itself where it does not find it.
        if String::from_utf8_lossy(&named.stdout).trim() == library {
            let how = "install it (Debian: apt-get install libelf-dev zlib1g-dev libc6-dev)";
            skipped(&format!("there is no {library}"), how);
            return None;
        }
    }
    let target_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static");
    Some(build(Path::new(env!("CARGO_MANIFEST_DIR")), &["--bins", "--examples"], &target_dir))
}

/// The command `nearq` and an example of the library, from the workspace above, in a folder beside those of this one.
fn theirs(programs: &Path) -> [PathBuf; 2] {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target_dir = programs.join("../../nearq");
    let what = ["--package", "nearq-cli", "--bin", "nearq", "--example", "told"];
    let built = build(&workspace, &what, &target_dir);
    [built.join("nearq"), built.join("examples/told")]
}

/// Builds programs, linked statically; the folder in which they are.
fn build(workspace: &Path, what: &[&str], target_dir: &Path) -> PathBuf {
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .arg("build")
        .args(what)
        .args(["--target", TARGET])
        .args(["--config", "profile.dev.debug=false"])
        .arg("--target-dir")
        .arg(target_dir)
        .current_dir(workspace)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("cargo is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target_dir.join(TARGET).join("debug")
}

/// Says, past the test harness, which keeps what passing tests print, that something could not be tested here.
fn skipped(why: &str, how: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: virtual machines: {why}; to have it: {how}");
}
