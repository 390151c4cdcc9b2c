//! `nearq trace` against an invented process that is served over a real socket: its output, and how it ends.

#[path = "../../src/trace/chrome/check.rs"]
mod check;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use crate::common::{Folder, errors};
use crate::invented::{self, Served, not_ignored, signal, until};
use nearq_control::control_target::{ControlTarget, Tracing};
use nearq_control::protocol::{
    Access, Dump, GetDump, Process, Refusal, Settings, Statistics, Trace, TraceBatch, TraceEvent,
    TraceKind, TracedQueue,
};
use serde_json::Value;

/// What the invented process reports, and which requests it received.
#[derive(Debug, Default)]
struct World {
    /// How many items a batch has; 0 ends the trace.
    items: u64,
    /// Lost events that each batch adds.
    losing: u64,
    /// Items that have been reported.
    sent: u64,
    lost: u64,
    asked: Vec<(Option<String>, Option<u32>)>,
}

struct Invented(Arc<Mutex<World>>);

fn nothing<T>() -> Result<T, Refusal> {
    Err(Refusal::NotHere { why: "this process was invented for traces".into() })
}

impl ControlTarget for Invented {
    fn process(&self) -> Process {
        invented::process("an invented program")
    }

    fn time_items(&mut self, _on: bool) -> Result<(), Refusal> {
        nothing()
    }

    fn statistics(&self) -> Result<Statistics, Refusal> {
        nothing()
    }

    fn dump(&self, _wanted: &GetDump) -> Result<Dump, Refusal> {
        nothing()
    }

    fn settings(&self, _queue: Option<&str>) -> Result<Settings, Refusal> {
        nothing()
    }

    fn set(
        &mut self,
        _queue: Option<&str>,
        _changes: &std::collections::BTreeMap<String, String>,
    ) -> Result<Settings, Refusal> {
        nothing()
    }

    fn trace(&mut self, wanted: &Trace) -> Result<Box<dyn Tracing>, Refusal> {
        if let Some(queue) = wanted.queue.clone().filter(|queue| queue != "crypt") {
            return Err(Refusal::NoSuchQueue { queue, queues: vec!["crypt".into()] });
        }
        self.0.lock().unwrap().asked.push((wanted.queue.clone(), wanted.every));
        // The only thread whose name a test can know: the process's first thread.
        Ok(Box::new(SampleTrace {
            world: Arc::clone(&self.0),
            thread: std::process::id().into(),
            named: false,
            begun: false,
        }))
    }
}

struct SampleTrace {
    world: Arc<Mutex<World>>,
    thread: u64,
    named: bool,
    begun: bool,
}

impl Tracing for SampleTrace {
    fn take(&mut self, most: usize) -> TraceBatch {
        let mut world = self.world.lock().unwrap();
        let mut events = Vec::new();
        // As for a process in which nothing has happened yet.
        if !std::mem::replace(&mut self.begun, true) {
            return TraceBatch { every: 1, ..TraceBatch::default() };
        }
        for _ in 0..world.items.min(most as u64 / 3) {
            let number = world.sent;
            world.sent += 1;
            let start = 1_000_000_000 + number * 10_000;
            let event = |kind, at_ns, took_ns, thread| TraceEvent {
                at_ns,
                kind,
                queue: 7,
                item: number % 16,
                function: "invented::encrypt".into(),
                cpu: 3,
                thread,
                pool: 2,
                took_ns,
            };
            events.push(event(TraceKind::Queue, start - 2_500, 0, 0));
            events.push(event(TraceKind::Start, start, 2_500, self.thread));
            events.push(event(TraceKind::End, start + 7_000, 7_000, self.thread));
        }
        if !events.is_empty() {
            world.lost += world.losing;
        }
        let name = !events.is_empty() && !self.named;
        self.named |= name;
        let queues =
            name.then(|| TracedQueue { id: 7, name: "crypt".into() }).into_iter().collect();
        let every = if world.losing == 0 { 1 } else { 4 };
        TraceBatch { queues, events, dropped: world.lost, every }
    }
}

fn serve(test: &str, items: u64, losing: u64) -> (Served, Arc<Mutex<World>>) {
    let world = Arc::new(Mutex::new(World { items, losing, ..World::default() }));
    let target = Invented(Arc::clone(&world));
    (Served::start(test, Box::new(target), Access::Read), world)
}

/// How often a phase occurs in a file, which must obey the rules.
fn count(path: &str, phase: &str) -> usize {
    let events = check::checked(&fs::read_to_string(path).unwrap());
    events.iter().filter(|event| event["ph"] == phase).count()
}

#[test]
fn trace_lines_match_their_headings_and_stop_at_the_requested_items() {
    let (served, world) = serve("trace-lines", 5, 0);
    let pid = served.pid();
    let output =
        served.nearq(&["trace", pid, "crypt", "--items", "12", "--every", "2"]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1 + 36, "{text}");
    let main = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    let main = main.trim_end();
    assert_eq!(
        lines[0],
        "        time  CPU thread          queue            event           took function"
    );
    assert_eq!(
        lines[1],
        "    0.000000    3                 crypt            queue                invented::encrypt"
    );
    assert_eq!(
        lines[2],
        format!(
            "    0.000002    3 {main:15} crypt            start wait   2.50 us invented::encrypt"
        )
    );
    assert!(lines[3].ends_with("end   run    7.00 us invented::encrypt"), "{}", lines[3]);
    assert!(lines.iter().all(|line| line.chars().count() <= 100));
    assert!(
        errors(&output)
            .contains("36 events in 119.5 us, 12 items ended; none lost; every item was reported"),
        "{}",
        errors(&output)
    );
    assert_eq!(world.lock().unwrap().asked, [(Some("crypt".into()), Some(2))]);
}

#[test]
fn json_lines_hold_one_object_each_and_report_losses() {
    let (served, _) = serve("trace-json", 5, 3);
    let output =
        served.nearq(&["trace", served.pid(), "--json", "--items", "10"]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let objects: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of =
        |kind: &str| objects.iter().filter(|object| object["event"] == kind).collect::<Vec<_>>();
    assert_eq!([of("queue").len(), of("start").len(), of("end").len()], [10, 10, 10]);
    let lost: Vec<u64> =
        of("share").iter().map(|share| share["dropped"].as_u64().unwrap()).collect();
    assert_eq!(lost, [3, 6]);
    let start = of("start")[0];
    assert_eq!(
        (&start["queue"], &start["wait_ns"], &start["cpu"]),
        (&"crypt".into(), &2500.into(), &3.into())
    );
    assert!(
        errors(&output).contains(
            "6 lost because they came faster than they were read; one item of 4 was reported"
        ),
        "{}",
        errors(&output)
    );
}

#[test]
fn a_trace_file_has_all_items_and_is_valid() {
    let (served, _) = serve("trace-file", 40, 0);
    let folder = Folder::new("trace-file");
    let path = folder.path("trace.json");
    let output = served
        .nearq(&["trace", served.pid(), "--items", "333", "--output", &path])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert!(output.stdout.is_empty());
    assert_eq!([count(&path, "X"), count(&path, "b"), count(&path, "e")], [333; 3]);
    let file: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let first = "{\"traceEvents\":[\n{\"ph\":\"M\"";
    assert!(fs::read_to_string(&path).unwrap().starts_with(first));
    let events = file["traceEvents"].as_array().unwrap();
    let times = events.iter().filter_map(|event| event["ts"].as_f64());
    assert_eq!(times.fold(f64::INFINITY, f64::min), 999_997.5, "no event before the first");
    assert_eq!(
        (&file["otherData"]["items that ended"], &file["otherData"]["events lost"]),
        (&333.into(), &0.into())
    );
}

#[test]
fn a_trace_file_is_complete_after_any_signal_even_sigkill() {
    let (served, world) = serve("trace-signals", 7, 1);
    let folder = Folder::new("trace-signals");
    for name in not_ignored(&["INT", "TERM", "HUP", "KILL"]) {
        let path = folder.path(name);
        let mut child = served.nearq(&["trace", served.pid(), "--output", &path]);
        let mut child = child.stderr(Stdio::piped()).spawn().unwrap();
        let before = world.lock().unwrap().sent;
        until("some items are reported and written", || {
            world.lock().unwrap().sent > before + 50
                && fs::metadata(&path).is_ok_and(|file| file.len() > 5_000)
        });
        if name == "KILL" {
            // A signal within the write would leave a partial file.
            signal("STOP", child.id());
            let stat = format!("/proc/{}/stat", child.id());
            until("the command is stopped", || fs::read_to_string(&stat).unwrap().contains(") T "));
        }
        signal(name, child.id());
        let status = child.wait().unwrap();
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        if name == "KILL" {
            assert!(!status.success());
        } else {
            assert!(status.success() && stderr.contains("items ended"), "SIG{name}: {stderr}");
        }
        assert!(count(&path, "X") > 10, "SIG{name}");
    }
}

#[test]
fn an_idle_trace_ends_at_its_time_limit() {
    let (served, _) = serve("trace-seconds", 0, 0);
    let output = served.nearq(&["trace", served.pid(), "--seconds", "0.05"]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert!(errors(&output).contains("no events"), "{}", errors(&output));
    let folder = Folder::new("trace-seconds");
    let path = folder.path("empty.json");
    let output = served
        .nearq(&["trace", served.pid(), "--seconds", "0.05", "--output", &path])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(count(&path, "X"), 0);
}

#[test]
fn a_trace_ends_with_its_process_and_keeps_its_events() {
    let (served, world) = serve("trace-lost", 5, 0);
    let folder = Folder::new("trace-lost");
    let path = folder.path("trace.json");
    let mut child = served.nearq(&["trace", served.pid(), "--output", &path]);
    let mut child = child.stderr(Stdio::piped()).spawn().unwrap();
    until("some items are written", || fs::metadata(&path).is_ok_and(|file| file.len() > 2_000));
    world.lock().unwrap().items = 0;
    let sent = world.lock().unwrap().sent as usize;
    until("everything is written", || {
        fs::read_to_string(&path).unwrap().matches("\"ph\":\"X\"").count() == sent
    });
    drop(served);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(stderr.contains("nearq: the connection was lost"), "{stderr}");
    assert_eq!(count(&path, "X"), sent);
}

#[test]
fn a_reader_that_closes_the_pipe_ends_the_trace() {
    let (served, _) = serve("trace-head", 300, 0);
    let mut child = served.nearq(&["trace", served.pid()]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("function"));
    drop(lines);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_refused_trace_changes_no_file() {
    let (served, _) = serve("trace-refused", 5, 0);
    let folder = Folder::new("trace-refused");
    let (new, old) = (folder.path("new.json"), folder.path("old.json"));
    fs::write(&old, "as it was").unwrap();
    for path in [&new, &old] {
        let output =
            served.nearq(&["trace", served.pid(), "nosuch", "--output", path]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        assert!(
            errors(&output).contains("no queue `nosuch`; there are crypt"),
            "{}",
            errors(&output)
        );
    }
    assert!(!fs::exists(&new).unwrap());
    assert_eq!(fs::read_to_string(&old).unwrap(), "as it was");
    let output = served
        .nearq(&["trace", served.pid(), "--output", "/no such folder/file"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        errors(&output).contains("--output /no such folder/file: cannot be written"),
        "{}",
        errors(&output)
    );
}

#[test]
fn invalid_trace_requests_are_refused() {
    for (arguments, parts) in [
        (&["trace"][..], &["<PID>"][..]),
        (&["trace", "me"], &["'me'", "number of a process"]),
        (&["trace", "1", "--every", "3"], &["'3'", "power of two"]),
        (&["trace", "1", "--seconds", "0"], &["'0'", "0.01 to 1000000"]),
        (&["trace", "1", "--seconds", "NaN"], &["'NaN'", "0.01 to 1000000"]),
        (&["trace", "1", "--items", "0"], &["'0'", "1 or more"]),
        (&["trace", "4194305"], &["4194305"]),
    ] {
        let line = crate::common::refuses(arguments);
        for part in parts {
            assert!(line.contains(part), "{arguments:?}: {part} is not in {line}");
        }
    }
}
