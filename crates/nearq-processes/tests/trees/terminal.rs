//! Tests that the terminal works as without a tree: interrupting, stopping and continuing, and reading.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "the tests run programs")]
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use crate::common::{PATIENCE, first_child, has_two_cpus, kill, pretended, until};
use crate::skipped::skipped;

/// A shell at a terminal.
struct Terminal {
    shell: Child,
    keys: File,
    shown: Receiver<Vec<u8>>,
    /// The text that was shown and has not been waited for yet.
    rest: String,
}

impl Terminal {
    fn open() -> Option<Self> {
        let (mut main, mut other) = (-1, -1);
        // SAFETY: the places are ours; name and settings are not asked for.
        let opened = unsafe {
            libc::openpty(
                &raw mut main,
                &raw mut other,
                std::ptr::null_mut(),
                std::ptr::null(),
                std::ptr::null(),
            )
        };
        if opened != 0 {
            skipped("terminals", "openpty is refused", "mount /dev/pts");
            return None;
        }
        // SAFETY: both just opened, and owned by nothing else.
        let (main, other) = unsafe { (OwnedFd::from_raw_fd(main), OwnedFd::from_raw_fd(other)) };
        let copy = || Stdio::from(other.try_clone().unwrap());
        let mut shell = Command::new("bash");
        shell.args(["--norc", "--noprofile", "-i"]).env("PS1", "$ ").env("TERM", "dumb");
        shell.env_remove("LD_PRELOAD").env_remove("NEARQ_TREE");
        shell.stdin(copy()).stdout(copy()).stderr(copy());
        let terminal = other.as_raw_fd();
        let begin = move || {
            // A shell at a terminal reacts to its keys, even if this test runs in the background of a script or under `nohup`, with these
            // signals ignored.
            for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
                // SAFETY: numbers only, and a call that is allowed between fork and exec.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            // SAFETY: system calls on numbers only, between fork and exec.
            let done =
                unsafe { libc::setsid() >= 0 && libc::ioctl(terminal, libc::TIOCSCTTY, 0) == 0 };
            if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: `begin` makes system calls on numbers only, and neither allocates nor locks, so it may run between fork and exec.
        let shell = unsafe { shell.pre_exec(begin) }.spawn();
        let Ok(shell) = shell else {
            skipped("a shell at a terminal", "there is no bash", "apt-get install bash");
            return None;
        };
        drop(other);
        let keys = File::from(main);
        let mut screen = keys.try_clone().unwrap();
        let (sender, shown) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(length @ 1..) = screen.read(&mut bytes) {
                if sender.send(bytes[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Some(Terminal { shell, keys, shown, rest: String::new() })
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until that text is shown.
    fn wait_for(&mut self, text: &str) {
        let begin = Instant::now();
        loop {
            if let Some(at) = self.rest.find(text) {
                self.rest.drain(..at + text.len());
                return;
            }
            let left = PATIENCE.checked_sub(begin.elapsed());
            let more = left.and_then(|left| self.shown.recv_timeout(left).ok());
            let more = more.unwrap_or_else(|| panic!("waiting for {text:?}: {:?}", self.rest));
            self.rest += &String::from_utf8_lossy(&more);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn keys_reach_the_command_once_and_the_shell_sees_its_status() {
    if !has_two_cpus() {
        return;
    }
    let Some(mut terminal) = Terminal::open() else { return };
    let tree = format!("{} --", pretended().display());
    // Interrupted by the key: ends by the signal, as the shell sees.
    terminal.press(&format!("{tree} sh -c 'echo be''gun; exec sleep 1000'; echo goes on\n"));
    terminal.wait_for("begun");
    terminal.press("\x03");
    // The interrupted program must not read the rest of the line.
    terminal.press("echo sta''tus=$?\n");
    terminal.wait_for("status=130");
    // Caught: once for each key.
    terminal.press(&format!(
        "{tree} sh -c 'n=0; trap \"n=\\$((n+1)); echo cau''ght=\\$n\" INT; echo be''gun; \
         until read line && [ -n \"$line\" ]; do :; done; exit $((40+n))'; echo sta''tus=$?\n"
    ));
    terminal.wait_for("begun");
    terminal.press("\x03");
    terminal.wait_for("caught=1");
    terminal.press("go\n");
    terminal.wait_for("status=41");
    // Stopped and continued.
    terminal.press(&format!(
        "{tree} sh -c 'echo be''gun; read line; echo got=$line; exit 4'; echo sta''tus=$?\n"
    ));
    terminal.wait_for("begun");
    terminal.press("\x1a");
    terminal.wait_for("Stopped");
    terminal.press("jobs; echo list''ed\n");
    terminal.wait_for("listed");
    terminal.press("fg; echo af''ter=$?\n");
    terminal.press("word\n");
    terminal.wait_for("got=word");
    terminal.wait_for("after=4");
    // Stops by itself.
    terminal.press(&format!(
        "{tree} sh -c 'echo be''gun; kill -STOP $$; echo go''ne on; exit 6'; echo sta''tus=$?\n"
    ));
    terminal.wait_for("Stopped");
    terminal.press("fg; echo af''ter=$?\n");
    terminal.wait_for("gone on");
    terminal.wait_for("after=6");
}

#[test]
fn signals_to_nearq_reach_the_command() {
    if !has_two_cpus() {
        return;
    }
    let script = "n=0; trap 'n=$((n+1)); echo user' USR1; trap 'echo hup; exit $((40+n))' HUP; echo begun; \
                  while :; do sleep 0.02; done";
    let mut tree = crate::common::shell(&[], script);
    let mut child = tree.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut line = || {
        let mut line = Vec::new();
        let mut byte = [0];
        while output.read_exact(&mut byte).is_ok() && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    };
    let pid = child.id();
    assert_eq!(line(), "begun");
    for _ in 0..3 {
        kill(pid, libc::SIGUSR1);
        assert_eq!(line(), "user");
    }
    kill(pid, libc::SIGHUP);
    assert_eq!(line(), "hup");
    assert_eq!(child.wait().unwrap().code(), Some(43));
}

/// nearq may not know yet that the command has begun: if it is stopped as soon as its second process exists, it nearly always does not.
#[test]
fn an_early_signal_waits_for_the_command() {
    if !has_two_cpus() {
        return;
    }
    let script = "trap 'echo user; exit 7' USR1; echo begun; while :; do sleep 0.02; done";
    for _ in 0..5 {
        let mut child = crate::common::shell(&[], script).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        let pid = child.id();
        until("nearq has a second process", || first_child(pid));
        let mut line = [0; 6];
        kill(pid, libc::SIGSTOP);
        output.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"begun\n");
        kill(pid, libc::SIGUSR1);
        kill(pid, libc::SIGCONT);
        let ended = until("it ends", || child.try_wait().unwrap());
        assert_eq!(ended.code(), Some(7));
    }
}
