//! A trace under way: where its events go, and what is counted of them.

use std::collections::BTreeMap;

use nearq_control::client::ClientError;
use nearq_control::protocol::{TraceBatch, TraceKind};
use serde_json::Value;

use super::file::TraceFile;
use super::names::Names;
use super::{lines, objects};
use crate::output::{self, Failure};

/// Where the events go.
#[derive(Debug)]
pub(super) enum Output {
    /// Lines on standard output, under a heading; times begin with the first one's.
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

/// Why a trace has ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// As it was asked to: by a signal, the time, or the number of items.
    Asked,
    /// Nobody reads what is printed.
    Unread,
    /// By the process, with an error or without.
    Lost(Option<ClientError>),
}

/// A trace under way.
#[derive(Debug)]
pub(super) struct Session {
    output: Output,
    names: Names,
    pid: u32,
    /// So many items are to end.
    wanted: Option<u64>,
    counts: Counts,
}

/// What is counted of a trace.
#[derive(Debug, Default)]
struct Counts {
    events: u64,
    /// Items that have ended.
    items: u64,
    dropped: u64,
    /// The first and the last event.
    times: Option<(u64, u64)>,
    /// One item of so many was told: at the least, at the most, and last.
    every: Option<(u64, u64, u64)>,
}

impl Session {
    /// Begins, with the process `pid`; ends after `wanted` items.
    pub(super) fn new(pid: u32, output: Output, wanted: Option<u64>) -> Self {
        Self { output, names: Names::of(pid), pid, wanted, counts: Counts::default() }
    }

    /// Shows that the trace has begun, before anything has happened.
    fn begin(&mut self) -> Result<Option<Ended>, Failure> {
        let Output::Lines { headed, .. } = &mut self.output else { return Ok(None) };
        if std::mem::replace(headed, true) || output::try_print(&lines::heading())? {
            return Ok(None);
        }
        Ok(Some(Ended::Unread))
    }

    /// Shows a batch; says so if that was the last one.
    pub(super) fn batch(&mut self, mut batch: TraceBatch) -> Result<Option<Ended>, Failure> {
        if batch.events.is_empty() && batch.dropped == 0 && self.counts.times.is_none() {
            // Nothing has happened yet; there is no time to say anything about.
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
                if !std::mem::replace(headed, true) {
                    text.push_str(&lines::heading());
                }
                // That everything is told is not worth a line.
                if share && !(begin.is_none() && batch.dropped == 0 && batch.every <= 1) {
                    text.push_str(&lines::share(batch.dropped, batch.every));
                }
                for event in &batch.events {
                    let begin = *begin.get_or_insert(event.at_ns);
                    text.push_str(&lines::line(event, begin, &self.names));
                }
            }
        }
        if !output::try_print(&text)? {
            return Ok(Some(Ended::Unread));
        }
        Ok(all.then_some(Ended::Asked))
    }

    /// Cuts what comes after the last item that is wanted; whether there was one.
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

    /// Ends, and says on standard error what there was.
    pub(super) fn finish(self, ended: Ended) -> Result<(), Failure> {
        if let Output::File(file) = self.output {
            file.finish(&self.names, &self.counts.about(self.pid))?;
        }
        // Nobody reads that either, then.
        output::print_aside(&format!("{}\n", self.counts.summary()));
        match ended {
            Ended::Asked | Ended::Unread => Ok(()),
            Ended::Lost(None) => Err(Failure::run("the process has ended the trace")),
            Ended::Lost(Some(error)) => Err(Failure::run(format!(
                "the connection was lost, most likely as the process has ended: {error}"
            ))),
        }
    }
}

impl Counts {
    /// Counts a batch; whether how much is told has changed.
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

    /// What a file says about itself.
    fn about(&self, pid: u32) -> BTreeMap<&'static str, Value> {
        let (least, most, _) = self.every.unwrap_or((1, 1, 1));
        BTreeMap::from([
            ("made by", concat!("nearq trace ", env!("CARGO_PKG_VERSION")).into()),
            ("process", pid.into()),
            ("clock", "CLOCK_MONOTONIC".into()),
            ("events", self.events.into()),
            ("items that ended", self.items.into()),
            ("events lost", self.dropped.into()),
            ("one item told of, at the least", least.into()),
            ("one item told of, at the most", most.into()),
        ])
    }

    /// The same in a line.
    fn summary(&self) -> String {
        let Some((first, last)) = self.times else { return "nothing has happened".into() };
        let lost = match self.dropped {
            0 => "none lost".into(),
            dropped => format!("{dropped} lost, as they came faster than they were read"),
        };
        let told = match self.every {
            None | Some((0 | 1, 0 | 1, _)) => "every item was told".into(),
            Some((least, most, _)) if least == most => format!("one item of {least} was told"),
            Some((least, most, _)) => format!("one item of {least} to {most} was told"),
        };
        format!(
            "{} events in {}, {} items ended; {lost}; {told}",
            self.events,
            lines::duration(last - first),
            self.items,
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
    fn the_last_item_that_is_wanted_is_the_last_that_is_shown() {
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
    fn the_summary_says_what_is_missing() {
        use TraceKind::{End, Queue, Start};
        let mut counts = Counts::default();
        assert_eq!(counts.summary(), "nothing has happened");
        assert!(counts.add(&batch(&[Queue, Start, End], 0, 1)));
        assert!(!counts.add(&batch(&[Queue], 0, 1)));
        assert_eq!(
            counts.summary(),
            "4 events in 2.00 us, 1 items ended; none lost; every item was told"
        );
        assert!(counts.add(&batch(&[], 5, 1)) && counts.add(&batch(&[End], 5, 8)));
        assert_eq!(
            counts.summary(),
            "5 events in 2.00 us, 2 items ended; 5 lost, as they came faster than they were read; one item of 1 to 8 was told"
        );
    }
}
