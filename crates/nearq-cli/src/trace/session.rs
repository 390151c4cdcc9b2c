//! A running trace: where its events go, and its counts.

use std::collections::BTreeMap;
use std::io;

use nearq_command::screen::{counted, width_of};
use nearq_control::client::ClientError;
use nearq_control::protocol::{TraceBatch, TraceKind};
use serde_json::Value;

use super::file::TraceFile;
use super::lines::Columns;
use super::names::Names;
use super::{lines, objects};
use crate::output::{self, Failure};

/// Where the events go.
#[derive(Debug)]
pub(super) enum Output {
    /// Lines on standard output, under a heading; times start at the first event.
    Lines { headed: bool, begin: Option<u64> },
    /// JSON on standard output.
    Objects,
    /// A file for Perfetto.
    File(Box<TraceFile>),
}

impl Output {
    /// Lines on standard output.
    pub(super) fn lines() -> Self {
        Self::Lines { headed: false, begin: None }
    }

    /// A file for Perfetto.
    pub(super) fn file(file: TraceFile) -> Self {
        Self::File(Box::new(file))
    }
}

/// Why a trace ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// It ended as requested: by a signal, the time limit, or the number of items.
    Asked,
    /// The reader of the output has gone away.
    Unread,
    /// The process ended the trace, with an error or without.
    Lost(Option<ClientError>),
}

/// A running trace.
#[derive(Debug)]
pub(super) struct Session {
    output: Output,
    names: Names,
    pid: u32,
    /// The number of ended items after which the trace ends.
    wanted: Option<u64>,
    counts: Counts,
}

/// The counts of a trace.
#[derive(Debug, Default)]
struct Counts {
    events: u64,
    /// Items that have ended.
    items: u64,
    dropped: u64,
    /// The times of the first and the last event.
    times: Option<(u64, u64)>,
    /// The N of "one item in N was reported": the smallest, the largest and the last value.
    every: Option<(u64, u64, u64)>,
}

impl Session {
    /// Starts a trace of the process `pid`; it ends after `wanted` items.
    pub(super) fn new(pid: u32, output: Output, wanted: Option<u64>) -> Self {
        Self { output, names: Names::of(pid), pid, wanted, counts: Counts::default() }
    }

    /// Shows that the trace has started, before anything has happened.
    fn begin(&mut self) -> Result<Option<Ended>, Failure> {
        let Output::Lines { headed, .. } = &mut self.output else { return Ok(None) };
        if std::mem::replace(headed, true) || output::try_print(&lines::heading(columns()))? {
            return Ok(None);
        }
        Ok(Some(Ended::Unread))
    }

    /// Shows a batch; returns whether it was the last one.
    pub(super) fn batch(&mut self, mut batch: TraceBatch) -> Result<Option<Ended>, Failure> {
        if batch.events.is_empty() && batch.dropped == 0 && self.counts.times.is_none() {
            // Nothing has happened yet, so there is no time to print.
            return self.begin();
        }
        let all = self.cut(&mut batch);
        self.names.learn(&batch);
        let share = self.counts.add(&batch);
        let mut text = String::new();
        match &mut self.output {
            Output::File(file) => file.batch(&batch, &self.names, &self.counts.about(self.pid))?,
            Output::Objects => {
                if share {
                    let at = batch.events.first().map_or(0, |event| event.at_ns);
                    text.push_str(&objects::share(at, batch.dropped, batch.every));
                }
                for event in &batch.events {
                    text.push_str(&objects::event(event, &self.names));
                }
            }
            Output::Lines { headed, begin } => {
                let columns = columns();
                if !std::mem::replace(headed, true) {
                    text.push_str(&lines::heading(columns));
                }
                // No line is needed if every item is reported.
                if share && !(begin.is_none() && batch.dropped == 0 && batch.every <= 1) {
                    text.push_str(&lines::share(batch.dropped, batch.every));
                }
                for event in &batch.events {
                    let begin = *begin.get_or_insert(event.at_ns);
                    text.push_str(&lines::line(event, begin, &self.names, columns));
                }
            }
        }
        if !output::try_print(&text)? {
            return Ok(Some(Ended::Unread));
        }
        Ok(all.then_some(Ended::Asked))
    }

    /// Cuts everything after the last item that is wanted; returns whether there was one.
    fn cut(&self, batch: &mut TraceBatch) -> bool {
        let Some(wanted) = self.wanted else { return false };
        let left = (wanted - self.counts.items) as usize;
        let ends =
            batch.events.iter().enumerate().filter(|(_, event)| event.kind == TraceKind::End);
        let last = ends.map(|(index, _)| index).nth(left - 1);
        if let Some(last) = last {
            batch.events.truncate(last + 1);
        }
        last.is_some()
    }

    /// Ends the trace, and prints a summary to standard error.
    pub(super) fn finish(self, ended: Ended) -> Result<(), Failure> {
        if let Output::File(file) = self.output {
            file.finish(&self.names, &self.counts.about(self.pid))?;
        }
        // If the output has no reader, the summary is not read either.
        output::print_aside(&format!("{}\n", self.counts.summary()));
        match ended {
            Ended::Asked | Ended::Unread => Ok(()),
            Ended::Lost(None) => Err(Failure::run("the process has ended the trace")),
            Ended::Lost(Some(error)) => Err(Failure::run(format!(
                "the connection was lost, most likely because the process has ended: {error}"
            ))),
        }
    }
}

/// The columns of lines: those that fit the terminal, whose width may have changed.
fn columns() -> Columns {
    Columns::within(width_of(&io::stdout()))
}

impl Counts {
    /// Counts a batch; returns whether the share that is reported has changed.
    fn add(&mut self, batch: &TraceBatch) -> bool {
        self.events += batch.events.len() as u64;
        let ends = batch.events.iter().filter(|event| event.kind == TraceKind::End);
        self.items += ends.count() as u64;
        for event in &batch.events {
            let (first, last) = self.times.unwrap_or((event.at_ns, event.at_ns));
            self.times = Some((first.min(event.at_ns), last.max(event.at_ns)));
        }
        let before = (self.dropped, self.every.map(|(.., last)| last));
        self.dropped = batch.dropped;
        let (least, most, _) = self.every.unwrap_or((batch.every, batch.every, 0));
        self.every = Some((least.min(batch.every), most.max(batch.every), batch.every));
        before != (self.dropped, Some(batch.every))
    }

    /// The description of the trace in a file.
    fn about(&self, pid: u32) -> BTreeMap<&'static str, Value> {
        let (least, most, _) = self.every.unwrap_or((1, 1, 1));
        BTreeMap::from([
            ("made by", concat!("nearq trace ", env!("CARGO_PKG_VERSION")).into()),
            ("process", pid.into()),
            ("clock", "CLOCK_MONOTONIC".into()),
            ("events", self.events.into()),
            ("items that ended", self.items.into()),
            ("events lost", self.dropped.into()),
            ("one item traced of, at the least", least.into()),
            ("one item traced of, at the most", most.into()),
        ])
    }

    /// The same description as one line.
    fn summary(&self) -> String {
        let Some((first, last)) = self.times else { return "no events".into() };
        let lost = match self.dropped {
            0 => "none lost".into(),
            dropped => format!("{dropped} lost because they came faster than they were read"),
        };
        let sampling = match self.every {
            None | Some((0 | 1, 0 | 1, _)) => "every item was reported".into(),
            Some((least, most, _)) if least == most => format!("one item of {least} was reported"),
            Some((least, most, _)) => format!("one item of {least} to {most} was reported"),
        };
        format!(
            "{} in {}, {} ended; {lost}; {sampling}",
            counted(self.events, "event"),
            lines::duration(last - first),
            counted(self.items, "item"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_control::protocol::TraceEvent;

    fn batch(kinds: &[TraceKind], dropped: u64, every: u64) -> TraceBatch {
        let event = |(number, kind): (usize, &TraceKind)| TraceEvent {
            kind: *kind,
            at_ns: 1000 * (number as u64 + 1),
            ..TraceEvent::default()
        };
        let events = kinds.iter().enumerate().map(event).collect();
        TraceBatch { events, dropped, every, ..TraceBatch::default() }
    }

    #[test]
    fn no_item_is_shown_after_the_requested_number() {
        use TraceKind::{End, Queue, Start};
        let mut session = Session::new(1, Output::Objects, Some(3));
        session.counts.add(&batch(&[Queue, Start, End], 0, 1));
        let mut part = batch(&[Queue, Start, End, Queue], 0, 1);
        assert!(!session.cut(&mut part));
        assert_eq!(part.events.len(), 4);
        session.counts.add(&part);
        let mut rest = batch(&[Start, End, Queue, Start, End], 0, 1);
        assert!(session.cut(&mut rest));
        assert_eq!(rest.events.len(), 2);
    }

    #[test]
    fn the_summary_names_what_is_missing() {
        use TraceKind::{End, Queue, Start};
        let mut counts = Counts::default();
        assert_eq!(counts.summary(), "no events");
        assert!(counts.add(&batch(&[Queue, Start, End], 0, 1)));
        assert!(!counts.add(&batch(&[Queue], 0, 1)));
        assert_eq!(
            counts.summary(),
            "4 events in 2.00 us, 1 item ended; none lost; every item was reported"
        );
        assert!(counts.add(&batch(&[], 5, 1)) && counts.add(&batch(&[End], 5, 8)));
        assert_eq!(
            counts.summary(),
            "5 events in 2.00 us, 2 items ended; 5 lost because they came faster than they were read; one item of 1 to 8 was reported"
        );
    }
}
