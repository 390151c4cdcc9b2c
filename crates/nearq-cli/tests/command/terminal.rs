//! Limited terminals: one that does not know its size, and one that can only print.

use crate::common::{errors, nearq, output_with_few_processes};
use crate::served::Served;
use crate::steering::{Answers, serve};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::{Command, Stdio};
use std::thread;

/// A terminal of unknown size: the user's side, and the program's side.
fn terminal() -> (File, OwnedFd) {
    let (mut person, mut program) = (0, 0);
    let none = std::ptr::null_mut();
    // SAFETY: two numbers to fill in, and nothing else.
    let made =
        unsafe { libc::openpty(&raw mut person, &raw mut program, none, none.cast(), none.cast()) };
    assert_eq!(made, 0, "a terminal is available");
    // SAFETY: both were opened just now, and nothing else uses them.
    unsafe { (File::from_raw_fd(person), OwnedFd::from_raw_fd(program)) }
}

/// Longer than any step takes on a loaded machine.
const PATIENCE_MS: i32 = 30_000;

/// Reads until a text has arrived, or nothing more arrives.
fn read_until(person: &mut File, mark: &str) -> String {
    let mut bytes = Vec::new();
    let mut some = [0; 4096];
    while !String::from_utf8_lossy(&bytes).contains(mark) {
        let mut ready = libc::pollfd { fd: person.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, as the length says.
        if unsafe { libc::poll(&raw mut ready, 1, PATIENCE_MS) } <= 0 {
            break;
        }
        match person.read(&mut some) {
            Ok(length) if length > 0 => bytes.extend_from_slice(&some[..length]),
            // Reading fails once the other side is closed.
            _ => break,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_terminal_of_unknown_size_gets_the_default_size() {
    let served = Served::start("unknown-size");
    let (mut person, program) = terminal();
    let mut command = served.nearq();
    command.args(["top", &std::process::id().to_string()]).env("TERM", "xterm");
    command.stdin(program.try_clone().unwrap()).stdout(program).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Only the command has the other side now.
    drop(command);
    // The last line is drawn last.
    let screen = read_until(&mut person, "? help");
    assert!(screen.contains("nearq top  pid ") && screen.contains("? help"), "{screen:?}");
    person.write_all(b"q").unwrap();
    // The text that the command writes to the terminal at its end must be read, or the command waits.
    read_until(&mut person, "nothing");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn no_process_can_control_the_terminal_of_top() {
    let folder = serve("hostile-screen", Answers::Well);
    let (mut person, program) = terminal();
    let mut command = nearq();
    command.args(["top", &std::process::id().to_string()]);
    command.env("XDG_RUNTIME_DIR", folder.path("")).env("TERM", "xterm");
    command.stdin(program.try_clone().unwrap()).stdout(program).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(command);
    let screen = read_until(&mut person, "? help");
    person.write_all(b"q").unwrap();
    read_until(&mut person, "nothing");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(screen.contains("PWNED"), "nothing of the process is shown: {screen:?}");
    let steers = |text: &&str| screen.contains(text);
    let found = ["\u{1b}]", "\u{9b}", "\u{202e}", "\u{2066}", "\u{2028}", "\u{85}", "\u{200f}"];
    assert_eq!(found.iter().find(|text| steers(text)), None, "{screen:?}");
}

#[test]
fn top_without_threads_reports_it_and_restores_the_terminal() {
    for threads in [1, 2] {
        let (mut person, program) = terminal();
        let mut command = nearq();
        command.args(["top", "1"]).env("TERM", "xterm");
        command.stdin(program.try_clone().unwrap()).stdout(program).stderr(Stdio::piped());
        // The text that the command writes to the terminal must be read, or the command waits.
        let reader = thread::spawn(move || read_until(&mut person, "never"));
        let Some(output) = output_with_few_processes(&mut command, threads) else { return };
        drop(command);
        let stderr = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.starts_with("nearq: no thread can be started: "), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        let screen = reader.join().unwrap();
        let (entered, left) = (screen.contains("\x1b[?1049h"), screen.contains("\x1b[?1049l"));
        assert_eq!(entered, left, "{screen:?}");
    }
}

/// Runs a command on a terminal that can only print; returns the output.
fn on_dumb_terminal(mut command: Command, term: Option<&str>) -> (String, Option<i32>, String) {
    let (mut person, program) = terminal();
    match term {
        Some(term) => command.env("TERM", term),
        None => command.env_remove("TERM"),
    };
    command.stdin(program.try_clone().unwrap()).stdout(program).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    drop(command);
    let printed = read_until(&mut person, "never");
    // A command that still waits for a key gets an end of file.
    drop(person);
    let output = child.wait_with_output().unwrap();
    (printed, output.status.code(), errors(&output))
}

#[test]
fn top_refuses_a_terminal_that_can_only_print() {
    let served = Served::start("dumb-top");
    for term in [Some("dumb"), Some(""), None] {
        let mut command = served.nearq();
        command.args(["top", &std::process::id().to_string()]);
        let (printed, status, stderr) = on_dumb_terminal(command, term);
        assert_eq!((printed.as_str(), status), ("", Some(2)), "{stderr}");
        assert!(stderr.contains("TERM") && stderr.contains("--once"), "{stderr}");
    }
}

#[test]
fn a_terminal_that_can_only_print_gets_plain_text() {
    let folder = serve("dumb", Answers::Well);
    let pid = std::process::id().to_string();
    let tune = ["tune", &pid, "crypt", "--seconds", "0.05", "--settle", "0", "--rounds", "1"];
    for arguments in [&tune[..], &["homes", "--watch"]] {
        let mut command = nearq();
        command.env("XDG_RUNTIME_DIR", folder.path("")).args(arguments).env("TERM", "dumb");
        let (mut person, program) = terminal();
        command.stdout(program.try_clone().unwrap()).stderr(program);
        let mut child = command.spawn().unwrap();
        drop(command);
        let printed =
            read_until(&mut person, if arguments[0] == "tune" { "Restored" } else { "MEMORY" });
        // `--watch` continues.
        let _ = child.kill();
        child.wait().unwrap();
        assert!(
            printed.lines().count() > 0 && !printed.contains('\u{1b}'),
            "{arguments:?}: {printed:?}"
        );
    }
}

#[test]
fn the_bar_of_run_is_drawn_only_if_it_can_be_cleared() {
    for (term, draws) in [("xterm", true), ("dumb", false)] {
        let (mut person, program) = terminal();
        let mut command = nearq();
        command.args(["run", "-j1", "sh", "-c", "echo printed; sleep 1", ":::", "1", "2"]);
        command.env("TERM", term).stdout(program.try_clone().unwrap()).stderr(program);
        let mut child = command.spawn().unwrap();
        drop(command);
        // The other side is closed when the command ends.
        let printed = read_until(&mut person, "never");
        assert_eq!(child.wait().unwrap().code(), Some(0), "{printed:?}");
        assert_eq!(printed.matches("printed").count(), 2, "{printed:?}");
        assert_eq!(printed.contains('\u{1b}'), draws, "{term}: {printed:?}");
    }
}
