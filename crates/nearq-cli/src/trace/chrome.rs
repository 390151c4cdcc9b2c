//! Events in the Trace Event Format, which Perfetto (ui.perfetto.dev) and `chrome://tracing` open.
//!
//! ```text
//!   a track per worker: |== function ==|   |= function =|     complete events; category: the queue
//!   a track per queue:  |~~ waits ~~|                         asynchronous events, from queueing to start
//!   counters:          events lost, one item of so many reported
//! ```
//!
//! Memory does not grow with the trace. A slice is written when its item ends, and contains its own start; a wait is written when it is
//! over. This module keeps one start for each thread, and up to [`MOST_WAITING`] items that were queued and have not started. These are
//! written at the end, as unfinished.
//!
//! Slices of one track must not overlap in part, and pairs must be complete. Both hold whatever events were lost, because no slice is made
//! of two events.
//!
//! Times are those of `CLOCK_MONOTONIC`, in microseconds, so that events of other tools can be merged.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use nearq_control::protocol::{TraceBatch, TraceEvent, TraceKind};
use serde::Serialize;
use serde_json::Value;

use super::names::Names;
use crate::output::json_line;

/// How many items that were queued and have not started are kept for the end.
const MOST_WAITING: usize = if cfg!(test) { 1 << 8 } else { 1 << 16 };
/// How many bytes of the function's name are kept for each.
const LONGEST_NAME: usize = 256;
/// How many threads are remembered: more than a process has.
const MOST_THREADS: usize = MOST_WAITING;

/// Turns batches into text: all of a file except its beginning and its end.
#[derive(Debug)]
pub(super) struct Chrome {
    pid: u32,
    /// Threads whose name is already in the file.
    named: HashSet<u64>,
    running: HashMap<u64, TraceEvent>,
    waiting: HashMap<u64, TraceEvent>,
    share: Option<(u64, u64)>,
    last_ns: u64,
    empty: bool,
}

/// What is kept of an event until the next event of its item. Only the beginning of the function's name is kept, because there may be many
/// events.
fn remembered(event: &TraceEvent) -> TraceEvent {
    let name = &event.function;
    let function = match name.get(..name.floor_char_boundary(LONGEST_NAME)) {
        Some(begin) if begin.len() < name.len() => format!("{begin}…"),
        _ => name.clone(),
    };
    TraceEvent { function, ..*event }
}

/// An event of the format.
#[derive(Serialize)]
struct Written<'e> {
    ph: &'static str,
    name: Cow<'e, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<String>,
    pid: u32,
    tid: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    args: BTreeMap<&'static str, Value>,
}

/// The text of a file before its events.
pub(super) const BEGINNING: &str = "{\"traceEvents\":[\n";

/// The text of a file after its events; `about` describes the trace.
pub(super) fn ending(about: &BTreeMap<&'static str, Value>) -> String {
    let about = json_line(about);
    format!("\n],\"displayTimeUnit\":\"ns\",\"otherData\":{about}}}\n")
}

impl Chrome {
    /// Starts a file for the process `pid` with this command line.
    pub(super) fn new(pid: u32, command: &str, text: &mut String) -> Self {
        let mut chrome = Self {
            pid,
            named: HashSet::new(),
            running: HashMap::new(),
            waiting: HashMap::new(),
            share: None,
            last_ns: 0,
            empty: true,
        };
        chrome.metadata("process_name", 0, "name", command.into(), text);
        chrome
    }

    /// Adds the events of a batch to `text`.
    pub(super) fn batch(&mut self, batch: &TraceBatch, names: &Names, text: &mut String) {
        for event in &batch.events {
            if self.named.len() >= MOST_THREADS {
                self.named.clear();
            }
            self.last_ns = self.last_ns.max(event.at_ns);
            if event.thread != 0 && self.named.insert(event.thread) {
                self.metadata(
                    "thread_name",
                    event.thread,
                    "name",
                    names.thread(event.thread).into(),
                    text,
                );
                self.metadata(
                    "thread_sort_index",
                    event.thread,
                    "sort_index",
                    event.pool.into(),
                    text,
                );
            }
            match event.kind {
                TraceKind::Queue => self.queued(event),
                TraceKind::Start => self.started(event, names, text),
                TraceKind::End => self.ended(event, names, text),
            }
        }
        self.shared(batch.dropped, batch.every, text);
    }

    /// Adds what is unfinished.
    pub(super) fn finish(&mut self, names: &Names, text: &mut String) {
        let end = self.last_ns;
        let mut running: Vec<TraceEvent> = self.running.drain().map(|(_, event)| event).collect();
        running.sort_by_key(|event| (event.at_ns, event.thread));
        for event in running {
            let mut args = BTreeMap::from([("unfinished", true.into())]);
            add_wait(&mut args, event.took_ns);
            self.slice(&event, (event.at_ns, end.saturating_sub(event.at_ns)), args, names, text);
        }
        let mut waiting: Vec<TraceEvent> = self.waiting.drain().map(|(_, event)| event).collect();
        waiting.sort_by_key(|event| (event.at_ns, event.item));
        for event in waiting {
            let args = BTreeMap::from([
                ("function", event.function.clone().into()),
                ("queued on CPU", event.cpu.into()),
                ("unfinished", true.into()),
            ]);
            self.wait(&event, (event.at_ns, end), args, names, text);
        }
    }

    fn queued(&mut self, event: &TraceEvent) {
        let full = self.waiting.len() >= MOST_WAITING;
        match self.waiting.entry(event.item) {
            Entry::Occupied(mut known) => {
                known.insert(remembered(event));
            }
            Entry::Vacant(place) if !full => {
                place.insert(remembered(event));
            }
            Entry::Vacant(_) => {}
        }
    }

    fn started(&mut self, event: &TraceEvent, names: &Names, text: &mut String) {
        let queueing = self.waiting.remove(&event.item);
        let mut args = BTreeMap::from([
            ("function", Value::from(event.function.as_str())),
            ("started on CPU", event.cpu.into()),
        ]);
        if let Some(queueing) = queueing {
            args.insert("queued on CPU", queueing.cpu.into());
        }
        let from = event.at_ns.saturating_sub(event.took_ns);
        self.wait(event, (from, event.at_ns), args, names, text);
        if self.running.len() >= MOST_THREADS {
            self.running.clear();
        }
        self.running.insert(event.thread, remembered(event));
    }

    fn ended(&mut self, event: &TraceEvent, names: &Names, text: &mut String) {
        let start = self.running.remove(&event.thread).filter(|start| start.item == event.item);
        let mut args = BTreeMap::new();
        if let Some(start) = start {
            add_wait(&mut args, start.took_ns);
        }
        let from = event.at_ns.saturating_sub(event.took_ns);
        self.slice(event, (from, event.took_ns), args, names, text);
    }

    /// Adds counters when they change. A lost event may have been the end of something that is still kept as unfinished.
    fn shared(&mut self, dropped: u64, every: u64, text: &mut String) {
        let before = self.share.replace((dropped, every));
        if before == Some((dropped, every)) {
            return;
        }
        if before.is_some_and(|(known, _)| dropped > known) {
            self.waiting.clear();
            self.running.clear();
        }
        for (name, number) in [("events lost", dropped), ("one item traced of", every)] {
            self.write(
                &Written {
                    ph: "C",
                    name: name.into(),
                    cat: None,
                    pid: self.pid,
                    tid: 0,
                    ts: Some(microseconds(self.last_ns)),
                    dur: None,
                    id: None,
                    args: BTreeMap::from([("count", number.into())]),
                },
                text,
            );
        }
    }

    /// A slice on a worker's track.
    fn slice(
        &mut self,
        event: &TraceEvent,
        (from, took): (u64, u64),
        mut args: BTreeMap<&'static str, Value>,
        names: &Names,
        text: &mut String,
    ) {
        args.insert("CPU", event.cpu.into());
        args.insert("pool", event.pool.into());
        args.insert("item", format!("{:#x}", event.item).into());
        self.write(
            &Written {
                ph: "X",
                name: event.function.as_str().into(),
                cat: Some(category(&names.queue(event.queue))),
                pid: self.pid,
                tid: event.thread,
                ts: Some(microseconds(from)),
                dur: Some(microseconds(took)),
                id: None,
                args,
            },
            text,
        );
    }

    /// A pair of events on a queue's track.
    fn wait(
        &mut self,
        event: &TraceEvent,
        (from, until): (u64, u64),
        mut args: BTreeMap<&'static str, Value>,
        names: &Names,
        text: &mut String,
    ) {
        let queue = names.queue(event.queue);
        for (ph, at) in [("b", from), ("e", until)] {
            self.write(
                &Written {
                    ph,
                    name: format!("waiting on {queue}").into(),
                    cat: Some(category(&queue)),
                    pid: self.pid,
                    tid: event.thread,
                    ts: Some(microseconds(at)),
                    dur: None,
                    id: Some(format!("{:#x}", event.item)),
                    args: std::mem::take(&mut args),
                },
                text,
            );
        }
    }

    fn metadata(
        &mut self,
        name: &'static str,
        tid: u64,
        key: &'static str,
        value: Value,
        text: &mut String,
    ) {
        self.write(
            &Written {
                ph: "M",
                name: name.into(),
                cat: None,
                pid: self.pid,
                tid,
                ts: None,
                dur: None,
                id: None,
                args: BTreeMap::from([(key, value)]),
            },
            text,
        );
    }

    fn write(&mut self, event: &Written<'_>, text: &mut String) {
        if !std::mem::replace(&mut self.empty, false) {
            text.push_str(",\n");
        }
        text.push_str(&json_line(event));
    }
}

fn add_wait(args: &mut BTreeMap<&'static str, Value>, ns: u64) {
    args.insert("wait", super::lines::duration(ns).into());
    args.insert("wait_ns", ns.into());
}

/// The format's unit. Exact to a nanosecond for the first 100 days of uptime.
fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// A category's name must have no comma: a comma separates categories.
fn category(queue: &str) -> String {
    queue.replace(',', ";")
}

#[cfg(test)]
mod check;
#[cfg(test)]
mod tests;
