//! Helpers of all tests: trees on two pretended homes, and waiting for events that must happen.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::skipped::skipped;

/// How long to wait for an event that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// The program that runs trees on pretended homes (`examples/pretended.rs`).
pub(crate) fn pretended() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its file");
    let folder = test.ancestors().nth(2).expect("it is in a folder of a folder");
    let program = folder.join("examples/pretended");
    assert!(program.exists(), "`cargo test -p nearq-processes` builds {}", program.display());
    program
}

/// A tree of a shell's command.
pub(crate) fn shell(options: &[&str], script: &str) -> Command {
    let mut command = Command::new(pretended());
    command.args(options).args(["--", "sh", "-c", script]);
    command.env_remove("LD_PRELOAD").env_remove("NEARQ_TREE").env_remove("NEARQ_TREE_CHOOSE");
    let restore_signals = || {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
            // SAFETY: numbers only, and a call that is allowed between fork and exec.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: it makes that call and nothing else. A script ignores the first two for commands that it runs in the background, `nohup`
    // ignores the third.
    unsafe { command.pre_exec(restore_signals) };
    command
}

/// Whether there are two CPUs, without which there are no two homes; says so if not.
pub(crate) fn has_two_cpus() -> bool {
    let two = own_cpus() > 1;
    if !two {
        skipped("trees of processes", "there is one CPU", "allow two");
    }
    two
}

/// CPUs that this process may use.
pub(crate) fn own_cpus() -> usize {
    cpus(std::process::id()).expect("this process lives").len()
}

/// CPUs that a process may use; none if it has ended.
pub(crate) fn cpus(pid: u32) -> Option<Vec<usize>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    if status.lines().any(|line| line.starts_with("State:\tZ")) {
        return None;
    }
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(parse(list))
}

/// CPUs of a list as `0-3,8`.
pub(crate) fn parse(list: &str) -> Vec<usize> {
    let number = |text: &str| text.trim().parse::<usize>().expect("a CPU");
    list.trim()
        .split(',')
        .flat_map(|part| match part.split_once('-') {
            Some((first, last)) => number(first)..=number(last),
            None => number(part)..=number(part),
        })
        .collect()
}

/// Waits until a function returns a value.
pub(crate) fn until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal to a process of the test's own.
pub(crate) fn kill(pid: u32, signal: i32) {
    // SAFETY: numbers only.
    unsafe { libc::kill(pid.cast_signed(), signal) };
}

/// The first process that another one's first thread has started.
pub(crate) fn first_child(pid: u32) -> Option<u32> {
    nearq_processes::proc::children(pid, pid).first().copied()
}

/// The processes that have a variable in their environment with that value.
pub(crate) fn with_variable(name: &str, value: &str) -> Vec<u32> {
    let wanted = format!("{name}={value}");
    let all = fs::read_dir("/proc").expect("there is /proc");
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
        })
        .collect()
}

/// A process's name.
pub(crate) fn name(pid: u32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned())
}

/// A temporary folder for this run.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the folder for tests can be made");
    folder
}

/// Compiles a C source; `None` if there is no compiler, or it cannot compile the source.
pub(crate) fn compile(
    folder: &Path,
    name: &str,
    text: &str,
    arguments: &[&str],
) -> Option<PathBuf> {
    let (source, program) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&source, text).expect("the folder can be written to");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-o"]).arg(&program).arg(&source).args(arguments);
    match compiler.output() {
        Ok(output) if output.status.success() => Some(program),
        _ => {
            skipped(name, "no C compiler that can do it", "apt-get install gcc libc6-dev");
            None
        }
    }
}

/// The figure after `name:` in a summary.
pub(crate) fn figure(summary: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(summary).expect("a summary was written");
    let figure = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}: ")));
    let figure = figure.unwrap_or_else(|| panic!("{name} in {text}"));
    figure.trim_end_matches(',').parse().expect("a number")
}

/// How often each home was chosen.
pub(crate) fn chosen(summary: &Path) -> Vec<u64> {
    let text = fs::read_to_string(summary).expect("a summary was written");
    let (_, rest) = text.split_once("chosen: [").expect("it says how often");
    let (list, _) = rest.split_once(']').expect("a list ends");
    list.split(',').filter_map(|part| part.trim().parse().ok()).collect()
}
