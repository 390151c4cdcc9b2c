//! What all subcommands have in common on a terminal, by a table of what each prints: no colours, no escapes where a terminal can only print,
//! tables that fit, and no plural after a one.

use crate::common::nearq;
use crate::steering::{Answers, serve, subcommands};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Stdio;
use unicode_width::UnicodeWidthStr as _;

/// Command lines of each subcommand that end by themselves, and whether what they print is for people, in lines that must fit the terminal. Of
/// the others a program reads the output.
fn lines(subcommand: &str) -> &'static [(&'static [&'static str], bool)] {
    match subcommand {
        "topo" => &[
            (&[], true),
            (&["--on", "core:1 pu:1"], true),
            (&["--on", "epyc-7551-2s", "--costs"], true),
        ],
        "run" => &[
            (&["--summary", "-j1", "sh", "-c", "exit 0 $0", ":::", "a"], true),
            (&["--dry-run", "echo", ":::", "a"], true),
        ],
        "homes" => &[(&[], true), (&["--all", "--pages"], true)],
        "ps" => &[(&[], true)],
        "dump" => &[(&["PID"], true), (&["PID", "--items", "--locks", "--masks"], true)],
        "top" => &[(&["PID", "--once", "-i", "0.1"], true)],
        "get" => &[(&["PID"], true), (&["PID", "crypt", "affinity_scope"], true)],
        "set" => &[(&["PID", "crypt", "affinity_scope=cache"], true)],
        "trace" => &[(&["PID", "--items", "1"], true)],
        "tune" => {
            &[(&["PID", "crypt", "--seconds", "0.05", "--settle", "0", "--rounds", "1"], true)]
        }
        "metrics" => &[(&["PID"], false), (&["--all"], false)],
        "knobs" => &[(&[], true), (&["affinity_scope"], true), (&["--json"], false)],
        // A separate program; a script for a shell, files, and the help, which has its own tests; what needs a server (`tests/fleet`).
        "bench" | "sim" | "completions" | "man" | "help" | "submit" | "jobs" => &[],
        other => {
            panic!("what does `nearq {other}` print? Say so here, or that it prints no report")
        }
    }
}

/// A terminal of that width: the user's side, and the program's side. Other tests start programs meanwhile, which inherit neither.
fn terminal(columns: u16) -> (File, OwnedFd) {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    let person =
        File::options().read(true).write(true).custom_flags(flags).open("/dev/ptmx").unwrap();
    let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let unlocked: libc::c_int = 0;
    let number = person.as_raw_fd();
    // SAFETY: the calls read a number and a size, which live until they return.
    let program = unsafe {
        assert_eq!(libc::ioctl(number, libc::TIOCSPTLCK, &raw const unlocked), 0);
        assert_eq!(libc::ioctl(number, libc::TIOCSWINSZ, &raw const size), 0);
        libc::ioctl(number, libc::TIOCGPTPEER, flags)
    };
    assert!(program >= 0, "a terminal is available");
    // SAFETY: it was opened just now, and nothing else uses it.
    (person, unsafe { OwnedFd::from_raw_fd(program) })
}

/// What a command line prints on a terminal, on both outputs.
fn printed(folder: &str, words: &[String], columns: u16, variable: (&str, &str)) -> String {
    let (mut person, program) = terminal(columns);
    let mut command = nearq();
    command.args(words).env("XDG_RUNTIME_DIR", folder).env("TERM", "xterm").env_remove("NO_COLOR");
    command.env(variable.0, variable.1).stdin(Stdio::null());
    command.stdout(program.try_clone().unwrap()).stderr(program);
    let mut child = command.spawn().unwrap();
    // Only the command has the other side now, so reading ends, by an error, when the command does.
    drop(command);
    let mut text = Vec::new();
    let _ = person.read_to_end(&mut text);
    child.wait().unwrap();
    // A terminal gets two bytes for the end of a line. Alone, the first one begins the same line again, as a bar does.
    String::from_utf8_lossy(&text).replace("\r\n", "\n").replace('\r', "\n")
}

/// The text without the sequences that move the cursor and clear lines, as a progress bar does; `None` if it has others.
fn without_moves(text: &str) -> Option<String> {
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next()?.to_owned();
    for part in parts {
        let end = part.find(|c: char| c.is_ascii_alphabetic())?;
        if !"ABCDEFGHJKhl".contains(&part[end..=end]) {
            return None;
        }
        plain += &part[end + 1..];
    }
    (!plain.contains('\u{1b}')).then_some(plain)
}

/// The places where a one is followed by a plural.
fn wrong_plurals(text: &str) -> Vec<String> {
    let nouns = [
        "CPUs",
        "nodes",
        "jobs",
        "items",
        "queues",
        "workers",
        "pools",
        "processes",
        "times",
        "programs",
        "homes",
        "bytes",
        "milliseconds",
        "caches",
        "cores",
        "rounds",
        "threads",
        "pods",
        "configurations",
        "packages",
        "settings",
        "events",
        "runs",
        "failures",
        "seconds",
    ];
    let words: Vec<&str> = text.split_whitespace().collect();
    let pairs = words.windows(2).filter(|pair| {
        let noun = pair[1].trim_matches(|c: char| !c.is_alphanumeric());
        pair[0].trim_start_matches('(') == "1" && nouns.contains(&noun)
    });
    pairs.map(|pair| pair.join(" ")).collect()
}

/// Whether a line is wider than the terminal. The terminal itself breaks long words, and messages, which are one line.
fn is_too_long(line: &str, columns: usize) -> bool {
    line.width() > columns && line.split_whitespace().count() > 1 && !line.starts_with("nearq: ")
}

#[test]
fn every_subcommand_keeps_the_habits_of_a_terminal() {
    let folder = serve("habits", Answers::Plainly);
    let pid = std::process::id().to_string();
    let mut wrong = Vec::new();
    for subcommand in subcommands() {
        for (words, is_for_people) in lines(&subcommand) {
            let words = [subcommand.as_str()].into_iter().chain(words.iter().copied());
            let words: Vec<String> =
                words.map(|word| if word == "PID" { pid.clone() } else { word.into() }).collect();
            let mut complain =
                |what: String| wrong.push(format!("nearq {}: {what}", words.join(" ")));
            for columns in [40, 60, 80] {
                let text = printed(&folder.path(""), &words, columns, ("NO_COLOR", "1"));
                if text.is_empty() {
                    complain("it prints nothing".into());
                }
                let Some(plain) = without_moves(&text) else {
                    complain(format!("it has escapes with NO_COLOR: {text:?}"));
                    continue;
                };
                wrong_plurals(&plain).into_iter().for_each(&mut complain);
                let too_long = plain.lines().find(|line| is_too_long(line, columns.into()));
                if let Some(line) = too_long.filter(|_| *is_for_people) {
                    complain(format!("on {columns} columns, this line is longer: {line}"));
                }
            }
            let text = printed(&folder.path(""), &words, 80, ("TERM", "dumb"));
            if text.contains('\u{1b}') {
                complain(format!("it has escapes on a terminal that can only print: {text:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_file_gets_long_lines() {
    let folder = serve("habits-file", Answers::Plainly);
    let pid = std::process::id().to_string();
    for (words, line) in [
        (&["topo", "--on", "epyc-9654-2s"][..], "  cpu           384  0 | 1 | 2 | 3 | "),
        (&["top", &pid, "--once", "-i", "0.1"], "WORKQUEUE"),
    ] {
        let output = nearq().args(words).env("XDG_RUNTIME_DIR", folder.path("")).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let found = text.lines().find(|text| text.starts_with(line));
        assert!(found.is_some_and(|line| line.width() > 80), "nearq {words:?}: {text}");
    }
}

#[test]
fn plurals_colours_and_long_lines_are_recognized() {
    assert!(is_too_long("a  bc", 4) && !is_too_long("a  bc", 5));
    assert!(!is_too_long("  /a/long/path", 4) && !is_too_long("nearq: a message", 4));
    assert_eq!(
        wrong_plurals("of 1 rounds (1 CPUs) 11 items, 1 job: 1 settings."),
        ["1 rounds", "(1 CPUs)", "1 settings."]
    );
    assert_eq!(without_moves("a\u{1b}[2Kb\u{1b}[1A"), Some("ab".to_owned()));
    assert_eq!(without_moves("a\u{1b}[31mb"), None);
    assert_eq!(without_moves("a\u{1b}]0;x"), None);
}
