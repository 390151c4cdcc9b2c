//! The file of `--output`: complete at any time, whatever ends the command.
//!
//! After each batch the text that ends the file is written, and the next batch overwrites that text. So a file that is opened early, or
//! left behind by SIGKILL, opens like any other. If a batch cannot be written (a full disk), the file ends with the batch before it. A file
//! that cannot seek (a pipe) gets its end only once.
//!
//! The file's previous contents are replaced when the first batch is written: a trace that is refused, or whose first batch does not fit,
//! leaves them as they are.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use nearq_command::file;
use nearq_control::protocol::TraceBatch;
use serde_json::Value;

use super::chrome::{self, Chrome};
use super::names::Names;
use crate::output::Failure;

/// A file that is being written.
#[derive(Debug)]
pub(super) struct TraceFile {
    path: PathBuf,
    /// `None` until something is written.
    file: Option<File>,
    /// The position of the next event, if the file can seek.
    end: Option<u64>,
    /// The text to write next: the beginning of the file, until it is written.
    text: String,
    /// The length of the text after the events written so far.
    ending: String,
    chrome: Chrome,
}

impl TraceFile {
    /// A file for the process `pid`; nothing is written yet.
    pub(super) fn open(path: &Path, pid: u32, command: &str) -> Result<Self, Failure> {
        let probed = file::probe(path).and_then(|()| file::is_ordinary(path));
        let ordinary =
            probed.map_err(|error| Failure::input(file::refusal("--output", path, &error)))?;
        let mut text = chrome::BEGINNING.to_owned();
        let chrome = Chrome::new(pid, command, &mut text);
        Ok(Self {
            path: path.into(),
            file: None,
            end: ordinary.then_some(0),
            text,
            ending: String::new(),
            chrome,
        })
    }

    /// Adds a batch; `about` describes the trace so far.
    pub(super) fn batch(
        &mut self,
        batch: &TraceBatch,
        names: &Names,
        about: &BTreeMap<&'static str, Value>,
    ) -> Result<(), Failure> {
        self.chrome.batch(batch, names, &mut self.text);
        self.write(about).map_err(|error| self.failure(&error))
    }

    /// Adds what is unfinished, and ends the file.
    pub(super) fn finish(
        mut self,
        names: &Names,
        about: &BTreeMap<&'static str, Value>,
    ) -> Result<(), Failure> {
        self.chrome.finish(names, &mut self.text);
        let ended = self.write(about).and_then(|()| match (self.end, &mut self.file) {
            (None, Some(file)) => file.write_all(chrome::ending(about).as_bytes()),
            _ => Ok(()),
        });
        ended.map_err(|error| self.failure(&error))
    }

    /// Writes the text and, if the file can seek, the end after it.
    fn write(&mut self, about: &BTreeMap<&'static str, Value>) -> io::Result<()> {
        let mut text = std::mem::take(&mut self.text);
        let ending = chrome::ending(about);
        let end = self.end;
        if let Some(end) = end {
            self.end = Some(end + text.len() as u64);
            text.push_str(&ending);
        }
        match (&mut self.file, end) {
            (None, _) => self.file = Some(file::begin(&self.path, text.as_bytes())?),
            (Some(file), None) => file.write_all(text.as_bytes())?,
            (Some(file), Some(end)) => {
                if let Err(error) = put(file, end, &text) {
                    return Err(self.repaired(end, error));
                }
            }
        }
        self.ending = ending;
        Ok(())
    }

    /// Removes the written part of a batch that did not fit; returns a description of the file's state.
    fn repaired(&mut self, end: u64, error: io::Error) -> io::Error {
        let ending = std::mem::take(&mut self.ending);
        let put = self.file.as_mut().map(|file| put(file, end, &ending));
        let now = match put {
            Some(Ok(())) => "the file is complete up to there",
            _ => "the file is cut off",
        };
        io::Error::new(error.kind(), format!("{error}; {now}"))
    }

    fn failure(&self, error: &io::Error) -> Failure {
        Failure::run(format!("{}: cannot be written: {error}", self.path.display()))
    }
}

/// Writes everything from `from` to the end of the file.
fn put(file: &mut File, from: u64, text: &str) -> io::Result<()> {
    file.seek(SeekFrom::Start(from))?;
    // In one call, so that the file is without its end only for an instant.
    file.write_all(text.as_bytes())?;
    // The previous end may have been longer.
    file.set_len(from + text.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_control::protocol::{TraceEvent, TraceKind, TracedQueue};
    use serde_json::json;

    fn batch(at_ns: u64) -> TraceBatch {
        let event = |kind, at_ns, took_ns| TraceEvent {
            kind,
            at_ns,
            took_ns,
            queue: 1,
            thread: 5,
            function: "work".into(),
            ..TraceEvent::default()
        };
        TraceBatch {
            queues: vec![TracedQueue { id: 1, name: "queue".into() }],
            events: vec![event(TraceKind::Start, at_ns, 10), event(TraceKind::End, at_ns + 90, 90)],
            ..TraceBatch::default()
        }
    }

    fn slices(path: &Path) -> usize {
        let text = std::fs::read_to_string(path).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"));
        let events = json["traceEvents"].as_array().unwrap();
        events.iter().filter(|event| event["ph"] == "X").count()
    }

    #[test]
    fn the_file_is_complete_after_every_batch() {
        let path = std::env::temp_dir().join(format!("nearq-trace-{}.json", std::process::id()));
        std::fs::write(&path, "x".repeat(9000)).unwrap();
        drop(TraceFile::open(&path, 1, "a program").unwrap());
        assert_eq!(
            std::fs::metadata(&path).unwrap().len(),
            9000,
            "a refused trace changes no file"
        );
        let mut file = TraceFile::open(&path, 1, "a program").unwrap();
        let mut names = Names::in_folder("/proc/none".into());
        for number in 1..20 {
            let batch = batch(number * 1000);
            names.learn(&batch);
            // The text at the end grows and shrinks.
            let about = BTreeMap::from([("dropped", json!("x".repeat(number as usize % 5 * 300)))]);
            file.batch(&batch, &names, &about).unwrap();
            assert_eq!(slices(&path), number as usize);
        }
        file.finish(&names, &BTreeMap::new()).unwrap();
        assert_eq!(slices(&path), 19);
        std::fs::remove_file(&path).unwrap();
        drop(TraceFile::open(&path, 1, "a program").unwrap());
        assert!(!path.exists(), "no file is left behind");
    }
}
