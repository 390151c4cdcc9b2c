//! An item's path as external tools see it: as spans of `tracing`, and as probes of the system.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]

#[path = "../../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;

use std::fmt::Debug;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use nearq_core::{Runtime, Work};
use skipped::skipped;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// What was logged, one line for each entry; and whether the subscriber panics at every call.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>, Arc<AtomicBool>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if ["queue", "message"].contains(&field.name()) {
            self.0 += &format!(" {value:?}").replace('"', "");
        }
        if field.name() == "function" {
            assert!(format!("{value:?}").contains("trace_points"), "{value:?}");
        }
    }
}

impl Log {
    fn add(&self, what: &str, record: impl FnOnce(&mut Line)) {
        assert!(!self.1.load(Ordering::Relaxed), "on purpose");
        let mut line = Line(what.to_owned());
        record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_item = metadata.target() == "nearq::item";
        assert!(is_item || !self.1.load(Ordering::Relaxed), "on purpose");
        is_item
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.add(span.metadata().name(), |line| span.record(line));
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        self.add("event", |line| event.record(line));
    }
    fn enter(&self, _: &Id) {
        self.add("enter", |_| ());
    }
    fn exit(&self, _: &Id) {
        self.add("exit", |_| ());
    }
}

#[test]
fn an_item_is_an_event_and_a_span() {
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("seen").build().unwrap();
    let log_clone = log.clone();
    queue.spawn(move || log_clone.add("runs", |_| ())).join().unwrap();
    queue.flush().unwrap();
    let logged = log.0.lock().unwrap();
    assert_eq!(logged[..], ["event queued seen", "item seen", "enter", "runs", "exit"]);
    drop(logged);
    log.1.store(true, Ordering::Relaxed);
    nothing_is_lost();
    log.1.store(false, Ordering::Relaxed);
}

/// Whatever the subscriber does, nothing is lost: it is called in the issuer, in a worker, in the timer's thread and in the monitor.
fn nothing_is_lost() {
    const LONG: Duration = Duration::from_mins(2);
    let builder = Runtime::builder().thread_limit(1).stall_after(Duration::from_millis(20));
    let (stalled, has_stalled) = mpsc::channel();
    let runtime = builder.on_stall(move |_| stalled.send(()).unwrap()).build().unwrap();
    let queue = runtime.workqueue_builder("panics").build().unwrap();
    queue.spawn(|| {}).join().unwrap();
    let (sender, receiver) = mpsc::channel();
    let work = Work::new(move |_: &Work| sender.send(()).unwrap());
    for _ in 0..3 {
        assert!(queue.queue_delayed(&work, Duration::from_millis(1)));
        receiver.recv_timeout(LONG).expect("the timer's thread is there");
    }
    for _ in 0..2 {
        let (open, gate) = mpsc::channel::<()>();
        let first = queue.spawn(move || gate.recv().unwrap());
        let behind = queue.spawn(|| {});
        has_stalled.recv_timeout(LONG).expect("the monitor is there");
        open.send(()).unwrap();
        first.join().unwrap();
        behind.join().unwrap();
        while has_stalled.try_recv().is_ok() {}
    }
}

#[test]
fn the_program_has_the_probes_with_their_arguments() {
    let notes =
        Command::new("readelf").arg("--notes").arg(std::env::current_exe().unwrap()).output();
    let Ok(notes) = notes else {
        return skipped(
            "the probes of a program",
            "there is no readelf",
            "apt-get install binutils",
        );
    };
    let notes = String::from_utf8_lossy(&notes.stdout).into_owned();
    for name in ["queue", "start", "end"] {
        let at = notes.match_indices("Provider: nearq").map(|(at, _)| &notes[at..]).find(|note| {
            note.lines().nth(1).is_some_and(|line| line.trim() == format!("Name: {name}"))
        });
        let note = at.unwrap_or_else(|| panic!("no probe nearq:{name} in\n{notes}"));
        let lines: Vec<&str> = note.lines().take(4).collect();
        let arguments =
            lines.iter().find_map(|line| line.trim().strip_prefix("Arguments:")).unwrap();
        assert_eq!(arguments.split_whitespace().count(), 8, "{arguments}");
        let semaphore = lines.iter().find(|line| line.contains("Semaphore:")).unwrap();
        assert!(!semaphore.contains("Semaphore: 0x0000000000000000"), "{semaphore}");
    }
}
