//! `nearq ps`, `dump`, `get`, `set` and `metrics` against a process that is served over a real socket.

use crate::PROGRAM;
use crate::common::{Folder, errors, nearq, refuses, skipped};
use crate::invented::process;
use crate::served::{HOSTILE_NAME, Served, dump, statistics};
use nearq_control::metrics;
use nearq_control::protocol::{
    Dump, GetDump, LONGEST_NAME, ProcessReply, QueueStatistics, Settings, StatisticsReply,
};
use serde_json::Value;
use std::fs::DirBuilder;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in\n{text}"))
}

/// The output has no control characters for a terminal.
fn assert_no_control_characters(text: &str) {
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
}

#[test]
fn ps_lists_the_process() {
    let served = Served::start("ps");
    let pid = std::process::id().to_string();
    let output = served.nearq().arg("ps").output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_no_control_characters(&text);
    let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
    let line = text.lines().map(words).find(|words| words[0] == pid).expect("it is listed");
    // Root also sees the owner.
    let at = line.iter().position(|word| word == "full").expect("the access");
    assert!(at == 1 || at == 2, "{line:?}");
    assert_eq!(line[at + 1..at + 4], ["5", "12", "/usr/bin/invented"]);

    let output = served.nearq().args(["ps", "--json"]).output().unwrap();
    let rows = json(&String::from_utf8(output.stdout).unwrap());
    let row = rows.as_array().unwrap().iter().find(|row| row["pid"] == std::process::id()).unwrap();
    assert_eq!(row["process"]["queues"], 5);
    assert!(row["socket"].as_str().unwrap().ends_with(&format!("/nearq/{pid}")), "{row}");
    assert!(row["user"].is_string() && row.get("error").is_none(), "{row}");
}

#[test]
fn dump_shows_its_sections_and_its_json_has_everything() {
    let served = Served::start("dump");
    let text = served.prints(&["dump"]);
    assert_no_control_characters(&text);
    let titles = [
        "Affinity Scopes",
        "Worker Pools",
        "Workqueue CPU -> pool",
        "Workqueue -> rescuer",
        "Unbound workqueue -> node_nr/max_active",
        "Homes",
        "Running",
    ];
    let found: Vec<&str> = text
        .lines()
        .zip(text.lines().skip(1))
        .filter(|(_, line)| !line.is_empty() && line.bytes().all(|byte| byte == b'='))
        .map(|(title, _)| title)
        .collect();
    assert_eq!(found, titles);
    for part in ["CACHE (default)", "pool[08]", "twin #4 ", "invented::encrypt", "  1.5us "] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    assert!(!text.contains("invented::store"));
    let more = served.prints(&["dump", "--items", "--locks"]);
    assert!(
        more.contains("\nWaiting\n=======\n") && more.contains("31       - invented::store"),
        "{more}"
    );
    assert!(more.contains("\nMutexes\n=======\n"), "{more}");
    assert!(served.prints(&["dump", "--masks"]).contains("allowed_cpus=0000000f"));

    let printed: Dump =
        serde_json::from_str(&served.prints(&["dump", "--json", "--items"])).unwrap();
    assert_eq!(printed, dump(&GetDump { items: true, locks: false }));
}

#[test]
fn get_shows_tables_or_one_bare_value() {
    let served = Served::start("get");
    let text = served.prints(&["get"]);
    assert_no_control_characters(&text);
    let titles: Vec<&str> = text.lines().filter(|line| line.starts_with("queue ")).collect();
    assert_eq!(titles.len(), 5, "{text}");
    assert!(text.starts_with("process\n  KEY "), "{text}");
    assert!(text.contains("\n  affinity_scope  rw    default     default (cache)\n"), "{text}");

    assert_eq!(served.prints(&["get", "crypt", "affinity_scope"]), "default (cache)\n");
    assert_eq!(served.prints(&["get", "#4", "cpumask"]), "0-7 (000000ff)\n");
    assert_eq!(served.prints(&["get", "default_affinity_scope"]), "cache\n");
    // A queue has the name of a key: the word means the queue, except with `--process`.
    assert!(served.prints(&["get", "spin"]).starts_with("queue spin (#2)\n"));
    assert_eq!(served.prints(&["get", "spin", "--process"]), "512\n");
    let process = served.prints(&["get", "--process"]);
    assert!(process.starts_with("process\n") && !process.contains("queue"), "{process}");

    let all: Settings = serde_json::from_str(&served.prints(&["get", "--json"])).unwrap();
    assert_eq!(all.queues.len(), 5);
    assert_eq!(all.queues[4].name, HOSTILE_NAME);
    let one = json(&served.prints(&["get", "crypt", "affinity_scope", "--json"]));
    assert_eq!(one["configured"], "default");
}

#[test]
fn get_refusals_are_readable() {
    let served = Served::start("get-refusals");
    let line = served.refuses(2, &["get", "nosuch"]);
    assert!(line.contains("no queue `nosuch`; there are crypt, spin, twin"), "{line}");
    assert!(line.contains("the process has no setting of that name"), "{line}");
    assert_no_control_characters(&line);
    let line = served.refuses(2, &["get", "nosuch", "nice"]);
    assert!(line.contains("no queue `nosuch`") && !line.contains("no setting"), "{line}");
    let line = served.refuses(2, &["get", "crypt", "colour"]);
    assert!(line.contains("`colour`") && line.contains("affinity_scope, cpumask, nice"), "{line}");
    let line = served.refuses(2, &["get", "twin"]);
    assert!(line.contains("#3, #4"), "{line}");
    let line = served.refuses(2, &["get", "colour", "--process"]);
    assert!(line.contains("default_affinity_scope, spin"), "{line}");
}

#[test]
fn set_shows_the_values_in_effect() {
    let served = Served::start("set");
    let text = served.prints(&["set", "crypt", "nice=-5", "affinity_scope=numa"]);
    assert_eq!(text, "nice            -5\naffinity_scope  numa\n");
    let text = served.prints(&["set", "crypt", "affinity_scope=default"]);
    assert_eq!(text, "affinity_scope  default (cache)\n");
    assert_eq!(
        served.prints(&["set", "default_affinity_scope=smt"]),
        "default_affinity_scope  smt\n"
    );
    assert_eq!(served.prints(&["set", "crypt", "cpumask="]), "cpumask  0-7 (000000ff)\n");
    let now = json(&served.prints(&["set", "#4", "nice=7", "--json"]));
    assert_eq!(now.as_array().map(Vec::len), Some(1));
    assert_eq!((&now[0]["key"], &now[0]["effective"]), (&"nice".into(), &"7".into()));

    let world = served.world();
    let value = |queue: &str, key: &str| world.values[&(queue.to_owned(), key.to_owned())].clone();
    let values = [
        value("#1", "nice"),
        value("#1", "affinity_scope"),
        value("#4", "nice"),
        value("#3", "nice"),
    ];
    assert_eq!(values, ["-5", "default", "7", "0"]);
    assert_eq!(value("", "default_affinity_scope"), "smt");
}

#[test]
fn set_refusals_are_readable_and_change_nothing() {
    let served = Served::start("set-refusals");
    let before = served.world().values.clone();
    for (arguments, parts) in [
        (&["set", "nosuch", "nice=1"][..], &["no queue `nosuch`", "crypt"][..]),
        (&["set", "twin", "nice=1"], &["#3, #4"]),
        (&["set", "crypt", "nice=3", "colour=1"], &["`colour`", "nice"]),
        (&["set", "crypt", "nice=wrong"], &["nice cannot be `wrong`: give something right"]),
        (&["set", "crypt"], &["nothing to change; give KEY=VALUE"]),
        (&["set", "crypt", "nice"], &["`nice` is not a change"]),
        (&["set", "nice=1", "nice=2"], &["nice is given twice"]),
        (&["set"], &["required", "KEY=VALUE"]),
    ] {
        let line = served.refuses(2, arguments);
        for part in parts {
            assert!(line.contains(part), "nearq {arguments:?} does not say {part}: {line}");
        }
    }
    // A lack of privileges is not a mistake in the arguments.
    let line = served.refuses(1, &["set", "crypt", "nice=forbidden"]);
    assert!(line.contains("NEARQ_CONTROL=full"), "{line}");
    assert_eq!(served.world().values, before);
}

#[test]
fn metrics_are_those_of_the_library() {
    let served = Served::start("metrics");
    // The server counts its own cost.
    let without = |text: String| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.contains("nearq_control_cpu_seconds"));
        lines.map(String::from).collect()
    };
    let pid = std::process::id().to_string();
    let labels = || vec![("pid", pid.clone()), ("command", "invented".to_owned())];
    let library = |timing| without(metrics::text(statistics(timing), labels()));
    assert!(without(served.prints(&["metrics", "--format", "openmetrics"])) == library(false));
    assert_eq!(served.world().timed, 0, "nothing is timed unless that is asked for");
    assert!(
        without(served.prints(&["metrics", "--time", "1", "--format=openmetrics"]))
            == library(true)
    );
    assert_eq!(served.world().timed, 1);
    for seconds in ["0", "-1", "1.5", "3601", ""] {
        let time = format!("--time={seconds}");
        assert!(served.refuses(2, &["metrics", &time]).contains("from 1 to 3600"));
    }
}

#[test]
fn metrics_can_be_read_from_a_text_file() {
    let served = Served::start("prometheus");
    let text = served.prints(&["metrics"]);
    let pid = format!("pid=\"{}\",command=\"invented\"", std::process::id());
    let kinds = ["counter", "gauge", "histogram", "summary", "untyped"];
    for line in text.lines() {
        match line.strip_prefix("# ") {
            None => assert!(line.contains(&pid), "{line}"),
            Some(value) => {
                let mut words = value.split(' ');
                let is_help = words.next() == Some("HELP");
                assert!(
                    is_help || words.nth(1).is_some_and(|kind| kinds.contains(&kind)),
                    "{line}"
                );
            }
        }
    }
    for line in ["# TYPE nearq_queue_info gauge", "# TYPE nearq_queue_items_started_total counter"]
    {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
}

#[test]
fn metrics_of_all_processes_are_one_text_without_those_that_do_not_answer() {
    let served = Served::start("metrics-all");
    let without = |text: &[u8]| -> Vec<String> {
        let text = String::from_utf8_lossy(text).into_owned();
        let lines = text.lines().filter(|line| !line.contains("nearq_control_cpu_seconds"));
        lines.map(String::from).collect()
    };
    let ask = |arguments: &[&str]| served.nearq().arg("metrics").args(arguments).output().unwrap();
    let pid = std::process::id().to_string();
    let one = ask(&[&pid]);
    let all = ask(&["--all"]);
    assert!(
        one.status.success() && all.status.success() && all.stderr.is_empty(),
        "{}",
        errors(&all)
    );
    assert_eq!(without(&all.stdout), without(&one.stdout));
    assert_eq!(
        without(&ask(&[&pid, &pid]).stdout),
        without(&one.stdout),
        "one process, named twice"
    );
    // A process that is asked for by its number must answer; nothing is printed otherwise.
    let two = ask(&[&pid, "1"]);
    assert!(two.stdout.is_empty() && two.status.code() == Some(2), "{}", errors(&two));
    assert!(
        errors(&ask(&[])).contains("--help") && errors(&ask(&["--all", &pid])).contains("--all")
    );
    served.world().mutexes_only = true;
    let none = ask(&["--all", "--format", "openmetrics"]);
    assert_eq!((none.stdout.as_slice(), none.status.code()), (&b"# EOF\n"[..], Some(0)));
}

/// Serves this process in a folder: each call gets the answer that begins with the call's method.
fn answer(folder: &Folder, answers: [(&'static str, String); 2]) {
    DirBuilder::new().mode(0o700).create(folder.path("nearq")).unwrap();
    let socket = folder.path(&format!("nearq/{}", std::process::id()));
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut call = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut call) {
                let call = String::from_utf8_lossy(&call[..count]);
                let (_, answer) = answers.iter().find(|(method, _)| call.contains(method)).unwrap();
                let _ = stream.write_all(format!("{{\"parameters\":{answer}}}\0").as_bytes());
            }
        }
    });
}

#[test]
fn metrics_of_many_queues_take_little_memory() {
    // Many more would only take longer: a queue has some 24 KB of text, and far less in the answer.
    const QUEUES: u64 = 700;
    const MEMORY: u64 = 7 << 20;
    let folder = Folder::new("many-queues");
    let mut counts = statistics(true);
    let queue = counts.queues[1].clone();
    let queues = (0..QUEUES).map(|id| QueueStatistics {
        id,
        name: "x".repeat(LONGEST_NAME),
        ..queue.clone()
    });
    counts.queues = queues.collect();
    let reply = serde_json::to_string(&StatisticsReply { statistics: counts }).unwrap();
    let process = serde_json::to_string(&ProcessReply { process: process("invented") }).unwrap();
    answer(&folder, [("GetProcess", process), ("GetStatistics", reply)]);
    let mut command = nearq();
    command
        .env("XDG_RUNTIME_DIR", folder.path(""))
        .args(["metrics", &std::process::id().to_string()]);
    let limit = || {
        let limit = libc::rlimit { rlim_cur: MEMORY, rlim_max: MEMORY };
        // SAFETY: the structure is initialised. The call may be made between fork and exec.
        let refused = unsafe { libc::setrlimit(libc::RLIMIT_DATA, &raw const limit) };
        if refused == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: it makes one system call and touches no memory of other threads.
    unsafe { command.pre_exec(limit) };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert!(output.stdout.len() as u64 > 2 * MEMORY);
}

#[test]
fn an_independent_openmetrics_parser_accepts_the_text() {
    const READER: &str = "import sys\n\
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as read\n\
        print(sorted(s.name for f in read(sys.stdin.read()) for s in f.samples if s.labels.get('id') == '2'))";
    let python = |program: &str| {
        let mut command = Command::new("python3");
        command
            .args(["-c", program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    };
    let has_client = python("import prometheus_client.openmetrics.parser").output();
    if !has_client.is_ok_and(|output| output.status.success()) {
        let how = "pip install prometheus-client, or the package python3-prometheus-client";
        return skipped(
            "reading metrics with Prometheus's own client",
            "python3 does not have it",
            how,
        );
    }
    let text =
        Served::start("openmetrics").prints(&["metrics", "--time", "1", "--format", "openmetrics"]);
    let mut reader = python(READER).spawn().unwrap();
    reader.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = reader.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let names = String::from_utf8(output.stdout).unwrap();
    for name in
        ["nearq_queue_items_started_total", "nearq_queue_wait_seconds_bucket", "nearq_queue_info"]
    {
        assert!(names.contains(&format!("'{name}'")), "{name} is missing in {names}");
    }
}

#[test]
fn missing_parts_of_a_process_are_reported() {
    let served = Served::start("mutexes-only");
    served.world().mutexes_only = true;
    for command in ["dump", "metrics"] {
        let line = served.refuses(2, &[command]);
        assert!(line.contains("no runtime, only mutexes"), "{line}");
    }
    // The process's own settings are still available.
    assert_eq!(served.prints(&["get", "spin"]), "512\n");
    let line = served.refuses(2, &["get", "crypt", "nice"]);
    assert!(line.contains("no runtime, only mutexes"), "{line}");
}

#[test]
fn processes_that_cannot_be_inspected_are_refused() {
    for command in [&["dump"][..], &["get"], &["metrics"]] {
        for pid in ["0", "-1", "x", "99999999999", ""] {
            let line = refuses(&[command, &["--", pid]].concat());
            assert!(line.contains("`nearq ps` lists them"), "{line}");
        }
        // Process numbers are below 2^22.
        let line = refuses(&[command, &["4194305"]].concat());
        assert!(line.contains("no process 4194305") && line.contains("`nearq ps`"), "{line}");
        // This test starts no server there.
        let pid = std::process::id().to_string();
        let output =
            nearq().args(command).arg(pid).env("XDG_RUNTIME_DIR", "/nowhere").output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(errors(&output).contains("does not listen"), "{}", errors(&output));
    }
}

#[test]
fn a_process_of_another_user_is_reported_as_such() {
    const USER: u32 = 61_234;
    let mut command = nearq();
    command.args(["dump", "1"]).current_dir("/");
    // SAFETY: no arguments.
    let effective_user = unsafe { libc::geteuid() };
    let user = if effective_user == 0 { USER } else { effective_user };
    let owner = std::fs::metadata("/proc/1").unwrap().uid();
    let skip = |why| skipped("a process of another user", why, "run the tests as root");
    if user == owner {
        return skip("the first process is the caller's");
    }
    let output = match command.uid(user).output() {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return skip("others may not read the build's folder");
        }
        output => output.unwrap(),
    };
    let line = errors(&output);
    let expected = format!(
        "nearq: process 1 belongs to user {owner}; only that user and root may inspect it: run the command as one of them\n"
    );
    assert_eq!((output.status.code(), line), (Some(2), expected));
}

#[test]
fn help_explains_every_column() {
    for (command, words) in [
        ("ps", &["ACCESS", "QUEUES", "WORKERS", "NEARQ_CONTROL"][..]),
        (
            "dump",
            &["allowed_cpus", "idle/workers", "ready", "dfl", "at most", "--items", "--locks"],
        ),
        ("get", &["CONFIGURED", "EFFECTIVE", "MODE", "--process"]),
        ("set", &["0xff", "KEY=VALUE", "NEARQ_CONTROL=full", "#3"]),
        ("metrics", &["--time", "docs/metrics.md"]),
        ("knobs", &["--markdown", "kernel", "environment"]),
    ] {
        let text = crate::common::prints(&[command, "--help"]);
        for word in words.iter().chain(&["Examples:"]) {
            assert!(text.contains(word), "nearq {command} --help does not say {word}:\n{text}");
        }
    }
}

#[test]
fn the_descriptor_limit_is_reported_and_not_missing_processes() {
    let pid = std::process::id().to_string();
    for arguments in ["ps", &format!("dump {pid}"), "top --once"] {
        for limit in [4, 5, 6] {
            let line = format!("ulimit -n {limit}; exec {PROGRAM} {arguments}");
            let output = Command::new("sh").args(["-c", &line]).output().unwrap();
            let stderr = errors(&output);
            assert_eq!(output.status.code(), Some(1), "{limit}: {arguments}: {stderr}");
            assert!(
                stderr.contains("Too many open files") && stderr.contains("ulimit -n"),
                "{stderr}"
            );
        }
    }
}
