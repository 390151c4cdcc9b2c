//! An item's way as others see it with their own tools: as spans of `tracing`, and as probes of the system.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]

#[path = "../../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;

use std::fmt::Debug;
use std::process::Command;
use std::sync::{Arc, Mutex};

use nearq_core::Runtime;
use skipped::skipped;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// What was said, one line each.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if ["queue", "message"].contains(&field.name()) {
            self.0 += &format!(" {value:?}").replace('"', "");
        }
        if field.name() == "function" {
            assert!(format!("{value:?}").contains("points"), "{value:?}");
        }
    }
}

impl Log {
    fn add(&self, what: &str, record: impl FnOnce(&mut Line)) {
        let mut line = Line(what.to_owned());
        record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "nearq::item"
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
    let queue = runtime.workqueue("seen").build_in().unwrap();
    let own = log.clone();
    queue.spawn(move || own.add("runs", |_| ())).join().unwrap();
    queue.flush().unwrap();
    let said = log.0.lock().unwrap();
    assert_eq!(said[..], ["event queued seen", "item seen", "enter", "runs", "exit"]);
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
