//! A process with a malicious server: each command that queries the process ends soon, with a line that says why.

use std::fs::DirBuilder;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Folder, errors, nearq};

/// This process, with a server that answers each call with endless bytes, or always with the same words.
struct Hostile {
    folder: Folder,
    pid: String,
}

impl Hostile {
    /// Starts the server; only one test may use `name`.
    fn start(name: &str, answer: impl Fn(&str) -> Vec<u8> + Clone + Send + 'static) -> Self {
        let folder = Folder::new(name);
        let pid = std::process::id().to_string();
        DirBuilder::new().mode(0o700).create(folder.path("nearq")).unwrap();
        let listener = UnixListener::bind(folder.path(&format!("nearq/{pid}"))).unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let answer = answer.clone();
                thread::spawn(move || {
                    let mut call = vec![0; 65536];
                    while let Ok(count @ 1..) = stream.read(&mut call) {
                        let call = String::from_utf8_lossy(&call[..count]);
                        loop {
                            let piece = answer(&call);
                            if stream.write_all(&piece).is_err() || piece.ends_with(&[0]) {
                                break;
                            }
                        }
                    }
                });
            }
        });
        Hostile { folder, pid }
    }

    fn command(&self, name: &str, rest: &[&str]) -> Command {
        let mut command = nearq();
        command.env("XDG_RUNTIME_DIR", self.folder.path(""));
        command.arg(name).arg(&self.pid).args(rest);
        command
    }

    /// What the list of processes says about the server.
    fn listed(&self) -> String {
        let mut list = nearq();
        list.args(["ps", "--json"]).env("XDG_RUNTIME_DIR", self.folder.path(""));
        let output = list.output().expect("the command starts");
        let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let row = rows.as_array().unwrap().iter().find(|row| row["pid"] == std::process::id());
        row.expect("it is listed")["error"].as_str().unwrap().to_owned()
    }

    fn run(&self, name: &str, rest: &[&str]) -> Output {
        self.command(name, rest).output().expect("the command starts")
    }
}

/// Commands that ask a process.
const COMMANDS: [(&str, &[&str]); 9] = [
    ("dump", &[]),
    ("dump", &["--items", "--json"]),
    ("get", &[]),
    ("set", &["spin=1"]),
    ("metrics", &[]),
    ("metrics", &["--time", "1"]),
    ("trace", &["--seconds", "1"]),
    ("top", &["--once"]),
    ("tune", &["crypt"]),
];

#[test]
fn endless_answers_end_each_command() {
    let hostile = Hostile::start("flood", |_| vec![b' '; 1 << 20]);
    for (name, rest) in COMMANDS {
        let output = hostile.run(name, rest);
        let line = errors(&output);
        assert_eq!(output.status.code(), Some(1), "nearq {name} {rest:?}: {line}");
        assert!(line.contains("longer than the") && line.lines().count() == 1, "{name}: {line}");
    }
    assert!(hostile.listed().contains("longer than the"), "{}", hostile.listed());
}

#[test]
fn a_trickle_of_bytes_holds_up_no_command() {
    let end = Instant::now() + Duration::from_mins(1);
    let hostile = Hostile::start("slow", move |_| {
        thread::sleep(Duration::from_millis(200));
        if Instant::now() < end { b" ".to_vec() } else { vec![0] }
    });
    // In parallel, because each command waits.
    let running = COMMANDS.map(|(name, rest)| {
        let mut command = hostile.command(name, rest);
        (name, command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    });
    let mut ended = vec![("ps", hostile.listed())];
    for (name, child) in running {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "nearq {name}: {}", errors(&output));
        ended.push((name, errors(&output)));
    }
    assert!(Instant::now() < end, "the commands ended only with the answer");
    for (name, line) in ended {
        assert!(line.contains("no complete answer came in time"), "nearq {name}: {line}");
        assert_eq!(line.lines().count(), 1, "nearq {name}: {line}");
    }
}

#[test]
fn endless_nesting_and_garbage_end_each_command() {
    let nests = || [b"{\"parameters\":".to_vec(), vec![b'['; 5_000_000], vec![0]].concat();
    let long = || format!("{{\"error\":\"{}\"}}\0", "x".repeat(100_000)).into_bytes();
    let long_value = || {
        let keys = vec!["k"; 60_000];
        let known = serde_json::json!({"error": "nearq.control1.NoSuchKey",
            "parameters": {"key": "x".repeat(100_000), "keys": keys}});
        format!("{known}\0").into_bytes()
    };
    let hostile = Hostile::start("nests", move |call| match call {
        call if call.contains("GetProcess") => nests(),
        call if call.contains("GetDump") => long(),
        call if call.contains("GetSettings") => long_value(),
        _ => nests(),
    });
    for (name, rest) in COMMANDS {
        let output = hostile.run(name, rest);
        let line = errors(&output);
        assert!(matches!(output.status.code(), Some(1 | 2)), "nearq {name} {rest:?}: {line}");
        assert!(line.len() < 10_000 && line.lines().count() == 1, "{name}: {}", line.len());
    }
}
