//! Every subcommand, applied to a hostile process and hostile machines: nothing that it prints or writes contains control sequences for a
//! terminal.

use crate::common::{Folder, errors, nearq, prints};
use crate::{invented, served};
use nearq_control::protocol::{
    GetDump, ProcessSettings, QueueSettings, Setting, Settings, TraceBatch, TraceEvent, TraceKind,
    TracedQueue,
};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::thread;

/// The contents of a hostile text: a title for the terminal, a colour in one character, an override, separators, DEL, line breaks.
const HOSTILE: &str = "\u{1b}]0;PWNED\u{7}\u{1b}[31m\u{9b}32m\u{202e}gnirts\u{2066}\u{2028}L\u{7f}\u{85}\u{200f}\r\nFORGED\tX\"\\";
/// The beginning of a line that a hostile text must not be able to produce.
const FORGED: &str = "FORGED";

/// How the process answers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answers {
    /// Correctly, with hostile texts in every field that the command only prints.
    Well,
    /// With hostile texts even in place of lists of CPUs, and keys.
    Wild,
    /// As `Wild`, and with endless traces.
    Much,
    /// Correctly, without hostile texts.
    Plainly,
    /// Correctly, with queues of these names.
    Named(&'static [&'static str]),
    /// With an error of this name, with these parameters.
    Error(&'static str),
}

const ERRORS: [Answers; 4] = [
    Answers::Error("nearq.control1.NoSuchQueue"),
    Answers::Error("nearq.control1.NotPermitted"),
    Answers::Error("nearq.control1.BadValue"),
    Answers::Error("evil.\u{1b}[2J\u{9b}\u{202e}"),
];

/// Serves a hostile process under this one's number, in a separate folder, until the tests end.
pub(crate) fn serve(name: &str, answers: Answers) -> Folder {
    let folder = Folder::new(name);
    let sockets = folder.path("nearq");
    fs::create_dir_all(&sockets).unwrap();
    fs::set_permissions(&sockets, fs::Permissions::from_mode(0o700)).unwrap();
    let listener = UnixListener::bind(format!("{sockets}/{}", std::process::id())).unwrap();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            thread::spawn(move || answer(&connection, answers));
        }
    });
    folder
}

/// Answers one call after the other.
fn answer(connection: &UnixStream, answers: Answers) {
    let mut calls = BufReader::new(connection);
    let mut connection = connection;
    let mut call = Vec::new();
    while calls.read_until(0, &mut call).is_ok_and(|length| length > 0) {
        let asked: Value = serde_json::from_slice(&call[..call.len() - 1]).unwrap();
        call.clear();
        let method = asked["method"].as_str().unwrap().rsplit('.').next().unwrap().to_owned();
        let reply = match answers {
            Answers::Well | Answers::Wild | Answers::Much => {
                json!({ "parameters": hostile(reply(&method), answers), "continues": method == "Trace" })
            }
            Answers::Plainly => {
                json!({ "parameters": reply(&method), "continues": method == "Trace" })
            }
            Answers::Named(names) => {
                let mut parameters = reply(&method);
                if method == "GetSettings" {
                    let one = parameters["settings"]["queues"][0].clone();
                    let named = |(number, name): (usize, &&str)| {
                        let mut queue = one.clone();
                        (queue["id"], queue["name"]) = ((number + 1).into(), (*name).into());
                        queue
                    };
                    parameters["settings"]["queues"] =
                        names.iter().enumerate().map(named).collect();
                }
                json!({ "parameters": parameters, "continues": false })
            }
            Answers::Error(error) => json!({ "error": error, "parameters": {
                "queue": HOSTILE, "queues": [HOSTILE], "why": HOSTILE, "key": HOSTILE, "value": HOSTILE,
            } }),
        };
        let reply = format!("{reply}\0");
        loop {
            // The command may have ended.
            if connection.write_all(reply.as_bytes()).is_err() {
                return;
            }
            if method != "Trace" {
                break;
            }
            if !matches!(answers, Answers::Much) {
                return;
            }
        }
    }
}

fn reply(method: &str) -> Value {
    let setting = |(key, value): (&str, &str)| Setting {
        key: key.into(),
        configured: value.into(),
        effective: value.into(),
        writable: true,
    };
    let of_queue =
        [("affinity", "1"), ("affinity_scope", "cache"), ("affinity_strict", "0"), ("x", "y")];
    match method {
        "GetProcess" => {
            let mut process = json!({ "process": invented::process("/usr/bin/process") });
            process["process"]["control"] = "full".into();
            process["process"]["allowed"] = "full".into();
            process
        }
        "GetStatistics" => json!({ "statistics": served::statistics(true) }),
        "GetDump" => json!({ "dump": served::dump(&GetDump { items: true, locks: true }) }),
        "GetSettings" | "Set" => json!({ "settings": Settings {
            process: Some(ProcessSettings { settings: vec![setting(("spin", "1"))] }),
            queues: vec![QueueSettings {
                id: 1,
                name: "crypt".into(),
                settings: of_queue.map(setting).to_vec(),
            }],
        } }),
        "Trace" => json!(TraceBatch {
            queues: vec![TracedQueue { id: 1, name: "crypt".into() }],
            events: [TraceKind::Queue, TraceKind::Start, TraceKind::End].map(event).to_vec(),
            every: 1,
            ..TraceBatch::default()
        }),
        other => panic!("{other} has no answer"),
    }
}

fn event(kind: TraceKind) -> TraceEvent {
    TraceEvent {
        at_ns: 1000,
        kind,
        queue: 1,
        item: 1,
        function: "encrypt".into(),
        ..TraceEvent::default()
    }
}

/// Appends hostile text to all texts, except words of a fixed set.
fn hostile(value: Value, answers: Answers) -> Value {
    const WORDS: [&str; 6] = ["full", "read", "off", "queue", "start", "end"];
    const USED: [&str; 8] =
        ["affinity", "affinity_scope", "affinity_strict", "0", "1", "0-1", "2-3", "0-3"];
    let is_used = |text: &str| !matches!(answers, Answers::Wild) && USED.contains(&text);
    match value {
        Value::String(text) if !WORDS.contains(&text.as_str()) && !is_used(&text) => {
            format!("{text}{HOSTILE}").into()
        }
        Value::Array(values) => values.into_iter().map(|value| hostile(value, answers)).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (name, hostile(value, answers))).collect()
        }
        other => other,
    }
}

/// Fails if a text contains control sequences for a terminal, or a line that a hostile text produced.
fn check(what: &str, text: &[u8]) {
    let text = std::str::from_utf8(text).unwrap_or_else(|error| panic!("{what}: {error}"));
    let steers = |c: char| match c {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            true
        }
        c => c.is_control(),
    };
    if let Some(at) = text.find(steers) {
        panic!("{what}: {:?}", text[at..].chars().take(40).collect::<String>());
    }
    assert!(
        !text.lines().any(|line| line.starts_with(FORGED)),
        "{what}: a line is forged: {text:?}"
    );
}

/// Runs a command, and returns its output and its messages.
fn run(command: &mut Command) -> (String, String) {
    let output = command.output().expect("the command starts");
    let what = format!("{command:?}");
    check(&what, &output.stdout);
    check(&what, &output.stderr);
    (String::from_utf8_lossy(&output.stdout).into_owned(), errors(&output))
}

/// The subcommands, as clap lists them.
pub(crate) fn subcommands() -> Vec<String> {
    let help = prints(&["--help"]);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    // Continuation lines of a description are indented further.
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names: Vec<String> = names.filter(|name| !name.is_empty()).map(String::from).collect();
    assert!(names.len() > 10, "{help}");
    names
}

/// The calls of a subcommand: for the process `pid`, and for the machines in `files`.
pub(crate) fn questions(subcommand: &str, pid: &str, files: &Folder) -> Vec<Vec<String>> {
    let (sysfs, xml) = (format!("sysfs:{}", files.path("")), files.path("machine.xml"));
    let [svg, trace, run] = ["topo.svg", "trace.json", "run.json"].map(|name| files.path(name));
    let scope = format!("affinity_scope={HOSTILE}");
    let files_of_man = files.path("");
    let all: &[&[&str]] = match subcommand {
        "topo" => &[
            &["--on", &sysfs, "--svg", &svg],
            &["--on", &sysfs, "--json"],
            &["--on", &xml, "--svg", &svg],
            &["--on", &xml, "--json"],
            &["--on", HOSTILE],
            &["--scope", HOSTILE],
        ],
        // The output of jobs is not checked.
        "run" => &[
            &[HOSTILE, ":::", "input"],
            &["--jobs", HOSTILE],
            &["--json", &run, "--summary", "--verbose", "true", ":::", HOSTILE],
            &["--json", "-", "--summary", "true", ":::", HOSTILE],
        ],
        // They need a server for more; see their tests.
        "submit" => &[&["--help"], &["--to", HOSTILE, "--stream", HOSTILE]],
        "jobs" => &[&["--help"], &["--of", HOSTILE, "--stream", HOSTILE]],
        "homes" => &[&["--all"], &["--all", "--json"], &["--watch", HOSTILE]],
        "ps" => &[&[], &["--json"]],
        "dump" => &[
            &[pid, "--items", "--locks"],
            &[pid, "--items", "--locks", "--json"],
            &[pid, "--masks"],
        ],
        "top" => &[
            &[pid, "--once", "-i", "0.1"],
            &[pid, "--once", "-i", "0.1", "--json"],
            &[pid, "--sort", HOSTILE],
        ],
        "get" => {
            &[&[pid], &[pid, "--json"], &[pid, "crypt", "affinity_scope"], &[pid, HOSTILE, HOSTILE]]
        }
        "set" => &[&[pid, "crypt", &scope], &[pid, "crypt", &scope, "--json"], &[pid, HOSTILE]],
        "trace" => &[
            &[pid, "--items", "1"],
            &[pid, "--items", "1", "--json"],
            &[pid, "--items", "1", "--output", &trace],
            &[pid, "--every", HOSTILE],
        ],
        "tune" => &[
            &[pid, "crypt", "--seconds", "0.05", "--settle", "0", "--rounds", "1"],
            &[pid, "crypt", "--seconds", "0.05", "--settle", "0", "--rounds", "1", "--json"],
            &[pid, HOSTILE, "--seconds", HOSTILE],
        ],
        "metrics" => &[&[pid], &[pid, "--format", "openmetrics"]],
        "knobs" => &[&[], &["--markdown"], &[HOSTILE]],
        // Separate programs; see their tests.
        "bench" | "sim" => &[&[HOSTILE]],
        "completions" => &[&["bash"], &[HOSTILE]],
        "man" => &[&["--help"], &[&files_of_man], &[HOSTILE]],
        "help" => &[&[], &[HOSTILE]],
        other => panic!("what does `nearq {other}` print of what others wrote? Say so here"),
    };
    all.iter().map(|words| words.iter().map(ToString::to_string).collect()).collect()
}

/// A machine with hostile files: as /sys and /proc, and as XML, which cannot contain ESC.
pub(crate) fn machines(name: &str) -> Folder {
    let files = Folder::new(name);
    let write = |name: &str, text: &str| {
        let path = files.path(name);
        fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let line = HOSTILE.replace(['\n', '\r', '\u{85}'], "");
    for list in ["possible", "present", "online"] {
        write(&format!("sys/devices/system/cpu/{list}"), "0-1\n");
    }
    for cpu in 0..2 {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        write(&format!("{folder}/core_id"), &format!("{cpu}\n"));
        write(&format!("{folder}/physical_package_id"), &format!("0{HOSTILE}"));
        write(&format!("{folder}/thread_siblings_list"), &format!("{cpu}{HOSTILE}"));
    }
    write("proc/cpuinfo", &format!("processor\t: 0\nmodel name\t: Model{line}\n"));
    let info = "PWNED&#x9b;31m&#x202e;gnirts&#x2028;&#x7f;&#10;FORGED";
    write(
        "machine.xml",
        &format!(
            "<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" cpuset=\"0x3\">\
             <info name=\"CPUModel\" value=\"{info}\"/>\
             <object type=\"Package\" os_index=\"0\" cpuset=\"0x3\"><info name=\"CPUModel\" value=\"{info}\"/>\
             <object type=\"Core\" os_index=\"0\" cpuset=\"0x1\"><object type=\"PU\" os_index=\"0\" cpuset=\"0x1\"/></object>\
             <object type=\"Core\" os_index=\"1\" cpuset=\"0x2\"><object type=\"PU\" os_index=\"1\" cpuset=\"0x2\"/></object>\
             </object></object>\
             <cpukind cpuset=\"0x1\"><info name=\"CoreType\" value=\"{info}\"/></cpukind>\
             <cpukind cpuset=\"0x2\"><info name=\"CoreType\" value=\"other\"/></cpukind></topology>"
        ),
    );
    files
}

/// A process whose command line is hostile; ended when dropped.
struct HostileProcess(Child);

impl HostileProcess {
    fn start() -> Self {
        let mut command = Command::new("sleep");
        Self(command.arg0(format!("sleep{HOSTILE}")).arg("60").spawn().expect("there is `sleep`"))
    }
}

impl Drop for HostileProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn foreign_text_cannot_control_the_terminal() {
    let (pid, files) = (std::process::id().to_string(), machines("hostile-machines"));
    let well = serve("hostile-well", Answers::Well);
    let _hostile = HostileProcess::start();
    // Hostile texts do arrive from each source that has any: otherwise nothing would be tested.
    let showing = ["topo", "homes", "ps", "dump", "top", "get", "set", "trace", "metrics"];
    for subcommand in subcommands() {
        let mut shown = false;
        for question in questions(&subcommand, &pid, &files) {
            let mut command = nearq();
            command.env("XDG_RUNTIME_DIR", well.path("")).arg(&subcommand).args(&question);
            let (printed, _) = run(&mut command);
            let is_of_others = printed.contains("gnirts");
            shown |= is_of_others;
            if question.iter().any(|word| word == "--json")
                && !printed.is_empty()
                && subcommand != "trace"
            {
                let value: Value = serde_json::from_str(&printed).expect("it is JSON");
                let whole = ["\u{9b}3", "\u{202e}gnirts"];
                let whole = whole.iter().all(|part| value.to_string().contains(part));
                assert!(!is_of_others || whole, "{command:?} loses what others wrote: {value}");
            }
        }
        assert!(
            shown || !showing.contains(&subcommand.as_str()),
            "nearq {subcommand} shows nothing"
        );
    }
    for name in ["topo.svg", "trace.json", "run.json"] {
        check(name, &fs::read(files.path(name)).unwrap());
    }
}

#[test]
fn cpu_lists_and_keys_cannot_control_the_terminal() {
    let (pid, files) = (std::process::id().to_string(), Folder::new("hostile-wild-files"));
    let wild = serve("hostile-wild", Answers::Wild);
    for subcommand in ["dump", "top", "get", "metrics", "tune"] {
        for question in questions(subcommand, &pid, &files) {
            let mut command = nearq();
            command.env("XDG_RUNTIME_DIR", wild.path("")).arg(subcommand).args(&question);
            let (printed, stderr) = run(&mut command);
            assert!((printed + &stderr).contains("FORGED"), "{command:?} shows nothing of others");
        }
    }
}

#[test]
fn errors_of_a_process_cannot_control_the_terminal() {
    let (pid, files) = (std::process::id().to_string(), Folder::new("hostile-no-files"));
    for (number, answers) in ERRORS.into_iter().enumerate() {
        let folder = serve(&format!("hostile-error-{number}"), answers);
        for subcommand in ["ps", "dump", "top", "get", "set", "trace", "tune", "metrics"] {
            for question in questions(subcommand, &pid, &files) {
                let mut command = nearq();
                command.env("XDG_RUNTIME_DIR", folder.path("")).arg(subcommand).args(&question);
                let (printed, stderr) = run(&mut command);
                assert!(!(printed + &stderr).is_empty(), "{command:?} says nothing");
            }
        }
    }
}
