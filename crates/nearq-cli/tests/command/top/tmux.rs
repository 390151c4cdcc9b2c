//! A terminal that a test types into and reads: a separate tmux server, ended when dropped.

use std::fs;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A loaded machine is slow.
const PATIENCE: Duration = Duration::from_mins(1);

/// One terminal.
pub(crate) struct Tmux {
    socket: String,
}

impl Tmux {
    /// Whether tmux is installed.
    pub(crate) fn available() -> bool {
        Command::new("tmux").arg("-V").output().is_ok()
    }

    /// A terminal of that size in which a shell runs `script`; `path` is the folder for its files.
    pub(crate) fn start(path: &str, size: (u16, u16), script: &str) -> Self {
        let configuration = format!("{path}.conf");
        // No status line of tmux, and no waiting for a key that may follow an Esc.
        fs::write(&configuration, "set -g status off\nset -s escape-time 0\n").unwrap();
        let tmux = Tmux { socket: format!("{path}.socket") };
        let [columns, lines] = [size.0, size.1].map(|n| n.to_string());
        let arguments =
            ["new-session", "-d", "-x", &columns, "-y", &lines, "/bin/sh", "-c", script];
        let mut command = tmux.command();
        command.args(["-f", &configuration]).args(arguments);
        // The locale is UTF-8, whatever the locale of the tests is.
        command.env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR").env_remove("TMUX");
        done(&command.output().unwrap());
        tmux
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.args(["-u", "-S", &self.socket]);
        command
    }

    fn ask(&self, arguments: &[&str]) -> String {
        done(&self.command().args(arguments).output().unwrap())
    }

    /// Presses a key by tmux's name (`Enter`, `C-u`), or types a text.
    pub(crate) fn press(&self, key: &str) {
        self.ask(&["send-keys", key]);
    }

    /// Changes the terminal's size.
    pub(crate) fn resize(&self, size: (u16, u16)) {
        let [columns, lines] = [size.0, size.1].map(|n| n.to_string());
        self.ask(&["resize-window", "-x", &columns, "-y", &lines]);
    }

    /// The contents of the screen, without trailing spaces.
    pub(crate) fn screen(&self) -> String {
        let text = self.ask(&["capture-pane", "-p"]);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        format!("{}\n", lines.join("\n"))
    }

    /// Whether the cursor is visible.
    pub(crate) fn cursor_is_shown(&self) -> bool {
        self.ask(&["display-message", "-p", "#{cursor_flag}"]).trim() == "1"
    }

    /// The shell's number.
    pub(crate) fn pane_pid(&self) -> u32 {
        self.ask(&["display-message", "-p", "#{pane_pid}"]).trim().parse().unwrap()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // The server may have ended.
        let _ = self.command().arg("kill-server").output();
    }
}

fn done(output: &Output) -> String {
    assert!(output.status.success(), "tmux: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Calls a function until it returns a result, and gives up after a while.
pub(crate) fn wait_for<T>(what: impl Fn() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        let answer = what();
        if answer.is_some() || begin.elapsed() > PATIENCE {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
