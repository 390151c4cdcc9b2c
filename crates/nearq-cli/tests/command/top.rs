//! `nearq top`: its output for scripts, its refusals, and a user's session in tmux, screen by screen.
//!
//! The watched process is an invented one (`top/invented.rs`) behind a real socket: this test binary, started again. Its answers depend on
//! how often it was asked, and in the session it is asked only when a key is pressed. The screens are in `top/*.txt`; `UPDATE_SCREENS=1`
//! rewrites them: check them afterwards.

mod invented;
mod tmux;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Folder, errors, nearq, skipped};
use invented::Invented;
use nearq_control::protocol::Access;
use nearq_control::server::{Options, Server};
use serde_json::Value;
use tmux::{Tmux, wait_for};

/// The folder in which the server must create its directory; set for the binary that is started again.
const DIRECTORY: &str = "NEARQ_TEST_DIRECTORY";

/// Not a test, but the process that the tests watch. It ends with its standard input.
#[test]
#[ignore = "started by the other tests"]
fn serve() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let options = Options { access: Access::Full };
    let directory = Path::new(&directory).join("nearq");
    let server = Server::start(&directory, Box::new(Invented::new()), options).unwrap();
    println!("\nlistens on {}", server.path().display());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// An invented process; dropping it ends it.
struct Watched(Child);

impl Watched {
    fn start(folder: &Folder) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "top::serve", "--nocapture"])
            .env(DIRECTORY, folder.path(""))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let listens = lines.map_while(Result::ok).any(|line| line.starts_with("listens on"));
        assert!(listens, "the server has ended: {:?}", child.wait());
        Watched(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `nearq top`, which searches for sockets in that folder.
fn top(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = nearq();
    command.arg("top").args(arguments).env("XDG_RUNTIME_DIR", folder.path(""));
    command
}

fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_table_for_scripts() {
    let folder = Folder::new("top-once");
    let process = Watched::start(&folder);
    let arguments = ["--once", "-i", "0.1", "--sort", "p99", "--filter", "CRYPT|mail"];
    let text = printed(&mut top(&folder, &[&[process.pid().as_str()], &arguments[..]].concat()));
    let names: Vec<_> = text.lines().map(|line| line.split("  ").next().unwrap()).collect();
    let expected = [
        "WORKQUEUE",
        "mail/indexing of the archive of letters",
        "kcryptd_io/253:0",
        "kcryptd/253:0",
    ];
    assert_eq!(names, expected, "{text}");
    assert!(text.lines().next().unwrap().contains("CMW/RPR"), "{text}");
}

#[test]
fn json_lines_end_when_the_reader_or_the_process_goes_away() {
    let folder = Folder::new("top-json");
    let process = Watched::start(&folder);
    let mut child = top(&folder, &[&process.pid(), "--json", "-i", "0.1", "--sort", "name"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let (first, second) = (line(), line());
    assert_eq!(first["pid"].to_string(), process.pid());
    assert!(second["at_ns"].as_u64() > first["at_ns"].as_u64());
    assert_eq!(first["queues"].as_array().unwrap().len(), 12);
    assert_eq!(first["queues"][0]["name"], "a queue that has never run");
    assert!(second["queues"][1]["wait"]["p99_ns"].is_u64(), "{second}");
    drop(lines);
    assert!(child.wait().unwrap().success(), "a reader that goes away is no failure");

    let mut child = top(&folder, &[&process.pid(), "--json", "-i", "0.1", "--no-timing"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(
        (&line["timing"], &line["queues"][1]["wait"]["p99_ns"]),
        (&false.into(), &Value::Null)
    );
    let pid = process.pid();
    drop(process);
    lines.for_each(drop);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(errors(&output), format!("nearq: process {pid} has ended\n"));
}

/// Refused in one line that names all of `parts`.
#[track_caller]
fn refused(command: &mut Command, status: i32, parts: &[&str]) {
    let output = command.output().unwrap();
    let line = errors(&output);
    assert_eq!(
        (output.status.code(), output.stdout.len()),
        (Some(status), 0),
        "{command:?}: {line}"
    );
    assert_eq!(line.lines().count(), 1, "{line}");
    for part in parts {
        assert!(line.contains(part), "{part} is missing from {line}");
    }
}

#[test]
fn processes_that_cannot_be_watched_are_refused() {
    let folder = Folder::new("top-refusals");
    let pid_of_test = std::process::id().to_string();
    refused(
        &mut top(&folder, &[&pid_of_test, "--once"]),
        2,
        &[&pid_of_test, "does not listen", "NEARQ_CONTROL"],
    );
    refused(&mut top(&folder, &["4294967295", "--json"]), 2, &["4294967295", "no process"]);
    refused(&mut top(&folder, &["one"]), 2, &["'one'", "PID"]);
    let process = Watched::start(&folder);
    refused(&mut top(&folder, &[&process.pid()]), 2, &["not a terminal", "--once", "--json"]);
    for interval in ["0", "-1", "3601", "soon", "nan", "inf"] {
        refused(&mut top(&folder, &["1", "-i", interval]), 2, &[interval, "0.1 to 3600"]);
    }
    refused(&mut top(&folder, &["1", "--sort", "luck"]), 2, &["'luck'", "items", "p99", "moves"]);
}

#[test]
fn help_explains_the_columns() {
    let folder = Folder::new("top-help");
    let text = printed(&mut top(&folder, &["--help"]));
    for part in ["WORKQUEUE", "CMW/RPR", "MAYDAY", "P99", "Ctrl-C", "Examples:", "NO_COLOR", "pods"]
    {
        assert!(text.contains(part), "{part} is missing from\n{text}");
    }
}

/// A user's session.
struct Session {
    tmux: Tmux,
    size: (u16, u16),
    pid: String,
}

impl Session {
    fn begin(name: &str, size: (u16, u16), folder: &Folder, process: &Watched) -> Option<Self> {
        let pid = process.pid();
        let tmux = tmux(name, size, folder, &format!("{pid} --interval 3600"))?;
        Some(Session { tmux, size, pid })
    }

    /// The screen without what differs each time: the process's number and its width, and the CPU time that the server's thread has really
    /// used.
    fn screen(&self) -> String {
        let screen = self.tmux.screen().replace(&format!("pid {}", self.pid), "pid PID");
        let screen = screen.replace(&format!("process {}", self.pid), "process PID");
        let mut lines: Vec<String> = screen.lines().map(String::from).collect();
        if let [first, second, ..] = &mut lines[..] {
            *first = first.split_whitespace().collect::<Vec<_>>().join(" ");
            if let Some((before, after)) = second.split_once("  control ") {
                let used = after.find('%').unwrap_or_default();
                *second = format!("{before}  control C{}", &after[used..]);
            }
        }
        lines.join("\n") + "\n"
    }

    /// Presses keys, and waits until the screen is as expected.
    #[track_caller]
    fn press(&self, keys: &[&str], name: &str, mark: &str) {
        for key in keys {
            self.tmux.press(key);
        }
        let (columns, lines) = self.size;
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/command/top");
        let path = folder.join(format!("{name}-{columns}x{lines}.txt"));
        if std::env::var_os("UPDATE_SCREENS").is_some() {
            fs::write(&path, self.settled(mark)).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert!(expected.contains(mark), "{mark:?} is missing from {}", path.display());
        let screen = wait_for(|| Some(self.screen()).filter(|screen| *screen == expected));
        assert!(
            screen.is_some(),
            "{} expects\n{expected}\nand it is\n{}",
            path.display(),
            self.screen()
        );
    }

    /// Presses Esc, and waits until it has taken effect: together with a key that follows at once it would be a different key.
    #[track_caller]
    fn escape(&self, mark: &str) {
        self.tmux.press("Escape");
        let closed = wait_for(|| (!self.screen().contains(mark)).then_some(()));
        assert!(closed.is_some(), "{}", self.screen());
    }

    /// Waits for a screen that contains the mark and no longer changes: to record expected screens, not to test them.
    fn settled(&self, mark: &str) -> String {
        let marked = || Some(self.screen()).filter(|screen| screen.contains(mark));
        let mut last = wait_for(marked).unwrap_or_else(|| panic!("{mark}: {}", self.screen()));
        loop {
            std::thread::sleep(Duration::from_millis(700));
            let next = self.screen();
            if next == last {
                return last;
            }
            last = next;
        }
    }
}

/// A terminal in which `nearq top` runs, and in which the state of the terminal is printed afterwards.
fn tmux(name: &str, size: (u16, u16), folder: &Folder, arguments: &str) -> Option<Tmux> {
    if !Tmux::available() {
        skipped("nearq top in a terminal", "there is no tmux", "apt-get install tmux");
        return None;
    }
    let script = format!(
        "XDG_RUNTIME_DIR='{}' '{}' top {arguments}; echo ended with $?; \
         stty -a | tr ' ;' '\\n\\n' | grep -xE -e '-?(icanon|echo)'; exec sleep 1000",
        folder.path(""),
        crate::PROGRAM,
    );
    Some(Tmux::start(&folder.path(name), size, &script))
}

fn session(size: (u16, u16)) {
    let folder = Folder::new(&format!("top-session-{}", size.0));
    let process = Watched::start(&folder);
    let Some(session) = Session::begin("tmux", size, &folder, &process) else { return };
    session.press(&[], "01-begin", "WORKQUEUE");
    session.press(&["Space", "Space", "Space"], "02-sampled-again", "requests");
    session.press(&[">", ">", ">", "r"], "03-sorted", "▲");
    session.press(&["r", "/", "kcrypt|req", "Enter", "Down"], "04-filtered", "with kcrypt|req");
    session.press(&["Enter"], "05-pools", "POOL");
    session.press(&["Down", "Down"], "06-pools-below", "POOL");
    session.escape("POOL");
    session.press(&["?"], "07-help", "nearq top: help");
    session.press(&["x", "s"], "08-form", "set: queue");
    let to_max_active = ["Up", "Up"];
    session.press(&to_max_active, "09-key", "key      max_active");
    session.press(&["C-u", "many", "Enter"], "10-refused", "refused: max_active cannot be `many`");
    session.press(&["C-u", "64", "Enter"], "11-set", "set: max_active is now 64");
    session.escape("set: queue");
    session.press(&["Space", "Enter"], "12-seen", "max_active 64");
    session.escape("POOL");
    session.press(&["t", "c"], "13-totals", "TOTAL");
    drop(process);
    session.press(&["c", "Space"], "14-gone", "has ended; this is the last state");
    session.tmux.press("q");
    assert_restored(&session.tmux, "ended with 0");
}

/// Checks that the command has ended in this way, and that the terminal is restored.
#[track_caller]
fn assert_restored(tmux: &Tmux, how: &str) {
    let screen = assert_modes_restored(tmux, how);
    assert!(!screen.contains("WORKQUEUE"), "its pictures stay:\n{screen}");
}

/// Checks that the terminal is restored, except for its contents; returns these.
#[track_caller]
fn assert_modes_restored(tmux: &Tmux, how: &str) -> String {
    let screen = wait_for(|| {
        Some(tmux.screen()).filter(|screen| screen.contains(how) && screen.contains("\necho\n"))
    });
    let screen = screen.unwrap_or_else(|| panic!("no {how:?} in\n{}", tmux.screen()));
    assert!(screen.contains("\nicanon\n"), "{screen}");
    assert!(tmux.cursor_is_shown());
    screen
}

#[test]
fn a_session_in_80_columns() {
    session((80, 24));
}

#[test]
fn a_session_in_200_columns() {
    session((200, 50));
}

#[test]
fn a_signal_restores_the_terminal() {
    let folder = Folder::new("top-signals");
    let process = Watched::start(&folder);
    for (signal, status) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let Some(tmux) = tmux(signal, (80, 24), &folder, &process.pid()) else { return };
        let running =
            wait_for(|| Some(tmux.screen()).filter(|screen| screen.contains("WORKQUEUE")));
        assert!(running.is_some(), "{}", tmux.screen());
        let pid = wait_for(|| child_called("nearq", tmux.pane_pid())).expect("it runs");
        let kill = Command::new("kill").args(["-s", signal, &pid.to_string()]).status();
        assert!(kill.unwrap().success());
        assert_restored(&tmux, &format!("ended with {status}"));
    }
}

#[test]
fn a_stopped_job_continues() {
    let folder = Folder::new("top-stop");
    let process = Watched::start(&folder);
    let Some(tmux) = tmux("stop", (80, 24), &folder, &process.pid()) else { return };
    let has = |mark: &'static str| {
        wait_for(|| Some(tmux.screen()).filter(|screen| screen.contains(mark)))
    };
    assert!(has("WORKQUEUE").is_some(), "{}", tmux.screen());
    let pid = wait_for(|| child_called("nearq", tmux.pane_pid())).expect("it runs");
    tmux.press("C-z");
    let stopped = || state_of(pid).filter(|state| *state == 'T');
    assert!(wait_for(stopped).is_some(), "{:?}", state_of(pid));
    assert!(tmux.cursor_is_shown() && !tmux.screen().contains("WORKQUEUE"), "{}", tmux.screen());
    assert!(
        Command::new("kill").args(["-s", "CONT", &pid.to_string()]).status().unwrap().success()
    );
    assert!(has("WORKQUEUE").is_some(), "{}", tmux.screen());
    tmux.press("q");
    assert_restored(&tmux, "ended with 0");
}

#[test]
fn a_terminal_that_grows_shows_more() {
    let folder = Folder::new("top-grows");
    let process = Watched::start(&folder);
    let Some(tmux) = tmux("grows", (80, 24), &folder, &process.pid()) else { return };
    let has = |mark: &'static str| {
        wait_for(|| Some(tmux.screen()).filter(|screen| screen.contains(mark)))
    };
    let narrow = has("WORKQUEUE").unwrap_or_else(|| panic!("{}", tmux.screen()));
    assert!(narrow.contains("CMW/RPR") && !narrow.contains("RESCUED"), "{narrow}");
    tmux.resize((160, 40));
    let wide = has("RESCUED").unwrap_or_else(|| panic!("{}", tmux.screen()));
    assert!(wide.lines().count() == 40 && wide.contains("? help"), "{wide}");
    tmux.press("C-l");
    assert!(has("RESCUED").is_some(), "{}", tmux.screen());
    tmux.press("q");
    // After a change of size, tmux 3.3a sometimes keeps lines of the screen that the command has left.
    assert_modes_restored(&tmux, "ended with 0");
}

#[test]
fn with_several_processes_the_user_chooses_one() {
    let folder = Folder::new("top-chooser");
    let [one, other] = [Watched::start(&folder), Watched::start(&folder)];
    // Root sees the processes of all users.
    refused(&mut top(&folder, &["--once"]), 2, &["several", &one.pid(), &other.pid()]);
    let Some(tmux) = tmux("chooser", (100, 40), &folder, "") else { return };
    let listed = || {
        let both =
            |screen: &String| [&one, &other].iter().all(|process| screen.contains(&process.pid()));
        Some(tmux.screen()).filter(|screen| screen.contains("which process?") && both(screen))
    };
    let screen = wait_for(listed).unwrap_or_else(|| panic!("{}", tmux.screen()));
    let marked = |screen: &str, pid: &str| {
        screen
            .lines()
            .any(|line| line.starts_with('>') && line.split_whitespace().nth(1) == Some(pid))
    };
    // As many steps as there are lines above.
    let lines = screen.lines().skip(3);
    let above = lines.take_while(|line| !line.contains(&other.pid())).count();
    (0..above).for_each(|_| tmux.press("Down"));
    let pid = other.pid();
    let there = wait_for(|| Some(tmux.screen()).filter(|screen| marked(screen, &pid)));
    assert!(there.is_some(), "{}", tmux.screen());
    tmux.press("Enter");
    let mark = format!("pid {pid} ");
    let opened = wait_for(|| Some(tmux.screen()).filter(|screen| screen.contains(&mark)));
    assert!(opened.is_some(), "{}", tmux.screen());
    tmux.press("q");
    assert_restored(&tmux, "ended with 0");
}

/// The CPU use of `top` itself: two samples a second, on a screen of 200x50, take less than 5 % of a CPU even without optimisation.
#[test]
fn top_uses_little_cpu_time() {
    let folder = Folder::new("top-cost");
    let process = Watched::start(&folder);
    let Some(tmux) = tmux("cost", (200, 50), &folder, &format!("{} -i 0.5", process.pid())) else {
        return;
    };
    let running = wait_for(|| Some(tmux.screen()).filter(|screen| screen.contains("WORKQUEUE")));
    assert!(running.is_some(), "{}", tmux.screen());
    let pid = wait_for(|| child_called("nearq", tmux.pane_pid())).expect("it runs");
    let (begin, before) = (Instant::now(), cpu_of(pid));
    std::thread::sleep(Duration::from_secs(4));
    let used = cpu_of(pid).saturating_sub(before);
    let part = used.as_secs_f64() / begin.elapsed().as_secs_f64();
    println!("CPU of top: {:.2} %", part * 100.0);
    assert!(part < 0.05, "{part}");
    tmux.press("q");
    assert_restored(&tmux, "ended with 0");
}

/// The fields of /proc/PID/stat after the name, the state first.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(") ")?.1.split_whitespace().map(String::from).collect())
}

fn state_of(pid: u32) -> Option<char> {
    stat(pid)?.first()?.chars().next()
}

/// CPU time; ticks are hundredths of a second.
fn cpu_of(pid: u32) -> Duration {
    let stat = stat(pid).expect("it runs");
    let ticks: u64 = [&stat[11], &stat[12]].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

/// A child of a process with that name.
fn child_called(name: &str, parent: u32) -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let called =
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|text| text.trim() == name);
        called && stat(*pid).is_some_and(|stat| stat[1] == parent.to_string())
    })
}
