//! Serving an invented process over a real socket, and running the command on it.

#![allow(dead_code, reason = "each test binary uses its part")]

use crate::common::{Folder, nearq, skipped};
use nearq_control::protocol::{Access, Process};
use nearq_control::server::{Options, Server};
use nearq_control::subject::Subject;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Longer than anything takes on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A subject that is served under the number of this process, until dropped.
pub(crate) struct Served {
    /// Before the folder that it is in.
    server: Server,
    folder: Folder,
    pid: String,
}

impl Served {
    /// Serves it; `test` must be used by one test alone.
    pub(crate) fn start(test: &str, subject: Box<dyn Subject>, access: Access) -> Self {
        let folder = Folder::new(&format!("served-{test}"));
        let server =
            Server::start(Path::new(&folder.path("nearq")), subject, Options { access }).unwrap();
        Self { server, folder, pid: std::process::id().to_string() }
    }

    /// Goes away; the folder too.
    pub(crate) fn stop(self) {
        let Self { server, folder, .. } = self;
        drop(server);
        drop(folder);
    }

    /// The number to ask for.
    pub(crate) fn pid(&self) -> &str {
        &self.pid
    }

    /// The command, which finds this one.
    pub(crate) fn nearq(&self, arguments: &[&str]) -> Command {
        let mut command = nearq();
        command.env("XDG_RUNTIME_DIR", self.folder.path("")).args(arguments);
        command
    }
}

/// Who an invented process is.
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

/// Waits until it is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "for {PATIENCE:?} not so: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Those of these signals that a command heeds which this process starts: what is ignored here, as under `nohup` or in the background
/// of a shell, is ignored there.
pub(crate) fn heeded(names: &[&'static str]) -> Vec<&'static str> {
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
    let (ignored, heeded): (Vec<&str>, Vec<&str>) =
        names.iter().partition(|name| mask >> (number(name) - 1) & 1 == 1);
    for name in ignored {
        skipped(&format!("SIG{name}"), "it is ignored here", "run the tests in the foreground");
    }
    heeded
}

/// Sends a signal, by its name without SIG.
pub(crate) fn signal(name: &str, pid: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap();
    assert!(sent.success(), "SIG{name}");
}
