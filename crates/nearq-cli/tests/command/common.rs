//! Runs the built command, and checks the results. The root of each test program names the command: `PROGRAM`.

#![allow(dead_code, reason = "each test binary uses its part")]

use serde_json::Value;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The command, ready for arguments.
pub(crate) fn nearq() -> Command {
    let mut command = with_signals(crate::PROGRAM);
    command.stdin(Stdio::null());
    command
}

/// A command that signals end, even if this test runs in the background of a shell script, where INT and QUIT are ignored.
pub(crate) fn with_signals(program: &str) -> Command {
    let mut command = Command::new(program);
    let reset_signals = || {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM] {
            // SAFETY: numbers only, and a call that is allowed between fork and exec.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: it makes only that call.
    unsafe { command.pre_exec(reset_signals) };
    command
}

/// Runs it with valid arguments, and returns its output.
pub(crate) fn prints(arguments: &[&str]) -> String {
    let output = nearq().args(arguments).output().expect("the command starts");
    assert!(output.status.success(), "nearq {arguments:?}: {}", errors(&output));
    assert_eq!(errors(&output), "", "nearq {arguments:?} has nothing to complain about");
    String::from_utf8(output.stdout).expect("the command prints UTF-8")
}

/// Runs `nearq topo --json` with more arguments.
pub(crate) fn topo_json(arguments: &[&str]) -> Value {
    let text = prints(&[&["topo", "--json"], arguments].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in\n{text}"))
}

/// Runs it with invalid arguments: it must print nothing but one line on standard error, and exit with status 2.
pub(crate) fn refuses(arguments: &[&str]) -> String {
    let output = nearq().args(arguments).output().expect("the command starts");
    let line = errors(&output);
    assert_eq!(output.status.code(), Some(2), "nearq {arguments:?}: {line}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "nearq {arguments:?}");
    let one_line = line.ends_with('\n') && line.lines().count() == 1;
    assert!(one_line && line.starts_with("nearq: "), "nearq {arguments:?}: {line}");
    line
}

/// Reports that something could not be tested here, bypassing the test harness, which hides the output of passing tests. The line is
/// written in one call, so that no other output is mixed into it.
pub(crate) fn skipped(what: &str, why: &str, how: &str) {
    let line = format!("skipped: {what}: {why}; to have it: {how}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// What the command wrote to standard error.
pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The length of an array in a JSON object.
pub(crate) fn length(json: &Value, name: &str) -> usize {
    json[name].as_array().unwrap_or_else(|| panic!("{name} is no array in {json}")).len()
}

/// A folder below the build's temporary folder, removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// An empty folder; only one test may use `name`.
    pub(crate) fn new(name: &str) -> Self {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the build's temporary folder can be written");
        Self(folder)
    }

    /// The path of a file in it, as an argument.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("the build's folder has a plain name").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a command as a user who may have `most` processes and threads and has no others; none if that cannot be arranged.
pub(crate) fn output_with_few_processes(
    command: &mut Command,
    most: libc::rlim_t,
) -> Option<Output> {
    const USER: u32 = 61_234;
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        skipped("the limit on processes", "it needs a user of its own", "run the tests as root");
        return None;
    }
    command.uid(USER).gid(USER).current_dir("/");
    let limit = move || {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the structure is initialised. The call may be made between fork and exec.
        let refused = unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) };
        if refused == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: it makes one system call and touches no memory of other threads.
    unsafe { command.pre_exec(limit) };
    match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            skipped("the limit on processes", "others may not read the build's folder", "chmod it");
            None
        }
        output => Some(output.unwrap()),
    }
}
