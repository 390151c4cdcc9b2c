//! Serves an invented process over a real socket, and runs the command on it.

#![allow(dead_code, reason = "each test binary uses its part")]

use crate::common::{Folder, nearq, skipped};
use nearq_control::control_target::ControlTarget;
use nearq_control::protocol::{Access, Process};
use nearq_control::server::{Options, Server};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Longer than any step takes on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A target that is served under this process's number, until dropped.
pub(crate) struct Served {
    /// Declared before its folder, so that it is dropped first.
    server: Server,
    folder: Folder,
    pid: String,
}

impl Served {
    /// Serves the target; only one test may use `test`.
    pub(crate) fn start(test: &str, target: Box<dyn ControlTarget>, access: Access) -> Self {
        let folder = Folder::new(&format!("served-{test}"));
        let server =
            Server::start(Path::new(&folder.path("nearq")), target, Options { access }).unwrap();
        Self { server, folder, pid: std::process::id().to_string() }
    }

    /// Stops serving, and removes the folder.
    pub(crate) fn stop(self) {
        let Self { server, folder, .. } = self;
        drop(server);
        drop(folder);
    }

    /// The number to pass to the command.
    pub(crate) fn pid(&self) -> &str {
        &self.pid
    }

    /// The command, set up so that it finds this process.
    pub(crate) fn nearq(&self, arguments: &[&str]) -> Command {
        let mut command = nearq();
        command.env("XDG_RUNTIME_DIR", self.folder.path("")).args(arguments);
        command
    }
}

/// The identity of an invented process.
pub(crate) fn process(command: &str) -> Process {
    Process {
        pid: std::process::id(),
        command: command.into(),
        version: "0".into(),
        control: Access::Read,
        allowed: Access::Read,
        since_ns: 0,
        runtime: true,
        queues: 1,
        workers: 1,
    }
}

/// Waits until the condition holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "for {PATIENCE:?} not so: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The signals, of those given, that a command started by this process obeys: a signal that is ignored here, as under `nohup` or in the
/// background of a shell, is ignored there too.
pub(crate) fn not_ignored(names: &[&'static str]) -> Vec<&'static str> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    let number = |name: &str| match name {
        "HUP" => 1,
        "INT" => 2,
        "KILL" => 9,
        "TERM" => 15,
        other => panic!("no number is known of {other}"),
    };
    let (ignored, not_ignored): (Vec<&str>, Vec<&str>) =
        names.iter().partition(|name| mask >> (number(name) - 1) & 1 == 1);
    for name in ignored {
        skipped(&format!("SIG{name}"), "it is ignored here", "run the tests in the foreground");
    }
    not_ignored
}

/// Sends a signal, by its name without SIG.
pub(crate) fn signal(name: &str, pid: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap();
    assert!(sent.success(), "SIG{name}");
}
